// Package election chooses one of several processes of a program to be the one that acts: of several
// compilers the one that publishes, of several pushers the one that pushes. It uses a Lease, through
// client-go's elector.
//
// A process leads until the renew deadline after its last write of the Lease, counted from when it sent
// the request. Other processes take the Lease over only when its longer duration has passed without a
// renewal, so that no two lead at once, however long a process was paused. What a process does while it
// leads, it does with a context that ends with its term: see [Elector.Term]. A process that loses the
// Lease goes on and can lead again.
//
// Clocks need not agree, but must run at about the same speed. A request may still arrive after its
// context has ended. Senders have to make sure that such a late write does no harm: see packages
// compiler and pusher.
package election

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/hapsnap/hapsnap/internal/objectname"
	"github.com/hapsnap/hapsnap/internal/process"
)

// ErrNotLeading is the cause that ends the context of a term.
var ErrNotLeading = errors.New("another process may be the leader by now")

// Options are those of an [Elector]. All fields are needed.
type Options struct {
	Program         string // "compiler" or "pusher": the metric is named by it
	Leases          coordinationv1.LeasesGetter
	Namespace, Name string // of the Lease
	Identity        string // of this process, and of no other: see [Identity]
	Times           Times
	Log             *slog.Logger
	Metrics         prometheus.Registerer
}

// Elector takes part in the election. It may be used by several goroutines.
type Elector struct {
	options Options
	changed chan struct{}

	mu     sync.Mutex
	term   term
	ended  chan struct{} // closed when the term ends; nil without one
	expiry *time.Timer   // ends the term
	using  int           // calls of Term that have not ended
	idle   chan struct{} // closed when none is left; nil before the first
	holder string
	failed error // of the last request
}

// New returns an elector, which takes part once it is run.
func New(o Options) (*Elector, error) {
	if err := o.Times.Check(); err != nil {
		return nil, err
	}
	e := &Elector{options: o, changed: make(chan struct{}, 1)}
	o.Metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "hapsnap_" + o.Program + "_leader", Help: "1 while this process is the leader, else 0.",
	}, func() float64 {
		if e.Leading() {
			return 1
		}
		return 0
	}))
	return e, nil
}

// Run takes part until ctx is done. Then it ends the term, waits for the functions that use the term,
// and releases the Lease, so that another process can lead at once.
func (e *Elector) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		elector, err := leaderelection.NewLeaderElector(e.config())
		if err != nil {
			return fmt.Errorf("begin leader election: %w", err)
		}
		// This package logs instead of client-go.
		elector.Run(klog.NewContext(ctx, klog.Logger{}))
	}
	e.end("stopping")
	return nil
}

func (e *Elector) config() leaderelection.LeaderElectionConfig {
	o := e.options
	return leaderelection.LeaderElectionConfig{
		Name: o.Name, LeaseDuration: o.Times.LeaseDuration, RenewDeadline: o.Times.RenewDeadline, RetryPeriod: o.Times.RetryPeriod,
		ReleaseOnCancel: true,
		Lock: &lock{
			Interface: &resourcelock.LeaseLock{
				LeaseMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name}, Client: o.Leases,
				LockConfig: resourcelock.ResourceLockConfig{Identity: o.Identity},
			},
			timeout: o.Times.RenewDeadline / 2, read: e.read, before: e.before, after: e.after,
		},
		Callbacks: leaderelection.LeaderCallbacks{
			// Terms begin and end with what is written: see after.
			OnStartedLeading: func(context.Context) {},
			OnStoppedLeading: func() {},
			OnNewLeader:      e.observed,
		},
	}
}

// before decides whether a record may be written. The Lease is released only when no function uses the
// term any more: the process that takes it next must be alone.
//
// One that was read as another process's is not released: client-go reads the Lease before it releases it,
// but looks at the holder that it saw before. A process that was stopped for longer than the Lease lasts
// would take the Lease from its successor.
func (e *Elector) before(ctx context.Context, record resourcelock.LeaderElectionRecord, holder string) error {
	if record.HolderIdentity == e.options.Identity {
		return nil
	}
	lost := holder != e.options.Identity
	if lost {
		e.end("another process holds the lease")
	} else {
		e.end("lease given back")
	}
	if idle := e.unused(); idle != nil {
		select {
		case <-idle:
		case <-ctx.Done():
			e.options.Log.Warn("lease not given back: what was begun while leading has not ended; another process leads when the lease has expired", "lease", e.lease())
			return fmt.Errorf("wait for what was begun while leading: %w", ctx.Err())
		}
	}
	if lost {
		return fmt.Errorf("the lease is %s's: it is not released", holder)
	}
	return nil
}

// unused returns a channel that is closed when no function uses a term, or nil if none ever did.
func (e *Elector) unused() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.idle
}

// about returns what the log says about an error of the Lease.
func (e *Elector) about(err error) []any {
	out := []any{"lease", e.lease(), "err", err}
	if apierrors.IsForbidden(err) {
		out = append(out, "hint", fmt.Sprintf("name one that the account may write with --lease=NAMESPACE/NAME, or apply the role that '%s rbac --lease=%s' prints", e.options.Program, e.lease()))
	}
	return out
}

// read records how reading the Lease went, and who holds it. That the Lease does not exist yet is no error. If
// somebody deleted the Lease, or gave it to another process, the term of this one ends before its time.
func (e *Elector) read(holder string, err error) {
	if err == nil && holder != "" && holder != e.options.Identity {
		e.end("another process holds the lease")
	}
	if apierrors.IsNotFound(err) {
		err = nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil && e.failed == nil {
		e.options.Log.Warn("cannot read the lease, trying again", e.about(err)...)
	}
	e.failed = err
}

// after begins, prolongs or ends the term, depending on what was written.
func (e *Elector) after(sent time.Time, record resourcelock.LeaderElectionRecord, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil {
		if e.failed == nil {
			e.options.Log.Warn("cannot write the lease, trying again", e.about(err)...)
		}
		e.failed = err
		return
	}
	e.failed = nil
	if record.HolderIdentity != e.options.Identity {
		return
	}
	e.term = term{renewed: sent, length: e.options.Times.RenewDeadline}
	left := time.Until(sent.Add(e.term.length))
	if e.ended != nil {
		e.expiry.Reset(left)
		return
	}
	e.ended = make(chan struct{})
	e.expiry = time.AfterFunc(left, e.expire)
	e.options.Log.Info("leading", "lease", e.lease(), "identity", e.options.Identity)
	e.notify()
}

// expire ends a term that was not prolonged in time.
func (e *Elector) expire() {
	if !e.Leading() {
		e.end("lease not renewed in time")
	}
}

func (e *Elector) end(why string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.term = term{}
	if e.ended == nil {
		return
	}
	close(e.ended)
	e.ended = nil
	e.expiry.Stop()
	e.options.Log.Info("not leading any more", "lease", e.lease(), "reason", why)
	e.notify()
}

// notify is called with the lock held.
func (e *Elector) notify() {
	select {
	case e.changed <- struct{}{}:
	default:
	}
}

func (e *Elector) observed(holder string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.holder = holder
	if holder != "" && holder != e.options.Identity {
		e.options.Log.Info("another process leads", "lease", e.lease(), "holder", holder)
	}
}

func (e *Elector) lease() string { return e.options.Namespace + "/" + e.options.Name }

// Leading reports whether this process leads right now.
func (e *Elector) Leading() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.term.holds(time.Now())
}

// Leads returns nil while this process leads, else [ErrNotLeading].
func (e *Elector) Leads() error {
	if !e.Leading() {
		return ErrNotLeading
	}
	return nil
}

// Trouble returns why the Lease could not be read or written the last time, or nil.
func (e *Elector) Trouble() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.failed == nil {
		return nil
	}
	return fmt.Errorf("lease %s: %w", e.lease(), e.failed)
}

// Holder returns the identity that was last seen on the Lease, or "".
func (e *Elector) Holder() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.holder
}

// Changed returns a channel that receives when this process may have begun or ceased to lead.
func (e *Elector) Changed() <-chan struct{} { return e.changed }

// Term returns a context for something that only the leader may do, and false if this process does not
// lead. The context ends as soon as the term does, with [ErrNotLeading] as its cause. The caller calls
// end when it is done: until then the elector does not release the Lease.
func (e *Elector) Term(ctx context.Context) (during context.Context, end context.CancelFunc, leading bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended == nil || !e.term.holds(time.Now()) {
		return ctx, func() {}, false
	}
	if e.using == 0 {
		e.idle = make(chan struct{})
	}
	e.using++
	during, cancel := context.WithCancelCause(ctx)
	go func(ended <-chan struct{}) {
		select {
		case <-ended:
			cancel(ErrNotLeading)
		case <-during.Done():
		}
	}(e.ended)
	return during, sync.OnceFunc(func() { cancel(context.Canceled); e.release() }), true
}

// release records that a call of Term has ended.
func (e *Elector) release() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.using--; e.using == 0 {
		close(e.idle)
	}
}

// lock is a Lease that reports when it was written, and whether that succeeded. Each request has a time
// limit: a request that hangs must not delay the next one beyond the deadline.
type lock struct {
	resourcelock.Interface
	timeout time.Duration
	holder  string // as last read or written
	// read is called with the result of reading the Lease, and who holds it if there is no error.
	read func(holder string, err error)
	// before decides whether a record may be written, and after is called with the result and when the
	// request was sent.
	before func(ctx context.Context, record resourcelock.LeaderElectionRecord, holder string) error
	after  func(sent time.Time, record resourcelock.LeaderElectionRecord, err error)
}

// Get reads the Lease.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	record, raw, err := l.Interface.Get(ctx)
	if err == nil {
		l.holder = record.HolderIdentity
	}
	l.read(l.holder, err)
	return record, raw, err
}

// Create makes the Lease.
func (l *lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, l.Interface.Create)
}

// Update renews, takes or releases the Lease.
func (l *lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, l.Interface.Update)
}

func (l *lock) write(ctx context.Context, record resourcelock.LeaderElectionRecord, write func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	if err := l.before(ctx, record, l.holder); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	// The answer is waited for even if the process is to stop meanwhile. Without it, the process would not know that the
	// Lease is its own, and would leave it to nobody.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.timeout)
	defer cancel()
	sent := time.Now()
	err := write(ctx, record)
	if err == nil {
		l.holder = record.HolderIdentity
	}
	l.after(sent, record, err)
	return err
}

// Flags say by which Lease, and with which times, one of several processes is elected.
type Flags struct {
	Lease string // NAMESPACE/NAME; "" is the program's usual one
	Times Times
}

// AddTo declares --lease, with a help text, and the flags of the times, for a program.
func (f *Flags) AddTo(flags *pflag.FlagSet, program, lease string) {
	flags.StringVar(&f.Lease, "lease", "", lease)
	f.Times.AddFlags(flags, program)
}

// Name returns the name of the Lease, or the usual one if the flags name none.
func (f *Flags) Name(program string, usual func() (types.NamespacedName, error)) (types.NamespacedName, error) {
	if f.Lease == "" {
		return usual()
	}
	name, err := objectname.Parse(f.Lease)
	if err != nil {
		return name, process.WithHint(process.Usage("--lease %w", err), "name a Lease such as edge/hapsnap-"+program)
	}
	return name, nil
}

// Check returns what is wrong with the times.
func (f *Flags) Check() error {
	if err := f.Times.Check(); err != nil {
		return process.Usage("%w", err)
	}
	return nil
}

// OwnIdentity is the [Identity] of this process on this host.
func OwnIdentity() (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("find the name of this host: %w", err)
	}
	return Identity(host), nil
}

// Identity returns a name that only this process has. Another process that follows it under the same
// host name gets another one, so that it does not take the Lease of this one for its own.
func Identity(host string) string {
	return fmt.Sprintf("%s_%s", host, rand.Text()[:10])
}

// Rules returns the permissions that an elector needs in the namespace of its Lease. Creating cannot be
// limited to a name, which the API server does not know yet when it decides.
func Rules(lease string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{lease}, Verbs: []string{"get", "update"}},
	}
}

// Times are those of the Lease.
type Times struct {
	// LeaseDuration is how long other processes wait after the last renewal that they saw before they
	// take the Lease. The Lease holds it in whole seconds.
	LeaseDuration time.Duration
	// RenewDeadline is how long a process leads after its last renewal.
	RenewDeadline time.Duration
	// RetryPeriod is the time between attempts to take or to renew it.
	RetryPeriod time.Duration
}

// Defaults are the times that Kubernetes' own controllers use.
func Defaults() Times {
	return Times{LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second}
}

// AddFlags declares --lease-duration, --renew-deadline and --retry-period, for a
// program.
func (t *Times) AddFlags(flags *pflag.FlagSet, program string) {
	d := Defaults()
	flags.DurationVar(&t.LeaseDuration, "lease-duration", d.LeaseDuration, "how long after its last sign of life another "+program+" takes the place of the leader")
	flags.DurationVar(&t.RenewDeadline, "renew-deadline", d.RenewDeadline, "how long a "+program+" leads since it last renewed the Lease")
	flags.DurationVar(&t.RetryPeriod, "retry-period", d.RetryPeriod, "time between attempts to get or to renew the Lease")
}

// Check returns why two processes with these times could lead at once, or why none could lead for long.
func (t Times) Check() error {
	switch {
	case t.LeaseDuration < time.Second || t.LeaseDuration%time.Second != 0:
		return fmt.Errorf("lease duration %s: not a number of whole seconds", t.LeaseDuration)
	case t.RetryPeriod <= 0:
		return errors.New("retry period: not more than 0")
	case t.RenewDeadline >= t.LeaseDuration:
		return fmt.Errorf("renew deadline %s: not shorter than the lease duration %s", t.RenewDeadline, t.LeaseDuration)
	case t.RenewDeadline < 2*t.RetryPeriod:
		return fmt.Errorf("renew deadline %s: shorter than two retry periods of %s", t.RenewDeadline, t.RetryPeriod)
	}
	return nil
}

// term is how long a process leads. The zero term is that of a process that does not lead.
type term struct {
	renewed time.Time // when the last request that succeeded was sent
	length  time.Duration
}

// holds reports whether the process leads at the time. The monotonic clock stands still while a machine
// sleeps, and the wall clock can be set: the clock that says that more time has passed is believed.
func (t term) holds(now time.Time) bool {
	if t.renewed.IsZero() {
		return false
	}
	passed := max(now.Sub(t.renewed), now.Round(0).Sub(t.renewed.Round(0)))
	return passed < t.length
}
