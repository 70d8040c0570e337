package cli

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"sync"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/hapsnap/hapsnap/compiler/cluster"
	"github.com/hapsnap/hapsnap/internal/kubeconfig"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

// clusterFlags say which cluster is read.
type clusterFlags struct {
	kubeconfig, context string
	forStore            bool // that is where the store is, and objects may be in files
	configMap           string
	setting             *cluster.Setting // in that ConfigMap, once it is read
	logs                sync.Once        // the library of Kubernetes does, from then on
}

// add declares them.
func (f *clusterFlags) add(cmd *cobra.Command) {
	f.addConnection(cmd)
	cmd.Flags().StringVar(&f.configMap, "config-map", "", "ConfigMap of the cluster, as namespace/name, with a CompilerConfig under the key "+cluster.SettingKey+", in the place of --config")
}

// addConnection declares those that say how to reach it.
func (f *clusterFlags) addConnection(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.kubeconfig, "kubeconfig", "", "file that says how to reach the cluster to read, and a store in it; in a pod, its own cluster by default")
	cmd.Flags().StringVar(&f.context, "context", "", "context of the kubeconfig; the current one by default")
}

// store returns what it takes to open a store, which may be in the cluster.
func (f *clusterFlags) store(o stores.Options, log *slog.Logger) stores.Options {
	o.Cluster = f.options("")
	return o.WithLog(log)
}

// options returns how the cluster is reached, with a context of the kubeconfig in the
// place of that of the flags, unless it is empty.
func (f *clusterFlags) options(kubeContext string) kubeconfig.Options {
	return kubeconfig.Options{File: f.kubeconfig, Context: cmp.Or(kubeContext, f.context), UserAgent: "hapsnap-compiler/" + process.Version()}
}

// wanted reports whether a cluster is to be read, where no files are named.
func (f *clusterFlags) wanted() bool { return f.kubeconfig != "" || kubeconfig.Inside() }

// connect prepares the connection to the cluster, with a context of the kubeconfig
// in the place of that of the flags, unless it is empty.
func (f *clusterFlags) connect(kubeContext string, log *slog.Logger) (cluster.Connection, error) {
	// There is one logger for all of client-go, and whatever runs reads it.
	f.logs.Do(func() { klog.SetSlogLogger(log) })
	c, err := cluster.Connect(f.options(kubeContext))
	return c, process.WithHint(err, "name a kubeconfig file with --kubeconfig, or manifests with -f")
}

// follow reads the cluster from now on, until ctx is done.
func follow(ctx context.Context, c cluster.Connection, log *slog.Logger) *cluster.Cluster {
	followed := cluster.New(c)
	go followed.Run(ctx, log)
	return followed
}

// configuration waits for the configuration in the ConfigMap, which is followed from
// now on, until ctx is done.
func (f *clusterFlags) configuration(ctx context.Context, log *slog.Logger) (name string, data []byte, err error) {
	configMap, err := snapshots.ParseSecretName(f.configMap)
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

// warnings returns the log of a verb that ends when it is done: what is in its way.
func warnings(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelWarn}))
}
