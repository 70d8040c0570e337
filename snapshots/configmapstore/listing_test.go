package configmapstore

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Only what has the name of its revision is a snapshot; chunks without a manifest are
// left over.
func TestListing(t *testing.T) {
	t.Parallel()
	manifest := func(name, snapshot, state string) metav1.PartialObjectMetadata {
		return metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID(name), Labels: map[string]string{PartLabel: partManifest, SnapshotLabel: snapshot, StateLabel: state},
		}}
	}
	chunk := func(name, owner string) metav1.PartialObjectMetadata {
		return metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{PartLabel: partChunk}, OwnerReferences: []metav1.OwnerReference{{UID: types.UID(owner)}},
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
