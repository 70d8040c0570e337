package pusher

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// hosts returns the entries of a worker's map of hosts, sorted.
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

// runsHosts waits until all instances run a snapshot whose map has these entries.
func (r *rig) runsHosts(id snapshots.ID, hosts string) report.Status {
	r.t.Helper()
	s := r.allRun(id)
	for name := range r.instances {
		if got := r.hosts(name); got != hosts {
			r.t.Errorf("%s has the hosts %q, want %q", name, got, hosts)
		}
	}
	return s
}

// A snapshot that differs only in entries of maps reaches all workers without a reload. The pusher
// knows after a restart what a worker runs. The files on disk match the worker.
func TestMapChangesReloadNobody(t *testing.T) {
	t.Parallel()
	eachAPI(t, []string{"a", "b"}, func(r *rig) {
		t := r.t
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
		// A restarted pusher knows what runs, also without its state.
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
		// The files on disk match the worker.
		r.instances["a"].StopHAProxy()
		if err := r.instances["a"].StartHAProxy(); err != nil {
			t.Fatal(err)
		}
		r.until("a names what it has loaded", func(s report.Status) bool {
			a := statusOf(s, "a")
			return a.InSync && a.Running == third && a.Loaded == ""
		})
		r.runsHosts(third, "a.example=new")
		if r.pushes("a") != pushes {
			t.Errorf("%d posts with a reload, were %d", r.pushes("a"), pushes)
		}
	})
}
