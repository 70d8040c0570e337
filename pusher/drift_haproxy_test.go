package pusher

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/pusher/observe"
)

// inspecting is a rig whose pusher looks often, with a fleet that runs something.
func inspecting(t *testing.T, api dataplanetest.API, endpoints ...string) *rig {
	t.Helper()
	r := newRig(t, api, "a")
	r.options.InspectInterval = 100 * time.Millisecond
	r.endpoints(endpoints...)
	r.allRunAfter(r.publish(config("1", "")))
	return r
}

func (r *rig) socket(name, command string) {
	r.t.Helper()
	if out, err := r.instances[name].Socket(command); err != nil || strings.TrimSpace(out) != "" {
		r.t.Fatalf("%s: %q, %v", command, out, err)
	}
}

// What somebody else did to the files of an instance is put right, and the worker is
// left alone.
func TestFailureConfigurationEditedByHand(t *testing.T) {
	t.Parallel()
	for _, api := range []dataplanetest.API{dataplanetest.V32, dataplanetest.V34} {
		t.Run(string(api), func(t *testing.T) {
			t.Parallel()
			r := inspecting(t, api, echo(t, "one"))
			i, worker := r.instances["a"], r.workers()
			text, err := i.Config()
			if err != nil {
				t.Fatal(err)
			}
			if err := i.EditConfig(strings.Replace(text, "maxconn 100", "maxconn 5", 1)); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the configuration is as it was", func() bool {
				text, _ := i.Config()
				return strings.Contains(text, "maxconn 100")
			})
			maps, err := filepath.Glob(filepath.Join(i.Dirs.Maps, "*.map"))
			if err != nil || len(maps) != 1 {
				t.Fatalf("maps on disk: %q, %v", maps, err)
			}
			content, err := os.ReadFile(maps[0])
			if err != nil {
				t.Fatal(err)
			}
			for what, spoil := range map[string]func() error{
				"removed": func() error { return os.Remove(maps[0]) },
				"changed": func() error { return os.WriteFile(maps[0], []byte("other.example.com none\n"), 0o600) },
			} {
				if err := spoil(); err != nil {
					t.Fatal(err)
				}
				eventually(t, "the map that was "+what+" is back", func() bool {
					now, _ := os.ReadFile(maps[0])
					return slices.Equal(now, content)
				})
			}
			if now := r.workers(); !slices.Equal(now, worker) || r.pushes("a") != 1 {
				t.Errorf("the worker is %v, was %v; %d pushes", now, worker, r.pushes("a"))
			}
		})
	}
}

// Who keeps undoing the repairs is let be, and both sides are told. Other work goes on.
func TestFailureConflictOverAFile(t *testing.T) {
	t.Parallel()
	r := inspecting(t, dataplanetest.V34, echo(t, "one"))
	i := r.instances["a"]
	edit := func() {
		if text, err := i.Config(); err == nil && strings.Contains(text, "maxconn 100") {
			if err := i.EditConfig(strings.Replace(text, "maxconn 100", "maxconn 5", 1)); err != nil {
				t.Error(err)
			}
		}
	}
	var last observe.Status
	eventually(t, "the repairs stop", func() bool {
		edit()
		last = r.seen()
		return statusOf(last, "a").Conflict != nil
	})
	a := statusOf(last, "a")
	if a.InSync || !strings.Contains(a.Error, "haproxy.cfg on disk: want what was written for r000001") || !strings.Contains(a.Error, "in global: maxconn") {
		t.Errorf("in sync: %v, error: %s", a.InSync, a.Error)
	}
	if text, _ := i.Config(); !strings.Contains(text, "maxconn 5") {
		t.Error("the last word is not the other hand's")
	}
	// A conflict is not forgotten with the process.
	r.kill()
	r.run()
	r.until("the conflict is known", func(s observe.Status) bool { return statusOf(s, "a").Conflict != nil })
	// A new snapshot is pushed all the same, and with it all is as it should be.
	id := r.publish(config("2", ""))
	r.until("the newer one runs, and the conflict is over", func(s observe.Status) bool {
		a := statusOf(s, "a")
		return a.Running == id && a.Conflict == nil && a.InSync
	})
}

// A server that a person drains stays drained: over changes of other endpoints, over a
// new pusher, over a reload. It is in traffic again when that person says so, or when
// another endpoint has its slot.
func TestServerDrainedByHandStaysSo(t *testing.T) {
	t.Parallel()
	for _, api := range []dataplanetest.API{dataplanetest.V32, dataplanetest.V34} {
		for _, state := range []string{"drain", "maint"} {
			t.Run(string(api)+"/"+state, func(t *testing.T) {
				t.Parallel()
				one, two, three := echo(t, "one"), echo(t, "two"), echo(t, "three")
				r := inspecting(t, api, one, two)
				eventually(t, "both answer", func() bool { return r.answers("a", "one") && r.answers("a", "two") })
				drained := r.serverOf("a", one)
				r.socket("a", "set server shop_web/"+drained+" state "+state)
				byHand := func(s observe.Status) bool {
					drains := statusOf(s, "a").ManualDrains
					return len(drains) == 1 && drains[0].Server == drained && statusOf(s, "a").InSync
				}
				r.until("the hand is seen", byHand)

				r.endpoints(one, two, three)
				eventually(t, "the new endpoint answers", func() bool { return r.answers("a", "three") })
				r.until("the hand is respected", byHand)
				r.kill()
				r.run()
				r.until("the hand is remembered", byHand)
				id := r.publish(config("2", ""))
				r.allRun(id)
				r.until("the hand outlives a reload", byHand)
				for range 12 {
					if _, body, err := r.get("a"); err != nil || body == "one" {
						t.Fatalf("answer %q, %v", body, err)
					}
				}

				r.socket("a", "set server shop_web/"+drained+" state ready")
				r.until("the hand is taken back", func(s observe.Status) bool { return len(statusOf(s, "a").ManualDrains) == 0 && statusOf(s, "a").InSync })
				eventually(t, "it answers again", func() bool { return r.answers("a", "one") })
			})
		}
	}
}

// A slot that is taken from its endpoint by somebody else gets it back.
func TestServerMovedByHandIsMovedBack(t *testing.T) {
	t.Parallel()
	r := inspecting(t, dataplanetest.V34, echo(t, "one"))
	_, port, _ := strings.Cut(echo(t, "other"), ":")
	server := r.serverOf("a", "")
	if out, err := r.instances["a"].Socket("set server shop_web/" + server + " addr 127.0.0.1 port " + port); err != nil {
		t.Fatal(out, err)
	}
	eventually(t, "the endpoint answers", func() bool { return r.answersOnly("a", "one") })
	r.until("all is well", func(s observe.Status) bool { return statusOf(s, "a").InSync })
}

// serverOf returns the server that has an address, or the first that is in traffic.
func (r *rig) serverOf(name, address string) string {
	r.t.Helper()
	text, err := r.instances[name].Config()
	if err != nil {
		r.t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) > 2 && words[0] == "server" && !slices.Contains(words, "disabled") && (address == "" || words[2] == address) {
			return words[1]
		}
	}
	r.t.Fatalf("no server at %q in\n%s", address, text)
	return ""
}

// What the pusher itself wrote is no drift: certificates, also renewed ones, of which the
// API lists little, and what was written when nobody lived to remember it.
func TestOwnWritesAreNoDrift(t *testing.T) {
	t.Parallel()
	for _, api := range []dataplanetest.API{dataplanetest.V32, dataplanetest.V34} {
		t.Run(string(api), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, api, "a")
			r.options.InspectInterval = 50 * time.Millisecond
			one, two := echo(t, "one"), echo(t, "two")
			r.endpoints(one)
			r.secret(nil)
			r.allRunAfter(r.publishTLS("1"))
			r.inspected(3)
			r.secret(nil)
			r.inspected(6)
			remembered, err := os.ReadFile(r.options.State)
			if err != nil {
				t.Fatal(err)
			}
			r.endpoints(two)
			eventually(t, "the new endpoint is on disk", func() bool {
				text, _ := r.instances["a"].Config()
				return strings.Contains(text, two)
			})
			r.kill()
			if err := replaceFile(r.options.State, remembered); err != nil {
				t.Fatal(err)
			}
			r.run()
			r.inspected(3)
			r.mu.Lock()
			defer r.mu.Unlock()
			if log := r.log.String(); strings.Contains(log, "drift is repaired") {
				t.Error("something was taken for drift")
			}
		})
	}
}

// inspected waits for some more looks at the file on disk of an instance.
func (r *rig) inspected(more int) {
	r.t.Helper()
	lists := func() int { return r.instances["a"].Count(http.MethodGet, "/storage/ssl_certificates") }
	until := lists() + 2*more // a list and a certificate
	eventually(r.t, "a is looked at", func() bool { return lists() >= until })
}
