package cli

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/hapsnap/hapsnap/internal/election"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/pusher"
	"github.com/hapsnap/hapsnap/pusher/statestore"
)

// leaderFlags say how one of several pushers is elected, where they share a state.
type leaderFlags struct {
	lease string
	times election.Times
}

func (f *leaderFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.lease, "lease", "", "Lease, as namespace/name, by which one of the pushers with the same state in a Secret is elected; by default the one of that Secret's name")
	f.times.AddFlags(flags, "pusher")
}

// name returns the namespace and the name of the Lease, for a state in a Secret.
func (f *leaderFlags) name(state string) (namespace, name string, err error) {
	if f.lease == "" {
		return statestore.Parse(state)
	}
	namespace, name, ok := election.SplitName(f.lease)
	if !ok {
		return "", "", process.WithHint(process.Usage("--lease %q is not namespace/name", f.lease), "name a Lease such as edge/hapsnap-pusher")
	}
	return namespace, name, nil
}

// check returns what is wrong with the flags.
func (f *leaderFlags) check(flags *pflag.FlagSet, state string) error {
	if !inSecret(state) {
		for _, name := range []string{"lease", "lease-duration", "renew-deadline", "retry-period"} {
			if flags.Changed(name) {
				return process.WithHint(process.Usage("--%s is for a state that several pushers share", name), "use --state secret:NAMESPACE/NAME")
			}
		}
		return nil
	}
	if _, _, err := statestore.Parse(state); err != nil {
		return process.Usage("--state: %w", err)
	}
	if err := f.times.Check(); err != nil {
		return process.Usage("%w", err)
	}
	_, _, err := f.name(state)
	return err
}

// share has the pusher keep its state in a Secret, and take part in the election. It
// needs no connection yet.
func (f *runFlags) share(o *pusher.Options, registry prometheus.Registerer, log *slog.Logger) (*election.Elector, error) {
	if !inSecret(o.State) {
		return nil, nil
	}
	client, err := f.clusterFlags.client()
	if err != nil {
		return nil, err
	}
	namespace, name, err := f.leader.name(o.State)
	if err != nil {
		return nil, err
	}
	identity, err := election.OwnIdentity()
	if err != nil {
		return nil, err
	}
	elector, err := election.New(election.Options{
		Program: "pusher", Leases: client.CoordinationV1(), Namespace: namespace, Name: name,
		Identity: identity, Times: f.leader.times, Log: log, Metrics: registry,
	})
	if err != nil {
		return nil, err
	}
	if namespace, name, err = statestore.Parse(o.State); err != nil {
		return nil, err
	}
	o.Keeper = statestore.New(client.CoreV1().Secrets(namespace), namespace, name, identity)
	o.Leader = elector
	return elector, nil
}

// push runs the pusher, beside its part in the election if there are several.
func push(ctx context.Context, o pusher.Options, elector *election.Elector) error {
	if elector == nil {
		return hinted(pusher.Run(ctx, o))
	}
	group, ctx := errgroup.WithContext(ctx)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	group.Go(func() error { return elector.Run(ctx) })
	group.Go(func() error {
		defer stop()
		return hinted(pusher.Run(ctx, o))
	})
	return group.Wait()
}
