package core

import (
	"maps"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// mostEmpty is how many the status lists.
const mostEmpty = 100

// withoutEndpoints returns which backends of the directives there are, and whether one
// has no endpoint in any of its slots. An endpoint that is gone and drains is none.
func withoutEndpoints(directives []bind.Directive, slots bind.Slots) map[string]bool {
	out := map[string]bool{}
	for _, d := range directives {
		if empty, known := out[d.Backend]; known && !empty {
			continue
		}
		out[d.Backend] = !slices.ContainsFunc(slots[d.Key()], func(s bind.Slot) bool {
			return s.State != bind.SlotSpare && s.Until.IsZero()
		})
	}
	return out
}

// emptiness follows which backends have no server up, and since when.
type emptiness struct {
	of      snapshots.ID
	servers *bind.Server    // with which it was found out
	empty   map[string]bool // all backends, true for those without endpoints
	since   map[string]time.Time
}

func newEmptiness(before *report.Backends) emptiness {
	out := emptiness{since: map[string]time.Time{}}
	if before != nil {
		for _, b := range before.List {
			out.since[b.Backend] = b.Since
		}
	}
	return out
}

// follow returns what there is to say now. Down are the backends of which no server
// passes its checks, by instance.
func (x *emptiness) follow(down map[string][]string, now time.Time) *report.Backends {
	out := report.Backends{All: len(x.empty)}
	on := map[string][]string{}
	for _, instance := range slices.Sorted(maps.Keys(down)) {
		for _, backend := range down[instance] {
			if _, ours := x.empty[backend]; ours {
				on[backend] = append(on[backend], instance)
			}
		}
	}
	since := map[string]time.Time{}
	for backend, empty := range x.empty {
		if !empty && len(on[backend]) == 0 {
			continue
		}
		b := report.EmptyBackend{Backend: backend, Since: now.UTC().Truncate(time.Second)}
		if at, known := x.since[backend]; known {
			b.Since = at
		}
		if !empty {
			b.Instances = on[backend]
			out.Failing++
		}
		since[backend] = b.Since
		out.List = append(out.List, b)
	}
	x.since = since
	slices.SortFunc(out.List, func(a, b report.EmptyBackend) int {
		if a.Backend < b.Backend {
			return -1
		}
		return 1
	})
	out.Empty = len(out.List)
	out.List = out.List[:min(len(out.List), mostEmpty)]
	return &out
}

// backendsStatus returns which backends have no server up of the snapshot that should
// run, or of the last good one while that waits; nil while nothing is known.
func (r *reporting) backendsStatus(now time.Time) *report.Backends {
	id := r.target()
	if p, atHand := r.bindings.Of(id); !atHand || !p.Known || len(r.lacks()) > 0 {
		id = r.state.Rollout.Good
	}
	p, atHand := r.bindings.Of(id)
	if !atHand || !p.Known || len(p.Servers) == 0 {
		return nil
	}
	if x := &r.emptiness; x.of != id || x.servers != &p.Servers[0] {
		slots, _ := r.bindings.Table()
		if p.Recorded {
			slots = p.Slots
		}
		x.of, x.servers, x.empty = id, &p.Servers[0], withoutEndpoints(p.Directives, slots)
	}
	down := map[string][]string{}
	for name, i := range r.instances {
		if s := i.samples.last(i.started); i.reachable() && s.PID == i.info.PID {
			down[name] = s.Down
		}
	}
	return r.emptiness.follow(down, now)
}
