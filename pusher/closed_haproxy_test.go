package pusher

import (
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/eventually"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/snapshots"
)

// reloadedFor does something by hand to the worker of a, and waits until that worker was replaced once, for the reason
// that the log names. The worker of b stays.
func (r *rig) reloadedFor(id snapshots.ID, reason string, commands ...string) {
	r.t.Helper()
	reloads, others := r.pushes("a"), r.pushes("b")
	for _, command := range commands {
		if answer, err := r.instances["a"].Socket(command); err != nil {
			r.t.Fatalf("%s: %s: %v", command, answer, err)
		}
	}
	eventually.Holds(r.t, "the worker is replaced", func() bool { return r.pushes("a") > reloads })
	r.allRun(id)
	r.until("a is in sync", func(s report.Status) bool { return statusOf(s, "a").InSync && statusOf(s, "a").Foreign == "" })
	if !strings.Contains(r.logged(), reason) {
		r.t.Errorf("the log does not say %q", reason)
	}
	if n := r.pushes("a") - reloads; n != 1 {
		r.t.Errorf("it took %d reloads", n)
	}
	if r.pushes("b") != others {
		r.t.Error("b was reloaded too")
	}
}

// A frontend that somebody shuts down or disables is open again after one reload: no call of the API opens it.
func TestFailureFrontendClosedByHand(t *testing.T) {
	t.Parallel()
	for command, how := range map[string]string{"shutdown frontend": "shut down", "disable frontend": "disabled"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			eachAPI(t, []string{"a", "b"}, func(r *rig) {
				r.options.InspectInterval = 200 * time.Millisecond
				r.endpoints(echo(r.t, "one"))
				id := r.publish(edgeConfig(map[string]string{"plain": "#hapsnap servers shop/web:http"}))
				r.allRunAfter(id)
				r.reloadedFor(id, "somebody "+how+" frontend edge of its worker", command+" edge")
				if list, err := r.instances["a"].Socket("show stat -1 1 -1"); err != nil || !strings.Contains(list, "edge,FRONTEND") || strings.Contains(list, "PAUSED") || strings.Contains(list, "STOP") {
					r.t.Errorf("the frontends are %s: %v", list, err)
				}
			})
		})
	}
}

// A host whose certificate somebody takes out of a crt-list of the worker, or out of the worker, has it again after one
// reload.
func TestFailureCertificateTakenOutByHand(t *testing.T) {
	t.Parallel()
	for what, more := range map[string]string{"entry": "", "certificate": "del ssl cert "} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			eachAPI(t, []string{"a", "b"}, func(r *rig) {
				r.options.InspectInterval = 200 * time.Millisecond
				r.endpoints(echo(r.t, "one"))
				serial := r.secret(nil)
				id := r.publishTLS("1")
				r.allRunAfter(id)
				eventually.Holds(r.t, "the certificate is served", func() bool { return r.served("a", "shop.example.com") == serial })
				list, file := r.listed("a")
				commands := []string{"del ssl crt-list " + list + " " + file}
				if more != "" {
					commands = append(commands, more+file)
				}
				r.reloadedFor(id, "or its entry in a crt-list, from its worker", commands...)
				if got := r.served("a", "shop.example.com"); got != serial {
					r.t.Errorf("%s is served", got)
				}
			})
		})
	}
}

// listed returns the crt-list of a worker, and the first certificate in it.
func (r *rig) listed(name string) (list, file string) {
	r.t.Helper()
	lists, err := r.instances[name].Socket("show ssl crt-list")
	if err != nil {
		r.t.Fatal(err)
	}
	list = strings.Fields(lists)[0]
	entries, err := r.instances[name].Socket("show ssl crt-list " + list)
	if err != nil {
		r.t.Fatal(err)
	}
	for line := range strings.Lines(entries) {
		if f := strings.Fields(line); len(f) > 0 && f[0] != "#" {
			return list, f[0]
		}
	}
	r.t.Fatalf("no entry in %s: %s", list, entries)
	return "", ""
}
