package main

import (
	"context"
	"log/slog"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/hapsnap/hapsnap/compiler/cluster"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
)

// clusterFlags say which cluster is read.
type clusterFlags struct {
	kubeconfig, context string
	configMap           string
	setting             *cluster.Setting // in that ConfigMap, once it is read
}

// add declares them.
func (f *clusterFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.kubeconfig, "kubeconfig", "", "file that says how to reach the cluster to read; in a pod, its own cluster by default")
	cmd.Flags().StringVar(&f.context, "context", "", "context of the kubeconfig; the current one by default")
	cmd.Flags().StringVar(&f.configMap, "config-map", "", "ConfigMap of the cluster, as namespace/name, with a CompilerConfig under the key "+cluster.SettingKey+", in the place of --config")
}

// wanted reports whether a cluster is to be read, where no files are named.
func (f *clusterFlags) wanted() bool { return f.kubeconfig != "" || cluster.Inside() }

// connect prepares the connection to the cluster, with a context of the kubeconfig
// in the place of that of the flags, unless it is empty.
func (f *clusterFlags) connect(kubeContext string) (cluster.Connection, error) {
	if kubeContext == "" {
		kubeContext = f.context
	}
	c, err := cluster.Connect(f.kubeconfig, kubeContext, "hapsnap-compiler/"+process.Version())
	return c, process.WithHint(err, "name a kubeconfig file with --kubeconfig, or manifests with -f")
}

// follow reads the cluster from now on, until ctx is done.
func follow(ctx context.Context, c cluster.Connection, log *slog.Logger) *cluster.Cluster {
	klog.SetSlogLogger(log) // of client-go, which has no other way
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
	connection, err := f.connect("")
	if err != nil {
		return "", nil, err
	}
	f.setting = cluster.NewSetting(connection, configMap)
	go f.setting.Run(ctx, log)
	return f.setting.First(ctx)
}
