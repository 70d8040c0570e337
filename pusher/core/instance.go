package core

import (
	"maps"
	"net/netip"
	"net/url"
	"reflect"
	"time"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/instance"
	"github.com/hapsnap/hapsnap/pusher/preflight"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// instanceState is what is known of one instance. It is a value: package instance has the client.
//
// [rollout.State] has what outlives the worker of an instance: what was pushed to it last, and what
// a rollout changed. It is saved before a push begins. Most of instanceState is found out again after
// a restart; kept is the rest.
type instanceState struct {
	fleet.Instance
	joined int            // counts the connections under its name
	known  instance.Known // of its haproxy.cfg and its worker, as of the last event

	asked     bool // has answered, or failed to answer, at least once
	info      dataplane.RuntimeInfo
	named     named
	infoAsked time.Time // when info was asked for
	started   time.Time // when its worker began, by this host's clock
	died      time.Time // when the pusher last saw that the worker was replaced, and not by one of its jobs
	err       error     // why it is out of reach, nil if it is not
	since     time.Time

	// matters are the wanted snapshot, the target of the rollout and the good one, in this order.
	matters []snapshots.ID

	repairs  []time.Time      // the last ones of files and servers, oldest first
	conflict *report.Conflict // the current repair conflict over files and servers

	// busy is the kind of job under way, "" for none. ended is when the last one ended: answers to
	// earlier probes may be out of date.
	busy  work
	ended time.Time

	checked  bool                // since it came into reach
	findings []preflight.Finding // what is wrong with how it is set up

	samples  samples // of its statistics
	sampling bool
	sampled  time.Time

	claimed     claim
	claimAfter  time.Time
	claimFailed bool // jobError is that of the claim
	toldLed     string
	toldForeign string

	running        push.Running // what its worker is known to have
	compared       comparison
	comparedOnDisk comparison // as compared, of the servers that the file on disk has
	certificates   certificateComparison
	garbage        []push.Stored // files to be removed
	garbageSince   time.Time     // there was none before
	collected      time.Time     // when files were last begun to be removed
	collectAfter   time.Time     // not before
	reviewed       review        // the last one of its files
	persisted      time.Time
	persistTook    time.Duration
	tidied         time.Time
	lastWork       work      // the last that ended
	inspectAfter   time.Time // the next inspection
	inspections    int       // how many there were
	needsReload    string    // the digest of a snapshot that its worker could not be changed to
	jobError       string
	jobErrorAt     time.Time
	jobFailures    int
	jobNotBefore   time.Time
	attempted      liveWants  // of the last update that began
	stuck          *liveWants // what the last update could not give the worker, nil if it could
}

// snapshot returns the snapshot that the worker names, zero for none. Of several revisions with the
// same content it returns the first in matters: a change that was reverted needs no push.
func (i *instanceState) snapshot() snapshots.ID {
	if i.named.node != i.info.Node {
		id, _, err := bind.ParseNode(i.info.Node)
		i.named = named{i.info.Node, id, err == nil}
	}
	if !i.named.known {
		return snapshots.ID{}
	}
	named := i.named.id
	for _, id := range i.matters {
		if id.Short == named.Short {
			return id
		}
	}
	return named
}

// named is the parsed name of a node. A turn needs it many times.
type named struct {
	node  string
	id    snapshots.ID
	known bool // it names a snapshot
}

func (i *instanceState) reachable() bool { return i.asked && i.err == nil }

// comparison caches the comparison of two lists of servers. They may be thousands long, and rarely
// change.
type comparison struct {
	have, want *bind.Server // the first of each
	same       bool
}

// certificateComparison caches whether a worker has all certificates that it needs, of which there may be thousands.
// Neither map changes after it is made, so they are compared by address. This value holds both, so that no other map
// can get the address of one of them.
type certificateComparison struct {
	have, want push.Known
	same       bool
}

// hasCertificates reports whether the worker is known to have these certificates.
func (i *instanceState) hasCertificates(want push.Known) bool {
	same := func(a, b push.Known) bool { return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer() }
	have := i.running.Certificates
	if c := i.certificates; !same(c.have, have) || !same(c.want, want) {
		i.certificates = certificateComparison{have, want, want.In(have)}
	}
	return i.certificates.same || len(want) == 0
}

// hasServers reports whether the worker is known to have these servers, or to serve their addresses
// with dynamic servers until slots get them.
func (i *instanceState) hasServers(want []bind.Server) bool {
	have := i.running.Servers
	if have == nil || i.running.Info.PID != i.info.PID || len(have) != len(want) {
		return false
	}
	if len(have) == 0 {
		return true
	}
	if c := i.compared; c.have != &have[0] || c.want != &want[0] {
		i.compared = comparison{&have[0], &want[0], i.running.Serves(want)}
	}
	return i.compared.same
}

// leavesUnserved reports whether some backend would serve nothing from the file on the instance's
// disk, see [push.Unserved]. It is false while the servers of the worker are not known.
func (i *instanceState) leavesUnserved(want []bind.Server) bool {
	disk := i.running.Written
	if i.running.Servers == nil || i.running.Info.PID != i.info.PID || len(want) == 0 {
		return false
	}
	if len(disk) == 0 {
		return push.Unserved(disk, want)
	}
	if c := i.comparedOnDisk; c.have != &disk[0] || c.want != &want[0] {
		i.comparedOnDisk = comparison{&disk[0], &want[0], !push.Unserved(disk, want)}
	}
	return !i.comparedOnDisk.same
}

// seen is the instance as the rollout sees it.
func (i *instanceState) seen(stale bool) rollout.Seen {
	seen := rollout.Seen{
		Name: i.Name, Zone: i.Zone, Reachable: i.reachable(), Running: i.snapshot(), PID: i.info.PID, Started: i.started,
		Busy: i.busy != "" && i.busy != workPush, Stale: stale, Foreign: i.foreign() != "", Sample: i.samples.last(i.started), Died: i.died,
	}
	if i.err != nil && i.info.PID != 0 { // it answered before
		seen.Away = i.since
	}
	return seen
}

// ref names the instance in effects and events.
func (i *instanceState) ref() instance.Ref {
	return instance.Ref{Name: i.Name, UID: i.UID, Joined: i.joined}
}

// override returns what its worker runs if a push changed it without a reload. It is zero if that was
// another worker.
func (i *instanceState) override() push.Override {
	if i.info.PID != 0 && i.info.Loaded == "" {
		return push.Override{}
	}
	return i.known.Override
}

// foreign says how its worker was started from another configuration than the pusher wrote, "" if it
// was not.
func (i *instanceState) foreign() string { return i.known.Record.Foreign(i.info) }

// ledByOther reports whether another pusher leads it.
func (i *instanceState) ledByOther() bool { return i.known.Record.LedByOther() }

// takeProbe takes an answer of the instance, or the error, and when it was asked.
func (i *instanceState) takeProbe(info dataplane.RuntimeInfo, err error, asked, now time.Time) {
	if i.busy == workPush || asked.Before(i.ended) {
		return // the job knows better
	}
	if (i.err == nil) != (err == nil) || !i.asked {
		i.since = now
	}
	i.asked, i.err = true, err
	if err != nil {
		return
	}
	if (answer{info, asked}).ofAnother(i.lastAnswer()) && i.info.PID != 0 && i.busy == "" {
		i.died = now
	}
	i.takeInfo(info, asked)
}

// takeInfo takes what the worker said of itself. If it is another worker, it drops what was known of
// the previous one.
func (i *instanceState) takeInfo(info dataplane.RuntimeInfo, asked time.Time) {
	if now := (answer{info, asked}); now.ofAnother(i.lastAnswer()) {
		i.running, i.started, i.inspectAfter, i.needsReload, i.stuck = i.running.Another(), now.started(), asked, "", nil
	}
	i.info, i.infoAsked = info, asked
}

// lastAnswer returns the last answer of the worker.
func (i *instanceState) lastAnswer() answer { return answer{i.info, i.infoAsked} }

// begin marks the instance as busy.
func (i *instanceState) begin(w work) { i.busy = w }

// liveWants is the live data that a worker should have.
type liveWants struct {
	servers      *bind.Server // the first of the list, which is replaced when one changes
	entries      snapshots.Digest
	certificates push.Known
}

func (l liveWants) equal(o liveWants) bool {
	return l.servers == o.servers && l.entries == o.entries && maps.Equal(l.certificates, o.certificates)
}

func wantsOf(servers []bind.Server, entries snapshots.Digest, certificates push.Known) liveWants {
	out := liveWants{entries: entries, certificates: certificates}
	if len(servers) > 0 {
		out.servers = &servers[0]
	}
	return out
}

// end notes how a job ended. It is not for pushes, which the rollout tries again.
func (i *instanceState) end(err error, retry time.Duration, now time.Time) {
	i.lastWork, i.busy, i.ended = i.busy, "", now
	if err == nil {
		i.jobError, i.jobErrorAt, i.jobFailures, i.jobNotBefore = "", time.Time{}, 0, time.Time{}
		return
	}
	i.jobFailures++
	i.jobError, i.jobErrorAt = report.Brief(err), now
	i.jobNotBefore = now.Add(min(retry<<min(i.jobFailures-1, 10), time.Minute))
}

// address returns the address of an instance's Dataplane API: the one in its URL, or, if the URL has
// a name, the peer of the connections.
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

// answer is what a worker said of itself, and when it was asked.
type answer struct {
	dataplane.RuntimeInfo
	asked time.Time
}

// started returns when the worker began, or later. See [push.Process.Started].
func (a answer) started() time.Time { return a.worker().Started() }

func (a answer) worker() push.Process { return push.ProcessOf(a.RuntimeInfo, a.asked) }

// ofAnother reports whether this answer is from another worker than the last one.
func (a answer) ofAnother(last answer) bool { return a.worker().OtherThan(last.worker()) }

// kept is the part of the state about one instance, apart from the rollout.
type kept struct {
	// Of is the UID of its pod, "" without a pod.
	Of string `json:"of,omitempty"`
	// Override is what its worker runs if a push changed it at run time.
	Override push.Override `json:"alias,omitzero"`
	// Record says what its worker was started from, and whether this state's pusher wrote its file.
	Record push.Remembered `json:"record,omitzero"`
	// ManualDrains are the servers that somebody else took out of traffic.
	ManualDrains []push.ManualDrain `json:"byHand,omitempty"`
	// Repairs are the times of the last repairs of files and servers, oldest first.
	Repairs []time.Time `json:"repairs,omitempty"`
	// Conflict is the current repair conflict over files and servers.
	Conflict *report.Conflict `json:"fight,omitempty"`
}

// remembered returns what the state keeps of an instance.
func remembered(i *instanceState) kept {
	return kept{
		Of: i.UID, Override: i.override(), Record: i.known.Record.Remembered, ManualDrains: i.running.ManualDrains, Repairs: i.repairs, Conflict: i.conflict,
	}
}
