package pusher

import (
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// hosts returns the entries of the map of hosts that a worker has, sorted.
func (r *rig) hosts(name string) string {
	r.t.Helper()
	i := r.instances[name]
	list, err := i.Socket("show map")
	if err != nil {
		r.t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(list) {
		f := strings.Fields(line)
		if len(f) < 2 || !strings.HasPrefix(f[1], "("+i.Dirs.Maps) {
			continue
		}
		entries, err := i.Socket("show map #" + f[0])
		if err != nil {
			r.t.Fatal(err)
		}
		for entry := range strings.Lines(entries) {
			if f := strings.Fields(entry); len(f) == 3 {
				out = append(out, f[1]+"="+f[2])
			}
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// runsHosts waits until all run a snapshot whose map has these entries.
func (r *rig) runsHosts(id snapshots.ID, hosts string) observe.Status {
	r.t.Helper()
	s := r.allRun(id)
	for name := range r.instances {
		if got := r.hosts(name); got != hosts {
			r.t.Errorf("%s has the hosts %q, want %q", name, got, hosts)
		}
	}
	return s
}

// A snapshot that differs in entries of maps comes to all workers without a reload. What a
// worker runs is known over restarts of the pusher, and what is on disk is the same.
func TestMapChangesReloadNobody(t *testing.T) {
	t.Parallel()
	for _, api := range []dataplanetest.API{dataplanetest.V32, dataplanetest.V34} {
		t.Run(string(api), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, api, "a", "b")
			r.endpoints(echo(t, "one"))
			first := r.publishMap(config("1", ""), "a.example one\nb.example two\n")
			r.allRunAfter(first)
			workers, pushes := r.workers(), r.pushes("a")
			second := r.publishMap(config("1", ""), "a.example new\nc.example two\n")
			s := r.runsHosts(second, "a.example=new c.example=two")
			for _, i := range s.Instances {
				if id, _, err := bind.ParseNode(i.Loaded); err != nil || id != first {
					t.Errorf("%s has loaded %s", i.Name, i.Loaded)
				}
			}
			// Another pusher knows what runs, and one that lost its memory finds out.
			r.kill()
			r.allRunAfter(second)
			r.kill()
			if err := os.Remove(r.options.State); err != nil {
				t.Fatal(err)
			}
			r.run()
			r.runsHosts(second, "a.example=new c.example=two")
			third := r.publishMap(config("1", ""), "a.example new\n")
			r.runsHosts(third, "a.example=new")
			if now := r.workers(); !slices.Equal(now, workers) || r.pushes("a") != pushes {
				t.Errorf("the workers are %v, were %v; %d posts with a reload, were %d", now, workers, r.pushes("a"), pushes)
			}
			// What is on disk is the same.
			r.instances["a"].StopHAProxy()
			if err := r.instances["a"].StartHAProxy(); err != nil {
				t.Fatal(err)
			}
			r.until("a names what it has loaded", func(s observe.Status) bool {
				a := statusOf(s, "a")
				return a.InSync && a.Running == third && a.Loaded == ""
			})
			r.runsHosts(third, "a.example=new")
			if r.pushes("a") != pushes {
				t.Errorf("%d posts with a reload, were %d", r.pushes("a"), pushes)
			}
		})
	}
}

// A successor has from the state what workers run that do not name it, and goes on with
// the rollout.
func TestSuccessorKnowsWhatWorkersRun(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V34, "a", "b")
	r.endpoints(echo(t, "one"))
	first := r.publishMap(config("1", ""), "a.example one\n")
	kept := &secret{}
	one := r.member("one", kept)
	one.crown.give()
	one.until("all run it", func(s observe.Status) bool { return s.Good == first && s.Rollout == nil && s.InSync() == 2 })
	one.crown.take()
	one.until("stands by", func(s observe.Status) bool { return s.Standby })
	workers := r.workers()

	second := r.publishMap(config("1", ""), "a.example two\n")
	soak := time.Hour
	two := r.member("two", kept, func(o *Options) { o.Soak = &soak })
	two.crown.give()
	two.until("the canary soaks", func(s observe.Status) bool {
		return s.Phase() == rollout.Soaking && statusOf(s, "a").Running == second
	})
	two.crown.take()
	two.until("stands by", func(s observe.Status) bool { return s.Standby })

	entries := r.instances["a"].Count(http.MethodPut, "/runtime/maps")
	three := r.member("three", kept)
	three.crown.give()
	s := three.until("all run it", func(s observe.Status) bool { return s.Good == second && s.Rollout == nil && s.InSync() == 2 })
	for _, i := range s.Instances {
		if id, _, err := bind.ParseNode(i.Loaded); err != nil || id != first || i.Running != second {
			t.Errorf("%s runs %s and has loaded %s", i.Name, i.Running, i.Loaded)
		}
	}
	if now := r.workers(); !slices.Equal(now, workers) || len(s.Rejected) > 0 {
		t.Errorf("the workers are %v, were %v; rejected are %v", now, workers, s.Rejected)
	}
	if now := r.instances["a"].Count(http.MethodPut, "/runtime/maps"); now != entries {
		t.Errorf("the canary was changed again, %d times", now-entries)
	}
	for name := range r.instances {
		if got := r.hosts(name); got != "a.example=two" {
			t.Errorf("%s has the hosts %q", name, got)
		}
	}
}

// An entry that was acknowledged and is lost is set again; where that is in vain, the
// worker is reloaded. One that somebody else takes away comes back.
func TestFailureMapEntryLost(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V34, "a")
	r.options.InspectInterval = 100 * time.Millisecond
	r.endpoints(echo(t, "one"))
	r.allRunAfter(r.publishMap(config("1", ""), "a.example one\n"))
	worker, i := r.workers(), r.instances["a"]
	i.Inject(dataplanetest.MapChangeLost().On("PUT", "/runtime/maps").Times(1))
	r.runsHosts(r.publishMap(config("1", ""), "a.example one\nb.example two\n"), "a.example=one b.example=two")
	r.socket("a", "del map "+r.loadedMap("a")+" a.example")
	eventually(t, "the entry is back", func() bool { return r.hosts("a") == "a.example=one b.example=two" })
	if now := r.workers(); !slices.Equal(now, worker) {
		t.Errorf("the worker is %v, was %v", now, worker)
	}
	i.Inject(dataplanetest.MapChangeLost().On("PUT", "/runtime/maps"))
	s := r.runsHosts(r.publishMap(config("1", ""), "a.example one\nc.example two\n"), "a.example=one c.example=two")
	if now := r.workers(); slices.Equal(now, worker) || statusOf(s, "a").Loaded != "" {
		t.Errorf("the worker is %v, was %v, and has loaded %q", now, worker, statusOf(s, "a").Loaded)
	}
}

// loadedMap returns the file of the map of hosts by which a worker knows it.
func (r *rig) loadedMap(name string) string {
	r.t.Helper()
	list, err := r.instances[name].Socket("show map")
	if err != nil {
		r.t.Fatal(err)
	}
	for line := range strings.Lines(list) {
		if f := strings.Fields(line); len(f) > 1 && strings.HasPrefix(f[1], "("+r.instances[name].Dirs.Maps) {
			return strings.Trim(f[1], "()")
		}
	}
	r.t.Fatal("no map is loaded")
	return ""
}
