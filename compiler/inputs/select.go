package inputs

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/config/gateways"
	"github.com/hapsnap/hapsnap/compiler/config/kinds"
	"github.com/hapsnap/hapsnap/compiler/diag"
)

// Selector knows which objects a configuration reads. A cluster selects most of them itself. Selecting
// all of them again here gives the same result for files.
type Selector struct {
	builtIn    selection
	others     map[string]selection // by apiVersion/kind
	namespaces map[string]labels.Set
	gateways   gateways.API
}

// selection is what the configuration says about one kind.
type selection struct {
	namespaces        []string // none: all
	namespaceSelector labels.Selector
	labelSelector     labels.Selector
	fieldSelector     fields.Selector
}

// NewSelector returns the Selector of a valid configuration, with these namespaces.
func NewSelector(c config.Config, namespaces []Object[corev1.Namespace]) Selector {
	s := Selector{
		builtIn: newSelection(kinds.Kind{Namespaces: c.Namespaces, NamespaceSelector: c.NamespaceSelector}),
		others:  map[string]selection{}, namespaces: map[string]labels.Set{}, gateways: c.GatewayAPI,
	}
	for _, k := range c.Kinds {
		s.others[k.GVK()] = newSelection(k)
	}
	for _, n := range namespaces {
		s.namespaces[n.Ref.Name] = n.Value.Labels
	}
	return s
}

// newSelection parses selectors. A selector that does not parse selects nothing.
func newSelection(k kinds.Kind) selection {
	out := selection{namespaces: k.Namespaces, namespaceSelector: labels.Nothing(), labelSelector: labels.Nothing(), fieldSelector: fields.Nothing()}
	if s, err := labels.Parse(k.NamespaceSelector); err == nil {
		out.namespaceSelector = s
	}
	if s, err := labels.Parse(k.LabelSelector); err == nil {
		out.labelSelector = s
	}
	if s, err := fields.ParseSelector(k.FieldSelector); err == nil {
		out.fieldSelector = s
	}
	return out
}

// Objects returns the inputs that are read.
func (s Selector) Objects(in Inputs) Inputs {
	in.Ingresses = kept(in.Ingresses, s.inNamespace)
	in.Broken = kept(in.Broken, s.inNamespace)
	in.Services = kept(in.Services, s.inNamespace)
	in.Secrets = kept(in.Secrets, s.inNamespace)
	in.ConfigMaps = kept(in.ConfigMaps, s.inNamespace)
	in.EndpointSlices = kept(in.EndpointSlices, s.inNamespace)
	if s.gateways.Fleet != "" {
		in.Ingresses, in.Broken = nil, nil
	}
	in.Gateway = s.gatewayAPI(in.Gateway).kept(s.inNamespace)
	others := in.Others
	in.Others = nil
	for _, o := range others {
		if s.selects(o.Value) {
			in.Others = append(in.Others, o)
		}
	}
	return in
}

// Diagnostics returns the diagnostics except those about objects in namespaces that nothing is read
// from, and about objects of the Gateway API if none is read. It adds those on what is not read and
// somebody may expect to be.
func (s Selector) Diagnostics(found []diag.Diagnostic, in Inputs) []diag.Diagnostic {
	withGateways := len(s.gatewayAPI(in.Gateway).Classes) > 0
	found = slices.DeleteFunc(slices.Clone(found), func(d diag.Diagnostic) bool {
		return d.Object.Namespace != "" && !s.inNamespace(d.Object) && !s.namedInNamespace(d.Object) || !withGateways && isGatewayAPI(d.Object) ||
			s.gateways.Fleet != "" && d.Object.APIVersion == "" && d.Object.Kind == "Ingress"
	})
	if s.gateways.Enabled {
		return found
	}
	for _, c := range in.Gateway.of(s.gateways.ControllerName).Classes {
		if string(c.Value.Spec.ControllerName) == s.gateways.ControllerName {
			found = append(found, diag.Diagnostic{
				Severity: diag.Warning, Object: c.Ref, Position: c.Position("spec", "controllerName"),
				Message: "Gateways of this class are not compiled, since the configuration does not enable the Gateway API", Hint: "set gatewayAPI.enabled to true in the configuration",
			})
		}
	}
	return diag.Sort(found)
}

// gatewayAPI returns the objects of the Gateway API that are read.
func (s Selector) gatewayAPI(in GatewayAPI) GatewayAPI {
	if !s.gateways.Enabled {
		return GatewayAPI{}
	}
	return in.of(s.gateways.ControllerName)
}

// namedInNamespace reports whether the configuration names the kind of an object,
// and reads it from its namespace.
func (s Selector) namedInNamespace(ref diag.Object) bool {
	of, named := s.others[ref.APIVersion+"/"+ref.Kind]
	return named && s.allows(of, ref.Namespace)
}

// inNamespace reports whether the kinds that are always read are read from the namespace of an object.
func (s Selector) inNamespace(ref diag.Object) bool { return s.allows(s.builtIn, ref.Namespace) }

// Reads reports whether the kinds that are always read are read from a namespace.
func (s Selector) Reads(namespace string) bool { return s.allows(s.builtIn, namespace) }

// allows reports whether a namespace is selected. An object without a namespace is selected if the
// configuration does not limit namespaces.
func (s Selector) allows(by selection, namespace string) bool {
	all := len(by.namespaces) == 0 && by.namespaceSelector.Empty()
	if all || namespace == "" {
		return all
	}
	return (len(by.namespaces) == 0 || slices.Contains(by.namespaces, namespace)) && by.namespaceSelector.Matches(s.labelsOf(namespace))
}

// labelsOf returns the labels of a namespace. Its name is always one of them, as in the API server.
func (s Selector) labelsOf(namespace string) labels.Set {
	return labels.Merge(s.namespaces[namespace], labels.Set{corev1.LabelMetadataName: namespace})
}

// selects reports whether an object of a kind that the configuration names is read.
func (s Selector) selects(u *unstructured.Unstructured) bool {
	of, named := s.others[u.GetAPIVersion()+"/"+u.GetKind()]
	return named && s.allows(of, u.GetNamespace()) && of.labelSelector.Matches(labels.Set(u.GetLabels())) && of.fieldSelector.Matches(contentFields(u.Object))
}

func kept[T any](objects []Object[T], keep func(diag.Object) bool) []Object[T] {
	return slices.DeleteFunc(slices.Clone(objects), func(o Object[T]) bool { return !keep(o.Ref) })
}
