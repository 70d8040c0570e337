package pusher

import (
	"slices"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

func TestReviewOfUploads(t *testing.T) {
	a, b := push.Stored{Kind: bind.MapFile, Name: "a-01234567.map"}, push.Stored{Kind: bind.GeneralFile, Name: "b-01234567.lua"}
	list := uploaded(nil, []push.Stored{a, b})
	needed := map[push.Stored]bool{a: true}

	list, garbage := reviewFiles(list, needed, noon, time.Hour)
	if len(garbage) > 0 {
		t.Errorf("%v is garbage at once", garbage)
	}
	list, garbage = reviewFiles(list, needed, noon.Add(59*time.Minute), time.Hour)
	if len(garbage) > 0 {
		t.Errorf("%v is garbage too early", garbage)
	}
	if _, garbage = reviewFiles(list, needed, noon.Add(time.Hour), time.Hour); !slices.Equal(garbage, []push.Stored{b}) {
		t.Errorf("garbage is %v, want %v", garbage, b)
	}
	// What is needed again is needed for good, and not at the end of its time.
	list, _ = reviewFiles(list, map[push.Stored]bool{a: true, b: true}, noon.Add(time.Hour), time.Hour)
	if _, garbage = reviewFiles(list, needed, noon.Add(2*time.Hour), time.Hour); len(garbage) > 0 {
		t.Errorf("%v is garbage although it was needed a moment ago", garbage)
	}
	if again := uploaded(list, []push.Stored{b}); len(again) != 2 {
		t.Errorf("uploads are %v", again)
	}
}
