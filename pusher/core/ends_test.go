package core

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/instance"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/preflight"
	"github.com/hapsnap/hapsnap/pusher/push"
)

func TestJudge(t *testing.T) {
	edited := []push.Fault{{What: "haproxy.cfg on disk", Want: "ours", Found: "theirs"}}
	type look struct {
		at     time.Duration
		faults []push.Fault
		repair bool
		fights bool
	}
	tests := map[string][]look{
		"nothing found": {{0, nil, false, false}},
		"repaired":      {{0, edited, true, false}, {time.Minute, nil, false, false}, {2 * time.Minute, edited, true, false}},
		"a conflict, and another try after an hour": {
			{0, edited, true, false}, {time.Minute, edited, true, false}, {2 * time.Minute, edited, true, false},
			{3 * time.Minute, edited, false, true}, {30 * time.Minute, edited, false, true}, {62 * time.Minute, edited, false, true},
			{63 * time.Minute, edited, true, false},
		},
		"the other one gives up": {
			{0, edited, true, false}, {time.Minute, edited, true, false}, {2 * time.Minute, edited, true, false},
			{3 * time.Minute, edited, false, true}, {4 * time.Minute, nil, false, false}, {11 * time.Minute, edited, true, false},
		},
		"now and then is no conflict": {
			{0, edited, true, false}, {5 * time.Minute, edited, true, false}, {9 * time.Minute, edited, true, false},
			{10 * time.Minute, edited, true, false}, {15 * time.Minute, edited, true, false},
		},
	}
	for name, looks := range tests {
		t.Run(name, func(t *testing.T) {
			var k savedInstance
			for n, l := range looks {
				before := k
				var repair bool
				k, repair = k.judge(l.faults, noon.Add(l.at))
				if repair != l.repair || (k.Conflict != nil) != l.fights {
					t.Fatalf("look %d at %s: repair %v, conflict %v; before %+v", n, l.at, repair, k.Conflict, before)
				}
				if k.Conflict != nil && !strings.Contains(k.Conflict.String(), "haproxy.cfg on disk: want ours, found theirs") {
					t.Errorf("the conflict is told as %q", k.Conflict)
				}
			}
		})
	}
}

// Only new problems are logged. A warning about something that works is not.
func TestFindingsAreLoggedOnce(t *testing.T) {
	t.Parallel()
	e := newMachine(State{}, noon)
	i := &instanceState{Instance: fleet.Instance{Name: "edge-1"}}
	e.instances["edge-1"] = i
	users := preflight.Finding{Check: "users", Message: "they vanish", Hint: "move them"}
	slow := preflight.Finding{Check: "reloads", Message: "by a command", Warning: true}
	disk := preflight.Finding{Check: "disk", Message: "full"}
	check := func(found ...preflight.Finding) {
		OfInstance{instance.Checked{About: instance.About{Ref: i.ref()}, Found: found}}.apply(e, noon)
	}
	logged := func() string {
		var lines strings.Builder
		for _, fact := range e.facts {
			lines.WriteString(fact.String() + "\n")
		}
		return lines.String()
	}
	check(users, slow)
	check(users, disk, slow)
	if n := strings.Count(logged(), "check=users"); n != 1 || len(i.findings) != 2 {
		t.Errorf("logged it %d times, %v are known:\n%s", n, i.findings, logged())
	}
	if strings.Contains(logged(), "check=reloads") || !strings.Contains(logged(), "check=disk") {
		t.Errorf("logged %s", logged())
	}
	check()
	if len(i.findings) > 0 {
		t.Errorf("%v are known", i.findings)
	}
}

// A push brings the endpoints of its moment, which are counted as those that an update brings.
func TestPushBringsEndpoints(t *testing.T) {
	t.Parallel()
	e := newMachine(State{}, noon)
	i := &instanceState{Instance: fleet.Instance{Name: "edge-1"}}
	e.instances["edge-1"] = i
	e.jobs.pushApplied(i, instance.PushEnded{}, noon)
	if !slices.Contains(e.facts, observe.TimedFact{Fact: observe.InstanceUpdated{Instance: "edge-1"}, At: noon}) {
		t.Errorf("noted %v", e.facts)
	}
}
