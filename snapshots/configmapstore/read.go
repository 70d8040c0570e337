package configmapstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// View returns the IDs of all snapshots and the channel: two calls, of which none
// fetches a snapshot.
func (s *Store) View(ctx context.Context) (channel.View, error) {
	l, err := s.list(ctx, readable)
	if err != nil {
		return channel.View{}, err
	}
	current, _, err := s.channel(ctx, l.ids())
	if err != nil {
		return channel.View{}, err
	}
	return channel.View{IDs: l.ids(), Refused: s.refusals(l), Channel: current, Seen: s.remembered()}, nil
}

// IDs returns the IDs of all snapshots, the newest last. Where signatures are verified, it leaves out
// snapshots without an accepted one. It does not read the channel.
func (s *Store) IDs(ctx context.Context) ([]snapshots.ID, error) {
	l, err := s.list(ctx, readable)
	return l.ids(), err
}

// Get returns a snapshot whose every digest has been verified. The error wraps
// [snapshots.ErrNotFound] or [snapshots.ErrCorrupt] where one of them is why.
func (s *Store) Get(ctx context.Context, id snapshots.ID) (snapshots.Snapshot, error) {
	o, manifest, err := s.manifest(ctx, id)
	if err != nil {
		return snapshots.Snapshot{}, err
	}
	snapshot, err := s.read(ctx, o, manifest)
	if err != nil {
		return snapshots.Snapshot{}, s.unlessDeleted(ctx, id, fmt.Errorf("read snapshot %s: %w", id, err))
	}
	return snapshot, nil
}

// Manifest returns the manifest of a snapshot without reading its files.
func (s *Store) Manifest(ctx context.Context, id snapshots.ID) (snapshots.Manifest, error) {
	_, manifest, err := s.manifest(ctx, id)
	return manifest, err
}

// manifest returns the manifest of a complete snapshot, and the ConfigMap that it is in.
func (s *Store) manifest(ctx context.Context, id snapshots.ID) (*corev1.ConfigMap, snapshots.Manifest, error) {
	o, err := s.find(ctx, id)
	if err != nil {
		return nil, snapshots.Manifest{}, err
	}
	text, err := s.manifestText(ctx, o)
	if err != nil {
		return nil, snapshots.Manifest{}, s.unlessDeleted(ctx, id, fmt.Errorf("read snapshot %s: %w", id, err))
	}
	err = s.vouch(o, id, text)
	var manifest snapshots.Manifest
	if err == nil {
		manifest, err = snapshots.ParseManifest(text)
	}
	if err != nil {
		return nil, snapshots.Manifest{}, fmt.Errorf("read snapshot %s: %w", id, err)
	}
	if named := snapshots.NewID(manifest.Spec.Revision, manifest.Spec.Digest); named != id {
		return nil, snapshots.Manifest{}, fmt.Errorf("read snapshot %s: %w: it holds %s", id, snapshots.ErrCorrupt, named)
	}
	return o, manifest, nil
}

// find returns the ConfigMap of a complete snapshot.
func (s *Store) find(ctx context.Context, id snapshots.ID) (*corev1.ConfigMap, error) {
	o, err := s.get(ctx, manifestName(s.name, id.Revision))
	switch {
	case apierrors.IsNotFound(err):
		if err := s.placed(ctx); err != nil {
			return nil, fmt.Errorf("read snapshot %s: %w", id, because(ctx, err))
		}
		return nil, s.notFound(id)
	case err != nil:
		return nil, fmt.Errorf("read snapshot %s: %w", id, err)
	case o.Labels[nameLabel] != s.name || o.Labels[partLabel] != partManifest,
		o.Labels[stateLabel] != stateComplete && !isDelivered(o), o.Labels[snapshotLabel] != id.String():
		return nil, s.notFound(id)
	}
	return o, nil
}

// read returns the snapshot of a manifest, verified.
func (s *Store) read(ctx context.Context, o *corev1.ConfigMap, manifest snapshots.Manifest) (snapshots.Snapshot, error) {
	pieces, err := s.pieces(ctx, o, chunksKey, maxChunks, pieceKey, maxPieces*maxPiece)
	if err != nil {
		return snapshots.Snapshot{}, err
	}
	files, err := unpackFiles(manifest, pieces)
	if err != nil {
		return snapshots.Snapshot{}, err
	}
	snapshot := snapshots.Snapshot{Manifest: manifest, Files: files}
	return snapshot, snapshot.Verify()
}

// manifestText returns snapshot.yaml of a snapshot, from the ConfigMap of its manifest, or from the chunks that this
// names.
func (s *Store) manifestText(ctx context.Context, o *corev1.ConfigMap) ([]byte, error) {
	if text, found := o.Data[manifestKey]; found {
		return []byte(text), nil
	}
	if o.Data[manifestChunksKey] == "" {
		return unpackManifest([][]byte{pieceOf(o, manifestGzKey)})
	}
	pieces, err := s.pieces(ctx, o, manifestChunksKey, maxManifestChunks, manifestGzKey, maxManifest)
	if err != nil {
		return nil, err
	}
	return unpackManifest(pieces)
}

// pieces returns what the chunks hold under a key that a manifest names under names. It refuses more than most chunks,
// and more than room bytes.
func (s *Store) pieces(ctx context.Context, manifest *corev1.ConfigMap, names string, most int, key string, room int) ([][]byte, error) {
	chunks := strings.Fields(manifest.Data[names])
	if len(chunks) > most {
		return nil, fmt.Errorf("%w: it has %d chunks", snapshots.ErrCorrupt, len(chunks))
	}
	var out [][]byte
	packed := 0
	for _, name := range chunks {
		chunk, err := s.get(ctx, name)
		if apierrors.IsNotFound(err) {
			return nil, missing(manifest, name)
		}
		if err != nil {
			return nil, err
		}
		piece := pieceOf(chunk, key)
		if packed += len(piece); packed > room { // the same one may be named again and again
			return nil, fmt.Errorf("%w: its chunks have more than %d bytes", snapshots.ErrCorrupt, room)
		}
		out = append(out, piece)
	}
	return out, nil
}

// unlessDeleted returns err, or an error that says the snapshot is not there if it was deleted while it
// was being read: missing chunks are no corruption then.
func (s *Store) unlessDeleted(ctx context.Context, id snapshots.ID, err error) error {
	if _, gone := s.find(ctx, id); gone != nil {
		return gone
	}
	return err
}

// followPauses are the times before a watch that ended is begun again. They grow while the API server
// is away or refuses the watch.
var followPauses = wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 10, Cap: 10 * time.Second}

// followTime is how long one watch lasts, plus or minus a little, so that watches of several readers do
// not begin at the same time.
const followTime = 5 * time.Minute

// Companions returns the certificates of a snapshot that are kept in Secrets, by version: those that
// its manifest names, verified. The errors are those of Get.
func (s *Store) Companions(ctx context.Context, id snapshots.ID) (map[string][]byte, error) {
	o, manifest, err := s.manifest(ctx, id)
	if err != nil {
		return nil, err
	}
	values := map[string][]byte{}
	for _, name := range (stored{name: o.Name, secrets: o.Annotations[secretsAnnotation]}).companions() {
		secret, err := s.core.Secrets(s.namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			continue // the caller misses its version
		case err != nil:
			return nil, fmt.Errorf("read certificates of %s: %w", id, because(ctx, err))
		case s.isCompanion(secret, o.Name, o.UID):
			maps.Copy(values, secret.Data)
		}
	}
	out := map[string][]byte{}
	for _, ref := range manifest.Spec.Certificates {
		if ref.Mode != snapshots.ModeCompanion || ref.Version == "" {
			continue
		}
		content := values[companionKey(ref.Version)]
		if version, err := pem.Version(content); err != nil || version != ref.Version {
			return nil, fmt.Errorf("read certificates of %s: %w: that of Secret %s is not beside it", id, snapshots.ErrCorrupt, ref.Secret)
		}
		out[ref.Version] = slices.Clone(content)
	}
	return out, nil
}

// isCompanion reports whether this store made a Secret beside a manifest.
func (s *Store) isCompanion(o *corev1.Secret, manifest string, uid types.UID) bool {
	owned := slices.ContainsFunc(o.OwnerReferences, func(r metav1.OwnerReference) bool {
		return r.Kind == "ConfigMap" && r.Name == manifest && r.UID == uid
	})
	return owned && o.Labels[nameLabel] == s.name && o.Labels[partLabel] == partSecret
}

// Follow calls changed when something in the store may have changed, also after times without a watch,
// until ctx is done. It reports no errors: the caller reads the store now and then anyway.
func (s *Store) Follow(ctx context.Context, changed func()) {
	pauses, interrupted := followPauses, false
	for {
		began := time.Now()
		err := s.follow(ctx, func() {
			if interrupted {
				s.log.Info("watch resumed", "store", s.String())
			}
			interrupted = false
			changed()
		})
		if ctx.Err() != nil {
			return
		}
		if err != nil && !interrupted {
			interrupted = true
			s.log.Warn("watch interrupted, the store is polled", "store", s.String(), "err", err)
		}
		if time.Since(began) > followPauses.Cap {
			pauses = followPauses
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pauses.Step()):
		}
	}
}

// follow watches until the watch ends: without an error, if its time is over.
func (s *Store) follow(ctx context.Context, changed func()) error {
	ctx, cancel := context.WithTimeout(ctx, 2*followTime)
	defer cancel()
	objects := s.metadata.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(s.namespace)
	events, err := s.events(ctx, objects)
	if err != nil {
		return err
	}
	defer events.Stop()
	changed() // what came before it began is seen now
	for event := range events.ResultChan() {
		if event.Type == watch.Error {
			return fmt.Errorf("watch: %w", apierrors.FromObject(event.Object))
		}
		if !isUnfinished(event) {
			changed()
		}
	}
	return nil
}

// isUnfinished reports whether a snapshot is being written, of which readers see nothing until its manifest is complete.
// A chunk that was delivered has no owner, and may be the last that a snapshot waits for.
func isUnfinished(event watch.Event) bool {
	o, ok := event.Object.(*metav1.PartialObjectMetadata)
	if !ok || event.Type == watch.Deleted {
		return false
	}
	part := o.Labels[partLabel]
	return part == partManifest && o.Labels[stateLabel] == stateStaged || part == partChunk && len(o.OwnerReferences) > 0
}

// events begins a watch from now on, without the objects that are already there. It leaves out the
// status of readers.
func (s *Store) events(ctx context.Context, objects metadata.ResourceInterface) (watch.Interface, error) {
	selector := labels.Set{nameLabel: s.name}.String() + "," + partLabel + "!=" + partStatus
	seconds := int64((followTime + rand.N(followTime/2)).Seconds())
	now, err := objects.List(ctx, metav1.ListOptions{LabelSelector: selector, Limit: 1})
	if err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	if now.ResourceVersion == "" {
		return nil, errors.New("list: it has no version to watch from")
	}
	events, err := objects.Watch(ctx, metav1.ListOptions{
		LabelSelector: selector, ResourceVersion: now.ResourceVersion, TimeoutSeconds: &seconds,
	})
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	return events, nil
}
