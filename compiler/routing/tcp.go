package routing

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/snapshots"
)

// claimant is who asks for a port: an entry of the configuration or a Service.
type claimant struct {
	name   string // in what others are told
	origin Origin
	report func(severity diag.Severity, field, message, hint string)
}

// wish is what a claimant asks of a port. The words for its fields are those that
// the claimant knows.
type wish struct {
	by      claimant
	port    int
	service snapshots.SecretName
	target  string // the name or number of the Service's port; "" finds it
	hosts   []string
	secret  snapshots.SecretName // zero: TLS does not end here
	trusted []netip.Prefix
	send    int // the version of the PROXY protocol, or 0
}

// connectionListener is a listener that is being collected, and who has its
// routes.
type connectionListener struct {
	trusted []netip.Prefix
	by      claimant
	routes  map[string]connectionClaim // by SNI
}

type connectionClaim struct {
	by    claimant
	route ConnectionRoute
}

// tcpServices opens the ports that are asked for. The configuration comes before
// Services, then the older Service before the younger.
func (t *translation) tcpServices(services []inputs.Object[corev1.Service]) {
	for i, entry := range t.cfg.TCPServices {
		t.claimPort(configuredWish(t, i, entry))
	}
	var asking []inputs.Object[corev1.Service]
	for _, s := range services {
		if _, asks := s.Value.Annotations[options.Prefix+options.TCPPort]; asks {
			asking = append(asking, s)
		}
	}
	slices.SortFunc(asking, func(a, b inputs.Object[corev1.Service]) int {
		return cmp.Or(compareTimes(a.Value.CreationTimestamp, b.Value.CreationTimestamp), a.Ref.Compare(b.Ref))
	})
	for _, s := range asking {
		t.annotatedService(s)
	}
}

// configuredWish is what an entry of the configuration asks for.
func configuredWish(t *translation, i int, entry config.TCPService) wish {
	namespace, name, port := entry.Target()
	secretNamespace, secret := entry.CertificateSecret()
	place := fmt.Sprintf("spec.tcpServices[%d]", i)
	fields := map[string]string{options.TCPPort: ".port", "target": ".service", "tcp-sni": ".sni", "tcp-tls-secret": ".tls.secret", "tcp-proxy-protocol": ".proxyProtocol"}
	return wish{
		by: claimant{
			name: place + " of the configuration",
			report: func(severity diag.Severity, field, message, hint string) {
				t.found = append(t.found, diag.Diagnostic{Severity: severity, Message: place + fields[field] + ": " + message, Hint: hint})
			},
		},
		port: entry.Port, service: snapshots.SecretName{Namespace: namespace, Name: name}, target: port,
		hosts: entry.SNI, secret: snapshots.SecretName{Namespace: secretNamespace, Name: secret},
		trusted: entry.ProxyProtocol.Networks(), send: entry.SendProxyProtocol,
	}
}

// annotatedService opens the ports that a Service asks for, if it may. If a part
// of what it says of them cannot be used, none is opened.
func (t *translation) annotatedService(s inputs.Object[corev1.Service]) {
	values := t.serviceOptions(s)
	for name := range s.Value.Annotations {
		if option, ok := strings.CutPrefix(name, options.Prefix+"tcp-"); ok && !values.Has("tcp-"+option) {
			return // which was reported
		}
	}
	settings, _, _ := options.Resolve(values)
	by := claimant{
		name: s.Ref.String(), origin: originOf(s, annotationPath(options.TCPPort)...),
		report: func(severity diag.Severity, field, message, hint string) {
			if field == "target" {
				field = options.TCPPort
			}
			t.found = append(t.found, diag.Diagnostic{
				Severity: severity, Position: s.Position(annotationPath(field)...), Object: s.Ref,
				Message: "annotation " + options.Prefix + field + ": " + message, Hint: hint,
			})
		},
	}
	c := settings.Connections
	w := wish{by: by, service: snapshots.SecretName{Namespace: s.Ref.Namespace, Name: s.Ref.Name}, hosts: c.SNI, trusted: c.Trusted}
	if c.Secret != "" {
		w.secret = snapshots.SecretName{Namespace: s.Ref.Namespace, Name: c.Secret}
	}
	if w.hosts = t.ownHosts(by, s.Ref.Namespace, c.SNI); len(w.hosts) < len(c.SNI) && len(w.hosts) == 0 {
		return
	}
	for _, p := range c.Ports {
		if t.mayOpen(by, s.Ref.Namespace, p.Port) {
			w.port, w.target = p.Port, p.Target
			t.claimPort(w)
		}
	}
}

// ownHosts returns the hosts that Services of a namespace may have connections of, and tells
// a Service of others.
func (t *translation) ownHosts(by claimant, namespace string, hosts []string) []string {
	return slices.DeleteFunc(slices.Clone(hosts), func(host string) bool {
		s, o := t.standingOf(ingress{Ref: diag.Object{Namespace: namespace}}, hostName(host))
		switch {
		case s != strange:
			return false
		case o == nil:
			by.report(diag.Error, "tcp-sni", fmt.Sprintf("host %s is not used: it is in a domain that is reserved for other namespaces", host), "use another host")
		default:
			by.report(diag.Error, "tcp-sni", fmt.Sprintf("host %s is not used: it belongs to namespace %s, by %s", host, o.namespace(), o.by.Ref), "use a host of your own")
		}
		return true
	})
}

// mayOpen reports whether a Service may open a port, and tells it if not.
func (t *translation) mayOpen(by claimant, namespace string, port int) bool {
	allowed := t.cfg.TCPAnnotations
	listener, taken := t.cfg.Ports[port]
	switch {
	case taken:
		by.report(diag.Error, options.TCPPort, fmt.Sprintf("port %d is not opened: it is that of %s", port, listener), "use another one")
	case !allowed.AllowsPort(port):
		by.report(diag.Error, options.TCPPort, fmt.Sprintf("port %d is not opened: it is not one that annotations may open", port),
			"the configuration lists them in tcpAnnotations.ports")
	case !allowed.Namespaces.Has(namespace):
		by.report(diag.Error, options.TCPPort, fmt.Sprintf("port %d is not opened: Services of namespace %s may open none", port, namespace),
			"the configuration lists those that may in tcpAnnotations.namespaces")
	default:
		return true
	}
	return false
}

// claimPort takes the connections of a port for a Service, as far as nobody else
// has them.
func (t *translation) claimPort(w wish) {
	trusted := slices.SortedFunc(slices.Values(w.trusted), netip.Prefix.Compare)
	l := t.listeners[w.port]
	if l != nil && !slices.Equal(l.trusted, trusted) {
		w.by.report(diag.Error, "tcp-proxy-protocol", fmt.Sprintf("port %d is not opened: %s, which has it, trusts other networks", w.port, l.by.name),
			"say the same in both")
		return
	}
	if l == nil {
		l = &connectionListener{trusted: trusted, by: w.by, routes: map[string]connectionClaim{}}
	}
	var free []string
	for _, host := range orAny(w.hosts) {
		if winner, taken := l.routes[hostName(host)]; taken {
			w.by.report(diag.Error, fieldOf(host), fmt.Sprintf("%s not used: taken by %s", connectionsOf(w.port, host), winner.by.name),
				"remove one of the two, or tell them apart by the host that TLS asks for")
			continue
		}
		free = append(free, hostName(host))
	}
	if len(free) == 0 {
		return
	}
	t.listeners[w.port] = l
	route := ConnectionRoute{Backend: t.tcpBackend(w), Origin: w.by.origin}
	if w.secret != (snapshots.SecretName{}) {
		route.Terminate, route.Certificate = true, t.connectionCertificate(w)
	}
	for _, sni := range free {
		route.SNI = sni
		l.routes[sni] = connectionClaim{w.by, route}
	}
}

func orAny(hosts []string) []string {
	if len(hosts) == 0 {
		return []string{""}
	}
	return slices.Compact(slices.Sorted(slices.Values(hosts)))
}

func fieldOf(host string) string {
	if host == "" {
		return options.TCPPort
	}
	return "tcp-sni"
}

// connectionsOf names connections in a message.
func connectionsOf(port int, host string) string {
	if host == "" {
		return fmt.Sprintf("port %d is", port)
	}
	return fmt.Sprintf("host %s of port %d is", host, port)
}

// modelListeners returns the listeners as the model has them.
func (t *translation) modelListeners() []Listener {
	out := t.passthroughListener()
	for port, l := range t.listeners {
		m := Listener{Name: tcpListenerName(port), Port: port, Protocol: TCP, Trusted: l.trusted}
		for _, c := range l.routes {
			m.Routes = append(m.Routes, c.route)
		}
		out = append(out, m)
	}
	for _, l := range out {
		slices.SortFunc(l.Routes, func(a, b ConnectionRoute) int { return cmp.Compare(a.SNI, b.SNI) })
	}
	slices.SortFunc(out, func(a, b Listener) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// closesConnections is what becomes of connections that lead nowhere.
const closesConnections = "; its connections are closed"

// tcpBackend adds the backend of a wish, and returns its name. Wishes for one
// port of a Service share it, unless they send the client's address differently:
// the first part of the name, which no namespace can be before three more parts,
// tells them apart.
func (t *translation) tcpBackend(w wish) string {
	prefix := "tcp"
	if w.send > 0 {
		prefix = fmt.Sprintf("tcp-v%d", w.send)
	}
	service, exists := t.services[w.service]
	r := t.resolveTarget(w, service, exists)
	if f := r.finding; f.message != "" {
		w.by.report(f.severity, "target", f.message+closesConnections, f.hint)
	}
	name := prefix + "_" + r.name
	b := t.connectionBackend(name, r, w.by.origin, func(b *Backend) bool {
		closed := exists && t.equipConnections(b, service, options.Values{}, nil)
		if w.send > 0 {
			t.upstream(b).ProxyProtocol = w.send
		}
		return closed
	})
	return b.Name
}

// connectionBackend returns the backend of a name, which it makes and equips if
// it is new; equip reports whether it has to stay closed.
func (t *translation) connectionBackend(name string, r resolved, origin Origin, equip func(*Backend) (closed bool)) *Backend {
	b := t.connections[name]
	if b == nil {
		b = &Backend{Name: name, Targets: r.targets}
		t.connections[name] = b
		if equip(b) {
			b.Targets = nil
		}
	}
	if origin.Object != (diag.Object{}) {
		b.Origins = append(b.Origins, origin)
	}
	return b
}

// equipConnections gives a backend what its Service, and an Ingress that passes
// TLS connections on to it, ask for. It reports whether something that protects cannot be had.
func (t *translation) equipConnections(b *Backend, service inputs.Object[corev1.Service], asked options.Values, ing *ingress) (closed bool) {
	offered := t.serviceOptions(service)
	settings, problems, closed := options.ForConnections(ing != nil, asked, offered)
	if ing != nil {
		t.reportProblems(ing.Ref, ing.Position, problems[0])
	}
	t.reportProblems(service.Ref, service.Position, problems[1])
	if name := offered.First(); name != "" {
		b.Origins = append(b.Origins, originOf(service, "metadata", "annotations", name))
	}
	by := asker{ingress: ingress{Ref: diag.Object{Namespace: service.Ref.Namespace}}, service: &service, values: []options.Values{asked, offered}}
	if ing != nil {
		by.ingress = *ing
	}
	closed = !t.findLists(&settings.Protection, by) || closed
	if p := settings.Protection; p.Any() {
		b.Protection = &p
	}
	u := settings.Upstream
	t.nameSecrets(u.TLS, settings.ServerSecrets, by)
	b.Upstream = &u
	return closed
}

// upstream returns what is said of the servers of a backend, to be added to.
func (t *translation) upstream(b *Backend) *policy.Upstream {
	if b.Upstream == nil {
		b.Upstream = &policy.Upstream{Protocol: policy.Opaque}
	}
	return b.Upstream
}

// resolveTarget finds the port of the Service that a wish leads to.
func (t *translation) resolveTarget(w wish, service inputs.Object[corev1.Service], exists bool) resolved {
	if !exists {
		return resolved{name: backendName(w.service, orPort(w)), finding: finding{
			diag.Warning, nil, fmt.Sprintf("Service %s does not exist", w.service), "create it, or correct the name",
		}}
	}
	ref := networkingv1.ServiceBackendPort{Name: w.target}
	if n, err := strconv.Atoi(w.target); err == nil {
		ref = networkingv1.ServiceBackendPort{Number: int32(n)}
	}
	if w.target == "" {
		ref.Number = portFor(service.Value.Spec.Ports, int32(w.port))
	}
	return t.resolvePort(service.Value, w.service, ref, orPort(w))
}

func orPort(w wish) string {
	if w.target == "" {
		return strconv.Itoa(w.port)
	}
	return w.target
}

// portFor returns the only port of a Service, or else the wanted one.
func portFor(ports []corev1.ServicePort, wanted int32) int32 {
	if len(ports) == 1 {
		return ports[0].Port
	}
	return wanted
}

// connectionCertificate returns the file of a wish's certificate, which is
// referenced even if it cannot be served as it is here.
func (t *translation) connectionCertificate(w wish) string {
	const without = "connections get the default certificate"
	c, missing := t.certificateOf(w.secret, w.by.origin, without)
	switch {
	case missing:
		w.by.report(diag.Warning, "tcp-tls-secret", fmt.Sprintf("Secret %s does not exist here", w.secret), without+" until it does"+t.wherePushed())
	case c.Observed != nil:
		t.checkCovers(w, c.Observed.Names)
	}
	return c.File
}

// checkCovers warns of hosts of a wish that its certificate is not for.
func (t *translation) checkCovers(w wish, names []string) {
	for _, host := range w.hosts {
		if !covers(names, host) {
			w.by.report(diag.Warning, "tcp-tls-secret", fmt.Sprintf("the certificate in Secret %s is not for host %s", w.secret, host), "clients will refuse it")
		}
	}
}
