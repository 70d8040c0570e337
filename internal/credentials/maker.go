// Package credentials fills Secrets with what two programs of a release share: a user name with a password, or
// a certificate that one of them serves and the other verifies. So rendering a chart makes no secrets.
//
// The chart makes the Secrets, without any data, so that a [Maker] needs no right to create Secrets. A Maker
// fills a Secret that has no data, and renews what it has written. It writes by the Secret's resourceVersion:
// if several Makers fill the same Secret, one succeeds, and the others take what that one wrote.
//
// # What is never touched
//
// A Maker notes in the annotation [Annotation] the digest of the data that it wrote. It changes a Secret only
// if the data still has that digest, or if there is none. Data that people wrote or edited is theirs: if it
// cannot be used, or expires soon, the Maker reports that. It also reports a Secret that does not exist, or
// that it may not read, and does not create one.
//
// # How a certificate is renewed
//
// A certificate is its own authority: there is no key that could sign others. After two thirds of its life the
// Maker makes the next certificate and puts it into ca.crt beside the present one, which servers go on serving.
// An hour later the next one is served, if the verifying programs have the new ca.crt. The one before stays in
// ca.crt until it expires. So a client with the old ca.crt meets the old certificate, and servers may take the
// new one as late as they like. A certificate that nobody can use any more, such as an expired one, is replaced
// at once. If it lay in a Secret that was deleted and made again, programs that cannot read the Secret trust the former
// authority for another hour ([Trusted]).
//
// A password is made once, and renewed when people ask for it with [RenewAnnotation]. The Maker puts the next
// user into the Secret beside the present one, so that servers accept both. An hour later only the next one is
// left. So no call is refused meanwhile. The same annotation makes the Maker renew a certificate before its
// time.
package credentials

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// look is how often the Maker looks at the Secrets. wait is how often a process that does not lead checks
	// whether it leads by now.
	look = 10 * time.Second
	wait = time.Second
	// passLimit bounds the time of the requests to the API server for all Secrets.
	passLimit = 30 * time.Second
	// maxTries is how often the Maker tries a write when other writes came first.
	maxTries = 5
)

// Client is the part of a cluster's API that a Maker needs: the Secrets of one namespace.
type Client interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (*corev1.Secret, error)
	Update(ctx context.Context, s *corev1.Secret, o metav1.UpdateOptions) (*corev1.Secret, error)
}

// Options are those of a [Maker].
type Options struct {
	Namespace string
	Secrets   Client
	Log       *slog.Logger
	// Wanted returns what the Secrets should hold, or why that is not known now.
	Wanted func(ctx context.Context) ([]Wanted, error)
	// Publish gives the authorities of a Secret's certificate to programs that verify it and cannot read the
	// Secret themselves. It is called each time; it is nil if all can read it. A certificate that those
	// programs do not have is not served.
	Publish func(ctx context.Context, authorities []byte) error
	// Leading reports whether this process is the one that fills the Secrets. Nil means always.
	Leading func() bool
	// Metrics may be nil.
	Metrics *Metrics
}

// Maker fills and renews Secrets. Only one goroutine may use it.
type Maker struct {
	Options
}

// New returns a Maker.
func New(o Options) *Maker { return &Maker{o} }

// Run looks at the Secrets again and again until ctx is done. It reports what is wrong, or nil, whenever that
// has changed.
func (m *Maker) Run(ctx context.Context, report func(error)) {
	defer m.Metrics.forget()
	said := fmt.Sprint(nil)
	for ctx.Err() == nil {
		var err error
		next := look
		if m.Leading == nil || m.Leading() {
			err = m.Once(ctx, time.Now())
		} else {
			next = wait
			m.Metrics.forget()
		}
		if ctx.Err() != nil {
			return
		}
		if text := fmt.Sprint(err); text != said {
			said = text
			report(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(next):
		}
	}
}

// Once looks at each Secret, and fills or renews it if necessary. It returns what keeps one of them from being
// used, or soon will.
func (m *Maker) Once(ctx context.Context, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, passLimit)
	defer cancel()
	wanted, err := m.Wanted(ctx)
	if err != nil {
		m.Metrics.failed(1)
		return err
	}
	var errs []error
	for _, w := range wanted {
		if err := m.settle(ctx, w, now); err != nil {
			errs = append(errs, fmt.Errorf("credentials in Secret %s/%s: %w", m.Namespace, w.Secret, err))
		}
	}
	m.Metrics.failed(len(errs))
	return errors.Join(errs...)
}

var errGone = errors.New("it is gone, and whoever made it has to make it again, such as the next upgrade of the chart; what has its values goes on with them")

// settle brings one Secret to its wanted content. If another process has written meanwhile, it looks again.
func (m *Maker) settle(ctx context.Context, w Wanted, now time.Time) error {
	for range maxTries {
		found, err := m.Secrets.Get(ctx, w.Secret, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return errGone
		}
		if err != nil {
			return err
		}
		trusted, unpublished := true, error(nil)
		if w.Certificate != nil && m.Publish != nil && len(parseAll(found.Data[CAKey])) > 0 {
			unpublished = m.Publish(ctx, found.Data[CAKey])
			trusted = unpublished == nil
		}
		d, err := w.decide(found, now, trusted)
		if err != nil {
			return err
		}
		if d.data == nil {
			m.Metrics.expires(w.Secret, expiry(found))
			return errors.Join(d.problem, unpublished)
		}
		_, err = m.Secrets.Update(ctx, filled(found, d), metav1.UpdateOptions{})
		switch {
		case err == nil:
			m.Log.Info("credentials made", "secret", m.Namespace+"/"+w.Secret, "why", d.why)
		case !apierrors.IsConflict(err):
			return err
		}
	}
	return errors.New("others write it again and again")
}

// Rules returns the permissions that a Maker needs in the namespace of its Secrets.
func Rules(names ...string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: names, Verbs: []string{"get", "update"}}}
}

// Metrics are those of a Maker.
type Metrics struct {
	failing prometheus.Gauge
	expiry  *prometheus.GaugeVec
}

// NewMetrics registers the metrics of a program.
func NewMetrics(registry prometheus.Registerer, program string) *Metrics {
	m := &Metrics{
		failing: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "hapsnap_" + program + "_credentials_failing",
			Help: "Secrets that the leader is to fill or renew and cannot, or whose values cannot be used; 0 for a program that does not lead.",
		}),
		expiry: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "hapsnap_" + program + "_credentials_expiry_timestamp_seconds",
			Help: "When the certificate of a Secret that the leader renews expires.",
		}, []string{"secret"}),
	}
	registry.MustRegister(m.failing, m.expiry)
	return m
}

// Example gives every metric a value, for their documentation.
func (m *Metrics) Example() { m.expires("hapsnap-dataplane-tls", time.Unix(1, 0)) }

func (m *Metrics) failed(n int) {
	if m != nil {
		m.failing.Set(float64(n))
	}
}

func (m *Metrics) expires(secret string, at time.Time) {
	if m != nil && !at.IsZero() {
		m.expiry.WithLabelValues(secret).Set(float64(at.Unix()))
	}
}

// forget removes the values of the metrics, when the program no longer leads.
func (m *Metrics) forget() {
	if m != nil {
		m.failing.Set(0)
		m.expiry.Reset()
	}
}
