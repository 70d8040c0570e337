package inputs

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/internal/manifests"
)

// Gather decodes the objects that the compiler reads. Those that break their
// schema are reported and left out. Ignored counts the objects of other kinds.
func Gather(set manifests.Set) (in Inputs, found []diag.Diagnostic, ignored map[manifests.GVK]int) {
	g := gatherer{ignored: map[manifests.GVK]int{}}
	for _, p := range set.Problems {
		g.problem(p)
	}
	for _, o := range set.Objects {
		g.object(o)
	}
	return g.in, diag.Sort(g.found), g.ignored
}

type gatherer struct {
	in      Inputs
	found   []diag.Diagnostic
	ignored map[manifests.GVK]int
}

// problem reports what is no object.
func (g *gatherer) problem(p manifests.Problem) {
	d := diag.Diagnostic{Severity: diag.Error, Position: diag.Position(p.Position), Message: p.Message, Hint: p.Hint}
	if p.Kind != "" && p.Name != "" {
		d.Object = diag.Object{Kind: p.Kind, Namespace: p.Namespace, Name: p.Name}
	}
	g.found = append(g.found, d)
}

// object takes an object in, counts it, or reports it.
func (g *gatherer) object(o manifests.Object) {
	switch gvk := o.GVK(); gvk {
	case manifests.GVK{APIVersion: "networking.k8s.io/v1", Kind: "Ingress"}:
		g.in.Ingresses = decode(g, g.in.Ingresses, o, validation.IsDNS1123Subdomain)
	case manifests.GVK{APIVersion: "networking.k8s.io/v1", Kind: "IngressClass"}:
		g.in.Classes = decode(g, g.in.Classes, o, validation.IsDNS1123Subdomain)
	case manifests.GVK{APIVersion: "v1", Kind: "Service"}:
		g.in.Services = decode(g, g.in.Services, o, validation.IsDNS1123Label)
	case manifests.GVK{APIVersion: "v1", Kind: "Secret"}:
		before := len(g.in.Secrets)
		g.in.Secrets = decode(g, g.in.Secrets, o, validation.IsDNS1123Subdomain)
		for _, added := range g.in.Secrets[before:] {
			mergeStringData(added.Value)
		}
	case manifests.GVK{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}:
		g.in.EndpointSlices = decode(g, g.in.EndpointSlices, o, validation.IsDNS1123Subdomain)
	default:
		if version := servedVersion(gvk); version != "" {
			g.report(o, diag.Position(o.Position("apiVersion")), fmt.Sprintf("apiVersion %q is not one that clusters still serve", o.APIVersion), "use "+version)
			return
		}
		g.ignored[gvk]++
	}
}

// decode appends the object to a list if it keeps to its schema and is named
// as the API server would let it be.
func decode[T any](g *gatherer, list []Object[T], o manifests.Object, checkName func(string) []string) []Object[T] {
	at := func(path ...any) diag.Position { return diag.Position(o.Position(path...)) }
	value, ok := new(T), true
	for _, e := range o.Decode(value) {
		g.report(o, diag.Position(e.Position), e.Error(), e.Hint)
		ok = false
	}
	for _, message := range checkName(o.Name) {
		g.report(o, at("metadata", "name"), fmt.Sprintf("name %q: %s", o.Name, withoutRegex(message)), "")
		ok = false
	}
	if o.Namespace != "" {
		for _, message := range validation.IsDNS1123Label(o.Namespace) {
			g.report(o, at("metadata", "namespace"), fmt.Sprintf("namespace %q: %s", o.Namespace, withoutRegex(message)), "")
			ok = false
		}
	}
	if !ok {
		return list
	}
	if m, isObject := any(value).(metav1.Object); isObject {
		m.SetNamespace(o.Namespace) // "default" where the manifest leaves it out
	}
	return append(list, Object[T]{Ref: ref(o), Value: value, At: at})
}

// withoutRegex cuts the regular expression off a validation message.
func withoutRegex(message string) string {
	message, _, _ = strings.Cut(message, " (e.g.")
	return message
}

// report adds an error on an object.
func (g *gatherer) report(o manifests.Object, at diag.Position, message, hint string) {
	g.found = append(g.found, diag.Diagnostic{Severity: diag.Error, Position: at, Object: ref(o), Message: message, Hint: hint})
}

func ref(o manifests.Object) diag.Object {
	return diag.Object{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name}
}

// mergeStringData does what the API server does with the plain form of a
// Secret's values.
func mergeStringData(s *corev1.Secret) {
	if len(s.StringData) > 0 && s.Data == nil {
		s.Data = make(map[string][]byte, len(s.StringData))
	}
	for key, value := range s.StringData {
		s.Data[key] = []byte(value)
	}
	s.StringData = nil
}

// servedVersion returns the apiVersion to use instead, for a kind that the
// compiler reads in a version that it does not; "" for any other kind.
func servedVersion(g manifests.GVK) string {
	group, _, _ := strings.Cut(g.APIVersion, "/")
	switch {
	case (group == "networking.k8s.io" || group == "extensions") && (g.Kind == "Ingress" || g.Kind == "IngressClass"):
		return networkingv1.SchemeGroupVersion.String()
	case group == "discovery.k8s.io" && g.Kind == "EndpointSlice":
		return discoveryv1.SchemeGroupVersion.String()
	}
	return ""
}
