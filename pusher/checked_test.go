package pusher

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/pusher/instance"
	"github.com/hapsnap/hapsnap/pusher/preflight"
)

// Only what is wrong and new is logged; what works with a warning is not.
func TestFindingsAreLoggedOnce(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	e := &engine{Options: Options{Log: slog.New(slog.NewTextHandler(&log, nil))}}
	i := &instanceState{}
	i.Name = "edge-1"
	users := preflight.Finding{Check: "users", Message: "they vanish", Hint: "move them"}
	slow := preflight.Finding{Check: "reloads", Message: "by a command", Warning: true}
	disk := preflight.Finding{Check: "disk", Message: "full"}
	e.instances = map[string]*instanceState{"edge-1": i}
	check := func(found ...preflight.Finding) {
		instanceEvent{instance.Checked{About: instance.About{Ref: i.ref()}, Found: found}}.apply(e, noon)
	}
	check(users, slow)
	check(users, disk, slow)
	if n := strings.Count(log.String(), "check=users"); n != 1 || len(i.findings) != 2 {
		t.Errorf("logged it %d times, %v are known:\n%s", n, i.findings, log.String())
	}
	if strings.Contains(log.String(), "check=reloads") || !strings.Contains(log.String(), "check=disk") {
		t.Errorf("logged %s", log.String())
	}
	check()
	if len(i.findings) > 0 {
		t.Errorf("%v are known", i.findings)
	}
}
