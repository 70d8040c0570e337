package binding

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
)

// fetchRetry is the wait after a failed read of a snapshot.
const (
	fetchRetry = 2 * time.Second
	// KeepRetry is the wait after a failed try to keep a snapshot on this machine's disk.
	KeepRetry = 10 * time.Second
)

// Cache holds the snapshots in use, in memory and on this host's disk. The pusher still needs the running snapshots if
// the store is gone or has lost them.
type Cache struct {
	dir    string
	have   map[snapshots.ID]snapshots.Snapshot
	asked  map[snapshots.ID]bool
	failed map[snapshots.ID]missing
	// unkept are snapshots in memory that could not be kept on disk.
	unkept map[snapshots.ID]missing
}

// NotKeptError says why a snapshot that was read is not on this host's disk.
type NotKeptError struct{ Cause error }

func (e *NotKeptError) Error() string { return e.Cause.Error() }

// missing says why a snapshot could not be read or kept, and when to try again.
type missing struct {
	err error
	at  time.Time
}

// NewCache returns an empty cache. dir is its folder on disk, "" for none.
func NewCache(dir string) *Cache {
	return &Cache{
		dir: dir, have: map[snapshots.ID]snapshots.Snapshot{},
		asked: map[snapshots.ID]bool{}, failed: map[snapshots.ID]missing{},
		unkept: map[snapshots.ID]missing{},
	}
}

// Get returns a snapshot if it is in memory.
func (l *Cache) Get(id snapshots.ID) (snapshots.Snapshot, bool) {
	s, have := l.have[id]
	return s, have
}

// All returns the snapshots in memory.
func (l *Cache) All() map[snapshots.ID]snapshots.Snapshot { return l.have }

// Unreadable reports whether a snapshot could not be read.
func (l *Cache) Unreadable(id snapshots.ID) bool {
	_, failed := l.failed[id]
	return failed
}

// Failures returns why snapshots could not be read, in the order of the snapshots.
func (l *Cache) Failures() []error { return failuresOf(l.failed) }

func failuresOf(failed map[snapshots.ID]missing) []error {
	var errs []error
	for _, id := range slices.SortedFunc(maps.Keys(failed), snapshots.ID.Compare) {
		errs = append(errs, failed[id].err)
	}
	return errs
}

// Due returns the needed snapshots that should be read now, and notes that they are being read.
func (l *Cache) Due(needed []snapshots.ID, now time.Time) []snapshots.ID {
	var out []snapshots.ID
	for _, id := range needed {
		_, have := l.have[id]
		m, failed := l.failed[id]
		if have || l.asked[id] || (failed && now.Sub(m.at) < fetchRetry) {
			continue
		}
		l.asked[id] = true
		out = append(out, id)
	}
	return out
}

// Reading returns the snapshots that are being read, or being kept on disk again.
func (l *Cache) Reading() []snapshots.ID {
	return slices.SortedFunc(maps.Keys(l.asked), snapshots.ID.Compare)
}

// Take takes the result of reading a snapshot.
func (l *Cache) Take(id snapshots.ID, s snapshots.Snapshot, err error, now time.Time) {
	delete(l.asked, id)
	delete(l.unkept, id)
	if unkept, ok := errors.AsType[*NotKeptError](err); ok {
		l.unkept[id] = missing{unkept, now}
		err = nil
	}
	if err != nil {
		l.failed[id] = missing{err, now}
		return
	}
	delete(l.failed, id)
	l.have[id] = s
}

// Keep drops the snapshots that are not needed, and returns them.
func (l *Cache) Keep(needed map[snapshots.ID]bool) (dropped []snapshots.ID) {
	for id := range l.have {
		if !needed[id] {
			delete(l.have, id)
			dropped = append(dropped, id)
		}
	}
	for _, list := range []map[snapshots.ID]missing{l.failed, l.unkept} {
		for id := range list {
			if !needed[id] {
				delete(list, id)
			}
		}
	}
	return dropped
}

// KeepAgain returns the snapshots that should be kept on disk again, and notes that they are being
// kept.
func (l *Cache) KeepAgain(now time.Time) []snapshots.Snapshot {
	var out []snapshots.Snapshot
	for _, id := range slices.SortedFunc(maps.Keys(l.unkept), snapshots.ID.Compare) {
		if m := l.unkept[id]; now.Sub(m.at) >= KeepRetry && !l.asked[id] {
			l.asked[id] = true
			out = append(out, l.have[id])
		}
	}
	return out
}

// Trouble returns why snapshots in use are not on this host's disk.
func (l *Cache) Trouble() error {
	for _, id := range slices.SortedFunc(maps.Keys(l.unkept), snapshots.ID.Compare) {
		return fmt.Errorf("keep the snapshots in use in %s, for when the store is gone: %w", l.dir, l.unkept[id].err)
	}
	return nil
}

// ToDecrypt returns the snapshots in use that carry certificates which are not decrypted yet. It notes that they are
// being decrypted. Decrypted certificates stay in memory.
func (s *Sources) ToDecrypt(now time.Time) []snapshots.Snapshot {
	var out []snapshots.Snapshot
	for _, id := range s.bindings.unopened() {
		if s.decryptions.due(id, now) {
			out = append(out, s.bindings.prepared[id].Snapshot)
		}
	}
	maps.DeleteFunc(s.decryptions.failed, func(id snapshots.ID, _ missing) bool {
		_, atHand := s.bindings.prepared[id]
		return !atHand || s.bindings.Complete(id)
	})
	return out
}

// Decrypted takes the decrypted certificates of a snapshot, by version, or the error.
func (s *Sources) Decrypted(id snapshots.ID, found map[string][]byte, err error, now time.Time) {
	s.decryptions.take(id, err, now)
	s.bindings.addVersions(found, now)
}

// DecryptFailures returns why certificates that snapshots carry could not be decrypted.
func (s *Sources) DecryptFailures() []error { return failuresOf(s.decryptions.failed) }

// decryptions are the snapshots whose certificates are being decrypted, or could not be.
type decryptions struct {
	asked  map[snapshots.ID]bool
	failed map[snapshots.ID]missing
}

func newDecryptions() *decryptions {
	return &decryptions{asked: map[snapshots.ID]bool{}, failed: map[snapshots.ID]missing{}}
}

// due reports whether a snapshot should be decrypted now, and notes that it is being decrypted.
func (o *decryptions) due(id snapshots.ID, now time.Time) bool {
	if m, failed := o.failed[id]; o.asked[id] || (failed && now.Sub(m.at) < fetchRetry) {
		return false
	}
	o.asked[id] = true
	return true
}

// take takes the result of decrypting a snapshot.
func (o *decryptions) take(id snapshots.ID, err error, now time.Time) {
	delete(o.asked, id)
	delete(o.failed, id)
	if err != nil {
		o.failed[id] = missing{err, now}
	}
}
