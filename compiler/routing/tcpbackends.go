package routing

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/policy"
)

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
