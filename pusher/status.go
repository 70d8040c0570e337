package pusher

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/preflight"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// Status is what a pusher says of itself. It is a part of the state file.
type Status struct {
	// Updated is when the pusher last said so.
	Updated time.Time `json:"updated"`
	// Leader is the name of the process that pushes, where several could; "" if that is
	// not known.
	Leader string `json:"leader,omitempty"`
	// Term tells the one that pushes from those before it, 0 where there is no other.
	Term int64 `json:"term,omitempty"`
	// Standby is set by a pusher that another leads: it knows nothing of the fleet.
	Standby bool          `json:"standby,omitempty"`
	Channel ChannelStatus `json:"channel"`
	// Fleet is the name of the fleet, "" while it is not known.
	Fleet string `json:"fleet,omitempty"`
	// Good is the last snapshot that reached the whole fleet, and Proven are the latest
	// that did, oldest first.
	Good   snapshots.ID   `json:"good,omitzero"`
	Proven []snapshots.ID `json:"proven,omitempty"`
	// Rollout is the one in progress, nil for none.
	Rollout *RolloutStatus `json:"rollout,omitempty"`
	// Waits are what the rollout, or an instance, waits for.
	Waits []rollout.Wait `json:"waits,omitempty"`
	// Rejected are the snapshots that failed.
	Rejected []rollout.Failure `json:"rejected,omitempty"`
	// Troubles are what keeps the pusher from doing its work, such as a store that
	// is gone, by what they are about.
	Troubles []Trouble `json:"troubles,omitempty"`
	// Kept is set while endpoints are kept though their source has none of them.
	Kept *KeptStatus `json:"kept,omitempty"`
	// Backends says which have no server up, nil while that is not known.
	Backends *BackendsStatus `json:"backends,omitempty"`
	// Changes are what it took to bring instances to the latest snapshots, the newest last.
	Changes   []Change         `json:"changes,omitempty"`
	Instances []InstanceStatus `json:"instances"`
}

// NotRead is the message of a channel that was not read yet.
const NotRead = "the store was not read yet"

// ChannelStatus is what should run.
type ChannelStatus struct {
	Wanted  snapshots.ID   `json:"wanted,omitzero"`
	Because channel.Reason `json:"because,omitempty"`
	Hold    bool           `json:"hold,omitempty"`
	Message string         `json:"message,omitempty"`
	// Newest is the newest snapshot of the store, whether it should run or not.
	Newest snapshots.ID `json:"newest,omitzero"`
	// Rewound is set while the store, or its channel, is behind what was seen of it, or
	// gone. What runs is held until that is back, or given up: pusher accept-rewind.
	Rewound bool `json:"rewound,omitempty"`
	// Behind is how many snapshots are newer than what the fleet runs.
	Behind int `json:"behind"`
}

// RolloutStatus is how far a rollout has come.
type RolloutStatus struct {
	Target  snapshots.ID  `json:"target"`
	Phase   rollout.Phase `json:"phase"`
	Wave    int           `json:"wave"` // from 1
	Members []string      `json:"members,omitempty"`
	Since   time.Time     `json:"since"`
	// Reason is why it is being undone, and Paused why it goes no further.
	Reason string `json:"reason,omitempty"`
	Paused string `json:"paused,omitempty"`
	// Noted is what was seen on the way that does not speak against the snapshot.
	Noted string `json:"noted,omitempty"`
	// Change is what it takes, nil until the first instance has tried.
	Change *Change `json:"change,omitempty"`
}

// KeptStatus is what is kept of endpoints that were lost too many at once to be believed.
type KeptStatus struct {
	// Loss names it, for pusher confirm-endpoints.
	Loss  string    `json:"loss"`
	Since time.Time `json:"since"`
	// Count is of how many Service ports, and Services lists the first of them.
	Count    int      `json:"count"`
	Services []string `json:"services,omitempty"`
}

// Trouble is something that a person may have to look at.
type Trouble struct {
	About string    `json:"about"`
	Error string    `json:"error"`
	Since time.Time `json:"since"`
}

// InstanceStatus is how one instance stands.
type InstanceStatus struct {
	Name      string `json:"name"`
	Zone      string `json:"zone,omitempty"`
	Reachable bool   `json:"reachable"`
	// Refused is set when its version of HAProxy or of the API is not worked with;
	// Error says which it is. Nothing is pushed to it.
	Refused bool         `json:"refused,omitempty"`
	Since   time.Time    `json:"since,omitzero"` // of being in reach, or out of it
	Running snapshots.ID `json:"running,omitzero"`
	// Node names what its worker runs, and Loaded what that was loaded with, where it
	// was changed since without a reload.
	Node   string `json:"node,omitempty"`
	Loaded string `json:"loaded,omitempty"`
	PID    int    `json:"pid,omitempty"`
	// Foreign says why its worker was started from another configuration than what was
	// written for it, whatever it names.
	Foreign string `json:"foreign,omitempty"`
	// LedBy is the other pusher that leads it. Nothing is written to it then.
	LedBy string `json:"ledBy,omitempty"`
	// InSync is set when it runs what is wanted, with today's servers and
	// certificates.
	InSync bool `json:"inSync"`
	// ByHand are the servers that somebody else took out of traffic.
	ByHand []push.Hand `json:"byHand,omitempty"`
	// Findings are what is wrong with how it is set up, as the verb check says it.
	Findings []preflight.Finding `json:"findings,omitempty"`
	// Conflict is set while there are no repairs, because somebody else undid the last ones.
	Conflict *Conflict `json:"fight,omitempty"`
	Doing    string    `json:"doing,omitempty"`
	// Pending says what is on its way to it while it is not in sync, and nothing failed.
	Pending string    `json:"pending,omitempty"`
	Error   string    `json:"error,omitempty"`
	ErrorAt time.Time `json:"errorAt,omitzero"`
}

// Names returns the node of what a worker of the instance runs that was asked: it names
// what it has loaded, also where that was changed since.
func (i InstanceStatus) Names(info dataplane.RuntimeInfo) string {
	if i.Loaded != "" && i.Loaded == info.Node && i.PID == info.PID {
		return i.Node
	}
	return info.Node
}

// InSync returns how many instances are.
func (s Status) InSync() int {
	n := 0
	for _, i := range s.Instances {
		if i.InSync {
			n++
		}
	}
	return n
}

// Phase returns what the rollout is doing, "" if there is none.
func (s Status) Phase() rollout.Phase {
	if s.Rollout == nil {
		return ""
	}
	return s.Rollout.Phase
}

// ErrNoState is returned for a state that is not there: no pusher ever ran with it.
var ErrNoState = errors.New("there is no state file")

// ReadStatus reads the status from a state file, of a pusher that runs or ran.
func ReadStatus(file string) (Status, error) {
	data, err := readFile(file)
	if err != nil {
		return Status{}, err
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
func ParseStatus(data []byte, place string) (Status, error) {
	if err := checkState(data, place); err != nil {
		return Status{}, err
	}
	var s struct{ Status Status }
	if err := json.Unmarshal(data, &s); err != nil {
		return Status{}, fmt.Errorf("read state %s: %w: %w", place, ErrNotState, err)
	}
	return s.Status, nil
}

// sameAs reports whether two statuses differ in nothing but their time.
func (s Status) sameAs(o Status) bool {
	s.Updated, o.Updated = time.Time{}, time.Time{}
	a, errA := json.Marshal(s)
	b, errB := json.Marshal(o)
	return errA == nil && errB == nil && string(a) == string(b)
}

// report tells the status to whoever listens.
func (e *engine) report(now time.Time) {
	s := e.status(now)
	e.metrics.observe(s)
	without, failing := s.Backends.gauges()
	e.metrics.gauges.set(s.Instances, e.policy.Budget.Left(e.state.Rollout, e.names(), now), pinAge(e.view.Channel, now), liveGauges{lacking: e.lacking, kept: len(e.losses.guard.kept), withoutEndpoints: without, failingChecks: failing})
	e.observePropagation(now)
	e.tally.log(e.Log, now)
	e.notifyOfTroubles(now)
	e.sayObjects(s.Instances, now)
	if e.Status != nil {
		e.Status(s)
	}
	if e.announcer != nil {
		e.announcer.offer(s.Condition())
	}
	e.reported = s
}

// status returns what the pusher says of itself.
func (e *engine) status(now time.Time) Status {
	s := Status{
		Updated: now.UTC().Truncate(time.Second), Leader: e.leader(), Term: e.leadership.term, Channel: e.channelStatus(), Rollout: e.rolloutStatus(),
		Good: e.state.Rollout.Good, Rejected: e.state.Rollout.Failed, Waits: wholeSeconds(e.waits), Instances: []InstanceStatus{},
		Changes: e.changes, Fleet: e.view.Fleet, Proven: e.state.Rollout.Proven,
		Kept: e.keptStatus(), Backends: e.backendsStatus(now),
	}
	for _, about := range slices.Sorted(maps.Keys(e.troubles)) {
		s.Troubles = append(s.Troubles, e.troubles[about])
	}
	for _, name := range e.names() {
		s.Instances = append(s.Instances, e.instanceStatus(e.instances[name]))
	}
	return s
}

// wholeSeconds returns the waits with their ends as they are told.
func wholeSeconds(waits []rollout.Wait) []rollout.Wait {
	out := slices.Clone(waits)
	for i, w := range out {
		if !w.Until.IsZero() {
			out[i].Until = w.Until.UTC().Truncate(time.Second)
		}
	}
	return out
}

func (e *engine) channelStatus() ChannelStatus {
	d := e.decision
	s := ChannelStatus{Wanted: d.ID, Because: d.Because, Hold: d.Hold, Message: d.Message, Rewound: e.rewound}
	if !e.viewRead {
		return ChannelStatus{Hold: true, Message: NotRead, Rewound: e.rewound}
	}
	s.Newest = e.view.Head()
	for _, id := range e.view.IDs {
		if good := e.state.Rollout.Good; id.Compare(good) > 0 {
			s.Behind++
		}
	}
	return s
}

func (e *engine) rolloutStatus() *RolloutStatus {
	r := e.state.Rollout.Rollout
	if r == nil {
		return nil
	}
	s := &RolloutStatus{
		Target: r.Target, Phase: r.Phase, Wave: r.Wave + 1, Members: r.Members,
		Since: r.Since.UTC().Truncate(time.Second), Reason: r.Reason, Paused: r.Paused, Noted: firstLine(r.Noted, longestMessage),
	}
	if c, ok := changeTo(e.changes, r.Target); ok && c.Began.Equal(r.Started.UTC().Truncate(time.Second)) {
		s.Change = &c
	}
	return s
}

func (e *engine) instanceStatus(i *instance) InstanceStatus {
	remembered := e.state.Rollout.Instances[i.Name]
	s := InstanceStatus{
		Name: i.Name, Zone: i.Zone, Reachable: i.reachable(), Since: i.since.UTC().Truncate(time.Second),
		Running: i.snapshot(), Node: i.info.Node, Loaded: i.info.Loaded, PID: i.info.PID, Doing: string(i.busy),
		ByHand: i.running.ByHand, Conflict: e.conflict(i), Findings: i.findings,
		Error: cmp.Or(remembered.Error, i.jobError),
	}
	if s.ErrorAt = remembered.ErrorAt; remembered.Error == "" {
		s.ErrorAt = i.jobErrorAt
	}
	if s.Conflict != nil {
		s.Error, s.ErrorAt = s.Conflict.String(), s.Conflict.Since
	}
	if i.err != nil {
		s.Error, s.ErrorAt, s.Refused = brief(i.err), i.since, isRefused(i.err)
	}
	if by, led := i.target.Record.LedBy(); led {
		s.LedBy = by.String()
	}
	if s.Foreign = i.foreign(); s.Foreign != "" && s.Error == "" {
		s.Error, s.ErrorAt = push.ErrForeign.Error()+": "+s.Foreign, i.started
	}
	s.ErrorAt = s.ErrorAt.UTC().Truncate(time.Second)
	s.InSync = s.Reachable && !e.unknown(s.Running) && s.Error == "" && !s.Running.IsZero() && s.Running == e.target() &&
		i.busy != workPush && i.busy != workUpdate && inSync(e.needsOf(i))
	if s.Reachable && !s.InSync && s.Error == "" {
		s.Pending = e.pending(i)
	}
	return s
}

// target returns what the fleet should run in the end.
func (e *engine) target() snapshots.ID {
	if e.decision.Hold {
		return e.state.Rollout.Good
	}
	return e.decision.ID
}

// pending says what is on its way to an instance that is not in sync though nothing failed.
func (e *engine) pending(i *instance) string {
	running, target := i.snapshot(), e.target()
	switch {
	case i.busy == workPush:
		return "a snapshot is being pushed to it"
	case target.IsZero():
		return "no snapshot is wanted yet"
	case running.IsZero():
		return fmt.Sprintf("runs another configuration, %s is to come", target)
	case running != target:
		return fmt.Sprintf("%s is to come", target)
	case e.unclaimed(i):
		return "looks what its worker was started from"
	case e.unknown(running):
		return "waits for endpoints and certificates to be read"
	}
	s := e.needsOf(i)
	s.Busy, s.NotBefore = false, time.Time{}
	return s.pending(classify(s, time.Time{}))
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
