package compiler

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hapsnap/hapsnap/snapshots"
)

// seen is a store of which only the list is looked at.
type seen struct {
	store
	ids []snapshots.ID
}

func (s seen) IDs(context.Context) ([]snapshots.ID, error) { return s.ids, nil }

// elsewhere is an election that this process has won.
type elsewhere struct{ alone }

// A leader notices that the store does not hold what it published, and then
// compiles again; nothing else makes it do so.
func TestALeaderLooksAtTheHead(t *testing.T) {
	t.Parallel()
	published := backends(1).Seal(2, snapshots.ID{})
	ours, others := published.ID(), snapshots.ID{Revision: 3, Short: "9876543210"}
	for name, test := range map[string]struct {
		leader  leader
		head    snapshots.ID
		compile error
		want    bool
	}{
		"what was published":                  {elsewhere{}, ours, nil, false},
		"another":                             {elsewhere{}, others, nil, true},
		"another, and nothing can be done":    {elsewhere{}, others, ErrTemplates, false},
		"another, and nobody else could lead": {alone{}, others, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLoop(Options{
				Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), Status: &Status{},
				Store: seen{ids: []snapshots.ID{test.head}}, Leader: test.leader,
			})
			l.Status.published(published, nil, time.Now())
			l.Status.compiled(nil, test.compile, time.Now())
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
