package inputs

import (
	"iter"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/pkg/consts"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/internal/manifests"
	"github.com/hapsnap/hapsnap/snapshots"
)

// GatewayAPI are the objects of the group gateway.networking.k8s.io, in any order. What its
// schema has defaults for may be missing, as in a manifest.
type GatewayAPI struct {
	Classes    []Object[gatewayv1.GatewayClass]
	Gateways   []Object[gatewayv1.Gateway]
	Sets       []Object[gatewayv1.ListenerSet]
	HTTPRoutes []Object[gatewayv1.HTTPRoute]
	GRPCRoutes []Object[gatewayv1.GRPCRoute]
	TLSRoutes  []Object[gatewayv1.TLSRoute]
	TCPRoutes  []Object[gatewayv1.TCPRoute]
	UDPRoutes  []Object[gatewayv1.UDPRoute]
	Grants     []Object[gatewayv1.ReferenceGrant]
	Policies   []Object[gatewayv1.BackendTLSPolicy]
	// Definitions say of which version and channel the kinds are.
	Definitions []Object[Definition]
}

// of returns the objects if a class is that of a controller. If none is, they are all somebody else's.
func (in GatewayAPI) of(controller string) GatewayAPI {
	if slices.ContainsFunc(in.Classes, func(c Object[gatewayv1.GatewayClass]) bool { return string(c.Value.Spec.ControllerName) == controller }) {
		return in
	}
	return GatewayAPI{}
}

// isGatewayAPI reports whether an object is one of the Gateway API.
func isGatewayAPI(o diag.Object) bool {
	_, is := GatewayKindOf(o.Kind)
	return o.APIVersion == "" && is
}

const (
	// gatewayGroup is the group of the Gateway API.
	gatewayGroup = "gateway.networking.k8s.io"
	// GatewayVersion is the apiVersion of its objects as a cluster is asked for them. The fields of
	// v1beta1 are the same.
	GatewayVersion = gatewayGroup + "/v1"
	// ControllerAnnotation is on the Services that compilers make for Gateways.
	ControllerAnnotation = "gateway.hapsnap.dev/controller"
)

// WithoutStatus takes the status out of an object of one of the kinds, and reports whether it is one. No
// compile looks at it, and it is for us to write.
func WithoutStatus(object any) bool {
	for _, k := range gatewayKinds {
		if !k.objects.has(object) {
			continue
		}
		if k.Status {
			reflect.ValueOf(object).Elem().FieldByName("Status").SetZero()
		}
		return true
	}
	return false
}

// Add adds an object that a cluster has, if it is of one of the kinds.
func (in *GatewayAPI) Add(object metav1.Object) {
	if d, is := object.(*Definition); is {
		in.Definitions = append(in.Definitions, Object[Definition]{Ref: RefOf(DefinitionVersion, DefinitionKind, "", d.Name), Value: d})
		return
	}
	for _, k := range gatewayKinds {
		if k.objects.add(in, k.Name, object) {
			return
		}
	}
}

// gatewayAPI adds an object of the Gateway API, and reports whether it is one.
func (p *part) gatewayAPI(o manifests.Object) bool {
	if o.APIVersion == DefinitionVersion && o.Kind == DefinitionKind {
		if !slices.Contains(GatewayDefinitions(), o.Name) {
			return false
		}
		d, known := p.before[identityOf(o, false)].(*Definition)
		if !known {
			d = &Definition{}
			_ = o.Decode(d) // its faults are not for this compiler to report
			d.Strip()
		}
		p.decoded[identityOf(o, false)] = d
		p.in.Gateway.Definitions = append(p.in.Gateway.Definitions, Object[Definition]{Ref: ref(o), Value: d})
		return true
	}
	if group, _, _ := strings.Cut(o.APIVersion, "/"); group == gatewayGroup && o.Kind == policyKind {
		// A BackendTLSPolicy that cannot be read loses its validation. Its servers then get no requests at all, instead of
		// unencrypted ones.
		var policy Object[gatewayv1.BackendTLSPolicy]
		sound := false
		if o.APIVersion == GatewayVersion {
			policy, sound = decode[gatewayv1.BackendTLSPolicy](p, o, validation.IsDNS1123Subdomain)
		} else {
			p.report(o, inFile(o.Position("apiVersion")), "a BackendTLSPolicy of "+o.APIVersion+" is not read, and nothing is sent to the servers that it is for", "write it as "+GatewayVersion)
			policy.Ref, policy.Value = RefOf(GatewayVersion, policyKind, o.Namespace, o.Name), &gatewayv1.BackendTLSPolicy{}
			_ = o.Decode(policy.Value) // what can be read says which servers
			complete(policy.Value, o.Namespace)
		}
		if !sound {
			policy.Value.Spec.Validation = gatewayv1.BackendTLSPolicyValidation{}
		}
		p.in.Gateway.Policies = append(p.in.Gateway.Policies, policy)
		return true
	}
	if o.APIVersion != GatewayVersion && o.APIVersion != gatewayGroup+"/v1beta1" {
		return false
	}
	kind, is := GatewayKindOf(o.Kind)
	if is {
		kind.objects.read(p, o)
	}
	return is
}

func (in GatewayAPI) without(out map[diag.Object]bool) GatewayAPI {
	for _, k := range gatewayKinds {
		k.objects.filter(&in, func(o diag.Object) bool { return !out[o] })
	}
	return in
}

// and returns the objects followed by more, which it may share memory with.
func (in GatewayAPI) and(more GatewayAPI) GatewayAPI {
	for _, k := range gatewayKinds {
		k.objects.join(&in, &more)
	}
	in.Definitions = append(in.Definitions, more.Definitions...)
	return in
}

func (in GatewayAPI) record(out []snapshots.Input) []snapshots.Input {
	for _, k := range gatewayKinds {
		out = k.objects.record(&in, out)
	}
	return out
}

// kept returns the objects in namespaces that are read. A GatewayClass is in none, and always read.
func (in GatewayAPI) kept(keep func(diag.Object) bool) GatewayAPI {
	for _, k := range gatewayKinds {
		if !k.EveryNamespace {
			k.objects.filter(&in, keep)
		}
	}
	return in
}

// Around returns the objects that may affect the findings on one object. From other namespaces it includes the routes that
// may have one of its hosts: all routes if the object is a route without hosts, and none if it is no route.
func (in GatewayAPI) Around(ref diag.Object, object metav1.Object) GatewayAPI {
	hosts, isRoute := hostnamesOf(object)
	matters := func(route diag.Object, own []gatewayv1.Hostname) bool {
		return route.Namespace == ref.Namespace || isRoute && (len(hosts) == 0 || len(own) == 0 || slices.ContainsFunc(own, func(a gatewayv1.Hostname) bool {
			return slices.ContainsFunc(hosts, func(b gatewayv1.Hostname) bool { return overlap(string(a), string(b)) })
		}))
	}
	in.HTTPRoutes = routesThat(matters, in.HTTPRoutes)
	in.GRPCRoutes = routesThat(matters, in.GRPCRoutes)
	in.TLSRoutes = routesThat(matters, in.TLSRoutes)
	return in
}

// hostnamesOf returns the hostnames of a route, and whether the object is one.
func hostnamesOf(object metav1.Object) (hosts []gatewayv1.Hostname, isRoute bool) {
	switch o := object.(type) {
	case *gatewayv1.HTTPRoute:
		return o.Spec.Hostnames, true
	case *gatewayv1.GRPCRoute:
		return o.Spec.Hostnames, true
	case *gatewayv1.TLSRoute:
		return o.Spec.Hostnames, true
	case *gatewayv1.TCPRoute, *gatewayv1.UDPRoute:
		return nil, true
	}
	return nil, false
}

// Hostnames returns those of all routes.
func (in GatewayAPI) Hostnames() map[diag.Object][]gatewayv1.Hostname {
	out := map[diag.Object][]gatewayv1.Hostname{}
	for _, o := range in.Each() {
		if hosts, isRoute := hostnamesOf(o.Value); isRoute {
			out[o.Ref] = hosts
		}
	}
	return out
}

func routesThat[T any, P metaObject[T]](matter func(diag.Object, []gatewayv1.Hostname) bool, routes []Object[T]) []Object[T] {
	return slices.DeleteFunc(slices.Clone(routes), func(r Object[T]) bool {
		hosts, _ := hostnamesOf(P(r.Value))
		return !matter(r.Ref, hosts)
	})
}

// overlap reports whether a request may be for two hostnames, of which each may be a wildcard.
func overlap(a, b string) bool {
	a, b = strings.TrimPrefix(strings.ToLower(a), "*"), strings.TrimPrefix(strings.ToLower(b), "*")
	return a == b || strings.HasPrefix(a, ".") && strings.HasSuffix(b, a) || strings.HasPrefix(b, ".") && strings.HasSuffix(a, b)
}

// Count returns how many objects there are.
func (in GatewayAPI) Count() int {
	n := 0
	for _, k := range gatewayKinds {
		n += k.objects.count(&in)
	}
	return n
}

func (in GatewayAPI) ageless() GatewayAPI {
	for _, k := range gatewayKinds {
		k.objects.ageless(&in)
	}
	return in
}

// GatewayKind is a kind of the Gateway API that is read, in the version [GatewayVersion]. [GatewayKinds] returns all of
// them.
type GatewayKind struct {
	// Name is the kind, and Resource its name in URLs of an API server, and in roles.
	Name, Resource string
	// EveryNamespace says that its objects are in no namespace.
	EveryNamespace bool
	// Read says that templates may read its objects, and that one may be left out for what HAProxy refuses. A policy is
	// not: without it, servers would be spoken to in the clear.
	Read bool
	// Judged says that the admission webhook judges its objects.
	Judged bool
	// Status says that its objects have one, which is for us to write.
	Status bool

	objects gatewayObjects
}

// gatewayKinds are all of them, in the order in which people read them.
var gatewayKinds = []GatewayKind{
	{"GatewayClass", "gatewayclasses", true, false, false, true, listed(func(in *GatewayAPI) *[]Object[gatewayv1.GatewayClass] { return &in.Classes })},
	{"Gateway", "gateways", false, true, true, true, listed(func(in *GatewayAPI) *[]Object[gatewayv1.Gateway] { return &in.Gateways })},
	{"ListenerSet", "listenersets", false, true, true, true, listed(func(in *GatewayAPI) *[]Object[gatewayv1.ListenerSet] { return &in.Sets })},
	{"HTTPRoute", "httproutes", false, true, true, true, listed(func(in *GatewayAPI) *[]Object[gatewayv1.HTTPRoute] { return &in.HTTPRoutes })},
	{"GRPCRoute", "grpcroutes", false, true, true, true, listed(func(in *GatewayAPI) *[]Object[gatewayv1.GRPCRoute] { return &in.GRPCRoutes })},
	{"TLSRoute", "tlsroutes", false, true, true, true, listed(func(in *GatewayAPI) *[]Object[gatewayv1.TLSRoute] { return &in.TLSRoutes })},
	{"TCPRoute", "tcproutes", false, true, true, true, listed(func(in *GatewayAPI) *[]Object[gatewayv1.TCPRoute] { return &in.TCPRoutes })},
	{"UDPRoute", "udproutes", false, false, false, true, listed(func(in *GatewayAPI) *[]Object[gatewayv1.UDPRoute] { return &in.UDPRoutes })},
	{"ReferenceGrant", "referencegrants", false, false, false, false, listed(func(in *GatewayAPI) *[]Object[gatewayv1.ReferenceGrant] { return &in.Grants })},
	{policyKind, "backendtlspolicies", false, false, true, true, listed(func(in *GatewayAPI) *[]Object[gatewayv1.BackendTLSPolicy] { return &in.Policies })},
}

const policyKind = "BackendTLSPolicy"

// GatewayKinds returns the kinds of the Gateway API that are read.
func GatewayKinds() []GatewayKind { return slices.Clone(gatewayKinds) }

// New returns a new object of the kind.
func (k GatewayKind) New() metav1.Object { return k.objects.fresh() }

// IsRoute reports whether its objects are routes.
func (k GatewayKind) IsRoute() bool { return strings.HasSuffix(k.Name, "Route") }

// Definition returns the name of the CustomResourceDefinition of the kind.
func (k GatewayKind) Definition() string { return k.Resource + "." + gatewayGroup }

// GatewayKindOf returns the kind of the Gateway API that has a name, and whether it is read.
func GatewayKindOf(name string) (GatewayKind, bool) {
	i := slices.IndexFunc(gatewayKinds, func(k GatewayKind) bool { return k.Name == name })
	if i < 0 {
		return GatewayKind{}, false
	}
	return gatewayKinds[i], true
}

// GatewayObject is an object of any kind of the Gateway API, as an [Object] is.
type GatewayObject struct {
	Ref   diag.Object
	Value metav1.Object
	At    func(path ...any) diag.Position
}

// Position is that of an [Object].
func (o GatewayObject) Position(path ...any) diag.Position {
	return Object[struct{}]{At: o.At}.Position(path...)
}

// Each returns the objects of the Gateway API with their kinds: kind by kind.
func (in GatewayAPI) Each() iter.Seq2[GatewayKind, GatewayObject] {
	return func(yield func(GatewayKind, GatewayObject) bool) {
		for _, kind := range gatewayKinds {
			for o := range kind.objects.each(&in) {
				if !yield(kind, o) {
					return
				}
			}
		}
	}
}

// gatewayObjects are the objects of one kind.
type gatewayObjects struct {
	fresh func() metav1.Object
	each  func(*GatewayAPI) iter.Seq[GatewayObject]
	count func(*GatewayAPI) int
	// has reports whether an object is of the kind.
	has func(any) bool
	// add adds an object that a cluster has, if it is of the kind.
	add func(in *GatewayAPI, kind string, o metav1.Object) bool
	// read adds an object of a file to a part.
	read func(*part, manifests.Object)
	// join adds the objects of another list.
	join    func(in, more *GatewayAPI)
	filter  func(in *GatewayAPI, keep func(diag.Object) bool)
	ageless func(*GatewayAPI)
	record  func(*GatewayAPI, []snapshots.Input) []snapshots.Input
}

// metaObject is a pointer to a type of the Gateway API.
type metaObject[T any] interface {
	*T
	metav1.Object
}

// list returns the list with the objects of a type.
type list[T any, P metaObject[T]] func(*GatewayAPI) *[]Object[T]

// listed returns the operations on a list.
func listed[T any, P metaObject[T]](in func(*GatewayAPI) *[]Object[T]) gatewayObjects {
	l := list[T, P](in)
	return gatewayObjects{l.fresh, l.each, l.count, l.has, l.add, l.read, l.join, l.filter, l.ageless, l.record}
}

func (l list[T, P]) fresh() metav1.Object { return P(new(T)) }

func (l list[T, P]) each(in *GatewayAPI) iter.Seq[GatewayObject] {
	return func(yield func(GatewayObject) bool) {
		for _, o := range *l(in) {
			if !yield(GatewayObject{Ref: o.Ref, Value: P(o.Value), At: o.At}) {
				return
			}
		}
	}
}

func (l list[T, P]) count(in *GatewayAPI) int { return len(*l(in)) }

func (l list[T, P]) has(o any) bool {
	_, is := o.(P)
	return is
}

func (l list[T, P]) add(in *GatewayAPI, kind string, o metav1.Object) bool {
	value, is := o.(P)
	if is {
		all := l(in)
		*all = append(*all, Object[T]{Ref: RefOf(GatewayVersion, kind, o.GetNamespace(), o.GetName()), Value: value})
	}
	return is
}

func (l list[T, P]) read(p *part, o manifests.Object) {
	all := l(&p.in.Gateway)
	*all = appendSound(p, *all, o, validation.IsDNS1123Subdomain)
}

func (l list[T, P]) join(in, more *GatewayAPI) {
	all := l(in)
	*all = append(*all, *l(more)...)
}

// filter makes a new list: others have the old one.
func (l list[T, P]) filter(in *GatewayAPI, keep func(diag.Object) bool) {
	all := l(in)
	*all = kept(*all, keep)
}

func (l list[T, P]) ageless(in *GatewayAPI) {
	all := l(in)
	*all = ageless[T, P](*all)
}

func (l list[T, P]) record(in *GatewayAPI, out []snapshots.Input) []snapshots.Input {
	return record(out, GatewayVersion, *l(in))
}

// DefinitionVersion and DefinitionKind are those of the objects that define the kinds of a cluster's Gateway API.
const (
	DefinitionVersion = "apiextensions.k8s.io/v1"
	DefinitionKind    = "CustomResourceDefinition"
)

// Definition is what is read of the CustomResourceDefinition of a kind of the Gateway API: from which bundle it
// is, and which versions the cluster serves.
type Definition struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              DefinitionSpec `json:"spec"`
}

// DefinitionSpec names a kind and its versions.
type DefinitionSpec struct {
	Group string `json:"group"`
	Names struct {
		Kind string `json:"kind"`
	} `json:"names"`
	Versions []struct {
		Name   string `json:"name"`
		Served bool   `json:"served"`
	} `json:"versions"`
}

// Bundle returns the version of the bundle, such as "v1.6.3", or "".
func (d *Definition) Bundle() string { return d.Annotations[consts.BundleVersionAnnotation] }

// IsExperimental reports whether the definition is of the experimental channel.
func (d *Definition) IsExperimental() bool {
	return d.Annotations[consts.ChannelAnnotation] == "experimental"
}

// Serves returns the versions that the cluster serves.
func (d *Definition) Serves() []string {
	var out []string
	for _, v := range d.Spec.Versions {
		if v.Served {
			out = append(out, v.Name)
		}
	}
	return out
}

// Strip takes out what no compile looks at.
func (d *Definition) Strip() {
	d.ObjectMeta = metav1.ObjectMeta{
		Name: d.Name, UID: d.UID, ResourceVersion: d.ResourceVersion,
		Annotations: map[string]string{consts.BundleVersionAnnotation: d.Bundle(), consts.ChannelAnnotation: d.Annotations[consts.ChannelAnnotation]},
	}
}

// GatewayDefinitions returns the names of the CustomResourceDefinitions of the kinds that are read.
func GatewayDefinitions() []string {
	var out []string
	for _, kind := range gatewayKinds {
		out = append(out, kind.Definition())
	}
	return out
}

// unknownField is an annotation of objects that a cluster has: a field of theirs that the compiler does not know.
// The API server has a later version of the API then. It exists in this process only.
const unknownField = "gateway.hapsnap.dev/unknown-field"

// fieldForm is the form of a field's path. What a tenant writes into the annotation is shown to people.
var fieldForm = regexp.MustCompile(`^spec[A-Za-z0-9_.\[\]-]{0,200}$`)

// NoteUnknown takes note of the first field of an object of a cluster that is not known, such as "spec.rules[0].x",
// or that there is none: "".
func NoteUnknown(object metav1.Object, field string) {
	annotations := maps.Clone(object.GetAnnotations())
	delete(annotations, unknownField)
	if field != "" && !fieldForm.MatchString(field) {
		field = "spec"
	}
	if field != "" {
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[unknownField] = field
	}
	object.SetAnnotations(annotations)
}

// UnknownField returns what [NoteUnknown] has noted, or "".
func UnknownField(object metav1.Object) string {
	if field := object.GetAnnotations()[unknownField]; fieldForm.MatchString(field) {
		return field
	}
	return ""
}
