package gateway

import (
	"reflect"
	"slices"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/access"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway/attach"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/routing"
)

// Memo remembers the claims of the routes of the last translation for the next one. Claims are used again only if
// everything is the same that they were made from: the route, and every answer of the [source], which is the only
// access of claims to other objects. Objects count as the same if their values are at the same address, since nobody
// changes a value among the inputs.
//
// Claims have nothing that depends on several routes, or on listeners. Each translation decides that again: attachment,
// the limits of a namespace, the order of matches, and where connections lead.
//
// A Memo holds what one translation used, and nothing older. Several goroutines may use it at the same time. A nil Memo
// remembers nothing.
type Memo struct {
	last         atomic.Pointer[memory]
	readOnly     *Memo // its memory is used, and not changed
	made, reused atomic.Int64
}

// NewMemo returns a Memo that remembers nothing.
func NewMemo() *Memo { return &Memo{} }

// Reader returns a Memo that uses what this one remembers, but does not change it.
func (m *Memo) Reader() *Memo {
	if m == nil {
		return nil
	}
	return &Memo{readOnly: m}
}

// Counts returns how many claims were made since the Memo was made, and how many were used again.
func (m *Memo) Counts() (made, reused int64) { return m.made.Load(), m.reused.Load() }

// memory is what one translation used. It does not change once it belongs to a Memo.
type memory struct {
	form routing.PathForm
	// sharedServices are like those in a source.
	sharedServices []string
	inspection     access.Inspection
	known          map[spot]remembered
}

// spot is the key of remembered claims: a route, by the address of its value, and for what the claims were made.
type spot struct {
	route any
	under string // the key of an under
}

// remembered are claims, and the questions from whose answers they were made, in their order.
type remembered struct {
	claims *claims
	asked  []asking
}

// route is a route of any kind, in the form of an HTTPRoute.
type route struct {
	inputs.Object[gatewayv1.HTTPRoute]
	of any // the object itself, by its address
}

// claimer returns the claims for one translation. It makes those that are not remembered.
type claimer struct {
	memo   *Memo
	source *source
	before map[spot]remembered
	now    memory
}

func (m *Memo) claimer(s *source) *claimer {
	c := &claimer{memo: m, source: s, now: memory{form: s.form, sharedServices: s.sharedServices, inspection: s.inspection, known: map[spot]remembered{}}}
	from := m
	if m != nil && m.readOnly != nil {
		from = m.readOnly
	}
	if from != nil {
		if last := from.last.Load(); last != nil && last.form == s.form && slices.Equal(last.sharedServices, s.sharedServices) && reflect.DeepEqual(last.inspection, s.inspection) {
			c.before = last.known
		}
	}
	return c
}

// routes returns the routes of all kinds, oldest first.
func (c *claimer) routes(in inputs.GatewayAPI) []route {
	var all []route
	for _, o := range in.HTTPRoutes {
		all = append(all, route{o, o.Value})
	}
	for _, o := range in.GRPCRoutes {
		if known, is := c.before[spot{o.Value, ""}]; is {
			all = append(all, route{known.claims.Object, o.Value})
			continue
		}
		all = append(all, route{asHTTP(o), o.Value})
	}
	// Routes of connections are read as HTTPRoutes with the same parents, hosts and backends, see
	// [reader.readConnections].
	var connections []route
	for _, o := range in.TLSRoutes {
		r := connectionRoute(o, o.Value.ObjectMeta, o.Value.Spec.CommonRouteSpec)
		r.Value.Spec.Hostnames = o.Value.Spec.Hostnames
		for _, rule := range o.Value.Spec.Rules {
			r.Value.Spec.Rules = append(r.Value.Spec.Rules, refsAsHTTP(rule.BackendRefs))
		}
		connections = append(connections, route{r, o.Value})
	}
	for _, o := range in.TCPRoutes {
		r := connectionRoute(o, o.Value.ObjectMeta, o.Value.Spec.CommonRouteSpec)
		for _, rule := range o.Value.Spec.Rules {
			r.Value.Spec.Rules = append(r.Value.Spec.Rules, refsAsHTTP(rule.BackendRefs))
		}
		connections = append(connections, route{r, o.Value})
	}
	for _, o := range in.UDPRoutes {
		connections = append(connections, route{connectionRoute(o, o.Value.ObjectMeta, o.Value.Spec.CommonRouteSpec), o.Value})
	}
	return sortedBy(append(all, connections...), func(r route) inputs.Object[gatewayv1.HTTPRoute] { return r.Object })
}

// of returns the claims of a route. It returns the remembered ones if every question still has the same answer, and
// otherwise makes new ones. It asks the questions in their first order, since some answers depend on earlier questions,
// such as whether a namespace has too many authorities. So the answers are the same with and without a Memo.
func (c *claimer) of(r route, u under) *claims {
	at := spot{r.of, u.key()}
	if known, is := c.now.known[at]; is {
		return known.claims
	}
	known, is := c.before[at]
	if is && !slices.ContainsFunc(known.asked, func(a asking) bool { return !c.source.repeats(a) }) {
		c.now.known[at] = known
		c.memo.reused.Add(1)
		return known.claims
	}
	c.source.asked = nil
	made := remembered{claims: claimsOf(c.source, r.Object, u)}
	made.asked, c.source.asked = c.source.asked, nil
	c.now.known[at] = made
	if c.memo != nil {
		c.memo.made.Add(1)
	}
	return made.claims
}

// source gives claims access to the objects to which a route refers, and records each question with its answer. Claims
// see no other objects.
type source struct {
	form routing.PathForm
	// sharedServices are the Services that all namespaces may ask for authentication. inspection says which agents may
	// be asked about requests. Both come from the configuration.
	sharedServices []string
	inspection     access.Inspection
	world          *attach.World
	services       inputs.Index[corev1.Service]
	policies       *policies
	asked          []asking
}

// asking is a question with its answer.
type asking struct {
	of any // the question: a grantOf, a Service or a portOf
	is any // the answer
}

// grantOf is the question whether objects of a kind in a namespace may refer to an object.
type grantOf struct {
	kind, namespace string
	to              attach.Reference
}

// portOf is the question how to speak to the servers of a Service port.
type portOf struct {
	service types.NamespacedName
	port    string
}

// serversTLS is what a BackendTLSPolicy says about servers: how to speak to them. tls is nil if nothing may be sent to
// them.
type serversTLS struct {
	ref diag.Object
	tls *policy.TLS
}

// permitted reports whether a grant permits a reference.
func (s *source) permitted(kind, namespace string, to attach.Reference) bool {
	return answered[bool](s, grantOf{kind, namespace, to})
}

// service returns a Service, if it exists.
func (s *source) service(name types.NamespacedName) (inputs.Object[corev1.Service], bool) {
	found := answered[*corev1.Service](s, name)
	o, _ := s.services.Find(name)
	return o, found != nil
}

// policy returns what a policy says about a port of a Service, nil if there is no policy.
func (s *source) policy(service types.NamespacedName, port string) *serversTLS {
	return answered[*serversTLS](s, portOf{service, port})
}

func answered[T any](s *source, question any) T {
	a := asking{question, s.answer(question)}
	s.asked = append(s.asked, a)
	is, _ := a.is.(T)
	return is
}

// answer returns the present answer to a question.
func (s *source) answer(question any) any {
	switch q := question.(type) {
	case grantOf:
		return s.world.Permitted(q.kind, q.namespace, q.to)
	case types.NamespacedName:
		o, _ := s.services.Find(q)
		return o.Value
	case portOf:
		if by := s.policies.of(q.service, q.port); by != nil {
			return &serversTLS{by.Ref, by.tls}
		}
	}
	return (*serversTLS)(nil)
}

// repeats reports whether a question still has the same answer.
func (s *source) repeats(a asking) bool {
	now := s.answer(a.of)
	if was, ok := a.is.(*serversTLS); ok {
		return reflect.DeepEqual(was, now)
	}
	return now == a.is
}
