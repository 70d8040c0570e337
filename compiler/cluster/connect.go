package cluster

import (
	"fmt"
	"os"
	"strings"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Connection is how an API server is reached.
type Connection struct {
	Name      string // for people
	Config    *rest.Config
	Dynamic   dynamic.Interface
	Discovery discovery.DiscoveryInterface
}

// Inside reports whether the process runs in a pod of a cluster.
func Inside() bool { return os.Getenv("KUBERNETES_SERVICE_HOST") != "" }

// Connect prepares a connection with a kubeconfig file and one of its contexts, ""
// for the current one; without a file, with the service account of the pod. Nothing
// is sent yet. The user agent names the program.
func Connect(kubeconfig, context, userAgent string) (Connection, error) {
	config, err := configOf(kubeconfig, context)
	if err != nil {
		return Connection{}, err
	}
	config.UserAgent = userAgent
	config.QPS = -1 // the API server sees to fairness; single Secrets may be many
	out := Connection{Name: config.Host, Config: config}
	if out.Dynamic, err = dynamic.NewForConfig(config); err != nil {
		return Connection{}, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	if out.Discovery, err = discovery.NewDiscoveryClientForConfig(config); err != nil {
		return Connection{}, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	return out, nil
}

func configOf(kubeconfig, context string) (*rest.Config, error) {
	if kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("connect as a pod: %w", err)
		}
		return config, nil
	}
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", kubeconfig, err)
	}
	return config, nil
}

// isSubresource tells widgets/status from widgets.
func isSubresource(resource string) bool { return strings.Contains(resource, "/") }
