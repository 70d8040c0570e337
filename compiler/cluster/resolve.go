package cluster

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// builtIn are the resources of the kinds that are read in every cluster.
var builtIn = map[schema.GroupVersionKind]string{
	{Group: "networking.k8s.io", Version: "v1", Kind: "Ingress"}:      "ingresses",
	{Group: "networking.k8s.io", Version: "v1", Kind: "IngressClass"}: "ingressclasses",
	{Version: "v1", Kind: "Service"}:                                  "services",
	{Version: "v1", Kind: "Secret"}:                                   "secrets",
	{Version: "v1", Kind: "ConfigMap"}:                                "configmaps",
	{Version: "v1", Kind: "Namespace"}:                                "namespaces",
	{Group: "discovery.k8s.io", Version: "v1", Kind: "EndpointSlice"}: "endpointslices",
}

// resolver finds the resource of a kind.
type resolver struct{ discovery discovery.DiscoveryInterface }

// resolve asks the cluster for the resource of a kind. Without an error it knows for
// certain whether there is one.
func (r resolver) resolve(apiVersion, kind string) (resource schema.GroupVersionResource, found bool, err error) {
	version, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return resource, false, fmt.Errorf("resolve %s of %s: %w", kind, apiVersion, err)
	}
	if name, known := builtIn[version.WithKind(kind)]; known {
		return version.WithResource(name), true, nil
	}
	list, err := r.discovery.ServerResourcesForGroupVersion(apiVersion)
	if apierrors.IsNotFound(err) {
		return resource, false, nil
	}
	if err != nil {
		return resource, false, fmt.Errorf("resolve %s of %s: %w", kind, apiVersion, err)
	}
	for _, served := range list.APIResources {
		if served.Kind == kind && !isSubresource(served.Name) {
			return version.WithResource(served.Name), true, nil
		}
	}
	return resource, false, nil
}

// Resource returns the resource of a kind, for rules. Where the cluster does not know
// the kind, or without a cluster, it is what its name leads one to expect.
func (c Connection) Resource(apiVersion, kind string) string {
	if c.Discovery != nil {
		if found, ok, err := (resolver{c.Discovery}).resolve(apiVersion, kind); ok && err == nil {
			return found.Resource
		}
	}
	version, _ := schema.ParseGroupVersion(apiVersion) // of a configuration that was checked
	plural, _ := meta.UnsafeGuessKindToResource(version.WithKind(kind))
	return plural.Resource
}
