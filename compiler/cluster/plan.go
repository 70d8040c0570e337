package cluster

import (
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/config/kinds"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/internal/kubewatch"
	"github.com/hapsnap/hapsnap/snapshots"
)

// Plan returns what is watched for a configuration once these names were met,
// sorted.
func Plan(c config.Config, asked routing.Asked) []kubewatch.Query {
	var out []kubewatch.Query
	add := func(namespaces []string, q kubewatch.Query) {
		if len(namespaces) == 0 {
			namespaces = []string{""}
		}
		for _, q.Namespace = range namespaces {
			out = append(out, q)
		}
	}
	add(c.Namespaces, kubewatch.Query{APIVersion: "networking.k8s.io/v1", Kind: "Ingress"})
	add(nil, kubewatch.Query{APIVersion: "networking.k8s.io/v1", Kind: "IngressClass"})
	add(c.Namespaces, kubewatch.Query{APIVersion: "v1", Kind: "Service"})
	if c.Endpoints == config.Recorded {
		add(c.Namespaces, kubewatch.Query{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"})
	}
	if selectsNamespaces(c) {
		add(nil, kubewatch.Query{APIVersion: "v1", Kind: "Namespace"})
	}
	out = append(out, watched(c, "Secret", c.Secrets, asked.Secrets)...)
	out = append(out, watched(c, "ConfigMap", c.ConfigMaps, asked.ConfigMaps)...)
	for _, k := range c.Kinds {
		add(k.Namespaces, kubewatch.Query{
			APIVersion: k.APIVersion, Kind: k.Kind, Labels: k.LabelSelector, Fields: k.FieldSelector,
			Optional: k.Optional, Content: true, Drop: strings.Join(k.Drop, " "),
		})
	}
	slices.SortFunc(out, kubewatch.Query.Compare)
	return slices.Compact(out)
}

// selectsNamespaces reports whether the labels of namespaces count.
func selectsNamespaces(c config.Config) bool {
	return c.NamespaceSelector != "" || slices.ContainsFunc(c.Kinds, func(k kinds.Kind) bool { return k.NamespaceSelector != "" })
}

// watched returns the queries for a kind of which not all objects are read.
func watched(c config.Config, kind string, w kinds.Watched, names []snapshots.SecretName) []kubewatch.Query {
	var out []kubewatch.Query
	if w.Watch == kinds.WatchNamed {
		for _, name := range names {
			if len(c.Namespaces) == 0 || slices.Contains(c.Namespaces, name.Namespace) {
				out = append(out, kubewatch.Query{APIVersion: "v1", Kind: kind, Namespace: name.Namespace, Name: name.Name})
			}
		}
		return out
	}
	namespaces := c.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{""}
	}
	for _, namespace := range namespaces {
		out = append(out, kubewatch.Query{APIVersion: "v1", Kind: kind, Namespace: namespace, Labels: w.LabelSelector})
	}
	return out
}
