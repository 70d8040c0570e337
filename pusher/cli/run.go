package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hapsnap/hapsnap/pusher/binding"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/hapsnap/hapsnap/internal/election"
	"github.com/hapsnap/hapsnap/internal/kubeconfig"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/internal/tracing"
	"github.com/hapsnap/hapsnap/pusher"
	"github.com/hapsnap/hapsnap/pusher/cluster"
	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/live"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

// runFlags are those of the verb run.
type runFlags struct {
	storeFlags
	log     process.LogOptions
	options pusher.Options
	waves   []string
	soak    time.Duration
	address string
	page    pageFlags
	hook    string // a file with the address of a webhook
	status  string // where the status goes
	leader  election.Flags
	// allNamespaces: EndpointSlices are watched in all of them with one watch.
	allNamespaces bool
	cluster       *cluster.Cluster // nil: none
	refuse, allow []string
}

func runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run --store STORE --instances FILE [--live DIR | --kubeconfig FILE] --state STATE",
		Short: "Keep a fleet of instances on the snapshot that should run",
		Long: `Roll the wanted snapshot out to the instances, a canary first, and keep their servers
and certificates up to date without reloads.

The file of --instances is a Fleet. It lists the instances, or selects the pods of the
cluster that they are, and says how careful a rollout is.

The pusher watches endpoints and certificates in the cluster that --kubeconfig names or in
whose pod it runs. With --live it watches manifests of EndpointSlices and Secrets in DIR
instead. If the compiler recorded endpoints in a snapshot, the pusher uses these, unless you
name DIR. Without a cluster and without DIR the pusher can push no other snapshot: it does
not start if such a snapshot should run, and does not roll out one that appears later.

The pusher keeps its state in a file, or in a Secret of the cluster if you name
secret:NAMESPACE/NAME. Any number of pushers may share a Secret. One of them leads, and if
it ends another one takes over where it stopped.

A store is one of

` + stores.Forms,
		Args: process.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.storeFlags.add(cmd)
	f.log.AddFlags(cmd.Flags())
	flags, o := cmd.Flags(), &f.options
	addFleet(flags, &o.Fleet, "file that lists the instances (required)")
	flags.StringSliceVar(&o.MakeCredentials, "make-credentials", nil, "Secrets that the Fleet names for its pods, for their password or for the authority of their certificate, that the pusher fills if they have no data, and renews. Others are never written")
	process.Once(flags, &o.Live, "live", "", "one directory has all manifests", "directory with manifests of EndpointSlices and Secrets, instead of a cluster")
	flags.BoolVar(&f.allNamespaces, "all-namespaces", false, "watch the EndpointSlices of all namespaces of the cluster at once, instead of each namespace that snapshots name")
	flags.StringSliceVar(&f.refuse, "refuse-endpoints", []string{"default"}, "networks that no EndpointSlice may name. default stands for this host, link-local, multicast, the metadata services of clouds and the API server's Service, in every form. none allows all, also the addresses where the instances listen. Without the flag EndpointSlices of a cluster may not name those of default, and manifests may name all but the addresses where the instances listen")
	flags.StringSliceVar(&f.allow, "allow-endpoints", nil, "networks that EndpointSlices may name although --refuse-endpoints has them")
	flags.StringVar(&o.Identity, "age-identity", "", "file of age identities, as age-keygen writes it, that decrypt sealed certificates")
	flags.StringVar(&o.State, "state", "", "where the state is kept over restarts: a file, or secret:NAMESPACE/NAME, which several pushers can share (required)")
	flags.StringVar(&o.Cache, "snapshots-dir", "", "directory for copies of the snapshots in use, for when the store is gone; the default is beside the state file, and none for a state in a Secret")
	flags.BoolVar(&o.TakeOver, "take-over", false, "lead instances that a pusher with another state leads; use it once, when that pusher is gone for good")
	f.leader.AddTo(flags, "pusher", leaseHelp)
	flags.StringSliceVar(&f.waves, "waves", nil, "how many instances have the snapshot after each wave, such as 1,25%,100%")
	process.DurationVar(flags, &f.soak, "soak", rollout.DefaultPolicy().Soak, "how long instances must stay healthy before the next wave")
	process.DurationVar(flags, &o.PollInterval, "poll-interval", time.Second, "how often to look at the store and at each instance")
	process.DurationVar(flags, &o.ReloadTimeout, "reload-timeout", 30*time.Second, "how long a reload of HAProxy may take")
	process.DurationVar(flags, &o.DrainTime, "drain-time", 30*time.Second, "how long to drain the server of an endpoint that is gone")
	process.DurationVar(flags, &o.InspectInterval, "inspect-interval", time.Minute, "how often to compare each instance's files and servers with what the pusher left there")
	flags.StringVar(&o.EventLog, "event-log", "", "file for the events and decisions of the pusher, without secrets, from which its run can be replayed. It grows to 64 MiB, then begins again; FILE.1 has the part before. None if empty")
	flags.StringVar(&f.hook, "notify-url-file", "", "file with the URL of a webhook, which gets a JSON post for each rollout, repair conflict and lasting trouble")
	flags.StringVar(&f.status, "status", "", "ConfigMap, as configmap:NAMESPACE/NAME, for the status of the fleet, without secrets, for people who may not read the state; the default is NAME-status beside a store in the cluster, and none for other stores")
	flags.StringVar(&f.address, "metrics-address", "", "address for /healthz, /readyz, /metrics and /status, such as :8081; none if empty")
	flags.StringVar(&f.page.address, "ui-address", "", "address for the read-only page about the fleet, such as :8090; none if empty. Anybody who reaches it sees names, routes and history, and no Secrets")
	flags.StringSliceVar(&f.page.hosts, "ui-host", nil, hostsUsage)
	flags.StringVar(&f.page.compiler, "ui-compiler", "", compilerUsage)
	flags.StringVar(&f.page.repository, "ui-repository", "", repositoryUsage)
	flags.StringVar(&f.page.advertise, "ui-advertise", "", "address of this host at which other pushers with the same state reach the page; while this one leads, they send on to it what they are asked. None if empty: each shows what it knows")
	return cmd
}

func (f *runFlags) run(cmd *cobra.Command) error {
	if err := f.check(cmd); err != nil {
		return err
	}
	log, err := f.log.Logger(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	process.Started(log, process.FileForDigest(f.options.Fleet))
	store, err := f.open(cmd.Context(), log)
	if err != nil {
		return err
	}
	defer store.Close()
	f.options.Store, f.options.Log, f.options.Journal = store, log, store
	if strings.HasPrefix(f.store, "git+") { // a store in git does one thing at a time, and reading it comes first
		journal, err := f.open(cmd.Context(), slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		defer journal.Close()
		f.options.Journal = journal
	}
	klog.SetSlogLogger(log) // there is one for all of client-go
	if f.options.Report, err = f.reporting(store); err != nil {
		return err
	}
	f.options.Pods = sync.OnceValues(f.client)
	if err := f.connect(); err != nil {
		return err
	}
	if err := f.checkSource(cmd.Context(), store); err != nil {
		return err
	}
	var flush func()
	f.options.Tracers, flush = tracing.Start(cmd.Context(), "hapsnap-pusher", log)
	defer flush()
	var told func()
	if f.options.Notify, told, err = notifying(cmd.Context(), f.hook, log); err != nil {
		return err
	}
	defer told()
	log.Info("pushing", "store", store.String(), "instances", f.options.Fleet, "live", f.live(), "state", f.options.State)
	err = f.serve(cmd.Context(), log)
	if invalid, ok := errors.AsType[fleet.InvalidError](err); ok {
		fmt.Fprintln(cmd.ErrOrStderr(), invalid)
		return process.Invalid(nil)
	}
	return err
}

// check checks the flags, and turns them into options.
func (f *runFlags) check(cmd *cobra.Command) error {
	for _, flag := range []struct{ name, value string }{
		{"store", f.store}, {"instances", f.options.Fleet}, {"state", f.options.State},
	} {
		if flag.value == "" {
			return process.WithHint(process.Usage("--%s is missing", flag.name), "pusher run needs --store, --instances and --state")
		}
	}
	if err := cmp.Or(checkLease(f.leader, cmd.Flags(), f.options.State), checkFleetFile(f.options.Fleet), checkStatePlace(f.options.State), CheckAddress("metrics-address", f.address), CheckAddress("ui-address", f.page.address)); err != nil {
		return err
	}
	for _, text := range f.waves {
		size, err := rollout.ParseSize(strings.TrimSpace(text))
		if err == nil {
			err = rollout.CheckOrder(f.options.Waves, size)
		}
		if err != nil {
			return process.Usage("--waves: %w", err)
		}
		f.options.Waves = append(f.options.Waves, size)
	}
	if err := f.page.check(); err != nil {
		return err
	}
	f.options.RefuseInManifests = cmd.Flags().Changed("refuse-endpoints")
	if cmd.Flags().Changed("soak") {
		f.options.Soak = &f.soak
	}
	for _, flag := range []struct {
		name  string
		value time.Duration
	}{{"poll-interval", f.options.PollInterval}, {"reload-timeout", f.options.ReloadTimeout}, {"drain-time", f.options.DrainTime}, {"inspect-interval", f.options.InspectInterval}} {
		if flag.value <= 0 {
			return process.Usage("--%s=%s: the duration must be more than zero", flag.name, flag.value)
		}
	}
	return nil
}

// connect prepares the connection to the cluster, if endpoints are to come from one.
func (f *runFlags) connect() error {
	if err := f.refusals(); err != nil {
		return err
	}
	if f.options.Live != "" || (f.kubeconfig == "" && !kubeconfig.Inside()) {
		return nil
	}
	connection, err := cluster.Connect(f.access())
	if err != nil {
		return process.WithHint(err, "name a kubeconfig file with --kubeconfig, or manifests with --live")
	}
	f.cluster = cluster.New(connection, f.allNamespaces)
	f.options.Cluster = f.cluster
	return nil
}

// sourceTimeout bounds the look at what should run, before the start.
const sourceTimeout = 10 * time.Second

// checkSource refuses to start without a source of live endpoints if the snapshot that should run, or
// the last good one, needs one: all of its backends would become empty. If that cannot be found out
// now, the pusher holds what runs once it knows.
func (f *runFlags) checkSource(ctx context.Context, store stores.Store) error {
	if f.options.Live != "" || f.options.Cluster != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, sourceTimeout)
	defer cancel()
	var ids []snapshots.ID
	if status, err := f.readStatus(ctx, f.options.State); err == nil {
		ids = append(ids, status.Good)
	}
	if view, err := store.View(ctx); err == nil {
		ids = append(ids, channel.Want(view, time.Now()).ID)
	}
	for _, id := range slices.Compact(ids) {
		if id.IsZero() {
			continue
		}
		s, err := store.Get(ctx, id)
		if err == nil && binding.NeedsSource(s) {
			return process.WithHint(process.Usage("snapshot %s needs live endpoints or Secrets, and the pusher has no source of them: its backends would have no servers, or its hosts no certificates", id),
				"name the cluster with --kubeconfig, or a directory of EndpointSlices with --live; or have the compiler record endpoints (--endpoints recorded of the compiler)")
		}
	}
	return nil
}

// live names where endpoints come from.
func (f *runFlags) live() string {
	if f.cluster != nil {
		return f.cluster.String()
	}
	return f.options.Live
}

// refusals reads the networks that EndpointSlices of a cluster may not name.
func (f *runFlags) refusals() (err error) {
	var refuse []netip.Prefix
	for _, word := range f.refuse {
		switch {
		case word == "none" && len(f.refuse) == 1:
		case word == "default":
			refuse = append(refuse, defaultRefused(os.Getenv("KUBERNETES_SERVICE_HOST"))...)
		default:
			network, err := parseNetwork("--refuse-endpoints", word)
			if err != nil {
				return err
			}
			refuse = append(refuse, network)
		}
	}
	f.options.RefuseEndpoints = refuse
	for _, word := range f.allow {
		network, err := parseNetwork("--allow-endpoints", word)
		if err != nil {
			return err
		}
		f.options.AllowEndpoints = append(f.options.AllowEndpoints, network)
	}
	return nil
}

// defaultRefused are the usual networks, and the address of the API server's Service, which a pod has in
// its environment.
func defaultRefused(service string) []netip.Prefix {
	out := slices.Clone(live.DefaultRefused)
	if ip, err := netip.ParseAddr(service); err == nil {
		out = append(out, netip.PrefixFrom(ip, ip.BitLen()))
	}
	return out
}

// parseNetwork reads a network or an address.
func parseNetwork(flag, word string) (netip.Prefix, error) {
	if ip, err := netip.ParseAddr(word); err == nil {
		return netip.PrefixFrom(ip, ip.BitLen()), nil
	}
	network, err := netip.ParsePrefix(word)
	if err != nil || network != network.Masked() {
		return netip.Prefix{}, process.WithHint(process.Usage("%s: %q is not a network", flag, word), "write 10.0.0.0/8 or 10.0.0.1, or default for the usual networks")
	}
	return network, nil
}
