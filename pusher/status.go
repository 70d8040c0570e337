package pusher

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// ErrNoState is returned for a state that is not there: no pusher ever ran with it.
var ErrNoState = errors.New("there is no state file")

// ReadStatus reads the status from a state file, of a pusher that runs or ran.
func ReadStatus(file string) (observe.Status, error) {
	data, err := readFile(file)
	if err != nil {
		return observe.Status{}, err
	}
	return ParseStatus(data, file)
}

// readFile returns what is in a state file.
func readFile(file string) ([]byte, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read state from %s: %w", file, ErrNoState)
	}
	if err != nil {
		return nil, fmt.Errorf("read state: %w", err)
	}
	return data, nil
}

// ParseStatus returns the status in a state that was read from a place.
func ParseStatus(data []byte, place string) (observe.Status, error) {
	if err := checkState(data, place); err != nil {
		return observe.Status{}, err
	}
	var s struct{ Status observe.Status }
	if err := json.Unmarshal(data, &s); err != nil {
		return observe.Status{}, fmt.Errorf("read state %s: %w: %w", place, ErrNotState, err)
	}
	return s.Status, nil
}

// tell has people told of a fact, after the turn.
func (e *engine) tell(f observe.Fact, now time.Time) {
	e.facts = append(e.facts, observe.Told{Fact: f, At: now})
}

// trouble notes what keeps the pusher from its work, or that it no longer does.
func (e *engine) trouble(about string, err error, now time.Time) {
	if t, changed := e.troubles.Set(about, err, now); changed {
		e.tell(t, now)
		e.dirty = true
	}
}

// lost has people told of changes of map entries that an instance did not make.
func (e *engine) lost(n int, now time.Time) {
	if n > 0 {
		e.tell(observe.EntriesLost(n), now)
	}
}

// look takes down what people are to see of this turn.
func (e *engine) look(now time.Time) {
	e.shown = e.seen(now)
	e.reported = e.shown.Status()
}

// status returns what the pusher says of itself.
func (e *engine) status(now time.Time) observe.Status { return e.seen(now).Status() }

// soonest are the certificates that expire first, which are sorted when there are others.
type soonest struct {
	version int
	list    []observe.Expiry
}

func (e *engine) expiries() []observe.Expiry {
	if ends, version := e.bindings.Expiries(); version != e.soonest.version {
		e.soonest = soonest{version, observe.SoonestExpiries(ends)}
	}
	return e.soonest.list
}

// seen returns what the engine knows, as far as people see it.
func (e *engine) seen(now time.Time) observe.View {
	v := observe.View{
		Now: now, Leader: e.leadership.holder, Term: e.leadership.term, Fleet: e.view.Fleet,
		Decision: e.decision.Decision, StoreRead: e.viewRead, Rewound: e.rewound, Snapshots: e.view.IDs, Newest: e.view.Head(),
		Rollout: e.state.Rollout, Waits: e.waits, Changes: e.changes, Troubles: e.troubles,
		Kept: e.keptStatus(), Backends: e.backendsStatus(now),
		Channel: e.view.Channel, Budget: e.policy.Budget.Left(e.state.Rollout, e.names(), now),
		Lacking: e.lacking, KeptPorts: e.live.Lost(), Expiries: e.expiries(), Refused: observe.Refused(e.live.Refused()), Unusable: e.unusable(),
	}
	if r := e.state.Rollout.Rollout; r != nil {
		_, v.TargetAtHand = e.snapshotCache.Get(r.Target)
		v.Traceparent = e.traceparent(r.Target)
	}
	if e.pods != nil {
		v.Pods, v.PodNamespace = true, e.pods.Namespace
	}
	for _, name := range e.names() {
		v.Instances = append(v.Instances, e.seenOf(e.instances[name]))
	}
	return v
}

// seenOf returns what the engine knows of an instance.
func (e *engine) seenOf(i *instanceState) observe.Instance {
	out := observe.Instance{
		Name: i.Name, Zone: i.Zone, UID: i.UID, Reachable: i.reachable(), Refused: isRefused(i.err), Err: i.err, Since: i.since,
		Running: i.snapshot(), Info: i.info, Started: i.started, Foreign: i.foreign(), ManualDrains: i.running.ManualDrains,
		Findings: i.findings, Conflict: i.Conflict, Doing: string(i.busy), Pushing: i.busy == workPush, Updating: i.busy == workUpdate,
		JobError: i.jobError, JobErrorAt: i.jobErrorAt, Unclaimed: e.unclaimed(i), Unknown: e.unknown(i.snapshot()),
	}
	if i.ledByOther() {
		out.LedBy = i.known.Record.Leader.String()
	}
	needs := e.needsOf(i)
	out.Arrived = arrived(needs)
	if out.UpToDate = inSync(needs); !out.UpToDate || out.Updating {
		needs.Busy, needs.NotBefore = false, time.Time{}
		out.Ahead = needs.pending(classify(needs, time.Time{}))
	}
	return out
}

// target returns what the fleet should run in the end.
func (e *engine) target() snapshots.ID {
	return observe.View{Decision: e.decision.Decision, Rollout: e.state.Rollout}.Target()
}

// pending says what it takes to be in sync.
func (s instanceNeeds) pending(w work) string {
	switch w {
	case workReload:
		return "a reload is to come: its servers have outgrown their slots, or other lines changed"
	case workUpdate:
		var what []string
		for _, part := range []struct {
			same bool
			name string
		}{{s.SameServers, "servers"}, {s.SameMaps, "entries of maps"}, {s.SameCertificates, "certificates"}} {
			if !part.same {
				what = append(what, part.name)
			}
		}
		return strings.Join(what, ", ") + " are being brought up to date"
	case workPersist:
		return "its servers are to be written to its disk"
	case workCollect:
		return "files that nothing needs are to be removed"
	case workInspect:
		return "its files and servers are to be compared with what was left there"
	case workNothing:
	}
	if !s.Bound {
		return "what it runs is not at hand"
	}
	return ""
}

// arrived reports whether the worker has all that is live, whatever the instance is busy
// with: one that writes its file meanwhile may not have begun to change the worker. One
// that is out of reach, or whose snapshot cannot be bound, is not waited for.
func arrived(s instanceNeeds) bool {
	return !s.Reachable || !s.Bound || s.SameNode && s.SameServers && s.SameMaps && s.SameCertificates
}

// unusable returns what cannot be used of the Secrets that there are.
func (e *engine) unusable() []observe.Unusable {
	var out []observe.Unusable
	for _, b := range slices.Concat(e.live.Faulty(), e.missedSecrets) {
		out = append(out, observe.Unusable{Secret: b.Secret, UID: e.live.SecretUID(b.Secret), Fault: b.Fault})
	}
	return out
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

func newEmptiness(before *observe.BackendsStatus) emptiness {
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
func (x *emptiness) follow(down map[string][]string, now time.Time) *observe.BackendsStatus {
	out := observe.BackendsStatus{All: len(x.empty)}
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
		b := observe.EmptyBackend{Backend: backend, Since: now.UTC().Truncate(time.Second)}
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
	slices.SortFunc(out.List, func(a, b observe.EmptyBackend) int {
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
func (e *engine) backendsStatus(now time.Time) *observe.BackendsStatus {
	id := e.target()
	if p, atHand := e.bindings.Of(id); !atHand || !p.Known || len(e.lacks()) > 0 {
		id = e.state.Rollout.Good
	}
	p, atHand := e.bindings.Of(id)
	if !atHand || !p.Known || len(p.Servers) == 0 {
		return nil
	}
	if x := &e.emptiness; x.of != id || x.servers != &p.Servers[0] {
		slots, _ := e.bindings.Table()
		if p.Recorded {
			slots = p.Slots
		}
		x.of, x.servers, x.empty = id, &p.Servers[0], withoutEndpoints(p.Directives, slots)
	}
	down := map[string][]string{}
	for name, i := range e.instances {
		if s := i.samples.last(i.started); i.reachable() && s.PID == i.info.PID {
			down[name] = s.Down
		}
	}
	return e.emptiness.follow(down, now)
}
