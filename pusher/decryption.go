package pusher

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/sealing"
)

// errNoIdentity is for who has nothing to open sealed certificates with.
var errNoIdentity = errors.New("no file of identities is named with --age-identity")

// decryptions are the snapshots whose certificates are being opened, or could not be.
type decryptions struct {
	asked  map[snapshots.ID]bool
	failed map[snapshots.ID]missing
}

func newDecryptions() *decryptions {
	return &decryptions{asked: map[snapshots.ID]bool{}, failed: map[snapshots.ID]missing{}}
}

// due reports whether a snapshot is to be opened now, and notes that it is.
func (o *decryptions) due(id snapshots.ID, now time.Time) bool {
	if m, failed := o.failed[id]; o.asked[id] || (failed && now.Sub(m.at) < fetchRetry) {
		return false
	}
	o.asked[id] = true
	return true
}

// take notes how opening a snapshot ended.
func (o *decryptions) take(id snapshots.ID, err error, now time.Time) {
	delete(o.asked, id)
	delete(o.failed, id)
	if err != nil {
		o.failed[id] = missing{err, now}
	}
}

// openSnapshots sees to it that the certificates are at hand that the snapshots in use
// carry. What is opened stays in memory.
func (e *engine) openSnapshots(now time.Time) {
	for _, id := range e.bindings.unopened() {
		if !e.decryptions.due(id, now) {
			continue
		}
		e.begin(openCertificates{e.Store, e.Identity, e.bindings.prepared[id].snapshot})
	}
	maps.DeleteFunc(e.decryptions.failed, func(id snapshots.ID, _ missing) bool {
		return e.bindings.complete(id) || e.bindings.prepared[id].snapshot.ID() != id
	})
	e.troubleWithVersions(now)
}

// companioned is a store that keeps certificates beside snapshots.
type companioned interface {
	Companions(ctx context.Context, id snapshots.ID) (map[string][]byte, error)
}

// companions returns the certificates beside a snapshot, by version.
func companions(ctx context.Context, store Store, id snapshots.ID) (map[string][]byte, error) {
	keeps, ok := store.(companioned)
	if !ok {
		return nil, fmt.Errorf("%s: %w", id, snapshots.ErrNoCompanions)
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	return keeps.Companions(ctx, id)
}

// troubleWithVersions tells which certificates are not at hand, and why, and which
// were renewed where a snapshot names what they were before.
func (e *engine) troubleWithVersions(now time.Time) {
	var errs []error
	for _, id := range slices.SortedFunc(maps.Keys(e.decryptions.failed), snapshots.ID.Compare) {
		err := e.decryptions.failed[id].err
		if e.Identity == "" && errors.Is(err, sealing.ErrNotForUs) {
			err = fmt.Errorf("%w: %w", err, errNoIdentity)
		}
		errs = append(errs, err)
	}
	if e.liveRead {
		errs = append(errs, e.bindings.otherVersions()...)
	}
	e.trouble("certificates", errors.Join(errs...), now)
}
