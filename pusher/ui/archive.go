package ui

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/request"
	"github.com/hapsnap/hapsnap/snapshots/routetable"
)

// listingAge is how old the listing of the store may get while somebody looks. readTimeout bounds one reading.
const (
	listingAge  = 3 * time.Second
	readTimeout = 30 * time.Second
	// patience is how long a page waits for the first answer of the store.
	patience = 10 * time.Second
)

// What is kept in memory, of which nobody can change anything, in bytes, and how much of it whatever it takes. A
// manifest of 10,000 certificates takes 8 MB, a snapshot may have 256 MB, and the fleet depends on the program.
const (
	keptManifests, leastManifests = 32 << 20, 2 * newest // without their certificates
	keptWhole, leastWhole         = 32 << 20, 2          // manifests with them
	keptContents, leastContents   = 64 << 20, 2
)

// keptCommits and keptComparisons are how many are kept of these.
const (
	keptCommits     = 2000
	keptComparisons = 8
)

// archive reads the store for all viewers. It reads a thing once, however many viewers look, and one thing at a time.
// While the store is slow or gone, it returns what it read before.
type archive struct {
	store   Store
	ctx     context.Context //nolint:containedctx // of the server: a reading goes on when its viewer has left
	changed func()          // called when there is something new
	turn    chan struct{}   // held during a reading
	jobs    sync.WaitGroup  // reads that have not ended

	mu        sync.Mutex
	last      listing
	reading   chan struct{}                             // closed when the reading ends that is under way, nil for none
	asked     time.Time                                 // when the last reading ended
	manifests *memory[snapshots.ID, snapshots.Manifest] // without certificates
	whole     *memory[snapshots.ID, snapshots.Manifest]
	contents  *memory[snapshots.ID, snapshots.Snapshot]
	tables    *memory[snapshots.ID, readSnapshot]
	compared  *memory[[2]snapshots.ID, compared]
	touches   *memory[snapshots.ID, touch]
	commits   *memory[snapshots.ID, string]
	comparing chan struct{} // held during a comparison
	awaited   map[any]*awaited
	tabling   chan time.Time // holds the time of the last readRoutes; empty while one runs
}

// awaited is a reading in the background, for callers that do not wait.
type awaited struct {
	underWay bool
	ended    time.Time // when the last reading ended
	err      error     // of the last reading
}

func newArchive(ctx context.Context, store Store, changed func()) *archive {
	a := &archive{
		store: store, ctx: ctx, changed: changed, turn: make(chan struct{}, 1),
		manifests: newSizedMemory[snapshots.ID](keptManifests, leastManifests, sizeOfManifest), whole: newSizedMemory[snapshots.ID](keptWhole, leastWhole, sizeOfManifest),
		contents: newSizedMemory[snapshots.ID](keptContents, leastContents, func(s snapshots.Snapshot) int { return sizeOfManifest(s.Manifest) + sizeOfFiles(s.Files) }),
		tables:   newSizedMemory[snapshots.ID](keptTables, leastTables, readSnapshot.size),
		compared: newMemory[[2]snapshots.ID, compared](keptComparisons), touches: newMemory[snapshots.ID, touch](5 * mostSearched),
		commits: newMemory[snapshots.ID, string](keptCommits), comparing: make(chan struct{}, 1),
		awaited: map[any]*awaited{}, tabling: make(chan time.Time, 1),
	}
	a.tabling <- time.Time{}
	return a
}

// listing is what a store says: its snapshots, its channel and its journal.
type listing struct {
	view    channel.View
	journal []channel.Entry
	at      time.Time // of the last successful reading; zero if there was none
	err     error     // of the last reading; nil if it succeeded
	failing time.Time // since when readings fail
}

// ReadAt is the time of the last successful reading, and Failing since when readings fail.
func (l listing) ReadAt() time.Time  { return l.at }
func (l listing) Failing() time.Time { return l.failing }

// errNoStore is the error if no store is configured.
var errNoStore = errors.New("no store is named")

// errNoAnswer is the error if the store is slow.
var errNoAnswer = errors.New("the store has not answered yet")

// errNotRead tells a caller that does not wait that its answer was not read yet.
var errNotRead = errors.New(report.NotRead)

// nowait is the key of a context whose caller takes what is in memory and does not wait for the store.
type nowait struct{}

// listing returns what the store says. If the last reading failed, it returns the reading before, and sets err. If
// the listing is older than [listingAge], it begins a new reading. It waits for that only if nothing was read yet.
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
	switch {
	case reading == nil || !last.at.IsZero() || last.err != nil:
		return last
	case ctx.Value(nowait{}) != nil:
		return listing{err: errNotRead}
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
		// The renderer does not wait for manifests, so those of the newest snapshots are read in advance.
		for _, id := range slices.Backward(next.view.IDs[max(0, len(next.view.IDs)-newest):]) {
			_, _ = a.manifest(ctx, id) // a page that shows the manifest reports the error
		}
	}
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case err == nil:
	case next.at.IsZero():
		next = a.last
	default: // all but the journal is known
		next.journal, next.failing = a.last.journal, a.last.failing
	}
	if next.err = err; err != nil && next.failing.IsZero() {
		next.failing = now
	}
	other := (next.err == nil) != (a.last.err == nil) || next.view.Head() != a.last.view.Head() || next.view.Seen != a.last.view.Seen ||
		a.last.at.IsZero() || !slices.Equal(tail(next.journal), tail(a.last.journal))
	a.last, a.reading, a.asked = next, nil, now
	close(done)
	if other {
		a.changed()
	}
}

// tail returns the last entry of a journal. Each act and each turn appends an entry, so two journals with the same
// last entry are the same.
func tail(journal []channel.Entry) []channel.Entry { return journal[max(0, len(journal)-1):] }

// readListing returns what the store says. Without the journal, it returns the rest with an error.
func (a *archive) readListing(ctx context.Context) (out listing, err error) {
	if err := a.begin(ctx); err != nil {
		return out, err
	}
	defer a.end()
	if out.view, err = a.store.View(ctx); err != nil {
		return out, err
	}
	out.at = time.Now()
	out.journal, err = a.store.Journal(ctx)
	return out, err
}

// newest is how many manifests are read in advance: those of the first page.
const newest = 20

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

// manifest returns that of a snapshot, without its certificates.
func (a *archive) manifest(ctx context.Context, id snapshots.ID) (snapshots.Manifest, error) {
	return kept(ctx, a, a.manifests, id, func(ctx context.Context) (snapshots.Manifest, error) {
		m, err := a.readManifest(ctx, id)
		m.Spec.Certificates = nil
		return m, err
	})
}

func (a *archive) readManifest(ctx context.Context, id snapshots.ID) (snapshots.Manifest, error) {
	m, err := a.store.Manifest(ctx, id)
	m.Provenance.Inputs = nil // there may be thousands, and nobody is shown them
	return m, err
}

// manifestOf returns the manifest of a snapshot that a page is about. For a caller that does not wait, it begins to
// read the manifest for the next time.
func (a *archive) manifestOf(ctx context.Context, id snapshots.ID) (snapshots.Manifest, error) {
	read := func(ctx context.Context) (snapshots.Manifest, error) {
		return kept(ctx, a, a.whole, id, func(ctx context.Context) (snapshots.Manifest, error) { return a.readManifest(ctx, id) })
	}
	m, err := read(ctx)
	if errors.Is(err, errNotRead) {
		type manifestOf snapshots.ID
		err = a.later(manifestOf(id), func(ctx context.Context) error {
			_, err := read(ctx)
			return err
		})
	}
	return m, err
}

// sizeOfManifest is about how many bytes a manifest takes.
func sizeOfManifest(m snapshots.Manifest) int {
	const least, ofCertificate, ofFile, ofObject = 2 << 10, 800, 200, 400
	return least + ofCertificate*len(m.Spec.Certificates) + ofFile*len(m.Spec.Files) + ofObject*(len(m.Spec.Quarantined)+len(m.Provenance.Inputs))
}

func sizeOfFiles(files []snapshots.File) int {
	sum := 0
	for _, f := range files {
		sum += len(f.Content)
	}
	return sum
}

// mostAwaited is how many reads for callers that do not wait are remembered.
const mostAwaited = 1000

// later reads something in the background for a caller that does not wait, and calls changed at the end. It returns
// [errNotRead], or the error of the last reading. It waits at least [listingAge] between two readings of the same
// thing.
func (a *archive) later(of any, read func(ctx context.Context) error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	w, known := a.awaited[of]
	if !known {
		if len(a.awaited) >= mostAwaited {
			maps.DeleteFunc(a.awaited, func(_ any, w *awaited) bool { return !w.underWay })
		}
		w = &awaited{err: errNotRead}
		a.awaited[of] = w
	}
	if w.underWay || time.Since(w.ended) < listingAge { // the renderer asks again
		return w.err
	}
	w.underWay = true
	a.jobs.Go(func() {
		ctx, cancel := context.WithTimeout(a.ctx, readTimeout)
		defer cancel()
		err := read(ctx)
		a.mu.Lock()
		if w.underWay, w.ended, w.err = false, time.Now(), err; err == nil {
			w.err = errNotRead // the next caller finds it in memory, unless other values displaced it
		}
		a.mu.Unlock()
		a.changed()
	})
	return w.err
}

// withoutWaiting returns a context for callers that take what is in memory, and do not wait.
func withoutWaiting() context.Context { return context.WithValue(context.Background(), nowait{}, true) }

func (a *archive) snapshot(ctx context.Context, id snapshots.ID) (snapshots.Snapshot, error) {
	return kept(ctx, a, a.contents, id, func(ctx context.Context) (snapshots.Snapshot, error) { return a.store.Get(ctx, id) })
}

// kept returns the value of a snapshot from memory. If it is not there, it reads the value and remembers it.
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
	if v, ok := in.get(id); ok { // another goroutine read it meanwhile
		return v, nil
	}
	v, err := read(ctx)
	if err == nil {
		in.put(id, v)
	}
	return v, err
}

// memory is a cache of the values that were used last. Several goroutines may use it.
type memory[K comparable, V any] struct {
	most  int // of the sizes of all
	least int // values that are kept, whatever their sizes are
	size  func(V) int

	mu     sync.Mutex
	clock  int
	sizes  int // of all
	values map[K]*remembered[V]
}

type remembered[V any] struct {
	value V
	size  int
	used  int
}

func newMemory[K comparable, V any](most int) *memory[K, V] {
	return newSizedMemory[K](most, 0, func(V) int { return 1 })
}

func newSizedMemory[K comparable, V any](most, least int, size func(V) int) *memory[K, V] {
	return &memory[K, V]{most: most, least: least, size: size, values: map[K]*remembered[V]{}}
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
	size := m.size(v)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clock++
	if r, ok := m.values[k]; ok {
		m.sizes -= r.size
	}
	m.values[k] = &remembered[V]{v, size, m.clock}
	for m.sizes += size; m.sizes > m.most && len(m.values) > m.least; {
		var oldest K
		least := m.clock + 1
		for k, r := range m.values {
			if r.used < least {
				oldest, least = k, r.used
			}
		}
		m.sizes -= m.values[oldest].size
		delete(m.values, oldest)
	}
}

// chosen is the snapshot that a page shows, and why the page shows that one.
type chosen struct {
	ID      snapshots.ID `json:"snapshot"`
	Because string       `json:"because"`
	// Now is set if the fleet runs the snapshot. Then live data about servers applies to it.
	Now bool `json:"now"`
}

// choose returns the snapshot that a text names: a name such as r12, "newest", "running", or a time. Without a text
// it returns the snapshot that the fleet runs.
func choose(ctx context.Context, q query, text string) (chosen, error) {
	l := q.archive.listing(ctx)
	if len(l.view.IDs) == 0 {
		if l.err != nil {
			return chosen{}, l.err
		}
		return chosen{}, notFound("The store holds no snapshot yet.", "The compiler publishes the first one.")
	}
	text = strings.TrimSpace(text)
	switch runs := q.runs(l); {
	case text == "" || text == "running":
		switch good := q.fleet.Status.Good; good {
		case snapshots.ID{}:
			return chosen{runs, "the newest; what the fleet runs is not known", true}, nil
		case runs:
			return chosen{runs, "which the fleet runs", true}, nil
		default:
			return chosen{runs, "the newest; the store does not hold " + short(good) + " any more, which the fleet runs", false}, nil
		}
	case text == snapshots.Newest || text == "newest":
		return chosen{l.view.Head(), "the newest", l.view.Head() == runs}, nil
	case snapshots.IsName(text):
		id, ok := snapshots.FindID(l.view.IDs, text)
		if !ok {
			return chosen{}, notFound("The store has no snapshot "+text+".", fmt.Sprintf("It has those from %s to %s.", short(l.view.IDs[0]), short(l.view.Head())))
		}
		return chosen{id, "as you asked", id == runs}, nil
	}
	// The text is a time. The journal says what ran then; without an entry, it is the newest snapshot of that time.
	at, err := process.ParseTime(text, q.now.UTC())
	if err != nil {
		return chosen{}, problem{http.StatusBadRequest, fmt.Sprintf("%q is neither a snapshot nor a time: %v.", text, err), "Write r12, or a time in UTC such as yesterday 14:03."}
	}
	running := channel.RunningAt(l.journal, at)
	fleet := q.fleet.Status.Fleet
	if _, known := running[fleet]; !known && len(running) == 1 {
		fleet = slices.Collect(maps.Keys(running))[0]
	}
	ran := running[fleet]
	switch {
	case ran.Snapshot.IsZero():
		return newestThen(ctx, q, l, at)
	case !slices.Contains(l.view.IDs, ran.Snapshot):
		return chosen{}, notFound(fmt.Sprintf("The fleet ran %s then, and the store does not hold it any more.", short(ran.Snapshot)), "Its oldest one is "+short(l.view.IDs[0])+".")
	}
	because := "which the fleet ran at " + at.Format(time.RFC3339)
	if !ran.Next.IsZero() {
		because += "; a rollout of " + short(ran.Next) + " was under way, so some instances ran that"
	}
	return chosen{ran.Snapshot, because, false}, nil
}

// chooseManifest returns the snapshot that the query names, with its manifest.
func chooseManifest(ctx context.Context, q query) (chosen, snapshots.Manifest, error) {
	of, err := choose(ctx, q, q.values.Get("snapshot"))
	if err != nil {
		return of, snapshots.Manifest{}, err
	}
	m, err := q.archive.manifestOf(ctx, of.ID)
	return of, m, err
}

// newestThen returns the newest snapshot that was published by a time. The IDs are in the order of publishing.
func newestThen(ctx context.Context, q query, l listing, at time.Time) (chosen, error) {
	var failed error
	n := sort.Search(len(l.view.IDs), func(i int) bool {
		m, err := q.archive.manifest(ctx, l.view.IDs[i])
		failed = errors.Join(failed, err)
		return m.Provenance.Time.After(at)
	})
	switch {
	case failed != nil:
		return chosen{}, failed
	case n == 0:
		return chosen{}, notFound("The store holds no snapshot from before "+at.Format(time.RFC3339)+".", "Its oldest one is "+short(l.view.IDs[0])+".")
	}
	return chosen{l.view.IDs[n-1], "the newest that was published by " + at.Format(time.RFC3339) + "; the journal does not say what ran", false}, nil
}

// readSnapshot is a snapshot with the routes that were read from it.
type readSnapshot struct {
	snapshots.Snapshot
	table    *routetable.Table
	requests *request.Reader
	recorded map[snapshots.ServicePort][]snapshots.Endpoint // from the file of recorded endpoints; nil if there is none
}

// keptTables is how many bytes those take that are kept, and leastTables how many are kept that take more. If people
// follow pages of more snapshots than that, these are read again and again.
const (
	keptTables  = 200 << 20
	leastTables = 2
)

// size is about how many bytes it takes: one of 100,000 routes takes 100 MB.
func (r readSnapshot) size() int {
	const ofRoute, ofByte = 500, 4
	return sizeOfManifest(r.Manifest) + ofRoute*len(r.table.Routes) + ofByte*sizeOfFiles(r.Files)
}

// routes returns a snapshot with its routes. It reads them once; the result is immutable.
func (a *archive) routes(ctx context.Context, id snapshots.ID) (readSnapshot, error) {
	if read, ok := a.tables.get(id); ok {
		return read, nil
	}
	if ctx.Value(nowait{}) != nil && a.store != nil {
		type routesOf snapshots.ID
		return readSnapshot{}, a.later(routesOf(id), func(ctx context.Context) error { return a.readRoutes(ctx, id) })
	}
	s, err := a.snapshot(ctx, id)
	if err != nil {
		return readSnapshot{}, err
	}
	if err := a.begin(ctx); err != nil { // one snapshot is read at a time
		return readSnapshot{}, err
	}
	defer a.end()
	if read, ok := a.tables.get(id); ok {
		return read, nil
	}
	read, err := tableOf(s)
	if err != nil {
		return read, problem{http.StatusInternalServerError, fmt.Sprintf("Snapshot %s cannot be read by this version: %v.", short(id), err), "A pusher of the version that it was made for can."}
	}
	a.tables.put(id, read)
	return read, nil
}

// tableOf reads the routes of a snapshot. If that panics, it returns an error.
func tableOf(s snapshots.Snapshot) (read readSnapshot, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("a fault of this program: %v", fault)
		}
	}()
	table, err := routetable.Of(s)
	if err != nil {
		return read, err
	}
	read = readSnapshot{Snapshot: s, table: table, requests: request.Read(s.Files)}
	if recorded, all, err := s.RecordedEndpoints(); err == nil && all {
		read.recorded = recorded
	}
	return read, nil
}

// readRoutes reads the routes of a snapshot for a caller that does not wait. It pauses for [listingAge] after each
// reading. A reading uses a processor, and more viewed snapshots than [keptTables] displace each other again and
// again.
func (a *archive) readRoutes(ctx context.Context, id snapshots.ID) error {
	var last time.Time
	select {
	case last = <-a.tabling:
	case <-ctx.Done():
		return errNoAnswer
	}
	defer func() { a.tabling <- time.Now() }()
	select {
	case <-time.After(time.Until(last.Add(listingAge))):
	case <-ctx.Done():
		return errNoAnswer
	}
	_, err := a.routes(ctx, id)
	return err
}
