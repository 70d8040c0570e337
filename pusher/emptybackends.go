package pusher

import (
	"maps"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// BackendsStatus says which backends of the snapshot that should run have no server up.
type BackendsStatus struct {
	// All is how many backends have servers that endpoints are given to, and Empty how
	// many of them have no server up. Failing is how many of these have endpoints, none of
	// which passes its checks.
	All     int `json:"all"`
	Empty   int `json:"empty"`
	Failing int `json:"failing,omitempty"`
	// List are the first of those, by name.
	List []EmptyBackend `json:"list,omitempty"`
}

// EmptyBackend is a backend without a server up.
type EmptyBackend struct {
	Backend string `json:"backend"`
	// Since is when the pusher saw it first.
	Since time.Time `json:"since"`
	// Instances are those on which no server passes its checks, though there are
	// endpoints; none where there are no endpoints, which is so on all.
	Instances []string `json:"instances,omitempty"`
}

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

func newEmptiness(before *BackendsStatus) emptiness {
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
func (x *emptiness) follow(down map[string][]string, now time.Time) *BackendsStatus {
	out := BackendsStatus{All: len(x.empty)}
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
		b := EmptyBackend{Backend: backend, Since: now.UTC().Truncate(time.Second)}
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
	slices.SortFunc(out.List, func(a, b EmptyBackend) int {
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
func (e *engine) backendsStatus(now time.Time) *BackendsStatus {
	id := e.target()
	if p, atHand := e.bindings.prepared[id]; !atHand || !p.known || len(e.lacks()) > 0 {
		id = e.state.Rollout.Good
	}
	p, atHand := e.bindings.prepared[id]
	if !atHand || !p.known || len(p.servers) == 0 {
		return nil
	}
	if x := &e.emptiness; x.of != id || x.servers != &p.servers[0] {
		slots := e.bindings.slots
		if p.recorded {
			slots = p.slots
		}
		x.of, x.servers, x.empty = id, &p.servers[0], withoutEndpoints(p.directives, slots)
	}
	down := map[string][]string{}
	for name, i := range e.instances {
		if s := i.samples.last(i.started); i.reachable() && s.PID == i.info.PID {
			down[name] = s.Down
		}
	}
	return e.emptiness.follow(down, now)
}

// gauges returns how many backends have no endpoints, and how many have only such that
// fail their checks.
func (s *BackendsStatus) gauges() (withoutEndpoints, failing int) {
	if s == nil {
		return 0, 0
	}
	return s.Empty - s.Failing, s.Failing
}
