// Package report has the reports of a pusher as plain values: the [Status] with its instances and
// troubles, the [Condition] that sums it up, and the form in which it is published for people who may
// not read the state.
//
// Package observe makes a Status of what the pusher knows. The verbs status, history, wait
// and rollback read it. A Status has no secrets.
package report

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/preflight"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// Status is the report of a pusher. It is a part of the state file.
type Status struct {
	// Updated is when the pusher last wrote it.
	Updated time.Time `json:"updated"`
	// Leader is the name of the process that pushes, where several could; "" if that is
	// not known.
	Leader string `json:"leader,omitempty"`
	// Page is where the others find its page, an address and a port, "" for nowhere.
	Page string `json:"page,omitempty"`
	// Term is the term of the pusher that pushes, 0 without an election.
	Term int64 `json:"term,omitempty"`
	// Standby is set by a pusher that does not lead. It knows nothing of the fleet.
	Standby bool    `json:"standby,omitempty"`
	Channel Channel `json:"channel"`
	// Fleet is the name of the fleet, "" while it is not known.
	Fleet string `json:"fleet,omitempty"`
	// Good is the last snapshot that reached the whole fleet, and Proven are the latest
	// that did, oldest first.
	Good   snapshots.ID   `json:"good,omitzero"`
	Proven []snapshots.ID `json:"proven,omitempty"`
	// Rollout is the one in progress, nil for none.
	Rollout *Rollout `json:"rollout,omitempty"`
	// Waits are what the rollout, or an instance, waits for.
	Waits []rollout.Wait `json:"waits,omitempty"`
	// Rejected are the snapshots that failed.
	Rejected []rollout.Failure `json:"rejected,omitempty"`
	// Troubles are the errors that keep the pusher from its work, such as a store that is gone, by topic.
	Troubles []Trouble `json:"troubles,omitempty"`
	// Kept is set while endpoints are kept although their source no longer has them.
	Kept *Kept `json:"kept,omitempty"`
	// Backends says which backends have no server up, nil while that is not known.
	Backends *Backends `json:"backends,omitempty"`
	// Changes are the changes that brought instances to the latest snapshots, the newest last.
	Changes []Change `json:"changes,omitempty"`
	// Conditions say the same in the form of kstatus: Ready, Progressing and Degraded.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Stale is set by the reader of a status that is too old to be true: see [Status.AsOf].
	Stale     bool       `json:"stale,omitempty"`
	Instances []Instance `json:"instances"`
	// Draining are pods of the fleet that terminate. They only get live data, as long as they answer.
	// InSync says whether they have it.
	Draining []Instance `json:"draining,omitempty"`
	// Omitted is how many healthy instances a published status leaves out to fit.
	Omitted int `json:"omitted,omitempty"`
}

// NotRead is the message of a channel that was not read yet.
const NotRead = "the store was not read yet"

// Channel is what should run.
type Channel struct {
	Wanted  snapshots.ID   `json:"wanted,omitzero"`
	Because channel.Reason `json:"because,omitempty"`
	Hold    bool           `json:"hold,omitempty"`
	Message string         `json:"message,omitempty"`
	// Newest is the newest snapshot of the store, whether it should run or not.
	Newest snapshots.ID `json:"newest,omitzero"`
	// Rewound is set while the store, or its channel, is gone or behind what was seen of it. The fleet
	// keeps what runs until that is back, or a person gives it up with pusher accept-rewind.
	Rewound bool `json:"rewound,omitempty"`
	// Behind is how many snapshots are newer than what the fleet runs.
	Behind int `json:"behind"`
}

// Rollout is how far a rollout has come.
type Rollout struct {
	Target  snapshots.ID  `json:"target"`
	Phase   rollout.Phase `json:"phase"`
	Wave    int           `json:"wave"` // from 1
	Members []string      `json:"members,omitempty"`
	Since   time.Time     `json:"since"`
	// Reason is why it is being undone, and Paused why it goes no further.
	Reason string `json:"reason,omitempty"`
	Paused string `json:"paused,omitempty"`
	// Noted is what was observed that does not count against the snapshot.
	Noted string `json:"noted,omitempty"`
	// Change is the change that it makes, nil until the first instance has tried.
	Change *Change `json:"change,omitempty"`
}

// The topics of troubles. Four are about live data, and differ.
const (
	AboutLive        = "live"           // live data that cannot be read
	AboutLiveObjects = "live objects"   // EndpointSlices and Secrets that were read and cannot be used
	AboutRefused     = "endpoints"      // endpoints in networks that are refused
	AboutKept        = "live endpoints" // endpoints that are kept, since many are gone at once

	AboutAnotherStore = "another store"     // a store that does not hold what runs
	AboutCache        = "cache"             // the folder with the snapshots in use
	AboutCertificates = "certificates"      // sealed certificates that cannot be opened
	AboutChannel      = "channel"           // a channel that cannot be written
	AboutCluster      = "cluster"           // objects of the cluster that cannot be watched
	AboutCredentials  = "credentials"       // Secrets that the pusher is to fill and renew
	AboutElection     = "election"          // a Lease that elects nobody
	AboutFleet        = "fleet"             // the file of the fleet, and the files that it names
	AboutNamed        = "named snapshot"    // a pin or an override that cannot be followed
	AboutNeeds        = "needs"             // what snapshots need and the pusher cannot have
	AboutPods         = "pods"              // pods that cannot be read
	AboutPusher       = "pusher"            // another pusher that leads instances
	AboutReach        = "instances"         // a fleet of which nobody can be reached
	AboutSecrets      = "secrets"           // Secrets that snapshots name and that cannot be used
	AboutSigned       = "signatures"        // snapshots that nobody who may has signed
	AboutSnapshots    = "snapshots"         // snapshots that cannot be read or bound
	AboutState        = "state"             // a state that cannot be saved
	AboutStateSize    = "size of the state" // a state that is too large for where it is kept
	AboutStatus       = "status"            // a status that cannot be written for people
	AboutStore        = "store"             // a store that cannot be read
)

// Trouble is an error that a person may have to look at.
type Trouble struct {
	About string    `json:"about"`
	Error string    `json:"error"`
	Since time.Time `json:"since"`
}

// Kept are endpoints that are kept because too many were lost at once.
type Kept struct {
	// Loss names it, for pusher confirm-endpoints.
	Loss  string    `json:"loss"`
	Since time.Time `json:"since"`
	// Count is of how many Service ports, and Services lists the first of them.
	Count    int      `json:"count"`
	Services []string `json:"services,omitempty"`
}

// Instance is the report of one instance.
type Instance struct {
	Name      string `json:"name"`
	Zone      string `json:"zone,omitempty"`
	Reachable bool   `json:"reachable"`
	// Refused is set if its version of HAProxy or of the API is not supported. Error names the version.
	// Nothing is pushed to it.
	Refused bool `json:"refused,omitempty"`
	// Denied is set if it refuses the credentials of the Fleet.
	Denied  bool         `json:"denied,omitempty"`
	Since   time.Time    `json:"since,omitzero"` // of being in reach, or out of it
	Running snapshots.ID `json:"running,omitzero"`
	// Node names what its worker runs. Loaded names what the worker loaded, if it was changed since
	// without a reload.
	Node   string `json:"node,omitempty"`
	Loaded string `json:"loaded,omitempty"`
	PID    int    `json:"pid,omitempty"`
	// Foreign says how its worker was started from another configuration than the pusher wrote, even if
	// it names the same snapshot.
	Foreign string `json:"foreign,omitempty"`
	// LedBy is the other pusher that leads it. Nothing is written to it then.
	LedBy string `json:"ledBy,omitempty"`
	// InSync is set if it runs what is wanted, with the current servers and certificates.
	InSync bool `json:"inSync"`
	// ManualDrains are the servers that somebody else took out of traffic.
	ManualDrains []push.ManualDrain `json:"manualDrains,omitempty"`
	// Findings are faults in how it is set up, in the words of the verb check.
	Findings []preflight.Finding `json:"findings,omitempty"`
	// Conflict is set while there are no repairs, because somebody else undid the last ones.
	Conflict *Conflict `json:"conflict,omitempty"`
	Doing    string    `json:"doing,omitempty"`
	// Pending says what is missing while it is not in sync and nothing failed.
	Pending string    `json:"pending,omitempty"`
	Error   string    `json:"error,omitempty"`
	ErrorAt time.Time `json:"errorAt,omitzero"`
}

// Unasked reports whether the instance has neither answered yet nor failed to, as right after a pusher began.
func (i Instance) Unasked() bool { return !i.Reachable && i.Since.IsZero() }

// Names returns the node of what a worker of the instance runs, given its answer, which names what it
// loaded even if it was changed since.
func (i Instance) Names(info dataplane.RuntimeInfo) string {
	if i.Loaded != "" && i.Loaded == info.Node && i.PID == info.PID {
		return i.Node
	}
	return info.Node
}

// InSync returns how many instances are in sync.
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

// SameAs reports whether two statuses differ only in their time.
func (s Status) SameAs(o Status) bool {
	s.Updated, o.Updated = time.Time{}, time.Time{}
	if reflect.DeepEqual(s, o) { // as nearly always, and far cheaper
		return true
	}
	a, errA := json.Marshal(s)
	b, errB := json.Marshal(o)
	return errA == nil && errB == nil && string(a) == string(b)
}

// Backends says which backends of the snapshot that should run have no server up.
type Backends struct {
	// All is how many backends have servers for endpoints, and Empty how many of them have no server up.
	// Failing is how many of the empty ones have endpoints, none of which passes its checks.
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
	// Instances are those on which no server passes its checks although there are endpoints. Without
	// endpoints the list is empty, since then it is so on all instances.
	Instances []string `json:"instances,omitempty"`
}

// KeptChanges is how many changes are remembered, for the history.
const KeptChanges = 20

// Change is what had to change to bring an instance to a snapshot, with the line that decided about a
// reload. If Old is set, the line is of what ran before, otherwise of the snapshot. Text has no
// secrets.
type Change struct {
	Snapshot snapshots.ID `json:"snapshot"`
	// From is what ran before, zero if that was not read.
	From  snapshots.ID `json:"from,omitzero"`
	Class bind.Verdict `json:"class"`
	Old   bool         `json:"old,omitempty"`
	// File is a path in the snapshot, "" if no file is known to decide. Line counts from 1, and is 0 if
	// no line shows it. A line that a directive was replaced by has the number of the directive.
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	Text string `json:"text,omitempty"`
	// Began is when the rollout did.
	Began time.Time `json:"began,omitzero"`
}

// Because says what decided, "" if that is not known.
func (c Change) Because() string {
	sign := "+"
	if c.Old {
		sign = "-"
	}
	switch {
	case c.Class == bind.Reload && c.From.IsZero():
		return "what ran before is not known"
	case c.File == "":
		return ""
	case c.Line == 0:
		return sign + c.File
	}
	return fmt.Sprintf("%s:%d: %s%s", c.File, c.Line, sign, c.Text)
}

// String says what had to change, and why.
func (c Change) String() string {
	return strings.TrimSuffix(string(c.Class)+": "+c.Because(), ": ")
}

// Logged returns keys and values for the log, none if nothing was bound.
func (c Change) Logged() []any {
	if c.Class == "" {
		return nil
	}
	out := []any{"class", string(c.Class)}
	if because := c.Because(); because != "" {
		out = append(out, "because", because)
	}
	return out
}

// changeTo returns the change to a snapshot, if it is known.
func changeTo(list []Change, id snapshots.ID) (Change, bool) {
	i := slices.IndexFunc(list, func(c Change) bool { return c.Snapshot == id })
	if i < 0 {
		return Change{}, false
	}
	return list[i], true
}

// ChangeTo returns the change that brought instances to a snapshot, if it is known.
func (s Status) ChangeTo(id snapshots.ID) (Change, bool) { return changeTo(s.Changes, id) }

// WithChange adds a change of a rollout. There is one for each snapshot, of the first instance of its
// rollout, the newest last.
func WithChange(list []Change, c Change, r *rollout.Rollout) []Change {
	if r == nil || r.Target != c.Snapshot || c.From.Short == c.Snapshot.Short {
		return list
	}
	c.Began = r.Started.UTC().Truncate(time.Second)
	if known, ok := changeTo(list, c.Snapshot); ok && known.Began.Equal(c.Began) {
		return list
	}
	list = slices.DeleteFunc(slices.Clone(list), func(old Change) bool { return old.Snapshot == c.Snapshot })
	list = append(list, c)
	return list[max(0, len(list)-KeptChanges):]
}

// Conflict is what the pusher does not repair any more, because somebody else undoes each
// repair. It ends when what is found is what is wanted, or after an hour.
type Conflict struct {
	Since time.Time `json:"since"`
	// Faults are what is wanted and what was found instead.
	Faults []push.Fault `json:"faults"`
}

// String says what both sides want.
func (c Conflict) String() string {
	var sides []string
	for _, fault := range c.Faults {
		sides = append(sides, fault.String())
	}
	return rollout.DescribeConflict(strings.Join(sides, "; "))
}

// ConflictOver returns the conflict over the snapshot that an instance runs, nil for none.
func ConflictOver(r rollout.Repairs) *Conflict {
	if !r.InConflict() {
		return nil
	}
	return &Conflict{r.Stopped.UTC().Truncate(time.Second), []push.Fault{{What: "what it runs", Want: r.Snapshot.String(), Found: r.Found}}}
}
