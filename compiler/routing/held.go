package routing

import (
	"maps"
	"slices"
	"strings"
)

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
