// Package cli holds the commands of the compiler: it turns flags into options, runs them, and
// prints the result.
//
// [NewCommand] returns a tree of cobra commands. It may be the root of a program or stand
// below another command, and one process may have any number of trees. Cobra passes to a
// command what it needs of its program: the streams, set with SetIn, SetOut and SetErr, and
// the context, given to ExecuteContext. Commands return their errors, with the exit code in
// a [process.ExitError]. They neither print errors nor end the process; process.Main does
// both.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/cluster"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/controller"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/internal/kubeconfig"
	"github.com/hapsnap/hapsnap/internal/objectname"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/internal/rbac"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

// NewCommand returns the command "compiler" with all of its verbs.
func NewCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "compiler",
		Short: "Compile ingress manifests into validated snapshots of HAProxy configurations",
		Args:  process.Args(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	process.WithVersion(root)
	root.AddCommand(
		renderCommand(), runCommand(), statusCommand(), explainCommand(), diffCommand(),
		testCommand(), fnCommand(), migrateCommand(), rbacCommand(), process.VersionCommand(),
	)
	process.Completion{
		Folders: []string{"templates", "cache-dir", "webhook-cert-dir"},
		Words:   map[string][]string{"endpoints": {string(config.Live), string(config.Recorded)}, "scope": rbac.Scopes, "to": {"gateway"}},
	}.AddTo(root)
	process.AddProgress(root, map[string]string{
		"render": "opening the store", "explain": "reading the objects", "explain request": "reading the configuration", "diff": "reading what is compared",
		"status": "reading the newest snapshot", "test": "running the tests", "migrate": "reading the manifests",
	})
	process.AddExamples(root, examples)
	process.GroupHelp(root)
	return root
}

// sourceFlags say what is compiled, and how.
type sourceFlags struct {
	written []byte // the configuration as it was read at the start
	cluster clusterFlags

	manifests, templates, config, haproxy string

	ingressClass, controllerClass string
	withoutClass                  bool
	gatewayAPI                    bool
	gatewayController             string
	endpoints                     string
	addresses                     []string
	places                        config.Places // positions of the fields in the file
	httpPort, httpsPort, status   int
}

// add declares all flags.
func (f *sourceFlags) add(cmd *cobra.Command) {
	addInput(cmd, &f.manifests, "directory of manifests, or one file; without it the compiler reads a cluster")
	f.cluster.add(cmd)
	f.addHow(cmd)
}

// addHow declares the flags that say how manifests are compiled.
func (f *sourceFlags) addHow(cmd *cobra.Command) {
	flags, d := cmd.Flags(), config.Default()
	process.Once(flags, &f.templates, "templates", "", "one directory has all templates that are not shipped", "directory of templates, which replace shipped templates of the same name or add to them")
	addConfig(flags, &f.config, "file with a CompilerConfig; flags win over it")
	flags.StringVar(&f.haproxy, "haproxy", "haproxy", "name or path of the haproxy that checks configurations, 2.6 or later")
	flags.StringVar(&f.ingressClass, "ingress-class", d.IngressClass, "class of the Ingresses to compile")
	flags.StringVar(&f.controllerClass, "controller-class", d.ControllerClass, "spec.controller of IngressClass objects that count as ours, whatever their name")
	flags.BoolVar(&f.withoutClass, "watch-ingress-without-class", d.WatchIngressWithoutClass, "also compile Ingresses that name no class")
	flags.BoolVar(&f.gatewayAPI, "gateway-api", d.GatewayAPI.Enabled, "also compile Gateways and their routes")
	flags.StringVar(&f.gatewayController, "gateway-controller", d.GatewayAPI.ControllerName, "controllerName of the GatewayClasses whose Gateways are compiled")
	flags.StringVar(&f.endpoints, "endpoints", string(d.Endpoints), "live: the pusher joins them with the snapshot; recorded: they are a file of the snapshot")
	flags.StringSliceVar(&f.addresses, "bind-address", d.Bind.Addresses, `addresses to listen on: IP addresses, "*", or one "${VARIABLE}" that HAProxy expands`)
	flags.IntVar(&f.httpPort, "http-port", d.HTTP.Port, "port for HTTP; 0 for none")
	flags.IntVar(&f.httpsPort, "https-port", d.HTTPS.Port, "port for HTTPS; 0 for none")
	flags.IntVar(&f.status, "status-port", d.Status.Port, "port where HAProxy answers /healthz, /ready and /metrics; 0 for none")
}

// source returns what the flags say. It prints faults of the configuration file. A cluster
// is watched until ctx is done.
func (f *sourceFlags) source(ctx context.Context, flags *pflag.FlagSet, stderr io.Writer, log *slog.Logger) (compiler.Source, error) {
	c, err := f.configuration(ctx, flags, stderr, log)
	if err != nil {
		return compiler.Source{}, err
	}
	objects, err := f.objects(ctx, log)
	return compiler.Source{Objects: objects, Templates: f.templates, Config: c}, err
}

// objects returns the source of the objects.
func (f *sourceFlags) objects(ctx context.Context, log *slog.Logger) (compiler.Objects, error) {
	switch {
	case f.manifests != "" && f.cluster.kubeconfig != "" && !f.cluster.forStore:
		return nil, process.WithHint(process.Usage("both manifests and a cluster are named"), "use -f DIR or --kubeconfig FILE")
	case f.manifests != "":
		return compiler.Files(f.manifests), nil
	case !f.cluster.wanted():
		return nil, process.WithHint(process.Usage("neither manifests nor a cluster are named"), "use -f DIR or --kubeconfig FILE")
	}
	connection, err := f.cluster.connect("", log)
	if err != nil {
		return nil, err
	}
	return follow(ctx, connection, log), nil
}

// configuration reads the configuration, and overrides it with the flags.
func (f *sourceFlags) configuration(ctx context.Context, flags *pflag.FlagSet, stderr io.Writer, log *slog.Logger) (config.Config, error) {
	c := config.Default()
	name, data, err := f.configurationText(ctx, log)
	if err != nil {
		return config.Config{}, err
	}
	f.written = data
	if name != "" {
		read, found := config.Parse(name, data)
		if len(found) > 0 {
			printDiagnostics(stderr, found)
			return config.Config{}, process.Invalid(nil)
		}
		c, f.places = read, config.PlacesOf(name, data)
	}
	f.override(flags, &c)
	for _, fault := range c.Check() {
		return config.Config{}, faultOfFlag(flags, fault)
	}
	return c, nil
}

// configurationText returns the configuration as it is written, and its name. Both are
// empty if no configuration is named.
func (f *sourceFlags) configurationText(ctx context.Context, log *slog.Logger) (name string, data []byte, err error) {
	switch {
	case f.config != "" && f.cluster.configMap != "":
		return "", nil, process.WithHint(process.Usage("two configurations are named"), "use --config FILE or --config-map NAMESPACE/NAME")
	case f.cluster.configMap != "":
		return f.cluster.configuration(ctx, log)
	case f.config != "":
		return controller.ConfigFile(f.config).Read(ctx)
	}
	return "", nil, nil
}

// checker finds the haproxy that checks, and makes it check the configuration. It prints
// what haproxy refuses.
func (f *sourceFlags) checker(ctx context.Context, c config.Config, stderr io.Writer) (*validate.Checker, error) {
	check, err := validate.Find(ctx, f.haproxy)
	if err != nil {
		return nil, err
	}
	faults, err := check.Settings(ctx, c)
	if err != nil {
		return nil, err
	}
	if len(faults) > 0 {
		printDiagnostics(stderr, f.places.Locate(faults))
		return nil, process.Invalid(nil)
	}
	return check, nil
}

// override overrides a configuration with the flags that were given.
func (f *sourceFlags) override(flags *pflag.FlagSet, c *config.Config) {
	for name, set := range map[string]func(){
		"ingress-class":               func() { c.IngressClass = f.ingressClass },
		"controller-class":            func() { c.ControllerClass = f.controllerClass },
		"watch-ingress-without-class": func() { c.WatchIngressWithoutClass = f.withoutClass },
		"gateway-api":                 func() { c.GatewayAPI.Enabled = f.gatewayAPI },
		"gateway-controller":          func() { c.GatewayAPI.ControllerName = f.gatewayController },
		"endpoints":                   func() { c.Endpoints = config.Endpoints(f.endpoints) },
		"bind-address":                func() { c.Bind.Addresses = f.addresses },
		"http-port":                   func() { c.HTTP.Port = f.httpPort },
		"https-port":                  func() { c.HTTPS.Port = f.httpsPort },
		"status-port":                 func() { c.Status.Port = f.status },
	} {
		if flags.Changed(name) {
			set()
		}
	}
}

// unpublishable returns why a compile gave no snapshot, or nil. It does not repeat what the
// diagnostics say.
func unpublishable(err error) error {
	switch {
	case errors.Is(err, compiler.ErrTemplates):
		return process.Invalid(nil)
	case errors.Is(err, compiler.ErrGaveUp):
		return process.Invalid(err)
	case errors.Is(err, compiler.ErrNothing):
		return process.WithHint(process.Invalid(err), "name the directory with the manifests; if they have objects but no Ingress, every request is answered with 404")
	}
	return err
}

// printDiagnostics prints diagnostics for people and their editors.
func printDiagnostics(w io.Writer, found []diag.Diagnostic) {
	for _, d := range found {
		fmt.Fprintln(w, d)
	}
}

// clusterFlags say which cluster is read.
type clusterFlags struct {
	kubeconfig, context string
	forStore            bool // the cluster is where the store is, and the objects may be in files
	configMap           string
	setting             *cluster.Setting // the content of that ConfigMap, once it is read
	logs                sync.Once        // the Kubernetes library logs to the compiler's log from then on
}

// add declares all flags.
func (f *clusterFlags) add(cmd *cobra.Command) {
	f.addConnection(cmd)
	cmd.Flags().StringVar(&f.configMap, "config-map", "", "ConfigMap of the cluster, as namespace/name, with a CompilerConfig under the key "+cluster.SettingKey+", instead of --config")
}

// addConnection declares the flags that say how to reach the cluster.
func (f *clusterFlags) addConnection(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.kubeconfig, "kubeconfig", "", "file that says how to reach the cluster to read, and a store in it; the default in a pod is the pod's own cluster")
	cmd.Flags().StringVar(&f.context, "context", "", "context of the kubeconfig (default: the current one)")
}

// store returns the options for opening a store, which may be in the cluster.
func (f *clusterFlags) store(o stores.Options, log *slog.Logger) stores.Options {
	o.Cluster = f.options("")
	return o.WithLog(log)
}

// options returns how to reach the cluster. If kubeContext is not empty, it replaces the
// context of the flags.
func (f *clusterFlags) options(kubeContext string) kubeconfig.Options {
	return kubeconfig.Options{File: f.kubeconfig, Context: cmp.Or(kubeContext, f.context), UserAgent: "hapsnap-compiler/" + process.Version()}
}

// wanted reports whether a cluster is read if no files are named.
func (f *clusterFlags) wanted() bool { return f.kubeconfig != "" || kubeconfig.Inside() }

// connect prepares the connection to the cluster. If kubeContext is not empty, it replaces
// the context of the flags.
func (f *clusterFlags) connect(kubeContext string, log *slog.Logger) (cluster.Connection, error) {
	// All of client-go has only one logger, and goroutines that already run read it.
	f.logs.Do(func() { klog.SetSlogLogger(log) })
	c, err := cluster.Connect(f.options(kubeContext))
	return c, process.WithHint(err, "name a kubeconfig file with --kubeconfig, or manifests with -f")
}

// follow watches the cluster until ctx is done.
func follow(ctx context.Context, c cluster.Connection, log *slog.Logger) *cluster.Cluster {
	followed := cluster.New(c)
	go followed.Run(ctx, log)
	return followed
}

// configuration waits for the configuration in the ConfigMap. It watches the ConfigMap
// until ctx is done.
func (f *clusterFlags) configuration(ctx context.Context, log *slog.Logger) (name string, data []byte, err error) {
	configMap, err := objectname.Parse(f.configMap)
	if err != nil {
		return "", nil, process.WithHint(process.Usage("--config-map: %w", err), "name a ConfigMap such as edge/hapsnap-compiler")
	}
	connection, err := f.connect("", log)
	if err != nil {
		return "", nil, err
	}
	f.setting = cluster.NewSetting(connection, configMap)
	go f.setting.Run(ctx, log)
	return f.setting.First(ctx)
}

// warnings returns the log for a verb that ends when its work is done. It only has what
// hinders the verb.
func warnings(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// examples say what each verb is used for.
var examples = map[string][]string{
	"render":          {"render -f manifests -o out", "render -f manifests --config config.yaml -o 'git+file:///srv/edge.git?branch=edge'"},
	"run":             {"run -f manifests --store dir:snapshots", "run --kubeconfig ~/.kube/config --store configmap:edge/snapshots"},
	"status":          {"status --address localhost:8080", "status --store dir:snapshots --exit-code"},
	"explain":         {"explain haproxy.cfg:120 -f manifests", "explain maps/host.map:3 --kubeconfig ~/.kube/config"},
	"explain request": {"explain request https://shop.example.com/cart -f manifests", "explain request POST http://shop.example.com/ --store dir:snapshots --snapshot r12"},
	"diff":            {"diff before manifests", "diff dir:snapshots@head manifests -o markdown"},
	"test":            {"test", "test tests/checkout.yaml --run headers"},
	"fn":              {"fn --haproxy /usr/sbin/haproxy"},
	"migrate":         {"migrate -f manifests", "migrate -f manifests -o manifests --class hapsnap", "migrate -f manifests --to gateway --gateway infra/web -o gateway"},
	"rbac":            {"rbac", "rbac --config config.yaml"},
	"version":         {"version"},
}
