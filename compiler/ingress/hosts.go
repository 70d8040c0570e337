package ingress

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/routing/hostname"
	"github.com/hapsnap/hapsnap/compiler/routing/ownership"
	"github.com/hapsnap/hapsnap/internal/haproxycfg"
	"github.com/hapsnap/hapsnap/internal/printable"
)

// expressionRoutes returns the expressions of a host in the order in which they are tried: by
// namespace, that of the oldest Ingress first, so that nobody takes the requests of an older
// one; of a namespace, the longest first, as ingress-nginx does.
func (h *virtualHost) expressionRoutes() []routing.ExpressionRoute {
	if len(h.expressions) == 0 {
		return nil
	}
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
		for _, prefix := range slices.SortedFunc(maps.Keys(h.routes), routing.PathMatch.Compare) {
			if prefix.Type == routing.Prefix && h.precedes(match, prefix) {
				e.Prefixes = append(e.Prefixes, routing.PrefixKey(prefix.Path))
			}
		}
		out = append(out, e)
	}
	return out
}

// precedes reports whether an expression comes before a prefix: only if all that it matches
// is below the prefix, which is of the same Ingress, or shorter and of the same namespace.
// So no expression takes requests from a path that is as long as what it is sure of, nor
// from anybody else.
func (h *virtualHost) precedes(expression, prefix routing.PathMatch) bool {
	e, p := h.routes[expression].by.Ref, h.routes[prefix].by.Ref
	literal, below := routing.LiteralOf(expression.Path), strings.ToLower(prefix.Path)+"/"
	if e == p {
		return strings.HasPrefix(literal+"/", below)
	}
	return e.Namespace == p.Namespace && strings.HasPrefix(literal, below) && len(literal) > len(below)
}

// guarding says that a route protects something, so that its host is guarded.
type guarding struct {
	unsafe, parameters bool
}

// guardFor returns how the Ingress at hand guards a host of which it has a route to a backend.
func (t *merge) guardFor(backend string, form routing.PathForm) guarding {
	rules := t.turn.pathRules
	if rules.unsafe != config.RejectUnsafe || !t.protecting(backend) {
		return guarding{}
	}
	matched := rules.parameters == config.MatchParameters || rules.parameters == config.IgnoreParameters && form == routing.WithoutParameters
	return guarding{unsafe: true, parameters: !matched}
}

// protecting reports whether a backend keeps requests out that another one might serve:
// for who sent them, for how many there are, or for all. The size of a body keeps nobody
// out, and neither does what an answer is like.
func (t *merge) protecting(backend string) bool {
	b := t.backends[backend]
	if backend == routing.Unavailable {
		return t.turn.denied
	}
	p := policy.Protection{}
	if b.Protection != nil {
		p = *b.Protection
	}
	p.MaxBody = 0
	return t.closed[backend] || p.Any() || slices.ContainsFunc(b.Snippet, refuses) || slices.ContainsFunc(b.Filters, func(f policy.Filter) bool {
		return f.Kind() == policy.BasicAuth{}.Kind() || f.Kind() == policy.ExternalAuth{}.Kind()
	})
}

// refuses reports whether a line of a snippet may keep requests out.
func refuses(line routing.SnippetLine) bool {
	words := haproxycfg.Line{Text: []byte(line.Text())}.Texts()
	return len(words) > 1 && slices.Contains([]string{"deny", "tarpit", "reject", "silent-drop", "auth", "return", "redirect"}, words[1]) ||
		len(words) > 2 && words[2] == "reject"
}

// guards returns the guards of a host, by namespace. One that is closed has a backend for what
// no route takes.
func (t *merge) guards(name string, closed bool) []routing.Guard {
	h := t.hosts[name]
	byNamespace := map[string]*routing.Guard{}
	guard := func(namespace string, g guarding, at routing.Origin) {
		was := byNamespace[namespace]
		if was == nil {
			byNamespace[namespace] = &routing.Guard{Namespace: namespace, Parameters: g.parameters, Origin: at}
			return
		}
		was.Parameters = was.Parameters || g.parameters
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
	if t.fallback != nil {
		unmatched = t.fallback.by.Ref.Namespace
		if t.fallback.guard.unsafe && present[unmatched] {
			guard(unmatched, t.fallback.guard, t.fallback.origin)
		}
	}
	if of := byNamespace[t.ownerNamespace(name)]; of != nil {
		for namespace := range present {
			guard(namespace, guarding{true, of.Parameters}, of.Origin)
		}
	} else if of := byNamespace[unmatched]; of != nil {
		guard("", guarding{true, of.Parameters}, of.Origin)
	}
	out := make([]routing.Guard, 0, len(byNamespace))
	for _, g := range byNamespace {
		out = append(out, *g)
	}
	slices.SortFunc(out, func(a, b routing.Guard) int { return cmp.Compare(a.Namespace, b.Namespace) })
	return slices.Clip(out[:len(out):len(out)])
}

// ownerNamespace returns the namespace that has a host.
func (t *merge) ownerNamespace(host string) string {
	if o := t.owners.First(host); o != nil {
		return o.Namespace()
	}
	return t.hosts[host].origin.Object.Namespace
}

// formOf returns the form that the Ingress at hand, which is the oldest with routes of a
// host, has paths compared in. Only the owner of the host may say.
func (t *merge) formOf(host string) routing.PathForm {
	if o := t.owners.First(host); o != nil && o.Namespace() != t.turn.Ref.Namespace {
		return routing.FormOf(t.cfg.Paths)
	}
	return t.turn.pathRules.form
}

// deny takes the routes of an Ingress that is left out, if it protects
// something, and answers them with 503: otherwise their requests might match a
// route of another Ingress, which does not protect them. A canary has none.
func (t *merge) deny(c *candidate) {
	if c.protects == "" || c.isCanary {
		return
	}
	t.report(diag.Warning, c.Claimant, c.protectsAt,
		c.protects+" protects an Ingress that cannot be used as it is; its routes answer 503", "see what else is said of this Ingress")
	t.begin(c.closed(), true)
	t.turn.denied = true
	t.shutOnes = append(t.shutOnes, c.Ref)
	t.mergeRules()
	t.mergeDefault()
	t.mergeTLS()
}

// A dropped Ingress is one that protects something and has no routes, not even closed ones,
// since HAProxy or a check refuses those too. Its requests get to whatever else matches them.
// Only routes of its own namespace lead to the Services that it protects. So those that may
// match its requests now are closed, and nobody else pays for it.

// barring is a host that is closed to Ingresses of a namespace.
type barring struct{ host, namespace string }

// bar finds out which hosts of which namespaces are closed for Ingresses that were dropped.
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
		bar("") // where a request goes whose host has no other route, and the default backend
		for _, h := range ing.hosts {
			bar(h.name)
			bar(hostname.WildcardOf(h.name))
		}
	}
}

// closeBarred has the Ingress at hand refuse requests for a host of the model that were those of
// an Ingress which was dropped. What it returns ends that.
func (t *merge) closeBarred(host string, at diag.Position) (end func()) {
	by, barred := t.barred[barring{host, t.turn.Ref.Namespace}]
	was := t.turn.denied
	if !barred || was {
		return func() {}
	}
	t.turn.denied = true
	t.report(diag.Warning, t.turn.Claimant, at,
		"the routes"+ofHost(host)+" answer 503: "+by.String()+", which protects something there, cannot be used as it is, and its routes cannot even be closed",
		"mend "+by.String())
	return func() { t.turn.denied = was }
}

// findOwners finds out whom hosts belong to. The Ingresses are ours, oldest first.
func (t *merge) findOwners(ingresses []*candidate) {
	for _, ing := range ingresses {
		for _, h := range ing.hosts {
			if t.owners.Add(h.name, ing.Claimant, h.path, ing.shared) && !h.tls {
				t.routed[h.name] = true
			}
		}
	}
}

// reportStrange reports a host that an Ingress names and may not have.
func (t *merge) reportStrange(by ownership.Claimant, at diag.Position, subject, host string, o *ownership.Owner) {
	if o == nil {
		t.report(diag.Error, by, at, fmt.Sprintf("%s is not used: host %s is in a domain that is reserved for other namespaces", subject, host),
			"use another host; reservedDomains of the configuration says who may have it")
		return
	}
	t.reportLost(diag.Error, by, o.By, at,
		fmt.Sprintf("%s is not used: host %s belongs to namespace %s, by %s", subject, host, o.Namespace(), o.By.Precedes(by)),
		fmt.Sprintf("use a host of your own, or have namespace %s add %sshare-host: %s to its Ingress%s", o.Namespace(), options.Prefix, by.Ref.Namespace, winnerAt(o.Origin())))
}

// mayDecide reports whether an Ingress may say something of a host that is its owner's to say,
// and reports it if not; what names that.
func (t *merge) mayDecide(by ownership.Claimant, at diag.Position, what, host string) bool {
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

// mostTold is how many takings of a host its owner is told one by one.
const mostTold = 5

// tellOwners tells the owners of hosts who else has paths of them, and hosts below their
// wildcards, unless they share them. Each host's owner is told once.
func (t *merge) tellOwners() {
	below := map[string][]string{} // by wildcard
	for _, host := range slices.Sorted(maps.Keys(t.hosts)) {
		o := t.owners.Of(host)
		if o == nil || host == "" {
			continue
		}
		if w := t.owners.First(hostname.WildcardOf(host)); w != nil && w.Namespace() != o.Namespace() && w.By.Compare(o.By) < 0 && !t.owners.IsShared(host, w, o.Namespace()) {
			below[hostname.WildcardOf(host)] = append(below[hostname.WildcardOf(host)], fmt.Sprintf("%s by %s", host, o.By.Ref))
		}
		routes := t.hosts[host].routes
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

func (t *merge) tellTaken(o *ownership.Owner, what string, taken []string, hint string) {
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

// hold makes the hosts of an Ingress that is left out known, whose routes are closed where it
// protects something. Their requests get 404, and no rule of another Ingress that has no host.
func (t *merge) hold(o *outline) {
	t.eachServed(o, func(s ownership.Standing, host string, origin routing.Origin) {
		if t.hosts[host] == nil {
			t.hosts[host] = &virtualHost{origin: origin, form: routing.FormOf(t.cfg.Paths), routes: map[routing.PathMatch]claim{}, held: true}
		}
		t.hosts[host].held = t.hosts[host].held || s == ownership.Owns
		if _, taken := t.passed[host]; !taken {
			t.passed[host] = hostClaim{by: o.Claimant, origin: origin}
		}
	})
}

// eachServed calls do with every sound host of an Ingress that it has routes of, or would have.
func (t *merge) eachServed(o *outline, do func(s ownership.Standing, host string, origin routing.Origin)) {
	for _, h := range o.hosts {
		if s, _ := t.owners.StandingOf(o.Ref.Namespace, h.name); !h.tls && s != ownership.Strange {
			do(s, h.name, o.Origin(h.path...))
		}
	}
}

// heldHosts returns the hosts that have no routes, and that nobody else is to serve: those of
// Ingresses that HAProxy refuses, those that an older Ingress has only a certificate for, where
// hosts are owned, and reserved domains.
// Nothing but their names reaches a template, and those keep to the rules of DNS; and while
// they are in the way all the same, [Config].Released has those of HAProxy's refusals left out.
func (t *merge) heldHosts() []routing.Held {
	held := map[string]routing.Held{}
	add := func(host string, origin routing.Origin) {
		if _, known := held[host]; !known && t.hosts[host] == nil {
			held[host] = routing.Held{Name: host, Closed: t.isClosed(host, true), Origin: origin}
		}
	}
	for _, ing := range t.held {
		t.eachServed(ing, func(s ownership.Standing, host string, origin routing.Origin) {
			if h := t.hosts[host]; h != nil {
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

// isReleased reports whether not even the name of a host is to be written, since the Ingress that
// has it is left out and that name may be why.
func (t *merge) isReleased(o *ownership.Owner) bool {
	return t.cfg.Refused[o.By.Ref] && t.cfg.Released[o.Namespace()]
}

// isClosed reports whether the default backend is not to answer for a host. Held says that a rule
// for the host was left out.
func (t *merge) isClosed(host string, held bool) bool {
	return t.fallback != nil && t.owners.IsClosedTo(t.fallback.by.Ref.Namespace, host, held)
}
