package pusher

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/pusher/binding"
	"github.com/hapsnap/hapsnap/pusher/instance"

	"github.com/hapsnap/hapsnap/pusher/discovery"
	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/sealing"
)

// job is an effect that is not on an instance.
type job interface {
	effect
	// run does it, and may take long. What there is to know goes back as events: one at
	// the end, or several from an effect that watches something. Context ctx ends with the
	// pusher.
	run(ctx context.Context, send func(event))
}

// effect is something that the engine has decided to have done. It is a value: a turn
// collects effects, and the runner starts them after the turn, each in a goroutine of its
// own. Those on instances are in package instance.
type effect interface {
	// String says what is done, and to whom. It contains no secrets.
	String() string
}

// onInstance is an effect of package instance.
type onInstance struct{ instance.Effect }

// trace begins the span of a push or an update.
func (x onInstance) trace(ctx context.Context, o *observe.Observer) context.Context {
	switch x := x.Effect.(type) {
	case instance.Push:
		return o.PushSpan(ctx, x.Push, x.Traceparent)
	case instance.Update:
		return o.UpdateSpan(ctx, x.Name, x.Running, x.Traceparent)
	}
	return ctx
}

// do has something done on an instance after the turn.
func (e *engine) do(x instance.Effect) { e.begin(onInstance{x}) }

// begin has an effect started after the turn.
func (e *engine) begin(x effect) { e.effects = append(e.effects, x) }

// readSnapshot reads a snapshot from this machine's disk, else from the store.
type readSnapshot struct {
	store Store
	dir   string
	id    snapshots.ID
}

func (r readSnapshot) run(ctx context.Context, send func(event)) {
	s, err := fetch(ctx, r.store, r.dir, r.id)
	send(snapshotRead{r.id, s, err})
}

func (r readSnapshot) String() string { return observe.Describe("read snapshot", "snapshot", r.id) }

// keepSnapshot keeps a snapshot on this machine's disk once more.
type keepSnapshot struct {
	dir      string
	snapshot snapshots.Snapshot
}

func (k keepSnapshot) run(_ context.Context, send func(event)) {
	send(snapshotRead{k.snapshot.ID(), k.snapshot, keep(k.dir, k.snapshot)})
}

func (k keepSnapshot) String() string {
	return observe.Describe("keep snapshot", "snapshot", k.snapshot.ID())
}

// openCertificates opens the certificates that a snapshot carries, or reads those beside it.
// The file of identities is read each time, as it may be another by now.
type openCertificates struct {
	store    Store
	identity string // the file
	snapshot snapshots.Snapshot
}

func (o openCertificates) run(ctx context.Context, send func(event)) {
	found, err := o.open(ctx)
	send(certificatesOpened{o.snapshot.ID(), found, err})
}

func (o openCertificates) String() string {
	return observe.Describe("open certificates", "snapshot", o.snapshot.ID())
}

func (o openCertificates) open(ctx context.Context) (map[string][]byte, error) {
	if slices.ContainsFunc(binding.VersionsOf(o.snapshot), func(ref snapshots.CertificateRef) bool { return ref.Mode == snapshots.ModeCompanion }) {
		return companions(ctx, o.store, o.snapshot.ID())
	}
	if o.identity == "" {
		return sealing.Identities{}.Certificates(o.snapshot)
	}
	identities, err := sealing.ReadIdentities(o.identity)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.snapshot.ID(), err)
	}
	return identities.Certificates(o.snapshot)
}

// writeRejection notes a failure of a fleet in the channel.
type writeRejection struct {
	store   Store
	failure rollout.Failure
	fleet   string
	// digest is that of the snapshot, where it is known.
	digest snapshots.Digest
	known  bool
	at     time.Time
}

func (w writeRejection) run(ctx context.Context, send func(event)) {
	send(rejectionWritten{w.failure.Snapshot, rejectInChannel(ctx, w.store, w.failure, w.fleet, w.digest, w.known, w.at)})
}

func (w writeRejection) String() string {
	return observe.Describe("write rejection", "snapshot", w.failure.Snapshot, "reason", w.failure.Reason)
}

// rejectInChannel notes a failure of a fleet in the channel, unless people named the snapshot anew
// meanwhile. The digest is that of the snapshot, read again where it is no longer at hand.
func rejectInChannel(ctx context.Context, store Store, f rollout.Failure, fleetName string, digest snapshots.Digest, known bool, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, viewTimeout)
	defer cancel()
	if !known {
		s, err := store.Get(ctx, f.Snapshot)
		if err != nil {
			return fmt.Errorf("reject %s: %w", f.Snapshot, err)
		}
		digest = s.Manifest.Spec.Digest
	}
	r := rejectionOf(f, digest, fleetName)
	err := store.UpdateChannel(ctx, fmt.Sprintf("reject %s: %s", f.Snapshot, observe.FirstLine(f.Reason, 80)), now, func(c *channel.Channel) error {
		if !f.Withdrawn(wishes(*c, now)) {
			*c = c.Reject(r)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("reject %s: %w", f.Snapshot, err)
	}
	return nil
}

// watchPods looks for the pods of a fleet until others are looked for.
type watchPods struct {
	options Options
	pods    *fleet.Pods
	until   <-chan struct{}
}

func (w watchPods) run(ctx context.Context, send func(event)) {
	ctx, cancel := untilClosed(ctx, w.until)
	defer cancel()
	report := func(found []fleet.Instance, err error) {
		if ctx.Err() == nil {
			send(podsFound{w.pods, found, err})
		}
	}
	if w.options.Pods == nil {
		report(nil, errNoCluster)
		return
	}
	client, err := w.options.Pods()
	if err != nil {
		report(nil, err)
		return
	}
	discovery.Watch(ctx, client, *w.pods, w.options.Log, report)
}

func (w watchPods) String() string {
	return observe.Describe("watch pods", "namespace", w.pods.Namespace)
}
