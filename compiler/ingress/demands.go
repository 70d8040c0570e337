package ingress

import (
	"fmt"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler/access"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/snapshots"
)

// demand is a backend to which an Ingress wants to send requests.
type demand struct {
	resolved
	// origins has the field that names the backend. The backends of models share it, one after the other.
	origins []routing.Origin
	// problem says why there are no targets. It is nil if there are. It does not say yet what happens to the requests.
	problem *diag.Diagnostic
	// options are what the backend should have. They are nil for a canary.
	options *backendOptions
}

// backendOptions is what the Ingress and the Service ask of a backend. It only names Secrets and ConfigMaps, and does
// not read them.
type backendOptions struct {
	found   []diag.Diagnostic
	origins []routing.Origin // origins of the options, besides the Ingress itself
	// plain says that there are no options.
	plain bool
	// closed says that something that protects the backend cannot be used, whatever other objects there are.
	closed  bool
	lists   access.Lists
	users   *access.Users
	auth    *access.Service
	policy  *access.Policy
	snippet []routing.SnippetLine
	// refused says why the lines of a snippet are not allowed, or why an agent may not be asked.
	refused  *diag.Diagnostic
	filters  []policy.Filter
	protects *policy.Protection
	upstream *policy.Upstream
	secrets  []secretDemand
}

// plainBackend is what most backends have: no options, and no findings. It is not changed.
var plainBackend = &backendOptions{plain: true}

// secretDemand is a Secret that is needed for TLS to servers.
type secretDemand struct {
	secret    snapshots.SecretName
	authority bool
	spot      access.Spot
	without   string // what happens while the Secret does not exist
}

// asker has the objects whose options a backend gets: an Ingress, with the Service to which it leads if that exists, or
// the Service alone. Both are in one namespace.
type asker struct {
	namespace string
	ingress   *ingress
	class     *parameters
	service   *service
	values    []options.Values // of the Ingress, then of the Service
}

// spot returns the object and the position of the value that applies for an option.
func (a asker) spot(option string) access.Spot {
	giver := options.Giver(option, a.values...)
	if giver == 0 && a.class != nil && a.values[0].Inherits(option) {
		return access.Spot{Origin: a.class.originOf(options.Prefix + option), Title: "parameter " + option}
	}
	title := "annotation " + options.Prefix + option
	if giver == 1 && a.service != nil {
		return access.Spot{Origin: originOf(*a.service, annotationPath(option)...), Title: title}
	}
	if a.ingress == nil {
		return access.Spot{Origin: routing.Origin{Object: diag.Object{Namespace: a.namespace}}, Title: title}
	}
	return access.Spot{Origin: originOf(*a.ingress, annotationPath(option)...), Title: title}
}

// secret names a Secret in the namespace of the objects.
func (a asker) secret(name string) snapshots.SecretName {
	return snapshots.SecretName{Namespace: a.namespace, Name: name}
}

// demandMaker makes the demands of one Ingress. It reads the options of a backend once for all paths.
type demandMaker struct {
	source
	wishes  *wishes
	options map[string]*backendOptions
}

// demand returns the backend to which a reference of the Ingress leads. References to the same port by name and by
// number lead to the same backend. An Ingress that asks for something of its requests has backends of its own.
func (m demandMaker) demand(ref networkingv1.IngressBackend, at []any) demand {
	r := m.resolver().resolve(m.ingress.Ref.Namespace, ref)
	if ref.Service != nil {
		r.service = types.NamespacedName{Namespace: m.ingress.Ref.Namespace, Name: ref.Service.Name}
		if m.wishes.needsOwnBackend {
			r.name += "." + m.ingress.Ref.Name
		}
	}
	d := m.plainDemand(r, at)
	if d.options = m.options[r.name]; d.options == nil {
		d.options = m.optionsOf(r)
		m.options[r.name] = d.options
	}
	return d
}

// plainDemand returns a demand without options.
func (s source) plainDemand(r resolved, at []any) demand {
	d := demand{resolved: r, origins: []routing.Origin{originOf(s.ingress, at...)}}
	if f := r.finding; f != nil {
		problem := s.report(f.severity, s.ingress.Position(sub(at, f.field...)...), f.message, f.hint)
		d.problem = &problem
	}
	return d
}

// optionsOf returns what the Ingress and its Service ask of a new backend. If something that protects the backend
// cannot be used, the backend serves nothing.
func (m demandMaker) optionsOf(r resolved) *backendOptions {
	out := &backendOptions{}
	service, exists := m.service(r.service)
	var offered options.Values
	var foreign []diag.Diagnostic
	if exists {
		var problems []options.Problem
		offered, problems = options.Read(options.OnService, service.Value.Annotations)
		foreign = m.foreignOfService(service, m.ingress.Value.Annotations)
		out.found = append(options.Diagnostics(service.Ref, service.Position, problems), foreign...)
	}
	if r.name == routing.Unavailable || (len(foreign) == 0 && !m.wishes.needsOwnBackend && !offered.NeedsBackend() && !r.port.NeedsBackend()) {
		if len(out.found) == 0 {
			return plainBackend // as nearly always
		}
		out.plain = true // all references that lead nowhere share one backend
		return out
	}
	by := asker{namespace: m.ingress.Ref.Namespace, ingress: &m.ingress, class: m.wishes.class, values: []options.Values{m.wishes.values.Inherit(r.port), offered}}
	if exists {
		by.service = &service
	}
	settings, problems, closed := options.Resolve(by.values...)
	out.closed = closed || len(foreign) > 0
	out.found = append(out.found, askedProblems(m.ingress, m.wishes.class, problems[0])...)
	if exists {
		out.found = append(out.found, options.Diagnostics(service.Ref, service.Position, problems[1])...)
	}
	if m.wishes.class != nil {
		out.origins = append(out.origins, m.wishes.class.origin)
	}
	if name := offered.First(); name != "" {
		out.origins = append(out.origins, originOf(service, "metadata", "annotations", name))
	}
	who := m.asks(by)
	out.lists = access.FindLists(&settings.Protection, who)
	if settings.Basic != nil {
		out.users = access.FindUsers(&settings, who)
	}
	if settings.External != nil {
		out.auth = access.FindService(&settings, who)
	}
	if settings.WAF != nil {
		out.policy = access.FindPolicy(&settings, who)
	}
	m.addSnippet(out, settings.Snippet)
	if d := access.FindAgents(&settings, who); d != nil && out.refused == nil {
		out.refused = d
	}
	if out.refused != nil || out.auth != nil && out.auth.Refused != nil {
		return out // the backend is closed
	}
	out.filters = settings.Filters()
	if p := settings.Protection; p.Any() {
		out.protects = &p
	}
	if u := settings.Upstream; u != (policy.Upstream{}) {
		nameCookie(&u, r)
		out.secrets = nameSecrets(&u, settings.ServerSecrets, by)
		out.upstream = &u
	}
	return out
}

// asks returns an asker in the form of package access.
func (s source) asks(by asker) access.Asker {
	return access.Asker{
		Namespace: by.namespace, Spot: by.spot, SharedServices: s.scope.sharedAuthServices, Inspection: s.scope.inspection, Service: s.service,
		Port: func(service service, number int) access.Port {
			name := types.NamespacedName{Namespace: service.Ref.Namespace, Name: service.Ref.Name}
			r := s.resolver().port(service.Value, name, networkingv1.ServiceBackendPort{Number: int32(number)}, fmt.Sprint(number))
			port := access.Port{Name: r.name, Targets: r.targets}
			if f := r.finding; f != nil {
				port.Message, port.Hint = f.message, f.hint
			}
			return port
		},
	}
}

// addSnippet adds the lines of haproxy.cfg that the Ingress brings, if it may bring any.
func (m demandMaker) addSnippet(out *backendOptions, lines []policy.Line) {
	if len(lines) == 0 {
		return
	}
	at := originOf(m.ingress, annotationPath(options.SnippetOption)...)
	if !m.scope.snippets.Has(m.ingress.Ref.Namespace) {
		d := m.report(diag.Error, at.Position,
			fmt.Sprintf("annotation %s is not allowed in namespace %s; its routes answer 503", options.Prefix+options.SnippetOption, m.ingress.Ref.Namespace),
			"the configuration lists the namespaces that may in snippets.namespaces")
		out.refused = &d
		return
	}
	for _, line := range lines {
		out.snippet = append(out.snippet, routing.SnippetLine{Line: line, Origin: at})
	}
}

// nameCookie gives the session cookie its name.
func nameCookie(u *policy.Upstream, r resolved) {
	if u.Affinity == nil {
		return
	}
	of := r.service.String()
	if len(r.targets) > 0 {
		of = r.targets[0].Service.String()
	}
	named := u.Affinity.Named(of)
	u.Affinity = &named
}

// ofServers says what happens while the client certificate for servers cannot be used.
const ofServers = "endpoints get a certificate that nobody trusts"

// nameSecrets sets the files of the Secrets that are needed for TLS to servers, and returns these Secrets. It also sets
// the files of Secrets that cannot be used now, since they may be mended when the snapshot is pushed. Until then no
// server is accepted without authorities, and servers get a certificate that nobody trusts.
func nameSecrets(u *policy.Upstream, secrets options.ServerSecrets, by asker) []secretDemand {
	if secrets.Authorities == "" && secrets.Certificate == "" {
		return nil
	}
	var out []secretDemand
	tls := *u.TLS
	u.TLS = &tls
	if name := secrets.Authorities; name != "" {
		out = append(out, secretDemand{by.secret(name), true, by.spot("backend-ca-secret"), "no endpoint is accepted"})
		tls.Authorities = routing.AuthorityFile(by.secret(name))
	}
	if name := secrets.Certificate; name != "" {
		out = append(out, secretDemand{by.secret(name), false, by.spot("backend-client-secret"), ofServers})
		tls.Certificate = routing.CertificateFile(by.secret(name))
	}
	return out
}

// connectionDemand is a backend for whole connections.
type connectionDemand struct {
	backend routing.Backend // without origins
	origins []routing.Origin
	found   []diag.Diagnostic
	closed  bool // something that protects it is wrong, whatever other objects there are
	lists   access.Lists
	secrets []secretDemand
}

// passOn returns the demand for the backend of TLS connections that an Ingress passes through. The name begins with
// "tls_". Names of other backends begin with a namespace, which contains no underscore. The findings about the route
// say what is wrong with it.
func (s source) passOn(c *claims, ref networkingv1.IngressBackend) *connectionDemand {
	r := s.resolver().resolve(s.ingress.Ref.Namespace, ref)
	if ref.Service == nil {
		return &connectionDemand{backend: routing.Backend{Name: "tls_" + routing.Unavailable}, closed: true}
	}
	d := &connectionDemand{backend: routing.Backend{Name: "tls_" + r.name + "." + s.ingress.Ref.Name, Targets: r.targets}}
	if service, exists := s.service(types.NamespacedName{Namespace: s.ingress.Ref.Namespace, Name: ref.Service.Name}); exists {
		d.addOptions(service, c.values, &s.ingress, c.class)
		foreign := s.foreignOfService(service, s.ingress.Value.Annotations)
		d.found, d.closed = append(d.found, foreign...), d.closed || len(foreign) > 0
	}
	return d
}

// addOptions gives a backend for connections what its Service asks for, and what an Ingress that passes TLS connections
// through to it asks for.
func (d *connectionDemand) addOptions(service service, asked options.Values, ing *ingress, class *parameters) {
	offered, said := options.Read(options.OnService, service.Value.Annotations)
	settings, problems, closed := options.ForConnections(ing != nil, asked, offered)
	d.found = append(d.found, options.Diagnostics(service.Ref, service.Position, said)...)
	if ing != nil {
		d.found = append(d.found, options.Diagnostics(ing.Ref, ing.Position, problems[0])...)
	}
	d.found = append(d.found, options.Diagnostics(service.Ref, service.Position, problems[1])...)
	if name := offered.First(); name != "" {
		d.origins = append(d.origins, originOf(service, "metadata", "annotations", name))
	}
	by := asker{namespace: service.Ref.Namespace, ingress: ing, class: class, service: &service, values: []options.Values{asked, offered}}
	d.lists, d.closed = access.FindLists(&settings.Protection, access.Asker{Namespace: by.namespace, Spot: by.spot}), closed
	if p := settings.Protection; p.Any() {
		d.backend.Protection = &p
	}
	u := settings.Upstream
	d.secrets = nameSecrets(&u, settings.ServerSecrets, by)
	d.backend.Upstream = &u
}
