package gateway

import (
	"fmt"
	"net/netip"
	"slices"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/gateway/attach"
)

// pool gives addresses to Gateways.
type pool struct {
	networks []netip.Prefix
	taken    map[netip.Addr]string // by whom
}

// place gives every Gateway addresses of its own, if the configuration has some to give. First those keep
// theirs that have them by their status, so that no other Gateway moves them; then those get theirs that
// name them, and then the others the first ones that are free. Among equals the older one is first.
func place(gateways []*attach.Gateway, networks []netip.Prefix) {
	if len(networks) == 0 {
		return
	}
	p := pool{networks: networks, taken: map[netip.Addr]string{}}
	for _, g := range gateways {
		p.keep(g)
	}
	for _, g := range gateways {
		if g.Refused.Fine() && len(g.Addresses) == 0 && len(named(g)) > 0 {
			p.give(g, named(g))
		}
	}
	for _, g := range gateways {
		if g.Refused.Fine() && len(g.Addresses) == 0 && len(named(g)) == 0 {
			p.giveFree(g)
		}
	}
}

// named returns the addresses that a Gateway names. One without a value stands for any.
func named(g *attach.Gateway) []string {
	var out []string
	for _, a := range g.Value.Spec.Addresses {
		if a.Value != "" {
			out = append(out, a.Value)
		}
	}
	return out
}

// keep leaves a Gateway what its status says that it has, unless it names something else.
func (p pool) keep(g *attach.Gateway) {
	if !g.Refused.Fine() {
		return
	}
	var has []string
	for _, a := range g.Value.Status.Addresses {
		has = append(has, a.Value)
	}
	want := named(g)
	if len(has) == 0 || len(want) > 0 && !slices.Equal(has, want) || len(want) == 0 && len(has) > 1 {
		return
	}
	if usable, why := p.usable(has); why.Fine() {
		p.take(g, usable)
	}
}

func (p pool) give(g *attach.Gateway, want []string) {
	usable, why := p.usable(want)
	if g.Unplaced = why; why.Fine() {
		p.take(g, usable)
	}
}

func (p pool) giveFree(g *attach.Gateway) {
	for _, network := range p.networks {
		for a := network.Masked().Addr(); network.Contains(a); a = a.Next() {
			if _, is := p.taken[a]; !is {
				p.take(g, []netip.Addr{a})
				return
			}
		}
	}
	g.Unplaced = attach.Verdict{Reason: string(gatewayv1.GatewayReasonAddressNotAssigned), Message: "all addresses for Gateways are taken"}
}

func (p pool) take(g *attach.Gateway, addresses []netip.Addr) {
	for _, a := range addresses {
		p.taken[a] = g.Ref.String()
		g.Addresses = append(g.Addresses, a.String())
	}
}

// usable returns addresses that a Gateway may have, or why it may not.
func (p pool) usable(texts []string) ([]netip.Addr, attach.Verdict) {
	var out []netip.Addr
	for _, text := range texts {
		a, err := netip.ParseAddr(text)
		switch by, taken := p.taken[a]; {
		case err != nil || a.Zone() != "" || !slices.ContainsFunc(p.networks, func(n netip.Prefix) bool { return n.Contains(a) }):
			return nil, attach.Verdict{Reason: string(gatewayv1.GatewayReasonAddressNotUsable), Message: fmt.Sprintf("the address %s is none of those for Gateways", text)}
		case taken:
			return nil, attach.Verdict{Reason: string(gatewayv1.GatewayReasonAddressNotUsable), Message: fmt.Sprintf("the address %s is that of %s", text, by)}
		case slices.Contains(out, a):
			return nil, attach.Verdict{Reason: string(gatewayv1.GatewayReasonAddressNotUsable), Message: fmt.Sprintf("the address %s is named twice", text)}
		}
		out = append(out, a)
	}
	return out, attach.Verdict{}
}
