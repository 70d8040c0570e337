package kubewatch

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Options say what is watched, and what comes of it. Only Open is required.
type Options struct {
	// Open returns how the objects of a query are listed, and whether the cluster has the
	// kind. Without an error that is certain. It is asked again when the API server does
	// not find the resource.
	Open func(ctx context.Context, q Query) (resource Resource, found bool, err error)
	// Convert returns the function that makes what is kept of the objects of a query. What
	// that function made it returns as it is. With an error the object is held as it was,
	// if it was known.
	Convert func(q Query) func(object any) (any, error)
	// Equal reports whether two versions of an object are the same to the caller.
	Equal func(a, b metav1.Object) bool
	// Handle takes in what happens to objects, and then the Set holds no objects, but
	// their names. It is called while the Set is locked, and must not call it.
	Handle func(Event)
	// Stands is called when a query may stand otherwise than before, or when the plan
	// changed, while the Set is locked. It must not call the Set.
	Stands func()
	// Ended is called when Run ends and nothing is known any more, while the Set is locked.
	// It must not call the Set.
	Ended func()
}

// Event is what happened to an object.
type Event struct {
	Query Query
	Name  types.NamespacedName
	// Object is nil if the object is gone, or is not wanted any more.
	Object metav1.Object
	// Missing: it is gone since a list came without it. Nobody said that it was deleted.
	Missing bool
	// At is when the API server said so. It is zero where nothing happened to the object:
	// the first list has it, or nobody wants it any more.
	At time.Time
}

// QueryState says how far the watch of a query has come.
type QueryState struct {
	Query Query
	// Synced: all objects were known once.
	Synced bool
	// Absent: the cluster does not know the kind, for certain, or did not when it answered
	// last.
	Absent bool
	// Err is why nothing new is known, since Since; nil while the watch goes on.
	Err   error
	Since time.Time
	// Count is how many objects are known, and Objects which, if nobody handles them. They
	// are as Convert returned them, and not to be changed.
	Count   int
	Objects map[types.NamespacedName]metav1.Object
}

// Forbidden reports whether the query may not be read at present.
func (s QueryState) Forbidden() bool { return apierrors.IsForbidden(s.Err) }

// Trouble returns Err, unless it only says that the cluster does not know an optional kind.
func (s QueryState) Trouble() error {
	if _, unknown := errors.AsType[unknownError](s.Err); unknown && s.Query.Optional {
		return nil
	}
	return s.Err
}

// Set is the watches of a plan. Nothing is known until [Set.Plan] says what to watch and
// [Set.Run] runs. Its methods may be called at the same time.
type Set struct {
	options Options
	changed chan struct{}
	replan  chan struct{}

	mu      sync.Mutex
	planned []Query // sorted; nil until there is a plan
	watches map[Query]*watcher
}

// New returns a Set without a plan.
func New(o Options) *Set {
	return &Set{options: o, changed: make(chan struct{}, 1), replan: make(chan struct{}, 1), watches: map[Query]*watcher{}}
}

// Plan says what is watched from now on, in place of what was said before, and reports
// whether that has anything that was not watched. What is not planned any more is
// forgotten.
func (s *Set) Plan(queries []Query) (added bool) {
	planned := slices.SortedFunc(slices.Values(queries), Query.Compare)
	planned = append([]Query{}, slices.Compact(planned)...)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.planned != nil && slices.Equal(planned, s.planned) {
		return false
	}
	for q, w := range s.watches {
		if _, found := slices.BinarySearchFunc(planned, q, Query.Compare); !found {
			delete(s.watches, q)
			w.end()
		}
	}
	for _, q := range planned {
		if s.watches[q] == nil {
			s.watches[q] = newWatcher(s, q)
			added = true
		}
	}
	s.planned = planned
	s.stands()
	Signal(s.replan)
	return added
}

// Run watches what is planned, until ctx is done. Then nothing is known any more, and
// nothing is planned; the Set may run again.
func (s *Set) Run(ctx context.Context, log *slog.Logger) {
	ctx, stop := context.WithCancel(ctx)
	defer s.forget()
	defer stop()
	for {
		for _, begin := range s.begin(ctx, log) {
			// It is not waited for: between two tries of a list a reflector does not look
			// whether it is to end.
			go begin()
		}
		select {
		case <-ctx.Done():
			return
		case <-s.replan:
		}
	}
}

// begin returns what begins the watches that were planned and do not run yet.
func (s *Set) begin(ctx context.Context, log *slog.Logger) []func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []func()
	patience := patience(len(s.planned))
	for _, q := range s.planned {
		if w := s.watches[q]; w.stop == nil {
			var following context.Context
			following, w.stop = context.WithCancel(ctx)
			out = append(out, func() { w.run(following, patience, log) })
		}
	}
	return out
}

// forget makes the Set one that was never planned. Objects are forgotten without events.
func (s *Set) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.watches {
		w.ended = true // the API server may still answer
	}
	if s.planned, s.watches = nil, map[Query]*watcher{}; s.options.Ended != nil {
		s.options.Ended()
	}
}

// Changes sends when objects changed, or when how a query stands that was not synced.
func (s *Set) Changes() <-chan struct{} { return s.changed }

// Read calls use with how the queries stand, in the order of the plan. Nothing changes
// until it returns; it must not call the Set.
func (s *Set) Read(use func([]QueryState)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]QueryState, 0, len(s.planned))
	for _, q := range s.planned {
		out = append(out, s.watches[q].state())
	}
	use(out)
}

func (s *Set) stands() {
	if s.options.Stands != nil {
		s.options.Stands()
	}
}

// Signal sends without waiting: one signal on its way stands for all.
func Signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
