package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/snapshots"
)

// seen is a store that only lists.
type seen struct {
	store
	ids []snapshots.ID
}

func (s seen) IDs(context.Context) ([]snapshots.ID, error) { return s.ids, nil }

// elsewhere is an election that this process has won.
type elsewhere struct{ alone }

// A leader notices that the store lacks what it published, and compiles again. Nothing else triggers that.
func TestALeaderLooksAtTheHead(t *testing.T) {
	t.Parallel()
	published := backends(1).Number(2, snapshots.ID{})
	ours, others := published.ID(), snapshots.ID{Revision: 3, Short: "9876543210"}
	for name, test := range map[string]struct {
		leader  leader
		head    snapshots.ID
		compile error
		want    bool
	}{
		"what was published":                  {elsewhere{}, ours, nil, false},
		"another":                             {elsewhere{}, others, nil, true},
		"another, and nothing can be done":    {elsewhere{}, others, compiler.ErrTemplates, false},
		"another, and nobody else could lead": {alone{}, others, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLoop(Options{
				Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), Status: &Status{},
				Store: seen{ids: []snapshots.ID{test.head}}, Leader: test.leader,
			})
			l.Status.published(published, nil, time.Now())
			l.Status.compiled(compiler.Result{}, test.compile, time.Now())
			l.elected(t.Context(), time.Now().Add(-2*headInterval))
			l.debounce.begin()
			l.leads = true
			if due(l.verify, time.Now()) {
				l.verifyHead(t.Context())
			}
			if got := !l.debounce.due().IsZero(); got != test.want {
				t.Errorf("compiles again: %v, want %v", got, test.want)
			}
		})
	}
}

// damaged is a store with some whole snapshots. All others are corrupt.
type damaged struct {
	ids   []snapshots.ID
	whole map[snapshots.ID]snapshots.Snapshot
	reads int
	draft snapshots.Draft // the draft that was published last
}

func (s *damaged) IDs(context.Context) ([]snapshots.ID, error) { return s.ids, nil }

func (s *damaged) Get(_ context.Context, id snapshots.ID) (snapshots.Snapshot, error) {
	s.reads++
	if snapshot, ok := s.whole[id]; ok {
		return snapshot, nil
	}
	return snapshots.Snapshot{}, fmt.Errorf("read: %w", snapshots.ErrCorrupt)
}

func (s *damaged) Publish(_ context.Context, d snapshots.Draft) (snapshots.ID, bool, error) {
	s.draft = d
	return snapshots.NewID(d.After.Revision+1, d.Digest()), true, nil
}

// A draft is published after a corrupt snapshot, and compared with the newest readable one. So the guard
// against mass losses still works.
func TestPublishAfterACorruptSnapshot(t *testing.T) {
	t.Parallel()
	good := backends(20).Number(1, snapshots.ID{})
	var corrupt []snapshots.ID
	for n := range uint64(maxCorrupt + 5) {
		corrupt = append(corrupt, snapshots.ID{Revision: n + 2, Short: "9876543210"})
	}
	guard := config.ShrinkGuard{LostPercent: 50, MinLost: 5}
	for name, test := range map[string]struct {
		ids  []snapshots.ID
		left int // how many backends are left
		held bool
	}{
		"corrupt":                {append([]snapshots.ID{good.ID()}, corrupt[0]), 19, false},
		"corrupt, and much lost": {append([]snapshots.ID{good.ID()}, corrupt[:3]...), 3, true},
		"nothing can be read":    {corrupt, 3, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &damaged{ids: test.ids, whole: map[snapshots.ID]snapshots.Snapshot{good.ID(): good}}
			_, published, err := Publish(t.Context(), s, compiler.Result{Draft: backends(test.left)}, guard)
			if _, held := errors.AsType[*ShrinkError](err); held != test.held || published == held {
				t.Fatalf("published %v, %v", published, err)
			}
			if newest := test.ids[len(test.ids)-1]; published && *s.draft.After != newest {
				t.Errorf("it follows %s, want %s", s.draft.After, newest)
			}
			if s.reads > maxCorrupt {
				t.Errorf("%d snapshots were read", s.reads)
			}
		})
	}
}
