package cli

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"

	"github.com/hapsnap/hapsnap/internal/kubeconfig"
	"github.com/hapsnap/hapsnap/internal/process"
)

// clusterFlags say how a cluster is reached.
type clusterFlags struct {
	kubeconfig, context string
}

func (f *clusterFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.kubeconfig, "kubeconfig", "", "file that says how to reach the cluster that a store or a state is in; in a pod, its own cluster by default")
	cmd.Flags().StringVar(&f.context, "context", "", "context of the kubeconfig; the current one by default")
}

// access returns how the cluster is reached.
func (f *clusterFlags) access() kubeconfig.Options {
	return kubeconfig.Options{File: f.kubeconfig, Context: f.context, UserAgent: "hapsnap-pusher/" + process.Version()}
}

// client makes a client of the cluster.
func (f *clusterFlags) client() (kubernetes.Interface, error) {
	config, err := f.access().Load()
	if err != nil {
		return nil, process.WithHint(err, "name a kubeconfig file with --kubeconfig")
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of the cluster: %w", err)
	}
	return client, nil
}
