package cluster

import (
	"fmt"
	"strings"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/hapsnap/hapsnap/internal/kubeconfig"
)

// Connection is how an API server is reached.
type Connection struct {
	Name      string // for people
	Config    *rest.Config
	Dynamic   dynamic.Interface
	Discovery discovery.DiscoveryInterface
}

// Connect prepares a connection. Nothing is sent yet.
func Connect(o kubeconfig.Options) (Connection, error) {
	config, err := o.Load()
	if err != nil {
		return Connection{}, err
	}
	out := Connection{Name: config.Host, Config: config}
	if out.Dynamic, err = dynamic.NewForConfig(config); err != nil {
		return Connection{}, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	if out.Discovery, err = discovery.NewDiscoveryClientForConfig(config); err != nil {
		return Connection{}, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	return out, nil
}

// isSubresource tells widgets/status from widgets.
func isSubresource(resource string) bool { return strings.Contains(resource, "/") }
