package core

import (
	"net/netip"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/pusher/binding"
	"github.com/hapsnap/hapsnap/pusher/cluster"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/report"
)

// liveData follows endpoints and certificates.
type liveData struct{ *world }

// takeLive takes the live objects that were read from a directory.
func (l *liveData) takeLive(read binding.Objects, err error, now time.Time) {
	if err == nil {
		l.takeNews(l.live.TakeRead(read, now), now)
	}
	l.trouble(report.AboutLive, err, now)
}

// takeCluster takes what has changed in the cluster.
func (l *liveData) takeCluster(change cluster.Change, now time.Time) {
	l.takeNews(l.live.TakeCluster(change, now), now)
}

// takeNews reports changes of live data. Package observe counts them, and measures how long they
// take to reach all instances.
func (l *liveData) takeNews(n binding.News, now time.Time) {
	for _, c := range n.Changes {
		l.record(observe.EndpointsChanged{Service: c.Port, Old: c.Before, Next: c.After}, now)
	}
	if len(n.Endpoints) > 0 {
		l.record(observe.ChangesSeen{Since: n.Endpoints}, now)
	}
	if len(n.Secrets) > 0 {
		l.record(observe.SecretsChanged{Since: n.Secrets}, now)
	}
}

// followCluster begins to watch the objects of the cluster that the snapshots in use need.
func (l *liveData) followCluster() {
	if l.Source == binding.FromCluster {
		l.begin(FollowCluster{l.live.Wanted()})
	}
}

// confirmLosses carries out a person's order in the channel: endpoints that the pusher kept at the
// time of the order are now taken as gone.
func (l *liveData) confirmLosses(now time.Time) {
	c := l.view.Channel.Spec.ConfirmEndpoints
	if c == nil {
		return
	}
	if n, services, confirmed := l.live.Confirm(c.Loss); confirmed {
		l.record(observe.Info("loss of endpoints confirmed", "loss", c.Loss, "by", c.By, "reason", c.Reason, "services", services), now)
		l.dirty = true
		l.takeNews(n, now)
	}
}

// blindStart reports whether a new pusher finds no EndpointSlice at all, although the instances run
// with endpoints; see [binding.Sources.Blind]. An instance that does not answer counts as running
// with endpoints.
func (l *liveData) blindStart(now time.Time) bool {
	return l.live.Blind(func() bool {
		for i := range l.served() {
			if !i.reachable() && i.Draining {
				continue // the node of its pod may be gone for good
			}
			if !i.reachable() || l.live.MayHaveEndpoints(i.snapshot()) {
				return true
			}
		}
		return false
	}, now)
}

// refuseOwn refuses endpoints that have the address of an instance's Dataplane API.
func (l *liveData) refuseOwn(now time.Time) {
	if len(l.RefuseEndpoints) > 0 {
		places := map[string]binding.Place{}
		for i := range l.served() {
			if at, known := i.address(); known {
				places[i.Name] = placeOf(at, i.Also)
			}
		}
		l.takeNews(l.live.RefuseOwn(places, now), now)
	}
}

// placeOf returns where an instance is, by the address of its Dataplane API and what else leads to it.
func placeOf(api netip.AddrPort, also string) binding.Place {
	p := binding.Place{API: api}
	for _, text := range strings.Fields(also) {
		if at, err := netip.ParseAddrPort(text); err == nil {
			p.Ports = append(p.Ports, netip.AddrPortFrom(at.Addr().Unmap(), at.Port()))
		} else if address, err := netip.ParseAddr(text); err == nil {
			p.Others = append(p.Others, address.Unmap())
		}
	}
	return p
}

// troubleWithLive reports live data that is not known, not believed, or not used.
func (l *liveData) troubleWithLive(now time.Time) {
	l.trouble(report.AboutRefused, observe.Refused(l.live.Refused()).Trouble(), now)
	l.trouble(report.AboutKept, l.live.LossTrouble(), now)
	l.trouble(report.AboutLiveObjects, l.live.Problems(), now)
	if l.Source == binding.FromCluster {
		l.trouble(report.AboutCluster, l.live.ClusterTrouble(), now)
		l.trouble(report.AboutLive, l.live.WaitTrouble(now), now)
	}
}
