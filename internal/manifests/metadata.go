package manifests

import (
	"strings"
	"time"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// newObject reads what names an object and what the API server records of it.
// Values of the wrong type count as absent here; [Object.Decode] reports them.
func newObject(n *yaml.Node, inherited GVK) Object {
	_, metadata := field(n, "metadata")
	o := Object{
		APIVersion:      orElse(text(n, "apiVersion"), inherited.APIVersion),
		Kind:            orElse(text(n, "kind"), inherited.Kind),
		Namespace:       text(metadata, "namespace"),
		Name:            text(metadata, "name"),
		UID:             text(metadata, "uid"),
		ResourceVersion: text(metadata, "resourceVersion"),
		Labels:          texts(metadata, "labels"),
		Annotations:     texts(metadata, "annotations"),
		node:            n,
	}
	if _, created := field(metadata, "creationTimestamp"); created != nil {
		// Unquoted, a time is a value of its own kind in YAML.
		if t, err := time.Parse(time.RFC3339, created.Value); err == nil {
			o.Created = t.UTC()
		}
	}
	if o.Namespace == "" && isNamespaced(o.GVK()) {
		o.Namespace = "default"
	}
	return o
}

func orElse(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}

// text returns the string in a field, or "".
func text(n *yaml.Node, name string) string {
	if _, value := field(n, name); value != nil && isText(value) {
		return value.Value
	}
	return ""
}

// texts returns the strings in a mapping in a field, or nil.
func texts(n *yaml.Node, name string) map[string]string {
	_, m := field(n, name)
	if m == nil || m.Kind != yaml.MappingNode || len(m.Content) == 0 {
		return nil
	}
	out := make(map[string]string, len(m.Content)/2)
	for i := 0; i+1 < len(m.Content); i += 2 {
		if isText(m.Content[i+1]) {
			out[m.Content[i].Value] = m.Content[i+1].Value
		}
	}
	return out
}

// isNamespaced reports whether objects of an API are known to live in a
// namespace. Of kinds that this package does not know, nothing is assumed.
func isNamespaced(g GVK) bool {
	group, _, ok := strings.Cut(g.APIVersion, "/")
	if !ok {
		group = ""
	}
	switch group {
	case "":
		switch g.Kind {
		case "Service", "Secret", "ConfigMap", "Endpoints", "Pod", "ServiceAccount", "Event", "PersistentVolumeClaim", "ReplicationController":
			return true
		}
	case "networking.k8s.io", "extensions":
		return g.Kind == "Ingress" || g.Kind == "NetworkPolicy"
	case "discovery.k8s.io":
		return g.Kind == "EndpointSlice"
	case "apps", "batch", "autoscaling", "coordination.k8s.io":
		return true
	case "gateway.networking.k8s.io":
		return g.Kind != "GatewayClass"
	}
	return false
}
