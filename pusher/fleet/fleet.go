// Package fleet reads the file that lists the instances of a fleet and says how
// snapshots are rolled out over it:
//
//	apiVersion: hapsnap.dev/v1alpha1
//	kind: Fleet
//	metadata:
//	  name: edge
//	spec:
//	  rollout:
//	    waves: ["1", "25%", "100%"]
//	    soak: 30s
//	  instances:
//	  - name: edge-1
//	    url: https://10.0.0.11:5555
//	    username: hapsnap
//	    passwordFile: edge-1.password
//	    zone: a
//
// Instead of a list, the file can select pods of a cluster ([Pods]). The package is strict: an unknown
// field is an error with its place in the file, since it may be what its author cared about most.
package fleet

import (
	"cmp"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// Kind is the KRM kind of the file.
const Kind = "Fleet"

// The directories of a Dataplane API that was not told others.
const (
	DefaultMaps         = "/etc/haproxy/maps"
	DefaultCertificates = "/etc/haproxy/ssl"
	DefaultGeneral      = "/etc/haproxy/general"
)

// DefaultName is the name of a fleet whose file gives none.
const DefaultName = "default"

// Fleet is the instances that run one configuration.
type Fleet struct {
	// Name tells it from other fleets on the same store: what it rejects counts for no
	// other.
	Name      string
	Rollout   Rollout
	Instances []Instance // by name
	// Pods says which pods are instances as well, nil for none.
	Pods *Pods
	// Files are those that it was read from: the file itself and those with
	// passwords, certificates and keys, which have to be watched.
	Files []string
}

// Instance is one HAProxy and its Dataplane API.
type Instance struct {
	Name     string
	URL      string
	Username string
	Password string
	TLS      dataplane.TLS
	Zone     string
	// UID is that of the pod, "" for an instance of the file. Another pod of the same
	// name is another instance.
	UID    string
	Layout bind.Layout
	// Draining is set for a pod that terminates. It still serves the connections that it has,
	// and belongs to the fleet no more.
	Draining bool
}

// The keys of Secrets where the file names none: those of the types
// kubernetes.io/basic-auth and kubernetes.io/tls.
const (
	DefaultUsernameKey = "username"
	DefaultPasswordKey = "password"
	CAKey              = "ca.crt"
)

// DefaultZoneLabel is the label of pods that says their zone: the API server copies
// it from the node.
const DefaultZoneLabel = "topology.kubernetes.io/zone"

// Pods says which pods of a cluster are instances, and how they are reached. Secrets
// are in the namespace of the pods.
type Pods struct {
	Namespace string
	Selector  string // of labels, as the API writes it
	Port      intstr.IntOrString
	Scheme    string
	// Secret has the user name and the password, each under its key.
	Secret, UsernameKey, PasswordKey string
	// CASecret has the authorities, ClientSecret the client certificate; "" is none.
	CASecret, ClientSecret, ServerName string
	// ZoneLabel is a label of pods, NodeZoneLabel one of their nodes, "" for the
	// pods' own.
	ZoneLabel, NodeZoneLabel string
	Layout                   bind.Layout
}

type pods struct {
	Namespace         string                `json:"namespace"`
	Selector          *metav1.LabelSelector `json:"selector"`
	Port              intstr.IntOrString    `json:"port"`
	Scheme            string                `json:"scheme,omitempty"`
	CredentialsSecret struct {
		Name        string `json:"name"`
		UsernameKey string `json:"usernameKey,omitempty"`
		PasswordKey string `json:"passwordKey,omitempty"`
	} `json:"credentialsSecret"`
	TLS struct {
		CASecret                string `json:"caSecret,omitempty"`
		ClientCertificateSecret string `json:"clientCertificateSecret,omitempty"`
		ServerName              string `json:"serverName,omitempty"`
	} `json:"tls,omitempty"`
	ZoneFrom struct {
		PodLabel  string `json:"podLabel,omitempty"`
		NodeLabel string `json:"nodeLabel,omitempty"`
	} `json:"zoneFrom,omitempty"`
	Directories directories `json:"directories,omitempty"`
}

// pods translates the part of the document, which may be missing.
func (r *reader) pods(p *pods) *Pods {
	if p == nil {
		return nil
	}
	at := func(fields ...any) []any { return append([]any{"spec", "pods"}, fields...) }
	for _, needed := range []struct {
		value string
		at    []any
	}{{p.Namespace, at("namespace")}, {p.CredentialsSecret.Name, at("credentialsSecret", "name")}} {
		if needed.value == "" {
			r.fault("", fmt.Sprintf("%s is missing", fieldPath(needed.at)), needed.at...)
		}
	}
	out := &Pods{
		Namespace: p.Namespace, Selector: r.selector(p.Selector, at("selector")), Port: p.Port, Scheme: cmp.Or(p.Scheme, "https"),
		Secret:      p.CredentialsSecret.Name,
		UsernameKey: cmp.Or(p.CredentialsSecret.UsernameKey, DefaultUsernameKey), PasswordKey: cmp.Or(p.CredentialsSecret.PasswordKey, DefaultPasswordKey),
		CASecret: p.TLS.CASecret, ClientSecret: p.TLS.ClientCertificateSecret, ServerName: p.TLS.ServerName,
		ZoneLabel: cmp.Or(p.ZoneFrom.PodLabel, DefaultZoneLabel), NodeZoneLabel: p.ZoneFrom.NodeLabel,
		Layout: r.layout(p.Directories, at("directories")),
	}
	switch {
	case out.Scheme != "http" && out.Scheme != "https":
		r.fault("use https or http", fmt.Sprintf("there is no scheme %q", p.Scheme), at("scheme")...)
	case out.Scheme == "http" && p.TLS != (pods{}.TLS):
		r.fault("leave out scheme, or use https", "pods have tls, and a scheme without it", at("tls")...)
	}
	if p.Port.StrVal == "" && (p.Port.IntVal < 1 || p.Port.IntVal > 65535) {
		r.fault("name a port of the pods' containers, or use its number", "pods have no usable port", at("port")...)
	}
	if p.ZoneFrom.PodLabel != "" && p.ZoneFrom.NodeLabel != "" {
		r.fault("", "zoneFrom has both podLabel and nodeLabel", at("zoneFrom")...)
	}
	return out
}

// selector refuses one that selects every pod of the namespace.
func (r *reader) selector(s *metav1.LabelSelector, at []any) string {
	if s == nil || len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
		r.fault("such as {matchLabels: {app: haproxy}}", "pods have no selector", at...)
		return ""
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		r.fault("", err.Error(), at...)
		return ""
	}
	return selector.String()
}

func fieldPath(at []any) string {
	words := make([]string, 0, len(at))
	for _, word := range at {
		words = append(words, fmt.Sprint(word))
	}
	return strings.Join(words, ".")
}
