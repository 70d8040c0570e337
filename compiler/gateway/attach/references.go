package attach

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/routing"
)

// World is what decides about references.
type World struct {
	Gateways   []*Gateway
	Namespaces map[string]labels.Set
	Grants     []inputs.Object[gatewayv1.ReferenceGrant]
}

// Reference names an object that another one refers to.
type Reference struct{ Group, Kind, Namespace, Name string }

// ReferenceOf returns a reference of an object in a namespace. What it does not say is the core group, a
// kind and the same namespace.
func ReferenceOf(defaultKind, from string, group *gatewayv1.Group, kind *gatewayv1.Kind, namespace *gatewayv1.Namespace, name gatewayv1.ObjectName) Reference {
	out := Reference{Kind: defaultKind, Namespace: from, Name: string(name)}
	if group != nil {
		out.Group = string(*group)
	}
	if kind != nil {
		out.Kind = string(*kind)
	}
	if namespace != nil {
		out.Namespace = string(*namespace)
	}
	return out
}

// Certify finds the certificates of listeners. Of finds that of a Secret, and says why
// there is none now: the listener then refers to it all the same.
func (w World) Certify(listeners []*Listener, of func(name, namespace string, origin routing.Origin) (routing.Certificate, string)) {
	for _, l := range listeners {
		if l.Spec.TLS == nil || l.PassesOn() || !l.Accepted.Fine() {
			continue
		}
		own := l.Owner.By
		for i, ref := range l.Spec.TLS.CertificateRefs {
			to := ReferenceOf("Secret", own.Namespace, ref.Group, ref.Kind, ref.Namespace, ref.Name)
			if to.Group != "" || to.Kind != "Secret" {
				l.Resolved = unless(l.Resolved, gatewayv1.ListenerReasonInvalidCertificateRef, "a certificate is in a Secret, and not in a %s", cmp.Or(to.Group, "core")+"/"+to.Kind)
				continue
			}
			if !w.Permitted(own.Kind, own.Namespace, to) {
				l.Resolved = unless(l.Resolved, gatewayv1.ListenerReasonRefNotPermitted, "no ReferenceGrant of the namespace %s permits the reference to Secret %s/%s", to.Namespace, to.Namespace, to.Name)
				continue
			}
			origin := l.Owner.origin("spec", "listeners", l.Index, "tls", "certificateRefs", i)
			certificate, why := of(to.Name, to.Namespace, origin)
			if why != "" {
				l.Resolved = unless(l.Resolved, gatewayv1.ListenerReasonInvalidCertificateRef, "Secret %s/%s %s", to.Namespace, to.Name, why)
			}
			l.Certificates = append(l.Certificates, certificate)
		}
	}
}

// Permitted reports whether objects of a kind of the Gateway API in a namespace may refer to an object:
// one of the same namespace, or one that a ReferenceGrant there names.
func (w World) Permitted(kind, namespace string, to Reference) bool {
	if to.Namespace == namespace {
		return true
	}
	return slices.ContainsFunc(w.Grants, func(g inputs.Object[gatewayv1.ReferenceGrant]) bool {
		return g.Ref.Namespace == to.Namespace &&
			slices.ContainsFunc(g.Value.Spec.From, func(f gatewayv1.ReferenceGrantFrom) bool {
				return f.Group == Group && string(f.Kind) == kind && string(f.Namespace) == namespace
			}) &&
			slices.ContainsFunc(g.Value.Spec.To, func(t gatewayv1.ReferenceGrantTo) bool {
				return string(t.Group) == to.Group && string(t.Kind) == to.Kind && (t.Name == nil || *t.Name == "" || string(*t.Name) == to.Name)
			})
	})
}
