package cli

import (
	"cmp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	configured "github.com/hapsnap/hapsnap/compiler/config/gateways"
	"github.com/hapsnap/hapsnap/internal/election"
	"github.com/hapsnap/hapsnap/internal/kubeconfig"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/provisioner"
	pusher "github.com/hapsnap/hapsnap/pusher/cli"
)

// provisionerFlags are those of the verb provisioner.
type provisionerFlags struct {
	access   kubeconfig.Options
	log      process.LogOptions
	leader   election.Flags
	options  provisioner.Options
	ports    []string
	selector string
}

func provisionerCommand(name string) *cobra.Command {
	var f provisionerFlags
	cmd := &cobra.Command{
		Use:   "provisioner",
		Short: "Run in a cluster, and make a fleet of its own for each Gateway that names one",
		Long: `Follow the Gateways of a cluster, and make a fleet for each that names one in
spec.infrastructure.parametersRef, as {group: hapsnap.dev, kind: Fleet, name: NAME}: HAProxy,
a Service, a compiler and a pusher in the Gateway's namespace, and a store in a namespace of
its own. They are what the chart makes of the values of --values. The chart runs this command
with gatewayAPI.provisioner.enabled.

A Gateway decides the ports, and the labels and annotations that --allow-labels and
--allow-annotations allow. Nothing that was not made for the fleet is overwritten or
deleted. When no Gateway names a fleet any more, it goes after --grace, except for its store.
When more than --max-removals would go at once, none goes. Fleets stay when this command ends.

Conditions and Events of a Gateway say what keeps its fleet from being made.`,
		Example: "  " + name + " provisioner --values fleets.yaml --lease edge/hapsnap-provisioner --metrics-address :8080\n" +
			"  " + name + " provisioner --kubeconfig kubeconfig --namespace-selector fleets=own --max-fleets 2",
		Args: process.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	o := &f.options
	flags.StringVar(&f.access.File, "kubeconfig", "", "file that says how to reach the cluster; the default in a pod is the pod's own cluster")
	flags.StringVar(&f.access.Context, "context", "", "context of the kubeconfig (default: the current one)")
	flags.StringArrayVar(&o.Values, "values", nil, "file with values of the chart for all fleets, read again before each change; with several, the last one wins")
	flags.StringVar(&o.Rules.Controller, "controller", "hapsnap.dev/gateway-controller", "controllerName of the GatewayClasses whose Gateways get fleets")
	flags.StringVar(&o.AppVersion, "app-version", "", "tag of the images for which the values name none (default: that of the chart in the program)")
	flags.StringSliceVar(&o.Rules.Namespaces, "namespaces", nil, "namespaces that may have fleets (default: all)")
	flags.StringVar(&f.selector, "namespace-selector", "", "labels of the namespaces that may have fleets, such as fleets=own (default: any)")
	flags.IntVar(&o.Rules.MaxFleets, "max-fleets", 5, "how many fleets a namespace may have; one that is gone counts while its store is there")
	flags.IntVar(&o.Rules.MaxPorts, "max-ports", 64, "how many ports of listeners a fleet may have")
	flags.StringSliceVar(&f.ports, "ports", []string{"80", "443", "1024-65535"}, "ports and ranges of ports that listeners may have")
	flags.StringSliceVar(&o.Rules.Labels, "allow-labels", nil, "keys that spec.infrastructure.labels of a Gateway may bring to what is made for it: whole keys, example.com/* or *, which has none of kubernetes.io and k8s.io")
	flags.StringSliceVar(&o.Rules.Annotations, "allow-annotations", nil, "the same for spec.infrastructure.annotations; some annotations of a Service make a cloud spend money, or open it to the world")
	process.DurationVar(flags, &o.Grace, "grace", 5*time.Minute, "how long a fleet stays that no Gateway names any more")
	flags.IntVar(&o.MaxRemovals, "max-removals", 3, "how many fleets may be without a Gateway at once; with more, none goes until this is raised or Gateways name them again")
	process.DurationVar(flags, &o.Resync, "resync", 10*time.Minute, "how often every object of a fleet is compared, changed or not")
	flags.StringVar(&o.Address, "metrics-address", "", "address for /healthz, /readyz and /metrics, such as :8080; none if empty")
	f.leader.AddTo(flags, "provisioner", "Lease, as namespace/name, by which one of several provisioners is elected, and by whose name it knows its fleets; by default hapsnap-provisioner in the pod's namespace, or in default")
	f.log.AddFlags(flags)
	return cmd
}

func (f *provisionerFlags) run(cmd *cobra.Command) error {
	log, err := f.log.Logger(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	o := &f.options
	if err := f.check(); err != nil {
		return err
	}
	f.access.UserAgent = "hapsnap-provisioner/" + process.Version()
	if o.Config, err = f.access.Load(); err != nil {
		return process.WithHint(err, "name a kubeconfig file with --kubeconfig")
	}
	if o.Lease, err = f.lease(); err != nil {
		return err
	}
	o.Times, o.Log = f.leader.Times, log
	process.Started(log, []byte(strings.Join(o.Values, "\n")))
	return provisioner.Run(cmd.Context(), *o)
}

// lease returns the name of the Lease. Unless a flag names it, it is in the namespace of the pod.
func (f *provisionerFlags) lease() (types.NamespacedName, error) {
	return f.leader.Name("provisioner", func() (types.NamespacedName, error) {
		return types.NamespacedName{Namespace: cmp.Or(f.access.Namespace(), "default"), Name: "hapsnap-provisioner"}, nil
	})
}

// check returns a usage error for flags that do not fit.
func (f *provisionerFlags) check() error {
	o := &f.options
	if err := cmp.Or(f.leader.Check(), pusher.CheckAddress("metrics-address", o.Address)); err != nil {
		return err
	}
	_, err := f.lease()
	if err != nil {
		return err
	}
	if o.Rules.Ports, err = provisioner.ParsePorts(f.ports); err != nil {
		return process.Usage("--ports: %w", err)
	}
	if o.Rules.Selector, err = labels.Parse(f.selector); err != nil {
		return process.Usage("--namespace-selector: %w", err)
	}
	for flag, list := range map[string][]string{"allow-labels": o.Rules.Labels, "allow-annotations": o.Rules.Annotations} {
		for _, key := range list {
			if !configured.ValidKey(key) {
				return process.Usage("--%s: %q is neither a key nor a pattern of keys", flag, key)
			}
		}
	}
	for flag, number := range map[string]int{"max-fleets": o.Rules.MaxFleets, "max-ports": o.Rules.MaxPorts, "max-removals": o.MaxRemovals} {
		if number < 0 {
			return process.Usage("--%s: less than 0", flag)
		}
	}
	if o.Resync < time.Second {
		return process.Usage("--resync=%s: want a second or more", o.Resync)
	}
	return nil
}
