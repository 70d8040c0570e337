package configmapstore

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/snapshots"
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

// listing is the ConfigMaps of a store, without what is in them.
type listing struct {
	complete []stored // by ID, ascending
	staged   []stored
	// refused are complete, or delivered, and not signed by who may, where that is asked
	// for; intruding are staged, likewise.
	refused, intruding []stored
	status             bool                   // the status is there
	chunks             map[types.UID][]string // by the manifest that owns them

	delivery string                    // the name of a manifest that was delivered, "" for none
	arrived  map[snapshots.ID][]string // chunks that were delivered
	partial  []stored                  // manifests that were, before all of their chunks
}

// newListing reads what the API server lists. An object that merely has the labels
// of one of ours is passed over.
func newListing(store string, items []metav1.PartialObjectMetadata) listing {
	l := listing{chunks: map[types.UID][]string{}, arrived: map[snapshots.ID][]string{}}
	for _, o := range items {
		if o.Labels[PartLabel] != partChunk {
			continue
		}
		l.addDelivered(o)
		for _, owner := range o.OwnerReferences {
			l.chunks[owner.UID] = append(l.chunks[owner.UID], o.Name)
		}
	}
	for _, o := range items {
		l.status = l.status || o.Name == statusName(store)
		if o.Labels[PartLabel] == partManifest {
			l.addManifest(store, o)
		}
	}
	slices.SortFunc(l.complete, func(a, b stored) int { return a.id.Compare(b.id) })
	return l
}

func (l *listing) addManifest(store string, o metav1.PartialObjectMetadata) {
	id, err := snapshots.ParseID(o.Labels[SnapshotLabel])
	if err != nil || o.Name != manifestName(store, id.Revision) {
		return
	}
	found := stored{id, o.Name, o.UID, o.ResourceVersion, o.Annotations[SecretsAnnotation], o.CreationTimestamp.Time, o.Labels[StateLabel] == stateDelivered, signedBy(o.Annotations), nil}
	switch o.Labels[StateLabel] {
	case stateComplete:
		l.complete = append(l.complete, found)
	case stateStaged:
		l.staged = append(l.staged, found)
	case stateDelivered:
		l.addPart(store, found, o.Annotations[ChunksAnnotation])
	}
}

// signedBy returns the annotations by which an object is signed.
func signedBy(all map[string]string) map[string]string {
	out := map[string]string{}
	for _, name := range []string{SignedAnnotation, SignatureAnnotation} {
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

// find returns a snapshot that is there.
func (l listing) find(id snapshots.ID) (stored, bool) {
	for _, list := range [][]stored{l.complete, l.refused} {
		if i := slices.IndexFunc(list, func(s stored) bool { return s.id == id }); i >= 0 {
			return list[i], true
		}
	}
	return stored{}, false
}

// orphans returns the chunks, sorted, that no manifest owns.
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
