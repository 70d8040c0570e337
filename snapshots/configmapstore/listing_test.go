package configmapstore

import (
	"encoding/json"
	"errors"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/gitstore/signature"
	"github.com/hapsnap/hapsnap/snapshots/stores/sequence"
	"github.com/hapsnap/hapsnap/snapshots/storetest"
)

// Only a manifest that is named by its revision is a snapshot. Chunks without a manifest are leftovers.
func TestListing(t *testing.T) {
	t.Parallel()
	manifest := func(name, snapshot, state string) metav1.PartialObjectMetadata {
		return metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID(name), Labels: map[string]string{partLabel: partManifest, snapshotLabel: snapshot, stateLabel: state},
		}}
	}
	chunk := func(name, owner string) metav1.PartialObjectMetadata {
		return metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{partLabel: partChunk}, OwnerReferences: []metav1.OwnerReference{{UID: types.UID(owner)}},
		}}
	}
	l := newListing("edge", []metav1.PartialObjectMetadata{
		manifest("edge-r000010", "r000010-0123456789", "complete"),
		manifest("edge-r000002", "r000002-0123456789", "complete"),
		manifest("edge-r000003", "r000011-0123456789", "complete"),
		manifest("copy", "r000012-0123456789", "complete"),
		manifest("edge-r000013", "r000013", "complete"),
		manifest("edge-r000014", "r000014-0123456789", "done"),
		manifest("edge-r000011", "r000011-0123456789", "staged"),
		chunk("b", "gone"), chunk("a", "gone"), chunk("c", "edge-r000011"), chunk("d", "edge-r000002"),
	})
	if len(l.complete) != 2 || l.head().name != "edge-r000010" || l.ids()[0].Revision != 2 {
		t.Errorf("complete: %v", l.complete)
	}
	if len(l.staged) != 1 || l.staged[0].name != "edge-r000011" {
		t.Errorf("staged: %v", l.staged)
	}
	if got := l.orphans(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("orphans: %v", got)
	}
}

// delivered returns a snapshot with a few chunks, and its ConfigMaps.
func (p *place) delivered(revision uint64, name string) (snapshots.Snapshot, []*corev1.ConfigMap) {
	p.Helper()
	large := make([]byte, 600_000)
	random := rand.New(rand.NewPCG(1, revision))
	for i := range large {
		large[i] = byte(random.Uint32())
	}
	s := storetest.Draft(name, "files/large.bin", string(large)).Number(revision, snapshots.ID{})
	return s, p.objectsOf(s)
}

func (p *place) objectsOf(s snapshots.Snapshot) []*corev1.ConfigMap {
	p.Helper()
	objects, err := Delivered("edge", "edge", s, signature.Key{})
	if err != nil {
		p.Fatal(err)
	}
	for _, o := range objects {
		o.Namespace = p.namespace
	}
	return objects
}

func (p *place) deliver(objects ...*corev1.ConfigMap) {
	p.Helper()
	for _, o := range objects {
		err := p.client.Create(p.Context(), o.DeepCopy())
		if apierrors.IsAlreadyExists(err) && o.Immutable == nil {
			err = p.client.Update(p.Context(), o.DeepCopy())
		}
		if err != nil {
			p.Fatal(err)
		}
	}
}

// A delivery arrives in any order. It is a snapshot when it is complete. Until then, the former snapshot is the
// newest.
func TestDeliveredInAnyOrder(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	reader := p.open()
	var before []snapshots.ID
	random := rand.New(rand.NewPCG(3, 4))
	for revision := range uint64(4) {
		s, objects := p.delivered(revision+1, "web")
		if len(objects) != 6 {
			t.Fatalf("there are %d objects", len(objects))
		}
		objects = slices.DeleteFunc(objects, func(o *corev1.ConfigMap) bool { return o.Name == "edge-status" })
		random.Shuffle(len(objects), func(i, j int) { objects[i], objects[j] = objects[j], objects[i] })
		for _, o := range objects {
			if ids, err := reader.IDs(t.Context()); err != nil || !slices.Equal(ids, before) {
				t.Fatalf("before %s is there: %v, %v", o.Name, ids, err)
			}
			if _, err := reader.Get(t.Context(), s.ID()); !errors.Is(err, snapshots.ErrNotFound) {
				t.Fatalf("before %s is there: %v", o.Name, err)
			}
			p.deliver(o)
		}
		before = append(before, s.ID())
		if v, err := reader.View(t.Context()); err != nil || !slices.Equal(v.IDs, before) {
			t.Fatalf("all is there: %v, %v", v, err)
		}
		if got, err := reader.Get(t.Context(), s.ID()); err != nil || !reflect.DeepEqual(got, s) {
			t.Errorf("%s came out different: %v", s.ID(), err)
		}
	}
}

// Objects of a delivery are small enough for kubectl to repeat them in an annotation. The same snapshot gives
// the same objects.
func TestDeliveredObjects(t *testing.T) {
	t.Parallel()
	s := ten().Number(7, snapshots.ID{})
	objects, err := Delivered("edge", "edge", s, signature.Key{})
	if err != nil {
		t.Fatal(err)
	}
	again, err := Delivered("edge", "edge", s, signature.Key{})
	if err != nil || !reflect.DeepEqual(objects, again) {
		t.Errorf("the second time it differs: %v", err)
	}
	names := map[string]bool{}
	for _, o := range objects {
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		if size := len(text); size > 256<<10 || (o.Immutable == nil) != (o.Name == "edge-status") || o.OwnerReferences != nil || o.Labels[stateLabel] != stateDelivered {
			t.Errorf("%s has %d bytes, %v", o.Name, size, o.ObjectMeta)
		}
		if o.Annotations["kustomize.toolkit.fluxcd.io/prune"] != "disabled" || !strings.HasPrefix(o.Annotations["argocd.argoproj.io/sync-options"], "Prune=false,") {
			t.Errorf("%s would be pruned: %v", o.Name, o.Annotations)
		}
		names[o.Name] = true
	}
	if len(names) != 59 || !names["edge-r000007"] || !names["edge-r000007-"+s.ID().Short+"-056"] {
		t.Errorf("%d objects: %v", len(names), slices.Sorted(maps.Keys(names)))
	}
}

func TestDeliveredTooLarge(t *testing.T) {
	t.Parallel()
	large := make([]byte, 30<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(large)
	_, err := Delivered("edge", "edge", storetest.Draft("web", "files/large.bin", string(large)).Number(1, snapshots.ID{}), signature.Key{})
	if !errors.Is(err, sequence.ErrRefused) || !strings.Contains(err.Error(), "files/large.bin") {
		t.Error(err)
	}
}

// A store with deliveries refuses to publish. People can change its channel.
func TestDeliveredIsNotPublishedTo(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	_, objects := p.delivered(1, "web")
	p.deliver(objects[0]) // also before its chunks have arrived
	if _, _, err := p.open().Publish(t.Context(), storetest.Draft("b")); !errors.Is(err, sequence.ErrRefused) {
		t.Errorf("publish: %v", err)
	}
	p.deliver(objects[1], objects[2], objects[3], objects[4], objects[5])
	if _, _, err := p.open().Publish(t.Context(), storetest.Draft("b")); !errors.Is(err, sequence.ErrRefused) {
		t.Errorf("publish: %v", err)
	}
	if n := len(p.objects(partManifest)) + len(p.objects(partChunk)); n != 5 {
		t.Errorf("there are %d objects", n)
	}
	pause := func(c *channel.Channel) error { *c = c.Paused(channel.Pause{By: "ops", At: noon}); return nil }
	if err := p.open().UpdateChannel(t.Context(), "pause", noon, pause); err != nil {
		t.Error(err)
	}
}

// Deleting a delivered snapshot also deletes its chunks, which have no owner, and leftovers of older snapshots.
// It keeps what is still arriving.
func TestDeliveredIsDeleted(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	first, one := p.delivered(1, "a")
	_, two := p.delivered(2, "b")
	_, three := p.delivered(3, "c")
	fourth, four := p.delivered(4, "d")
	_, five := p.delivered(5, "e")
	p.deliver(slices.Concat(one, two[1:], three[:2], four, five[:2])...)
	s := p.open()
	if err := s.Delete(t.Context(), fourth.ID()); err == nil {
		t.Error("the newest is deleted")
	}
	if err := s.Delete(t.Context(), first.ID()); err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, o := range slices.Concat(four[:5], five[:2]) {
		want = append(want, o.Name)
	}
	for _, o := range slices.Concat(p.objects(partManifest), p.objects(partChunk)) {
		got = append(got, o.Name)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("there are %v", got)
	}
}

// A delivery that arrives changed is corrupt, and is not used.
func TestDeliveredOtherwise(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	s, objects := p.delivered(1, "a")
	objects[2].BinaryData[pieceKey][1000]++
	p.deliver(objects...)
	if _, err := p.open().Get(t.Context(), s.ID()); !errors.Is(err, snapshots.ErrCorrupt) {
		t.Error(err)
	}
}

// A chunk whose bytes happen to be UTF-8 works like any other.
func TestDeliveredAsText(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]*corev1.ConfigMap{
		"text": {Data: map[string]string{pieceKey: "piece"}}, "bytes": {BinaryData: map[string][]byte{pieceKey: []byte("piece")}},
	} {
		if got := string(pieceOf(o, pieceKey)); got != "piece" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// A delivery is signed for its store, and for no other.
func TestDeliveredSigned(t *testing.T) {
	t.Parallel()
	p := newSigned(t)
	s := storetest.Draft("web").Number(1, snapshots.ID{})
	for revision, namespace := range []string{"elsewhere", p.namespace} {
		s.Manifest = storetest.Draft("web").Number(uint64(revision+1), snapshots.ID{}).Manifest
		objects, err := Delivered(namespace, "edge", s, signature.Key{File: p.key})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			o.Namespace = p.namespace
		}
		p.deliver(objects...)
	}
	reader := p.open(p.reads)
	v, err := reader.View(t.Context())
	if err != nil || !slices.Equal(v.IDs, []snapshots.ID{s.ID()}) || len(v.Refused) != 1 || !strings.Contains(v.Refused[0].Reason, "its signature is for configmap:elsewhere/edge") {
		t.Errorf("%+v, %v", v, err)
	}
	if got, err := reader.Get(t.Context(), s.ID()); err != nil || !reflect.DeepEqual(got, s) {
		t.Errorf("it came out different: %v", err)
	}
}
