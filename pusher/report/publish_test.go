package report

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/pusher/preflight"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// Each status is published once, not too often, and only the newest. A status that could not be published is
// published later. An unchanged status is published once a minute.
func TestReporter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // synctest orders what comes before a wait, and not what comes after it
		var told []string
		var broken bool
		a := NewReporter(func(_ context.Context, p Published) error {
			mu.Lock()
			defer mu.Unlock()
			if broken {
				return errors.New("forbidden")
			}
			s, err := Unpack(p.Status)
			if err != nil {
				return err
			}
			told = append(told, s.Fleet)
			return nil
		}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { a.Run(ctx); close(ended) }()
		offer := func(names ...string) {
			for _, name := range names {
				a.Offer(Status{Fleet: name, Updated: time.Now()})
				synctest.Wait()
			}
		}
		wait := func(d time.Duration) { <-time.After(d); synctest.Wait() } // in the time of the bubble
		check := func(want ...string) {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(told, want) {
				t.Errorf("%v, not %v", told, want)
			}
		}
		breaks := func(is bool) {
			mu.Lock()
			defer mu.Unlock()
			broken = is
		}
		offer("a", "b", "c")
		check("a")
		wait(reportInterval)
		offer("c", "c")
		wait(reportInterval)
		breaks(true)
		offer("d")
		wait(reportInterval)
		breaks(false)
		offer("d")
		check("a", "c", "d")
		wait(publishAnyway / 2)
		offer("d")
		check("a", "c", "d")
		wait(publishAnyway)
		offer("d")
		check("a", "c", "d", "d")
		cancel()
		<-ended
	})
}

// After a quiet time, a few changes are published at once. Constant changes are published no more than every
// two seconds.
func TestReporterAfterQuietTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var told []time.Duration
		began := time.Now()
		a := NewReporter(func(context.Context, Published) error {
			told = append(told, time.Since(began))
			return nil
		}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { a.Run(ctx); close(ended) }()
		n := 0
		changes := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); n++ {
				a.Offer(Status{Fleet: fmt.Sprint(n)})
				<-time.After(10 * time.Millisecond) // in the time of the bubble
			}
		}
		changes(400 * time.Millisecond)
		<-time.After(time.Minute)
		changes(400 * time.Millisecond)
		<-time.After(time.Minute)
		const storm = 10 * time.Minute
		changes(storm)
		cancel()
		<-ended
		var first, second, third []time.Duration
		for _, at := range told {
			switch {
			case at < time.Minute:
				first = append(first, at)
			case at < 2*time.Minute:
				second = append(second, at)
			default:
				third = append(third, at)
			}
		}
		for _, some := range [][]time.Duration{first, second} {
			if len(some) != 3 || some[2]-some[0] > 500*time.Millisecond {
				t.Errorf("a change of 0.4 s is told at %v", some)
			}
		}
		if most := int(storm/reportInterval) + reportBurst + 1; len(third) > most || len(third) < most-reportBurst {
			t.Errorf("%d reports in %v of changes, want some %d", len(third), storm, most)
		}
	})
}

// A status fits into a ConfigMap, whatever the number of instances and the length of their messages. The ones
// in trouble are included.
func TestPublishedFits(t *testing.T) {
	t.Parallel()
	random := rand.NewChaCha8([32]byte{1})
	noise := func(n int) string { // n bytes that do not compress well
		data := make([]byte, n)
		_, _ = random.Read(data) // it never fails
		return base64.StdEncoding.EncodeToString(data)[:n]
	}
	for _, c := range []struct {
		instances, text int
		omitted         bool
	}{{1000, 0, false}, {1000, LongestError, false}, {8000, LongestError / 2, true}} {
		t.Run(fmt.Sprintf("%d with %d bytes", c.instances, c.text), func(t *testing.T) {
			s := Status{Conditions: []metav1.Condition{{Type: TypeReady}}}
			for n := range c.instances {
				i := Instance{Name: fmt.Sprintf("haproxy-%05d", n), Reachable: true, Node: noise(20), PID: n, InSync: true}
				if n%4 == 3 || c.instances == 1000 {
					i.InSync, i.Error = false, noise(c.text)
					i.Findings = []preflight.Finding{{Message: noise(c.text / 10)}, {Message: noise(c.text / 10)}}
				}
				s.Instances = append(s.Instances, i)
			}
			p, err := Publish(s, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			if len(p.Status) > largestPublished {
				t.Errorf("it has %d bytes", len(p.Status))
			}
			got, err := Unpack(p.Status)
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Instances)+got.Omitted != c.instances || (got.Omitted > 0) != c.omitted {
				t.Errorf("%d instances are told of, and %d are not", len(got.Instances), got.Omitted)
			}
			healthy := len(slices.DeleteFunc(slices.Clone(got.Instances), func(i Instance) bool { return !i.InSync }))
			if c.omitted && healthy > 0 && len(got.Instances)-healthy < c.instances/4 {
				t.Error("a healthy instance is told of in the place of one in trouble")
			}
		})
	}
	if _, err := Unpack([]byte("half")); err == nil {
		t.Error("what is no status was read as one")
	}
}

// Conditions follow kstatus, and have the time of their last change.
func TestConditions(t *testing.T) {
	t.Parallel()
	newest := snapshots.ID{Revision: 5, Short: "0123456789"}
	status := func(running snapshots.ID, trouble string) Status {
		s := Status{
			Channel:   Channel{Wanted: newest, Newest: newest, Because: channel.BecauseNewest},
			Instances: []Instance{{Name: "edge-1", Reachable: true, Running: running, Error: trouble}},
		}
		return s
	}
	rolling := status(snapshots.ID{}, "")
	rolling.Rollout = &Rollout{Target: newest, Wave: 1, Phase: rollout.Soaking}
	paused := status(newest, "no route to host")
	paused.Channel = Channel{Hold: true, Because: channel.BecausePause, Message: "paused by ann", Newest: newest}
	noon := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	var told []metav1.Condition
	for minute, step := range []struct {
		what   string
		status Status
		want   []string
	}{
		{"nothing is known", Status{Channel: Channel{Hold: true, Message: NotRead}}, []string{"Ready=Unknown NotRead :00", "Progressing=Unknown NotRead :00", "Degraded=Unknown NotRead :00"}},
		{"a rollout", rolling, []string{"Ready=False RollingOut :01", "Progressing=True RollingOut :01", "Degraded=False RollingOut :01"}},
		{"it is done", status(newest, ""), []string{"Ready=True UpToDate :02", "Progressing=False UpToDate :02", "Degraded=False UpToDate :01"}},
		{"still", status(newest, ""), []string{"Ready=True UpToDate :02", "Progressing=False UpToDate :02", "Degraded=False UpToDate :01"}},
		{"an instance fails", status(newest, "no route to host"), []string{"Ready=False InstanceFailed :04", "Progressing=False InstanceFailed :02", "Degraded=True InstanceFailed :04"}},
		{"and is paused", paused, []string{"Ready=False InstanceFailed :04", "Progressing=False Paused :02", "Degraded=False Paused :05"}},
		{"another leads", Status{Standby: true, Channel: Channel{Hold: true}}, []string{"Ready=Unknown Standby :06", "Progressing=Unknown Standby :06", "Degraded=Unknown Standby :06"}},
	} {
		s := step.status.WithConditions(told, noon.Add(time.Duration(minute)*time.Minute))
		told = s.Conditions
		var got []string
		for _, c := range told {
			got = append(got, fmt.Sprintf("%s=%s %s %s", c.Type, c.Status, c.Reason, c.LastTransitionTime.UTC().Format(":04")))
		}
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.what, diff)
		}
	}
}

// An old status is marked as stale.
func TestStaleStatus(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	s := Status{Updated: noon}.WithConditions(nil, noon)
	s.Conditions[0].Status = metav1.ConditionTrue
	if got := s.AsOf(noon.Add(FreshPublished), FreshPublished); got.Stale || got.Ready().Status != metav1.ConditionTrue {
		t.Errorf("a fresh one is %t, %v", got.Stale, got.Ready())
	}
	if got := s.AsOf(noon.Add(FreshPublished+time.Second), FreshPublished); !got.Stale || got.Ready().Status != metav1.ConditionUnknown || got.Ready().Reason != ReasonStale {
		t.Errorf("an old one is %t, %v", got.Stale, got.Ready())
	}
	// A clock that is a little ahead is no fault. Of a status of tomorrow nobody can say whether its pusher runs.
	if got := s.AsOf(noon.Add(-ahead), FreshState); got.Stale {
		t.Errorf("one of a clock that is a little ahead: %v", got.Ready())
	}
	if got := s.AsOf(noon.Add(-ahead-time.Second), FreshState); !got.Stale || !strings.Contains(got.Ready().Message, "in the future") {
		t.Errorf("one of the future is %t, %v", got.Stale, got.Ready())
	}
	if s.Ready().Status != metav1.ConditionTrue {
		t.Error("the status itself was changed")
	}
}
