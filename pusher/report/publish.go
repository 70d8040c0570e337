package report

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/hapsnap/hapsnap/internal/printable"
	"github.com/hapsnap/hapsnap/snapshots"
)

// Published is a status in the form of a ConfigMap, for people who may not read the state. It contains
// no secrets.
type Published struct {
	// Fields sum the status up, for people and for the health checks of other programs.
	Fields map[string]string
	// Status is the whole [Status], packed. [Unpack] reads it.
	Status []byte
	// By is the pusher that wrote it, "" if that is not known, and At is when.
	By string
	At time.Time
}

// UnwritableError is why a status is not written until a person changes something: another pusher writes its own to the same
// place, or this one may not write there.
type UnwritableError struct{ Err error }

func (e UnwritableError) Error() string { return e.Err.Error() }

// Unwrap returns the error of the place.
func (e UnwritableError) Unwrap() error { return e.Err }

const (
	// reportInterval is between two reports in the long run. After a quiet time reportBurst of them come sooner, though not
	// sooner than reportGap after each other: a change of a second or two is told while it goes on, and when it is over.
	reportInterval = 2 * time.Second
	reportBurst    = 5
	reportGap      = 200 * time.Millisecond
	reportTimeout  = 10 * time.Second
	// publishAnyway is when a status is written that did not change, so that one whose
	// pusher is gone can be told from one that is true.
	publishAnyway = time.Minute
)

// Reporter writes the status of the fleet to a place where others read it: only the newest one, when it
// differs from the previous one, and once a minute, so that readers know that it is true.
type Reporter struct {
	report func(context.Context, Published) error
	log    *slog.Logger
	limit  *rate.Limiter
	newest chan Status // of one
}

// NewReporter returns a reporter that reports with a function.
func NewReporter(report func(context.Context, Published) error, log *slog.Logger) *Reporter {
	return &Reporter{report: report, log: log, limit: rate.NewLimiter(rate.Every(reportInterval), reportBurst), newest: make(chan Status, 1)}
}

// Offer hands over a status. It replaces one that was not written yet. One goroutine calls it.
func (a *Reporter) Offer(s Status) {
	select {
	case <-a.newest:
	default:
	}
	a.newest <- s
}

// Run writes statuses until ctx is done. It tries a failed write again, unless a newer status comes.
// The pusher does not wait for it.
func (a *Reporter) Run(ctx context.Context) {
	var told Status
	var at time.Time // when it was
	silent := false
	for {
		var s Status
		select {
		case <-ctx.Done():
			return
		case s = <-a.newest:
		}
		if !at.IsZero() && time.Since(at) < publishAnyway && s.SameAs(told) {
			continue
		}
		err := a.publish(ctx, s)
		c := s.Condition()
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			told, at = s, time.Now()
			if silent {
				a.log.Info("status is reported again")
			}
		case isUnwritable(err):
			// It is a trouble of the pusher, which the log has for that.
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
		case <-time.After(reportGap):
		}
		if a.limit.Wait(ctx) != nil {
			return
		}
	}
}

func isUnwritable(err error) bool {
	_, ok := errors.AsType[UnwritableError](err)
	return ok
}

func (a *Reporter) publish(ctx context.Context, s Status) error {
	p, err := Publish(s, time.Now())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	return a.report(ctx, p)
}

// Publish returns a status in the form in which it is written.
func Publish(s Status, now time.Time) (Published, error) {
	s.Updated = now.UTC().Truncate(time.Second)
	p := Published{Fields: s.Condition().Fields(now), At: s.Updated}
	conditions, err := json.Marshal(s.Conditions)
	if err != nil {
		return Published{}, fmt.Errorf("encode the conditions: %w", err)
	}
	p.Fields["conditions"], p.Fields[snapshots.WorkersKey] = string(conditions), s.workers().String()
	p.Status, err = s.pack()
	return p, err
}

// workers returns what the instances run. It leaves out instances that were never reached, as rollouts
// do.
func (s Status) workers() snapshots.Workers {
	out := snapshots.Workers{}
	for _, i := range s.Instances {
		if i.Reachable || !i.Running.IsZero() {
			out[i.Running]++
		}
	}
	return out
}

const (
	// largestPublished is how many bytes of a ConfigMap a packed status takes, as the API
	// server counts them. It takes 1 MiB with its names, labels and other keys.
	largestPublished = 900 << 10
	// largestStatus is how many bytes a status has that is unpacked.
	largestStatus = 64 << 20
)

// pack returns the status as packed JSON that fits. To make it fit, it first shortens long texts and
// lists, and then leaves out healthy instances.
func (s Status) pack() ([]byte, error) {
	for _, b := range []bounds{{text: LongestError, list: 1000}, {text: 1000, list: 20}, {text: LongestMessage, list: 3}} {
		packed, err := s.packWithin(b)
		if err != nil || len(packed) <= largestPublished {
			return packed, err
		}
	}
	all := slices.Clone(s.Instances)
	slices.SortStableFunc(all, func(a, b Instance) int { return rank(a) - rank(b) })
	for n := len(all) / 2; ; n /= 2 {
		s.Instances, s.Omitted = slices.Clone(all[:n]), len(all)-n
		slices.SortFunc(s.Instances, func(a, b Instance) int { return strings.Compare(a.Name, b.Name) })
		packed, err := s.packWithin(bounds{text: LongestMessage, list: 3})
		if err != nil || len(packed) <= largestPublished {
			return packed, err
		}
		if n == 0 {
			return nil, errors.New("the status does not fit into a ConfigMap")
		}
	}
}

// rank is lower for instances that people want to see.
func rank(i Instance) int {
	if i.InSync {
		return 1
	}
	return 0
}

// bounds are how many bytes a text may have, and how many elements a list other than that of the
// instances.
type bounds struct{ text, list int }

func (s Status) packWithin(b bounds) ([]byte, error) {
	data, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode the status: %w", err)
	}
	var tree map[string]any
	if err := json.Unmarshal(data, &tree); err != nil {
		return nil, fmt.Errorf("encode the status: %w", err)
	}
	for key, value := range tree {
		if list, ok := value.([]any); ok && key == "instances" {
			for i := range list {
				list[i] = b.shorten(list[i])
			}
			continue
		}
		tree[key] = b.shorten(value)
	}
	if data, err = json.Marshal(tree); err != nil {
		return nil, fmt.Errorf("encode the status: %w", err)
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write(data); err != nil {
		return nil, fmt.Errorf("pack the status: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("pack the status: %w", err)
	}
	return packed.Bytes(), nil
}

func (b bounds) shorten(value any) any {
	switch v := value.(type) {
	case string:
		return printable.Shortened(v, b.text)
	case []any:
		v = v[max(0, len(v)-b.list):]
		for i := range v {
			v[i] = b.shorten(v[i])
		}
		return v
	case map[string]any:
		for key := range v {
			v[key] = b.shorten(v[key])
		}
	}
	return value
}

// Unpack reads the status that [Publish] packed.
func Unpack(packed []byte) (Status, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return Status{}, fmt.Errorf("unpack the status: %w", err)
	}
	data, err := io.ReadAll(io.LimitReader(r, largestStatus+1))
	if err != nil {
		return Status{}, fmt.Errorf("unpack the status: %w", err)
	}
	if len(data) > largestStatus {
		return Status{}, fmt.Errorf("unpack the status: it has more than %d bytes", largestStatus)
	}
	var s Status
	if err := json.Unmarshal(data, &s); err != nil {
		return Status{}, fmt.Errorf("read the status: %w", err)
	}
	return s, nil
}
