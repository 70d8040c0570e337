package rollout

import (
	"maps"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
)

// State is what a rollout remembers. It is a value that is stored as JSON; the
// zero value is a fleet of which nothing is known.
type State struct {
	// Good is the last snapshot that reached the whole fleet and stayed healthy:
	// what a new instance gets and what an undo returns to.
	Good snapshots.ID `json:"good,omitzero"`
	// Proven are the latest snapshots of which that was so, one for each content,
	// oldest first. No single instance speaks against them.
	Proven []snapshots.ID `json:"proven,omitempty"`
	// Rollout is the one in progress, nil for none.
	Rollout *Rollout `json:"rollout,omitempty"`
	// Failed lists the snapshots that failed and are not to be tried again until
	// a person says so.
	Failed []Failure `json:"failed,omitempty"`
	// Instances holds what is remembered of each, by name.
	Instances map[string]Instance `json:"instances,omitempty"`
	// Repairs holds those of each, by name.
	Repairs map[string]Repairs `json:"repairs,omitempty"`
	// Reloads are those that count for the budget, by instance, oldest first, and
	// Full is when the fleet's bucket of them is full again, see [Budget].
	Reloads map[string][]Reload `json:"reloads,omitempty"`
	Full    time.Time           `json:"full,omitzero"`
}

// Phase is what a rollout is doing.
type Phase string

// The phases. A rollout is pushing and soaking in turns, once for each wave.
const (
	Pushing Phase = "pushing"
	Soaking Phase = "soaking"
	Undoing Phase = "undoing"
)

// Rollout is the way of one snapshot through the fleet.
type Rollout struct {
	Target snapshots.ID `json:"target"`
	// Intent is the observation's, see [Observation.Intent].
	Intent  string    `json:"intent,omitempty"`
	Phase   Phase     `json:"phase"`
	Started time.Time `json:"started"`
	// Wave counts from 0.
	Wave int `json:"wave"`
	// Members are the instances of the wave.
	Members []string `json:"members,omitempty"`
	// Since is when the phase began, not counting the time that it was held.
	Since time.Time `json:"since"`
	// Held is since when pushes of the wave are held, zero while none is.
	Held time.Time `json:"held,omitzero"`
	// Touched lists the instances to which a push was begun, in that order, also
	// those of a target that was replaced meanwhile.
	Touched []Touch `json:"touched,omitempty"`
	// Reason says why it is being undone.
	Reason string `json:"reason,omitempty"`
	// Paused says why it goes no further, though nothing is wrong with the target.
	Paused string `json:"paused,omitempty"`
	// Promoted and Aborted are the marks of the last orders that were heeded, or were
	// there before it began.
	Promoted string `json:"promoted,omitempty"`
	Aborted  string `json:"aborted,omitempty"`
	// Vouched counts the waves that a person has let go on without a soak, Full is set
	// for all of them.
	Vouched int  `json:"vouched,omitempty"`
	Full    bool `json:"full,omitempty"`
	// From is when the wave began, or the pause: statistics count from then on, and
	// Counted is where they began, by instance.
	From    time.Time       `json:"from,omitzero"`
	Counted map[string]Base `json:"counted,omitempty"`
	// Down are the backends that had no server up before a wave, on any instance.
	Down []string `json:"down,omitempty"`
	// Doubt is what statistics said against the target, to be counted once more.
	Doubt string `json:"doubt,omitempty"`
	// Suspected is since when there is doubt.
	Suspected time.Time `json:"suspected,omitzero"`
	// Suspects is since when backends seem to have lost their servers by the snapshot.
	Suspects map[string]time.Time `json:"suspects,omitempty"`
	// Noted is what was seen that does not speak against the target.
	Noted string `json:"noted,omitempty"`
	// Deaths are the workers that instances lost in this wave after they got the target.
	Deaths []Death `json:"deaths,omitempty"`
}

// Death is a worker that an instance lost.
type Death struct {
	Instance string `json:"instance"`
	PID      int    `json:"pid"`
}

// Touch is one instance that may have been changed by a rollout.
type Touch struct {
	Instance string       `json:"instance"`
	Snapshot snapshots.ID `json:"snapshot"`
	// Applied is set when the worker named the snapshot; PID is that worker, and At
	// is when it was first seen.
	Applied bool      `json:"applied,omitempty"`
	PID     int       `json:"pid,omitempty"`
	At      time.Time `json:"at,omitzero"`
	// Was is the worker when the push was begun. A worker that is changed at run time stays,
	// and goes on counting.
	Was int `json:"was,omitempty"`
	// Before is the traffic of the worker in the minutes before.
	Before Rate `json:"before,omitzero"`
	// Asked is when that worker was last asked, if it ran the last good snapshot, and
	// Age how old it was then. Down are the backends that had no server up, or had none
	// for a moment not long ago.
	Asked time.Time     `json:"asked,omitzero"`
	Age   time.Duration `json:"age,omitempty"`
	Down  []string      `json:"down,omitempty"`
	// Shaky is set where a worker died not long before.
	Shaky bool `json:"shaky,omitempty"`
	// Found is set when it had the snapshot before anything was pushed to it.
	Found bool `json:"found,omitempty"`
	// Lost is when it went out of reach, zero while it is within.
	Lost time.Time `json:"lost,omitzero"`
	// Undone is set when it is back on the last good snapshot.
	Undone bool `json:"undone,omitempty"`
}

// Failure is a snapshot that failed.
type Failure struct {
	Snapshot snapshots.ID `json:"snapshot"`
	Reason   string       `json:"reason"`
	At       time.Time    `json:"at"`
	// Good is what the fleet went back to, zero if nothing was known to be good.
	Good snapshots.ID `json:"good,omitzero"`
	// Intent is why it was tried. A later pin is another intent, and is tried.
	Intent string `json:"intent,omitempty"`
	// Recorded is set when the channel says that it is rejected. When the channel
	// says so no longer, the failure is forgotten: that is how a person retries.
	Recorded bool `json:"recorded,omitempty"`
}

// Instance is what is remembered of one instance.
type Instance struct {
	// Push is the one under way, nil for none.
	Push *Push `json:"push,omitempty"`
	// Failures counts the pushes in a row that did not come through.
	Failures int `json:"failures,omitempty"`
	// NotBefore is when the next push may begin; of Refused only, if that is set.
	NotBefore time.Time `json:"notBefore,omitzero"`
	// Refused is the snapshot that the instance refused last, and Faulty is set if that
	// was its own fault.
	Refused snapshots.ID `json:"refused,omitzero"`
	Faulty  bool         `json:"faulty,omitempty"`
	// Error is why the last push failed, empty after one that did not.
	Error   string    `json:"error,omitempty"`
	ErrorAt time.Time `json:"errorAt,omitzero"`
}

// Purpose is why an instance is pushed to.
type Purpose string

// The purposes.
const (
	// Wave: it is the instance's turn in a rollout.
	Wave Purpose = "wave"
	// Undo: it is brought back to the last good snapshot after a failure.
	Undo Purpose = "undo"
	// CatchUp: it runs something else than the fleet, being new or having been away.
	CatchUp Purpose = "catch-up"
	// Reshape: it runs the right snapshot, which joined with today's live data
	// needs a reload: a backend outgrew its slots, a certificate came or went.
	Reshape Purpose = "reshape"
)

// Push is a push that is to begin, or is under way: the instance is to run the
// snapshot. Where it does already, the push finds out and changes nothing.
type Push struct {
	Instance string       `json:"-"`
	Snapshot snapshots.ID `json:"snapshot"`
	Purpose  Purpose      `json:"purpose"`
	Since    time.Time    `json:"since"`
	// Light is set for one that is to change the running worker, without a reload.
	Light bool `json:"light,omitempty"`
}

// Unrecorded returns the failures that the channel does not show yet.
func (s State) Unrecorded() []Failure {
	return slices.DeleteFunc(slices.Clone(s.Failed), func(f Failure) bool { return f.Recorded })
}

// Failure returns the failure that keeps id from being tried, if there is one.
func (s State) Failure(id snapshots.ID, intent string) (Failure, bool) {
	i := slices.IndexFunc(s.Failed, func(f Failure) bool {
		return f.Snapshot.Short == id.Short && f.Intent == intent
	})
	if i < 0 {
		return Failure{}, false
	}
	return s.Failed[i], true
}

// holds reports whether a push of id has to wait.
func (i Instance) holds(id snapshots.ID, now time.Time) bool {
	return now.Before(i.NotBefore) && (i.Refused.IsZero() || i.Refused == id)
}

func (s State) clone() State {
	out := s
	out.Failed, out.Proven = slices.Clone(s.Failed), slices.Clone(s.Proven)
	out.Instances = make(map[string]Instance, len(s.Instances))
	for name, i := range s.Instances {
		if i.Push != nil {
			push := *i.Push
			i.Push = &push
		}
		out.Instances[name] = i
	}
	out.Reloads = make(map[string][]Reload, len(s.Reloads))
	for name, list := range s.Reloads {
		out.Reloads[name] = slices.Clone(list)
	}
	out.Repairs = make(map[string]Repairs, len(s.Repairs))
	maps.Copy(out.Repairs, s.Repairs)
	if s.Rollout != nil {
		r := *s.Rollout
		r.Members, r.Touched, r.Down = slices.Clone(r.Members), slices.Clone(r.Touched), slices.Clone(r.Down)
		r.Counted, r.Suspects, r.Deaths = maps.Clone(r.Counted), maps.Clone(r.Suspects), slices.Clone(r.Deaths)
		out.Rollout = &r
	}
	return out
}
