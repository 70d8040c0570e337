// Package gateway translates the objects of the Gateway API into a part of a model of package routing, and decides what
// their status should say. It is pure, and the order of the inputs does not matter.
//
// The claims of a route (claims.go) are what the route and the objects to which it refers ask for. They are made by a
// pure function, and the next translation uses them again (memo.go). Then the route is attached (routes.go). The
// results are merged: binds with their listeners (gateways.go) and backends (backends.go).
//
// Package attach decides what may attach to what, and package layout decides which match gets a request.
//
// # Decisions
//
// Nothing unsupported is ignored. A rule with an unsupported field is dropped, and the status of the route says so. A
// route without a remaining rule is not accepted. A rule whose backend is missing answers 500.
//
// A rule with filters has backends of its own, one for each prefix that a filter replaces. HAProxy may first find a
// longer prefix whose conditions do not hold, and then fall through to this rule. So the key that it found need not be
// the prefix that the rule matched.
package gateway

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/access"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway/attach"
	"github.com/hapsnap/hapsnap/compiler/gateway/layout"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/routing"
)

// Config says which Gateways are translated.
type Config struct {
	// Controller is the controllerName of the GatewayClasses that are ours.
	Controller string
	// Fleet is the fleet whose Gateways are translated, as namespace/name. If it is empty, the Gateways without a fleet
	// are translated.
	Fleet string
	// Addresses are the networks from which each Gateway gets an address of its own. If there are none, Gateways share
	// the addresses of the configuration, and the ports.
	Addresses []netip.Prefix
	// Services says which Services are made for Gateways.
	Services Services
	// Ports are the ports that Gateways cannot have, with what uses them. AllowedPorts are the ports that they may
	// have, as numbers and ranges. If it is empty, they may have all others.
	Ports        map[int]string
	AllowedPorts []string
	// Form is the form in which paths are compared.
	Form routing.PathForm
	// SecretsUnseen says that the translation reads no Secret, and reports none as missing.
	SecretsUnseen bool
	// Now is the time for reporting expired certificates. It decides nothing else. The zero time reports none.
	Now time.Time
	// Access says what options of routes may name. SharedAuthServices are the Services, as namespace/name, that every
	// namespace may use for authentication.
	Access             access.Config
	SharedAuthServices []string
	// Refused are routes that are left out and protect something. Their matches answer 503. If a route is Dropped as
	// well, other routes of its namespace for the same hosts answer 503 instead.
	Refused, Dropped map[diag.Object]bool
	// MostRoutes is how many matches the routes of a namespace may have, each counted once for each of its hosts. 0
	// means no limit.
	MostRoutes int
	// MostRouteBytes is how many bytes the hosts, paths and conditions of these matches may have. MostOptionBytes is
	// how many bytes the options and filters of its routes may have, counted once for each backend that has them. 0
	// means no limit.
	MostRouteBytes, MostOptionBytes int
	// MostAuthorityBytes is how many bytes the certificate authorities may have for which objects of a namespace ask. 0
	// means no limit.
	MostAuthorityBytes int
	// MostPorts is how many ports the listeners of a namespace may open; 0 is no limit.
	MostPorts int
}

// Translate returns what our Gateways and their routes add to a model, the findings about them, sorted, and what their
// status should say. It is a pure function, and the order of the inputs does not matter.
func Translate(in inputs.Inputs, cfg Config) (routing.Model, []diag.Diagnostic, Verdicts) {
	return (*Memo)(nil).Translate(in, cfg)
}

// Translate is the function [Translate], but uses claims that the Memo remembers. A compile calls this method.
func (m *Memo) Translate(in inputs.Inputs, cfg Config) (routing.Model, []diag.Diagnostic, Verdicts) {
	if len(in.Gateway.Classes) == 0 {
		return routing.Model{}, nil, Verdicts{}
	}
	f, verdicts := &findings{}, &Verdicts{}
	world := &attach.World{Namespaces: map[string]labels.Set{}, Grants: f.grants(in.Gateway.Grants)}
	for _, n := range in.Namespaces {
		world.Namespaces[n.Ref.Name] = n.Value.Labels
	}
	g := &gateways{
		findings: f, cfg: cfg, world: world, verdicts: verdicts, binds: map[string]*bind{}, levels: map[diag.Object]*level{}, opened: map[string]map[string]bool{},
		certificates: newCertificates(in.Secrets, cfg, f.addNew), authorities: newAuthorities(in, world, cfg.MostAuthorityBytes),
	}
	g.place(in.Gateway, apiOf(in))
	policies := newPolicies(f, cfg, world, g.authorities, in.Gateway.Policies)
	secrets, configMaps := inputs.NewLookup(in.Secrets), in.LookupConfigMaps()
	taker := access.NewTaker(secrets, configMaps, cfg.Access, f.addNew)
	r := &routes{
		findings: f, cfg: cfg, world: world, backends: newBackends(taker, f.addNew), binds: g.binds, verdicts: verdicts, levels: g.levels,
		claimer: m.claimer(&source{form: cfg.Form, sharedServices: cfg.SharedAuthServices, inspection: cfg.Access.Inspection, world: world, services: inputs.ByName(in.Services), policies: policies}),
		matches: map[string]size{}, parts: map[string]map[string]bool{}, optionBytes: map[string]int{}, given: map[diag.Object]*given{},
	}
	for _, o := range r.claimer.routes(in.Gateway) {
		r.route(o)
	}
	// The Memo now has what this translation used, and nothing else.
	if r.claimer.memo != nil && r.claimer.memo.readOnly == nil {
		r.claimer.memo.last.Store(&r.claimer.now)
	}
	r.thin()
	r.closeBarred()
	g.judge()
	verdicts.Policies = policies.verdicts()
	g.authorities.sort()
	g.authorities.warn(f)
	r.backends.report(f)
	model := modelOf(g, r.backends)
	model.Asked.Secrets = append(model.Asked.Secrets, secrets.Names()...)
	model.Asked.ConfigMaps = append(model.Asked.ConfigMaps, configMaps.Names()...)
	return model, diag.Sort(f.found), *verdicts
}

// findings collects the diagnostics of a translation.
type findings struct {
	found []diag.Diagnostic
	// known has the first so many of these, for addNew.
	known map[diag.Diagnostic]bool
	so    int
}

// report adds a finding.
func (f *findings) report(severity diag.Severity, object diag.Object, at diag.Position, message, hint string) {
	f.found = append(f.found, diag.Diagnostic{Severity: severity, Object: object, Position: at, Message: message, Hint: hint})
}

// addNew adds those findings that are not there yet.
func (f *findings) addNew(found ...diag.Diagnostic) {
	if f.known == nil {
		f.known = map[diag.Diagnostic]bool{}
	}
	for ; f.so < len(f.found); f.so++ {
		f.known[f.found[f.so]] = true
	}
	for _, d := range found {
		if !f.known[d] {
			f.known[d] = true
			f.found = append(f.found, d)
		}
	}
	f.so = len(f.found)
}

// grants returns the ReferenceGrants that permit something. A grant with an unknown field permits nothing, since the
// field may be a restriction of a later version.
func (f *findings) grants(in []inputs.Object[gatewayv1.ReferenceGrant]) []inputs.Object[gatewayv1.ReferenceGrant] {
	return slices.DeleteFunc(slices.Clone(in), func(g inputs.Object[gatewayv1.ReferenceGrant]) bool {
		field := inputs.UnknownField(g.Value)
		if field != "" {
			f.report(diag.Warning, g.Ref, g.Position("spec"), unknownField(field)+"; the grant permits nothing", "")
		}
		return field != ""
	})
}

// sorted returns the objects by age and name, with each name once.
func sorted[T any](objects []inputs.Object[T]) []inputs.Object[T] {
	return sortedBy(objects, func(o inputs.Object[T]) inputs.Object[T] { return o })
}

func sortedBy[O, T any](objects []O, of func(O) inputs.Object[T]) []O {
	age := func(o inputs.Object[T]) time.Time { return any(o.Value).(metav1.Object).GetCreationTimestamp().Time }
	out := slices.Clone(objects)
	slices.SortFunc(out, func(x, y O) int {
		a, b := of(x), of(y)
		return cmp.Or(age(a).Compare(age(b)), cmp.Compare(a.Ref.Namespace, b.Ref.Namespace), cmp.Compare(a.Ref.Name, b.Ref.Name), a.Ref.Compare(b.Ref))
	})
	seen := map[diag.Object]bool{}
	return slices.DeleteFunc(out, func(o O) bool {
		again := seen[of(o).Ref]
		seen[of(o).Ref] = true
		return again
	})
}

// modelOf returns the collected results, sorted.
func modelOf(t *gateways, backends *backends) routing.Model {
	var m routing.Model
	verdicts := t.verdicts.routes()
	for _, file := range slices.Sorted(maps.Keys(t.certificates.byFile)) {
		c := t.certificates.byFile[file]
		m.Certificates = append(m.Certificates, c)
		m.Asked.Secrets = append(m.Asked.Secrets, types.NamespacedName(c.Secret))
	}
	for _, file := range slices.Sorted(maps.Keys(t.authorities.files)) {
		m.Authorities = append(m.Authorities, t.authorities.files[file])
	}
	m.Asked.ConfigMaps = t.authorities.configMaps.Names()
	for _, name := range slices.Sorted(maps.Keys(t.binds)) {
		b := t.binds[name]
		if b.routesConnections() {
			m.Listeners = append(m.Listeners, b.listener())
		}
		if !b.takesRequests() {
			continue
		}
		m.Binds = append(m.Binds, b.Bind)
		hosts, over := layout.Hosts(name, t.cfg.Form, b.requests())
		m.Hosts = append(m.Hosts, hosts...)
		for _, o := range over {
			t.report(diag.Error, o.Match.Origin.Object, o.Match.Origin.Position, o.String()+"; what comes after is not served", "use fewer matches for one path")
			verdicts[o.Match.Origin.Object].partial(fmt.Sprintf("Dropped Rule %d: %s", o.Match.Rank.Rule, o))
		}
	}
	slices.SortFunc(m.Hosts, func(a, b routing.Host) int { return cmp.Compare(a.Key(), b.Key()) })
	slices.SortFunc(m.Listeners, func(a, b routing.Listener) int { return cmp.Compare(a.Name, b.Name) })
	backends.model(&m)
	placeMirrors(&m)
	return m
}
