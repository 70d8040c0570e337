package core

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/internal/printable"
	"github.com/hapsnap/hapsnap/pusher/binding"
	"github.com/hapsnap/hapsnap/pusher/instance"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// reporting records what people should see of a step.
type reporting struct {
	*world
	emptiness     emptiness             // of backends
	lacking       int                   // how many things the snapshots in use need that the pusher cannot have
	soonest       soonest               // the certificates that expire soonest
	missedSecrets []binding.SecretFault // what running snapshots need that is missing in Secrets
	saidEmpty     time.Time             // when the log last said that there is no snapshot
	shown         observe.View
	reported      report.Status // the status that was made of shown
	traffic       traffic
}

// look records what people should see of this turn.
func (r *reporting) look(now time.Time) {
	r.shown = r.seen(now)
	r.reported = r.shown.Status(r.conditions())
}

// status returns the current status.
func (r *reporting) status(now time.Time) report.Status { return r.seen(now).Status(r.conditions()) }

// conditions returns the last reported conditions. After a restart, these are the ones in the saved
// state.
func (r *reporting) conditions() []metav1.Condition {
	if r.reported.Conditions != nil {
		return r.reported.Conditions
	}
	return r.state.Status.Conditions
}

// soonest caches the certificates that expire soonest, until the certificates change.
type soonest struct {
	version int
	list    []observe.Expiry
}

func (r *reporting) expiries() []observe.Expiry {
	if ends, version := r.bindings.Expiries(); version != r.soonest.version {
		r.soonest = soonest{version, observe.SoonestExpiries(ends)}
	}
	return r.soonest.list
}

// trafficOf adds up the traffic of backends. It makes a new map each time, since views keep the
// previous one.
func (r *reporting) trafficOf(now time.Time) map[string]observe.Traffic {
	if r.traffic.by != nil && now.Sub(r.traffic.made) < trafficPace {
		return r.traffic.by
	}
	r.traffic = traffic{now, map[string]observe.Traffic{}}
	for _, i := range r.instances {
		r.traffic.add(i.samples, now)
	}
	return r.traffic.by
}

// serversUp returns how many servers of each backend are up, according to the last sample of each
// running worker.
func (r *reporting) serversUp(now time.Time) []rollout.ServersUp {
	var out []rollout.ServersUp
	for _, name := range r.names() {
		i := r.instances[name]
		if n := len(i.samples); n > 0 && i.reachable() && i.samples[n-1].PID == i.info.PID && now.Sub(i.samples[n-1].At) <= instance.Past {
			out = append(out, i.samples[n-1].Up)
		}
	}
	return out
}

// seen returns what people should see now.
func (r *reporting) seen(now time.Time) observe.View {
	var unusable []observe.Unusable
	for _, b := range slices.Concat(r.live.Faulty(), r.missedSecrets) {
		unusable = append(unusable, observe.Unusable{Secret: b.Secret, UID: r.live.SecretUID(b.Secret), Fault: b.Fault})
	}
	v := observe.View{
		Now: now, Leader: r.holder, Page: r.Page, Term: r.term.number, Fleet: r.view.Fleet,
		Decision: r.decision.Decision, StoreRead: r.viewRead, Rewound: r.rewound, Snapshots: r.view.IDs, Newest: r.view.Head(),
		Rollout: r.state.Rollout, Waits: r.waits, Changes: r.changes, Troubles: r.troubles,
		Kept: r.keptStatus(), Backends: r.backendsStatus(now),
		Channel: r.view.Channel, Budget: r.policy.Budget.Left(r.state.Rollout, r.names(), now),
		Lacking: r.lacking, KeptPorts: r.live.Lost(), Expiries: r.expiries(), Refused: observe.Refused(r.live.Refused()), Unusable: unusable,
	}
	v.Traffic, v.Up, v.Issuers = r.trafficOf(now), r.serversUp(now), r.bindings.Issuers()
	v.CertificateEnds, _ = r.bindings.Expiries()
	if r.live.Ready() {
		v.Endpoints = r.live.Endpoints()
	}
	if under := r.state.Rollout.Rollout; under != nil {
		_, v.TargetAtHand = r.snapshotCache.Get(under.Target)
		v.Traceparent = r.traceparent(under.Target)
	}
	if r.pods != nil {
		v.Pods, v.PodNamespace = true, r.pods.Namespace
	}
	var seen []rollout.Seen
	for _, name := range r.names() {
		v.Instances = append(v.Instances, r.seenOf(r.instances[name]))
		if v.Rollout.Rollout != nil {
			seen = append(seen, r.instances[name].seen(false))
		}
	}
	v.Waves, v.Soak, v.Gate = r.policy.Sizes(len(v.Instances)), r.policy.Soak, r.policy.Figures(v.Rollout, seen)
	for _, name := range slices.Sorted(maps.Keys(r.draining)) {
		v.Draining = append(v.Draining, r.seenOf(r.draining[name]))
	}
	return v
}

// seenOf returns what people should see about one instance.
func (r *reporting) seenOf(i *instanceState) observe.Instance {
	out := observe.Instance{
		Name: i.Name, Zone: i.Zone, UID: i.UID, Reachable: i.reachable(), Refused: isRefused(i.err), Err: i.err, Since: i.since,
		Running: i.snapshot(), Info: i.info, Started: i.started, Foreign: i.foreign(), ManualDrains: i.running.ManualDrains,
		Findings: i.findings, Conflict: i.conflict, Doing: doing(i.doing()), Pushing: i.busy == workPush, Updating: i.busy == workUpdate,
		JobError: i.jobError, JobErrorAt: i.jobErrorAt, Unclaimed: r.unclaimed(i), AwaitsCluster: r.bindings.AwaitsCluster(i.snapshot()),
	}
	if i.ledByOther() {
		out.LedBy = i.known.Record.LeaderText()
	}
	needs := r.needsOf(i)
	out.Arrived = arrived(needs)
	if out.UpToDate = inSync(needs); !out.UpToDate || out.Updating {
		needs.Busy, needs.NotBefore = false, time.Time{}
		out.Ahead = needs.pending(classify(needs, time.Time{}))
	}
	return out
}

// doing returns the name of the job under way for the status. It leaves out inspections. Every
// instance has one each minute. If the status named them, the status of a large fleet, and the
// state with it, would be written all the time although nothing changes.
func doing(busy work) string {
	if busy == workInspect {
		return ""
	}
	return string(busy)
}

// keptStatus returns the kept endpoints for the status, or nil if there are none.
func (r *reporting) keptStatus() *report.Kept {
	name, since, ports := r.live.Kept()
	if name == "" {
		return nil
	}
	return &report.Kept{Loss: name, Since: since, Count: len(ports), Services: ports[:min(len(ports), mostKept)]}
}

// mostKept is the largest number of Service ports that the status lists.
const mostKept = 100

// troubleWithReach reports that no instance of the fleet is reachable.
func (r *reporting) troubleWithReach(now time.Time) {
	names := r.names()
	var first error
	for _, name := range names {
		i := r.instances[name]
		if !i.asked || i.reachable() {
			first = nil
			break
		}
		if first == nil {
			first = fmt.Errorf("not one of %d instances can be reached: %s: %w", len(names), name, i.err)
		}
	}
	r.trouble(report.AboutReach, first, now)
}

// emptyRepeats is how often the log says that there is no snapshot.
const emptyRepeats = time.Minute

// sayEmpty repeats in the log that the store holds no snapshot, since it may be the wrong store.
func (r *reporting) sayEmpty(now time.Time) {
	if !r.viewRead || r.decision.Because != channel.BecauseEmpty {
		r.saidEmpty = time.Time{}
		return
	}
	if r.saidEmpty.IsZero() || now.Sub(r.saidEmpty) >= emptyRepeats {
		r.saidEmpty = now
		r.record(observe.Warn("there is no snapshot in the store, waiting for the first one", "store", r.view.Seen.Store,
			"hint", "see whether the compiler publishes to this store, and whether --store names its branch or name"), now)
	}
}

// troubleWithNeeds reports what the snapshots in use need that the pusher cannot have.
func (r *reporting) troubleWithNeeds(now time.Time) {
	needing := map[string][]string{}
	for id, p := range r.bindings.All() {
		for _, lack := range p.Lacks {
			needing[lack] = append(needing[lack], id.String())
		}
	}
	r.lacking = len(needing)
	if len(needing) == 0 {
		r.trouble(report.AboutNeeds, nil, now)
		return
	}
	lacks := slices.Sorted(maps.Keys(needing))
	ids := needing[lacks[0]]
	text := fmt.Sprintf("the pusher %s (needed by %s)", printable.Few(lacks, mostLacks), strings.Join(ids[max(0, len(ids)-2):], " and "))
	if waiting := r.lacks(); len(waiting) > 0 {
		text += fmt.Sprintf("; %s waits for it, and what runs is left as it is", r.decision.ID)
	} else {
		text += "; endpoints that were known are kept"
	}
	if strings.HasPrefix(lacks[0], "may not ") {
		text += "; pusher rbac prints the roles that it needs"
	}
	r.trouble(report.AboutNeeds, errors.New(text), now)
}

// troubleWithSecrets reports what the running snapshots need that is missing in Secrets, and faults
// in the Secrets that are used.
func (r *reporting) troubleWithSecrets(now time.Time) {
	// There may be a thousand instances and thousands of Secrets, and this is done in each turn.
	type node struct {
		id     snapshots.ID
		layout bind.Layout
	}
	looked, faultsOf := map[node]bool{}, r.live.Faults(now)
	found := map[bind.Need]error{}
	for _, i := range r.instances {
		at := node{i.snapshot(), i.Layout}
		if looked[at] {
			continue
		}
		looked[at] = true
		n, _ := r.bindings.Node(at.id, at.layout)
		missing := make(map[bind.Need]bool, len(n.Missing))
		for _, need := range n.Missing {
			missing[need] = true
		}
		p, _ := r.bindings.Of(at.id)
		for _, need := range p.Needs {
			if _, told := found[need]; told && !missing[need] {
				continue
			}
			if err := secretTrouble(need, missing[need], missing[need] && r.live.SecretAbsent(need.Secret), faultsOf(need)); err != nil {
				found[need] = err
			}
		}
	}
	var errs []error
	r.missedSecrets = nil
	for _, need := range slices.SortedFunc(maps.Keys(found), bind.Need.Compare) {
		errs = append(errs, found[need])
		r.missedSecrets = append(r.missedSecrets, binding.SecretFault{Secret: need.Secret, Fault: found[need].Error()})
	}
	r.trouble(report.AboutSecrets, errors.Join(errs...), now)
}

// secretTrouble returns an error that says what is wrong with a value that a Secret should hold,
// and what follows from that. It returns nil if nothing is wrong. Absent says that there is no such
// Secret. The faults are those that were found in it.
func secretTrouble(need bind.Need, missing, absent bool, faults []error) error {
	if !missing {
		if len(faults) == 0 {
			return nil
		}
		return fmt.Errorf("%s: %s", need, inShort(faults))
	}
	follows, lacks := "the fallback certificate is served", "has no usable certificate"
	switch need.Use {
	case snapshots.UseCA:
		follows, lacks = "no certificate is trusted", "has no usable authorities under "+bind.AuthoritiesKey
	case snapshots.UseUsers:
		follows, lacks = "nobody is let in", "has no usable users under "+bind.UsersKey
	case snapshots.UseValue:
		follows, lacks = "a value that nobody knows is used", fmt.Sprintf("has none under %s that is one line without '%%'", need.Key)
	case snapshots.UseCertificate:
	}
	switch {
	case absent:
		lacks = "does not exist"
	case len(faults) > 0 && need.Use != snapshots.UseValue:
		lacks += ": " + inShort(faults)
	}
	return fmt.Errorf("%s: Secret %s %s", follows, need.Secret, lacks)
}

// inShort joins the first few faults into a text.
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

// troubleWithSignatures reports snapshots that are newer than all accepted ones and not signed with
// an accepted key. Either somebody else put them into the store, or a key is missing in the
// configuration. It ignores older snapshots, which may be from a time before signatures were
// required.
func (r *reporting) troubleWithSignatures(now time.Time) {
	newer := refusedAbove(r.view)
	if len(newer) == 0 {
		r.trouble(report.AboutSigned, nil, now)
		return
	}
	more := ""
	if n := len(newer) - 1; n > 0 {
		more = fmt.Sprintf("; and %d more", n)
	}
	newest := newer[len(newer)-1]
	r.trouble(report.AboutSigned, fmt.Errorf("%s is not run: %s%s", newest.ID, newest.Reason, more), now)
}

// troubleWithNamed reports a pin or an override whose snapshot is missing or may not run: what runs then goes on.
func (r *reporting) troubleWithNamed(now time.Time) {
	var err error
	if r.viewRead && r.decision.HoldsNamed() {
		err = errors.New(r.decision.Message)
	}
	r.trouble(report.AboutNamed, err, now)
}

// refusedAbove returns the refused snapshots that are newer than the newest accepted one.
func refusedAbove(v channel.View) []channel.Refused {
	var out []channel.Refused
	for _, r := range v.Refused {
		if r.ID.Revision >= v.Head().Revision {
			out = append(out, r)
		}
	}
	return out
}

// mostEmpty is the largest number of backends without servers that the status lists.
const mostEmpty = 100

// withoutEndpoints returns the backends that the directives name. The value is true for a backend
// whose slots hold no endpoint. A draining endpoint does not count.
func withoutEndpoints(directives []bind.Directive, slots bind.Slots) map[string]bool {
	out := map[string]bool{}
	for _, d := range directives {
		if empty, known := out[d.Backend]; known && !empty {
			continue
		}
		out[d.Backend] = !slices.ContainsFunc(slots[d.Key()], func(s bind.Slot) bool {
			return s.State != bind.SlotSpare && s.Until.IsZero()
		})
	}
	return out
}

// emptiness tracks which backends have no server up, and since when.
type emptiness struct {
	of      snapshots.ID
	servers *bind.Server    // the servers from which empty was made
	empty   map[string]bool // all backends, true for those without endpoints
	since   map[string]time.Time
}

func newEmptiness(before *report.Backends) emptiness {
	out := emptiness{since: map[string]time.Time{}}
	if before != nil {
		for _, b := range before.List {
			out.since[b.Backend] = b.Since
		}
	}
	return out
}

// follow returns the backends that have no server up now. For each instance, down has the backends
// of which no server passes its checks.
func (x *emptiness) follow(down map[string][]string, now time.Time) *report.Backends {
	out := report.Backends{All: len(x.empty)}
	on := map[string][]string{}
	for _, instance := range slices.Sorted(maps.Keys(down)) {
		for _, backend := range down[instance] {
			if _, ours := x.empty[backend]; ours {
				on[backend] = append(on[backend], instance)
			}
		}
	}
	since := map[string]time.Time{}
	for backend, empty := range x.empty {
		if !empty && len(on[backend]) == 0 {
			continue
		}
		b := report.EmptyBackend{Backend: backend, Since: now.UTC().Truncate(time.Second)}
		if at, known := x.since[backend]; known {
			b.Since = at
		}
		if !empty {
			b.Instances = on[backend]
			out.Failing++
		}
		since[backend] = b.Since
		out.List = append(out.List, b)
	}
	x.since = since
	slices.SortFunc(out.List, func(a, b report.EmptyBackend) int {
		if a.Backend < b.Backend {
			return -1
		}
		return 1
	})
	out.Empty = len(out.List)
	out.List = out.List[:min(len(out.List), mostEmpty)]
	return &out
}

// backendsStatus returns the backends without a server up. It looks at the snapshot that should
// run, or, while that snapshot waits, at the last good one. It returns nil until one of them is
// read.
func (r *reporting) backendsStatus(now time.Time) *report.Backends {
	id := r.target()
	if p, atHand := r.bindings.Of(id); !atHand || !p.Known || len(r.lacks()) > 0 {
		id = r.state.Rollout.Good
	}
	p, atHand := r.bindings.Of(id)
	if !atHand || !p.Known || len(p.Servers) == 0 {
		return nil
	}
	if x := &r.emptiness; x.of != id || x.servers != &p.Servers[0] {
		slots, _ := r.bindings.Table()
		if p.Recorded {
			slots = p.Slots
		}
		x.of, x.servers, x.empty = id, &p.Servers[0], withoutEndpoints(p.Directives, slots)
	}
	down := map[string][]string{}
	for name, i := range r.instances {
		if s := i.samples.last(i.started); i.reachable() && s.PID == i.info.PID {
			down[name] = s.Down
		}
	}
	return r.emptiness.follow(down, now)
}
