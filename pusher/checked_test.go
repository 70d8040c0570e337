package pusher

import (
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/instance"
	"github.com/hapsnap/hapsnap/pusher/preflight"
)

// Only what is wrong and new is logged; what works with a warning is not.
func TestFindingsAreLoggedOnce(t *testing.T) {
	t.Parallel()
	e := newEngine(Options{State: "none"}.withDefaults(), state{}, nil, noon)
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
