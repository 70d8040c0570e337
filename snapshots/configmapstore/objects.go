package configmapstore

import (
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/snapshots"
)

// The labels of a store's ConfigMaps.
const (
	NameLabel     = "hapsnap.dev/snapshots" // the name of the store
	PartLabel     = "hapsnap.dev/part"      // manifest, chunk or channel
	StateLabel    = "hapsnap.dev/state"     // of a manifest: staged, complete or delivered; of a chunk: delivered or none
	SnapshotLabel = "hapsnap.dev/snapshot"  // of a manifest or chunk: r000123-9f3ac01b2d
	// DigestAnnotation holds the whole digest of a manifest's snapshot.
	DigestAnnotation = "hapsnap.dev/digest"
)

const (
	partManifest, partChunk, partChannel = "manifest", "chunk", "channel"
	stateStaged, stateComplete           = "staged", "complete"
)

// The keys in a store's ConfigMaps.
const (
	manifestKey   = snapshots.ManifestFile
	manifestGzKey = snapshots.ManifestFile + ".gz" // in its place where it is too large
	chunksKey     = "chunks"                       // the names of the chunks, a line each, in order
	pieceKey      = "files.tar.gz"
)

// keep are the annotations that make Argo CD and Flux leave alone what no
// repository of theirs holds.
var keep = map[string]string{
	"argocd.argoproj.io/compare-options": "IgnoreExtraneous",
	"argocd.argoproj.io/sync-options":    "Prune=false",
	"kustomize.toolkit.fluxcd.io/prune":  "disabled",
}

// manifestName returns the name of the ConfigMap of a revision.
func manifestName(store string, revision uint64) string {
	return fmt.Sprintf("%s-r%06d", store, revision)
}

func chunkName(store string, revision uint64, attempt string, n int) string {
	return fmt.Sprintf("%s-%s-%03d", manifestName(store, revision), attempt, n)
}

// ChannelName returns the name of the ConfigMap with the channel of a store.
func ChannelName(store string) string { return store + "-channel" }

// draft is the ConfigMaps of a snapshot that is not stored yet.
type draft struct {
	manifest *corev1.ConfigMap
	chunks   []*corev1.ConfigMap // without their owner, which has no UID yet
}

// newDraft returns the ConfigMaps of a packed snapshot. The attempt tells chunks of
// the same revision by two writers apart.
func newDraft(store string, s snapshots.Snapshot, p packed, attempt string) draft {
	id := s.ID()
	var d draft
	var names []string
	for i, piece := range p.pieces {
		o := part(store, chunkName(store, id.Revision, attempt, i), partChunk)
		o.Labels[SnapshotLabel] = id.String()
		o.BinaryData = map[string][]byte{pieceKey: piece}
		o.Immutable = new(true)
		d.chunks = append(d.chunks, o)
		names = append(names, o.Name)
	}
	d.manifest = part(store, manifestName(store, id.Revision), partManifest)
	d.manifest.Labels[SnapshotLabel] = id.String()
	d.manifest.Labels[StateLabel] = stateStaged
	d.manifest.Annotations[DigestAnnotation] = string(s.Manifest.Spec.Digest)
	d.manifest.Data = map[string]string{chunksKey: strings.Join(names, "\n") + "\n"}
	if p.manifestGz != nil {
		d.manifest.BinaryData = map[string][]byte{manifestGzKey: p.manifestGz}
	} else {
		d.manifest.Data[manifestKey] = string(p.manifest)
	}
	d.manifest.Immutable = new(true)
	return d
}

func part(store, name, kind string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{NameLabel: store, PartLabel: kind}, Annotations: maps.Clone(keep),
	}}
}

// ownedBy makes a chunk go when its manifest goes.
func ownedBy(chunk *corev1.ConfigMap, manifest string, uid types.UID) *corev1.ConfigMap {
	chunk.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: manifest, UID: uid}}
	return chunk
}

// newChannel returns the ConfigMap of a channel.
func newChannel(store string, fields map[string]string) *corev1.ConfigMap {
	o := part(store, ChannelName(store), partChannel)
	o.Data = fields
	return o
}
