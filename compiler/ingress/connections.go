package ingress

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler/access"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/routing/hostname"
	"github.com/hapsnap/hapsnap/compiler/routing/ownership"
	"github.com/hapsnap/hapsnap/internal/printable"
	"github.com/hapsnap/hapsnap/snapshots"
)

// claimant asks for a port. It is an entry of the configuration, or a Service.
type claimant struct {
	name   string // its name in messages for others
	origin routing.Origin
	report func(severity diag.Severity, field, message, hint string)
}

// wish is what a claimant asks of a port. In messages, its fields have the names that the claimant uses.
type wish struct {
	by      claimant
	port    int
	service types.NamespacedName
	target  string // the name or number of the Service's port; "" if the Service decides
	hosts   []string
	secret  snapshots.SecretName // zero if TLS does not end here
	trusted []netip.Prefix
	send    int // the version of the PROXY protocol, or 0
}

// connections are the ports for connections, and the TLS connections that are passed through.
type connections struct {
	*findings
	cfg       *Config
	resolver  resolver
	hosts     *hosts
	certs     *certificates
	access    *access.Taker
	listeners map[int]*connectionListener // by port
	backends  map[string]*routing.Backend
}

// connectionListener is a listener while it is made, with the owners of its routes.
type connectionListener struct {
	trusted []netip.Prefix
	by      claimant
	routes  map[string]connectionClaim // by SNI
}

type connectionClaim struct {
	by    claimant
	route routing.ConnectionRoute
}

// tcpServices opens the ports that are asked for. The configuration takes precedence over Services, and older Services
// over younger ones.
func (t *connections) tcpServices(services []inputs.Object[corev1.Service]) {
	for i, entry := range t.cfg.TCPServices {
		t.claimPort(configuredWish(t.findings, i, entry))
	}
	var asking []inputs.Object[corev1.Service]
	for _, s := range services {
		if _, asks := s.Value.Annotations[options.Prefix+options.TCPPort]; asks {
			asking = append(asking, s)
		}
	}
	slices.SortFunc(asking, func(a, b inputs.Object[corev1.Service]) int {
		return cmp.Or(ownership.CompareTimes(a.Value.CreationTimestamp, b.Value.CreationTimestamp), a.Ref.Compare(b.Ref))
	})
	for _, s := range asking {
		t.annotatedService(s)
	}
}

// configuredWish returns what an entry of the configuration asks for.
func configuredWish(f *findings, i int, entry config.TCPService) wish {
	namespace, name, port := entry.Target()
	secretNamespace, secret := entry.CertificateSecret()
	place := fmt.Sprintf("spec.tcpServices[%d]", i)
	fields := map[string]string{options.TCPPort: ".port", "target": ".service", "tcp-sni": ".sni", "tcp-tls-secret": ".tls.secret", "tcp-proxy-protocol": ".proxyProtocol"}
	return wish{
		by: claimant{
			name: place + " of the configuration",
			report: func(severity diag.Severity, field, message, hint string) {
				f.add(diag.Diagnostic{Severity: severity, Message: place + fields[field] + ": " + message, Hint: hint})
			},
		},
		port: entry.Port, service: types.NamespacedName{Namespace: namespace, Name: name}, target: port,
		hosts: entry.SNI, secret: snapshots.SecretName{Namespace: secretNamespace, Name: secret},
		trusted: entry.ProxyProtocol.Networks(), send: entry.SendProxyProtocol,
	}
}

// annotatedService opens the ports that a Service asks for, if it may. If one of its options for them cannot be used,
// it opens none.
func (t *connections) annotatedService(s inputs.Object[corev1.Service]) {
	values, problems := options.Read(options.OnService, s.Value.Annotations)
	t.add(options.Diagnostics(s.Ref, s.Position, problems)...)
	for name := range s.Value.Annotations {
		if option, ok := strings.CutPrefix(name, options.Prefix+"tcp-"); ok && !values.Has("tcp-"+option) {
			return // this was reported
		}
	}
	settings, _, _ := options.Resolve(values)
	by := claimant{
		name: s.Ref.String(), origin: originOf(s, annotationPath(options.TCPPort)...),
		report: func(severity diag.Severity, field, message, hint string) {
			if field == "target" {
				field = options.TCPPort
			}
			t.add(diag.Diagnostic{
				Severity: severity, Position: s.Position(annotationPath(field)...), Object: s.Ref,
				Message: "annotation " + options.Prefix + field + ": " + message, Hint: hint,
			})
		},
	}
	c := settings.Connections
	w := wish{by: by, service: types.NamespacedName{Namespace: s.Ref.Namespace, Name: s.Ref.Name}, hosts: c.SNI, trusted: c.Trusted}
	if c.Secret != "" {
		w.secret = snapshots.SecretName{Namespace: s.Ref.Namespace, Name: c.Secret}
	}
	// The Service gets a finding for each host whose connections its namespace may not have.
	w.hosts = slices.DeleteFunc(slices.Clone(c.SNI), func(host string) bool {
		standing, o := t.hosts.owners.StandingOf(s.Ref.Namespace, hostname.Of(host))
		switch {
		case standing != ownership.Strange:
			return false
		case o == nil:
			by.report(diag.Error, "tcp-sni", fmt.Sprintf("host %s is not used: it is in a domain that is reserved for other namespaces", host), "use another host")
		default:
			by.report(diag.Error, "tcp-sni", fmt.Sprintf("host %s is not used: it belongs to namespace %s, by %s", host, o.Namespace(), o.By.Ref), "use a host of your own")
		}
		return true
	})
	if len(w.hosts) < len(c.SNI) && len(w.hosts) == 0 {
		return
	}
	for _, p := range c.Ports {
		if t.mayOpen(by, s.Ref.Namespace, p.Port) {
			w.port, w.target = p.Port, p.Target
			t.claimPort(w)
		}
	}
}

// mayOpen reports whether a Service may open a port. If not, it adds a finding.
func (t *connections) mayOpen(by claimant, namespace string, port int) bool {
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

// claimPort claims the connections to a port for a Service, except those that another object already has.
func (t *connections) claimPort(w wish) {
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
		if winner, taken := l.routes[hostname.Of(host)]; taken {
			w.by.report(diag.Error, fieldOf(host), fmt.Sprintf("%s not used: taken by %s", connectionsOf(w.port, host), winner.by.name),
				"remove one of the two, or tell them apart by the host that TLS asks for")
			continue
		}
		free = append(free, hostname.Of(host))
	}
	if len(free) == 0 {
		return
	}
	t.listeners[w.port] = l
	// The wishes for one port of a Service share a backend, unless they send the client's address in different ways.
	// The first part of the name tells these backends apart. It cannot be mistaken for a namespace, since three more
	// parts follow.
	prefix := "tcp"
	if w.send > 0 {
		prefix = fmt.Sprintf("tcp-v%d", w.send)
	}
	service, exists := t.resolver.service(w.service)
	r := t.resolveTarget(w, service, exists)
	if f := r.finding; f != nil {
		w.by.report(f.severity, "target", f.message+closesConnections, f.hint)
	}
	d := &connectionDemand{backend: routing.Backend{Name: prefix + "_" + r.name, Targets: r.targets}}
	if exists {
		d.addOptions(service, options.Values{}, nil, nil)
	}
	if w.send > 0 {
		if d.backend.Upstream == nil {
			d.backend.Upstream = &policy.Upstream{Protocol: policy.Opaque}
		}
		d.backend.Upstream.ProxyProtocol = w.send
	}
	route := routing.ConnectionRoute{Backend: t.connectionBackend(d, w.by.origin).Name, Origin: w.by.origin}
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

// connectionsOf returns words for some connections, for a message.
func connectionsOf(port int, host string) string {
	if host == "" {
		return fmt.Sprintf("port %d is", port)
	}
	return fmt.Sprintf("host %s of port %d is", host, port)
}

// modelListeners returns the listeners in the form of the model.
func (t *connections) modelListeners() []routing.Listener {
	out := t.passthroughListener()
	for port, l := range t.listeners {
		m := routing.Listener{Name: routing.TCPListenerName(port), Port: port, Protocol: routing.TCP, Trusted: l.trusted}
		for _, c := range l.routes {
			m.Routes = append(m.Routes, c.route)
		}
		out = append(out, m)
	}
	for _, l := range out {
		slices.SortFunc(l.Routes, func(a, b routing.ConnectionRoute) int { return cmp.Compare(a.SNI, b.SNI) })
	}
	slices.SortFunc(out, func(a, b routing.Listener) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// closesConnections says what happens to connections that lead nowhere.
const closesConnections = "; its connections are closed"

// connectionBackend returns the backend for a demand for connections. It makes the backend if it is new.
func (t *connections) connectionBackend(d *connectionDemand, origin routing.Origin) *routing.Backend {
	b := t.backends[d.backend.Name]
	if b == nil {
		made := d.backend
		b = &made
		t.backends[b.Name] = b
		t.add(d.found...)
		b.Origins = slices.Clone(d.origins)
		if !t.access.Lists(d.lists) || d.closed {
			b.Targets = nil
		}
		t.certs.takeForServers(d.secrets)
	}
	if origin.Object != (diag.Object{}) {
		b.Origins = append(b.Origins, origin)
	}
	return b
}

// resolveTarget finds the Service port to which a wish leads.
func (t *connections) resolveTarget(w wish, service inputs.Object[corev1.Service], exists bool) resolved {
	if !exists {
		return resolved{name: backendName(w.service, orPort(w)), finding: &finding{
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
	return t.resolver.port(service.Value, w.service, ref, orPort(w))
}

func orPort(w wish) string {
	if w.target == "" {
		return strconv.Itoa(w.port)
	}
	return w.target
}

// portFor returns the port of a Service: the only one, or if there are several, the wanted one.
func portFor(ports []corev1.ServicePort, wanted int32) int32 {
	if len(ports) == 1 {
		return ports[0].Port
	}
	return wanted
}

// connectionCertificate returns the file with the certificate for a wish. The model refers to it even if it cannot be
// served now.
func (t *connections) connectionCertificate(w wish) string {
	const without = "connections get the default certificate"
	c, missing := t.certs.of(w.secret, w.by.origin, without)
	switch {
	case missing:
		w.by.report(diag.Warning, "tcp-tls-secret", fmt.Sprintf("Secret %s does not exist here", w.secret), without+" until it does"+t.certs.wherePushed())
	case c.Observed != nil:
		for _, host := range w.hosts {
			if !hostname.Covers(c.Observed.Names, host) {
				w.by.report(diag.Warning, "tcp-tls-secret", fmt.Sprintf("the certificate in Secret %s is not for host %s", w.secret, host), "clients will refuse it")
			}
		}
	}
	return c.File
}

// passthroughOption names the option in findings about connections that are passed through.
const passthroughOption = "annotation " + options.Prefix + "ssl-passthrough "

// hostClaim is the first object with a host. It decides what happens to TLS connections for the host. If it names a
// backend, they are passed through to it.
type hostClaim struct {
	by      ownership.Claimant
	backend string
	origin  routing.Origin
}

// take decides what happens to TLS connections for a host that a rule names. Only one Ingress can decide where a host's
// connections end. That is the oldest Ingress with the host in the namespace that owns the host. passes says that the
// Ingress wants the connections passed through.
func (t *connections) take(by ownership.Claimant, r rule, passes bool) {
	at, host, key := r.origin, r.host, r.key
	winner, taken := t.hosts.passed[key]
	standing, owner := t.hosts.owners.StandingOf(by.Ref.Namespace, key)
	if standing == ownership.Owns && taken && owner != nil && winner.by.Ref.Namespace != by.Ref.Namespace {
		taken = false // another namespace had it until an Ingress of the owner came
	}
	switch {
	case !taken && standing != ownership.Owns:
		if passes {
			t.hosts.mayDecide(by, at.Position, strings.TrimSpace(passthroughOption), host)
		}
		t.hosts.passed[key] = hostClaim{by: by, origin: at}
	case taken && winner.by.Ref == by.Ref:
	case taken && passes:
		t.reportLost(diag.Error, by, winner.by, at.Position, passthroughOption+"has no effect for host "+host+": its TLS connections belong to "+winner.by.Precedes(by),
			"give it a host of its own"+winnerAt(winner.origin))
	case taken && winner.backend != "":
		t.reportLost(diag.Warning, by, winner.by, at.Position, "TLS connections for host "+host+" do not get here: they are passed on as they are by "+winner.by.Precedes(by),
			"only requests in the clear do"+winnerAt(winner.origin))
	case taken:
	default:
		claim := hostClaim{by: by, origin: at}
		if passes {
			claim.backend = t.passOn(by, r)
		}
		t.hosts.passed[key] = claim
	}
}

// passOn returns the backend for the connections of a host, "" if there can be none.
func (t *connections) passOn(by ownership.Claimant, r rule) string {
	at, host := r.origin, r.host
	switch {
	case t.cfg.HTTPSPort == 0:
		t.report(diag.Warning, by, at.Position, passthroughOption+"has no effect: nothing listens for HTTPS", "")
		return ""
	case host == "":
		t.report(diag.Error, by, at.Position, passthroughOption+"has no effect for a rule without a host: there is none that TLS could ask for", "name the host")
		return ""
	}
	root := slices.IndexFunc(r.paths, func(p path) bool { return p.passed != nil })
	for j, p := range r.paths {
		if j != root {
			t.report(diag.Warning, by, p.origin.Position,
				"path "+printable.Quoted(orSlash(p.text))+ofHost(host)+" is for requests in the clear only: TLS connections are passed on as they are", "only a path / of type Prefix says where to")
		}
	}
	if root < 0 {
		t.report(diag.Error, by, at.Position, passthroughOption+"has no effect for host "+host+": no path / of type Prefix says where its connections go", "add one")
		return ""
	}
	return t.connectionBackend(r.paths[root].passed, at).Name
}

// passthroughListener returns the listener for HTTPS if it passes any connection through. Its routes also include hosts
// that are not passed through, if a wildcard above them is.
func (t *connections) passthroughListener() []routing.Listener {
	l := routing.Listener{Name: "https", Port: t.cfg.HTTPSPort, Protocol: routing.HTTPS}
	// The TLS connections of a host end here if the wildcard that matches it does not decide about it.
	for _, host := range t.hosts.owners.Apart() {
		if _, known := t.hosts.passed[host]; known {
			continue
		}
		c := hostClaim{}
		if o := t.hosts.owners.First(host); o != nil {
			if t.hosts.isReleased(o) {
				continue
			}
			c.by, c.origin = o.By, o.Origin()
		}
		t.hosts.passed[host] = c
	}
	for host, c := range t.hosts.passed {
		_, parent, _ := strings.Cut(host, ".")
		switch wildcard := t.hosts.passed["."+parent]; {
		case c.backend != "":
			l.Routes = append(l.Routes, routing.ConnectionRoute{SNI: host, Backend: c.backend, Origin: c.origin})
		case host != "" && !strings.HasPrefix(host, ".") && wildcard.backend != "":
			l.Routes = append(l.Routes, routing.ConnectionRoute{SNI: host, Terminate: true, Origin: c.origin})
		}
	}
	if len(l.Routes) == 0 {
		return nil
	}
	return []routing.Listener{l}
}
