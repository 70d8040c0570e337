package observe

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

var noon = time.Date(2026, 7, 30, 12, 0, 0, 0, time.UTC)

// A pusher that stands by says so if the leader is one of another fleet: then nobody pushes to its own fleet.
func TestOthersState(t *testing.T) {
	t.Parallel()
	for holder, others := range map[string]bool{Identity("first", "host_A"): true, Identity("second", "host_A"): false, "host_A": false, "": false} {
		if err := OthersState(holder, false, "second"); (err != nil) != others || others && !strings.HasPrefix(err.Error(), "the leader, first/host_A, is a pusher of the fleet first, and this one is of the fleet second, which gets nothing") {
			t.Errorf("with the leader %q: %v", holder, err)
		}
		if err := OthersState(holder, true, "second"); err != nil {
			t.Errorf("as the leader: %v", err)
		}
	}
}

func TestStandby(t *testing.T) {
	t.Parallel()
	unheard := Troubles{"election": {About: "election", Error: "gone"}}
	taken := Troubles{"state": {About: "state", Error: "another pusher has taken over"}}
	for name, test := range map[string]struct {
		holder   string
		leads    bool
		troubles Troubles
		want     string
		blocked  bool
	}{
		"another leads":          {"edge-1", false, nil, "another pusher leads: edge-1", false},
		"nobody leads":           {"", false, nil, "no pusher leads: instances stay as they are", false},
		"nobody knows":           {"edge-1", false, unheard, "it is not known who leads: instances stay as they are", true},
		"it cannot begin":        {"edge-1", true, taken, "this pusher leads, and could not begin: instances stay as they are", true},
		"another, who took over": {"edge-1", false, taken, "another pusher leads: edge-1", true},
	} {
		s := Standby(test.holder, test.leads, test.troubles, nil, noon)
		if _, blocked := s.Blocked(); !s.Standby || !s.Channel.Hold || s.Channel.Message != test.want || blocked != test.blocked || s.Leader != test.holder {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// Every topic of troubles has a message of its own. The machine uses no other topics.
func TestTroublesHaveMessages(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../report/status.go")
	if err != nil {
		t.Fatal(err)
	}
	topics := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\tAbout\w+ += "([^"]+)"`).FindAllStringSubmatch(string(text), -1) {
		topics[m[1]] = true
		if TroubleMessage(m[1]) == TroubleMessage("") {
			t.Errorf("trouble %q has no message", m[1])
		}
	}
	if len(topics) < 20 || len(topics) != len(troubleMessages) {
		t.Errorf("%d topics have %d messages", len(topics), len(troubleMessages))
	}
	files, err := filepath.Glob("../core/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\w\.trouble\("([^"]+)"`).FindAllStringSubmatch(string(text), -1) {
			if !topics[m[1]] && !strings.HasSuffix(file, "_test.go") {
				t.Errorf("%s: there is no topic %q", file, m[1])
			}
		}
	}
}

// While somebody pauses a rollout, the instances that have its snapshot keep it, and the status says so.
func TestPausedInTheMiddleOfARollout(t *testing.T) {
	t.Parallel()
	good, next := snapshots.ID{Revision: 4, Short: "0123456789"}, snapshots.ID{Revision: 5, Short: "0123456789"}
	v := View{Decision: channel.Decision{Hold: true, Because: channel.BecausePause, Message: "paused by ann"}}
	v.Rollout.Good = good
	for phase, want := range map[rollout.Phase]string{
		rollout.Soaking: "stays as it is: paused by ann", rollout.Undoing: good.String() + " is to come",
	} {
		v.Rollout.Rollout = &rollout.Rollout{Target: next, Phase: phase}
		if got := v.pending(Instance{Reachable: true, Running: next}); got != want {
			t.Errorf("%s: %q, want %q", phase, got, want)
		}
	}
}
