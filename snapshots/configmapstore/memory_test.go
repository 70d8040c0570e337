package configmapstore

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/snapshots"
)

// world is a store's ConfigMaps, which change at random, and a memory that hears of it.
type world struct {
	random  *rand.Rand
	objects map[string]metav1.ObjectMeta
	version int
	memory  *memory
}

func (w *world) put(o metav1.ObjectMeta) {
	w.version++
	o.ResourceVersion = fmt.Sprint(w.version)
	if old, ok := w.objects[o.Name]; ok {
		o.UID = old.UID
	} else {
		o.UID = types.UID(fmt.Sprint("uid", w.version))
	}
	w.objects[o.Name] = o
	w.memory.see(o, false)
}

func (w *world) remove(name string) {
	if o, ok := w.objects[name]; ok {
		delete(w.objects, name)
		w.memory.see(o, true)
	}
}

// change makes one change, with some chunks for a new manifest.
func (w *world) change(head uint64) {
	names := slices.Sorted(maps.Keys(w.objects))
	pick := func() string { return names[w.random.IntN(len(names))] }
	switch n := w.random.IntN(12); {
	case n < 4 || len(names) == 0: // the next, or one that is made again
		revision := head + 1
		if n == 0 {
			revision = 1 + w.random.Uint64N(head+3)
		}
		id := snapshots.ID{Revision: revision, Short: fmt.Sprintf("%010x", w.version)}
		o := part("edge", manifestName("edge", revision), partManifest).ObjectMeta
		o.Labels[snapshotLabel], o.Labels[stateLabel] = id.String(), stateComplete
		if n == 1 {
			o.Labels[stateLabel] = stateStaged
		}
		w.remove(o.Name)
		w.put(o)
		for i := range w.random.IntN(3) {
			c := part("edge", chunkName("edge", revision, id.Short, i), partChunk).ObjectMeta
			w.put(ownedBy(part("edge", c.Name, partChunk), o.Name, w.objects[o.Name].UID).ObjectMeta)
		}
	case n < 8:
		w.remove(pick())
	case n < 10: // any label changes
		o := w.objects[pick()]
		o.Labels = maps.Clone(o.Labels)
		o.Labels["hapsnap.dev/any"] = fmt.Sprint(w.version)
		w.put(o)
	case n == 10: // a state changes
		o := w.objects[pick()]
		if o.Labels[partLabel] == partManifest {
			o.Labels = maps.Clone(o.Labels)
			o.Labels[stateLabel] = []string{stateStaged, stateComplete}[w.random.IntN(2)]
			w.put(o)
		}
	default: // a chunk of any manifest comes late
		if o := w.objects[pick()]; o.Labels[partLabel] == partManifest {
			w.put(ownedBy(part("edge", o.Name+"-late-000", partChunk), o.Name, o.UID).ObjectMeta)
		}
	}
}

// Whatever happens, a memory says of the store what a list of all says, as far as a writer needs it, or that it cannot.
func TestMemoryAtRandom(t *testing.T) {
	t.Parallel()
	s := &Store{name: "edge"}
	forgotten, small := 0, 0
	const rounds = 2000
	w := &world{random: rand.New(rand.NewPCG(1, 2)), objects: map[string]metav1.ObjectMeta{}}
	anew := func() { w.memory = newMemory("edge", w.all(), "", "") }
	anew()
	for n := range rounds {
		head := newListing("edge", w.all()).head().id.Revision
		if len(w.objects) > 300 {
			clear(w.objects)
			anew()
			head = 0
		}
		for range 1 + w.random.IntN(3) {
			w.change(head)
		}
		want := newListing("edge", w.all())
		got, err := w.memory.listing(s)
		if err != nil {
			forgotten++
			anew()
			continue
		}
		if got.head().id != want.head().id || got.sight() != want.sight() {
			t.Fatalf("round %d: the newest is %v, want %v", n, got.head(), want.head())
		}
		sort := func(l []stored) []stored {
			return slices.SortedFunc(slices.Values(l), func(a, b stored) int { return a.id.Compare(b.id) })
		}
		if !reflect.DeepEqual(sort(got.staged), sort(want.staged)) || !slices.Equal(got.orphans(), want.orphans()) {
			t.Fatalf("round %d: staged %v, orphans %v, want %v, %v", n, got.staged, got.orphans(), want.staged, want.orphans())
		}
		if len(w.memory.open) < len(w.objects)/2 {
			small++
		}
	}
	if forgotten == 0 || forgotten > rounds/4 || small < rounds/4 {
		t.Errorf("of %d rounds %d were forgotten, and in %d most was settled", rounds, forgotten, small)
	}
}

func (w *world) all() []metav1.PartialObjectMetadata {
	var out []metav1.PartialObjectMetadata
	for _, o := range w.objects {
		out = append(out, metav1.PartialObjectMetadata{ObjectMeta: o})
	}
	return out
}
