package gatewayapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/routing/hostname"
)

// tlsRoute makes the route of a host whose connections are passed through. If it cannot, the connections are
// closed.
func (m *mover) tlsRoute(listener string, r routing.ConnectionRoute) {
	i := slices.IndexFunc(m.model.ConnectionBackends, func(b routing.Backend) bool { return b.Name == r.Backend })
	closed := func(why string) {
		m.say(diag.Error, r.Origin.Object, r.Origin.Position, "connections for host "+hostname.Shown(r.SNI)+" cannot be moved: "+why+"; they are closed", "keep the Ingress")
	}
	if i < 0 || len(m.model.ConnectionBackends[i].Targets) != 1 {
		closed("what they go to is not known")
		return
	}
	b := m.model.ConnectionBackends[i]
	if b.Protection != nil && b.Protection.Any() || len(b.Snippet) > 0 {
		closed("a route has nothing that keeps clients out")
		return
	}
	service := m.services[types.NamespacedName{Namespace: b.Targets[0].Service.Namespace, Name: b.Targets[0].Service.Service}]
	n := -1
	if service.Value != nil {
		n = slices.IndexFunc(service.Value.Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == b.Targets[0].Service.Port })
	}
	if n < 0 || b.Targets[0].Name != nil || service.Value.Spec.Type == corev1.ServiceTypeExternalName {
		closed("no route leads to their Service")
		return
	}
	var timeouts *gatewayv1.HTTPRouteTimeouts
	asks := action{mover: m, route: routing.Route{Origin: r.Origin, Backend: b.Name}, backend: ofConnections(b, service, service.Value.Spec.Ports[n])}
	if !asks.serves(service, service.Value.Spec.Ports[n], &timeouts) {
		closed("what is spoken to its endpoints is said by the Service, and by no route")
		return
	}
	if timeouts != nil {
		asks.annotation(diag.Error, asks.route, "timeout-server", "cannot be moved: a route for TLS says nothing of time", "set it on the Service, for all routes to it")
	}
	port := service.Value.Spec.Ports[n].Port
	out := gatewayv1.TLSRoute{ObjectMeta: metav1.ObjectMeta{Namespace: r.Origin.Object.Namespace, Name: r.Origin.Object.Name}}
	out.APIVersion, out.Kind = gatewayv1.GroupVersion.String(), "TLSRoute"
	taken := func(o gatewayv1.TLSRoute) bool { return o.Namespace == out.Namespace && o.Name == out.Name }
	for n := 2; slices.ContainsFunc(m.tlsRoutes, taken) || m.there["TLSRoute"][types.NamespacedName{Namespace: out.Namespace, Name: out.Name}]; n++ {
		out.Name = fmt.Sprintf("%s-%d", r.Origin.Object.Name, n)
	}
	out.Spec.Hostnames = []gatewayv1.Hostname{gatewayv1.Hostname(hostname.Shown(r.SNI))}
	out.Spec.Rules = []gatewayv1.TLSRouteRule{{BackendRefs: []gatewayv1.BackendRef{{BackendObjectReference: gatewayv1.BackendObjectReference{Name: gatewayv1.ObjectName(service.Ref.Name), Port: &port}}}}}
	m.attach(out.Namespace, []string{listener})
	m.tlsRoutes, m.tlsParents = append(m.tlsRoutes, out), append(m.tlsParents, listener)
}

// ofConnections returns a backend of passed connections with the protocol of its Service: endpoints get exactly
// the bytes of the clients.
func ofConnections(b routing.Backend, service inputs.Object[corev1.Service], port corev1.ServicePort) routing.Backend {
	var app options.Values
	if port.AppProtocol != nil {
		app = options.AppProtocol(*port.AppProtocol)
	}
	offered, _ := options.Read(options.OnService, service.Value.Annotations)
	s, _, _ := options.Resolve(app, offered)
	asked := policy.Upstream{}
	if b.Upstream != nil {
		asked = *b.Upstream
	}
	asked.Protocol, asked.TLS, asked.FastCGI = s.Upstream.Protocol, s.Upstream.TLS, s.Upstream.FastCGI
	b.Upstream = &asked
	return b
}

// encode writes all objects, in the order in which they should be applied.
func (m *mover) encode() ([]byte, error) {
	var all []any
	if len(m.routes)+len(m.tlsRoutes) > 0 {
		all = append(all, m.gateway())
		for n := 1; n*mostListeners < len(m.listenersOf); n++ {
			all = append(all, m.listenerSet(n))
		}
		for _, g := range m.grants() {
			all = append(all, g)
		}
	}
	slices.SortStableFunc(m.routes, func(a, b gatewayv1.HTTPRoute) int { return cmp.Compare(a.Namespace, b.Namespace) })
	for _, r := range m.routes {
		all = append(all, r)
	}
	for i, r := range m.tlsRoutes {
		r.Spec.ParentRefs = m.parents(r.Namespace, m.tlsParents[i:i+1])
		all = append(all, r)
	}
	var out bytes.Buffer
	for i, object := range all {
		data, err := json.Marshal(object)
		if err != nil {
			return nil, fmt.Errorf("encode: %w", err)
		}
		var content map[string]any
		if err := json.Unmarshal(data, &content); err != nil {
			return nil, fmt.Errorf("encode: %w", err)
		}
		delete(content, "status")
		delete(content["metadata"].(map[string]any), "creationTimestamp")
		text, err := yaml.Marshal(content)
		if err != nil {
			return nil, fmt.Errorf("encode: %w", err)
		}
		if i > 0 {
			out.WriteString("---\n")
		}
		out.Write(text)
	}
	return out.Bytes(), nil
}

func (m *mover) gateway() gatewayv1.Gateway {
	out := gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: m.Gateway.Namespace, Name: m.Gateway.Name}}
	out.APIVersion, out.Kind = gatewayv1.GroupVersion.String(), "Gateway"
	out.Spec.GatewayClassName = gatewayv1.ObjectName(m.Class)
	for _, l := range m.listenersOf[:min(len(m.listenersOf), mostListeners)] {
		out.Spec.Listeners = append(out.Spec.Listeners, gatewayv1.Listener(m.entry(l)))
	}
	if len(m.listenersOf) > mostListeners {
		out.Spec.AllowedListeners = &gatewayv1.AllowedListeners{Namespaces: &gatewayv1.ListenerNamespaces{From: new(gatewayv1.NamespacesFromSame)}}
	}
	return out
}

// listenerSet has the listeners for which the Gateway has no room.
func (m *mover) listenerSet(n int) gatewayv1.ListenerSet {
	out := gatewayv1.ListenerSet{ObjectMeta: metav1.ObjectMeta{Namespace: m.Gateway.Namespace, Name: m.setName(n)}}
	out.APIVersion, out.Kind = gatewayv1.GroupVersion.String(), "ListenerSet"
	out.Spec.ParentRef.Name = gatewayv1.ObjectName(m.Gateway.Name)
	for _, l := range m.listenersOf[n*mostListeners : min(len(m.listenersOf), (n+1)*mostListeners)] {
		out.Spec.Listeners = append(out.Spec.Listeners, m.entry(l))
	}
	return out
}

func (m *mover) entry(l listener) gatewayv1.ListenerEntry {
	out := gatewayv1.ListenerEntry{Name: gatewayv1.SectionName(l.name), Port: gatewayv1.PortNumber(m.HTTPPort), Protocol: gatewayv1.HTTPProtocolType}
	if l.host != "" {
		out.Hostname = new(gatewayv1.Hostname(hostname.Shown(l.host)))
	}
	switch {
	case l.passes:
		out.Port, out.Protocol, out.TLS = gatewayv1.PortNumber(m.HTTPSPort), gatewayv1.TLSProtocolType, &gatewayv1.ListenerTLSConfig{Mode: new(gatewayv1.TLSModePassthrough)}
	case l.secure:
		out.Port, out.Protocol, out.TLS = gatewayv1.PortNumber(m.HTTPSPort), gatewayv1.HTTPSProtocolType, &gatewayv1.ListenerTLSConfig{}
		for _, secret := range l.certificates {
			ref := gatewayv1.SecretObjectReference{Name: gatewayv1.ObjectName(secret.Name)}
			if secret.Namespace != m.Gateway.Namespace {
				ref.Namespace = new(gatewayv1.Namespace(secret.Namespace))
			}
			out.TLS.CertificateRefs = append(out.TLS.CertificateRefs, ref)
		}
	}
	out.AllowedRoutes = m.allowed(l)
	return out
}

// allowed lets only those namespaces attach routes to a listener that have routes there.
func (m *mover) allowed(l listener) *gatewayv1.AllowedRoutes {
	namespaces := sortedKeys(m.attached[l.name])
	if len(namespaces) == 0 || len(namespaces) == 1 && namespaces[0] == m.Gateway.Namespace {
		return nil // the default allows the Gateway's namespace
	}
	return &gatewayv1.AllowedRoutes{Namespaces: &gatewayv1.RouteNamespaces{
		From: new(gatewayv1.NamespacesFromSelector),
		Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
			Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: namespaces,
		}}},
	}}
}

// attach records that routes of a namespace are attached to listeners.
func (m *mover) attach(namespace string, listeners []string) {
	for _, name := range listeners {
		if m.attached[name] == nil {
			m.attached[name] = map[string]bool{}
		}
		m.attached[name][namespace] = true
	}
}

// shared reports listeners where namespaces can take hosts or paths from each other, although the configuration
// prevents that among Ingresses.
func (m *mover) shared() {
	if !m.keepsHosts() {
		return
	}
	for _, l := range m.listenersOf {
		namespaces := sortedKeys(m.attached[l.name])
		if len(namespaces) < 2 {
			continue
		}
		hosts := "hosts"
		if l.host != "" {
			hosts = "paths of " + hostname.Shown(l.host)
		}
		m.say(diag.Warning, diag.Object{Kind: "Gateway", Namespace: m.Gateway.Namespace, Name: m.Gateway.Name}, diag.Position{},
			fmt.Sprintf("listener %s has routes of the namespaces %s: each of them may take %s from the others there, which the configuration keeps them from with Ingresses", l.name, strings.Join(namespaces, ", "), hosts),
			"decide who may write routes in these namespaces, or have one namespace hold what is shared")
	}
}

// keepsHosts reports whether the configuration reserves hosts for namespaces.
func (m *mover) keepsHosts() bool {
	return m.Ingresses.OwnedHosts || len(m.Ingresses.ReservedDomains) > 0
}

// mostGranted is how many references a ReferenceGrant may permit.
const mostGranted = 16

// grants returns the permissions for the Gateway to name certificates of other namespaces.
func (m *mover) grants() []gatewayv1.ReferenceGrant {
	secrets := map[string]map[string]bool{}
	for _, l := range m.listenersOf {
		for _, s := range l.certificates {
			if s.Namespace != m.Gateway.Namespace {
				if secrets[s.Namespace] == nil {
					secrets[s.Namespace] = map[string]bool{}
				}
				secrets[s.Namespace][s.Name] = true
			}
		}
	}
	kinds := []gatewayv1.Kind{"Gateway"}
	if len(m.listenersOf) > mostListeners {
		kinds = append(kinds, "ListenerSet")
	}
	var out []gatewayv1.ReferenceGrant
	for _, namespace := range sortedKeys(secrets) {
		n := 0
		for names := range slices.Chunk(sortedKeys(secrets[namespace]), mostGranted) {
			g := gatewayv1.ReferenceGrant{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}}
			for g.Name == "" || m.there["ReferenceGrant"][types.NamespacedName{Namespace: namespace, Name: g.Name}] {
				n++
				g.Name = "gateway-" + m.Gateway.Namespace + "-" + m.Gateway.Name
				if n > 1 {
					g.Name += fmt.Sprintf("-%d", n)
				}
			}
			g.APIVersion, g.Kind = gatewayv1.GroupVersion.String(), "ReferenceGrant"
			for _, kind := range kinds {
				g.Spec.From = append(g.Spec.From, gatewayv1.ReferenceGrantFrom{Group: gatewayv1.GroupName, Kind: kind, Namespace: gatewayv1.Namespace(m.Gateway.Namespace)})
			}
			for _, name := range names {
				g.Spec.To = append(g.Spec.To, gatewayv1.ReferenceGrantTo{Kind: "Secret", Name: new(gatewayv1.ObjectName(name))})
			}
			out = append(out, g)
		}
	}
	return out
}

// writesOver returns an [ExistsError] if the Gateway or one of its ListenerSets exists. Other objects get free
// names.
func (m *mover) writesOver() error {
	var out []string
	if m.there["Gateway"][m.Gateway] {
		out = append(out, "Gateway "+m.Gateway.String())
	}
	for n := 1; n*mostListeners < len(m.listenersOf); n++ {
		if name := (types.NamespacedName{Namespace: m.Gateway.Namespace, Name: m.setName(n)}); m.there["ListenerSet"][name] {
			out = append(out, "ListenerSet "+name.String())
		}
	}
	if len(out) > 0 {
		return &ExistsError{out}
	}
	return nil
}

// classAnnotation is the old annotation with the class of an Ingress.
const classAnnotation = "kubernetes.io/ingress.class"

// drop returns the inputs without the annotations in Without.
func (m *mover) drop(in inputs.Inputs) inputs.Inputs {
	if len(m.Without) == 0 {
		return in
	}
	in.Ingresses = slices.Clone(in.Ingresses)
	for i, ing := range in.Ingresses {
		value := ing.Value.DeepCopy()
		for _, name := range m.Without {
			name = strings.TrimPrefix(name, options.Prefix)
			if _, has := value.Annotations[options.Prefix+name]; has {
				delete(value.Annotations, options.Prefix+name)
				m.say(diag.Warning, ing.Ref, ing.Position("metadata", "annotations", options.Prefix+name), "annotation "+options.Prefix+name+" is left out, as --without says", "")
			}
		}
		in.Ingresses[i].Value = value
	}
	return in
}

// missing returns stand-ins for Services that are not among the manifests, if Ingresses name their ports by
// number.
func (m *mover) missing(in inputs.Inputs) []inputs.Object[corev1.Service] {
	known := map[types.NamespacedName]bool{}
	for _, s := range in.Services {
		known[types.NamespacedName{Namespace: s.Ref.Namespace, Name: s.Ref.Name}] = true
	}
	made := map[types.NamespacedName]*corev1.Service{}
	var names []types.NamespacedName
	for _, ing := range in.Ingresses {
		take := func(b *networkingv1.IngressBackend, path ...any) {
			if b == nil || b.Service == nil || b.Service.Name == "" {
				return
			}
			name := types.NamespacedName{Namespace: ing.Ref.Namespace, Name: b.Service.Name}
			if known[name] || b.Service.Port.Number == 0 {
				return
			}
			s := made[name]
			if s == nil {
				s = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
				made[name], names = s, append(names, name)
				m.say(diag.Warning, ing.Ref, ing.Position(path...), fmt.Sprintf("Service %s is not among the manifests: the route names it as the Ingress does, and its annotations are not known", name),
					"add it to the manifests; while it does not exist, requests get 500 in place of 503")
			}
			port := corev1.ServicePort{Name: fmt.Sprint("p", b.Service.Port.Number), Port: b.Service.Port.Number}
			if !slices.Contains(s.Spec.Ports, port) {
				s.Spec.Ports = append(s.Spec.Ports, port)
			}
		}
		take(ing.Value.Spec.DefaultBackend, "spec", "defaultBackend")
		for i, rule := range ing.Value.Spec.Rules {
			if rule.HTTP == nil {
				continue
			}
			for n, p := range rule.HTTP.Paths {
				take(&p.Backend, "spec", "rules", i, "http", "paths", n, "backend")
			}
		}
	}
	var out []inputs.Object[corev1.Service]
	for _, name := range names {
		out = append(out, inputs.Object[corev1.Service]{Ref: diag.Object{Kind: "Service", Namespace: name.Namespace, Name: name.Name}, Value: made[name]})
	}
	return out
}
