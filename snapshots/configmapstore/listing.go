package configmapstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/gitstore/signature"
	"github.com/hapsnap/hapsnap/snapshots/stores/sequence"
)

// stored is the manifest of a snapshot in a listing.
type stored struct {
	id      snapshots.ID
	name    string
	uid     types.UID
	version string // of the object
	secrets string // names of Secrets beside it
	created time.Time

	delivered bool
	signed    map[string]string // the annotations by which it is
	refused   error             // why its signature is
}

// listing is the ConfigMaps of a store, without their data.
type listing struct {
	complete []stored // by ID, ascending
	staged   []stored
	// refused are complete or delivered snapshots without an accepted signature, where signatures are
	// verified. intruding are staged ones.
	refused, intruding []stored
	status             bool                   // the status is there
	given              uint64                 // the last revision that was given, as far as the status says
	chunks             map[types.UID][]string // by the manifest that owns them
	pieces             map[types.UID][]string // the same chunks as pieceSight names them

	delivery string                    // the name of a manifest that was delivered, "" for none
	arrived  map[snapshots.ID][]string // chunks that were delivered
	partial  []stored                  // manifests that were, before all of their chunks
}

// newListing reads what the API server lists. It skips an object that merely has the labels of this
// package.
func newListing(store string, items []metav1.PartialObjectMetadata) listing {
	l := listing{chunks: map[types.UID][]string{}, pieces: map[types.UID][]string{}, arrived: map[snapshots.ID][]string{}}
	for _, o := range items {
		if o.Labels[partLabel] != partChunk {
			continue
		}
		// A chunk that was delivered means nothing without a manifest, and may be a leftover.
		id, err := snapshots.ParseID(o.Labels[snapshotLabel])
		if err == nil && o.Labels[stateLabel] == stateDelivered {
			l.arrived[id] = append(l.arrived[id], o.Name)
		}
		for _, owner := range o.OwnerReferences {
			l.chunks[owner.UID] = append(l.chunks[owner.UID], o.Name)
			l.pieces[owner.UID] = append(l.pieces[owner.UID], pieceSight(o.Name, o.UID))
		}
	}
	for _, o := range items {
		if o.Name == statusName(store) {
			given, _ := snapshots.ParseID(o.Annotations[newestAnnotation]) // what is no ID says nothing
			l.status, l.given = true, given.Revision
		}
		if o.Labels[partLabel] == partManifest {
			l.addManifest(store, o)
		}
	}
	slices.SortFunc(l.complete, func(a, b stored) int { return a.id.Compare(b.id) })
	return l
}

func (l *listing) addManifest(store string, o metav1.PartialObjectMetadata) {
	id, err := snapshots.ParseID(o.Labels[snapshotLabel])
	if err != nil || o.Name != manifestName(store, id.Revision) {
		return
	}
	found := stored{id, o.Name, o.UID, o.ResourceVersion, o.Annotations[secretsAnnotation], o.CreationTimestamp.Time, o.Labels[stateLabel] == stateDelivered, signedBy(o.Annotations), nil}
	switch o.Labels[stateLabel] {
	case stateComplete:
		l.complete = append(l.complete, found)
	case stateStaged:
		l.staged = append(l.staged, found)
	case stateDelivered: // a snapshot when its chunks are all there
		l.delivery = found.name
		if l.whole(store, found.id, o.Annotations[chunksAnnotation]) {
			l.complete = append(l.complete, found)
		} else {
			l.partial = append(l.partial, found)
		}
	}
}

// signedBy returns the annotations by which an object is signed.
func signedBy(all map[string]string) map[string]string {
	out := map[string]string{}
	for _, name := range []string{signedAnnotation, signatureAnnotation} {
		if value, ok := all[name]; ok {
			out[name] = value
		}
	}
	return out
}

// ids returns the snapshots that are there, ascending.
func (l listing) ids() []snapshots.ID {
	var ids []snapshots.ID
	for _, s := range l.complete {
		ids = append(ids, s.id)
	}
	return ids
}

// head returns the newest snapshot, or the zero value.
func (l listing) head() stored {
	if len(l.complete) == 0 {
		return stored{}
	}
	return l.complete[len(l.complete)-1]
}

// sight returns what the ConfigMaps of the newest snapshot look like.
func (l listing) sight() string {
	head := l.head()
	return sightOf(head.uid, head.version, l.pieces[head.uid])
}

// sightOf returns what the ConfigMaps of a snapshot look like without their data: it changes when somebody
// changes its manifest, or deletes or replaces one of its chunks, which are immutable.
func sightOf(manifest types.UID, version string, pieces []string) string {
	return fmt.Sprintf("%s %s %q", manifest, version, slices.Sorted(slices.Values(pieces)))
}

func pieceSight(name string, uid types.UID) string { return name + " " + string(uid) }

// find returns a snapshot that is there.
func (l listing) find(id snapshots.ID) (stored, bool) {
	for _, list := range [][]stored{l.complete, l.refused} {
		if i := slices.IndexFunc(list, func(s stored) bool { return s.id == id }); i >= 0 {
			return list[i], true
		}
	}
	return stored{}, false
}

// orphans returns the chunks that no manifest owns, sorted.
func (l listing) orphans() []string {
	owned := map[types.UID]bool{}
	for _, s := range slices.Concat(l.complete, l.staged, l.refused, l.intruding) {
		owned[s.uid] = true
	}
	var out []string
	for owner, names := range l.chunks {
		if !owned[owner] {
			out = append(out, names...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// stateDelivered is the state of a manifest and its chunks that a tool delivers. They arrive in any order, and
// without owners, whose UIDs are not known before. They are a snapshot when all of them have arrived.
const stateDelivered = "delivered"

// chunksAnnotation of a delivered manifest says how many chunks it has, so that a listing is enough to
// see whether all are there.
const chunksAnnotation = "hapsnap.dev/chunks"

const (
	// deliveredPiece is how much of a snapshot is in one ConfigMap that is delivered. kubectl apply,
	// and Argo CD by default, repeat an object in an annotation, and all annotations together may have
	// 256 KiB.
	deliveredPiece = 180 << 10
	// maxChunks is how many chunks with files a manifest may name, and maxManifestChunks how many with itself.
	maxChunks         = maxPieces*maxPiece/deliveredPiece + 1
	maxManifestChunks = maxManifest/deliveredPiece + 1
)

// deliver are the annotations of delivered objects. An object outlives the Application, as history
// does; Argo CD need not repeat it in an annotation, and Flux must not replace variables in it.
var deliver = map[string]string{
	"argocd.argoproj.io/compare-options":     "IgnoreExtraneous",
	"argocd.argoproj.io/sync-options":        "Prune=false,Delete=false,ServerSideApply=true",
	"kustomize.toolkit.fluxcd.io/prune":      "disabled",
	"kustomize.toolkit.fluxcd.io/substitute": "disabled",
}

// errDelivered is the error for writers of a store into which another tool delivers, as a manifest
// shows.
func errDelivered(manifest string) error {
	return process.WithHint(
		fmt.Errorf("%w: what is in this store is delivered from another one, such as ConfigMap %s", sequence.ErrRefused, manifest),
		"publish where it is delivered from, or to another name")
}

// Delivered returns the ConfigMaps of a snapshot in the form in which a tool may deliver them into the
// namespace of a store: the manifest, signed with the key if there is one, its chunks, and the status,
// which says that it was delivered. The same snapshot always gives the same ConfigMaps. The error of a
// snapshot that is too large wraps [sequence.ErrRefused].
func Delivered(namespace, store string, s snapshots.Snapshot, key signature.Key) ([]*corev1.ConfigMap, error) {
	p, err := new(compressor).packInto(s, deliveredPiece)
	if err != nil {
		return nil, err
	}
	d := newDraft(store, s, p, s.ID().Short)
	by := signing{key: key}
	if err := by.sign(d.manifest, stateSnapshot(Scheme+namespace+"/"+store, s.Manifest, p.manifest)); err != nil {
		return nil, err
	}
	all := append([]*corev1.ConfigMap{d.manifest}, d.chunks...)
	status := part(store, statusName(store), partStatus)
	status.Labels[snapshotLabel] = s.ID().String()
	status.Data = map[string]string{deliveredKey: s.ID().String()}
	all = append(all, status)
	for _, o := range all {
		o.Labels[stateLabel] = stateDelivered
		for name, value := range deliver {
			o.Annotations[name] = value
		}
	}
	d.manifest.Annotations[chunksAnnotation] = strconv.Itoa(len(d.chunks))
	return all, nil
}

func isDelivered(o *corev1.ConfigMap) bool { return o.Labels[stateLabel] == stateDelivered }

// missing returns the error about a missing chunk. A delivered chunk may still arrive.
func missing(manifest *corev1.ConfigMap, chunk string) error {
	if isDelivered(manifest) {
		return fmt.Errorf("%w: %s is not delivered yet", snapshots.ErrNotFound, chunk)
	}
	return fmt.Errorf("%w: %s is missing", snapshots.ErrCorrupt, chunk)
}

// pieceOf returns the content of a chunk, or of a manifest. Tools that make ConfigMaps of files put bytes that happen
// to be UTF-8 under data.
func pieceOf(o *corev1.ConfigMap, key string) []byte {
	if text, found := o.Data[key]; found {
		return []byte(text)
	}
	return o.BinaryData[key]
}

// whole reports whether all chunks of a delivered snapshot are there.
func (l *listing) whole(store string, id snapshots.ID, count string) bool {
	n, err := strconv.Atoi(count)
	if err != nil || n < 1 || n > maxChunks+maxManifestChunks {
		return false
	}
	for i := range n {
		if !slices.Contains(l.arrived[id], chunkName(store, id.Revision, id.Short, i)) {
			return false
		}
	}
	return true
}

// strays returns delivered objects, sorted, that belong to no snapshot and are older than the newest:
// newer ones may still be on their way.
func (l listing) strays() []string {
	var names []string
	for _, s := range l.partial {
		if s.id.Revision < l.head().id.Revision {
			names = append(names, s.name)
		}
	}
	for id, chunks := range l.arrived {
		if _, there := l.find(id); !there && id.Revision < l.head().id.Revision {
			names = append(names, chunks...)
		}
	}
	slices.Sort(names)
	return names
}

// secretsAnnotation of a manifest holds the names of the Secrets beside its snapshot. A program that
// deletes the manifest finds them there, and need not list Secrets.
const secretsAnnotation = "hapsnap.dev/secrets"

const partSecret = "certificates"

// companionKey is the key of a certificate in a Secret.
func companionKey(version string) string { return version + ".pem" }

// newCompanions returns the Secrets with the certificates of a snapshot, without their owner.
func newCompanions(store string, id snapshots.ID, companions []snapshots.Companion, attempt string) []*corev1.Secret {
	var out []*corev1.Secret
	size := maxPiece
	for _, c := range companions {
		if size += len(c.Content); size > maxPiece {
			like := part(store, fmt.Sprintf("%s-%s-certificates-%03d", manifestName(store, id.Revision), attempt, len(out)), partSecret)
			like.Labels[snapshotLabel] = id.String()
			out = append(out, &corev1.Secret{ObjectMeta: like.ObjectMeta, Type: corev1.SecretTypeOpaque, Data: map[string][]byte{}, Immutable: new(true)})
			size = len(c.Content)
		}
		out[len(out)-1].Data[companionKey(c.Version)] = c.Content
	}
	return out
}

// companions returns the names of the Secrets beside a snapshot: those in the annotation that have a
// name which this store gives to Secrets of that manifest.
func (m stored) companions() []string {
	return slices.DeleteFunc(strings.Fields(m.secrets), func(name string) bool {
		return !strings.HasPrefix(name, m.name+"-") || !strings.Contains(name, "-"+partSecret+"-")
	})
}

const partStatus = "status"

// deliveredKey is the key, in the ConfigMap of a status, of the snapshot that was delivered last. The delivery
// writes this key, and the reader writes all others.
const deliveredKey = "delivered"

// newestAnnotation is, on the ConfigMap of a status, the snapshot that was published last. If somebody deletes that
// snapshot, its revision is not given to another one.
const newestAnnotation = "hapsnap.dev/newest"

// statusManager is the field manager of readers that write their status. Argo CD and Flux, which own
// the fields that they deliver, leave its fields alone.
const statusManager = "hapsnap-pusher"

func statusName(store string) string { return store + "-status" }

// StatusName returns the name of the ConfigMap in which a reader writes its status; see
// [Store.SetStatus].
func StatusName(store string) string { return statusName(store) }

// StatusKey is the key, in the ConfigMap of a status, of the whole status, packed.
const StatusKey = "status.json.gz"

// writerAnnotation and writtenAnnotation of a status's ConfigMap say which reader wrote it last, and when.
const (
	writerAnnotation  = "hapsnap.dev/status-writer"
	writtenAnnotation = "hapsnap.dev/status-written"
)

// statusFresh is for how long the status of one reader is kept from others after it was last written:
// a reader that runs writes it once a minute at least.
const statusFresh = 3 * time.Minute

// Report is a status as a reader writes it.
type Report struct {
	// By distinguishes the reader from others. It stays the same after a restart. "" means that any reader may
	// write.
	By     string
	At     time.Time
	Fields map[string]string
	Packed []byte // the whole status, nil for none
}

// OtherWriterError is returned to a reader whose status is not written, since another one writes its own
// to the same ConfigMap.
type OtherWriterError struct {
	By string
	At time.Time
}

func (e OtherWriterError) Error() string {
	return fmt.Sprintf("another pusher writes its status there: %s, last at %s", e.By, e.At.UTC().Format(time.RFC3339))
}

// ErrStatusDenied is returned to a reader that may not change the ConfigMap, whether it exists or not.
var ErrStatusDenied = errors.New("the pusher may not write its status")

// WriteStatus writes a status into a ConfigMap, which may be that of a store, and creates it if it does
// not exist. Other keys stay. What another reader wrote lately is left alone, see [OtherWriterError].
func WriteStatus(ctx context.Context, core corev1client.CoreV1Interface, name types.NamespacedName, store string, r Report) error {
	if err := othersStatus(ctx, core, name, r); err != nil {
		return err
	}
	labels := map[string]string{partLabel: partStatus}
	if store != "" {
		labels[nameLabel] = store
	}
	o := applycorev1.ConfigMap(name.Name, name.Namespace).WithLabels(labels).WithData(r.Fields)
	if r.By != "" {
		o.WithAnnotations(map[string]string{writerAnnotation: r.By, writtenAnnotation: r.At.UTC().Format(time.RFC3339)})
	}
	if r.Packed != nil {
		o.WithBinaryData(map[string][]byte{StatusKey: r.Packed})
	}
	_, err := core.ConfigMaps(name.Namespace).Apply(ctx, o, metav1.ApplyOptions{FieldManager: statusManager, Force: true})
	return err
}

// othersStatus returns an [OtherWriterError] for a ConfigMap that another reader wrote lately. Two that
// begin at the same moment may both write once; then one finds the other's status there.
func othersStatus(ctx context.Context, core corev1client.CoreV1Interface, name types.NamespacedName, r Report) error {
	if r.By == "" {
		return nil
	}
	// A patch that changes nothing reads what is there with no more than the permission to write it.
	found, err := core.ConfigMaps(name.Namespace).Patch(ctx, name.Name, types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w: %w", ErrStatusDenied, err)
	case err != nil:
		return err
	}
	by := found.Annotations[writerAnnotation]
	at, _ := time.Parse(time.RFC3339, found.Annotations[writtenAnnotation]) // an unreadable time counts as long ago
	if by == "" || by == r.By || r.At.Sub(at).Abs() > statusFresh {
		return nil
	}
	return OtherWriterError{By: by, At: at}
}

// reportKey is the key, in the Secret with the report of a compiler, of the report: the JSON that the compiler
// answers at /status.
const reportKey = "report.json"

// reportedAnnotation is the annotation of that Secret with the time of the last report.
const reportedAnnotation = "hapsnap.dev/reported"

// MaxReport is how many bytes a report may have: a Secret may have 1 MiB in all.
const MaxReport = 900 << 10

// WriteCompilerReport writes the report of a compiler into a Secret, and creates that if it does not exist. Other
// keys stay.
func WriteCompilerReport(ctx context.Context, core corev1client.SecretsGetter, name types.NamespacedName, report []byte, at time.Time) error {
	o := applycorev1.Secret(name.Name, name.Namespace).
		WithAnnotations(map[string]string{reportedAnnotation: at.UTC().Format(time.RFC3339)}).
		WithData(map[string][]byte{reportKey: report})
	_, err := core.Secrets(name.Namespace).Apply(ctx, o, metav1.ApplyOptions{FieldManager: "hapsnap-compiler", Force: true})
	return err
}

// ReadCompilerReport returns what a compiler wrote last, and when: the zero time if nothing says so. The report is
// nil in a Secret without one.
func ReadCompilerReport(ctx context.Context, core corev1client.SecretsGetter, name types.NamespacedName) (report []byte, at time.Time, err error) {
	found, err := core.Secrets(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if err != nil {
		return nil, time.Time{}, err
	}
	at, _ = time.Parse(time.RFC3339, found.Annotations[reportedAnnotation]) // an unreadable time counts as long ago
	return found.Data[reportKey], at, nil
}

// WritingReport returns the permissions to write a report. The API server asks for create by name here, since
// an apply says the name.
func WritingReport(secret string) []rbacv1.PolicyRule { return ofReport(secret, "create", "patch") }

// ReadingReport returns the permission to read it.
func ReadingReport(secret string) []rbacv1.PolicyRule { return ofReport(secret, "get") }

func ofReport(secret string, verbs ...string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{secret}, Verbs: verbs}}
}
