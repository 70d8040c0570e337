package election

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/internal/objectname"
	"github.com/hapsnap/hapsnap/internal/process"
)

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
