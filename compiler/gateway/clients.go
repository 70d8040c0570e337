package gateway

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/access"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway/attach"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/internal/manifests"
)

// askClients finds whom the listeners of a Gateway ask for certificates, if they end TLS. Listeners whose
// authorities cannot be had are not served.
func (t *gateways) askClients(g *attach.Gateway) {
	if g.Value.Spec.TLS == nil || g.Value.Spec.TLS.Frontend == nil {
		return
	}
	frontend := *g.Value.Spec.TLS.Frontend
	for _, l := range g.All() {
		if !l.EndsTLS() || !l.Accepted.Fine() {
			continue
		}
		asked := frontend.Default.Validation
		if i := slices.IndexFunc(frontend.PerPort, func(p gatewayv1.TLSPortConfig) bool { return p.Port == l.Spec.Port }); i >= 0 {
			asked = frontend.PerPort[i].TLS.Validation
		}
		if asked == nil {
			continue
		}
		refuse := func(reason gatewayv1.ListenerConditionReason, message string) {
			l.Accepted = attach.Verdict{Reason: string(reason), Message: message}
		}
		switch asked.Mode {
		case "", gatewayv1.AllowValidOnly, gatewayv1.AllowInsecureFallback:
		default:
			refuse(gatewayv1.ListenerReasonUnsupportedValue, fmt.Sprintf("the mode %q for certificates of clients is not supported", asked.Mode))
			continue
		}
		var refs []attach.Reference
		for _, ref := range asked.CACertificateRefs {
			refs = append(refs, attach.ReferenceOf("", g.Ref.Namespace, &ref.Group, &ref.Kind, ref.Namespace, ref.Name))
		}
		found, known := t.authorities.validation[asked]
		if !known {
			found.file, found.why = t.authorities.authority(g.Ref, refs, string(gatewayv1.ListenerReasonInvalidCACertificateKind))
			t.authorities.validation[asked] = found
		}
		if l.Resolved.Fine() {
			l.Resolved = found.why
		}
		if found.file == "" {
			refuse(gatewayv1.ListenerReasonNoValidCACertificate, cmp.Or(found.why.Message, "no authority is named")+"; without one no certificate of a client can be checked")
			continue
		}
		insecure := asked.Mode == gatewayv1.AllowInsecureFallback
		l.Clients = &routing.ClientCheck{Authority: found.file, Required: !insecure, Any: insecure}
	}
}

// insecure reports whether a port of a Gateway may take clients without a valid certificate though it asks
// for one.
func insecure(g *attach.Gateway) bool {
	if g.Value.Spec.TLS == nil || g.Value.Spec.TLS.Frontend == nil {
		return false
	}
	is := func(c gatewayv1.TLSConfig) bool {
		return c.Validation != nil && c.Validation.Mode == gatewayv1.AllowInsecureFallback
	}
	frontend := g.Value.Spec.TLS.Frontend
	return is(frontend.Default) || slices.ContainsFunc(frontend.PerPort, func(p gatewayv1.TLSPortConfig) bool { return is(p.TLS) })
}

// showServers finds the certificate that a Gateway shows to servers over TLS.
func (t *gateways) showServers(g *attach.Gateway) {
	if g.Value.Spec.TLS == nil || g.Value.Spec.TLS.Backend == nil || g.Value.Spec.TLS.Backend.ClientCertificateRef == nil {
		return
	}
	ref := *g.Value.Spec.TLS.Backend.ClientCertificateRef
	to := attach.ReferenceOf("Secret", g.Ref.Namespace, ref.Group, ref.Kind, ref.Namespace, ref.Name)
	at := []any{"spec", "tls", "backend", "clientCertificateRef"}
	wrong := func(reason gatewayv1.GatewayConditionReason, message string) {
		g.Resolved = attach.Verdict{Reason: string(reason), Message: message}
		t.report(diag.Warning, g.Ref, g.Position(at...), message+"; servers that ask for a certificate get none that they trust", "")
	}
	switch {
	case to.Group != "" || to.Kind != "Secret":
		wrong(gatewayv1.GatewayReasonInvalidClientCertificateRef, fmt.Sprintf("a certificate is in a Secret, and not in a %s/%s", cmp.Or(to.Group, "core"), to.Kind))
	case !t.world.Permitted(g.Ref.Kind, g.Ref.Namespace, to):
		wrong(gatewayv1.GatewayReasonRefNotPermitted, fmt.Sprintf("no ReferenceGrant of the namespace %s permits the reference to Secret %s/%s", to.Namespace, to.Namespace, to.Name))
	default:
		c, why := t.certificates.certificate(to.Name, to.Namespace, routing.Origin{Object: g.Ref, Position: g.Position(at...), Field: manifests.FieldPath(at)})
		g.Shown = c.File
		if c.Observed != nil {
			t.addNew(access.CertificateWarnings(t.certificates.secrets[types.NamespacedName(c.Secret)], *c.Observed, t.cfg.Now, nil, "servers that ask for it may refuse it")...)
		}
		if why != "" {
			wrong(gatewayv1.GatewayReasonInvalidClientCertificateRef, fmt.Sprintf("Secret %s/%s %s", to.Namespace, to.Name, why))
		}
	}
}
