package cli

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/hapsnap/hapsnap/compiler/announce"
	"github.com/hapsnap/hapsnap/internal/election"
	"github.com/hapsnap/hapsnap/internal/process"
)

// leaderFlags say how one of several compilers is elected.
type leaderFlags struct {
	lease string
	times election.Times
}

func (f *leaderFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.lease, "lease", "", "Lease, as namespace/name, by which one of the compilers for the same store is elected; by default hapsnap-compiler in the pod's namespace, or in default")
	f.times.AddFlags(flags, "compiler")
}

// namespaceFile says in a pod in which namespace it is.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// name returns the namespace and the name of the Lease.
func (f *leaderFlags) name() (namespace, name string, err error) {
	if f.lease == "" {
		namespace = "default"
		if inside, err := os.ReadFile(namespaceFile); err == nil {
			namespace = strings.TrimSpace(string(inside))
		}
		return namespace, "hapsnap-compiler", nil
	}
	namespace, name, ok := election.SplitName(f.lease)
	if !ok {
		return "", "", process.WithHint(process.Usage("--lease %q is not namespace/name", f.lease), "name a Lease such as edge/hapsnap-compiler")
	}
	return namespace, name, nil
}

// check returns what is wrong with the flags.
func (f *leaderFlags) check() error {
	if err := f.times.Check(); err != nil {
		return process.Usage("%w", err)
	}
	_, _, err := f.name()
	return err
}

// writers are what a compiler has that follows a cluster: its part in the
// election, and what tells the objects.
type writers struct {
	leader    *election.Elector
	announcer *announce.Announcer
}

// writers prepares them. They need no connection yet.
func (f *leaderFlags) writers(c *rest.Config, registry prometheus.Registerer, log *slog.Logger) (writers, error) {
	client, err := kubernetes.NewForConfig(c)
	if err != nil {
		return writers{}, fmt.Errorf("connect to %s: %w", c.Host, err)
	}
	namespace, name, err := f.name()
	if err != nil {
		return writers{}, err
	}
	identity, err := election.OwnIdentity()
	if err != nil {
		return writers{}, err
	}
	leader, err := election.New(election.Options{
		Program: "compiler", Leases: client.CoordinationV1(), Namespace: namespace, Name: name, Identity: identity, Times: f.times, Log: log, Metrics: registry,
	})
	if err != nil {
		return writers{}, err
	}
	return writers{leader, announce.New(announce.Options{
		Events: client.EventsV1(), Ingresses: client.NetworkingV1(), Leader: leader, Instance: identity, Log: log, Metrics: registry,
	})}, nil
}

// run runs both until ctx is done and the Lease is given back.
func (w writers) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return w.leader.Run(ctx) })
	group.Go(func() error { return w.announcer.Run(ctx) })
	return group.Wait()
}
