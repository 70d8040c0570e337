package cluster

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/config/kinds"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/internal/kubewatch"
)

// Plan returns what is watched for a configuration after a compile looked for these names, sorted.
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
	if c.GatewayAPI.Fleet == "" {
		add(c.Namespaces, kubewatch.Query{APIVersion: "networking.k8s.io/v1", Kind: "Ingress"})
		add(nil, kubewatch.Query{APIVersion: "networking.k8s.io/v1", Kind: "IngressClass"})
	}
	add(c.Namespaces, kubewatch.Query{APIVersion: "v1", Kind: "Service"})
	if c.Endpoints == config.Recorded {
		add(c.Namespaces, kubewatch.Query{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"})
	}
	if c.NamespaceSelector != "" || slices.ContainsFunc(c.Kinds, func(k kinds.Kind) bool { return k.NamespaceSelector != "" }) {
		add(nil, kubewatch.Query{APIVersion: "v1", Kind: "Namespace"})
	}
	if c.GatewayAPI.Enabled {
		for _, kind := range inputs.GatewayKinds() {
			q := kubewatch.Query{APIVersion: inputs.GatewayVersion, Kind: kind.Name, Optional: true}
			if kind.EveryNamespace {
				add(nil, q)
			} else {
				add(c.Namespaces, q)
			}
		}
		for _, name := range inputs.GatewayDefinitions() {
			add(nil, kubewatch.Query{APIVersion: inputs.DefinitionVersion, Kind: inputs.DefinitionKind, Name: name})
		}
		add(nil, kubewatch.Query{APIVersion: "v1", Kind: "Namespace"}) // by whose labels listeners let routes in
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

// Concern says what a query of a plan is for, as the name of a role does.
func Concern(q kubewatch.Query) string {
	if q.APIVersion == inputs.GatewayVersion && !q.Content {
		if kind, _ := inputs.GatewayKindOf(q.Kind); kind.EveryNamespace {
			return "classes"
		}
		return "gateways"
	}
	if q.APIVersion == inputs.DefinitionVersion && q.Name != "" {
		return "definitions"
	}
	switch q.Kind {
	case "IngressClass":
		return "classes"
	case "Ingress", "Service", "EndpointSlice":
		return "routes"
	case "Namespace", "Secret", "ConfigMap":
		if q.APIVersion == "v1" {
			return strings.ToLower(q.Kind) + "s"
		}
	}
	return "kinds"
}

// watched returns the queries for a kind of which not all objects are read.
func watched(c config.Config, kind string, w kinds.Watched, names []types.NamespacedName) []kubewatch.Query {
	var out []kubewatch.Query
	if w.Watch == kinds.WatchNamed {
		for _, name := range names {
			if len(content.IsPathSegmentName(name.Namespace)) > 0 {
				continue // no client asks for it, so that it would never be known that there is no such object
			}
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
