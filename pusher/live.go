package pusher

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/pusher/binding"
	"github.com/hapsnap/hapsnap/pusher/cluster"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// takeLive takes what was read of the live objects.
func (e *engine) takeLive(read binding.Objects, err error, now time.Time) {
	if err == nil {
		e.takeNews(e.live.TakeRead(read, now), now)
	}
	e.trouble("live", err, now)
}

// takeCluster takes what changed in the cluster.
func (e *engine) takeCluster(change cluster.Change, now time.Time) {
	e.takeNews(e.live.TakeCluster(change, now), now)
}

// takeNews tells what changed of live data, for who counts it and times how long it takes to all
// instances.
func (e *engine) takeNews(n binding.News, now time.Time) {
	for _, c := range n.Changes {
		e.tell(observe.EndpointsChanged{Service: c.Port, Old: c.Before, Next: c.After}, now)
	}
	if len(n.Endpoints) > 0 {
		e.tell(observe.ChangesSeen{Since: n.Endpoints}, now)
	}
	if len(n.Secrets) > 0 {
		e.tell(observe.SecretsChanged{Since: n.Secrets}, now)
	}
}

// followCluster has the cluster told what the snapshots in use need of it.
func (e *engine) followCluster() {
	if e.endpointsFrom() == binding.FromCluster {
		e.begin(FollowCluster{e.live.Wanted()})
	}
}

// confirmLosses does what a person ordered in the channel: what was kept when they gave
// the order is believed to be gone.
func (e *engine) confirmLosses(now time.Time) {
	c := e.view.Channel.Spec.ConfirmEndpoints
	if c == nil {
		return
	}
	if n, services, confirmed := e.live.Confirm(c.Loss); confirmed {
		e.tell(observe.Info("loss of endpoints confirmed", "loss", c.Loss, "by", c.By, "reason", c.Reason, "services", services), now)
		e.dirty = true
		e.takeNews(n, now)
	}
}

// blindStart reports whether a new pusher finds not one EndpointSlice, though the instances run
// with endpoints; see [sources.blind]. Those that do not answer count as such.
func (e *engine) blindStart(now time.Time) bool {
	return e.live.Blind(func() bool {
		for _, i := range e.instances {
			if !i.reachable() || e.live.MayHaveEndpoints(i.snapshot()) {
				return true
			}
		}
		return false
	}, now)
}

// refuseOwn refuses endpoints with the addresses of instances that came, and no longer with those
// of instances that went.
func (e *engine) refuseOwn(now time.Time) {
	if len(e.RefuseEndpoints) > 0 {
		apis := map[string]netip.AddrPort{}
		for name, i := range e.instances {
			if at, known := i.address(); known {
				apis[name] = at
			}
		}
		e.takeNews(e.live.RefuseOwn(apis, now), now)
	}
}

// address returns where an instance's Dataplane API is: what its URL says, or, if that is a name,
// where the connections to it got to.
func (i *instanceState) address() (netip.AddrPort, bool) {
	u, err := url.Parse(i.URL)
	if err != nil {
		return netip.AddrPort{}, false
	}
	host := u.Host
	if u.Port() == "" {
		host = u.Host + map[string]string{"http": ":80", "https": ":443"}[u.Scheme]
	}
	at, err := netip.ParseAddrPort(host)
	if err != nil {
		at = i.known.Peer
	}
	return netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port()), at.IsValid()
}

// troubleWithLive tells what is not known of live data, and what of it is not believed or not
// used.
func (e *engine) troubleWithLive(now time.Time) {
	e.trouble("endpoints", observe.Refused(e.live.Refused()).Trouble(), now)
	e.trouble(observe.AboutKept, e.live.LossTrouble(), now)
	e.trouble("live objects", e.live.Problems(), now)
	if e.endpointsFrom() == binding.FromCluster {
		e.trouble("cluster", e.live.ClusterTrouble(), now)
		e.trouble("live", e.live.WaitTrouble(now), now)
	}
}

// keptStatus returns what the status says of endpoints that are kept, nil for nothing.
func (e *engine) keptStatus() *observe.KeptStatus {
	name, since, ports := e.live.Kept()
	if name == "" {
		return nil
	}
	return &observe.KeptStatus{Loss: name, Since: since, Count: len(ports), Services: ports[:min(len(ports), mostKept)]}
}

// mostKept is how many Service ports the status lists.
const mostKept = 100

// troubleWithSecrets tells what the snapshots that run take in vain from Secrets,
// and what is wrong with the rest of it.
func (e *engine) troubleWithSecrets(now time.Time) {
	needed := map[bind.Need]bool{} // and whether it is missing
	for _, i := range e.instances {
		id := i.snapshot()
		n, _ := e.bindings.Node(id, i.Layout)
		p, _ := e.bindings.Of(id)
		for _, need := range p.Needs {
			needed[need] = needed[need] || slices.Contains(n.Missing, need)
		}
	}
	var errs []error
	e.missedSecrets = nil
	for _, need := range slices.SortedFunc(maps.Keys(needed), bind.Need.Compare) {
		if err := secretTrouble(need, needed[need], e.live.FaultsOf(need, now)); err != nil {
			errs = append(errs, err)
			e.missedSecrets = append(e.missedSecrets, binding.SecretFault{Secret: need.Secret, Fault: err.Error()})
		}
	}
	e.trouble("secrets", errors.Join(errs...), now)
}

// secretTrouble says what is wrong with something that a Secret should hold, and
// what comes of it; nil for nothing. The faults are what was found in the Secret.
func secretTrouble(need bind.Need, missing bool, faults []error) error {
	if !missing {
		if len(faults) == 0 {
			return nil
		}
		return fmt.Errorf("%s: %s", need, inShort(faults))
	}
	why := ""
	if len(faults) > 0 {
		why = ": " + inShort(faults)
	}
	switch need.Use {
	case snapshots.UseCA:
		return fmt.Errorf("no certificate is trusted: Secret %s has no usable authorities under %s%s", need.Secret, bind.AuthoritiesKey, why)
	case snapshots.UseUsers:
		return fmt.Errorf("nobody is let in: Secret %s has no usable users under %s%s", need.Secret, bind.UsersKey, why)
	case snapshots.UseValue:
		return fmt.Errorf("a value that nobody knows is used: Secret %s has none under %s that is one line without '%%'", need.Secret, need.Key)
	case snapshots.UseCertificate:
	}
	return fmt.Errorf("the fallback certificate is served: Secret %s has no usable certificate%s", need.Secret, why)
}

// inShort joins the first few faults.
func inShort(faults []error) string {
	const most = 3
	var out []string
	for _, err := range faults[:min(len(faults), most)] {
		out = append(out, err.Error())
	}
	if more := len(faults) - most; more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(out, "; ")
}
