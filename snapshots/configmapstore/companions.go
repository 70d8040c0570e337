package configmapstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/hapsnap/hapsnap/snapshots"
)

// SecretsAnnotation of a manifest holds the names of the Secrets beside its snapshot. A program that
// deletes the manifest finds them there, and need not list Secrets.
const SecretsAnnotation = "hapsnap.dev/secrets"

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
			like.Labels[SnapshotLabel] = id.String()
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

// DeliveredKey is the key, in the ConfigMap of a status, of the snapshot that was delivered last. The
// delivery writes it; the reader writes all other keys.
const DeliveredKey = "delivered"

// statusManager is the field manager of readers that write their status. Argo CD and Flux, which own
// the fields that they deliver, leave its fields alone.
const statusManager = "hapsnap-pusher"

func statusName(store string) string { return store + "-status" }

// StatusName returns the name of the ConfigMap in which a reader writes its status; see
// [Store.SetStatus].
func StatusName(store string) string { return statusName(store) }

// StatusKey is the key, in the ConfigMap of a status, of the whole status, packed.
const StatusKey = "status.json.gz"

// WriterAnnotation and WrittenAnnotation say of the ConfigMap of a status which reader wrote it last,
// and when.
const (
	WriterAnnotation  = "hapsnap.dev/status-writer"
	WrittenAnnotation = "hapsnap.dev/status-written"
)

// statusFresh is for how long the status of one reader is kept from others after it was last written:
// a reader that runs writes it once a minute at least.
const statusFresh = 3 * time.Minute

// Report is a status as a reader writes it.
type Report struct {
	// By tells the reader from others, "" if nobody asks. A reader that is started again is the same.
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

// WriteStatus writes a status into a ConfigMap, which may be that of a store, and creates it if it does
// not exist. Other keys stay. What another reader wrote lately is left alone, see [OtherWriterError].
func WriteStatus(ctx context.Context, core corev1client.CoreV1Interface, name types.NamespacedName, store string, r Report) error {
	if err := othersStatus(ctx, core, name, r); err != nil {
		return err
	}
	labels := map[string]string{PartLabel: partStatus}
	if store != "" {
		labels[NameLabel] = store
	}
	o := applycorev1.ConfigMap(name.Name, name.Namespace).WithLabels(labels).WithData(r.Fields)
	if r.By != "" {
		o.WithAnnotations(map[string]string{WriterAnnotation: r.By, WrittenAnnotation: r.At.UTC().Format(time.RFC3339)})
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
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	by := found.Annotations[WriterAnnotation]
	at, _ := time.Parse(time.RFC3339, found.Annotations[WrittenAnnotation]) // a time that nobody can read is long ago
	if by == "" || by == r.By || r.At.Sub(at).Abs() > statusFresh {
		return nil
	}
	return OtherWriterError{By: by, At: at}
}
