package routing

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/internal/printable"
)

// A host belongs to the namespace of the oldest Ingress of ours that names it: in a rule, in
// tls, or as an alias. It does not matter whether that Ingress is served: one that is left out
// for a mistake keeps its hosts. What there can be one of for a host is the owner's alone, also
// where the owner says nothing of it: certificates, what is asked of TLS clients, passthrough,
// aliases. Paths of others are merged with the owner's, or not served, as the configuration says.
//
// With owned hosts, a wildcard's owner also owns the hosts below it that others named later.

// owner is who has a host: the oldest Ingress that names it, and where it does.
type owner struct {
	by   ingress
	path []any
}

func (o *owner) namespace() string { return o.by.Ref.Namespace }

// sharing is a host, and the namespace of Ingresses that share it.
type sharing struct{ host, namespace string }

// standing is what a namespace may do with a host.
type standing int

const (
	owns    standing = iota // all
	shares                  // have paths
	strange                 // nothing
)

// findOwners finds out whom hosts belong to. The Ingresses are ours, oldest first.
func (t *translation) findOwners(ingresses []ingress) {
	for _, ing := range ingresses {
		said, aliases := hostOptions(ing)
		t.eachHost(ing, aliases, func(host string, path ...any) {
			if t.reservedFor(host, ing.Ref.Namespace) == forOthers {
				return
			}
			if t.owners[host] == nil {
				t.owners[host] = &owner{ing, path}
			}
			if path[1] != "tls" {
				t.routed[host] = true
			}
			if len(said) > 0 {
				of := sharing{host, ing.Ref.Namespace}
				t.sharedWith[of] = append(t.sharedWith[of], said...)
			}
		})
	}
}

// hostOptions returns with whom an Ingress shares its hosts, and its aliases.
func hostOptions(ing ingress) (shared, aliases []string) {
	_, hasAliases := ing.Value.Annotations[options.Prefix+"server-alias"]
	_, hasShared := ing.Value.Annotations[options.Prefix+"share-host"]
	if !hasAliases && !hasShared {
		return nil, nil // as most
	}
	values, _ := options.Read(options.OnIngress, ing.Value.Annotations)
	settings, _, _ := options.Resolve(values)
	if len(ruleHosts(ing.Value.Spec.Rules)) != 1 {
		settings.Aliases = nil
	}
	return settings.ShareHost, settings.Aliases
}

// eachHost calls do with every sound host that an Ingress names, as the model names it, and
// where.
func (t *translation) eachHost(ing ingress, aliases []string, do func(host string, path ...any)) {
	sound := func(host string) bool {
		message, _ := checkHost(normalHost(host))
		return message == ""
	}
	for i, rule := range ing.Value.Spec.Rules {
		if sound(rule.Host) {
			do(hostName(rule.Host), "spec", "rules", i, "host")
		}
	}
	for i, entry := range ing.Value.Spec.TLS {
		for j, host := range entry.Hosts {
			if sound(host) {
				do(hostName(host), "spec", "tls", i, "hosts", j)
			}
		}
	}
	for _, host := range aliases {
		if sound(host) {
			do(hostName(host), annotationPath("server-alias")...)
		}
	}
}

// ownerOf returns who has a host of the model, nil if nobody who may.
func (t *translation) ownerOf(host string) *owner {
	o := t.owners[host]
	if !t.cfg.OwnedHosts {
		return o
	}
	w := t.owners[wildcardKey(host)]
	if w != nil && (o == nil || older(w.by, o.by)) && t.reservedFor(host, w.namespace()) != forOthers {
		return w
	}
	return o
}

// wildcardKey returns the wildcard that matches a host of the model, "-" if none does.
func wildcardKey(host string) string {
	if _, parent, ok := strings.Cut(host, "."); ok && !strings.HasPrefix(host, ".") {
		return "." + parent
	}
	return "-"
}

func older(a, b ingress) bool {
	c := compareAge(a, b)
	return c < 0 || c == 0 && a.Ref.Compare(b.Ref) < 0
}

// standingOf says what an Ingress may do with a host of the model, and who has it; that is nil
// where the host is reserved for others, or is none.
func (t *translation) standingOf(ing ingress, host string) (standing, *owner) {
	if host == "" {
		return owns, nil
	}
	namespace, reserved := ing.Ref.Namespace, t.reservedFor(host, ing.Ref.Namespace)
	if reserved == forOthers {
		return strange, nil
	}
	o := t.ownerOf(host)
	switch {
	case o == nil || o.namespace() == namespace:
		return owns, o
	case !t.cfg.OwnedHosts || reserved == forIt || t.isShared(host, o, namespace):
		return shares, o
	}
	return strange, o
}

// isShared reports whether an owner, or the administrator, shares a host with a namespace.
func (t *translation) isShared(host string, o *owner, namespace string) bool {
	for _, name := range []string{host, wildcardKey(host)} {
		said := t.sharedWith[sharing{name, o.namespace()}]
		if slices.Contains(said, namespace) || slices.Contains(said, "*") {
			return true
		}
		if slices.ContainsFunc(t.cfg.SharedHosts, func(s config.SharedHost) bool { return hostName(s.Host) == name && s.Namespaces.Has(namespace) }) {
			return true
		}
	}
	return false
}

// reservation says whether a host is reserved.
type reservation int

const (
	forNobody reservation = iota
	forIt                 // for the namespace, perhaps among others
	forOthers
)

// reservedFor says whether a host of the model is reserved. Of several domains that it is in,
// the longest counts.
func (t *translation) reservedFor(host, namespace string) reservation {
	longest, found := -1, forNobody
	for _, d := range t.cfg.ReservedDomains {
		if len(d.Domain) <= longest || !d.Contains(host) {
			continue
		}
		longest, found = len(d.Domain), forOthers
		if d.Namespaces.Has(namespace) {
			found = forIt
		}
	}
	return found
}

// reportStrange reports a host that an Ingress names and may not have.
func (t *translation) reportStrange(ing ingress, at diag.Position, subject, host string, o *owner) {
	if o == nil {
		t.report(diag.Error, ing, at, fmt.Sprintf("%s is not used: host %s is in a domain that is reserved for other namespaces", subject, host),
			"use another host; reservedDomains of the configuration says who may have it")
		return
	}
	t.reportLost(diag.Error, ing, o.by, at,
		fmt.Sprintf("%s is not used: host %s belongs to namespace %s, by %s", subject, host, o.namespace(), precedes(o.by, ing)),
		fmt.Sprintf("use a host of your own, or have namespace %s add %sshare-host: %s to its Ingress%s", o.namespace(), options.Prefix, ing.Ref.Namespace, winnerAt(Origin{Position: o.by.Position(o.path...)})))
}

// mayDecide reports whether an Ingress may say something of a host that is its owner's to say,
// and reports it if not; what names that.
func (t *translation) mayDecide(ing ingress, at diag.Position, what, host string) bool {
	s, o := t.standingOf(ing, hostName(host))
	if s == owns {
		return true
	}
	if o == nil {
		t.reportStrange(ing, at, what, host, o)
		return false
	}
	t.reportLost(diag.Error, ing, o.by, at,
		fmt.Sprintf("%s is not used for host %s: the host belongs to namespace %s, by %s", what, host, o.namespace(), precedes(o.by, ing)),
		"only the owner of a host says this of it; use a host of your own"+winnerAt(Origin{Position: o.by.Position(o.path...)}))
	return false
}

// mostTold is how many takings of a host its owner is told one by one.
const mostTold = 5

// tellOwners tells the owners of hosts who else has paths of them, and hosts below their
// wildcards, unless they share them. Each host's owner is told once.
func (t *translation) tellOwners() {
	below := map[string][]string{} // by wildcard
	for _, host := range slices.Sorted(maps.Keys(t.hosts)) {
		o := t.ownerOf(host)
		if o == nil || host == "" {
			continue
		}
		if w := t.owners[wildcardKey(host)]; w != nil && w.namespace() != o.namespace() && older(w.by, o.by) && !t.isShared(host, w, o.namespace()) {
			below[wildcardKey(host)] = append(below[wildcardKey(host)], fmt.Sprintf("%s by %s", host, o.by.Ref))
		}
		routes := t.hosts[host].routes
		var matches []PathMatch
		for match, c := range routes {
			if c.by.Ref.Namespace != o.namespace() && !t.isShared(host, o, c.by.Ref.Namespace) {
				matches = append(matches, match)
			}
		}
		slices.SortFunc(matches, PathMatch.compare)
		var taken []string
		for _, match := range matches {
			taken = append(taken, fmt.Sprintf("%s (%s) by %s", printable.Quoted(orSlash(match.Path)), match.Type, routes[match].by.Ref))
		}
		t.tellTaken(o, "other namespaces have paths of host "+shownHost(host), taken, "to have them alone, ask for hosts: owned in the configuration; "+options.Prefix+"share-host says that it is meant")
	}
	for _, wildcard := range slices.Sorted(maps.Keys(below)) {
		t.tellTaken(t.owners[wildcard], "other namespaces have hosts below "+shownHost(wildcard), below[wildcard], "to own these too, ask for hosts: owned in the configuration; "+options.Prefix+"share-host says that it is meant")
	}
}

func (t *translation) tellTaken(o *owner, what string, taken []string, hint string) {
	if len(taken) == 0 {
		return
	}
	more := ""
	if n := len(taken) - mostTold; n > 0 {
		more = fmt.Sprintf(", and %d more", n)
		taken = taken[:mostTold]
	}
	t.report(diag.Warning, o.by, o.by.Position(o.path...), what+": "+strings.Join(taken, ", ")+more, hint)
}

// shownHost returns a host of the model as rules have it.
func shownHost(host string) string {
	if strings.HasPrefix(host, ".") {
		return "*" + host
	}
	return host
}

// hold makes the hosts of an Ingress that is left out known, whose routes are closed where it
// protects something. Their requests get 404, and no rule of another Ingress that has no host.
func (t *translation) hold(ing ingress) {
	_, aliases := hostOptions(ing)
	t.eachServed(ing, aliases, func(s standing, host string, at ...any) {
		if t.hosts[host] == nil {
			t.hosts[host] = &virtualHost{origin: originOf(ing, at...), form: FormOf(t.cfg.Paths), routes: map[PathMatch]claim{}, held: true}
		}
		t.hosts[host].held = t.hosts[host].held || s == owns
		if _, taken := t.passed[host]; !taken {
			t.passed[host] = hostClaim{by: ing, origin: originOf(ing, at...)}
		}
	})
}

// eachServed calls do with every sound host of an Ingress that it has routes of, or would have.
func (t *translation) eachServed(ing ingress, aliases []string, do func(s standing, host string, at ...any)) {
	t.eachHost(ing, aliases, func(host string, at ...any) {
		if at[1] == "tls" {
			return
		}
		if s, _ := t.standingOf(ing, host); s != strange {
			do(s, host, at...)
		}
	})
}

// heldHosts returns the hosts that have no routes, and that nobody else is to serve: those of
// Ingresses that HAProxy refuses, those that an older Ingress has only a certificate for, where
// hosts are owned, and reserved domains.
// Nothing but their names reaches a template, and those keep to the rules of DNS; and while
// they are in the way all the same, [Config].Released has those of HAProxy's refusals left out.
func (t *translation) heldHosts() []Held {
	held := map[string]Held{}
	add := func(host string, origin Origin) {
		if _, known := held[host]; !known && t.hosts[host] == nil {
			held[host] = Held{host, t.isClosed(host, true), origin}
		}
	}
	for _, ing := range t.held {
		_, aliases := hostOptions(ing)
		t.eachServed(ing, aliases, func(s standing, host string, at ...any) {
			if h := t.hosts[host]; h != nil {
				h.held = h.held || s == owns
			}
			if t.cfg.Released[ing.Ref.Namespace] {
				return
			}
			add(host, originOf(ing, at...))
			if _, taken := t.passed[host]; !taken {
				t.passed[host] = hostClaim{by: ing, origin: originOf(ing, at...)}
			}
		})
	}
	var alone []string
	if t.cfg.OwnedHosts {
		alone = t.apart()
	}
	for _, d := range t.cfg.ReservedDomains {
		alone = append(alone, d.Domain)
	}
	for _, host := range alone {
		o := t.owners[host]
		switch {
		case o == nil:
			add(host, Origin{})
		case !t.isReleased(o):
			add(host, originOf(o.by, o.path...))
		}
	}
	var out []Held
	for _, host := range slices.Sorted(maps.Keys(held)) {
		out = append(out, held[host])
	}
	return out
}

// isReleased reports whether not even the name of a host is to be written, since the Ingress that
// has it is left out and that name may be why.
func (t *translation) isReleased(o *owner) bool {
	return t.cfg.Refused[o.by.Ref] && t.cfg.Released[o.namespace()]
}

// isClosed reports whether the default backend is not to answer for a host, since it is of
// a namespace that has nothing to say there. Held says that a rule for the host was left out.
func (t *translation) isClosed(host string, held bool) bool {
	if t.fallback == nil || host == "" {
		return false
	}
	namespace := t.fallback.by.Ref.Namespace
	if t.reservedFor(host, namespace) == forOthers {
		return true
	}
	o := t.ownerOf(host)
	if o == nil || o.namespace() == namespace {
		return false
	}
	return held || t.cfg.OwnedHosts && t.reservedFor(host, namespace) != forIt && !t.isShared(host, o, namespace)
}

// isApart reports whether a wildcard that matches a host has no say in it: the host is reserved
// for others, or was there before the wildcard.
func (t *translation) isApart(host string) bool {
	w := t.owners[wildcardKey(host)]
	if w == nil {
		return false
	}
	o := t.owners[host]
	return t.reservedFor(host, w.namespace()) == forOthers || o != nil && o.namespace() != w.namespace() && older(o.by, w.by)
}

// apart returns the hosts in which no wildcard that matches them has a say, sorted.
func (t *translation) apart() []string {
	var out []string
	for host := range t.owners {
		if !strings.HasPrefix(host, ".") && t.isApart(host) {
			out = append(out, host)
		}
	}
	for _, d := range t.cfg.ReservedDomains {
		if t.isApart(d.Domain) {
			out = append(out, d.Domain)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
