package pusher

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/rollout"
)

func TestFailureInstanceUnreachable(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V32, "a", "b", "c")
	r.instances["a"].StopAPI()
	r.endpoints(echo(t, "one"))
	id := r.publish(config("1", ""))
	r.run()
	r.until("the others run it", func(s observe.Status) bool {
		return s.Good == id && s.InSync() == 2 && statusOf(s, "b").InSync && statusOf(s, "c").InSync
	})
	if a := statusOf(r.seen(), "a"); a.Reachable || a.Error == "" {
		t.Errorf("of a it is said: %+v", a)
	}
	if err := r.instances["a"].StartAPI(); err != nil {
		t.Fatal(err)
	}
	r.allRun(id)
}

func TestFailureInstanceNeverAnswers(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V32, "a", "b", "c")
	r.options.ReloadTimeout = 3 * time.Second
	r.instances["c"].Inject(dataplanetest.Hang().On(http.MethodPost, "/configuration/raw"))
	one, two := echo(t, "one"), echo(t, "two")
	r.endpoints(one)
	id := r.publish(config("1", ""))
	r.run()
	r.until("a and b run it", func(s observe.Status) bool { return statusOf(s, "a").InSync && statusOf(s, "b").Running == id })
	r.endpoints(two)
	eventually(t, "a follows the endpoints", func() bool { return r.answersOnly("a", "two") })
	r.instances["c"].ClearFaults()
	r.allRun(id)
}

// Errors say nothing about the snapshot: it is pushed again, and nobody is reloaded
// twice.
func TestFailureInstanceAnswersErrors(t *testing.T) {
	survived(t, map[string]dataplanetest.Fault{
		"401":                       toPost(dataplanetest.Answer(401)),
		"409":                       toPost(dataplanetest.Answer(409)),
		"429":                       toPost(dataplanetest.Answer(429)),
		"500":                       toPost(dataplanetest.Answer(500)),
		"503":                       toPost(dataplanetest.Answer(503)),
		"503 to an upload":          dataplanetest.Answer(503).On(http.MethodPost, "/storage/maps").Times(1),
		"500 for the runtime info":  dataplanetest.Answer(500).On(http.MethodGet, "/runtime/info").Times(3),
		"500 for the configuration": dataplanetest.Answer(500).On(http.MethodGet, "/configuration/raw").Times(2),
		"cut off":                   toPost(dataplanetest.CutBefore()),
	})
}

func TestFailureInstanceSlow(t *testing.T) {
	survived(t, map[string]dataplanetest.Fault{
		"to load":   toPost(dataplanetest.Slow(time.Second)),
		"to upload": dataplanetest.Slow(time.Second).On(http.MethodPost, "/storage/maps").Times(1),
		"to answer": dataplanetest.Slow(100*time.Millisecond).On(http.MethodGet, "").Times(20),
	})
}

func TestFailureReplyLost(t *testing.T) {
	survived(t, map[string]dataplanetest.Fault{
		"of a post":    toPost(dataplanetest.CutAfter()),
		"of an upload": dataplanetest.CutAfter().On(http.MethodPost, "/storage/maps").Times(1),
	})
}

func TestFailureDiskFull(t *testing.T) {
	survived(t, map[string]dataplanetest.Fault{
		"for haproxy.cfg": toPost(dataplanetest.DiskFull()),
		"for a map":       dataplanetest.DiskFull().On(http.MethodPost, "/storage").Times(1),
	})
}

// toPost has the fault happen to the first post of a configuration.
func toPost(f dataplanetest.Fault) dataplanetest.Fault {
	return f.On(http.MethodPost, "/configuration/raw").Times(1)
}

// survived checks that a first snapshot comes through each of the faults, with one
// reload, and is not blamed for it.
func survived(t *testing.T, faults map[string]dataplanetest.Fault) {
	t.Helper()
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, dataplanetest.V32, "a")
			r.instances["a"].Inject(fault)
			r.endpoints(echo(t, "one"))
			id := r.publish(config("1", ""))
			r.run()
			r.allRun(id)
			if n := r.reloads("a"); n != 1 {
				t.Errorf("it was reloaded %d times, want once", n)
			}
			if rejected := r.seen().Rejected; len(rejected) > 0 {
				t.Errorf("the snapshot was blamed for it: %+v", rejected)
			}
		})
	}
}

// Who joins while a canary soaks gets what is good, and the newer one with the others.
func TestFailureEmptyInstanceInTheMiddleOfAWave(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V32, "a", "b", "c")
	r.writeFleet("a", "b")
	r.endpoints(echo(t, "one"))
	first := r.publish(config("1", ""))
	r.allRunAfter(first)
	r.kill()
	short, long := r.options.Soak, time.Hour
	r.options.Soak = &long
	r.run()
	second := r.publish(config("2", ""))
	r.until("the canary soaks", phase(rollout.Soaking))
	r.writeFleet("a", "b", "c")
	r.until("the new one runs what is good", func(s observe.Status) bool { return statusOf(s, "c").Running == first })
	if revision, body, err := r.get("c"); revision != "1" || body != "one" {
		t.Errorf("c answers %q of revision %q: %v", body, revision, err)
	}
	if r.seen().Phase() != rollout.Soaking || r.pushes("b") != 1 {
		t.Errorf("the rollout is %+v, and b got %d pushes", r.seen().Rollout, r.pushes("b"))
	}
	r.kill()
	r.options.Soak = short
	r.allRunAfter(second)
	if got := []int{r.pushes("a"), r.pushes("b"), r.pushes("c")}; !slices.Equal(got, []int{2, 2, 2}) {
		t.Errorf("they got %v pushes, want 2 each", got)
	}
}
