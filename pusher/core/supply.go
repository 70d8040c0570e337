package core

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/sealing"
)

// supply keeps the snapshots in use in the cache, decrypts the certificates that they carry, and gives
// their endpoints slots.
type supply struct {
	*world
	liveData *liveData
	pruning  bool // the slots that no snapshot in use has should be dropped
	// forgetting is set while unneeded snapshots are removed from this host's disk. It holds the snapshots that stay.
	// The pusher reads no others meanwhile.
	forgetting map[snapshots.ID]bool
	toForget   bool // some snapshots on disk should be removed
}

// readSnapshots begins to read the snapshots in use that are missing, and to remove those that are no
// longer needed.
func (s *supply) readSnapshots(now time.Time) {
	needed := s.inUse()
	may := slices.DeleteFunc(slices.SortedFunc(maps.Keys(needed), snapshots.ID.Compare), func(id snapshots.ID) bool {
		return s.forgetting != nil && !s.forgetting[id] // a snapshot that is read now might be removed at once
	})
	for _, id := range s.snapshotCache.Due(may, now) {
		s.begin(ReadSnapshot{id})
	}
	for _, again := range s.snapshotCache.KeepAgain(now) {
		s.begin(KeepSnapshot{again})
	}
	s.trouble(report.AboutCache, s.snapshotCache.Trouble(), now)
	dropped := s.snapshotCache.Keep(needed)
	if s.toForget = s.toForget || len(dropped) > 0; s.toForget && s.forgetting == nil && s.Cache != "" {
		s.toForget, s.forgetting = false, maps.Clone(needed)
		for _, id := range s.snapshotCache.Reading() {
			s.forgetting[id] = true
		}
		s.begin(ForgetSnapshots{s.forgetting})
	}
	s.pruning = s.pruning || len(dropped) > 0
	errs := s.snapshotCache.Failures()
	for _, p := range s.bindings.All() {
		if p.Err != nil {
			errs = append(errs, p.Err)
		}
	}
	s.trouble(report.AboutSnapshots, errors.Join(errs...), now)
	if n, changed := s.live.Use(s.snapshotCache.All(), now); changed {
		s.liveData.takeNews(n, now)
		s.liveData.followCluster()
	}
	// Slots that no snapshot in use has are dropped, even between waves: if the rollout is undone, the fleet returns to
	// a snapshot in use. Pruning waits until all of these snapshots are read. It does not wait for a snapshot that some
	// instance runs if the store cannot supply it and nothing else needs it.
	if !s.pruning {
		return
	}
	matters := s.usedOn(nil)
	for id := range needed {
		_, prepared := s.bindings.Of(id)
		if !prepared && (!s.snapshotCache.Unreadable(id) || slices.Contains(matters, id)) {
			return
		}
	}
	s.pruning = false
	s.bindings.Prune()
}

// assignSlots brings the slots in line with the endpoints, if that is due.
func (s *supply) assignSlots(now time.Time) {
	if s.live.Ready() && s.bindings.Assign(now, s.DrainTime) {
		s.dirty = true
		s.record(observe.ServersChanged{}, now)
	}
}

// openSnapshots begins to decrypt the certificates that the snapshots in use carry. Decrypted certificates stay in
// memory.
func (s *supply) openSnapshots(now time.Time) {
	for _, sealed := range s.live.ToDecrypt(now) {
		s.begin(OpenCertificates{sealed})
	}
	// Report certificates that cannot be decrypted, and those that were renewed although a snapshot names an earlier
	// version.
	var errs []error
	for _, err := range s.live.DecryptFailures() {
		if !s.Identity && errors.Is(err, sealing.ErrNotForUs) {
			err = fmt.Errorf("%w: %w", err, errNoIdentity)
		}
		errs = append(errs, err)
	}
	if s.live.Ready() {
		errs = append(errs, s.bindings.OtherVersions()...)
	}
	s.trouble(report.AboutCertificates, errors.Join(errs...), now)
}

// errNoIdentity is the hint for a pusher that has no file of identities.
var errNoIdentity = errors.New("no file of identities is named with --age-identity")
