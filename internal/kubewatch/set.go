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

// Options say how objects are listed, converted and handed on. Only Open is required.
type Options struct {
	// Open returns how the objects of a query are listed, and whether the cluster has the kind. If it
	// returns no error, its answer is final, until the API server does not find the resource.
	Open func(ctx context.Context, q Query) (resource Resource, found bool, err error)
	// Convert returns the function that makes what is kept of an object of the query. The function must
	// return its own results unchanged. If it returns an error, the object is held as it was, if it was
	// known.
	Convert func(q Query) func(object any) (any, error)
	// Equal reports whether two versions of an object are the same to the caller.
	Equal func(a, b metav1.Object) bool
	// Handle receives what happens to objects. With it, the Set keeps only the names of objects. It is
	// called while the Set is locked, and must not call the Set.
	Handle func(Event)
	// Stands is called when the state of a query may have changed, or the plan has. It is called while
	// the Set is locked, and must not call the Set.
	Stands func()
	// Ended is called when Run ends and everything is forgotten. It is called while the Set is locked,
	// and must not call the Set.
	Ended func()
}

// Event is what happened to an object.
type Event struct {
	Query Query
	Name  types.NamespacedName
	// Object is nil if the object is gone, or no query wants it any more.
	Object metav1.Object
	// Missing says that the object was not in a list. The API server did not say that it was deleted.
	Missing bool
	// At is when the API server said so. It is zero where nothing happened to the object: the first
	// list has it, or no query wants it any more.
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
	// Err says why nothing new has been known since the time Since. It is nil while the watch goes on.
	Err   error
	Since time.Time
	// Count is how many objects are known. Objects holds them if no Handle takes them. They are as
	// Convert returned them, and must not be changed.
	Count   int
	Objects map[types.NamespacedName]metav1.Object
}

// Forbidden reports whether the API server refuses to let the query be read.
func (s QueryState) Forbidden() bool { return apierrors.IsForbidden(s.Err) }

// Trouble returns Err, unless it only says that the cluster does not know an optional kind.
func (s QueryState) Trouble() error {
	if _, unknown := errors.AsType[unknownError](s.Err); unknown && s.Query.Optional {
		return nil
	}
	return s.Err
}

// Set watches the objects of a plan. It knows nothing until [Set.Plan] gives it a plan and [Set.Run]
// runs. Its methods may be called at the same time.
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

// Plan replaces the plan, and reports whether the new one has a query that was not watched. The objects
// of queries that are not in it are forgotten.
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

// Run watches what is planned, until ctx is done. Then the Set forgets everything, its plan included,
// and may run again.
func (s *Set) Run(ctx context.Context, log *slog.Logger) {
	ctx, stop := context.WithCancel(ctx)
	defer s.forget()
	defer stop()
	for {
		for _, begin := range s.begin(ctx, log) {
			// Run does not wait for it: between two tries of a list a reflector does not check whether
			// it has to end.
			go begin()
		}
		select {
		case <-ctx.Done():
			return
		case <-s.replan:
		}
	}
}

// begin returns a function that begins the watches which were planned and do not run yet.
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

// forget puts the Set back into the state before its first plan. Objects are forgotten without events.
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

// Changes sends when objects changed, or when the state of a query that was not synced changed.
func (s *Set) Changes() <-chan struct{} { return s.changed }

// Read calls use with the states of the queries, in the order of the plan. Nothing changes until use
// returns; it must not call the Set.
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

// Signal sends without waiting: one signal that was not received yet stands for all.
func Signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
