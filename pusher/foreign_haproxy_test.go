package pusher

import (
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/pusher/observe"
)

// limited is a snapshot whose worker says what it runs beside its node: the header that it
// adds to answers.
func limited(revision string) string { return config(revision, "") }

// foreignly edits haproxy.cfg of an instance so that its worker, which goes on naming the
// snapshot, answers otherwise.
func (r *rig) foreignly(name string) (was string) {
	r.t.Helper()
	was, err := r.instances[name].Config()
	if err != nil {
		r.t.Fatal(err)
	}
	text := strings.Replace(was, "x-revision 1", "x-revision foreign", 1)
	if text == was {
		r.t.Fatalf("there is no revision to edit in\n%s", was)
	}
	if err := r.instances[name].EditConfig(text); err != nil {
		r.t.Fatal(err)
	}
	return was
}

func (r *rig) revision(name string) string {
	revision, _, _ := r.get(name)
	return revision
}

func reloadByHand(i *dataplanetest.Instance) error {
	_, err := i.ReloadHAProxy()
	return err
}

// byHand are the ways in which a worker comes to run what somebody edited.
var byHand = map[string]func(i *dataplanetest.Instance) error{
	"reload on the master socket": reloadByHand,
	"restart": func(i *dataplanetest.Instance) error {
		i.StopHAProxy()
		return i.StartHAProxy()
	},
	"kill": func(i *dataplanetest.Instance) error {
		i.KillHAProxy()
		return i.StartHAProxy()
	},
}

// A worker that was started from an edited file runs what was edited, whatever it names. It
// is said, and reloaded once.
func TestFailureWorkerStartedFromAnEditedFile(t *testing.T) {
	t.Parallel()
	for how, load := range byHand {
		for _, api := range []dataplanetest.API{dataplanetest.V32, dataplanetest.V34} {
			t.Run(how+"/"+string(api), func(t *testing.T) {
				t.Parallel()
				r := newRig(t, api, "a")
				r.endpoints(echo(t, "one"))
				r.allRunAfter(r.publish(limited("1")))
				said := r.ever(func(s observe.Status) bool {
					a := statusOf(s, "a")
					return !a.InSync && strings.Contains(a.Foreign, "changed after it was written") && strings.Contains(a.Error, "its worker was started from another configuration")
				})
				before := r.pushes("a")
				r.foreignly("a")
				if err := load(r.instances["a"]); err != nil {
					t.Fatal(err)
				}
				if got := r.revision("a"); got != "foreign" {
					t.Fatalf("the edited file answers %q", got)
				}
				eventually(t, "the worker runs the snapshot again", func() bool { return r.revision("a") == "1" })
				r.until("all is well", func(s observe.Status) bool { return statusOf(s, "a").InSync && statusOf(s, "a").Foreign == "" })
				if !said() {
					t.Error("the status never said so")
				}
				if n := r.pushes("a") - before; n != 1 {
					t.Errorf("it took %d reloads", n)
				}
				if log := r.logged(); !strings.Contains(log, "worker was started from another configuration, it is to be reloaded") {
					t.Error("the log does not say so")
				}
				text, err := r.instances["a"].Config()
				if err != nil || !strings.Contains(text, "x-revision 1") {
					t.Errorf("%v, on disk is\n%s", err, text)
				}
			})
		}
	}
}

// The same while nobody pushes, with the file as the edit left it, or put back.
func TestWorkerStartedFromAnEditedFileWhileThePusherWasAway(t *testing.T) {
	t.Parallel()
	for _, back := range []string{"left", "put back"} {
		for _, state := range []string{"kept", "lost"} {
			t.Run(back+"/state "+state, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, dataplanetest.V34, "a")
				r.endpoints(echo(t, "one"))
				id := r.publish(limited("1"))
				r.allRunAfter(id)
				r.kill()
				was := r.foreignly("a")
				eventually(t, "the API has the edit", func() bool {
					text, _ := r.instances["a"].Config()
					return strings.Contains(text, "x-revision foreign") && strings.Contains(text, "# _version=")
				})
				if err := reloadByHand(r.instances["a"]); err != nil {
					t.Fatal(err)
				}
				eventually(t, "the edit is read", func() bool {
					raw, err := rawOf(r, "a")
					return err == nil && raw > versionIn(was)
				})
				if back == "put back" {
					if err := r.instances["a"].EditConfig(was); err != nil {
						t.Fatal(err)
					}
				}
				if state == "lost" {
					r.loseState()
				}
				r.allRunAfter(id)
				eventually(t, "the worker runs the snapshot again", func() bool { return r.revision("a") == "1" })
			})
		}
	}
}

// A restart from exactly what was written costs no reload, also while the pusher is away,
// and also where an edit was put right long before.
func TestRestartFromOurFileCostsNoReload(t *testing.T) {
	t.Parallel()
	for _, api := range []dataplanetest.API{dataplanetest.V32, dataplanetest.V34} {
		t.Run(string(api), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, api, "a")
			r.options.InspectInterval = 100 * time.Millisecond
			one, two := echo(t, "one"), echo(t, "two")
			r.endpoints(one)
			id := r.publish(limited("1"))
			r.allRunAfter(id)
			before := r.pushes("a")
			restart := func(how string) {
				t.Helper()
				if err := byHand["restart"](r.instances["a"]); err != nil {
					t.Fatal(err)
				}
				pid, err := r.instances["a"].WorkerPID()
				if err != nil {
					t.Fatal(err)
				}
				r.until("the restarted worker is known "+how, func(s observe.Status) bool {
					return statusOf(s, "a").PID == pid && statusOf(s, "a").InSync
				})
			}
			restart("at once")
			r.endpoints(one, two) // a post before 3.4, and a later one for the disk from then on
			eventually(t, "the new endpoint is on disk", func() bool {
				text, _ := r.instances["a"].Config()
				return strings.Contains(text, two)
			})
			restart("after other writes")
			r.foreignly("a")
			eventually(t, "the file is put back", func() bool {
				text, _ := r.instances["a"].Config()
				return strings.Contains(text, "x-revision 1")
			})
			r.until("all is well", func(s observe.Status) bool { return statusOf(s, "a").InSync })
			heard := r.instances["a"].Count("GET", "/runtime/info")
			eventually(t, "the worker is heard for a while after that", func() bool {
				return r.instances["a"].Count("GET", "/runtime/info") > heard+40
			})
			restart("after a repair")
			r.kill()
			if err := byHand["restart"](r.instances["a"]); err != nil {
				t.Fatal(err)
			}
			r.run()
			r.until("the fleet is known again", func(s observe.Status) bool { return s.Good == id && statusOf(s, "a").InSync })
			if n := r.pushes("a") - before; n != 0 {
				t.Errorf("%d reloads for workers that were started from what was written", n)
			}
		})
	}
}

// Whoever loads edited files again and again is let be after three repairs, and endpoints
// still follow.
func TestFailureConflictOverAWorker(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V34, "a")
	one, two := echo(t, "one"), echo(t, "two")
	r.endpoints(one)
	r.allRunAfter(r.publish(limited("1")))
	var last observe.Status
	eventually(t, "the repairs stop", func() bool {
		if r.revision("a") == "1" && statusOf(r.seen(), "a").InSync {
			r.foreignly("a")
			if err := reloadByHand(r.instances["a"]); err != nil {
				t.Fatal(err)
			}
		}
		last = r.seen()
		return statusOf(last, "a").Conflict != nil && strings.Contains(statusOf(last, "a").Error, "somebody else keeps changing it, 3 repairs")
	})
	if a := statusOf(last, "a"); a.InSync || a.Foreign == "" || !strings.Contains(a.Error, "was started from another configuration") {
		t.Errorf("in sync %v, foreign %q, error %q", a.InSync, a.Foreign, a.Error)
	}
	if n := r.pushes("a"); n != 4 {
		t.Errorf("%d reloads, of which one was the first", n)
	}
	r.endpoints(two)
	eventually(t, "the endpoints follow", func() bool { return r.answersOnly("a", "two") })
	if got := r.revision("a"); got != "foreign" {
		t.Errorf("the last word is %q, not the other hand's", got)
	}
}
