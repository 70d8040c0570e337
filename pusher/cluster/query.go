package cluster

import (
	"slices"

	"github.com/hapsnap/hapsnap/internal/kubewatch"
	"github.com/hapsnap/hapsnap/snapshots"
)

// The kinds that are watched.
const (
	kindSlice  = "EndpointSlice"
	kindSecret = "Secret"
)

// Wanted is what snapshots need of a cluster.
type Wanted struct {
	Namespaces []string // of the Services whose endpoints are joined
	Secrets    []snapshots.SecretName
}

// endpointSlices is what is watched of a namespace; "" is all of them.
func endpointSlices(namespace string) kubewatch.Query {
	return kubewatch.Query{APIVersion: "discovery.k8s.io/v1", Kind: kindSlice, Namespace: namespace}
}

// secret is what is watched of a Secret.
func secret(name snapshots.SecretName) kubewatch.Query {
	return kubewatch.Query{APIVersion: "v1", Kind: kindSecret, Namespace: name.Namespace, Name: name.Name}
}

// Plan returns what is watched for what is wanted, sorted: EndpointSlices by
// namespace, or with one watch for all, and Secrets by name.
func Plan(w Wanted, allNamespaces bool) []kubewatch.Query {
	var out []kubewatch.Query
	for _, namespace := range w.Namespaces {
		if allNamespaces {
			namespace = ""
		}
		out = append(out, endpointSlices(namespace))
	}
	for _, s := range w.Secrets {
		out = append(out, secret(s))
	}
	slices.SortFunc(out, kubewatch.Query.Compare)
	return slices.Compact(out)
}
