package observe

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/preflight"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// View is what people should see of a pusher at the end of a turn.
type View struct {
	Now time.Time
	// Leader, Page and Term are as in the status.
	Leader string
	Page   string
	Term   int64
	// Fleet is the name of the fleet.
	Fleet string
	// Decision says what should run. StoreRead is set once the store was read. Rewound is set while the store is behind
	// what the pusher has already seen.
	Decision           channel.Decision
	StoreRead, Rewound bool
	// Snapshots are those of the store. Newest is the newest of them.
	Snapshots []snapshots.ID
	Newest    snapshots.ID
	Rollout   rollout.State
	Waits     []rollout.Wait
	Changes   []report.Change
	Troubles  Troubles
	Kept      *report.Kept
	Backends  *report.Backends
	// Instances are those of the fleet, sorted by name. Pods is set if some of them are pods of a namespace.
	Instances    []Instance
	Draining     []Instance // pods of the fleet that terminate, and count neither for waves nor for the size of the fleet
	Pods         bool
	PodNamespace string

	// Waves are the waves of a rollout. Soak is how long each wave is watched. Gate has the figures that the gate
	// compares, nil while there are none.
	Waves []rollout.WaveSize
	Soak  time.Duration
	Gate  *rollout.Figures
	// Endpoints are the endpoints from which servers are made, nil while they are not known. The next step may change
	// the map, so a reader has to copy it.
	Endpoints map[snapshots.ServicePort][]snapshots.Endpoint
	// CertificateEnds says when the certificates in Secrets expire, and Issuers who issued them. The maps do not
	// change.
	CertificateEnds map[snapshots.SecretName]time.Time
	Issuers         map[snapshots.SecretName]string
	// Traffic is the traffic of the backends that have some.
	Traffic map[string]Traffic
	// Up says how many servers of each backend are up, for each instance with a recent sample.
	Up []rollout.ServersUp

	// Channel is what people said should run. Budget is the rest of the budget of reloads.
	Channel channel.Channel
	Budget  rollout.Left
	// Lacking is how many things the snapshots in use need that the pusher cannot have. KeptPorts is how many Service
	// ports have kept endpoints.
	Lacking, KeptPorts int
	// Expiries are the certificates that expire soonest.
	Expiries []Expiry
	Refused  Refused
	Unusable []Unusable
	// Traceparent is the trace of the target of the rollout. It is known if TargetAtHand is set.
	Traceparent  string
	TargetAtHand bool
}

// Instance is what a pusher knows about one instance.
type Instance struct {
	Name, Zone   string
	UID          string // of its pod, "" without a pod
	Reachable    bool
	Refused      bool      // because of its version
	Err          error     // why it is unreachable, or refused
	Since        time.Time // since when it is reachable, or unreachable
	Running      snapshots.ID
	Info         dataplane.RuntimeInfo
	Started      time.Time // when its worker began
	Foreign      string
	LedBy        string
	ManualDrains []push.ManualDrain
	Findings     []preflight.Finding
	Conflict     *report.Conflict // the repair conflict over files and servers, nil for none
	// Doing is the job under way, "" for none and for an inspection. Pushing and Updating are set for two kinds of
	// jobs.
	Doing             string
	Pushing, Updating bool
	// JobError is the error of the last job other than a push, "" if it succeeded.
	JobError   string
	JobErrorAt time.Time
	// Unclaimed is set until the instance is claimed. AwaitsCluster is set while the pusher does not know everything that its
	// snapshot needs.
	Unclaimed, AwaitsCluster bool
	// UpToDate is set if the instance has the current servers and certificates of its snapshot. Otherwise Ahead says
	// what is missing.
	UpToDate bool
	Ahead    string
	// Arrived is set if the worker has all live data, or if nothing waits for this instance. It is set even while the
	// instance is busy.
	Arrived bool
}

// Traffic is the traffic of a backend, on all instances together.
type Traffic struct {
	// Rate is how many requests per second came between the last two samples of the workers. ErrorRate is how many
	// answers per second were 5xx.
	Rate      float64 `json:"requestsPerSecond"`
	ErrorRate float64 `json:"errorsPerSecond"`
	// Errors is how many answers were 5xx since each worker began.
	Errors int64 `json:"errors"`
}

// Target returns the snapshot that the fleet should run in the end.
func (v View) Target() snapshots.ID {
	if v.Decision.Hold {
		return v.Rollout.Good
	}
	return v.Decision.ID
}

// Status returns the status for a view. before are the conditions of the previous status.
func (v View) Status(before []metav1.Condition) report.Status {
	waits := slices.Clone(v.Waits)
	for i, w := range waits {
		if !w.Until.IsZero() {
			waits[i].Until = w.Until.UTC().Truncate(time.Second)
		}
	}
	s := report.Status{
		Updated: v.Now.UTC().Truncate(time.Second), Leader: v.Leader, Page: v.Page, Term: v.Term, Channel: v.channel(), Rollout: v.rollout(),
		Good: v.Rollout.Good, Rejected: v.Rollout.Failed, Waits: waits, Instances: []report.Instance{},
		Changes: v.Changes, Fleet: v.Fleet, Proven: v.Rollout.Proven, Troubles: v.Troubles.list(),
		Kept: v.Kept, Backends: v.Backends,
	}
	for _, i := range v.Instances {
		s.Instances = append(s.Instances, v.instance(i))
	}
	for _, i := range v.Draining {
		s.Draining = append(s.Draining, v.draining(i))
	}
	return s.WithConditions(before, v.Now)
}

func (v View) channel() report.Channel {
	d := v.Decision
	if !v.StoreRead {
		return report.Channel{Hold: true, Message: report.NotRead, Rewound: v.Rewound}
	}
	s := report.Channel{Wanted: d.ID, Because: d.Because, Hold: d.Hold, Message: d.Message, Rewound: v.Rewound, Newest: v.Newest}
	for _, id := range v.Snapshots {
		if id.Compare(v.Rollout.Good) > 0 {
			s.Behind++
		}
	}
	return s
}

func (v View) rollout() *report.Rollout {
	r := v.Rollout.Rollout
	if r == nil {
		return nil
	}
	s := &report.Rollout{
		Target: r.Target, Phase: r.Phase, Wave: r.Wave + 1, Members: r.Members,
		Since: r.Since.UTC().Truncate(time.Second), Reason: r.Reason, Paused: r.Paused, Noted: report.FirstLine(r.Noted, report.LongestMessage),
	}
	if c, ok := (report.Status{Changes: v.Changes}).ChangeTo(r.Target); ok && c.Began.Equal(r.Started.UTC().Truncate(time.Second)) {
		s.Change = &c
	}
	return s
}

func (v View) instance(i Instance) report.Instance {
	remembered := v.Rollout.Instances[i.Name]
	s := report.Instance{
		Name: i.Name, Zone: i.Zone, Reachable: i.Reachable, Since: i.Since.UTC().Truncate(time.Second),
		Running: i.Running, Node: i.Info.Node, Loaded: i.Info.Loaded, PID: i.Info.PID, Doing: i.Doing,
		ManualDrains: i.ManualDrains, Conflict: i.Conflict, Findings: i.Findings, LedBy: i.LedBy, Foreign: i.Foreign,
		Error: cmp.Or(remembered.Error, i.JobError),
	}
	if s.ErrorAt = remembered.ErrorAt; remembered.Error == "" {
		s.ErrorAt = i.JobErrorAt
	}
	if s.Conflict == nil {
		s.Conflict = report.ConflictOver(v.Rollout.Repairs[i.Name])
	}
	if s.Conflict != nil {
		s.Error, s.ErrorAt = s.Conflict.String(), s.Conflict.Since
	}
	if i.Err != nil {
		s.Error, s.ErrorAt, s.Refused, s.Denied = report.Brief(i.Err), i.Since, i.Refused, errors.Is(i.Err, dataplane.ErrUnauthorized)
	}
	if s.Foreign != "" && s.Error == "" {
		s.Error, s.ErrorAt = push.ForeignText(s.Foreign), i.Started
	}
	s.ErrorAt = s.ErrorAt.UTC().Truncate(time.Second)
	s.InSync = s.Reachable && !i.AwaitsCluster && s.Error == "" && !s.Running.IsZero() && s.Running == v.Target() &&
		!i.Pushing && !i.Updating && i.UpToDate
	if s.Reachable && !s.InSync && s.Error == "" {
		s.Pending = v.pending(i)
	}
	return s
}

// draining returns the status of a draining instance, without what the fleet should run.
func (v View) draining(i Instance) report.Instance {
	s := report.Instance{
		Name: i.Name, Zone: i.Zone, Reachable: i.Reachable, Since: i.Since.UTC().Truncate(time.Second),
		Running: i.Running, Node: i.Info.Node, Loaded: i.Info.Loaded, PID: i.Info.PID, Doing: i.Doing, LedBy: i.LedBy,
		Error: i.JobError, ErrorAt: i.JobErrorAt.UTC().Truncate(time.Second), InSync: i.Reachable && i.UpToDate,
	}
	if i.Err != nil {
		s.Error, s.ErrorAt = report.Brief(i.Err), s.Since
	}
	return s
}

// pending says why an instance is not in sync, if nothing has failed.
func (v View) pending(i Instance) string {
	target := v.Target()
	switch {
	case i.Pushing:
		return "a snapshot is being pushed to it"
	case target.IsZero():
		return "no snapshot is wanted yet"
	case i.Running.IsZero():
		return fmt.Sprintf("runs another configuration, %s is to come", target)
	case i.Running != target && v.stays(i.Running):
		return "stays as it is: " + v.Decision.Message
	case i.Running != target:
		return fmt.Sprintf("%s is to come", target)
	case i.Unclaimed:
		return "looks what its worker was started from"
	case i.AwaitsCluster:
		return "waits for endpoints and certificates to be read"
	}
	return i.Ahead
}

// stays reports whether an instance keeps a snapshot that is being rolled out, because somebody paused the fleet meanwhile.
func (v View) stays(running snapshots.ID) bool {
	r := v.Rollout.Rollout
	return v.Decision.Hold && r != nil && r.Phase != rollout.Undoing && running == r.Target
}

// Identity returns the name that a pusher of a fleet has on a Lease. It names the fleet, so that a pusher of another
// fleet that was given the same state notices that its own fleet gets nothing.
func Identity(fleet, process string) string { return fleet + "/" + process }

// OthersState returns an error if the leader is a pusher of another fleet than this one, which does not lead. The two
// share a state by mistake: only one of the fleets gets anything at a time.
func OthersState(holder string, leads bool, fleet string) error {
	end := strings.LastIndexByte(holder, '/')
	if leads || end < 0 || holder[:end] == fleet {
		return nil
	}
	return fmt.Errorf("the leader, %s, is a pusher of the fleet %s, and this one is of the fleet %s, which gets nothing: give each fleet a state of its own", holder, holder[:end], fleet)
}

// Standby returns the status of a pusher that does not push.
func Standby(holder string, leads bool, troubles map[string]report.Trouble, before []metav1.Condition, now time.Time) report.Status {
	s := report.Status{Updated: now.UTC().Truncate(time.Second), Standby: true, Leader: holder, Instances: []report.Instance{}}
	_, unheard := troubles["election"]
	said := "another pusher leads: " + holder
	switch {
	case leads:
		said = "this pusher leads, and could not begin: instances stay as they are"
	case unheard:
		said = "it is not known who leads: instances stay as they are"
	case holder == "":
		said = "no pusher leads: instances stay as they are"
	}
	s.Channel = report.Channel{Hold: true, Message: said}
	for _, about := range []string{"election", "state"} {
		if t, ok := troubles[about]; ok {
			s.Troubles = append(s.Troubles, t)
		}
	}
	return s.WithConditions(before, now)
}
