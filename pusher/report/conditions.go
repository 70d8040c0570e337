package report

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
	FreshState     = 20 * time.Second
	FreshPublished = 3 * publishAnyway
)

// AsOf returns the status as it is to be taken at a time. One that is older than what is fresh
// is stale: the pusher that wrote it does not run, or cannot write, and nothing is known of
// the fleet since.
func (s Status) AsOf(now time.Time, fresh time.Duration) Status {
	if s.Updated.IsZero() || now.Sub(s.Updated) <= fresh {
		return s
	}
	s.Stale = true
	s.Conditions = slices.Clone(s.Conditions)
	message := fmt.Sprintf("the pusher said nothing since %s", s.Updated.UTC().Format(time.RFC3339))
	for _, kind := range []string{TypeReady, TypeProgressing, TypeDegraded} {
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{
			Type: kind, Status: metav1.ConditionUnknown, Reason: ReasonStale, Message: message, LastTransitionTime: metav1.NewTime(s.Updated.UTC()),
			ObservedGeneration: int64(s.Channel.Newest.Revision), //nolint:gosec // revisions are counted from 1
		})
	}
	return s
}
