// Package ingress translates Ingress objects into the model of package routing.
//
// Translation is a pure function of the objects. If two objects claim the same thing, the older one gets it. If both
// have the same age, the first by namespace/name gets it. The other one gets a finding. An object that cannot be
// translated gets a finding, and harms only itself.
//
// Translation has two phases. First, the claims of each Ingress are made (claims.go, demands.go). They say what the
// Ingress asks for, whatever other Ingresses there are: hosts, routes, backends with their options, certificates, and
// findings. They are a pure function of the Ingress, the Services that it names, its class, and a part of the
// configuration. They name Secrets and ConfigMaps, but do not read them. Then the merge (merge.go) goes through the
// claims of all Ingresses, oldest first, and decides who gets what. It reads no Ingress. Types of their own collect the
// results: hosts with their owners and routes (hosts.go, routes.go), backends with what their options name, and
// canaries (backends.go), ports for connections (connections.go), and certificates by server name (certificates.go).
//
// # Decisions
//
// The next translation uses the claims of unchanged objects again. It finds them by the address of the object's value
// in memory. The version of an object cannot be the key, since the Ingress in an admission review has the version of
// the Ingress which it updates, but other content. Before claims are used again, everything else is compared that they
// were made from. A source gives access to nothing more.
//
// The merge decides everything that depends on other objects: aliases, passthrough, the form in which paths of a host
// are compared, the limits of a namespace, and whether clients of a host can be asked for certificates. The claims have
// the backends of an Ingress with their options. The merge closes a backend whose options cannot be used.
//
// A canary uses the backends of the Ingress whose routes it shares, with other targets. So it always has the protection
// of that Ingress. Options that only the canary or its Service has are refused.
//
// The session cookie has a name of its own for each Service port. Browsers send a host's cookies for all of its paths.
// If all Services of a host used one name, they would overwrite each other's sessions.
//
// The oldest Ingress with a host decides what happens to the host's TLS connections, since HAProxy only knows the host
// of a request before TLS ends. If the TLS connections of a host end at HAProxy, they still do if a wildcard above the
// host is passed through.
package ingress

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/hapsnap/hapsnap/compiler/access"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/routing/hostname"
	"github.com/hapsnap/hapsnap/compiler/routing/ownership"
	"github.com/hapsnap/hapsnap/internal/manifests"
)

// Translate returns what our Ingresses mean, and the findings about them, sorted. It is a pure function, and the order
// of the inputs does not matter. An Ingress that breaks a rule of the API is left out. If it protects something, its
// routes answer 503. If a path cannot be matched, only that path is left out. If two Ingresses claim the same, the
// older one gets it.
func Translate(in inputs.Inputs, cfg Config) (routing.Model, []diag.Diagnostic) {
	return (*Memo)(nil).Translate(in, cfg)
}

// Translate is the function [Translate], but uses claims that the Memo remembers. A compile calls this method.
func (m *Memo) Translate(in inputs.Inputs, cfg Config) (routing.Model, []diag.Diagnostic) {
	t := newMerge(in, cfg.withDefaults())
	claimer := m.claimer(in, t)
	ours := claimer.candidates(in, t)
	limit(ours, t.cfg.Limits)
	t.hosts.findOwners(ours)
	t.bar(ours)
	var canaryClaims []*claims
	for _, c := range ours {
		if t.leftOut(c.outline) {
			t.hosts.held = append(t.hosts.held, c.outline)
			continue
		}
		if c.broken { // reading it has reported what is wrong with it
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
			canaryClaims = append(canaryClaims, claims)
			continue
		}
		t.merge(claims, c.protects != "")
	}
	t.connections.tcpServices(in.Services)
	standard := t.backends.certs.takeDefault()
	shared := canaries{findings: t.findings, resolver: t.resolver, hosts: t.hosts, backends: t.backends, aliases: t.aliases, parts: map[string]map[decidingPart]bool{}, ignoreForeign: t.cfg.IgnoreForeign}
	for _, c := range canaryClaims {
		shared.canary(c)
	}
	t.backends.dropReplaced(t.hosts)
	t.reportSharedCookies(t.hosts.byName, t.backends.byName)
	t.hosts.tellOwners()
	model := t.model()
	model.DefaultCertificate = standard
	claimer.remember() // when nothing more is added to it, since reviews read it at the same time
	return model, bounded(t.all)
}

// merge makes the model for one call of [Translate] from the claims of all Ingresses, oldest first. It decides
// everything that depends on several Ingresses, and looks up the Secrets and ConfigMaps that claims name.
type merge struct {
	*findings
	cfg         Config
	resolver    resolver
	hosts       *hosts
	backends    *backends
	connections *connections
	names       *serverNames
	pages       []routing.ErrorPage
	configMaps  inputs.Lookup[corev1.ConfigMap]
	asked       func() routing.Asked

	merging merging // the Ingress whose claims are being merged

	aliases     map[diag.Object][]string
	expressions map[string]int          // how many there are, by namespace
	closed      []diag.Object           // Ingresses whose routes answer 503, see [merge.close]
	barred      map[barring]diag.Object // hosts that are closed because of a dropped Ingress, see [merge.bar]
}

// merging is the state while the claims of one Ingress are merged.
type merging struct {
	*claims
	aliases []string // those that the Ingress may have
	// closed says that the Ingress cannot be translated. Its routes answer 503, so that no other Ingress gets their
	// requests.
	closed bool
	// refused says that required TLS client certificates cannot be checked. The routes answer 503.
	refused bool
	// protects says that paths which cannot be matched are closed.
	protects bool
	// exactPaths and expressions are those of the claims. Both are false for an Ingress that is closed.
	exactPaths, expressions bool
}

// virtualHost is a host with its routes, by what they match.
type virtualHost struct {
	origin routing.Origin
	form   routing.PathForm
	// held says that a rule for the host was left out. So the owner has more than the routes that are there.
	held   bool
	open   bool // an Ingress of the owner also serves clients without a certificate
	routes map[routing.PathMatch]claim
	// expressions are the paths of routes that are regular expressions.
	expressions []string
}

// claim is a route or default backend, with the Ingress that has it.
type claim struct {
	by      *claims
	backend string
	origin  routing.Origin
	guard   guarding
	// before are routes for the same path that are tried first. sharedBy is the canary to which they belong.
	before   []routing.Route
	sharedBy *claims
	// fallback is the backend that is used while the others have no usable server, or "".
	fallback string
}

func newMerge(in inputs.Inputs, cfg Config) *merge {
	f, n := &findings{}, len(in.Ingresses) // about as many hosts and backends
	t := &merge{findings: f, cfg: cfg, aliases: map[diag.Object][]string{}, expressions: map[string]int{}, barred: map[barring]diag.Object{}}
	t.resolver = resolver{cfg.ExternalNames, inputs.ByName(in.Services).Find}
	secrets, configMaps := inputs.NewLookup(in.Secrets), in.LookupConfigMaps()
	t.configMaps = configMaps
	t.asked = func() routing.Asked {
		return routing.Asked{Secrets: secrets.Names(), ConfigMaps: configMaps.Names()}
	}
	t.hosts = &hosts{
		findings: f, cfg: &t.cfg, byName: make(map[string]*virtualHost, n), routed: make(map[string]bool, n), passed: make(map[string]hostClaim, n),
		owners: ownership.New(ownership.Rules{Owned: cfg.OwnedHosts, Shared: cfg.SharedHosts, Reserved: cfg.ReservedDomains}),
	}
	t.backends = &backends{
		findings: f, byName: make(map[string]*routing.Backend, n), replaced: map[string]bool{}, closed: map[string]bool{},
		certs: &certificates{findings: f, secrets: secrets, cfg: &t.cfg, files: map[string]*routing.Certificate{}, kinds: map[string]string{}},
		access: access.NewTaker(secrets, configMaps, access.Config{
			SharedLists: cfg.SharedLists, MostListBytes: cfg.Limits.NamespaceListBytes, Countries: cfg.Countries, CountryHeader: cfg.CountryHeader,
			CountryMemo: cfg.CountryMemo, CountryFiles: cfg.CountryFiles, SecretsUnseen: cfg.SecretsUnseen, Inspection: cfg.Inspection,
		}, f.add),
	}
	t.names = &serverNames{findings: f, owners: t.hosts.owners, certs: t.backends.certs, hosts: t.hosts.byName, tls: make(map[string]*tlsClaim, n), clients: map[string]*clientClaim{}}
	t.connections = &connections{
		findings: f, cfg: &t.cfg, resolver: t.resolver, hosts: t.hosts, certs: t.backends.certs, access: t.backends.access,
		listeners: map[int]*connectionListener{}, backends: map[string]*routing.Backend{},
	}
	t.pages = errorPages(cfg.ErrorPages, configMaps, f)
	return t
}

// leftOut reports whether an Ingress is refused and gets no routes. That is so if it protects nothing, or if even its
// closed routes are refused.
func (t *merge) leftOut(o *outline) bool {
	return t.cfg.Dropped[o.Ref] || t.cfg.Refused[o.Ref] && o.protects == ""
}

// close handles an Ingress that is left out. If the Ingress protects something, its routes answer 503, and its hosts
// are held. Otherwise its requests might match a route of another Ingress, which does not protect them. A canary has no
// routes of its own that could be closed.
func (t *merge) close(c *candidate) {
	if c.protects != "" && !c.isCanary {
		t.report(diag.Warning, c.Claimant, c.protectsAt,
			c.protects+" protects an Ingress that cannot be used as it is; its routes answer 503", "see the other messages on this Ingress")
		t.begin(c.closedClaims(), true)
		t.merging.closed = true
		t.closed = append(t.closed, c.Ref)
		t.mergeRules()
		t.mergeDefault()
		t.mergeTLS()
	}
	t.hosts.hold(c.outline)
}

// A dropped Ingress protects something, but HAProxy or a check refuses even its closed routes. So it has no routes, and
// its requests match other routes. Only routes of its own namespace lead to the Services that it protects. So the merge
// closes those routes of that namespace that these requests may match. Other namespaces lose nothing.

// barring is a host that is closed for the Ingresses of a namespace.
type barring struct{ host, namespace string }

// bar collects the hosts of dropped Ingresses, each with the namespace whose routes for the host are closed.
func (t *merge) bar(ingresses []*candidate) {
	for _, ing := range ingresses {
		if !t.cfg.Dropped[ing.Ref] || ing.isCanary || ing.protects == "" {
			continue
		}
		bar := func(host string) {
			if _, known := t.barred[barring{host, ing.Ref.Namespace}]; !known {
				t.barred[barring{host, ing.Ref.Namespace}] = ing.Ref
			}
		}
		bar("") // routes without a host, and the default backend
		for _, h := range ing.hosts {
			bar(h.name)
			bar(hostname.WildcardOf(h.name))
		}
	}
}

// closeBarred closes the routes of the merged Ingress for a host of the model, if a dropped Ingress of its namespace
// had that host. The caller calls end when it has added these routes.
func (t *merge) closeBarred(host string, at diag.Position) (end func()) {
	by, barred := t.barred[barring{host, t.merging.Ref.Namespace}]
	was := t.merging.closed
	if !barred || was {
		return func() {}
	}
	t.merging.closed = true
	t.report(diag.Warning, t.merging.Claimant, at,
		"the routes"+ofHost(host)+" answer 503: "+by.String()+", which protects something there, cannot be used as it is, and its routes cannot even be closed",
		"mend "+by.String())
	return func() { t.merging.closed = was }
}

// originOf returns the origin of a field in an object.
func originOf[T any](o inputs.Object[T], path ...any) routing.Origin {
	return routing.Origin{Object: o.Ref, Position: o.Position(path...), Field: manifests.FieldPath(path)}
}

// model returns the collected results, sorted.
func (t *merge) model() routing.Model {
	m := routing.Model{Asked: t.asked(), Closed: t.closed, ErrorPages: t.pages}
	reserveHeaders(t.backends.byName, t.cfg.AllowHeaders)
	m.Held = t.hosts.heldHosts()
	m.Hosts = slices.Grow(m.Hosts, len(t.hosts.byName))
	for _, name := range slices.Sorted(maps.Keys(t.hosts.byName)) {
		m.Hosts = append(m.Hosts, t.hosts.model(name, t.backends.byName))
	}
	m.Backends = modelBackends(t.backends.byName)
	m.Listeners, m.ConnectionBackends = t.connections.modelListeners(), modelBackends(t.connections.backends)
	m.ServerNames = t.names.model()
	for _, file := range slices.Sorted(maps.Keys(t.backends.certs.files)) {
		m.Certificates = append(m.Certificates, *t.backends.certs.files[file])
	}
	t.backends.access.Model(&m)
	if t.hosts.defaultBackend != nil {
		m.Default, m.DefaultOrigin = t.hosts.defaultBackend.backend, t.hosts.defaultBackend.origin
	}
	return m
}
