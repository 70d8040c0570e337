package inputs

import (
	"iter"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/internal/manifests"
	"github.com/hapsnap/hapsnap/snapshots"
)

// GatewayKind is a kind of the Gateway API that is read, in the version [GatewayVersion]. Whoever needs to know which
// kinds there are, goes by [GatewayKinds].
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

// gatewayKinds are all of them, in the order in which they are told.
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
	// gather adds an object that was read from a file.
	gather  func(*gatherer, manifests.Object)
	filter  func(in *GatewayAPI, keep func(diag.Object) bool)
	ageless func(*GatewayAPI)
	record  func(*GatewayAPI, []snapshots.Input) []snapshots.Input
}

// metaObject is a pointer to a type of the Gateway API.
type metaObject[T any] interface {
	*T
	metav1.Object
}

// list is where the objects of a type are.
type list[T any, P metaObject[T]] func(*GatewayAPI) *[]Object[T]

// listed returns what can be done with a list.
func listed[T any, P metaObject[T]](in func(*GatewayAPI) *[]Object[T]) gatewayObjects {
	l := list[T, P](in)
	return gatewayObjects{l.fresh, l.each, l.count, l.has, l.add, l.gather, l.filter, l.ageless, l.record}
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

func (l list[T, P]) gather(g *gatherer, o manifests.Object) {
	all := l(&g.in.Gateway)
	*all = gather(g, *all, o, validation.IsDNS1123Subdomain)
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
