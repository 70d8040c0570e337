package ui

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// The pace at which the store is read while somebody looks, and how long that may take.
const (
	listingAge  = 3 * time.Second
	readTimeout = 30 * time.Second
	// patience is how long a page waits for a store that has said nothing yet.
	patience = 10 * time.Second
)

// keptManifests and keptSnapshots are how many are kept in memory, of which nobody can change one.
const (
	keptManifests = 2000
	keptSnapshots = 8
)

// archive reads the store for all viewers: once, however many look, and one thing at a time. What
// was read before is there while the store is slow or gone.
type archive struct {
	store   Store
	ctx     context.Context //nolint:containedctx // of the server, for reads that outlive who asked
	changed func()          // called when there is something new
	turn    chan struct{}   // held by who reads
	jobs    sync.WaitGroup  // reads that have not ended

	mu        sync.Mutex
	last      listing
	reading   chan struct{} // closed when the reading ends that is under way, nil for none
	asked     time.Time     // when the last reading ended
	wanted    snapshots.ID  // whose manifest is being read for the header
	manifests *memory[snapshots.ID, snapshots.Manifest]
	contents  *memory[snapshots.ID, snapshots.Snapshot]
	tables    *memory[snapshots.ID, readSnapshot]
	compared  *memory[[2]snapshots.ID, compared]
	touches   *memory[snapshots.ID, touch]
	commits   *memory[snapshots.ID, string]
	comparing chan struct{} // held by who compares
	tabling   bool          // routes are being read that nobody waits for
	tabled    time.Time     // when that ended last
}

func newArchive(ctx context.Context, store Store, changed func()) *archive {
	return &archive{
		store: store, ctx: ctx, changed: changed, turn: make(chan struct{}, 1),
		manifests: newMemory[snapshots.ID, snapshots.Manifest](keptManifests), contents: newMemory[snapshots.ID, snapshots.Snapshot](keptSnapshots),
		tables:   newMemory[snapshots.ID, readSnapshot](keptTables),
		compared: newMemory[[2]snapshots.ID, compared](keptSnapshots), touches: newMemory[snapshots.ID, touch](5 * mostSearched),
		commits: newMemory[snapshots.ID, string](keptManifests), comparing: make(chan struct{}, 1),
	}
}

// listing is what a store says: its snapshots, its channel and its journal.
type listing struct {
	view    channel.View
	journal []channel.Entry
	at      time.Time // of the last time that it could be read, zero for never
	err     error     // of the last time, nil if it could be read then
	failing time.Time // since when it cannot be read
}

// ReadAt is when it was read, and Failing since when it cannot be.
func (l listing) ReadAt() time.Time  { return l.at }
func (l listing) Failing() time.Time { return l.failing }

// errNoStore is the error where there is none.
var errNoStore = errors.New("no store is named")

// errNoAnswer is the error of a store that is slow.
var errNoAnswer = errors.New("the store has not answered yet")

// errNotRead is the error of what nobody has read yet, for who waits for no store.
var errNotRead = errors.New("it was not read yet")

// nowait is the key of a context for who takes what is known, and waits for no store.
type nowait struct{}

// listing returns what the store says, or said last: then err is set. It begins to read it anew where
// that is old, and waits for that only if nothing is known yet.
func (a *archive) listing(ctx context.Context) listing {
	if a.store == nil {
		return listing{err: errNoStore}
	}
	a.mu.Lock()
	if a.reading == nil && time.Since(a.asked) > listingAge {
		done := make(chan struct{})
		a.reading = done
		a.jobs.Go(func() { a.read(done) })
	}
	last, reading := a.last, a.reading
	a.mu.Unlock()
	if reading == nil || !last.at.IsZero() || last.err != nil || ctx.Value(nowait{}) != nil {
		return last
	}
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case <-reading:
	case <-ctx.Done():
		return listing{err: errNoAnswer}
	case <-timeout.C:
		return listing{err: errNoAnswer}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last
}

// read reads the store once.
func (a *archive) read(done chan struct{}) {
	ctx, cancel := context.WithTimeout(a.ctx, readTimeout)
	defer cancel()
	next, err := a.readListing(ctx)
	if err == nil {
		a.prefetch(ctx, next.view.IDs)
	}
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		next = a.last
		if next.err = err; next.failing.IsZero() {
			next.failing = now
		}
	} else {
		next.at = now
	}
	other := (next.err == nil) != (a.last.err == nil) || next.view.Head() != a.last.view.Head() || next.view.Seen != a.last.view.Seen ||
		a.last.at.IsZero() || !slices.Equal(tail(next.journal), tail(a.last.journal))
	a.last, a.reading, a.asked = next, nil, now
	close(done)
	if other {
		a.changed()
	}
}

// tail is the last entry of a journal, which has another one after each act and turn.
func tail(journal []channel.Entry) []channel.Entry { return journal[max(0, len(journal)-1):] }

func (a *archive) readListing(ctx context.Context) (out listing, err error) {
	if err := a.begin(ctx); err != nil {
		return out, err
	}
	defer a.end()
	if out.view, err = a.store.View(ctx); err != nil {
		return out, err
	}
	out.journal, err = a.store.Journal(ctx)
	return out, err
}

// newest is how many manifests are read before somebody asks: those of the first page.
const newest = 20

// prefetch reads the manifests of the newest snapshots, so that the renderer finds them in memory.
func (a *archive) prefetch(ctx context.Context, ids []snapshots.ID) {
	for _, id := range slices.Backward(ids[max(0, len(ids)-newest):]) {
		_, _ = a.manifest(ctx, id) // who looks at it is told
	}
}

// begin waits for the turn to read.
func (a *archive) begin(ctx context.Context) error {
	select {
	case a.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return errors.New("the store is busy, or does not answer")
	}
}

func (a *archive) end() { <-a.turn }

// manifest returns that of a snapshot.
func (a *archive) manifest(ctx context.Context, id snapshots.ID) (snapshots.Manifest, error) {
	return kept(ctx, a, a.manifests, id, func(ctx context.Context) (snapshots.Manifest, error) {
		m, err := a.store.Manifest(ctx, id)
		m.Provenance.Inputs = nil // there may be thousands, and nobody is shown them
		return m, err
	})
}

// known returns the manifest of a snapshot if it is in memory. Else it begins to read it, for the next time.
func (a *archive) known(id snapshots.ID) (snapshots.Manifest, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	m, ok := a.manifests.get(id)
	if !ok && a.store != nil && !id.IsZero() && a.wanted != id {
		a.wanted = id
		a.jobs.Go(func() {
			ctx, cancel := context.WithTimeout(a.ctx, readTimeout)
			defer cancel()
			_, err := a.manifest(ctx, id)
			a.mu.Lock()
			a.wanted = snapshots.ID{}
			a.mu.Unlock()
			if err == nil {
				a.changed()
			}
		})
	}
	return m, ok
}

// snapshot returns a snapshot.
func (a *archive) snapshot(ctx context.Context, id snapshots.ID) (snapshots.Snapshot, error) {
	return kept(ctx, a, a.contents, id, func(ctx context.Context) (snapshots.Snapshot, error) { return a.store.Get(ctx, id) })
}

// kept returns what is kept under a key, or reads and keeps it.
func kept[V any](ctx context.Context, a *archive, in *memory[snapshots.ID, V], id snapshots.ID, read func(context.Context) (V, error)) (V, error) {
	v, ok := in.get(id)
	switch {
	case ok:
		return v, nil
	case a.store == nil:
		return v, errNoStore
	case ctx.Value(nowait{}) != nil:
		return v, errNotRead
	}
	if err := a.begin(ctx); err != nil {
		return v, err
	}
	defer a.end()
	if v, ok := in.get(id); ok { // somebody else read it meanwhile
		return v, nil
	}
	v, err := read(ctx)
	if err == nil {
		in.put(id, v)
	}
	return v, err
}

// memory keeps the last values that were put into it or asked for. It may be used by several goroutines.
type memory[K comparable, V any] struct {
	most int

	mu     sync.Mutex
	clock  int
	values map[K]*remembered[V]
}

type remembered[V any] struct {
	value V
	used  int
}

func newMemory[K comparable, V any](most int) *memory[K, V] {
	return &memory[K, V]{most: most, values: map[K]*remembered[V]{}}
}

func (m *memory[K, V]) get(k K) (V, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clock++
	r, ok := m.values[k]
	if !ok {
		var none V
		return none, false
	}
	r.used = m.clock
	return r.value, true
}

func (m *memory[K, V]) put(k K, v V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clock++
	m.values[k] = &remembered[V]{v, m.clock}
	if len(m.values) <= m.most {
		return
	}
	var oldest K
	least := m.clock + 1
	for k, r := range m.values {
		if r.used < least {
			oldest, least = k, r.used
		}
	}
	delete(m.values, oldest)
}
