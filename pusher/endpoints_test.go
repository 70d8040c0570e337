package pusher

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/pusher/observe"
)

func TestEndpointsChangeWithoutReload(t *testing.T) {
	t.Parallel()
	for _, api := range []dataplanetest.API{dataplanetest.V32, dataplanetest.V34} {
		t.Run(string(api), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, api, "a", "b")
			one, two := echo(t, "one"), echo(t, "two")
			r.endpoints(one)
			id := r.publish(config("1", ""))
			r.run()
			r.allRun(id)
			pids := r.workers()

			r.endpoints(two)
			for _, name := range r.names {
				eventually(t, name+" answers from the new endpoint only", func() bool { return r.answersOnly(name, "two") })
			}
			// Nobody is left out, nothing is reloaded.
			r.endpoints(one, two)
			for _, name := range r.names {
				eventually(t, name+" answers from both endpoints", func() bool { return r.answers(name, "one") && r.answers(name, "two") })
			}
			if got := r.workers(); !slices.Equal(got, pids) {
				t.Errorf("the workers are %v, were %v", got, pids)
			}

			// A worker that starts from the file on disk has the same servers.
			for _, name := range r.names {
				eventually(t, "the endpoints are on the disk of "+name, func() bool {
					text, _ := r.instances[name].Config()
					return strings.Contains(text, one) && strings.Contains(text, two)
				})
			}
			for _, name := range r.names {
				if n := r.pushes(name); n != 1 {
					t.Errorf("%s got %d pushes, want 1", name, n)
				}
			}
		})
	}
}

func TestFailureHAProxyRestartedFromAnOldFile(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V34, "a")
	one, two := echo(t, "one"), echo(t, "two")
	r.endpoints(one)
	id := r.publish(config("1", ""))
	r.run()
	r.allRun(id)
	i := r.instances["a"]
	text, err := i.Config()
	if err != nil {
		t.Fatal(err)
	}
	r.endpoints(two)
	eventually(t, "a answers from the new endpoint", func() bool { return r.answersOnly("a", "two") })
	i.KillHAProxy()
	if err := i.EditConfig(text); err != nil {
		t.Fatal(err)
	}
	if err := i.StartHAProxy(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a answers from the new endpoint again", func() bool { return r.answersOnly("a", "two") })
	r.allRun(id)
}

// A worker that has just started from an old file does not count as one that is up to
// date before it has what only the running one had.
func TestRestartedWorkerIsNotInSyncBeforeItsStateIsRestored(t *testing.T) {
	t.Parallel()
	for _, api := range []dataplanetest.API{dataplanetest.V32, dataplanetest.V34} {
		t.Run(string(api), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, api, "a")
			pods := newPods(t, "one", "two")
			r.serve(pods, "web", "one")
			r.allRunAfter(r.publish(edgeConfig(map[string]string{"web": "#hapsnap servers shop/web:http"})))
			i, web := r.instances["a"], []string{"web"}
			text, err := i.Config()
			if err != nil {
				t.Fatal(err)
			}
			r.serve(pods, "web", "two")
			r.settled(web, pods, "two")
			// What is still on its way to the disk would take the place of the old file.
			eventually(t, "the endpoint is on disk", func() bool {
				now, _ := i.Config()
				return strings.Contains(now, pods["two"].address)
			})
			r.until("all is well", func(s observe.Status) bool { return statusOf(s, "a").InSync })

			// Nothing can be changed until the faults are gone.
			i.Inject(dataplanetest.Answer(500).On(http.MethodPut, "/runtime"), dataplanetest.Answer(500).On(http.MethodPost, ""))
			i.KillHAProxy()
			if err := i.EditConfig(text); err != nil {
				t.Fatal(err)
			}
			if err := i.StartHAProxy(); err != nil {
				t.Fatal(err)
			}
			pid := r.workers()[0]
			r.until("the new worker was tried to be brought up to date", func(s observe.Status) bool {
				a := statusOf(s, "a")
				if a.PID == pid && a.InSync {
					t.Error("a worker from an old file is in sync")
				}
				return a.PID == pid && a.Error != ""
			})
			r.settled(web, pods, "one")
			i.ClearFaults()
			// The API holds another version than the file that was put under it, so that
			// nobody can tell what else was there when the worker began: it is reloaded.
			r.until("all is well again", func(s observe.Status) bool { return statusOf(s, "a").PID != pid && statusOf(s, "a").InSync })
			if now := r.placed("a", "web", pods["two"]); !now.up || now.drains {
				t.Errorf("in sync without the endpoint: %+v", r.slots("a", "web"))
			}
		})
	}
}

func TestRecordedEndpoints(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V32, "a")
	one, two := echo(t, "one"), echo(t, "two")
	r.allRunAfter(r.publishRecorded("1", one))
	if !r.answersOnly("a", "one") {
		t.Error("a does not answer from the recorded endpoint")
	}
	r.allRun(r.publishRecorded("2", two))
	if !r.answersOnly("a", "two") {
		t.Error("a does not answer from the newly recorded endpoint")
	}
}
