package gateway

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway/attach"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/policy"
)

// backendTLS is a BackendTLSPolicy. It is read only if a route leads to a Service that it targets, since other policies
// are for other programs.
type backendTLS struct {
	inputs.Object[gatewayv1.BackendTLSPolicy]
	judged bool
	// tls says how to speak to servers. It is nil if nothing may be sent to them.
	tls                *policy.TLS
	accepted, resolved attach.Verdict
	// ancestors are the Gateways of the routes to its targets, by name.
	ancestors map[diag.Object]*ancestor
}

// ancestor is the effect of a policy for a Gateway.
type ancestor struct {
	// holds says that the policy applies to one of its targets. conflict and missing say why it does not apply to
	// another one.
	holds             bool
	conflict, missing string
}

// target is what a policy applies to: all ports of a Service, or the port with this name.
type target struct {
	service types.NamespacedName
	port    string
}

// use is a Service port to which a route leads.
type use struct {
	service types.NamespacedName
	// found is the Service. It is nil if the Service or the port does not exist.
	found *corev1.Service
	port  string // the name of the port
}

// policies are the BackendTLSPolicies.
type policies struct {
	*findings
	cfg         Config
	world       *attach.World
	authorities *authorities
	// first has the policy that applies to each target, which is the oldest.
	first map[target]*backendTLS
	// by has all policies that target a Service, oldest first, with the ports.
	by map[types.NamespacedName][]targeted
}

type targeted struct {
	*backendTLS
	port string
}

func newPolicies(f *findings, cfg Config, world *attach.World, a *authorities, in []inputs.Object[gatewayv1.BackendTLSPolicy]) *policies {
	out := &policies{findings: f, cfg: cfg, world: world, authorities: a, first: map[target]*backendTLS{}, by: map[types.NamespacedName][]targeted{}}
	for _, o := range sorted(in) {
		p := &backendTLS{Object: o, ancestors: map[diag.Object]*ancestor{}}
		for _, ref := range o.Value.Spec.TargetRefs {
			if ref.Group != "" || ref.Kind != "Service" {
				continue // it is for another program
			}
			to := target{service: types.NamespacedName{Namespace: o.Ref.Namespace, Name: string(ref.Name)}}
			if ref.SectionName != nil {
				to.port = string(*ref.SectionName)
			}
			if out.first[to] == nil {
				out.first[to] = p
			}
			out.by[to.service] = append(out.by[to.service], targeted{p, to.port})
		}
	}
	return out
}

// of returns the policy for a port of a Service, or nil. A policy that names the port wins over one for all ports.
func (p *policies) of(service types.NamespacedName, port string) *backendTLS {
	found := p.first[target{service, ""}]
	if port != "" {
		found = cmp.Or(p.first[target{service, port}], found)
	}
	if found != nil {
		p.judge(found)
	}
	return found
}

// judge reads a policy. If it has something that is not supported, nothing is sent to the servers, since ignoring that
// would be unsafe.
func (p *policies) judge(b *backendTLS) {
	if b.judged {
		return
	}
	b.judged = true
	v := b.Value.Spec.Validation
	refuse := func(reason gatewayv1.PolicyConditionReason, format string, args ...any) {
		if b.accepted.Fine() {
			b.accepted = attach.Verdict{Reason: string(reason), Message: fmt.Sprintf(format, args...)}
		}
	}
	if field := inputs.UnknownField(b.Value); field != "" {
		refuse(gatewayv1.PolicyReasonInvalid, "%s", unknownField(field))
	}
	name := string(v.Hostname)
	if fault := checkHost(name); fault != nil {
		refuse(gatewayv1.PolicyReasonInvalid, "%s", fault.message)
	}
	if len(b.Value.Spec.Options) > 0 {
		refuse("UnsupportedValue", "options are not supported")
	}
	if n := len(v.SubjectAltNames); n > 1 || n == 1 && (v.SubjectAltNames[0].Type != gatewayv1.HostnameSubjectAltNameType || string(v.SubjectAltNames[0].Hostname) != name) {
		refuse("UnsupportedValue", "subjectAltNames other than the hostname itself are not supported")
	}
	tls := &policy.TLS{Verify: true, ServerName: name}
	system := v.WellKnownCACertificates != nil && *v.WellKnownCACertificates != ""
	switch {
	case system == (len(v.CACertificateRefs) > 0):
		refuse(gatewayv1.PolicyReasonInvalid, "it needs either caCertificateRefs or wellKnownCACertificates")
	case system && *v.WellKnownCACertificates != gatewayv1.WellKnownCACertificatesSystem:
		refuse(gatewayv1.PolicyReasonInvalid, "wellKnownCACertificates of the kind %s are not supported", *v.WellKnownCACertificates)
	case !system:
		var refs []attach.Reference
		for _, ref := range v.CACertificateRefs {
			refs = append(refs, attach.ReferenceOf("", b.Ref.Namespace, &ref.Group, &ref.Kind, nil, ref.Name))
		}
		tls.Authorities, b.resolved = p.authorities.authority(b.Ref, refs, string(gatewayv1.BackendTLSPolicyReasonInvalidKind))
		if tls.Authorities == "" {
			refuse(gatewayv1.BackendTLSPolicyReasonNoValidCACertificate, "%s", b.resolved.Message)
		}
	}
	if b.accepted.Fine() {
		b.tls = tls
	}
}

// note notes the Gateway of a route to a port of a Service.
func (p *policies) note(g *attach.Gateway, u use) {
	for _, by := range p.by[u.service] {
		missing := ""
		switch {
		case u.found == nil:
			missing = fmt.Sprintf("Service %s does not exist, or has no such port", u.service)
		case by.port == "" || by.port == u.port:
		case slices.ContainsFunc(u.found.Spec.Ports, func(o corev1.ServicePort) bool { return o.Name == by.port }):
			continue // for another port
		default:
			missing = fmt.Sprintf("Service %s has no port %s", u.service, by.port)
		}
		a := by.ancestors[g.Ref]
		if a == nil {
			a = &ancestor{}
			by.ancestors[g.Ref] = a
		}
		first := p.first[target{u.service, by.port}]
		switch {
		case first != by.backendTLS:
			a.conflict = cmp.Or(a.conflict, fmt.Sprintf("%s is older, and has the same target Service %s", first.Ref, u.service))
		case missing != "":
			a.missing = cmp.Or(a.missing, missing)
		default:
			a.holds = true
		}
	}
}

// verdicts returns what the status of the policies should say that apply to something of ours.
func (p *policies) verdicts() []PolicyVerdict {
	seen := map[*backendTLS]bool{}
	for _, list := range p.by {
		for _, by := range list {
			if len(by.ancestors) > 0 {
				seen[by.backendTLS] = true
			}
		}
	}
	var out []PolicyVerdict
	for _, b := range slices.SortedFunc(maps.Keys(seen), func(a, b *backendTLS) int { return a.Ref.Compare(b.Ref) }) {
		p.judge(b)
		v := PolicyVerdict{Ref: b.Ref}
		for _, g := range p.world.Gateways { // the oldest come first
			a := b.ancestors[g.Ref]
			if a == nil {
				continue
			}
			v.Ancestors = append(v.Ancestors, gatewayv1.PolicyAncestorStatus{
				AncestorRef: gatewayv1.ParentReference{
					Group: new(gatewayv1.Group(attach.Group)), Kind: new(gatewayv1.Kind(g.Ref.Kind)),
					Namespace: new(gatewayv1.Namespace(g.Ref.Namespace)), Name: gatewayv1.ObjectName(g.Ref.Name),
				},
				ControllerName: gatewayv1.GatewayController(p.cfg.Controller),
				Conditions:     b.conditions(a, p.cfg.Fleet),
			})
		}
		out = append(out, v)
		p.tell(b)
	}
	return out
}

// conditions returns the conditions of a policy for a Gateway.
func (b *backendTLS) conditions(a *ancestor, fleet string) []metav1.Condition {
	accepted := b.accepted
	switch {
	case a.holds:
	case a.conflict != "":
		accepted = attach.Verdict{Reason: string(gatewayv1.PolicyReasonConflicted), Message: a.conflict}
	case a.missing != "":
		accepted = attach.Verdict{Reason: string(gatewayv1.PolicyReasonTargetNotFound), Message: a.missing}
	}
	c := condition(string(gatewayv1.PolicyConditionAccepted), string(gatewayv1.PolicyReasonAccepted), accepted, b.Value.Generation)
	if accepted.Fine() {
		c.Message = cmp.Or(a.conflict, a.missing)
	}
	c.Message = signed(fleet, c.Message)
	return []metav1.Condition{
		c, condition(string(gatewayv1.BackendTLSPolicyConditionResolvedRefs), string(gatewayv1.BackendTLSPolicyReasonResolvedRefs), b.resolved, b.Value.Generation),
	}
}

// tell reports what is wrong with a policy.
func (p *policies) tell(b *backendTLS) {
	conflicts := map[string]bool{}
	holds := false
	for _, a := range b.ancestors {
		holds = holds || a.holds
		for _, text := range []string{a.conflict, a.missing} {
			if text != "" {
				conflicts[text] = true
			}
		}
	}
	for _, text := range slices.Sorted(maps.Keys(conflicts)) {
		p.report(diag.Warning, b.Ref, b.Position("spec", "targetRefs"), text, "")
	}
	at := b.Position("spec", "validation")
	switch {
	case !holds:
	case !b.accepted.Fine():
		p.report(diag.Error, b.Ref, at, b.accepted.Message+"; nothing is sent to the servers that it is for", "")
	case !b.resolved.Fine():
		p.report(diag.Warning, b.Ref, at, b.resolved.Message, "")
	}
}
