package pusher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// slowJournal is a journal that can be broken or hang.
type slowJournal struct {
	mu     sync.Mutex
	err    error
	hangs  bool
	writes []channel.Entry
}

func (j *slowJournal) Record(ctx context.Context, _ time.Time, entries ...channel.Entry) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.hangs {
		j.mu.Unlock()
		<-ctx.Done()
		j.mu.Lock()
		return ctx.Err()
	}
	if j.err == nil {
		j.writes = append(j.writes, entries...)
	}
	return j.err
}

func (j *slowJournal) set(err error, hangs bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.err, j.hangs = err, hangs
}

// The journal gets entries about a rollout, and about no other events.
func TestTurns(t *testing.T) {
	t.Parallel()
	one, two := snapshots.ID{Revision: 1, Short: "aaaaaaaaaa"}, snapshots.ID{Revision: 2, Short: "bbbbbbbbbb"}
	at := func(phase rollout.Phase, wave int, members ...string) *rollout.Rollout {
		return &rollout.Rollout{Target: two, Phase: phase, Wave: wave, Members: members}
	}
	var got []string
	states := []rollout.State{
		{Good: one}, {Good: one, Rollout: at("pushing", 0, "a")}, {Good: one, Rollout: at("soaking", 0, "a")}, {Good: one, Rollout: at("pushing", 1, "b", "c")}, {Good: two},
	}
	for n := range states[1:] {
		for _, event := range observe.RolloutEvents(states[n], states[n+1]) {
			if e, ok := entryOf(event); ok {
				got = append(got, fmt.Sprintf("%s %s: %s", e.Verb, e.Snapshot, e.Text))
			}
		}
	}
	want := []string{
		"began " + two.String() + ": rollout of " + two.String() + " begins", "wave " + two.String() + ": wave 1: a (" + two.String() + ")",
		"wave " + two.String() + ": wave 2: b, c (" + two.String() + ")",
		"done " + two.String() + ": the fleet runs " + two.String(),
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the entries are\n%s", strings.Join(got, "\n"))
	}
	if _, ok := entryOf(observe.RepairsGoOn("a")); ok {
		t.Error("a repair is a turn")
	}
}

// A journal that hangs or fails delays nothing. It gets the missed entries later, as far as there
// is room. The rest is counted and logged.
func TestJournalThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		journal := &slowJournal{hangs: true}
		r := newRecorder(Options{Journal: journal, Log: slog.New(slog.NewTextHandler(&log, nil)), Metrics: prometheus.NewRegistry()}, "file:x")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { r.run(ctx); close(ended) }()
		note := func(n int) {
			r.note([]observe.TimedFact{{Fact: observe.Event{Reason: "RolloutDone", Text: fmt.Sprint(n)}, At: time.Now()}}, "edge")
		}
		note(0)
		synctest.Wait()
		const more = 3 * journalQueue
		for n := range more {
			note(n + 1) // this call would hang
		}
		<-time.After(2 * journalTimeout)
		journal.set(errors.New("forbidden"), false)
		<-time.After(2 * journalRetries)
		journal.set(nil, false)
		<-time.After(2 * journalRetries)
		synctest.Wait()
		kept := len(journal.writes)
		if dropped := int(testutil.ToFloat64(r.total)); dropped == 0 || kept+dropped != more+1 || kept < journalQueue {
			t.Errorf("%d entries were kept, %d dropped", kept, dropped)
		}
		for n, e := range journal.writes {
			if e.Text != fmt.Sprint(n) || e.Verb != channel.TurnDone || !e.Turn || e.Fleet != "edge" || e.From != "file:x" {
				t.Fatalf("turn %d is %+v", n, e)
			}
		}
		for _, line := range []string{"cannot write the journal of rollouts, trying again", "the journal of rollouts is written again", "the store did not take them in time"} {
			if strings.Count(log.String(), line) != 1 {
				t.Errorf("not once %q in\n%s", line, log.String())
			}
		}
		note(-1)
		cancel()
		<-ended
		if last := journal.writes[len(journal.writes)-1]; last.Text != "-1" {
			t.Errorf("the last turn is %+v", last)
		}
	})
}
