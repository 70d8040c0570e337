package core

import (
	"maps"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
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

// instanceState is what is known about one instance. It is a value: package instance has the
// client.
//
// [rollout.State] has what outlives the worker of an instance: what was pushed to it last, and what
// a rollout changed. The pusher saves that before a push begins. After a restart the pusher learns
// most of instanceState from the instance again. The rest is saved as savedInstance.
type instanceState struct {
	fleet.Instance
	joined int            // the number of this connection, see membership.joins
	known  instance.Known // what the last event said of its haproxy.cfg and its worker

	asked     bool // has answered, or failed to answer, at least once
	info      dataplane.RuntimeInfo
	named     named
	infoAsked time.Time // when info was asked for
	started   time.Time // when its worker began, by this host's clock
	died      time.Time // when the pusher last saw that the worker was replaced, and not by one of its jobs
	err       error     // why it is out of reach, nil if it is not
	since     time.Time

	// matters are the target of the rollout, the good snapshot and the wanted one, in this order. A rollout may end with
	// its target although a newer snapshot, which may have the content of one of these, is wanted. What is wanted need not
	// have been read: instances that run its content as the good snapshot follow their endpoints as that.
	matters []snapshots.ID

	repairs  []time.Time      // when its files and servers were repaired lately, oldest first
	conflict *report.Conflict // the current repair conflict over files and servers

	// busy is the kind of job under way, "" for none. ended is when the last job ended. The answer
	// to a probe that began earlier may be out of date.
	busy  work
	ended time.Time
	// writing is set while the file is written and updates may change the worker. beside is set if the last update began
	// then. waits is set if the next one has to wait for the end of the write.
	writing, beside, waits bool

	checked  bool                // a check has begun since it became reachable
	findings []preflight.Finding // what is wrong with its setup

	samples  samples // its statistics
	sampling bool
	sampled  time.Time

	claimed     claim
	claimEnded  time.Time // when it was claimed last
	claimAfter  time.Time
	claimFailed bool // jobError says why the claim failed
	toldLed     string
	toldForeign string

	running        push.Running // what its worker is known to have
	compared       comparison
	comparedOnDisk comparison // like compared, for the servers in the file on disk
	comparedLines  comparison // like compared, for their lines in the file on disk
	certificates   certificateComparison
	garbage        []push.Stored // files to be removed
	garbageSince   time.Time     // since when there is garbage
	collected      time.Time     // when the last removal of files began
	collectAfter   time.Time     // no removal begins before this time
	reviewed       review        // the last review of its files
	persisted      time.Time
	persistTook    time.Duration
	tidied         time.Time
	lastWork       work      // the kind of the last job that ended
	inspectAfter   time.Time // no inspection begins before this time
	inspections    int       // how many inspections it had
	needsReload    string    // the digest of a snapshot to which only a reload can bring its worker
	jobError       string
	jobErrorAt     time.Time
	jobFailed      work // of which jobError is
	jobFailures    int
	jobNotBefore   time.Time
	attempted      liveWants  // what the last update tried to give the worker
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

// named caches the parsed name of a node, which a turn needs many times.
type named struct {
	node  string
	id    snapshots.ID
	known bool // the node names a snapshot
}

func (i *instanceState) reachable() bool { return i.asked && i.err == nil }

// comparison caches whether two lists of servers are the same. The lists may have thousands of
// servers, and rarely change.
type comparison struct {
	have, want *bind.Server // the first server of each list
	same       bool
}

// certificateComparison caches whether a worker has all certificates that it needs. There may be
// thousands of them. Neither map changes after it is made, so the maps are compared by address. The
// cache keeps both maps, so that no other map can get the address of one of them.
type certificateComparison struct {
	have, want push.CertificateHashes
	same       bool
}

// hasCertificates reports whether the worker is known to have these certificates.
func (i *instanceState) hasCertificates(want push.CertificateHashes) bool {
	same := func(a, b push.CertificateHashes) bool {
		return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer()
	}
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

// conflictOnDisk reports whether somebody else keeps changing files of the instance, see [report.Conflict].
func (i *instanceState) conflictOnDisk() bool {
	return i.conflict != nil && slices.ContainsFunc(i.conflict.Faults, push.Fault.OnDisk)
}

// wrote reports whether the file on the instance's disk has these servers, if it is known what it has. The list may have
// changed without a change of the worker: one that was still to be made is no longer wanted.
func (i *instanceState) wrote(want []bind.Server) bool {
	disk := i.running.Written
	if len(disk) == 0 || len(want) == 0 {
		return true
	}
	if c := i.comparedLines; c.have != &disk[0] || c.want != &want[0] {
		i.comparedLines = comparison{&disk[0], &want[0], i.running.Wrote(want)}
	}
	return i.comparedLines.same
}

// shareLists makes lists of an instance one list with those of the bindings, where they are equal. A list has the
// servers of all Services, so that one for each instance would take most of the memory of a pusher. Lists are never
// changed, but replaced.
func (w *world) shareLists(i *instanceState) {
	p, _ := w.bindings.Of(i.snapshot())
	i.running.Servers = sharedList(i.running.Servers, p.Servers)
	i.running.Written = sharedList(sharedList(i.running.Written, p.Servers), i.running.Servers)
}

// sharedList returns the second list if both are equal, otherwise the first.
func sharedList(list, other []bind.Server) []bind.Server {
	if len(list) == 0 || len(list) != len(other) || &list[0] != &other[0] && !slices.Equal(list, other) {
		return list
	}
	return other
}

// seen returns what the rollout needs to know about the instance.
func (i *instanceState) seen(stale bool) rollout.Seen {
	seen := rollout.Seen{
		Name: i.Name, Zone: i.Zone, Reachable: i.reachable(), Running: i.snapshot(), PID: i.info.PID, Started: i.started,
		Busy: i.busy != "" && i.busy != workPush || i.writing, Stale: stale, Sample: i.samples.last(i.started), Died: i.died,
	}
	if why := i.foreign(); why != "" {
		seen.Foreign = push.ForeignText(why)
	}
	if i.err != nil && i.info.PID != 0 { // it answered before
		seen.Away = i.since
	}
	return seen
}

// ref returns the reference by which effects and events name the instance.
func (i *instanceState) ref() instance.Ref {
	return instance.Ref{Name: i.Name, UID: i.UID, Joined: i.joined}
}

// override returns what the worker runs, if a push has changed this worker without a reload.
func (i *instanceState) override() push.Override {
	if i.info.PID != 0 && i.info.Loaded == "" {
		return push.Override{}
	}
	return i.known.Override
}

// foreign says in which way the worker was started from another configuration than the pusher
// wrote. It returns "" if the pusher wrote it.
func (i *instanceState) foreign() string { return i.known.Record.Foreign(i.info) }

// ledByOther reports whether another pusher leads the instance.
func (i *instanceState) ledByOther() bool { return i.known.Record.LedByOther() }

// takeProbe takes the answer to a probe, or the error. The probe began at the time asked.
func (i *instanceState) takeProbe(info dataplane.RuntimeInfo, err error, asked, now time.Time) {
	if i.busy == workPush || asked.Before(i.ended) {
		return // the result of the job is newer than this answer
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

// takeInfo takes what the worker said about itself. If it is another worker than before, takeInfo
// drops what was known about the previous one.
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

// doing returns the kind of the job under way, "" for none.
func (i *instanceState) doing() work {
	if i.busy == "" && i.writing {
		return workPersist
	}
	return i.busy
}

// liveWants is the live data that a worker should have.
type liveWants struct {
	servers      *bind.Server // the first server of the list; the list is replaced if a server in it changes
	entries      snapshots.Digest
	certificates push.CertificateHashes
}

func (l liveWants) equal(o liveWants) bool {
	return l.servers == o.servers && l.entries == o.entries && maps.Equal(l.certificates, o.certificates)
}

func wantsOf(servers []bind.Server, entries snapshots.Digest, certificates push.CertificateHashes) liveWants {
	out := liveWants{entries: entries, certificates: certificates}
	if len(servers) > 0 {
		out.servers = &servers[0]
	}
	return out
}

// end notes how a job ended. Pushes do not use it, since the rollout tries them again.
func (i *instanceState) end(w work, err error, retry time.Duration, now time.Time) {
	if err == nil {
		i.jobError, i.jobErrorAt, i.jobFailed, i.jobFailures, i.jobNotBefore = "", time.Time{}, "", 0, time.Time{}
		return
	}
	i.jobFailures++
	i.jobError, i.jobErrorAt, i.jobFailed = report.Brief(err), now, w
	i.jobNotBefore = now.Add(min(retry<<min(i.jobFailures-1, 10), time.Minute))
}

// diskFailed reports whether the last failure was one to write to the disk. Updates of the worker say nothing about that:
// where endpoints come all the time, a full disk would be reported for moments only, and written to as often.
func (i *instanceState) diskFailed() bool {
	return i.jobFailed == workPersist || i.jobFailed == workMend
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

// answer is what a worker said about itself, and when it was asked.
type answer struct {
	dataplane.RuntimeInfo
	asked time.Time
}

// started returns when the worker began, or a later time. See [push.Process.Started].
func (a answer) started() time.Time { return a.worker().Started() }

func (a answer) worker() push.Process { return push.ProcessOf(a.RuntimeInfo, a.asked) }

// ofAnother reports whether this answer is from another worker than the last one.
func (a answer) ofAnother(last answer) bool { return a.worker().OtherThan(last.worker()) }

// savedInstance is the part of the state that concerns one instance, apart from the rollout.
type savedInstance struct {
	// Of is the UID of the pod, "" if the instance has no pod.
	Of string `json:"of,omitempty"`
	// Override is what the worker runs, if a push changed it at run time.
	Override push.Override `json:"alias,omitzero"`
	// Record says what the worker was started from, and whether the pusher with this state wrote
	// its file.
	Record push.Remembered `json:"record,omitzero"`
	// ManualDrains are the servers that somebody took out of traffic by hand.
	ManualDrains []push.ManualDrain `json:"byHand,omitempty"`
	// Repairs are the times at which files and servers were repaired lately, oldest first.
	Repairs []time.Time `json:"repairs,omitempty"`
	// Conflict is the current repair conflict over files and servers.
	Conflict *report.Conflict `json:"fight,omitempty"`
}

// remembered returns what the state keeps about an instance.
func remembered(i *instanceState) savedInstance {
	return savedInstance{
		Of: i.UID, Override: i.override(), Record: i.known.Record.Remembered, ManualDrains: i.running.ManualDrains, Repairs: i.repairs, Conflict: i.conflict,
	}
}
