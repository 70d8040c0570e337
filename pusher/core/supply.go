package core

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/pusher/binding"
	"github.com/hapsnap/hapsnap/pusher/cluster"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/report"
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

// liveData follows endpoints and certificates.
type liveData struct{ *world }

// takeLive takes what was read of the live objects.
func (l *liveData) takeLive(read binding.Objects, err error, now time.Time) {
	if err == nil {
		l.takeNews(l.live.TakeRead(read, now), now)
	}
	l.trouble("live", err, now)
}

// takeCluster takes what changed in the cluster.
func (l *liveData) takeCluster(change cluster.Change, now time.Time) {
	l.takeNews(l.live.TakeCluster(change, now), now)
}

// takeNews tells what changed of live data, for who counts it and times how long it takes to all
// instances.
func (l *liveData) takeNews(n binding.News, now time.Time) {
	for _, c := range n.Changes {
		l.tell(observe.EndpointsChanged{Service: c.Port, Old: c.Before, Next: c.After}, now)
	}
	if len(n.Endpoints) > 0 {
		l.tell(observe.ChangesSeen{Since: n.Endpoints}, now)
	}
	if len(n.Secrets) > 0 {
		l.tell(observe.SecretsChanged{Since: n.Secrets}, now)
	}
}

// followCluster has the cluster told what the snapshots in use need of it.
func (l *liveData) followCluster() {
	if l.Source == binding.FromCluster {
		l.begin(FollowCluster{l.live.Wanted()})
	}
}

// confirmLosses does what a person ordered in the channel: what was kept when they gave
// the order is believed to be gone.
func (l *liveData) confirmLosses(now time.Time) {
	c := l.view.Channel.Spec.ConfirmEndpoints
	if c == nil {
		return
	}
	if n, services, confirmed := l.live.Confirm(c.Loss); confirmed {
		l.tell(observe.Info("loss of endpoints confirmed", "loss", c.Loss, "by", c.By, "reason", c.Reason, "services", services), now)
		l.dirty = true
		l.takeNews(n, now)
	}
}

// blindStart reports whether a new pusher finds not one EndpointSlice, though the instances run
// with endpoints; see [binding.Sources.Blind]. Those that do not answer count as such.
func (l *liveData) blindStart(now time.Time) bool {
	return l.live.Blind(func() bool {
		for i := range l.served() {
			if !i.reachable() && i.Draining {
				continue // its node may be gone for good
			}
			if !i.reachable() || l.live.MayHaveEndpoints(i.snapshot()) {
				return true
			}
		}
		return false
	}, now)
}

// refuseOwn refuses endpoints with the addresses of instances that came, and no longer with those
// of instances that went.
func (l *liveData) refuseOwn(now time.Time) {
	if len(l.RefuseEndpoints) > 0 {
		apis := map[string]netip.AddrPort{}
		for i := range l.served() {
			if at, known := i.address(); known {
				apis[i.Name] = at
			}
		}
		l.takeNews(l.live.RefuseOwn(apis, now), now)
	}
}

// troubleWithLive tells what is not known of live data, and what of it is not believed or not
// used.
func (l *liveData) troubleWithLive(now time.Time) {
	l.trouble("endpoints", observe.Refused(l.live.Refused()).Trouble(), now)
	l.trouble(report.AboutKept, l.live.LossTrouble(), now)
	l.trouble("live objects", l.live.Problems(), now)
	if l.Source == binding.FromCluster {
		l.trouble("cluster", l.live.ClusterTrouble(), now)
		l.trouble("live", l.live.WaitTrouble(now), now)
	}
}
