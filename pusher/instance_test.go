package pusher

import (
	"slices"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
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

func TestHearingOfAnotherWorker(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	at := func(after, uptime int, change ...func(*dataplane.RuntimeInfo)) observation {
		info := dataplane.RuntimeInfo{PID: 8, Node: "r1", Uptime: time.Duration(uptime) * time.Second}
		for _, c := range change {
			c(&info)
		}
		return observation{info, begin.Add(time.Duration(after) * time.Second)}
	}
	node := func(name string) func(*dataplane.RuntimeInfo) {
		return func(i *dataplane.RuntimeInfo) { i.Node = name }
	}
	changed := func(i *dataplane.RuntimeInfo) { i.Loaded, i.Node = "r1", "r2" }
	for name, test := range map[string]struct {
		last, now observation
		want      bool
	}{
		"nothing was heard before":             {observation{}, at(0, 0), true},
		"the same":                             {at(10, 10), at(12, 12), false},
		"another number":                       {at(10, 10), at(12, 12, func(i *dataplane.RuntimeInfo) { i.PID = 9 }), true},
		"another node":                         {at(10, 10), at(12, 12, node("r2")), true},
		"changed at run time":                  {at(10, 10), at(12, 12, changed), false},
		"asked before the last":                {at(10, 10), at(9, 9), false},
		"an answer that took long":             {at(10, 10), at(12, 20), false},
		"restarted under its number":           {at(100, 100), at(102, 0), true},
		"restarted while it was out of reach":  {at(100, 100), at(300, 150), true},
		"restarted soon after it began":        {at(5, 5), at(15, 6), true},
		"paused for ten seconds":               {at(100, 100), at(112, 102), false},
		"short of time since it began":         {at(9, 2), at(10, 2), false},
		"restarted when it was three":          {at(3, 3), at(4, 0), true},
		"paused again and again":               {at(1000, 700), at(1002, 702), false},
		"slow, and asked for its age too late": {at(1000, 700), at(1010, 702), false},
	} {
		if got := test.now.ofAnother(test.last); got != test.want {
			t.Errorf("%s: another is %v, want %v", name, got, test.want)
		}
	}
}
