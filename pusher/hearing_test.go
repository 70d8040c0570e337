package pusher

import (
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
)

func TestHearingOfAnotherWorker(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	at := func(after, uptime int, change ...func(*dataplane.RuntimeInfo)) hearing {
		info := dataplane.RuntimeInfo{PID: 8, Node: "r1", Uptime: time.Duration(uptime) * time.Second}
		for _, c := range change {
			c(&info)
		}
		return hearing{info, begin.Add(time.Duration(after) * time.Second)}
	}
	node := func(name string) func(*dataplane.RuntimeInfo) {
		return func(i *dataplane.RuntimeInfo) { i.Node = name }
	}
	changed := func(i *dataplane.RuntimeInfo) { i.Loaded, i.Node = "r1", "r2" }
	for name, test := range map[string]struct {
		last, now hearing
		want      bool
	}{
		"nothing was heard before":             {hearing{}, at(0, 0), true},
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
