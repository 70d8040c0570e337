package core

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/sealing"
)

// supply sees to it that the snapshots in use are at hand, with the certificates that they carry and
// slots for their endpoints.
type supply struct {
	*world
	following *liveData
	pruning   bool // slots are to be dropped that no snapshot in use has
	// forgetting is set while snapshots that are not needed are removed from this machine's disk:
	// those that are in it stay, and others are not read meanwhile.
	forgetting map[snapshots.ID]bool
	toForget   bool // some are to be removed
}

// readSnapshots sees to it that the snapshots in use are at hand.
func (s *supply) readSnapshots(now time.Time) {
	needed := s.inUse()
	may := slices.DeleteFunc(slices.SortedFunc(maps.Keys(needed), snapshots.ID.Compare), func(id snapshots.ID) bool {
		return s.forgetting != nil && !s.forgetting[id] // what is read now might be removed at once
	})
	for _, id := range s.snapshotCache.Due(may, now) {
		s.begin(ReadSnapshot{id})
	}
	for _, again := range s.snapshotCache.KeepAgain(now) {
		s.begin(KeepSnapshot{again})
	}
	s.trouble("cache", s.snapshotCache.Trouble(), now)
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
	s.trouble("snapshots", errors.Join(errs...), now)
	if n, changed := s.live.Use(s.snapshotCache.All(), now); changed {
		s.following.takeNews(n, now)
		s.following.followCluster()
	}
	// Slots of backends that no snapshot in use has are dropped, also between waves: an undo goes to one in use.
	// That waits for snapshots that are not at hand yet, and not for what only some instance runs and nobody can
	// read.
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

// assignSlots brings the slot table in line with the endpoints, when that is due.
func (s *supply) assignSlots(now time.Time) {
	if s.live.Ready() && s.bindings.Assign(now, s.DrainTime) {
		s.dirty = true
		s.tell(observe.ServersChanged{}, now)
	}
}

// openSnapshots sees to it that the certificates are at hand that the snapshots in use
// carry. What is opened stays in memory.
func (s *supply) openSnapshots(now time.Time) {
	for _, sealed := range s.live.ToDecrypt(now) {
		s.begin(OpenCertificates{sealed})
	}
	// Which certificates are not at hand, and why, and which were renewed where a snapshot names what they were
	// before.
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
	s.trouble("certificates", errors.Join(errs...), now)
}

// errNoIdentity is for who has nothing to open sealed certificates with.
var errNoIdentity = errors.New("no file of identities is named with --age-identity")
