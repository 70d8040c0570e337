package events

import (
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// How long an object is left alone for which alone the API server refuses a write: after the first refusal, and at most.
const (
	RetryFirst = 2 * time.Second
	RetryOne   = 5 * time.Minute
)

// refusalsApart is the shortest time between two log lines of a loop about objects that the API server refuses.
const refusalsApart = time.Minute

// Refusal says how long an object is left alone, since the API server refused a write for it. That time doubles from
// [RetryFirst] to [RetryOne]: a short fault of the API server's storage looks like a refusal that lasts. Once the object
// is written, its Refusal is to be forgotten. The zero value is for an object that was not refused.
type Refusal struct {
	Until  time.Time
	wait   time.Duration
	logged bool
}

// again returns the Refusal after another one.
func (r Refusal) again(now time.Time) Refusal {
	r.wait = min(max(2*r.wait, RetryFirst), RetryOne)
	r.Until = now.Add(r.wait)
	return r
}

// OfOne reports whether the API server may refuse a write for its object alone, such as where a role or a quota of a
// namespace is in the way, or etcd takes no larger object. Then other objects do not wait for it. An API server that has
// too much to do says when to come back. Without that, too many requests are those of one namespace or user: anybody could
// use up the Events of a namespace that the plugin EventRateLimit grants.
func OfOne(err error) bool {
	_, answered := errors.AsType[*apierrors.StatusError](err)
	_, busy := apierrors.SuggestsClientDelay(err)
	return answered && !(busy && apierrors.IsTooManyRequests(err)) && !apierrors.IsUnauthorized(err) && !apierrors.IsServiceUnavailable(err) &&
		!apierrors.IsTimeout(err) && !apierrors.IsServerTimeout(err)
}

// Refused returns what becomes of the Refusal of an object that the API server refuses with an error that is [OfOne]. The
// loop looks at it again in time. Each object is logged once until it is written, and no more than one a minute: if the
// API server refuses all, one line is enough.
func (l *Loop) Refused(was Refusal, object string, err error, now time.Time) Refusal {
	next := was.again(now)
	if !next.logged && now.Sub(l.said) >= refusalsApart {
		next.logged, l.said = true, now
		l.Log.Warn("the API server refuses what is written for an object, trying it again later", "of", l.Of, "object", object, "err", err, "in", next.wait, "most", RetryOne)
	}
	time.AfterFunc(next.wait, l.Kick)
	return next
}

// Accepted logs that an object was written whose Refusal was logged.
func (l *Loop) Accepted(was Refusal, object string) {
	if was.logged {
		l.Log.Info("written, the API server does not refuse it any more", "of", l.Of, "object", object)
	}
}
