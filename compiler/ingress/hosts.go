package ingress

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/routing/hostname"
	"github.com/hapsnap/hapsnap/compiler/routing/ownership"
	"github.com/hapsnap/hapsnap/internal/printable"
)

// hosts says who has which host, and which routes each host has.
type hosts struct {
	*findings
	cfg    *Config
	owners *ownership.Owners
	byName map[string]*virtualHost
	routed map[string]bool // hosts that a rule or an alias names
	held   []*outline      // Ingresses that are left out and protect nothing
	// passed says who decides what happens to the TLS connections for a host.
	passed map[string]hostClaim
	// defaultBackend is the default backend for all Ingresses, nil if none has one.
	defaultBackend *claim
	access         map[string]string // by backend, see accessOf
}

// guarding says how a route that protects something guards its host.
type guarding struct {
	unsafe, parameters, spelling bool
}

// guards returns the guards of a host, by namespace. A closed host has a backend for requests that match no route.
func (t *hosts) guards(name string, closed bool) []routing.Guard {
	h := t.byName[name]
	byNamespace := map[string]*routing.Guard{}
	guard := func(namespace string, g guarding, at routing.Origin) {
		was := byNamespace[namespace]
		if was == nil {
			byNamespace[namespace] = &routing.Guard{Namespace: namespace, Parameters: g.parameters, Spelling: g.spelling, Origin: at}
			return
		}
		was.Parameters, was.Spelling = was.Parameters || g.parameters, was.Spelling || g.spelling
		if at.Compare(was.Origin) < 0 {
			was.Origin = at
		}
	}
	present := map[string]bool{"": true}
	if closed {
		present["hapsnap"] = true
	}
	for _, c := range h.routes {
		present[c.by.Ref.Namespace] = true
	}
	for _, c := range h.routes {
		if c.guard.unsafe {
			guard(c.by.Ref.Namespace, c.guard, c.origin)
		}
	}
	unmatched := ""
	if t.defaultBackend != nil {
		unmatched = t.defaultBackend.by.Ref.Namespace
		if t.defaultBackend.guard.unsafe && present[unmatched] {
			guard(unmatched, t.defaultBackend.guard, t.defaultBackend.origin)
		}
	}
	if of := byNamespace[t.ownerNamespace(name)]; of != nil {
		for namespace := range present {
			guard(namespace, guarding{unsafe: true, parameters: of.Parameters}, of.Origin)
		}
	} else if of := byNamespace[unmatched]; of != nil {
		guard("", guarding{unsafe: true, parameters: of.Parameters}, of.Origin)
	}
	out := make([]routing.Guard, 0, len(byNamespace))
	for _, g := range byNamespace {
		out = append(out, *g)
	}
	slices.SortFunc(out, func(a, b routing.Guard) int { return cmp.Compare(a.Namespace, b.Namespace) })
	return slices.Clip(out[:len(out):len(out)])
}

// ownerNamespace returns the namespace that owns a host.
func (t *hosts) ownerNamespace(host string) string {
	if o := t.owners.First(host); o != nil {
		return o.Namespace()
	}
	return t.byName[host].origin.Object.Namespace
}

// findOwners finds the owner of each host. The Ingresses are ours, the oldest first.
func (t *hosts) findOwners(ingresses []*candidate) {
	for _, ing := range ingresses {
		for _, h := range ing.hosts {
			if t.owners.Add(h.name, ing.Claimant, h.path, ing.shared) && !h.tls {
				t.routed[h.name] = true
			}
		}
	}
}

// reportStrange reports that an Ingress names a host that it may not have.
func (t *hosts) reportStrange(by ownership.Claimant, at diag.Position, subject, host string, o *ownership.Owner) {
	if o == nil {
		t.report(diag.Error, by, at, fmt.Sprintf("%s is not used: host %s is in a domain that is reserved for other namespaces", subject, host),
			"use another host; reservedDomains of the configuration says who may have it")
		return
	}
	t.reportLost(diag.Error, by, o.By, at,
		fmt.Sprintf("%s is not used: host %s belongs to namespace %s, by %s", subject, host, o.Namespace(), o.By.Precedes(by)),
		fmt.Sprintf("use a host of your own, or have namespace %s add %sshare-host: %s to its Ingress%s", o.Namespace(), options.Prefix, by.Ref.Namespace, winnerAt(o.Origin())))
}

// mayDecide reports whether an Ingress may set something that only the owner of a host may set. If not, it adds a
// finding, in which what names the setting.
func (t *hosts) mayDecide(by ownership.Claimant, at diag.Position, what, host string) bool {
	s, o := t.owners.StandingOf(by.Ref.Namespace, hostname.Of(host))
	if s == ownership.Owns {
		return true
	}
	if o == nil {
		t.reportStrange(by, at, what, host, o)
		return false
	}
	t.reportLost(diag.Error, by, o.By, at,
		fmt.Sprintf("%s is not used for host %s: the host belongs to namespace %s, by %s", what, host, o.Namespace(), o.By.Precedes(by)),
		"only the owner of a host says this of it; use a host of your own"+winnerAt(o.Origin()))
	return false
}

// tellOwners tells the owner of each host, once, which other namespaces have paths of the host, or hosts below its
// wildcard, although the host is not shared with them.
func (t *hosts) tellOwners() {
	below := map[string][]string{} // by wildcard
	for _, host := range slices.Sorted(maps.Keys(t.byName)) {
		o := t.owners.Of(host)
		if o == nil || host == "" {
			continue
		}
		if w := t.owners.First(hostname.WildcardOf(host)); w != nil && w.Namespace() != o.Namespace() && w.By.Compare(o.By) < 0 && !t.owners.IsShared(host, w, o.Namespace()) {
			below[hostname.WildcardOf(host)] = append(below[hostname.WildcardOf(host)], fmt.Sprintf("%s by %s", host, o.By.Ref))
		}
		routes := t.byName[host].routes
		var matches []routing.PathMatch
		for match, c := range routes {
			if c.by.Ref.Namespace != o.Namespace() && !t.owners.IsShared(host, o, c.by.Ref.Namespace) {
				matches = append(matches, match)
			}
		}
		slices.SortFunc(matches, routing.PathMatch.Compare)
		var taken []string
		for _, match := range matches {
			taken = append(taken, fmt.Sprintf("%s (%s) by %s", printable.Quoted(orSlash(match.Path)), match.Type, routes[match].by.Ref))
		}
		t.tellTaken(o, "other namespaces have paths of host "+hostname.Shown(host), taken, "to have them alone, ask for hosts: owned in the configuration; "+options.Prefix+"share-host says that it is meant")
	}
	for _, wildcard := range slices.Sorted(maps.Keys(below)) {
		t.tellTaken(t.owners.First(wildcard), "other namespaces have hosts below "+hostname.Shown(wildcard), below[wildcard], "to own these too, ask for hosts: owned in the configuration; "+options.Prefix+"share-host says that it is meant")
	}
}

func (t *hosts) tellTaken(o *ownership.Owner, what string, taken []string, hint string) {
	if len(taken) == 0 {
		return
	}
	more := ""
	if n := len(taken) - mostTold; n > 0 {
		more = fmt.Sprintf(", and %d more", n)
		taken = taken[:mostTold]
	}
	t.report(diag.Warning, o.By, o.By.Position(o.Path...), what+": "+strings.Join(taken, ", ")+more, hint)
}

// hold keeps the hosts of an Ingress that is left out in the model. Requests for them that match no route get 404.
// Otherwise a rule without a host of another Ingress would answer them.
func (t *hosts) hold(o *outline) {
	t.eachServed(o, func(s ownership.Standing, host string, origin routing.Origin) {
		if t.byName[host] == nil {
			t.byName[host] = &virtualHost{origin: origin, form: routing.FormOf(t.cfg.Paths), routes: map[routing.PathMatch]claim{}, held: true}
		}
		t.byName[host].held = t.byName[host].held || s == ownership.Owns
		if _, taken := t.passed[host]; !taken {
			t.passed[host] = hostClaim{by: o.Claimant, origin: origin}
		}
	})
}

// eachServed calls do for every sound host that a rule or an alias of the Ingress names, if the Ingress may have it.
func (t *hosts) eachServed(o *outline, do func(s ownership.Standing, host string, origin routing.Origin)) {
	for _, h := range o.hosts {
		if s, _ := t.owners.StandingOf(o.Ref.Namespace, h.name); !h.tls && s != ownership.Strange {
			do(s, h.name, o.Origin(h.path...))
		}
	}
}

// heldHosts returns the hosts that have no routes and that no other Ingress may serve. These are hosts of Ingresses
// that HAProxy refuses, and reserved domains. If hosts are owned, they include hosts for which an older Ingress has
// only a certificate. Templates only see the names of these hosts, and the names are valid in DNS. If a template still
// makes lines of them that HAProxy refuses, [Config].Released leaves them out.
func (t *hosts) heldHosts() []routing.Held {
	held := map[string]routing.Held{}
	add := func(host string, origin routing.Origin) {
		if _, known := held[host]; !known && t.byName[host] == nil {
			held[host] = routing.Held{Name: host, Closed: t.isClosed(host, true), Origin: origin}
		}
	}
	for _, ing := range t.held {
		t.eachServed(ing, func(s ownership.Standing, host string, origin routing.Origin) {
			if h := t.byName[host]; h != nil {
				h.held = h.held || s == ownership.Owns
			}
			if t.cfg.Released[ing.Ref.Namespace] {
				return
			}
			add(host, origin)
			if _, taken := t.passed[host]; !taken {
				t.passed[host] = hostClaim{by: ing.Claimant, origin: origin}
			}
		})
	}
	var alone []string
	if t.cfg.OwnedHosts {
		alone = t.owners.Apart()
	}
	for _, d := range t.cfg.ReservedDomains {
		alone = append(alone, d.Domain)
	}
	for _, host := range alone {
		o := t.owners.First(host)
		switch {
		case o == nil:
			add(host, routing.Origin{})
		case !t.isReleased(o):
			add(host, o.Origin())
		}
	}
	var out []routing.Held
	for _, host := range slices.Sorted(maps.Keys(held)) {
		out = append(out, held[host])
	}
	return out
}

// isReleased reports whether even the name of a host must not be in the model. That is so if the Ingress of its owner
// is left out, and HAProxy may have refused that name.
func (t *hosts) isReleased(o *ownership.Owner) bool {
	return t.cfg.Refused[o.By.Ref] && t.cfg.Released[o.Namespace()]
}

// isClosed reports whether the default backend must not answer for a host. held says that a rule for the host was left
// out.
func (t *hosts) isClosed(host string, held bool) bool {
	return t.defaultBackend != nil && t.owners.IsClosedTo(t.defaultBackend.by.Ref.Namespace, host, held)
}

// model returns a virtual host in the form of the model. It also tells backends which prefixes their filters replace.
func (t *hosts) model(name string, backends map[string]*routing.Backend) routing.Host {
	h := t.byName[name]
	out := routing.Host{Name: name, Form: h.form, Origin: h.origin}
	_, all := h.routes[routing.PathMatch{Type: routing.Prefix}]
	out.Closed = !all && t.isClosed(name, h.held)
	out.Guards = t.guards(name, out.Closed)
	for match, c := range h.routes {
		for _, r := range c.modelRoutes() {
			b := backends[r.Backend]
			r.Match.PathMatch, r.Filters = match, b.Filters
			if c.guard.unsafe {
				r.Access = t.accessOf(b, c.by.Ref.Namespace)
			}
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
	if len(h.expressions) > 0 {
		above := h.prefixesAbove()
		out.Expressions = h.expressionRoutes(above)
		t.reportUnreached(name, above)
	}
	slices.SortStableFunc(out.Routes, func(a, b routing.Route) int { return a.Match.Compare(b.Match.PathMatch) })
	return out
}

// accessOf returns a digest that is the same for backends of a namespace that let in the same requests. It is "" for a
// backend that lets in none, counts its requests, or lets others decide, who may look at the path.
func (t *hosts) accessOf(b *routing.Backend, namespace string) string {
	digest, known := t.access[b.Name]
	if !known {
		if t.access == nil {
			t.access = map[string]string{}
		}
		digest = accessOf(b, namespace)
		t.access[b.Name] = digest
	}
	return digest
}

func accessOf(b *routing.Backend, namespace string) string {
	if len(b.Targets) == 0 || len(b.Snippet) > 0 || b.Protection != nil && b.Protection.Rate != nil {
		return ""
	}
	decides := []any{namespace, b.Protection}
	for _, f := range b.Filters {
		switch f.(type) {
		case policy.ExternalAuth, policy.Agent, policy.WAF:
			return ""
		case policy.BasicAuth, policy.Guard:
			decides = append(decides, f.Kind(), f)
		}
	}
	text, err := json.Marshal(decides)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// reportUnreached reports expressions of a host that get no request because a prefix takes all of them.
func (t *hosts) reportUnreached(name string, above map[string]literalPrefixes) {
	h := t.byName[name]
	for _, e := range h.expressions {
		match := routing.PathMatch{Type: routing.Expression, Path: e}
		c, of := h.routes[match], above[e]
		for _, prefix := range of.prefixes {
			if h.precedes(match, of.literal, prefix) {
				continue
			}
			t.reportLost(diag.Warning, c.by.Claimant, h.routes[prefix].by.Claimant, c.origin.Position,
				fmt.Sprintf("path %s%s gets no request that the prefix %s of %s takes", printable.Quoted(e), ofHost(name), printable.Quoted(orSlash(prefix.Path)), h.routes[prefix].by.Ref),
				"an expression comes before shorter prefixes of its namespace only")
		}
	}
}

// claimOf returns the claim that has a route, or the zero value.
func (t *hosts) claimOf(host string, match routing.PathMatch) claim {
	h := t.byName[hostname.Of(host)]
	if h == nil {
		return claim{}
	}
	return h.routes[match]
}

// expressionRoutes returns the expressions of a host in the order in which HAProxy tries them. Namespaces come in the
// order of their oldest Ingress, so that none takes requests of an older one. Within a namespace the longest expression
// is first, as with ingress-nginx.
func (h *virtualHost) expressionRoutes(above map[string]literalPrefixes) []routing.ExpressionRoute {
	oldest := map[string]ownership.Claimant{}
	var matches []routing.PathMatch
	for match, c := range h.routes {
		if match.Type != routing.Expression {
			continue
		}
		matches = append(matches, match)
		namespace := c.by.Ref.Namespace
		if o, known := oldest[namespace]; !known || c.by.Compare(o) < 0 {
			oldest[namespace] = c.by.Claimant
		}
	}
	slices.SortFunc(matches, func(a, b routing.PathMatch) int {
		x, y := h.routes[a].by.Ref.Namespace, h.routes[b].by.Ref.Namespace
		if x != y {
			return oldest[x].Compare(oldest[y])
		}
		return cmp.Or(cmp.Compare(len(b.Path), len(a.Path)), cmp.Compare(a.Path, b.Path))
	})
	var out []routing.ExpressionRoute
	for _, match := range matches {
		e := routing.ExpressionRoute{PathMatch: match}
		of := above[match.Path]
		for _, prefix := range of.prefixes {
			if h.precedes(match, of.literal, prefix) {
				e.Prefixes = append(e.Prefixes, routing.PrefixKey(prefix.Path))
			}
		}
		out = append(out, e)
	}
	return out
}

// literalPrefixes has the texts with which every path begins that an expression matches. It also has the prefixes of
// the host that take all such paths, in their order.
type literalPrefixes struct {
	literal  string
	prefixes []routing.PathMatch
}

// prefixesAbove returns the prefixes above each expression of a host, by its path. It looks up the beginnings of an
// expression among the prefixes, since a tenant may have thousands of prefixes and many expressions.
func (h *virtualHost) prefixesAbove() map[string]literalPrefixes {
	byPath := map[string][]routing.PathMatch{} // the keys are in lower case
	for match := range h.routes {
		if match.Type == routing.Prefix {
			path := strings.ToLower(match.Path)
			byPath[path] = append(byPath[path], match)
		}
	}
	out := map[string]literalPrefixes{}
	for match := range h.routes {
		if match.Type != routing.Expression {
			continue
		}
		of := literalPrefixes{literal: routing.LiteralOf(match.Path)}
		whole := of.literal + "/"
		for i := range len(whole) {
			if whole[i] == '/' {
				of.prefixes = append(of.prefixes, byPath[whole[:i]]...)
			}
		}
		slices.SortFunc(of.prefixes, routing.PathMatch.Compare)
		out[match.Path] = of
	}
	return out
}

// precedes reports whether an expression with a literal beginning comes before a prefix above it. It does if the prefix
// is of the same Ingress, or if it is shorter and of the same namespace. So an expression takes no requests from
// another namespace, and none from a path as long as its literal beginning.
func (h *virtualHost) precedes(expression routing.PathMatch, literal string, prefix routing.PathMatch) bool {
	e, p := h.routes[expression].by.Ref, h.routes[prefix].by.Ref
	if e == p {
		return true
	}
	below := strings.ToLower(prefix.Path) + "/"
	return e.Namespace == p.Namespace && strings.HasPrefix(literal, below) && len(literal) > len(below)
}

// mostTold is how many paths or hosts of others a finding for the owner of a host lists.
const mostTold = 5
