package pusher

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/pusher/dataplane/dataplanetest"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
)

func TestInstanceDownAtTheStartGetsItWhenItReturns(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V32, "a", "b", "c")
	r.instances["a"].StopAPI()
	r.endpoints(echo(t, "one"))
	id := r.publish(config("1", ""))
	r.run()
	r.until("the others run it", func(s Status) bool {
		return s.Good == id && s.InSync() == 2 && s.instance("b").InSync && s.instance("c").InSync
	})
	if a := r.seen().instance("a"); a.Reachable || a.Error == "" {
		t.Errorf("of a it is said: %+v", a)
	}
	if err := r.instances["a"].StartAPI(); err != nil {
		t.Fatal(err)
	}
	r.allRun(id)
}

func TestHangingInstanceHoldsUpNobody(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V32, "a", "b", "c")
	r.options.ReloadTimeout = 300 * time.Millisecond
	r.instances["c"].Inject(dataplanetest.Hang().On(http.MethodPost, "/configuration/raw"))
	one, two := echo(t, "one"), echo(t, "two")
	r.endpoints(one)
	id := r.publish(config("1", ""))
	r.run()
	r.until("a and b run it", func(s Status) bool { return s.instance("a").InSync && s.instance("b").Running == id })
	r.endpoints(two)
	eventually(t, "a follows the endpoints", func() bool { return r.answersOnly("a", "two") })
	r.instances["c"].ClearFaults()
	r.allRun(id)
}

func TestPushSurvives(t *testing.T) {
	post := func(f dataplanetest.Fault) dataplanetest.Fault {
		return f.On(http.MethodPost, "/configuration/raw").Times(1)
	}
	faults := map[string]dataplanetest.Fault{
		"unauthorized":             post(dataplanetest.Answer(401)),
		"conflict":                 post(dataplanetest.Answer(409)),
		"too many requests":        post(dataplanetest.Answer(429)),
		"internal error":           post(dataplanetest.Answer(500)),
		"unavailable":              post(dataplanetest.Answer(503)),
		"cut before":               post(dataplanetest.CutBefore()),
		"reply lost":               post(dataplanetest.CutAfter()),
		"disk full":                post(dataplanetest.DiskFull()),
		"upload unavailable":       dataplanetest.Answer(503).On(http.MethodPost, "/storage/maps").Times(1),
		"upload reply lost":        dataplanetest.CutAfter().On(http.MethodPost, "/storage/maps").Times(1),
		"upload disk full":         dataplanetest.DiskFull().On(http.MethodPost, "/storage").Times(1),
		"runtime info unavailable": dataplanetest.Answer(500).On(http.MethodGet, "/runtime/info").Times(3),
		"raw unavailable":          dataplanetest.Answer(500).On(http.MethodGet, "/configuration/raw").Times(2),
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, dataplanetest.V32, "a")
			r.instances["a"].Inject(fault)
			r.endpoints(echo(t, "one"))
			id := r.publish(config("1", ""))
			r.run()
			r.allRun(id)
			done := 0
			for _, q := range r.instances["a"].Requests() {
				if q.Method == http.MethodPost && strings.Contains(q.Query, "force_reload") && (q.Status == 201 || q.Status == 0 && name == "reply lost") {
					done++
				}
			}
			if done != 1 {
				t.Errorf("it was reloaded %d times, want once", done)
			}
			if rejected := r.seen().Rejected; len(rejected) > 0 {
				t.Errorf("the snapshot was blamed for it: %+v", rejected)
			}
		})
	}
}

func TestReloadThatFailsWithoutAVerdictIsNoFaultOfTheSnapshot(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V32, "a", "b")
	r.endpoints(echo(t, "one"))
	r.allRunAfter(r.publish(config("1", "")))
	r.instances["a"].Inject(dataplanetest.MasterSocketGone().On("", "").Times(20))
	r.allRun(r.publish(config("2", "")))
	if rejected := r.seen().Rejected; len(rejected) > 0 {
		t.Errorf("the snapshot was blamed for it: %+v", rejected)
	}
}

func TestReplyLostOfAReloadThatFails(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V32, "a", "b")
	r.endpoints(echo(t, "one"))
	good := r.publish(config("1", ""))
	r.allRunAfter(good)
	r.instances["a"].Inject(dataplanetest.CutAfter().On(http.MethodPost, "/configuration/raw").Times(1))
	bad := r.publish(config("2", broken))
	r.until("it is rejected", func(s Status) bool { return len(s.Rejected) == 1 && s.Rejected[0].Snapshot == bad })
	r.allRun(good)
	if n := r.pushes("a"); n != 2 {
		t.Errorf("a got %d pushes, want one of each snapshot", n)
	}
	if n := r.pushes("b"); n != 1 {
		t.Errorf("b got %d pushes, want 1", n)
	}
}

func TestStoreGone(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V32, "a")
	one, two := echo(t, "one"), echo(t, "two")
	r.endpoints(one)
	id := r.publish(config("1", ""))
	r.allRunAfter(id)
	store := filepath.Join(r.dir, "store")
	if err := os.Rename(store, store+".away"); err != nil {
		t.Fatal(err)
	}
	r.until("it is said that the store is gone", func(s Status) bool {
		return len(s.Troubles) == 1 && s.Troubles[0].About == "store"
	})
	r.endpoints(two)
	eventually(t, "endpoints still follow", func() bool { return r.answersOnly("a", "two") })

	// Also a pusher that starts without the store has what runs at hand.
	r.kill()
	r.run()
	r.endpoints(one)
	eventually(t, "endpoints follow after a restart", func() bool { return r.answersOnly("a", "one") })
	if n := r.pushes("a"); n != 1 {
		t.Errorf("a got %d pushes, want 1", n)
	}

	if err := os.Rename(store+".away", store); err != nil {
		t.Fatal(err)
	}
	r.until("the trouble is over", func(s Status) bool { return len(s.Troubles) == 0 })
	r.allRun(r.publish(config("2", "")))
}

func TestEmptyStoreChangesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V32, "a")
	r.endpoints(echo(t, "one"))
	if err := os.MkdirAll(filepath.Join(r.dir, "store"), 0o755); err != nil {
		t.Fatal(err)
	}
	r.run()
	inSync := false
	r.until("it is said that there is nothing", func(s Status) bool {
		inSync = inSync || s.instance("a").InSync
		return s.Channel.Hold && s.Channel.Because == snapshots.BecauseEmpty && s.instance("a").Reachable
	})
	if n := r.writes("a"); n != 0 {
		t.Errorf("a got %d requests that change something", n)
	}
	if inSync {
		t.Error("a runs no snapshot, and counted as in sync")
	}
}

func TestCanaryThatCrashesIsRolledBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V32, "a", "b")
	r.endpoints(echo(t, "one"))
	good := r.publish(config("1", ""))
	r.allRunAfter(good)
	soak := time.Hour
	r.kill()
	r.options.Soak = &soak
	r.run()
	bad := r.publish(config("2", ""))
	r.until("the canary soaks", phase(rollout.Soaking))
	r.instances["a"].KillHAProxy()
	if err := r.instances["a"].StartHAProxy(); err != nil {
		t.Fatal(err)
	}
	r.until("it is rejected", func(s Status) bool { return len(s.Rejected) == 1 && s.Rejected[0].Snapshot == bad })
	r.allRun(good)
	if n := r.pushes("b"); n != 1 {
		t.Errorf("b got %d pushes, want 1", n)
	}
}
