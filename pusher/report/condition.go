package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/internal/printable"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// Condition is the status in one word, in those of Argo CD, with what it is about.
type Condition struct {
	Phase   Phase
	Reason  string // in one word, such as RollingOut
	Message string
	Wanted  snapshots.ID // what should run
	Newest  snapshots.ID // the newest snapshot that was seen in the store
	// Running is how many of the instances run what should run. Servers and
	// certificates that are being brought up to date do not count against it.
	Running, Instances int
	// Empty is how many backends have no server up.
	Empty int
}

// Phase is how a fleet is doing.
type Phase string

// The phases. Suspended means that a person has said to run something else than the
// newest snapshot, and that it runs; Degraded, that a person must act.
const (
	Healthy     Phase = "Healthy"
	Progressing Phase = "Progressing"
	Suspended   Phase = "Suspended"
	Degraded    Phase = "Degraded"
)

// LongestMessage is how much of an error a condition repeats, in bytes.
const LongestMessage = 300

// Condition sums the status up.
func (s Status) Condition() Condition {
	c := Condition{Wanted: s.Channel.Wanted, Newest: s.Channel.Newest, Instances: len(s.Instances)}
	for _, i := range s.Instances {
		if i.Reachable && !i.Running.IsZero() && i.Running == s.Channel.Wanted {
			c.Running++
		}
	}
	if s.Backends != nil {
		c.Empty = s.Backends.Empty
	}
	c.Phase, c.Reason, c.Message = s.judge(c)
	c.Message = FirstLine(c.Message, LongestMessage)
	return c
}

// The reasons of a condition that programs may compare. The reason for a trouble names its topic, such
// as StoreTrouble.
const (
	ReasonNotRead        = "NotRead"
	ReasonStandby        = "Standby"
	ReasonStale          = "Stale"
	ReasonUpToDate       = "UpToDate"
	ReasonOtherWanted    = "OtherWanted" // than the newest snapshot
	ReasonPaused         = "Paused"
	ReasonNothing        = "NothingPublished"
	ReasonNoInstances    = "NoInstances"
	ReasonRollingOut     = "RollingOut"
	ReasonArriving       = "Arriving" // at instances that do not run it yet
	ReasonHeld           = "Held"
	ReasonSnapshotFailed = "SnapshotFailed"
	ReasonInstanceFailed = "InstanceFailed"
)

// troubleReason returns the reason that names a trouble, such as LiveEndpointsTrouble.
func troubleReason(t Trouble) string {
	var b strings.Builder
	for word := range strings.FieldsSeq(t.About) {
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return b.String() + "Trouble"
}

// judge returns the phase, its reason and a message: the first that applies.
func (s Status) judge(c Condition) (phase Phase, reason, message string) {
	if s.Standby {
		return Progressing, ReasonStandby, s.Channel.Message
	}
	if s.Channel.Message == NotRead && !s.Channel.Rewound {
		return Progressing, ReasonNotRead, NotRead
	}
	if t, ok := s.Blocked(); ok {
		return Degraded, troubleReason(t), t.About + ": " + t.Error
	}
	if i := slices.IndexFunc(s.Troubles, func(t Trouble) bool {
		return slices.Contains([]string{AboutCredentials, AboutKept, AboutNeeds, AboutSigned}, t.About)
	}); i >= 0 {
		return Degraded, troubleReason(s.Troubles[i]), s.Troubles[i].Error
	}
	if f, ok := s.failed(c.Newest); ok && (s.Channel.Because == channel.BecauseNewest || s.Channel.Because == channel.BecauseNone) {
		return Degraded, ReasonSnapshotFailed, fmt.Sprintf("%s failed: %s", c.Newest, f.Reason)
	}
	if s.Channel.Hold {
		return s.held()
	}
	// What cannot be read, such as a pinned snapshot without an accepted signature, does not arrive.
	if i := slices.IndexFunc(s.Troubles, func(t Trouble) bool {
		return t.About == AboutSnapshots && !c.Wanted.IsZero() && strings.Contains(t.Error, c.Wanted.String())
	}); i >= 0 && c.Running < c.Instances {
		return Degraded, troubleReason(s.Troubles[i]), s.Troubles[i].Error
	}
	if r := s.Rollout; r != nil {
		return Progressing, ReasonRollingOut, fmt.Sprintf("%s: %d of %d instances, wave %d is %s", r.Target, c.Running, c.Instances, r.Wave, r.Phase)
	}
	if why := s.ill(); why != "" {
		return Degraded, ReasonInstanceFailed, why
	}
	switch {
	case c.Instances == 0:
		return Progressing, ReasonNoInstances, "there are no instances"
	case c.Running < c.Instances:
		return Progressing, ReasonArriving, fmt.Sprintf("%d of %d instances run %s", c.Running, c.Instances, c.Wanted)
	case c.Wanted != c.Newest:
		return Suspended, ReasonOtherWanted, s.Channel.Message
	}
	return Healthy, ReasonUpToDate, fmt.Sprintf("%d of %d instances run %s", c.Running, c.Instances, c.Wanted)
}

// ill says which instance has an error, "" for none.
func (s Status) ill() string {
	i := slices.IndexFunc(s.Instances, func(i Instance) bool { return i.Error != "" })
	if i < 0 {
		return ""
	}
	return s.Instances[i].Name + ": " + s.Instances[i].Error
}

// held returns the phase of a fleet that has to stay as it is.
func (s Status) held() (phase Phase, reason, message string) {
	switch s.Channel.Because {
	case channel.BecauseEmpty:
		return Progressing, ReasonNothing, s.Channel.Message
	case channel.BecausePause:
		return Suspended, ReasonPaused, s.Channel.Message
	case channel.BecauseNone:
		return Suspended, ReasonHeld, s.Channel.Message
	}
	return Degraded, ReasonHeld, s.Channel.Message
}

func (s Status) failed(id snapshots.ID) (rollout.Failure, bool) {
	i := slices.IndexFunc(s.Rejected, func(f rollout.Failure) bool { return f.Snapshot == id })
	if i < 0 {
		return rollout.Failure{}, false
	}
	return s.Rejected[i], true
}

// Blocked returns the first trouble with something that the pusher cannot work without. People have to
// look at the others; a restart helps with none.
func (s Status) Blocked() (Trouble, bool) {
	for _, t := range s.Troubles {
		switch t.About {
		case AboutElection, AboutFleet, AboutLive, AboutPods, AboutPusher, AboutState, AboutStore:
			return t, true
		}
	}
	return Trouble{}, false
}

// Fields returns the condition as text, for others to read.
func (c Condition) Fields(now time.Time) map[string]string {
	return map[string]string{
		"phase": string(c.Phase), "message": c.Message, "snapshot": c.Wanted.String(), "newest": c.Newest.String(),
		"instances": strconv.Itoa(c.Instances), "running": strconv.Itoa(c.Running), "emptyBackends": strconv.Itoa(c.Empty), "updated": now.UTC().Format(time.RFC3339),
	}
}

// FirstLine returns the first line of a reason, short enough for a commit.
func FirstLine(reason string, most int) string {
	line, _, _ := strings.Cut(strings.TrimSpace(reason), "\n")
	return printable.Shortened(line, most)
}

// LongestError is how much of an error is kept and shown, in bytes. Some errors have a line for each
// Secret, or the whole answer of an instance.
const LongestError = 4000

// Brief returns the text of an error, cut to LongestError.
func Brief(err error) string {
	if err == nil {
		return ""
	}
	return printable.Shortened(err.Error(), LongestError)
}

// The types of the conditions of a status, as kstatus and other programs of the Kubernetes
// world read them. Each has a status of True, False or Unknown.
const (
	// TypeReady is True while all instances run what should run, and nothing is wrong.
	TypeReady = "Ready"
	// TypeProgressing is True while a snapshot is on its way to instances.
	TypeProgressing = "Progressing"
	// TypeDegraded is True while a person must act.
	TypeDegraded = "Degraded"
)

// WithConditions returns the status with its conditions. Those whose status is as before
// keep the time of their last transition. ObservedGeneration is the revision of the newest
// snapshot that was seen.
func (s Status) WithConditions(before []metav1.Condition, now time.Time) Status {
	c := s.Condition()
	s.Conditions = slices.Clone(before)
	set := func(kind string, status metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: int64(c.Newest.Revision), //nolint:gosec // revisions are counted from 1
			LastTransitionTime: metav1.NewTime(now.UTC().Truncate(time.Second)),
		})
	}
	is := func(so bool) metav1.ConditionStatus {
		if so {
			return metav1.ConditionTrue
		}
		return metav1.ConditionFalse
	}
	rolling, ill := s.Rollout != nil || c.Phase == Progressing, s.ill()
	switch {
	case s.Standby || c.Reason == ReasonNotRead:
		for _, kind := range []string{TypeReady, TypeProgressing, TypeDegraded} {
			set(kind, metav1.ConditionUnknown, c.Reason, c.Message)
		}
		return s
	case c.Phase == Suspended && ill != "":
		set(TypeReady, metav1.ConditionFalse, ReasonInstanceFailed, FirstLine(ill, LongestMessage))
	default:
		set(TypeReady, is(c.Phase == Healthy || c.Phase == Suspended), c.Reason, c.Message)
	}
	if r := s.Rollout; r != nil {
		set(TypeProgressing, metav1.ConditionTrue, ReasonRollingOut, fmt.Sprintf("%s: %d of %d instances, wave %d is %s", r.Target, c.Running, c.Instances, r.Wave, r.Phase))
	} else {
		set(TypeProgressing, is(rolling), c.Reason, c.Message)
	}
	set(TypeDegraded, is(c.Phase == Degraded), c.Reason, c.Message)
	return s
}

// Ready returns the condition that says whether the fleet is as it should be.
func (s Status) Ready() metav1.Condition {
	if c := meta.FindStatusCondition(s.Conditions, TypeReady); c != nil {
		return *c
	}
	return metav1.Condition{Type: TypeReady, Status: metav1.ConditionUnknown, Reason: ReasonNotRead, Message: "the pusher said nothing of it"}
}

// How old a status may be of a pusher that runs: the state is renewed every few seconds,
// and what is published once a minute.
const (
	FreshState     = 30 * time.Second
	FreshPublished = 3 * publishAnyway
)

// ahead is how far the clock of the pusher may be ahead of the clock of who reads its status. Of a status that is
// further in the future nobody can say how old it is.
const ahead = FreshPublished

// AsOf returns the status as seen at a time. If it is older than fresh, it is stale: the pusher that
// wrote it does not run, or cannot write, and nothing is known of the fleet since. So is one of the future, which
// would otherwise be fresh until then, whether its pusher runs or not.
func (s Status) AsOf(now time.Time, fresh time.Duration) Status {
	if age := now.Sub(s.Updated); s.Updated.IsZero() || age <= fresh && age >= -ahead {
		return s
	}
	s.Stale = true
	s.Conditions = slices.Clone(s.Conditions)
	message := s.Silence(now)
	for _, kind := range []string{TypeReady, TypeProgressing, TypeDegraded} {
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{
			Type: kind, Status: metav1.ConditionUnknown, Reason: ReasonStale, Message: message, LastTransitionTime: metav1.NewTime(s.Updated.UTC()),
			ObservedGeneration: int64(s.Channel.Newest.Revision), //nolint:gosec // revisions are counted from 1
		})
	}
	return s
}

// Silence says of a stale status since when its pusher is silent.
func (s Status) Silence(now time.Time) string {
	at := s.Updated.UTC().Format(time.RFC3339)
	if now.Before(s.Updated) {
		return fmt.Sprintf("the pusher's clock said %s, which is in the future here, so that nobody can say how old this is: one of the clocks is wrong", at)
	}
	return "the pusher said nothing since " + at
}
