package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/access"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway/attach"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/snapshots"
)

// Invalid is the backend for requests whose own backend cannot be used. It answers 500.
const Invalid = "hapsnap_invalid"

// unavailable is the backend for gRPC calls whose own backend cannot be used. It has no servers, so it answers 503.
const unavailable = "hapsnap_unavailable:grpc"

// weight is the weight of the Service in a backend of one Service.
const weight = 100

// backends are the backends to which routes lead, by name.
type backends struct {
	byName map[string]*routing.Backend
	// ofConnections are the backends for whole connections.
	ofConnections map[string]*routing.Backend
	splits        map[string]routing.Split
	demands       map[string]*demand // by the name of a backend
	access        *access.Taker
	tell          func(...diag.Diagnostic)
	origins       map[backendOrigin]bool // of the backends
	notes
}

// backendOrigin is a backend, and a rule that wants it.
type backendOrigin struct {
	*routing.Backend
	routing.Origin
}

// notes are about Services: whose annotations cannot be used, and whose annotations a policy replaces.
type notes struct {
	closed    map[diag.Object]diag.Position
	overruled map[diag.Object]overruling
}

// overruling is the policy that replaces annotations.
type overruling struct {
	by diag.Object
	at diag.Position
}

// wants are the backends and splits to which a rule leads, and notes about Services.
type wants struct {
	backends, ofConnections []wanted
	splits                  []routing.Split
	notes
}

// wanted is a backend, and the rule that wants it.
type wanted struct {
	routing.Backend
	by     routing.Origin
	demand *demand // what its options need, nil without options
}

func newBackends(taker *access.Taker, tell func(...diag.Diagnostic)) *backends {
	return &backends{
		access: taker, tell: tell, demands: map[string]*demand{}, origins: map[backendOrigin]bool{},
		byName: map[string]*routing.Backend{}, ofConnections: map[string]*routing.Backend{}, splits: map[string]routing.Split{},
		notes: notes{map[diag.Object]diag.Position{}, map[diag.Object]overruling{}},
	}
}

// merge adds what a rule wants.
func (b *backends) merge(w wants) {
	for _, x := range w.backends {
		b.add(b.byName, x)
		if x.demand != nil {
			b.demands[x.Name] = x.demand
		}
	}
	for _, x := range w.ofConnections {
		b.add(b.ofConnections, x)
	}
	for _, s := range w.splits {
		b.splits[s.Name] = s
	}
	maps.Copy(b.closed, w.closed)
	maps.Copy(b.overruled, w.overruled)
}

func (b *backends) add(to map[string]*routing.Backend, x wanted) {
	known := to[x.Name]
	if known == nil {
		known = &x.Backend
		known.Origins = slices.Clip(known.Origins) // claims share the Origins
		to[x.Name] = known
		for _, o := range known.Origins {
			b.origins[backendOrigin{known, o}] = true
		}
	}
	if key := (backendOrigin{known, x.by}); !b.origins[key] {
		b.origins[key] = true
		known.Origins = append(known.Origins, x.by)
	}
}

// add adds a wanted backend, and returns its name.
func (w *wants) add(made routing.Backend, origin routing.Origin) string {
	w.backends = append(w.backends, wanted{Backend: made, by: origin})
	return made.Name
}

// report reports annotations of Services that have no effect.
func (b *backends) report(f *findings) {
	for service, o := range b.overruled {
		f.report(diag.Warning, service, o.at, fmt.Sprintf("what its annotations say of TLS to its servers does not hold for routes of Gateways: %s does", o.by), "remove them")
	}
	for service, at := range b.closed {
		f.report(diag.Error, service, at, "routes of Gateways cannot follow its annotations, which need a Secret, or protect it against copies of requests and connections: what they send to it is refused",
			"remove them, or route to it by an Ingress")
	}
}

// reference is the target of a backendRef.
type reference struct {
	weight  int
	name    string // the name of a backend without filters
	target  routing.Target
	service inputs.Object[corev1.Service]
	port    corev1.ServicePort
	use     use
	problem *problem // why requests get the answer 500
}

// refer finds the target of a route's backendRef.
func (s *source) refer(route attach.Route, ref gatewayv1.BackendRef) reference {
	out, namespace := reference{weight: 1}, route.Namespace
	if ref.Weight != nil {
		out.weight = int(*ref.Weight)
	}
	fail := func(reason gatewayv1.RouteConditionReason, format string, args ...any) reference {
		out.problem = &problem{reason: string(reason), message: fmt.Sprintf(format, args...)}
		return out
	}
	to := attach.ReferenceOf("Service", namespace, ref.Group, ref.Kind, ref.Namespace, ref.Name)
	name := types.NamespacedName{Namespace: to.Namespace, Name: to.Name}
	if to.Group != "" || to.Kind != "Service" {
		return fail(gatewayv1.RouteReasonInvalidKind, "a backend is a Service, and not a %s", to.Kind)
	}
	if !s.permitted(route.Kind, namespace, to) {
		return fail(gatewayv1.RouteReasonRefNotPermitted, "no ReferenceGrant of the namespace %s permits the reference to Service %s", to.Namespace, name)
	}
	out.use.service = name
	service, exists := s.service(name)
	if !exists {
		return fail(gatewayv1.RouteReasonBackendNotFound, "Service %s does not exist", name)
	}
	if service.Value.Spec.Type == corev1.ServiceTypeExternalName {
		return fail(gatewayv1.RouteReasonInvalidKind, "Service %s is of the type ExternalName, which no route leads to", name)
	}
	i := -1
	if ref.Port != nil {
		i = slices.IndexFunc(service.Value.Spec.Ports, func(p corev1.ServicePort) bool {
			return p.Port == *ref.Port && (p.Protocol == "" || p.Protocol == corev1.ProtocolTCP)
		})
	}
	if i < 0 {
		return fail(gatewayv1.RouteReasonBackendNotFound, "Service %s has no such TCP port", name)
	}
	out.service, out.port = service, service.Value.Spec.Ports[i]
	out.use.found, out.use.port = service.Value, out.port.Name
	key := out.port.Name
	if key == "" {
		key = strconv.Itoa(int(out.port.Port))
	}
	out.name = name.Namespace + "_" + name.Name + "_" + key
	out.target = routing.Target{Service: snapshots.ServicePort{Namespace: name.Namespace, Service: name.Name, Port: out.port.Name}, Weight: weight}
	return out
}

// take returns the name of the backend for the target of a reference, with these filters. Equal backends are one.
func (r *reader) take(ref reference, filters []policy.Filter, todo work, w *wants, origin routing.Origin) string {
	made := routing.Backend{Targets: []routing.Target{ref.target}, Filters: filters}
	shows, grpc := r.serve(&made, ref, w, true), r.isGRPC()
	demand := r.ask(&made, ref, w)
	if todo.timeout != "" || todo.retry != nil || todo.sessions != nil || made.Upstream != nil || grpc {
		upstream := policy.Upstream{}
		if made.Upstream != nil {
			upstream = *made.Upstream
		}
		if todo.timeout != "" {
			upstream.Timeouts.Server = todo.timeout
		}
		if todo.retry != nil {
			upstream.Retries, upstream.RetryOn = &todo.retry.attempts, todo.retry.on
		}
		if grpc {
			upstream.Protocol = policy.GRPC
		}
		upstream = keepSessions(upstream, todo.sessions, ref)
		made.Upstream = &upstream
	}
	suffix, own := "0", []any{filters, todo.timeout, grpc}
	if todo.retry != nil {
		own = append(own, *todo.retry)
	}
	if todo.sessions != nil {
		own = append(own, *todo.sessions)
	}
	if shows {
		own = append(own, r.shown)
	}
	if r.needsOwn() || demand != nil {
		own = append(own, r.Kind, r.Route.Namespace, r.Ref.Name, r.key())
	}
	if len(filters) > 0 || todo.timeout != "" || grpc || len(own) > 3 {
		suffix = digest(own...)
	}
	made.Name = ref.name + ":" + suffix
	w.backends = append(w.backends, wanted{made, origin, demand})
	return made.Name
}

// serve applies to a backend what the Service says about how to speak to it, and a policy for the Service. Options that
// need more than the Service are not supported here, and options that protect the Service only if the backend is
// guarded. With unsupported options, nothing is served. serve reports whether HAProxy shows a certificate to the
// servers.
func (r *reader) serve(made *routing.Backend, ref reference, w *wants, guarded bool) bool {
	var port options.Values
	if ref.port.AppProtocol != nil {
		port = options.AppProtocol(*ref.port.AppProtocol)
	}
	offered, _ := options.Read(options.OnService, ref.service.Value.Annotations)
	by := r.policy(ref.use.service, ref.use.port)
	offered = w.without(offered, by, ref)
	if !offered.NeedsBackend() && !port.NeedsBackend() && by == nil {
		return false
	}
	settings, _, closed := options.Resolve(port, offered)
	protects := settings.Asks() || settings.Protection.Any()
	more := protects && !guarded || len(settings.Snippet) > 0 ||
		settings.ServerSecrets != (options.ServerSecrets{}) || settings.Upstream.FastCGI != nil
	if closed || more {
		deny(made)
		w.close(ref)
		return false
	}
	if by != nil && by.tls == nil {
		deny(made)
		return false
	}
	_, filters := settings.Ways() // the other filters are in the layer of the Service
	made.Filters = append(made.Filters[:len(made.Filters):len(made.Filters)], filters...)
	shows := shows(&settings.Upstream, by, r.shown)
	if settings.Upstream != (policy.Upstream{}) {
		made.Upstream = &settings.Upstream
	}
	return shows
}

// close notes that the annotations of a Service cannot be used.
func (w *wants) close(r reference) {
	if w.closed == nil {
		w.closed = map[diag.Object]diag.Position{}
	}
	w.closed[r.service.Ref] = r.service.Position("metadata", "annotations")
}

// without removes the annotations of a Service for TLS to its servers if a policy applies, and notes that.
func (w *wants) without(offered options.Values, by *serversTLS, r reference) options.Values {
	if by == nil {
		return offered
	}
	left, some := offered.WithoutServerTLS()
	if some {
		if w.overruled == nil {
			w.overruled = map[diag.Object]overruling{}
		}
		w.overruled[r.service.Ref] = overruling{by.ref, r.service.Position("metadata", "annotations")}
	}
	return left
}

// shows makes HAProxy speak to servers as a policy says, if there is one. If the Gateway has a client certificate and
// the servers are spoken to over TLS, they are shown that certificate. shows reports whether they are.
func shows(u *policy.Upstream, by *serversTLS, shown string) bool {
	if by != nil {
		u.TLS = by.tls
	}
	if u.TLS == nil || shown == "" {
		return false
	}
	tls := *u.TLS
	tls.Certificate = shown
	u.TLS = &tls
	return true
}

// split returns the name of the split that distributes the requests of a rule. If there is only one backend, it returns
// the name of that backend. The name does not depend on the weights.
func (w *wants) split(shares []routing.Share, prefix string, origin routing.Origin) string {
	merged := map[string]int{}
	for _, s := range shares {
		merged[s.Backend] += s.Weight
	}
	var out []routing.Share
	for name, weight := range merged {
		out = append(out, routing.Share{Backend: name, Weight: weight})
	}
	slices.SortFunc(out, func(a, c routing.Share) int {
		if a.Backend < c.Backend {
			return -1
		}
		return 1
	})
	if len(out) == 1 {
		return out[0].Backend
	}
	name := "%" + digest(origin.Object.Kind, origin.Object.Namespace, origin.Object.Name, origin.Field, prefix)
	w.splits = append(w.splits, routing.Split{Name: name, Shares: out, Origin: origin})
	return name
}

// model adds everything to which hosts and listeners lead to a model, sorted.
func (b *backends) model(m *routing.Model) {
	used := map[string]bool{}
	for _, h := range m.Hosts {
		for _, r := range h.Routes {
			used[r.Backend] = true
		}
	}
	for _, l := range m.Listeners {
		for _, r := range l.Routes {
			if used[r.Backend] = true; r.Backend == closing {
				b.add(b.ofConnections, wanted{Backend: routing.Backend{Name: closing}, by: r.Origin})
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.splits)) {
		if !used[name] {
			continue
		}
		s := b.splits[name]
		m.Splits = append(m.Splits, s)
		for _, share := range s.Shares {
			used[share.Backend] = true
		}
	}
	// A backend serves nothing while an object that its options name is missing or cannot be used.
	for _, name := range slices.Sorted(maps.Keys(b.demands)) {
		d := b.demands[name]
		if !used[name] {
			continue
		}
		b.tell(d.found...)
		usable := !d.refused
		for _, l := range d.lists {
			usable = b.access.Lists(l) && usable
		}
		for _, u := range d.users {
			b.access.Users(*u)
		}
		for _, p := range d.policies {
			filters, ok := b.access.Policy(p, b.byName[name].Filters)
			b.byName[name].Filters, usable = filters, usable && ok
		}
		if !usable {
			deny(b.byName[name])
		}
	}
	for _, name := range slices.Collect(maps.Keys(used)) {
		if b := b.byName[name]; b != nil {
			for _, also := range b.Named() {
				used[also] = true
			}
		}
	}
	b.access.Model(m)
	m.Backends, m.ConnectionBackends = those(b.byName, used), those(b.ofConnections, used)
}

// those returns the used backends, sorted.
func those(byName map[string]*routing.Backend, used map[string]bool) []routing.Backend {
	var out []routing.Backend
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		if used[name] {
			b := *byName[name]
			slices.SortFunc(b.Origins, routing.Origin.Compare)
			out = append(out, b)
		}
	}
	return out
}

func digest(of ...any) string {
	h := sha256.New()
	for _, v := range of {
		fmt.Fprintf(h, "%#v\n", v)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// sessionName matches the names that a session cookie may have.
var sessionName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)

// mostSession is the longest life of a session. HAProxy writes the start of the session into the cookie.
const mostSession = 365 * 24 * time.Hour

// sessionsOf returns the session persistence of a rule, or nil. A rule with several backends has none: HAProxy picks a
// backend for each request without looking at the cookie, so sessions would not stay at one backend.
func sessionsOf(rule gatewayv1.HTTPRouteRule) (*policy.Affinity, *problem) {
	in := rule.SessionPersistence
	if in == nil {
		return nil, nil
	}
	if in.Type != nil && *in.Type != gatewayv1.CookieBasedSessionPersistence {
		return nil, unsupported("sessions are kept by cookies only, and not by a %s", *in.Type).in("type")
	}
	shares := 0
	for _, ref := range rule.BackendRefs {
		if ref.Weight == nil || *ref.Weight > 0 {
			shares++
		}
	}
	if shares > 1 {
		return nil, unsupported("sessions are not kept where a rule has several backends")
	}
	out := &policy.Affinity{HTTPSOnly: policy.HTTPSAuto}
	if in.SessionName != nil {
		if !sessionName.MatchString(*in.SessionName) {
			return nil, unsupported("a cookie named %q is not supported: use letters, digits, - and _", *in.SessionName).in("sessionName")
		}
		out.Cookie = *in.SessionName
	}
	if in.AbsoluteTimeout != nil {
		d, err := time.ParseDuration(string(*in.AbsoluteTimeout))
		if err != nil || d < time.Second || d > mostSession || d%time.Second != 0 {
			return nil, unsupported("%q is no lifetime of a session: use whole seconds, up to %s", *in.AbsoluteTimeout, mostSession).in("absoluteTimeout")
		}
		out.MaxLife = int(d / time.Second)
	}
	if c := in.CookieConfig; c != nil && c.LifetimeType != nil && *c.LifetimeType != gatewayv1.SessionCookieLifetimeType {
		if *c.LifetimeType != gatewayv1.PermanentCookieLifetimeType || out.MaxLife == 0 {
			return nil, unsupported("a %s cookie without absoluteTimeout is not supported", *c.LifetimeType).in("cookieConfig", "lifetimeType")
		}
		out.MaxAge = out.MaxLife
	}
	return out, nil
}

// keepSessions gives a backend the cookie for which the rule asks, or if it does not ask, the Service.
func keepSessions(upstream policy.Upstream, ofRule *policy.Affinity, ref reference) policy.Upstream {
	if ofRule != nil {
		upstream.Affinity = ofRule
	}
	if upstream.Affinity != nil {
		named := upstream.Affinity.Named(ref.target.Service.String())
		upstream.Affinity = &named
	}
	return upstream
}
