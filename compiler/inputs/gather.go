package inputs

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/config/gateways"
	"github.com/hapsnap/hapsnap/compiler/config/kinds"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/internal/manifests"
)

// Gather decodes the objects that the compiler reads. It reports those that break their schema and
// leaves them out, except for [Inputs].Broken. Kinds are the kinds whose content is wanted. Ignored
// counts the objects of other kinds.
func Gather(set manifests.Set, kinds ...kinds.Kind) (in Inputs, found []diag.Diagnostic, ignored map[manifests.GVK]int) {
	return new(Gatherer).Gather(set, kinds...)
}

// Gatherer gathers repeatedly, and decodes only the objects that a [manifests.Reader] read anew. The zero Gatherer is
// ready for use. It is not for concurrent use.
type Gatherer struct {
	kinds   []kinds.Kind
	decoded map[identity]any // the values without faults
}

// identity is what a value was decoded from. If an object moves in its file, its value is a new one: a memory of what was
// made of a value may contain positions.
type identity struct {
	object  any
	at      manifests.Position
	content bool // whether its content was decoded, or a type
}

func identityOf(o manifests.Object, content bool) identity {
	return identity{o.Identity(), o.Position(), content}
}

// Gather gathers like the function [Gather], on all processors.
func (x *Gatherer) Gather(set manifests.Set, kinds ...kinds.Kind) (in Inputs, found []diag.Diagnostic, ignored map[manifests.GVK]int) {
	if !reflect.DeepEqual(x.kinds, kinds) { // other fields may be dropped
		x.kinds, x.decoded = kinds, nil
	}
	for _, p := range set.Problems {
		d := diag.Diagnostic{Severity: diag.Error, Position: inFile(p.Position), Message: p.Message, Hint: p.Hint}
		if p.Kind != "" && p.Name != "" {
			d.Object = diag.Object{Kind: p.Kind, Namespace: p.Namespace, Name: p.Name}
		}
		found = append(found, d)
	}
	known := newKnowledge(set, kinds, x.decoded)
	// The parts are read in parallel. Joined in their order, they give what one part of all objects gives.
	var parts []*part
	var workers errgroup.Group
	workers.SetLimit(runtime.GOMAXPROCS(0))
	for objects := range slices.Chunk(set.Objects, objectsInPart) {
		p := &part{knowledge: known, ignored: map[manifests.GVK]int{}, decoded: make(map[identity]any, len(objects))}
		parts = append(parts, p)
		workers.Go(func() error {
			p.read(objects)
			return nil
		})
	}
	_ = workers.Wait() // gathering has no errors, only findings
	ignored, x.decoded = map[manifests.GVK]int{}, make(map[identity]any, len(set.Objects))
	for _, p := range parts {
		in = in.and(p.in)
		found = append(found, p.found...)
		maps.Copy(x.decoded, p.decoded)
		for kind, n := range p.ignored {
			ignored[kind] += n
		}
	}
	return in, diag.Sort(found), ignored
}

// objectsInPart is how many objects one processor reads before it takes more. With fewer, joining the parts takes time;
// with more, processors wait for each other at the end.
const objectsInPart = 512

// part is a part of the objects, and what was read from it.
type part struct {
	*knowledge
	in      Inputs
	found   []diag.Diagnostic
	ignored map[manifests.GVK]int
	decoded map[identity]any
}

// read reads objects into the part.
func (p *part) read(objects []manifests.Object) {
	for _, o := range objects {
		// The content of an object that breaks its schema is left out too.
		before := len(p.found)
		switch read := p.typed(o); {
		case read && len(p.found) == before:
			p.other(o)
		case !read && !p.other(o):
			// An object of another kind is counted. It is reported if its author probably expects it to be read.
			if version := servedVersion(o.GVK()); version != "" {
				p.report(o, inFile(o.Position("apiVersion")), fmt.Sprintf("apiVersion %q is not served by clusters any more", o.APIVersion), "use "+version)
				continue
			}
			p.ignored[o.GVK()]++
		}
	}
}

// knowledge is what all parts of a set share, and none changes.
type knowledge struct {
	before     map[identity]any // what was decoded the last time
	kinds      []kinds.Kind
	trimmers   map[manifests.GVK]func(map[string]any)
	namespaced map[groupKind]bool
}

// newKnowledge collects what has to be known about the kinds that the configuration names.
func newKnowledge(set manifests.Set, kinds []kinds.Kind, before map[identity]any) *knowledge {
	k := &knowledge{before: before, kinds: kinds, trimmers: map[manifests.GVK]func(map[string]any){}, namespaced: map[groupKind]bool{}}
	if len(kinds) == 0 {
		return k
	}
	for _, o := range set.Objects {
		if o.GVK() != (manifests.GVK{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"}) {
			continue
		}
		var crd struct {
			Spec struct {
				Group string `json:"group"`
				Scope string `json:"scope"`
				Names struct {
					Kind string `json:"kind"`
				} `json:"names"`
			} `json:"spec"`
		}
		o.Decode(&crd) // its faults are not for this compiler to report
		if crd.Spec.Scope == "Namespaced" {
			k.namespaced[groupKind{crd.Spec.Group, crd.Spec.Names.Kind}] = true
		}
	}
	for _, kind := range kinds {
		k.trimmers[manifests.GVK{APIVersion: kind.APIVersion, Kind: kind.Kind}] = Trimmer(kind)
	}
	return k
}

// typed adds an object of a kind that is always read, and reports whether it is one.
func (p *part) typed(o manifests.Object) bool {
	switch o.GVK() {
	case manifests.GVK{APIVersion: "networking.k8s.io/v1", Kind: "Ingress"}:
		ing, sound := decode[networkingv1.Ingress](p, o, validation.IsDNS1123Subdomain)
		if sound {
			p.in.Ingresses = append(p.in.Ingresses, ing)
		} else {
			p.in.Broken = append(p.in.Broken, ing)
		}
	case manifests.GVK{APIVersion: "networking.k8s.io/v1", Kind: "IngressClass"}:
		p.in.Classes = appendSound(p, p.in.Classes, o, validation.IsDNS1123Subdomain)
	case manifests.GVK{APIVersion: "v1", Kind: "Service"}:
		p.in.Services = appendSound(p, p.in.Services, o, validation.IsDNS1123Label)
	case manifests.GVK{APIVersion: "v1", Kind: "Secret"}:
		p.in.Secrets = appendSound(p, p.in.Secrets, o, validation.IsDNS1123Subdomain)
	case manifests.GVK{APIVersion: "v1", Kind: "ConfigMap"}:
		p.in.ConfigMaps = appendSound(p, p.in.ConfigMaps, o, validation.IsDNS1123Subdomain)
	case manifests.GVK{APIVersion: "v1", Kind: "Namespace"}:
		p.in.Namespaces = appendSound(p, p.in.Namespaces, o, validation.IsDNS1123Label)
	case manifests.GVK{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}:
		p.in.EndpointSlices = appendSound(p, p.in.EndpointSlices, o, validation.IsDNS1123Subdomain)
	default:
		return p.gatewayAPI(o)
	}
	return true
}

// inFile is a place in a manifest.
func inFile(p manifests.Position) diag.Position {
	return diag.Position{File: p.File, Line: p.Line, Column: p.Column}
}

// appendSound appends the object to a list if it is sound.
func appendSound[T any](p *part, list []Object[T], o manifests.Object, checkName func(string) []string) []Object[T] {
	if object, sound := decode[T](p, o, checkName); sound {
		return append(list, object)
	}
	return list
}

// decode returns the object, and whether it fits its schema and has a name that the API server accepts. If not, the object
// holds what could be read.
func decode[T any](p *part, o manifests.Object, checkName func(string) []string) (object Object[T], sound bool) {
	at := func(path ...any) diag.Position { return inFile(o.Position(path...)) }
	value, known := p.before[identityOf(o, false)].(*T)
	if !known {
		value = new(T)
		sound = p.fits(o, append(o.Decode(value), faultsOf(o, value)...), checkName)
		complete(value, o.Namespace)
	}
	if known || sound {
		p.decoded[identityOf(o, false)] = value
	}
	return Object[T]{Ref: ref(o), Value: value, At: at}, known || sound
}

// fits reports the faults of an object, and returns whether it has none.
func (p *part) fits(o manifests.Object, errs []manifests.FieldError, checkName func(string) []string) bool {
	before := len(p.found)
	for _, e := range errs {
		p.report(o, inFile(e.Position), e.Error(), e.Hint)
	}
	for _, message := range checkName(o.Name) {
		p.report(o, inFile(o.Position("metadata", "name")), fmt.Sprintf("name %q: %s", o.Name, withoutRegex(message)), "")
	}
	if o.Namespace != "" {
		for _, message := range validation.IsDNS1123Label(o.Namespace) {
			p.report(o, inFile(o.Position("metadata", "namespace")), fmt.Sprintf("namespace %q: %s", o.Namespace, withoutRegex(message)), "")
		}
	}
	return len(p.found) == before
}

// complete does what the API server does with a new object: it has the default
// namespace, and a Secret's plain values are data.
func complete(value any, namespace string) {
	if m, ok := value.(metav1.Object); ok {
		m.SetNamespace(namespace)
	}
	if s, ok := value.(*corev1.Secret); ok {
		// stringData is written over data, as the API server does.
		if len(s.StringData) > 0 && s.Data == nil {
			s.Data = make(map[string][]byte, len(s.StringData))
		}
		for key, value := range s.StringData {
			s.Data[key] = []byte(value)
		}
		s.StringData = nil
	}
}

// withoutRegex cuts the regular expression off a validation message.
func withoutRegex(message string) string {
	message, _, _ = strings.Cut(message, " (e.g.")
	return message
}

// report adds an error on an object.
func (p *part) report(o manifests.Object, at diag.Position, message, hint string) {
	p.found = append(p.found, diag.Diagnostic{Severity: diag.Error, Position: at, Object: ref(o), Message: message, Hint: hint})
}

func ref(o manifests.Object) diag.Object {
	return RefOf(o.APIVersion, o.Kind, o.Namespace, o.Name)
}

// servedVersion returns the apiVersion to use instead, if the compiler reads the kind in another version; otherwise "".
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

// ErrIncomplete means that not all objects are known yet, so that findings may be missing.
var ErrIncomplete = errors.New("not all objects are known yet")

// Gathered is what was read for one compile.
type Gathered struct {
	Objects Inputs
	Found   []diag.Diagnostic // when the objects were read
	Ignored string            // how many objects of which kinds are not read, for people
}

// builtIn are the kinds that the compiler always reads.
var builtIn = []manifests.GVK{
	{APIVersion: "v1", Kind: "ConfigMap"}, {APIVersion: "v1", Kind: "Namespace"}, {APIVersion: "v1", Kind: "Secret"}, {APIVersion: "v1", Kind: "Service"},
	{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
	{APIVersion: "networking.k8s.io/v1", Kind: "Ingress"}, {APIVersion: "networking.k8s.io/v1", Kind: "IngressClass"},
}

// RefOf names an object. For kinds that only the configuration names, the apiVersion is a part of the
// name: there may be several kinds of one name.
func RefOf(apiVersion, kind, namespace, name string) diag.Object {
	group, _, _ := strings.Cut(apiVersion, "/")
	_, ofGateways := GatewayKindOf(kind)
	if slices.Contains(builtIn, manifests.GVK{APIVersion: apiVersion, Kind: kind}) || group == gatewayGroup && ofGateways {
		apiVersion = ""
	}
	return diag.Object{APIVersion: apiVersion, Kind: kind, Namespace: namespace, Name: name}
}

// Other returns an object of a cluster as one of [Inputs].Others. Its content
// must have been trimmed, with a [Trimmer] of its kind, and must not be changed.
func Other(u *unstructured.Unstructured) Object[unstructured.Unstructured] {
	return Object[unstructured.Unstructured]{Ref: RefOf(u.GetAPIVersion(), u.GetKind(), u.GetNamespace(), u.GetName()), Value: u}
}

// kindOf returns what the configuration says of a kind, and whether it names it.
func kindOf(list []kinds.Kind, apiVersion, kind string) (kinds.Kind, bool) {
	i := slices.IndexFunc(list, func(k kinds.Kind) bool { return k.APIVersion == apiVersion && k.Kind == kind })
	if i < 0 {
		return kinds.Kind{}, false
	}
	return list[i], true
}

// other adds the content of an object, if the configuration names its kind, and reports whether it
// does.
func (p *part) other(o manifests.Object) bool {
	if _, named := kindOf(p.kinds, o.APIVersion, o.Kind); !named {
		return false
	}
	if o.Namespace == "" && p.namespaced[groupKindOf(o.APIVersion, o.Kind)] {
		o.Namespace = "default"
	}
	key := identityOf(o, true)
	u, known := p.before[key].(*unstructured.Unstructured)
	if !known {
		u = &unstructured.Unstructured{}
		if !p.fits(o, o.Decode(&u.Object), validation.IsDNS1123Subdomain) {
			return true
		}
		p.trimmers[o.GVK()](u.Object)
		u.SetAPIVersion(o.APIVersion) // as in a List of some kind, whose items may leave them out
		u.SetKind(o.Kind)
		if o.Namespace != "" {
			u.SetNamespace(o.Namespace)
		}
	}
	p.decoded[key] = u
	at := func(path ...any) diag.Position { return inFile(o.Position(path...)) }
	p.in.Others = append(p.in.Others, Object[unstructured.Unstructured]{Ref: ref(o), Value: u, At: at})
	return true
}

// groupKind is a kind in any version.
type groupKind struct{ group, kind string }

func groupKindOf(apiVersion, kind string) groupKind {
	group, _, ok := strings.Cut(apiVersion, "/")
	if !ok {
		group = ""
	}
	return groupKind{group, kind}
}

// faultsOf returns what the API server would refuse in a value that fits its schema. It checks the ports of Services,
// since they get into the configuration. Package ingress checks Ingresses.
func faultsOf(o manifests.Object, value any) (faults []manifests.FieldError) {
	service, ok := value.(*corev1.Service)
	if !ok {
		return nil
	}
	names := map[string]bool{}
	for i, port := range service.Spec.Ports {
		fault := func(field, message, hint string) {
			faults = append(faults, manifests.FieldError{
				Path: fmt.Sprintf("spec.ports[%d].%s", i, field), Position: o.Position("spec", "ports", i, field),
				Message: message, Hint: hint,
			})
		}
		switch {
		case port.Name == "" && len(service.Spec.Ports) > 1:
			fault("name", "is missing", "each of several ports needs a name")
		case names[port.Name]:
			fault("name", fmt.Sprintf("%q is given twice", port.Name), "give each port its own name")
		case port.Name != "":
			for _, message := range validation.IsDNS1123Label(port.Name) {
				fault("name", fmt.Sprintf("%q is not valid: %s", port.Name, withoutRegex(message)), "")
			}
		}
		names[port.Name] = true
		if len(validation.IsValidPortNum(int(port.Port))) > 0 {
			fault("port", fmt.Sprintf("%d is out of range", port.Port), "use 1 to 65535")
		}
	}
	return faults
}

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

// Diagnostics returns the diagnostics, except those about objects in namespaces that are not read, and about objects of the
// Gateway API if it is not read. It adds warnings about objects that are not read although somebody may expect it.
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

// kept returns those objects that are to be kept. It copies the list only if something is left out of it.
func kept[T any](objects []Object[T], keep func(diag.Object) bool) []Object[T] {
	if !slices.ContainsFunc(objects, func(o Object[T]) bool { return !keep(o.Ref) }) {
		return slices.Clip(objects) // what is appended is not the caller's
	}
	return slices.DeleteFunc(slices.Clone(objects), func(o Object[T]) bool { return !keep(o.Ref) })
}
