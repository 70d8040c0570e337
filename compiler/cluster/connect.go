package cluster

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/hapsnap/hapsnap/internal/kubeconfig"
	"github.com/hapsnap/hapsnap/internal/kubewatch"
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

// resolver finds the resource of a kind.
type resolver struct {
	discovery discovery.DiscoveryInterface
	dynamic   dynamic.Interface
}

// open returns how the objects of a query are listed, if the cluster knows the kind.
func (r resolver) open(_ context.Context, q kubewatch.Query) (kubewatch.Resource, bool, error) {
	resource, found, err := r.resolve(q.APIVersion, q.Kind)
	if err != nil || !found {
		return nil, found, err
	}
	if q.Namespace == "" {
		return kubewatch.Typed(r.dynamic.Resource(resource)), true, nil
	}
	return kubewatch.Typed(r.dynamic.Resource(resource).Namespace(q.Namespace)), true, nil
}

// resolve asks the cluster for the resource of a kind. Without an error it knows for
// certain whether there is one.
func (r resolver) resolve(apiVersion, kind string) (resource schema.GroupVersionResource, found bool, err error) {
	if resource, known := kubewatch.BuiltIn(apiVersion, kind); known {
		return resource, true, nil
	}
	version, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return resource, false, fmt.Errorf("resolve %s of %s: %w", kind, apiVersion, err)
	}
	list, err := r.discovery.ServerResourcesForGroupVersion(apiVersion)
	if apierrors.IsNotFound(err) {
		return resource, false, nil
	}
	if err != nil {
		return resource, false, fmt.Errorf("resolve %s of %s: %w", kind, apiVersion, err)
	}
	for _, served := range list.APIResources {
		if served.Kind == kind && !strings.Contains(served.Name, "/") {
			return version.WithResource(served.Name), true, nil
		}
	}
	return resource, false, nil
}

// Resource returns the resource of a kind, for rules. Where the cluster does not know
// the kind, or without a cluster, it is what its name leads one to expect.
func (c Connection) Resource(apiVersion, kind string) string {
	if c.Discovery != nil {
		if found, ok, err := (resolver{discovery: c.Discovery}).resolve(apiVersion, kind); ok && err == nil {
			return found.Resource
		}
	}
	if last := len(kind) - 1; last > 0 && kind[last] == 'y' && strings.ContainsRune("aeiou", rune(kind[last-1])) {
		return strings.ToLower(kind) + "s" // gateways, of which the guess makes gatewaies
	}
	version, _ := schema.ParseGroupVersion(apiVersion) // of a configuration that was checked
	plural, _ := meta.UnsafeGuessKindToResource(version.WithKind(kind))
	return plural.Resource
}
