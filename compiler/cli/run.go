package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/admission"
	"github.com/hapsnap/hapsnap/compiler/announce"
	"github.com/hapsnap/hapsnap/compiler/cluster"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/controller"
	"github.com/hapsnap/hapsnap/internal/credentials"
	"github.com/hapsnap/hapsnap/internal/election"
	"github.com/hapsnap/hapsnap/internal/objectname"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/internal/tracing"
	"github.com/hapsnap/hapsnap/snapshots/configmapstore"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

// service is the name of the program in traces.
const service = "hapsnap-compiler"

// runFlags are the flags of the verb run.
type runFlags struct {
	sourceFlags
	log     process.LogOptions
	store   string
	opening stores.Options
	address string
	leader  election.Flags
	webhook webhookFlags
	made    *credentials.Metrics
	options controller.Options

	fleetStatus string
	report      string // the Secret that --report-secret names
}

func runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run [-f DIR | --kubeconfig FILE] --store STORE",
		Short: "Follow manifests or a cluster, and publish what changes",
		Long: `Watch manifests, or a cluster, and templates, and publish a snapshot whenever the
configuration that they give changes. The compiler reports objects with errors, leaves them
out, and publishes the rest. While the store cannot be reached, the compiler keeps the newest
configuration and publishes it when the store is back.

The compiler watches the file of --config too. It reports a configuration with errors, and
uses the one before until you mend it. Changed flags need a restart.

A store is one of

` + stores.Forms,
		Args: process.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.add(cmd)
	f.log.AddFlags(cmd.Flags())
	flags := cmd.Flags()
	flags.StringVar(&f.store, "store", "", "store for the snapshots (required)")
	f.opening.AddFlags(flags)
	flags.StringVar(&f.address, "metrics-address", "", "address for /healthz, /readyz, /metrics and /status, such as :8080; none if empty")
	f.leader.AddTo(flags, "compiler", leaseHelp)
	flags.StringVar(&f.webhook.address, "webhook-address", defaultWebhookAddress, "address for the reviews of an API server over HTTPS, if --webhook-cert-dir is given")
	flags.StringVar(&f.webhook.certDir, "webhook-cert-dir", "", "directory with tls.crt and tls.key for reviews, read again when they change; no reviews if empty")
	f.webhook.addMade(flags, "with --webhook-configuration, ")
	flags.StringVar(&f.webhook.clientCA, "webhook-client-ca", "", "file with the authorities of client certificates that may ask for reviews, such as the API server's, read again when it changes; if empty, anybody may")
	flags.StringSliceVar(&f.webhook.clientNames, "webhook-client-name", nil, "common name or DNS name that a client certificate must have, besides a signature of --webhook-client-ca, to ask for reviews (default: any)")
	flags.StringVar(&f.webhook.configMap, "webhook-config-map", "", "ConfigMap, as NAMESPACE/NAME, whose key "+admission.ConfigKey+" is reviewed as the configuration (default: that of --config-map)")
	flags.StringVar(&f.fleetStatus, "fleet-status", "", fleetStatusHelp)
	flags.StringVar(&f.report, "report-secret", "", reportSecretHelp)
	process.DurationVar(flags, &f.options.Interval, "min-interval", controller.DefaultInterval, "how long to wait for more changes after a compile")
	process.DurationVar(flags, &f.options.MaxWait, "max-wait", controller.DefaultMaxWait, "how long to wait at most while changes keep coming")
	return cmd
}

func (f *runFlags) run(cmd *cobra.Command) error {
	log, err := f.log.Logger(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	f.cluster.forStore = stores.InCluster(f.store)
	source, err := f.source(cmd.Context(), cmd.Flags(), cmd.ErrOrStderr(), log)
	if err != nil {
		return err
	}
	if f.store == "" {
		return process.WithHint(process.Usage("no store is named"), "use --store with a URL such as dir:PATH or git+file:///PATH")
	}
	if err := companions(source.Config, f.store); err != nil {
		return err
	}
	if err := f.leader.Check(); err != nil {
		return err
	}
	if _, err := leaseName(f.leader); err != nil {
		return err
	}
	if err := f.checkReport(source.Objects); err != nil {
		return err
	}
	if err := f.checkPlaces(cmd.Flags(), source.Objects); err != nil {
		return err
	}
	f.webhook.configMap = cmp.Or(f.webhook.configMap, f.cluster.configMap)
	if err := f.webhook.check(); err != nil {
		return err
	}
	process.Started(log, f.written)
	check, err := f.checker(cmd.Context(), source.Config, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer check.Reuse()()
	f.opening.Publish = true
	store, err := stores.Open(cmd.Context(), f.store, f.cluster.store(f.opening, log))
	if err != nil {
		return err
	}
	defer store.Close()
	o := f.options
	o.Source, o.Store, o.Checker, o.Log = source, store, check, log
	o.Override = func(c *config.Config) { f.override(cmd.Flags(), c) }
	switch {
	case f.cluster.setting != nil:
		o.Configuration = f.cluster.setting
	case f.config != "":
		o.Configuration = controller.ConfigFile(f.config)
	}
	var flush func()
	o.Tracers, flush = tracing.Start(cmd.Context(), service, log)
	defer flush()
	log.Info("compiling", "objects", source.Objects.String(), "store", store.String(), "haproxy", check.Version)
	if f.webhook.enabled() {
		o.Judge = compiler.NewJudge(source, check, o.Override)
	}
	return f.serve(cmd.Context(), o, log)
}

// checkPlaces returns a usage error for addresses that cannot be any, and for what only a compiler that follows a cluster
// has: compilers of files are not elected.
func (f *runFlags) checkPlaces(flags *pflag.FlagSet, objects compiler.Objects) error {
	if err := cmp.Or(checkAddress("metrics-address", f.address), checkAddress("webhook-address", f.webhook.address)); err != nil {
		return err
	}
	if _, _, err := fleetStatus(f.fleetStatus, f.store); err != nil {
		return err
	}
	if _, follows := objects.(*cluster.Cluster); follows {
		return nil
	}
	for _, name := range []string{"lease", "lease-duration", "renew-deadline", "retry-period", "fleet-status"} {
		if flags.Changed(name) {
			return process.WithHint(process.Usage("--%s is for a compiler that follows a cluster", name), "use --kubeconfig in place of -f, or leave --"+name+" out; have no two compilers of files publish to one store")
		}
	}
	return nil
}

// serve runs the compiler, and the servers for health, metrics, status and reviews. If the compiler follows a cluster,
// serve also runs everything that writes to the cluster.
func (f *runFlags) serve(ctx context.Context, o controller.Options, log *slog.Logger) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	registry := process.NewRegistry()
	if watching, ok := o.Source.Objects.(prometheus.Collector); ok {
		registry.MustRegister(watching)
	}
	o.Metrics, o.Status = registry, &controller.Status{}
	f.made = credentials.NewMetrics(registry, "compiler")
	reviews, err := f.webhook.start(ctx, o.Judge, registry, log)
	if err != nil {
		return err
	}
	_, wait, err := process.Server{
		Address: f.address, Metrics: registry, Log: log,
		Ready:  func() error { return errors.Join(o.Status.Ready(), reviews.ready()) },
		Handle: map[string]http.Handler{"GET " + statusPath: serveStatus(o.Status, o.Source.Objects, reviews.ready)},
	}.Start(ctx)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	if err := f.addWriters(ctx, group, &o, registry); err != nil {
		return err
	}
	group.Go(func() error { return controller.Run(ctx, o) })
	err = group.Wait()
	stop()
	wait()
	reviews.wait()
	return err
}

// addWriters runs everything that writes to the cluster, if the compiler follows one.
func (f *runFlags) addWriters(ctx context.Context, group *errgroup.Group, o *controller.Options, registry prometheus.Registerer) error {
	if _, follows := o.Source.Objects.(*cluster.Cluster); !follows {
		return nil
	}
	o.SeesDeletions = true
	connection, err := f.cluster.connect("", o.Log)
	if err != nil {
		return err
	}
	fleet, err := f.fleet(connection)
	if err != nil {
		return err
	}
	w, err := newWriters(f.leader, connection, fleet, registry, o.Log)
	if err != nil {
		return err
	}
	if fleet != nil {
		group.Go(func() error { fleet.Run(ctx, o.Log); return nil })
	}
	o.Leader, o.Announcer = w.leader, w.announcer
	group.Go(func() error { return w.run(ctx) })
	if name, ok, _ := reportSecret(f.report); ok { // the flag was checked
		client, err := kubernetes.NewForConfig(connection.Config)
		if err != nil {
			return fmt.Errorf("connect to %s: %w", connection.Name, err)
		}
		reports := &reporter{
			report: o.Status.Report, leading: w.leader.Leading, log: o.Log.With("secret", name.String()),
			write: func(ctx context.Context, report []byte, at time.Time) error {
				return configmapstore.WriteCompilerReport(ctx, client.CoreV1(), name, report, at)
			},
		}
		group.Go(func() error { reports.run(ctx); return nil })
	}
	maker, err := f.webhook.maker(connection.Config, o.Log)
	if err != nil || maker == nil {
		return err
	}
	maker.Leading, maker.Metrics = w.leader.Leading, f.made
	group.Go(func() error {
		maker.Run(ctx, func(err error) {
			o.Status.Webhook(err, time.Now())
			if err != nil {
				o.Log.Error("the webhook's certificate cannot be made or used", "err", err)
			} else {
				o.Log.Info("the webhook's certificate is in order again")
			}
		})
		return nil
	})
	return nil
}

// fleet returns the status of the fleet. It returns nil if no status is named and the store is not in a cluster, since
// the status would be beside it.
func (f *runFlags) fleet(connection cluster.Connection) (*cluster.FleetStatus, error) {
	name, ok, err := fleetStatus(f.fleetStatus, f.store)
	if err != nil || !ok {
		return nil, err
	}
	return cluster.NewFleetStatus(connection, name), nil
}

// fleetStatusHelp is the help text of --fleet-status.
const fleetStatusHelp = "ConfigMap, as configmap:NAMESPACE/NAME, in which a pusher says what the instances run, by which Gateways are Programmed; the default is NAME-status beside a store in the cluster, and none for other stores"

// fleetStatus returns the name of the ConfigMap with the status of the fleet, if there is one.
func fleetStatus(flag, store string) (name types.NamespacedName, ok bool, err error) {
	if flag != "" {
		if name, err = configmapstore.Parse(flag); err != nil {
			return name, false, process.Usage("--fleet-status: %w", err)
		}
		return name, true, nil
	}
	if !stores.InCluster(store) {
		return name, false, nil
	}
	if name, err = configmapstore.Parse(store); err != nil {
		return name, false, process.Usage("--store: %w", err)
	}
	name.Name = configmapstore.StatusName(name.Name)
	return name, true, nil
}

// leaseHelp is the help text of --lease.
const leaseHelp = "Lease, as namespace/name, by which one of the compilers for the same store is elected; by default hapsnap-compiler in the pod's namespace, or in default"

// namespaceFile is a file in every pod that has the name of its namespace.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// usualLease is the name of the Lease if none is given.
const usualLease = "hapsnap-compiler"

// leaseName returns the name of the Lease.
func leaseName(f election.Flags) (types.NamespacedName, error) {
	return f.Name("compiler", func() (types.NamespacedName, error) {
		usual := types.NamespacedName{Namespace: "default", Name: usualLease}
		if inside, err := os.ReadFile(namespaceFile); err == nil {
			usual.Namespace = strings.TrimSpace(string(inside))
		}
		return usual, nil
	})
}

// writers are the parts of a compiler that write to the cluster it follows: the election, and the announcer, which
// writes to objects.
type writers struct {
	leader    *election.Elector
	announcer *announce.Announcer
}

// newWriters prepares the writers. They need no connection yet.
func newWriters(f election.Flags, c cluster.Connection, fleet *cluster.FleetStatus, registry prometheus.Registerer, log *slog.Logger) (writers, error) {
	client, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		return writers{}, fmt.Errorf("connect to %s: %w", c.Name, err)
	}
	lease, err := leaseName(f)
	if err != nil {
		return writers{}, err
	}
	identity, err := election.OwnIdentity()
	if err != nil {
		return writers{}, err
	}
	leader, err := election.New(election.Options{
		Program: "compiler", Leases: client.CoordinationV1(), Namespace: lease.Namespace, Name: lease.Name, Identity: identity, Times: f.Times, Log: log, Metrics: registry,
	})
	if err != nil {
		return writers{}, err
	}
	o := announce.Options{
		Events: client.EventsV1(), Ingresses: client.NetworkingV1(), Dynamic: c.Dynamic, Services: client.CoreV1(), Slices: client.DiscoveryV1(),
		Leader: leader, Instance: identity, Lease: lease.String(), Log: log, Metrics: registry,
	}
	if fleet != nil {
		o.Fleet = fleet
	}
	return writers{leader, announce.New(o)}, nil
}

// run runs both until ctx is done and the Lease is released.
func (w writers) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return w.leader.Run(ctx) })
	group.Go(func() error { return w.announcer.Run(ctx) })
	return group.Wait()
}

// webhookFlags are the flags of the admission webhook.
type webhookFlags struct {
	address, certDir, configMap, clientCA string
	clientNames                           []string
	secret, registration                  string
}

// defaultWebhookAddress has the usual port of webhooks.
const defaultWebhookAddress = ":9443"

// addMade adds the flags for a certificate that the compiler makes.
func (f *webhookFlags) addMade(flags *pflag.FlagSet, with string) {
	flags.StringVar(&f.secret, "webhook-secret", "", with+"Secret, as NAMESPACE/NAME, that the elected compiler fills with a certificate for reviews if it has no data, and renews; it is what is mounted as --webhook-cert-dir")
	flags.StringVar(&f.registration, "webhook-configuration", "", "ValidatingWebhookConfiguration whose Services the certificate in --webhook-secret is for, and whose caBundle the compiler writes")
}

// checkMade returns the Secret with the certificate that the compiler makes. ok is false if it makes none.
func (f *webhookFlags) checkMade() (secret types.NamespacedName, ok bool, err error) {
	if f.secret == "" && f.registration == "" {
		return secret, false, nil
	}
	if f.secret == "" || f.registration == "" {
		return secret, false, process.WithHint(process.Usage("--webhook-secret and --webhook-configuration go together"), "name the Secret for the certificate, and the ValidatingWebhookConfiguration whose caBundle the compiler writes")
	}
	if secret, err = objectname.Parse(f.secret); err != nil {
		return secret, false, process.Usage("--webhook-secret: %w", err)
	}
	return secret, true, nil
}

// maker returns what makes the certificate and fills the Secret. It returns nil if others do that.
func (f *webhookFlags) maker(c *rest.Config, log *slog.Logger) (*credentials.Maker, error) {
	secret, ok, err := f.checkMade()
	if !ok {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(c)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", c.Host, err)
	}
	registration := admission.Registration{Client: client.AdmissionregistrationV1().ValidatingWebhookConfigurations(), Name: f.registration}
	return credentials.New(credentials.Options{
		Namespace: secret.Namespace, Secrets: client.CoreV1().Secrets(secret.Namespace), Log: log, Publish: registration.Trust,
		Wanted: func(ctx context.Context) ([]credentials.Wanted, error) {
			names, err := registration.DNSNames(ctx)
			return []credentials.Wanted{{Secret: secret.Name, Certificate: &credentials.Certificate{DNSNames: names}}}, err
		},
	}), nil
}

// enabled reports whether the compiler answers reviews.
func (f *webhookFlags) enabled() bool { return f.certDir != "" }

// check returns a usage error for flags that do not go together.
func (f *webhookFlags) check() error {
	if _, _, err := f.checkMade(); err != nil {
		return err
	}
	_, err := objectname.Parse(f.configMap)
	switch {
	case f.secret != "" && f.certDir == "":
		return process.WithHint(process.Usage("--webhook-secret is given without a webhook"), "use --webhook-cert-dir with the folder where that Secret is mounted")
	case f.address != defaultWebhookAddress && f.certDir == "":
		return process.WithHint(process.Usage("the webhook has no certificate"), "use --webhook-cert-dir with a directory for tls.crt and tls.key; they may come later")
	case f.clientCA != "" && f.certDir == "":
		return process.WithHint(process.Usage("--webhook-client-ca is given without a webhook"), "use --webhook-cert-dir too")
	case len(f.clientNames) > 0 && f.clientCA == "":
		return process.WithHint(process.Usage("--webhook-client-name is given without --webhook-client-ca, so that nothing proves a name"), "use --webhook-client-ca too")
	case f.configMap != "" && err != nil:
		return process.WithHint(process.Usage("--webhook-config-map=%s: not a name", f.configMap), "use NAMESPACE/NAME")
	}
	return nil
}

// webhook is a server for reviews, or none.
type webhook struct {
	server *admission.Server // nil for none
}

// start starts the server if the flags ask for one.
func (f *webhookFlags) start(ctx context.Context, judge *compiler.Judge, metrics prometheus.Registerer, log *slog.Logger) (webhook, error) {
	if !f.enabled() {
		return webhook{}, nil
	}
	configMap, _ := objectname.Parse(f.configMap) // the name was checked, or is empty
	server, err := admission.Start(ctx, admission.Options{
		Address: f.address, CertDir: f.certDir, ClientCA: f.clientCA, ClientNames: f.clientNames, ConfigMap: configMap,
		Judge: judge, Metrics: metrics, Log: log,
	})
	return webhook{server}, err
}

// ready returns why reviews cannot be answered, or nil.
func (w webhook) ready() error {
	if w.server == nil {
		return nil
	}
	return w.server.Ready()
}

// wait waits until the server has ended.
func (w webhook) wait() {
	if w.server != nil {
		w.server.Wait()
	}
}
