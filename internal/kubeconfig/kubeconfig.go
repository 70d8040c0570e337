// Package kubeconfig reads how to reach an API server: from a kubeconfig file, or from what a pod has.
// The compiler uses it to read a cluster, and the store in ConfigMaps uses it too.
package kubeconfig

import (
	"fmt"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Options say which API server to reach, and as whom. The zero value is that of the pod.
type Options struct {
	File      string // "" is the service account of the pod
	Context   string // of the file; "" is its current one
	UserAgent string // names the program
}

// Inside reports whether the process runs in a pod of a cluster.
func Inside() bool { return os.Getenv("KUBERNETES_SERVICE_HOST") != "" }

// Load reads the file, or what a pod has in its place. It sends nothing.
func (o Options) Load() (*rest.Config, error) {
	config, err := o.load()
	if err != nil {
		return nil, err
	}
	config.UserAgent = o.UserAgent
	config.QPS = -1 // the API server limits clients fairly; single Secrets may be many
	return config, nil
}

func (o Options) load() (*rest.Config, error) {
	if o.File == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("connect as a pod: %w", err)
		}
		return config, nil
	}
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: o.File}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: o.Context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", o.File, err)
	}
	return config, nil
}
