package snapshots_test

import (
	"maps"
	"testing"

	"github.com/hapsnap/hapsnap/snapshots"
)

func TestWorkers(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "r000011-4f2a90c1de=2 r000012-00aa90c1de=1 unknown=3", "unknown=1"} {
		w, err := snapshots.ParseWorkers(text)
		if err != nil || w.String() != text {
			t.Errorf("%q: got %q, %v", text, w, err)
		}
	}
	if w, err := snapshots.ParseWorkers("unknown=1 unknown=2"); err != nil || !maps.Equal(w, snapshots.Workers{snapshots.ID{}: 3}) {
		t.Errorf("got %q, %v", w, err)
	}
	for _, text := range []string{"r000011-4f2a90c1de", "r000011-4f2a90c1de=0", "r000011-4f2a90c1de=-1", "unknown=x", "r11=1", "=1"} {
		if w, err := snapshots.ParseWorkers(text); err == nil {
			t.Errorf("%q is taken for %q", text, w)
		}
	}
}
