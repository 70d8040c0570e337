package ingress

import (
	"maps"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/routing/ownership"
	"github.com/hapsnap/hapsnap/internal/manifests"
	"github.com/hapsnap/hapsnap/snapshots"
)

// Translate returns what the Ingresses that are ours mean, and the findings on
// them, sorted. It is a pure function; the order of the inputs takes no part.
// An Ingress that breaks a rule of the API is left out as a whole, unless it
// protects something: then its routes answer 503. Of one with a path that cannot be
// matched, that path is left out. Of two that claim the same, the older one gets it.
func Translate(in inputs.Inputs, cfg Config) (routing.Model, []diag.Diagnostic) {
	return (*Memo)(nil).Translate(in, cfg)
}

// Translate is [Translate] with the claims that the Memo remembers.
func (m *Memo) Translate(in inputs.Inputs, cfg Config) (routing.Model, []diag.Diagnostic) {
	t := newMerge(in, cfg.withDefaults())
	claimer := m.claimer(in, t)
	ours := claimer.candidates(in, t)
	limit(ours, t.cfg.Limits)
	t.findOwners(ours)
	t.bar(ours)
	var canaries []*claims
	for _, c := range ours {
		if t.leftOut(c.outline) {
			t.held = append(t.held, c.outline)
			continue
		}
		if c.broken { // what is wrong with it was said when it was read
			t.close(c)
			continue
		}
		if c.over != nil {
			t.add(*c.over)
			t.close(c)
			continue
		}
		claims := c.claims()
		for _, d := range claims.unusable {
			t.add(d)
		}
		if len(claims.faults) > 0 || c.isCanary && len(claims.unusable) > 0 || t.cfg.Refused[c.Ref] {
			t.add(claims.faults...)
			t.close(c)
			continue
		}
		if claims.foreignCanary != nil {
			t.add(claims.foreignCanary...)
			continue
		}
		if c.isCanary {
			canaries = append(canaries, claims)
			continue
		}
		t.merge(claims, c.protects != "")
	}
	claimer.remember()
	t.tcpServices(in.Services)
	t.standard = t.certs.takeDefault()
	for _, c := range canaries {
		t.canary(c)
	}
	t.dropReplaced()
	t.reportSharedCookies(t.hosts, t.backends)
	t.tellOwners()
	return t.model(), bounded(t.all)
}

// candidate is an Ingress of ours.
type candidate struct {
	*outline
	broken bool             // it breaks its schema
	over   *diag.Diagnostic // a limit
	claims func() *claims
	closed func() *claims
	cut    func(routes int)
}

// merge collects the model of one call of [Translate] from the claims of all Ingresses, oldest
// first. What the claims depend on was decided when they were made; here is decided who gets what,
// and joined what claims only name.
type merge struct {
	*findings
	cfg      Config
	services map[snapshots.SecretName]service
	resolver resolver
	owners   *ownership.Owners
	certs    *certificates
	names    *serverNames
	lists    *networkLists
	users    *userlists
	pages    []routing.ErrorPage
	asked    func() routing.Asked

	turn turn // of the Ingress whose claims are merged

	routed      map[string]bool // hosts of the model that a rule or an alias names
	hosts       map[string]*virtualHost
	backends    map[string]*routing.Backend
	aliases     map[diag.Object][]string
	replaced    map[string]bool // backends that a route has left
	closed      map[string]bool // backends that lack what is to protect them
	fallback    *claim          // of the default backend
	expressions map[string]int  // how many, by namespace
	standard    string          // the file of the default certificate

	listeners   map[int]*connectionListener // by port
	connections map[string]*routing.Backend
	passed      map[string]hostClaim // by host

	held     []*outline              // that are left out, and protect nothing
	shutOnes []diag.Object           // Ingresses: see [merge.deny]
	barred   map[barring]diag.Object // by which dropped Ingress: see [merge.bar]
}

// turn is what holds while the claims of one Ingress are merged.
type turn struct {
	*claims
	aliases []string // that it may have
	// denied says that the Ingress cannot be translated, and that its routes are
	// to refuse requests rather than leave them to others.
	denied bool
	// refused says that what is asked of TLS clients cannot be had, and that the routes answer 503.
	refused bool
	// protects says that paths which cannot be matched are closed.
	protects bool
	// exactPaths and expressions are those of the claims, but for what is closed.
	exactPaths, expressions bool
}

// virtualHost is a host with its routes, by what they match.
type virtualHost struct {
	origin routing.Origin
	form   routing.PathForm
	// held says that a rule for the host was left out, so that more than its routes are its
	// owner's.
	held   bool
	open   bool // an Ingress of its owner serves it to clients without a certificate too
	routes map[routing.PathMatch]claim
	// expressions are the paths of routes that are some.
	expressions []string
}

// claim is a route or default backend, and the Ingress that has it.
type claim struct {
	by      *claims
	backend string
	origin  routing.Origin
	guard   guarding
	// before are routes for the same path that are tried first, and sharedBy is
	// the canary that they are for.
	before   []routing.Route
	sharedBy *claims
	// fallback is the backend for when the others have no usable server, or "".
	fallback string
}

func newMerge(in inputs.Inputs, cfg Config) *merge {
	t := &merge{
		findings: &findings{}, cfg: cfg, services: byName(in.Services),
		owners: ownership.New(ownership.Rules{Owned: cfg.OwnedHosts, Shared: cfg.SharedHosts, Reserved: cfg.ReservedDomains}),

		routed:      map[string]bool{},
		hosts:       map[string]*virtualHost{},
		backends:    map[string]*routing.Backend{},
		aliases:     map[diag.Object][]string{},
		replaced:    map[string]bool{},
		closed:      map[string]bool{},
		expressions: map[string]int{},
		listeners:   map[int]*connectionListener{},
		connections: map[string]*routing.Backend{},
		passed:      map[string]hostClaim{},
		barred:      map[barring]diag.Object{},
	}
	t.resolver = resolver{cfg.ExternalNames, t.service}
	secrets, configMaps := newLookup(in.Secrets), newLookup(in.ConfigMaps)
	t.asked = func() routing.Asked {
		return routing.Asked{Secrets: secrets.names(), ConfigMaps: configMaps.names()}
	}
	t.certs = &certificates{findings: t.findings, secrets: secrets, cfg: &t.cfg, files: map[string]*routing.Certificate{}, kinds: map[string]string{}}
	t.names = &serverNames{findings: t.findings, owners: t.owners, certs: t.certs, hosts: t.hosts, tls: map[string]*tlsClaim{}, clients: map[string]*clientClaim{}}
	t.users = &userlists{findings: t.findings, secrets: secrets, secretsUnseen: cfg.SecretsUnseen, lists: map[snapshots.SecretName]*routing.Userlist{}}
	t.lists = &networkLists{
		findings: t.findings, configMaps: configMaps, countries: &countries{findings: t.findings, cfg: &t.cfg, configMaps: configMaps}, shared: cfg.SharedLists, most: cfg.Limits.NamespaceListBytes,
		lists: map[policy.NetworkList]*routing.NetworkList{}, bytes: map[string]int{},
	}
	t.pages = errorPages(cfg.ErrorPages, configMaps, t.findings)
	return t
}

func (t *merge) service(name snapshots.SecretName) (service, bool) {
	s, exists := t.services[name]
	return s, exists
}

func byName[T any](objects []inputs.Object[T]) map[snapshots.SecretName]inputs.Object[T] {
	out := make(map[snapshots.SecretName]inputs.Object[T], len(objects))
	for _, o := range objects {
		out[snapshots.SecretName{Namespace: o.Ref.Namespace, Name: o.Ref.Name}] = o
	}
	return out
}

// leftOut reports whether an Ingress is refused and has no routes, since it protects nothing, or
// not even closed ones can be had.
func (t *merge) leftOut(o *outline) bool {
	return t.cfg.Dropped[o.Ref] || t.cfg.Refused[o.Ref] && o.protects == ""
}

// close closes the routes of an Ingress that is left out, if it protects something, and holds its
// hosts.
func (t *merge) close(c *candidate) {
	t.deny(c)
	t.hold(c.outline)
}

// originOf returns an object and the place of a field in it.
func originOf[T any](o inputs.Object[T], path ...any) routing.Origin {
	return routing.Origin{Object: o.Ref, Position: o.Position(path...), Field: manifests.FieldPath(path)}
}

// model returns what was collected, sorted.
func (t *merge) model() routing.Model {
	m := routing.Model{DefaultCertificate: t.standard, Asked: t.asked()}
	reserveHeaders(t.backends, t.cfg.AllowHeaders)
	m.Held, m.Shut = t.heldHosts(), t.shutOnes
	for _, name := range slices.Sorted(maps.Keys(t.hosts)) {
		m.Hosts = append(m.Hosts, t.modelHost(name))
	}
	m.Backends = modelBackends(t.backends)
	m.Listeners, m.ConnectionBackends = t.modelListeners(), modelBackends(t.connections)
	m.ServerNames = t.names.model()
	for _, file := range slices.Sorted(maps.Keys(t.certs.files)) {
		m.Certificates = append(m.Certificates, *t.certs.files[file])
	}
	m.Userlists, m.NetworkLists = t.users.model(), t.lists.model()
	m.Countries, m.ErrorPages = t.lists.countries.model(), t.pages
	if t.fallback != nil {
		m.Default, m.DefaultOrigin = t.fallback.backend, t.fallback.origin
	}
	return m
}

// modelBackends returns backends as the model has them.
func modelBackends(backends map[string]*routing.Backend) []routing.Backend {
	var out []routing.Backend
	for _, name := range slices.Sorted(maps.Keys(backends)) {
		b := *backends[name]
		slices.SortFunc(b.Origins, routing.Origin.Compare)
		slices.Sort(b.Prefixes)
		b.Prefixes = slices.Compact(b.Prefixes)
		b.Expressions = routing.SortExpressions(b.Expressions)
		out = append(out, b)
	}
	return out
}

// modelHost returns a virtual host as the model has it, and tells backends
// which prefixes their filters replace.
func (t *merge) modelHost(name string) routing.Host {
	h := t.hosts[name]
	out := routing.Host{Name: name, Form: h.form, Origin: h.origin}
	_, all := h.routes[routing.PathMatch{Type: routing.Prefix}]
	out.Closed = !all && t.isClosed(name, h.held)
	out.Guards = t.guards(name, out.Closed)
	for match, c := range h.routes {
		for _, r := range c.modelRoutes() {
			b := t.backends[r.Backend]
			r.Match.PathMatch, r.Filters = match, b.Filters
			out.Routes = append(out.Routes, r)
			switch {
			case !routing.ReplacesPrefix(b.Filters):
			case match.Type == routing.Expression:
				b.Expressions = append(b.Expressions, routing.NewBackendExpression(match.Path))
			default:
				b.Prefixes = append(b.Prefixes, strings.TrimSuffix(match.Path, "/"))
			}
		}
	}
	out.Expressions = h.expressionRoutes()
	t.reportUnreached(h, name)
	slices.SortStableFunc(out.Routes, func(a, b routing.Route) int { return a.Match.Compare(b.Match.PathMatch) })
	return out
}

// Mistakes returns the errors of an Ingress that are there whatever else there is, sorted:
// fields that break a rule of the API, paths that cannot be matched, values of options, and
// what another controller would have protected. It costs next to nothing. An Ingress without
// any may still be at fault beside others, or for HAProxy.
func Mistakes(ing inputs.Object[networkingv1.Ingress], cfg Config) []diag.Diagnostic {
	scope := scopeOf(cfg.withDefaults())
	s := source{ingress: ing, scope: &scope, service: func(snapshots.SecretName) (service, bool) { return service{}, false }}
	found, unusable := validate(ing, s.usesExpressions())
	if _, own := ing.Value.Annotations[options.Prefix+options.PathType]; !own {
		// Its class may say that paths are expressions.
		_, asExpressions := validate(ing, true)
		maps.DeleteFunc(unusable, func(at pathAt, _ diag.Diagnostic) bool { _, wrong := asExpressions[at]; return !wrong })
	}
	found = slices.Concat(found, slices.Collect(maps.Values(unusable)))
	_, problems := options.Read(options.OnIngress, ing.Value.Annotations)
	found = append(found, problemsOf(ing.Ref, ing.Position, problems)...)
	var c claims
	s.addForeign(&c)
	found = append(found, c.foreign...)
	return diag.Sort(slices.DeleteFunc(found, func(d diag.Diagnostic) bool { return d.Severity != diag.Error }))
}
