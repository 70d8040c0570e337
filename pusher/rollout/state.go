package rollout

import (
	"maps"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
)

// State is what a rollout remembers. It is stored as JSON. The zero value is a fleet about which nothing is
// known.
type State struct {
	// Good is the last snapshot that the whole fleet ran without failures. A new instance gets it, and an undo
	// returns to it.
	Good snapshots.ID `json:"good,omitzero"`
	// Proven are the latest good snapshots, one for each content, oldest first. If a single instance refuses
	// one of them, the fault is the instance's.
	Proven []snapshots.ID `json:"proven,omitempty"`
	// Rollout is the one in progress, nil for none.
	Rollout *Rollout `json:"rollout,omitempty"`
	// Failed lists the snapshots that failed. They are not tried again until a person says so.
	Failed []Failure `json:"failed,omitempty"`
	// Instances has what is remembered of each instance, by name.
	Instances map[string]Instance `json:"instances,omitempty"`
	// Repairs has the repairs of each instance, by name.
	Repairs map[string]Repairs `json:"repairs,omitempty"`
	// Reloads are the reloads that count for the budget, by instance, oldest first. Full is when the fleet's
	// bucket will be full, see [Budget].
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

// Rollout is a rollout in progress.
type Rollout struct {
	Target snapshots.ID `json:"target"`
	// Intent is the intent with which it began, see [Observation.Intent].
	Intent  string    `json:"intent,omitempty"`
	Phase   Phase     `json:"phase"`
	Started time.Time `json:"started"`
	// Wave is the number of the wave. The first is 0.
	Wave int `json:"wave"`
	// Members are the instances of the wave.
	Members []string `json:"members,omitempty"`
	// Since is when the phase began. It is moved by the time for which the phase was held.
	Since time.Time `json:"since"`
	// Held is since when pushes of the wave have to wait, zero if none does.
	Held time.Time `json:"held,omitzero"`
	// Interrupted is since when the soak waits for an instance that is away, zero if it waits for none. The
	// soak begins anew when the instance is back.
	Interrupted time.Time `json:"interrupted,omitzero"`
	// Touched lists the instances to which a push was begun, in that order. It includes those of a rollout that
	// this one replaced.
	Touched []Touch `json:"touched,omitempty"`
	// Unfinished is when the first of the rollouts began that newer snapshots replaced, one after the other, before
	// this one. It is zero if the rollout before this one ended.
	Unfinished time.Time `json:"unfinished,omitzero"`
	// Reshapes is how often instances with the target were reloaded for their live data.
	Reshapes int `json:"reshapes,omitempty"`
	// Reached is how many instances could be reached at once, at most, since it began.
	Reached int `json:"reached,omitempty"`
	// Reason says why it is being undone.
	Reason string `json:"reason,omitempty"`
	// Paused says why the rollout is paused. The target is not the cause.
	Paused string `json:"paused,omitempty"`
	// Promoted and Aborted are the marks of the last orders that were carried out, or that existed before the
	// rollout began.
	Promoted string `json:"promoted,omitempty"`
	Aborted  string `json:"aborted,omitempty"`
	// Vouched is how many waves a person has let continue without a soak. Full is set if that is all of them.
	Vouched int  `json:"vouched,omitempty"`
	Full    bool `json:"full,omitempty"`
	// From is when the wave or the pause began, and statistics count from then on. Counted is where the
	// counters began, by instance.
	From    time.Time       `json:"from,omitzero"`
	Counted map[string]Base `json:"counted,omitempty"`
	// Down are the backends that had no server up on some instance without the target before a wave.
	Down []string `json:"down,omitempty"`
	// Doubt is what the statistics found against the target. They are counted once more.
	Doubt string `json:"doubt,omitempty"`
	// Doubted is what was counted then, if the doubt is about 5xx.
	Doubted Counters `json:"doubted,omitzero"`
	// Suspected is since when there is doubt.
	Suspected time.Time `json:"suspected,omitzero"`
	// Suspects is since when each backend seems to have lost its servers because of the snapshot.
	Suspects map[string]time.Time `json:"suspects,omitempty"`
	// Noted is an observation that does not count against the target.
	Noted string `json:"noted,omitempty"`
	// Deaths are the workers that instances lost in this wave after they got the target.
	Deaths []Death `json:"deaths,omitempty"`
}

// Death is a worker that an instance lost. Foreign is set if somebody else replaced or damaged it, for which the target is
// not to blame.
type Death struct {
	Instance string `json:"instance"`
	PID      int    `json:"pid"`
	Foreign  bool   `json:"foreign,omitempty"`
}

// Touch is an instance that a rollout may have changed. It is part of the rollout and not of the instance: an
// undo needs the order, and it is forgotten when the rollout ends.
type Touch struct {
	Instance string       `json:"instance"`
	Snapshot snapshots.ID `json:"snapshot"`
	// Applied is set when the worker named the snapshot. PID is that worker, and At is when it was first seen.
	Applied bool      `json:"applied,omitempty"`
	PID     int       `json:"pid,omitempty"`
	At      time.Time `json:"at,omitzero"`
	// Was is the worker at the beginning of the push. A worker that is changed at run time stays, and goes on
	// counting.
	Was int `json:"was,omitempty"`
	// Before is the traffic of the worker in the minutes before the push.
	Before Rate `json:"before,omitzero"`
	// Asked is when that worker was last asked, if it ran the last good snapshot, and Age is how old it was
	// then. Down are the backends that had no server up then, or flapped.
	Asked time.Time     `json:"asked,omitzero"`
	Age   time.Duration `json:"age,omitempty"`
	Down  []string      `json:"down,omitempty"`
	// Shaky is set if a worker of the instance died shortly before.
	Shaky bool `json:"shaky,omitempty"`
	// Late is set if the instance did not take the snapshot within the deadline, and the rollout went on without it.
	Late bool `json:"late,omitempty"`
	// Found is set if the instance had the snapshot before anything was pushed to it.
	Found bool `json:"found,omitempty"`
	// Lost is since when the instance is unreachable, zero if it is reachable.
	// Lapses is how often it went out of reach since it got the snapshot.
	Lapses int       `json:"lapses,omitempty"`
	Lost   time.Time `json:"lost,omitzero"`
	// Undone is set when the instance is back on the last good snapshot.
	Undone bool `json:"undone,omitempty"`
}

// Failure is a snapshot that failed.
type Failure struct {
	Snapshot snapshots.ID `json:"snapshot"`
	Reason   string       `json:"reason"`
	At       time.Time    `json:"at"`
	// Good is what the fleet went back to. It is zero if no good snapshot was known.
	Good snapshots.ID `json:"good,omitzero"`
	// Intent is why the snapshot was tried. A later pin is another intent, and is tried again.
	Intent string `json:"intent,omitempty"`
	// Recorded is set when the channel shows the rejection. When the channel no longer shows it, the failure is
	// forgotten: that is how a person has it tried again.
	Recorded bool `json:"recorded,omitempty"`
}

// Instance is what is remembered of an instance. It is part of the state because Step reads and writes it, and
// because it must be saved before a push begins. The pusher learns everything else anew after a restart.
type Instance struct {
	// Push is the push under way, nil if there is none.
	Push *Push `json:"push,omitempty"`
	// Failures is how many pushes in a row failed.
	Failures int `json:"failures,omitempty"`
	// NotBefore is when the next push may begin. If Refused is set, it concerns only that snapshot.
	NotBefore time.Time `json:"notBefore,omitzero"`
	// Refused is the snapshot that the instance refused last. Faulty is set if the instance was at fault.
	Refused snapshots.ID `json:"refused,omitzero"`
	Faulty  bool         `json:"faulty,omitempty"`
	// Error is why the last push failed, "" if it did not.
	Error   string    `json:"error,omitempty"`
	ErrorAt time.Time `json:"errorAt,omitzero"`
}

// Purpose is why an instance is pushed to.
type Purpose string

// The purposes.
const (
	// Wave: the instance is in the present wave of a rollout.
	Wave Purpose = "wave"
	// Undo: the instance goes back to the last good snapshot after a failure.
	Undo Purpose = "undo"
	// CatchUp: the instance runs something else than the fleet, for example because it is new or was away.
	CatchUp Purpose = "catch-up"
	// Reshape: the instance runs the right snapshot, which needs a reload with today's live data: a backend
	// outgrew its slots, or a certificate came or went.
	Reshape Purpose = "reshape"
)

// Why is the purpose in words.
func (p Purpose) Why() string {
	switch p {
	case Wave:
		return "its turn in the rollout"
	case Undo:
		return "back to the last good snapshot"
	case CatchUp:
		return "it runs something else than the fleet"
	case Reshape:
		return "its endpoints or certificates need a reload"
	}
	return string(p)
}

// Push brings an instance to a snapshot. If the instance runs it already, the push finds that out and changes
// nothing.
type Push struct {
	Instance string       `json:"-"`
	Snapshot snapshots.ID `json:"snapshot"`
	Purpose  Purpose      `json:"purpose"`
	Since    time.Time    `json:"since"`
	// AtRuntime is set for a push that changes the running worker instead of reloading it.
	AtRuntime bool `json:"light,omitempty"`
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

// keptFailures is how many failures are remembered. A failure is forgotten only after a hundred others. The
// channel still has its rejection, unless it could not be written in all that time.
const keptFailures = 100

// latest returns the failures without the oldest of too many. It drops those first that the channel shows.
func latest(list []Failure) []Failure {
	excess := len(list) - keptFailures
	if excess <= 0 {
		return list
	}
	for _, recorded := range []bool{true, false} {
		newest := list[len(list)-1]
		list = slices.DeleteFunc(list, func(f Failure) bool {
			drop := excess > 0 && f.Recorded == recorded && f != newest
			if drop {
				excess--
			}
			return drop
		})
	}
	return list
}

// counted returns the reloads of an instance that count for a limit, oldest first. For Reloads these are the
// last ones within the time, and for OldWorkers the ones whose workers live longest. It keeps one more of each
// than the limit allows, since the push under way may give its own back. There may be more reloads than the
// limit after an undo, which does not wait.
func (b Budget) counted(list []Reload, now time.Time) []Reload {
	if b.Reloads > 0 {
		b.Reloads++
	}
	if b.OldWorkers > 0 {
		b.OldWorkers++
	}
	lives := make([]time.Time, 0, len(list))
	for _, r := range list {
		lives = append(lives, r.Gone)
	}
	slices.SortFunc(lives, func(x, y time.Time) int { return y.Compare(x) })
	out := make([]Reload, 0, len(list))
	crowd := 0
	for i, r := range list {
		recent := i >= len(list)-b.Reloads && r.At.Add(b.Within).After(now)
		old := crowd < b.OldWorkers && r.Gone.After(now) && !r.Gone.Before(lives[min(b.OldWorkers, len(lives))-1])
		if old {
			crowd++
		}
		if recent || old {
			out = append(out, r)
		}
	}
	return out
}

// Resume returns the state for a process that has just started. No push is under way any more: the observation
// shows how the pushes of the old process ended. Now is the time by the clock of the new process. Saved is when
// the old process was last known to live, by the clock of that time. Zero means now.
//
// A rollout must be watched while it waits. So the time without a pusher does not count for its soak and its
// deadlines, and neither does a change of the clock, or the clock of another machine. All times of the rollout
// are moved by the gap between saved and now, so that its workers do not look younger than they are. Waits of
// instances and of the budget go on without a pusher. They are moved only if the clock was set back, as they
// would otherwise wait until it is that late again.
//
// A clock that is set while the process runs changes none of these times.
func (s State) Resume(saved, now time.Time) State {
	s = s.clone()
	gap := time.Duration(0)
	if !saved.IsZero() {
		gap = now.Sub(saved)
	}
	move := func(t *time.Time, by time.Duration) {
		if !t.IsZero() {
			*t = now.Add(t.Add(by).Sub(now)) // keeps the monotonic reading of now, which no change of the clock affects
		}
	}
	back := min(gap, 0)
	for name, i := range s.Instances {
		i.Push = nil
		move(&i.NotBefore, back)
		move(&i.ErrorAt, back)
		s.Instances[name] = i
	}
	for n := range s.Failed {
		move(&s.Failed[n].At, back)
	}
	for name, r := range s.Repairs {
		r.At = append([]time.Time(nil), r.At...)
		for n := range r.At {
			move(&r.At[n], back)
		}
		move(&r.Stopped, back)
		s.Repairs[name] = r
	}
	for _, reloads := range s.Reloads {
		for n, r := range reloads {
			by := back
			if s.Rollout != nil && !r.At.Before(s.Rollout.From) {
				by = gap // it belongs to this wave, and must not fall before its beginning
			}
			move(&reloads[n].At, by)
			move(&reloads[n].Gone, by)
		}
	}
	move(&s.Full, back)
	if s.Rollout != nil {
		s.Rollout.move(func(t *time.Time) { move(t, gap) })
	}
	return s
}

// move moves all times of a rollout.
func (r *Rollout) move(by func(*time.Time)) {
	for _, t := range []*time.Time{&r.Started, &r.Unfinished, &r.Since, &r.Held, &r.Interrupted, &r.From, &r.Suspected} {
		by(t)
	}
	for n := range r.Touched {
		h := &r.Touched[n]
		by(&h.At)
		by(&h.Asked)
		by(&h.Lost)
	}
	for name, b := range r.Counted {
		by(&b.At)
		r.Counted[name] = b
	}
	for name, t := range r.Suspects {
		by(&t)
		r.Suspects[name] = t
	}
}

// Forgive returns the state in which an instance may be tried again at once, since its entry in the fleet has
// changed.
func (s State) Forgive(name string) State {
	s = s.clone()
	if i, known := s.Instances[name]; known {
		i.NotBefore, i.Failures = time.Time{}, 0
		s.Instances[name] = i
	}
	return s
}

// Forget returns the state without what is remembered of an instance, since another one has its name now. The
// new one stays a member of the wave.
func (s State) Forget(name string) State {
	s = s.clone()
	delete(s.Instances, name)
	delete(s.Reloads, name)
	delete(s.Repairs, name)
	if s.Rollout != nil {
		s.Rollout.Touched = slices.DeleteFunc(s.Rollout.Touched, func(t Touch) bool { return t.Instance == name })
	}
	return s
}

// Observation is what the pusher knows about the store and the fleet.
type Observation struct {
	// Want is the snapshot that the channel says should run. It is zero if the channel says
	// nothing usable.
	Want snapshots.ID
	// Intent says why, and distinguishes two wishes for one snapshot: because it is the
	// newest, or because of a pin made at some time.
	Intent string
	// MayWait is set if the snapshot is wanted because it is the newest, not by a person's
	// order. A rollout that is past half of the fleet is then finished first.
	MayWait bool
	// Wishes are the snapshots that people named in the channel, whether they count now or
	// not.
	Wishes []Wish
	// Hold keeps everything as it is: after a pause, or while the store is unavailable or empty.
	Hold bool
	// Channel is set if the channel was read. Rejected then lists the short digests of the rejected contents.
	Channel  bool
	Rejected []string
	// Promotion and Abort are the last orders that people gave about a rollout, if they
	// gave any.
	Promotion, Abort Order
	// Instances are the instances of the fleet, sorted by name.
	Instances []Seen
	// Results are the pushes that ended since the last step.
	Results []Result
	// Backends are the backends of Good, by name, compared with the snapshot Compared. Nil
	// means not known.
	Backends map[string]Backend
	Compared snapshots.ID
	// Moved is when the live endpoints of backends last changed, for recent changes.
	Moved map[string]time.Time
	// Reloads has the process ID of the new worker for each instance that the caller itself reloaded since the
	// last step, without pushing a snapshot.
	Reloads map[string]int
}

// Wish is a snapshot that a person named to be run, with its [Observation.Intent].
type Wish struct {
	Snapshot snapshots.ID
	Intent   string
}

// Order is a person's order about the rollout of a snapshot. The zero value is none.
type Order struct {
	Snapshot snapshots.ID
	// Mark distinguishes orders about the same snapshot.
	Mark string
	// Full makes a promotion start all remaining waves.
	Full bool
	// Says names who gave the order, and why.
	Says string
}

// Seen is what is known about an instance.
type Seen struct {
	Name, Zone string
	// Reachable is set if its worker answered.
	Reachable bool
	// Running is the snapshot that the worker names, zero if it names none of ours.
	Running snapshots.ID
	// PID is the process ID of the worker. Started is when the worker started by the caller's clock, zero if it
	// is not known. After a restart of a container, another worker may have the same PID.
	PID     int
	Started time.Time
	// Busy is set while the caller changes something in the running worker. No push can begin then.
	Busy bool
	// HardStopAfter is how long the worker may live after it was replaced. It is zero if
	// its configuration does not say.
	HardStopAfter time.Duration
	// Sample has the worker's counters when it was last asked.
	Sample Sample
	// WithoutReload are the snapshots to which its worker can be brought without a reload.
	WithoutReload []snapshots.ID
	// Foreign says what somebody else did if its worker names Running and is not what the caller started: it was started
	// from another configuration, or damaged. It is "" if nothing is known of that.
	Foreign string
	// Stale is set when Running, joined with today's live data, needs a reload.
	Stale bool
	// Died is when the worker was last seen to be replaced for an unknown reason, zero for
	// never.
	Died time.Time
	// Away is since when it is out of reach, zero if it is not, or if that is not known.
	Away time.Time
}

// Backend is what is known of a backend of the last good snapshot.
type Backend struct {
	// Changed is set if the compared snapshot changes the backend's servers: in its own
	// lines, or in lines that it inherits.
	Changed bool
	// Reached is set if the compared snapshot sends it other requests, or treats them
	// differently.
	Reached bool
	// Check is the longest time for which a dead server still counts as up.
	Check time.Duration
}

// Outcome is how a push ended.
type Outcome string

// The outcomes.
const (
	// Applied means that the worker names the snapshot.
	Applied Outcome = "applied"
	// Refused means that the snapshot cannot run on the instance: HAProxy refused it, or
	// did not start with it. The instance runs what it ran before.
	Refused Outcome = "refused"
	// Faulty means that the snapshot cannot run on the instance because of the instance:
	// its paths, ports, limits, permissions or disk. Another instance may take it.
	Faulty Outcome = "faulty"
	// Trouble means that the push to the instance did not succeed, which says nothing about
	// the snapshot.
	Trouble Outcome = "trouble"
	// NotBegun means that the push was not begun, since something that the step relied on
	// had changed. The next step decides again, and the push does not count as tried.
	NotBegun Outcome = "not begun"
)

// Result is how a push ended.
type Result struct {
	Instance string
	Snapshot snapshots.ID
	Outcome  Outcome
	// PID is the worker after the push, if it was applied. Reloaded is set if that is a new worker.
	PID      int
	Reloaded bool
	// Error says why the push was not applied.
	Error string
}
