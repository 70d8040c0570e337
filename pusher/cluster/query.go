package cluster

import (
	"cmp"
	"slices"

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

// Query is one list of objects that is watched.
type Query struct {
	Kind      string
	Namespace string // "" is all of them
	Name      string // "" is any
}

// String names the query as people do.
func (q Query) String() string {
	switch {
	case q.Name != "":
		return q.Kind + " " + q.Namespace + "/" + q.Name
	case q.Namespace != "":
		return q.Kind + "s in " + q.Namespace
	}
	return q.Kind + "s"
}

func (q Query) compare(o Query) int {
	return cmp.Or(cmp.Compare(q.Kind, o.Kind), cmp.Compare(q.Namespace, o.Namespace), cmp.Compare(q.Name, o.Name))
}

// Plan returns what is watched for what is wanted, sorted: EndpointSlices by
// namespace, or with one watch for all, and Secrets by name.
func Plan(w Wanted, allNamespaces bool) []Query {
	var out []Query
	for _, namespace := range w.Namespaces {
		if allNamespaces {
			namespace = ""
		}
		out = append(out, Query{Kind: kindSlice, Namespace: namespace})
	}
	for _, s := range w.Secrets {
		out = append(out, Query{Kind: kindSecret, Namespace: s.Namespace, Name: s.Name})
	}
	slices.SortFunc(out, Query.compare)
	return slices.Compact(out)
}
