package gateway

import (
	"regexp"
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	configured "github.com/hapsnap/hapsnap/compiler/config/gateways"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway/attach"
	"github.com/hapsnap/hapsnap/compiler/inputs"
)

// fleetOf returns the fleet that a Gateway names, as namespace/name, or "". It is one of the Gateway's own
// namespace: nobody moves a Gateway onto the fleet of others.
func fleetOf(g *gatewayv1.Gateway) string {
	if g.Spec.Infrastructure == nil {
		return ""
	}
	ref := g.Spec.Infrastructure.ParametersRef
	if ref == nil || ref.Group != configured.FleetGroup || ref.Kind != configured.FleetKind {
		return ""
	}
	return g.Namespace + "/" + ref.Name
}

// signed is a message of a compiler that has a fleet: it names the fleet. All compilers of a class have one
// controllerName, so that nothing else tells whose word an entry of a status is.
func signed(fleet, message string) string {
	if fleet == "" {
		return message
	}
	return strings.TrimSpace(message + " (fleet " + fleet + ")")
}

var signature = regexp.MustCompile(`\(fleet ([^()\s]+)\)$`)

// signer returns the fleet whose compiler has signed a message, or "".
func signer(message string) string {
	if m := signature.FindStringSubmatch(message); m != nil {
		return m[1]
	}
	return ""
}

// Elsewhere says which entries of a status are those of compilers of other fleets. Each compiler leaves what
// the others have written.
type Elsewhere struct {
	// Fleet is that of this compiler, as namespace/name, or "".
	Fleet string
	// Reads reports whether objects of a namespace are read.
	Reads func(namespace string) bool
	In    inputs.GatewayAPI
}

// Has reports whether an entry about a Gateway or ListenerSet, whose condition Accepted has a message, is for
// another compiler. The compiler without a fleet takes out what is said of one that is gone, whoever said it.
func (e Elsewhere) Has(about diag.Object, message string) bool {
	if signer(message) == e.Fleet {
		return false
	}
	return e.Fleet != "" || !e.Reads(about.Namespace) || e.there(about)
}

func (e Elsewhere) there(o diag.Object) bool {
	if o.Kind != "ListenerSet" {
		return slices.ContainsFunc(e.In.Gateways, func(g inputs.Object[gatewayv1.Gateway]) bool { return g.Ref == o })
	}
	return slices.ContainsFunc(e.In.Sets, func(s inputs.Object[gatewayv1.ListenerSet]) bool {
		to := s.Value.Spec.ParentRef
		r := attach.ReferenceOf("Gateway", o.Namespace, to.Group, to.Kind, to.Namespace, to.Name)
		return s.Ref == o && (!e.Reads(r.Namespace) || e.there(diag.Object{Kind: "Gateway", Namespace: r.Namespace, Name: r.Name}))
	})
}
