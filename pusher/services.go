package pusher

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/hapsnap/hapsnap/internal/credentials"
	"github.com/hapsnap/hapsnap/pusher/binding"
	"github.com/hapsnap/hapsnap/pusher/core"
	"github.com/hapsnap/hapsnap/pusher/discovery"
	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/instance"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/statestore"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/sealing"
)

// viewTimeout bounds one look into the store, or one change of its channel.
const viewTimeout = 30 * time.Second

// services has what effects need to be carried out: stores, clients and connections. Only the runner
// has them; the machine does not.
type services struct {
	store      Store
	cache      string // the folder with the snapshots in use, "" for none
	identity   string // the file of identities, "" for none
	stateStore StateStore
	cluster    Cluster                              // nil: there is none
	pods       func() (kubernetes.Interface, error) // nil: there is no cluster
	fence      *push.Fence
	end        context.CancelCauseFunc // ends the term
	start      func(job func())        // runs a job in a goroutine of its own, which the runner waits for
	log        *slog.Logger
	observer   *observe.Observer

	credentials credentialsMaker
	connections *instance.Connections
	podsWatched context.CancelFunc // ends the current watch of pods
}

func (o Options) services(t term, start func(job func())) *services {
	return &services{
		store: o.Store, cache: o.cache(), identity: o.Identity, stateStore: t.state, cluster: o.Cluster, pods: o.Pods,
		fence: t.fence, end: t.end, start: start, log: o.Log, credentials: credentialsMaker{o.MakeCredentials, o.CredentialsMetrics, o.Log},
		observer: observe.New(o.observed()), connections: instance.New(o.connectionOptions(), t.fence),
	}
}

// job carries out an effect, and may take long. It sends one event at its end, or several if it
// watches something.
type job func(ctx context.Context, send func(core.Event))

// job returns the job of an effect, or nil if it has carried the effect out already. The caller calls
// it in the order in which the effects were decided. It waits for nothing. Context ctx ends with the
// pusher.
func (s *services) job(ctx context.Context, x core.Effect) job {
	switch x := x.(type) {
	case core.OnInstance:
		traced, run := s.trace(ctx, x.Effect), s.connections.Job(x.Effect)
		return func(_ context.Context, send func(core.Event)) {
			run(traced, func(ev instance.Event) { send(core.OfInstance{Event: ev}) })
		}
	case core.ReadSnapshot:
		return one(func(ctx context.Context) core.Event {
			read, err := fetch(ctx, s.store, s.cache, x.ID)
			return core.SnapshotRead{ID: x.ID, Snapshot: read, Err: err}
		})
	case core.KeepSnapshot:
		return one(func(context.Context) core.Event {
			return core.SnapshotRead{ID: x.Snapshot.ID(), Snapshot: x.Snapshot, Err: keep(s.cache, x.Snapshot)}
		})
	case core.ForgetSnapshots:
		return one(func(context.Context) core.Event {
			forget(s.cache, x.Needed)
			return core.SnapshotsForgotten{}
		})
	case core.OpenCertificates:
		return one(func(ctx context.Context) core.Event {
			found, err := s.open(ctx, x.Snapshot)
			return core.CertificatesOpened{ID: x.Snapshot.ID(), Found: found, Err: err}
		})
	case core.WriteRejection:
		return one(func(ctx context.Context) core.Event {
			return core.RejectionWritten{ID: x.Failure.Snapshot, Err: reject(ctx, s.store, place(s.stateStore), x)}
		})
	case core.SaveState:
		return one(func(ctx context.Context) core.Event { return save(ctx, s.stateStore, x) })
	case core.RaiseTerm:
		return one(func(ctx context.Context) core.Event { return s.raise(ctx, x) })
	case core.WatchPods:
		return s.watchPods(ctx, x.Pods)
	case core.FollowCluster:
		s.cluster.Want(x.Wanted)
		return nil
	case core.EndTerm:
		s.end(x.Why)
		return nil
	}
	panic(fmt.Sprintf("an effect of a kind that is not known: %T", x))
}

// one makes a job that sends one event.
func one(run func(context.Context) core.Event) job {
	return func(ctx context.Context, send func(core.Event)) { send(run(ctx)) }
}

// trace begins the span of a push or an update. For other effects it returns ctx.
func (s *services) trace(ctx context.Context, x instance.Effect) context.Context {
	switch x := x.(type) {
	case instance.Push:
		return s.observer.PushSpan(ctx, x.Push, x.Traceparent)
	case instance.Update:
		return s.observer.UpdateSpan(ctx, x.Name, x.Snapshot, x.Traceparent)
	}
	return ctx
}

// open returns the certificates that a snapshot carries, or those beside it. It reads the file of
// identities each time, since it may have changed.
func (s *services) open(ctx context.Context, of snapshots.Snapshot) (map[string][]byte, error) {
	if slices.ContainsFunc(binding.VersionsOf(of), func(ref snapshots.CertificateRef) bool { return ref.Mode == snapshots.ModeCompanion }) {
		return companions(ctx, s.store, of.ID())
	}
	if s.identity == "" {
		return sealing.Identities{}.Certificates(of)
	}
	identities, err := sealing.ReadIdentities(s.identity)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", of.ID(), err)
	}
	return identities.Certificates(of)
}

// reject notes a failure in the channel. If the effect has no digest, it reads the snapshot for it.
func reject(ctx context.Context, store Store, place string, w core.WriteRejection) error {
	ctx, cancel := context.WithTimeout(ctx, viewTimeout)
	defer cancel()
	failed, digest := w.Failure.Snapshot, w.Digest
	if digest == "" {
		s, err := store.Get(ctx, failed)
		if err != nil {
			return fmt.Errorf("reject %s: %w", failed, err)
		}
		digest = s.Manifest.Spec.Digest
	}
	err := store.UpdateChannel(ctx, fmt.Sprintf("reject %s: %s", failed, report.FirstLine(w.Failure.Reason, 80)), w.At, func(c *channel.Channel) error {
		*c = w.Edit(*c, digest)
		c.Act = channel.Act{Verb: channel.VerbReject, Snapshot: failed, By: "pusher", Reason: report.FirstLine(w.Failure.Reason, report.LongestMessage), From: place}
		return nil
	})
	if err != nil {
		return fmt.Errorf("reject %s: %w", failed, err)
	}
	return nil
}

// save saves the state even if the pusher ends meanwhile, since nobody would know whether an
// interrupted save was made.
func save(ctx context.Context, k StateStore, x core.SaveState) core.SaveEnded {
	if x.Err != nil {
		return core.SaveEnded{Err: x.Err}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), core.SaveTimeout)
	defer cancel()
	err := k.Save(ctx, x.Data)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: %w", core.ErrStateHangs, err)
	}
	if errors.Is(err, statestore.ErrTooLarge) {
		err = fmt.Errorf("%w: %w", core.ErrStateTooLarge, err)
	}
	return core.SaveEnded{Err: err, Taken: errors.Is(err, statestore.ErrTaken)}
}

// raise raises the term in the state store and in the fence.
func (s *services) raise(ctx context.Context, x core.RaiseTerm) core.Event {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), core.SaveTimeout)
	defer cancel()
	term, err := s.stateStore.Raise(ctx, x.Above)
	if err == nil {
		s.fence.Raise(term)
	}
	return core.Raised{RaiseTerm: x, Term: term, Err: err, Taken: errors.Is(err, statestore.ErrTaken)}
}

var errNoCluster = errors.New("the fleet has pods, and no cluster is known to look for them in")

// watchPods returns the job that looks for the pods of a fleet until the next call.
func (s *services) watchPods(ctx context.Context, pods *fleet.Pods) job {
	if s.podsWatched != nil {
		s.podsWatched()
		s.podsWatched = nil
	}
	if pods == nil {
		return nil
	}
	ctx, s.podsWatched = context.WithCancel(ctx)
	return func(_ context.Context, send func(core.Event)) {
		report := func(found []fleet.Instance, err error) {
			if ctx.Err() == nil {
				send(core.PodsFound{Of: *pods, Found: found, Err: err})
			}
		}
		if s.pods == nil {
			report(nil, errNoCluster)
			return
		}
		client, err := s.pods()
		if err != nil {
			report(nil, err)
			return
		}
		s.start(func() { s.credentials.run(ctx, client, *pods, send) })
		discovery.Watch(ctx, client, *pods, s.log, report)
	}
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

// newFallback returns the function that makes the fallback certificate.
func newFallback(now time.Time) func() ([]byte, error) {
	return func() ([]byte, error) {
		certificate, key, err := credentials.SelfSigned(x509.Certificate{
			Subject:   pkix.Name{CommonName: "hapsnap fallback certificate"},
			NotBefore: now.Add(-time.Hour),
			NotAfter:  now.AddDate(10, 0, 0),
		})
		data := slices.Concat(certificate, key)
		if err != nil {
			return nil, fmt.Errorf("make fallback certificate: %w", err)
		}
		return data, nil
	}
}

// credentialsMaker fills and renews Secrets that the fleet's file names, while this pusher leads.
type credentialsMaker struct {
	secrets []string
	metrics *credentials.Metrics
	log     *slog.Logger
}

// run goes on until ctx is done, and sends events about errors.
func (m credentialsMaker) run(ctx context.Context, client kubernetes.Interface, pods fleet.Pods, send func(core.Event)) {
	if len(m.secrets) == 0 {
		return
	}
	credentials.New(credentials.Options{
		Namespace: pods.Namespace, Secrets: client.CoreV1().Secrets(pods.Namespace), Log: m.log, Metrics: m.metrics,
		Wanted: func(context.Context) ([]credentials.Wanted, error) { return WantedCredentials(pods, m.secrets) },
	}).Run(ctx, func(err error) { send(core.CredentialsMade{Of: pods, Err: err}) })
}

// WantedCredentials returns what the Secrets of these names should hold. The fleet's file has to name
// each of them.
func WantedCredentials(pods fleet.Pods, names []string) ([]credentials.Wanted, error) {
	var out []credentials.Wanted
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		switch {
		case name == pods.Secret && name == pods.CASecret:
			return nil, fmt.Errorf("make credentials: Secret %s cannot have both a password and a certificate", name)
		case name == pods.Secret:
			out = append(out, credentials.Wanted{Secret: name, Password: &credentials.Password{UsernameKey: pods.UsernameKey, PasswordKey: pods.PasswordKey}})
		case name == pods.CASecret && pods.ServerName != "":
			out = append(out, credentials.Wanted{Secret: name, Certificate: &credentials.Certificate{DNSNames: []string{pods.ServerName}}})
		case name == pods.CASecret:
			return nil, fmt.Errorf("make credentials: Secret %s is for a certificate, and the fleet's pods have no tls.serverName", name)
		default:
			return nil, fmt.Errorf("make credentials: the fleet's pods name no Secret %s", name)
		}
	}
	return out, nil
}
