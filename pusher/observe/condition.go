package observe

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// Condition is the status in one word, in those of Argo CD, with what it is about.
type Condition struct {
	Phase   Phase
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

// LongestMessage is how much of an error is repeated, in bytes.
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
	c.Phase, c.Message = s.judge(c)
	c.Message = FirstLine(c.Message, LongestMessage)
	return c
}

// judge returns the phase and why: the first of what is the case.
func (s Status) judge(c Condition) (Phase, string) {
	if s.Channel.Message == NotRead && !s.Channel.Rewound {
		return Progressing, NotRead
	}
	if t, ok := s.Blocked(); ok {
		return Degraded, t.About + ": " + t.Error
	}
	if i := slices.IndexFunc(s.Troubles, func(t Trouble) bool {
		return slices.Contains([]string{AboutCredentials, AboutKept, AboutNeeds, AboutSigned}, t.About)
	}); i >= 0 {
		return Degraded, s.Troubles[i].Error
	}
	if f, ok := s.failed(c.Newest); ok && s.Channel.Because == channel.BecauseNewest {
		return Degraded, fmt.Sprintf("%s failed: %s", c.Newest, f.Reason)
	}
	if s.Channel.Hold {
		return s.held()
	}
	if r := s.Rollout; r != nil {
		return Progressing, fmt.Sprintf("%s: %d of %d instances, wave %d is %s", r.Target, c.Running, c.Instances, r.Wave, r.Phase)
	}
	if i := slices.IndexFunc(s.Instances, func(i InstanceStatus) bool { return i.Error != "" }); i >= 0 {
		return Degraded, s.Instances[i].Name + ": " + s.Instances[i].Error
	}
	switch {
	case c.Instances == 0:
		return Progressing, "there are no instances"
	case c.Running < c.Instances:
		return Progressing, fmt.Sprintf("%d of %d instances run %s", c.Running, c.Instances, c.Wanted)
	case c.Wanted != c.Newest:
		return Suspended, s.Channel.Message
	}
	return Healthy, fmt.Sprintf("%d of %d instances run %s", c.Running, c.Instances, c.Wanted)
}

// held returns the phase of a fleet that is to stay as it is.
func (s Status) held() (Phase, string) {
	switch s.Channel.Because {
	case channel.BecauseEmpty:
		return Progressing, s.Channel.Message
	case channel.BecausePause, channel.BecauseNone:
		return Suspended, s.Channel.Message
	}
	return Degraded, s.Channel.Message
}

func (s Status) failed(id snapshots.ID) (rollout.Failure, bool) {
	i := slices.IndexFunc(s.Rejected, func(f rollout.Failure) bool { return f.Snapshot == id })
	if i < 0 {
		return rollout.Failure{}, false
	}
	return s.Rejected[i], true
}

// Blocked returns the first trouble with what the pusher cannot work without. Others
// are for people to look into, and none is mended by restarting it.
func (s Status) Blocked() (Trouble, bool) {
	for _, t := range s.Troubles {
		switch t.About {
		case "election", "fleet", "live", "pods", "pusher", "state", "store":
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

const (
	reportInterval = 2 * time.Second // between two reports, at least
	reportTimeout  = 10 * time.Second
)

// Reporter writes the condition of the fleet where others read it: the newest one only, and
// none twice.
type Reporter struct {
	report   func(ctx context.Context, fields map[string]string) error
	log      *slog.Logger
	interval time.Duration
	newest   chan Condition // of one
}

// NewReporter returns a reporter that reports with a function.
func NewReporter(report func(context.Context, map[string]string) error, log *slog.Logger) *Reporter {
	return &Reporter{report: report, log: log, interval: reportInterval, newest: make(chan Condition, 1)}
}

// Offer hands a condition on. It replaces one that was not told yet. One goroutine
// calls it.
func (a *Reporter) Offer(c Condition) {
	select {
	case <-a.newest:
	default:
	}
	a.newest <- c
}

// Run tells conditions until ctx is done. What could not be told is tried again, unless
// a newer one comes: that it cannot be told must not keep the pusher from its work.
func (a *Reporter) Run(ctx context.Context) {
	var told Condition
	silent := false
	for {
		var c Condition
		select {
		case <-ctx.Done():
			return
		case c = <-a.newest:
		}
		if c == told {
			continue
		}
		once, cancel := context.WithTimeout(ctx, reportTimeout)
		err := a.report(once, c.Fields(time.Now()))
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			told = c
			if silent {
				a.log.Info("status is reported again")
			}
		case c.Newest.IsZero() && c.Phase == Progressing:
			// The compiler makes the place for it with its first snapshot.
			a.log.Debug("status not reported yet", "err", err)
		case !silent:
			a.log.Warn("status not reported", "err", err)
			silent = true
		}
		silent = silent && err != nil
		select {
		case <-ctx.Done():
			return
		case <-time.After(a.interval):
		}
	}
}
