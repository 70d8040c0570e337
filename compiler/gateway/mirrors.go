package gateway

import (
	"slices"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/routing"
)

// mirrored returns the filters that copy requests of a rule, or of one of its backendRefs. A mirror that leads
// to nothing is left out, and reported: no request suffers from it.
func mirrored(r *reader, todo work, w *wants, origin routing.Origin) ([]policy.Filter, *problem) {
	var out []policy.Filter
	for _, m := range todo.mirrors {
		share, p := shareOf(m)
		if p == nil && r.isGRPC() {
			p = unsupported("calls are not mirrored")
		}
		if p == nil && r.form == routing.AsSent {
			p = unsupported("mirrors need Lua in HAProxy, which paths.normalize says is there")
		}
		if p != nil {
			return nil, p
		}
		found := r.refer(r.Route, gatewayv1.BackendRef{BackendObjectReference: m.BackendRef})
		r.use(found)
		if found.problem == nil && found.service.Value.Annotations[gatewayServiceMark] != "" {
			found.problem = &problem{reason: string(gatewayv1.RouteReasonInvalidKind), message: "the Service " + found.target.Service.Service + " is that of a Gateway, and a request would be copied for ever"}
		}
		if found.problem != nil {
			r.resolve(found.problem)
			continue
		}
		if share.Numerator > 0 {
			share.Backend = r.takePlain(found, w, origin)
			out = append(out, share)
		}
	}
	return out, nil
}

// shareOf returns how many requests are copied.
func shareOf(m gatewayv1.HTTPRequestMirrorFilter) (policy.Mirror, *problem) {
	out := policy.Mirror{Numerator: 100, Denominator: 100}
	switch {
	case m.Percent != nil && m.Fraction != nil:
		return out, unsupported("a mirror has either a percentage or a fraction")
	case m.Percent != nil:
		out.Numerator = int(*m.Percent)
	case m.Fraction != nil:
		out.Numerator = int(m.Fraction.Numerator)
		if m.Fraction.Denominator != nil {
			out.Denominator = int(*m.Fraction.Denominator)
		}
	}
	if out.Denominator < 1 || out.Numerator < 0 || out.Numerator > out.Denominator {
		return out, unsupported("%d in %d requests is no share of them", out.Numerator, out.Denominator)
	}
	return out, nil
}

// placeMirrors gives the mirrors of all backends the socket by which copies come. It is named after the first port
// of a Gateway.
func placeMirrors(m *routing.Model) {
	if len(m.Binds) == 0 {
		return
	}
	first := m.Binds[0]
	for i, b := range m.Backends {
		if !slices.ContainsFunc(b.Filters, func(f policy.Filter) bool { _, is := f.(policy.Mirror); return is }) {
			continue
		}
		m.Backends[i].Filters = slices.Clone(b.Filters) // which claims have, too
		for j, f := range b.Filters {
			if mirror, ok := f.(policy.Mirror); ok {
				if mirror.Port = first.Socket; len(first.Addresses) > 0 {
					mirror.Address = first.Addresses[0]
				}
				m.Backends[i].Filters[j] = mirror
			}
		}
	}
}
