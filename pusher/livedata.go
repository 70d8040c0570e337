package pusher

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/hapsnap/hapsnap/internal/manifests"
	"github.com/hapsnap/hapsnap/pusher/cluster"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/live"
)

// liveData is what was read of the live objects.
type liveData struct {
	bind.Live
	slices   int            // how many EndpointSlices there are
	problems []string       // what could not be used
	faulty   []brokenSecret // of them, in Secrets of a cluster
	broken   map[snapshots.SecretName]bool
	// faults are those of what only a snapshot can tell the use of.
	faults   map[bind.Need][]error
	secrets  map[snapshots.SecretName]bool
	evidence evidence
	unsure   bool // something could not be parsed: what is absent may be in there
}

// watchLive reads the directory now and after each change, and sends what it
// holds, until ctx is done.
func watchLive(ctx context.Context, dir string, log *slog.Logger, send func(liveData, error)) {
	changed := manifests.Watch(ctx, []string{dir}, log)
	var reader manifests.Reader
	for {
		set, err := reader.Read(dir)
		if err != nil {
			send(liveData{}, fmt.Errorf("read live objects: %w", err))
		} else {
			send(translate(set), nil)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// translate picks the EndpointSlices and Secrets from a set of objects.
func translate(set manifests.Set) liveData {
	var endpointSlices []discoveryv1.EndpointSlice
	var secrets []corev1.Secret
	out := liveData{broken: map[snapshots.SecretName]bool{}, secrets: map[snapshots.SecretName]bool{}, unsure: len(set.Problems) > 0}
	for _, p := range set.Problems {
		out.problems = append(out.problems, fmt.Sprintf("%s: %s", p.Position, p.Message))
	}
	for _, o := range set.Objects {
		switch o.GVK() {
		case manifests.GVK{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}:
			decodeInto(&out, o, &endpointSlices)
		case manifests.GVK{APIVersion: "v1", Kind: "Secret"}:
			decodeInto(&out, o, &secrets)
		}
	}
	for _, s := range secrets {
		out.secrets[snapshots.SecretName{Namespace: s.Namespace, Name: s.Name}] = true
	}
	out.slices = len(endpointSlices)
	sliced := map[snapshots.SecretName]bool{}
	for _, s := range endpointSlices {
		sliced[snapshots.SecretName{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}] = true
	}
	out.evidence = newEvidence(set, sliced)
	out.Endpoints = live.Endpoints(endpointSlices)
	certificates, problems := live.Certificates(secrets)
	out.Certificates = certificates
	more := live.GatherSecrets(secrets)
	out.Authorities, out.Users, out.Values, out.faults = more.Authorities, more.Users, more.Values, more.Problems
	for _, p := range problems {
		out.broken[p.Secret] = true
		out.problems = append(out.problems, p.Error())
	}
	return out
}

// decodeInto appends the object. One that breaks its schema is a problem, and
// what it held before is kept.
func decodeInto[T any](out *liveData, o manifests.Object, list *[]T) {
	var v T
	if faults := o.Decode(&v); len(faults) > 0 {
		out.unsure = true
		out.problems = append(out.problems, fmt.Sprintf("%s: %s: %s", faults[0].Position, o, faults[0].Error()))
		return
	}
	*list = append(*list, namespaced(v, o))
}

// namespaced gives an object the namespace that the manifest left out.
func namespaced[T any](v T, o manifests.Object) T {
	switch v := any(&v).(type) {
	case *discoveryv1.EndpointSlice:
		v.Namespace = o.Namespace
	case *corev1.Secret:
		v.Namespace = o.Namespace
	}
	return v
}

// mergeLive returns the live data to use after a read, with the endpoints of before,
// which are looked at elsewhere (liveGuard). The last usable certificate of a Secret that
// is broken now stays in use; authorities, users and values do not, for who may pass is
// said by what is there now. Where something could not be parsed, what is absent may be in
// there, and is kept; so is what is absent where all EndpointSlices are, too, and in
// namespaces whose endpoints are kept.
func mergeLive(old, read liveData, doubted func(namespace string) bool) liveData {
	nothing := read.slices == 0 && old.slices > 0
	doubt := func(name snapshots.SecretName) bool {
		return !read.secrets[name] && (read.unsure || nothing || doubted(name.Namespace))
	}
	if read.slices == 0 {
		read.slices = old.slices
	}
	read.Endpoints = old.Endpoints
	read.Certificates = withAbsent(read.Certificates, old.Certificates, func(name snapshots.SecretName) bool {
		return read.broken[name] || read.unsure || doubt(name)
	})
	read.Values = withAbsent(read.Values, old.Values, func(key bind.SecretKey) bool { return doubt(key.Secret) })
	read.Authorities = withAbsent(read.Authorities, old.Authorities, doubt)
	read.Users = withAbsent(read.Users, old.Users, doubt)
	return read
}

// withAbsent returns what was read, and of what was known before that which is
// absent now and to be kept.
func withAbsent[K comparable, V any](read, old map[K]V, keep func(K) bool) map[K]V {
	out := maps.Clone(read)
	for key, value := range old {
		if _, there := read[key]; !there && keep(key) {
			if out == nil {
				out = map[K]V{}
			}
			out[key] = value
		}
	}
	return out
}

// want tells the cluster what the snapshots in use need of it.
func (e *engine) want() {
	if e.bindings.from != fromCluster {
		return
	}
	var all cluster.Wanted
	for _, id := range slices.SortedFunc(maps.Keys(e.bindings.prepared), snapshots.ID.Compare) {
		wants := e.bindings.prepared[id].wants
		all.Namespaces = append(all.Namespaces, wants.Namespaces...)
		all.Secrets = append(all.Secrets, wants.Secrets...)
	}
	e.Cluster.Want(all)
	e.bindings.learn(e.waiting.status) // it may be known already, for another snapshot
}

// takeCluster takes what changed in the cluster.
func (e *engine) takeCluster(change cluster.Change, now time.Time) {
	change.Endpoints = e.refusals.filter(change.Endpoints)
	if s := change.Status; s != nil {
		e.losses.read, e.losses.sliceless = len(s.Waits) == 0 && len(e.bindings.prepared) > 0, s.Slices == 0
	}
	if reports := e.reportsOfChange(change); len(reports) > 0 {
		e.hearEndpoints(reports, now)
	}
	e.losses.doubtSecrets(&change, now)
	if len(change.Endpoints) > 0 {
		e.propagation.came(change.Since)
	}
	if len(change.Secrets) > 0 {
		e.takeSecrets(change, now)
	}
	if change.Status != nil {
		e.bindings.learn(*change.Status)
		e.waiting.take(*change.Status, now)
		e.trouble("cluster", change.Status.Trouble, now)
	}
}

// takeSecrets takes Secrets that changed. The last usable certificate of one that is
// broken now stays in use.
func (e *engine) takeSecrets(change cluster.Change, now time.Time) {
	for name, s := range change.Secrets {
		if s == nil {
			delete(e.secrets, name)
			continue
		}
		e.secrets[name] = e.secrets[name].follow(*s)
	}
	endpoints := e.live.Endpoints
	e.live = e.secrets.live()
	e.live.Endpoints, e.live.Fallback = endpoints, e.fallback
	if e.bindings.setLive(e.live.Live, now) {
		e.propagation.begin(propagationSecrets, change.Since)
	}
	e.objects.broken = e.live.faulty
	e.troubleWithObjects(now)
}

// learn takes note of what is known of the cluster.
func (b *bindings) learn(s cluster.Status) {
	was := b.read
	b.read = s.Read
	for id, p := range b.prepared {
		known := s.Knows(p.wants)
		b.stale = b.stale || p.known != known || was == nil ||
			slices.ContainsFunc(p.wants.Namespaces, func(n string) bool { return was(n) != s.Read(n) })
		p.known, p.lacks = known, s.Denied(p.wants)
		b.prepared[id] = p
	}
}

// waiting is what the cluster did not say yet, and since when that is waited for.
type waiting struct {
	status cluster.Status
	since  time.Time
}

func (w *waiting) take(s cluster.Status, now time.Time) {
	switch {
	case len(s.Waits) == 0:
		w.since = time.Time{}
	case w.since.IsZero():
		w.since = now
	}
	w.status = s
}

// shortWait is how long the cluster may take to say what it has, each time that
// something new is asked for, before somebody is told.
const shortWait = 2 * time.Second

// troubleWithCluster tells what is waited for, if it takes long.
func (e *engine) troubleWithCluster(now time.Time) {
	if e.bindings.from != fromCluster {
		return
	}
	var err error
	// What may not be read is told as what is needed, unless nothing can be done without it.
	onlyRefused := len(e.waiting.status.Refused) == len(e.waiting.status.Waits) && !e.unknown(e.state.Rollout.Good)
	if w := e.waiting; !w.since.IsZero() && now.Sub(w.since) >= shortWait && !onlyRefused {
		err = fmt.Errorf("snapshots that need it wait for %s", cluster.Some(w.status.Waits))
	}
	e.trouble("live", err, now)
}
