package cluster

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/snapshots"
)

// Query is one list of objects that is watched.
type Query struct {
	APIVersion, Kind string
	Namespace        string // "" is all of them, or none for a kind of the cluster's
	Name             string // "" is any
	Labels, Fields   string // selectors
	// Optional says that the cluster need not know the kind.
	Optional bool
	// Content says that templates read what the objects hold, but for the fields Drop.
	Content bool
	Drop    string // separated by spaces
}

// String names the query as people do.
func (q Query) String() string {
	text := q.Kind
	switch {
	case q.Name != "":
		return text + " " + q.Namespace + "/" + q.Name
	case q.Namespace != "":
		text += " in " + q.Namespace
	}
	for _, selector := range []string{q.Labels, q.Fields} {
		if selector != "" {
			text += " with " + selector
		}
	}
	return text
}

// fieldSelector returns the field selector with the name.
func (q Query) fieldSelector() string {
	if q.Name == "" {
		return q.Fields
	}
	return fields.OneTermEqualSelector("metadata.name", q.Name).String()
}

func (q Query) compare(o Query) int {
	return cmp.Or(cmp.Compare(q.APIVersion, o.APIVersion), cmp.Compare(q.Kind, o.Kind), cmp.Compare(q.Namespace, o.Namespace),
		cmp.Compare(q.Name, o.Name), cmp.Compare(q.Labels, o.Labels), cmp.Compare(q.Fields, o.Fields),
		cmp.Compare(q.Drop, o.Drop), compareBool(q.Content, o.Content), compareBool(q.Optional, o.Optional))
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// Plan returns what is watched for a configuration once these names were met,
// sorted.
func Plan(c config.Config, asked routing.Asked) []Query {
	var out []Query
	add := func(namespaces []string, q Query) {
		if len(namespaces) == 0 {
			namespaces = []string{""}
		}
		for _, q.Namespace = range namespaces {
			out = append(out, q)
		}
	}
	add(c.Namespaces, Query{APIVersion: "networking.k8s.io/v1", Kind: "Ingress"})
	add(nil, Query{APIVersion: "networking.k8s.io/v1", Kind: "IngressClass"})
	add(c.Namespaces, Query{APIVersion: "v1", Kind: "Service"})
	if c.Endpoints == config.Recorded {
		add(c.Namespaces, Query{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"})
	}
	if selectsNamespaces(c) {
		add(nil, Query{APIVersion: "v1", Kind: "Namespace"})
	}
	out = append(out, watched(c, "Secret", c.Secrets, asked.Secrets)...)
	out = append(out, watched(c, "ConfigMap", c.ConfigMaps, asked.ConfigMaps)...)
	for _, k := range c.Kinds {
		add(k.Namespaces, Query{
			APIVersion: k.APIVersion, Kind: k.Kind, Labels: k.LabelSelector, Fields: k.FieldSelector,
			Optional: k.Optional, Content: true, Drop: strings.Join(k.Drop, " "),
		})
	}
	slices.SortFunc(out, Query.compare)
	return slices.Compact(out)
}

// selectsNamespaces reports whether the labels of namespaces count.
func selectsNamespaces(c config.Config) bool {
	return c.NamespaceSelector != "" || slices.ContainsFunc(c.Kinds, func(k config.ObjectKind) bool { return k.NamespaceSelector != "" })
}

// watched returns the queries for a kind of which not all objects are read.
func watched(c config.Config, kind string, w config.Watched, names []snapshots.SecretName) []Query {
	var out []Query
	if w.Watch == config.WatchNamed {
		for _, name := range names {
			if len(c.Namespaces) == 0 || slices.Contains(c.Namespaces, name.Namespace) {
				out = append(out, Query{APIVersion: "v1", Kind: kind, Namespace: name.Namespace, Name: name.Name})
			}
		}
		return out
	}
	namespaces := c.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{""}
	}
	for _, namespace := range namespaces {
		out = append(out, Query{APIVersion: "v1", Kind: kind, Namespace: namespace, Labels: w.LabelSelector})
	}
	return out
}
