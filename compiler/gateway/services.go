package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway/attach"
)

// Services says which Services are made for Gateways.
type Services struct {
	Enabled bool
	// Labels and Annotations are the keys that a Gateway may bring to its Service: whole keys,
	// "example.com/*" or "*".
	Labels, Annotations []string
}

// gatewayServiceMark is an annotation of all of these, which says whose they are: see package announce.
const gatewayServiceMark = "gateway.hapsnap.dev/controller"

// Service is the Service that a Gateway is to have in its namespace (GEP-1762).
type Service struct {
	Name                string
	Labels, Annotations map[string]string
	// Ports are those of the listeners that are served. With none there is nothing to make, and what is
	// there stays: a mistake in a listener takes the address of a load balancer from nobody.
	Ports []int
	// Addresses are those of the Gateway, where HAProxy listens on these ports.
	Addresses []string
}

// service returns the Service of a Gateway, nil if there is to be none.
func (t *gateways) service(g *attach.Gateway) *Service {
	labels, annotations := brought(g.Value.Spec.Infrastructure)
	if !t.cfg.Services.Enabled {
		if len(labels)+len(annotations) > 0 {
			t.report(diag.Warning, g.Ref, g.Position("spec", "infrastructure"), "labels and annotations are for the Service of a Gateway, and the configuration makes none", "")
		}
		return nil
	}
	class := string(g.Value.Spec.GatewayClassName)
	out := &Service{Name: serviceName(g.Ref.Name, class), Addresses: g.Addresses, Labels: map[string]string{}, Annotations: map[string]string{}}
	t.bring(g, "labels", labels, t.cfg.Services.Labels, out.Labels)
	t.bring(g, "annotations", annotations, t.cfg.Services.Annotations, out.Annotations)
	out.Labels[gatewayv1.GatewayNameLabelKey] = labelValue(g.Ref.Name)
	out.Labels[gatewayv1.GatewayClassNameLabelKey] = labelValue(class)
	if g.Refused.Fine() && g.Unplaced.Fine() {
		out.Ports = g.Ports()
	}
	return out
}

func brought(i *gatewayv1.GatewayInfrastructure) (labels, annotations map[string]string) {
	labels, annotations = map[string]string{}, map[string]string{}
	if i == nil {
		return labels, annotations
	}
	for key, value := range i.Labels {
		labels[string(key)] = string(value)
	}
	for key, value := range i.Annotations {
		annotations[string(key)] = string(value)
	}
	return labels, annotations
}

// bring copies what a Gateway may bring, and reports the rest.
func (t *gateways) bring(g *attach.Gateway, field string, from map[string]string, allowed []string, to map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(from)) {
		if mayBring(key, allowed) {
			to[key] = from[key]
			continue
		}
		t.report(diag.Warning, g.Ref, g.Position("spec", "infrastructure", field, key), fmt.Sprintf("%s is left out of the Service: gatewayAPI.services.%s of the configuration does not allow it", key, field), "")
	}
}

// mayBring reports whether a key is allowed. "*" has none of those by which Kubernetes, a cloud and we
// ourselves do things with a Service.
func mayBring(key string, allowed []string) bool {
	domain, _, qualified := strings.Cut(key, "/")
	if !qualified {
		domain = ""
	}
	of := func(parent string) bool { return domain == parent || strings.HasSuffix(domain, "."+parent) }
	if of("hapsnap.dev") || of("gateway.networking.k8s.io") {
		return false
	}
	return slices.ContainsFunc(allowed, func(pattern string) bool {
		if pattern == "*" {
			return !of("kubernetes.io") && !of("k8s.io")
		}
		if prefix, wide := strings.CutSuffix(pattern, "*"); wide {
			return strings.HasPrefix(key, prefix)
		}
		return pattern == key
	})
}

// serviceName is NAME-CLASS, or where that is no name of a Service, one that begins like it and has a
// digest.
func serviceName(gateway, class string) string {
	name := gateway + "-" + class
	if len(validation.IsDNS1035Label(name)) == 0 {
		return name
	}
	plain := strings.ReplaceAll(name, ".", "-")
	if plain[0] >= '0' && plain[0] <= '9' {
		plain = "gateway-" + plain
	}
	return shortened(plain, name)
}

// labelValue is a name as the value of a label.
func labelValue(name string) string {
	if len(name) <= validation.LabelValueMaxLength {
		return name
	}
	return shortened(name, name)
}

// shortened cuts a text to 63 characters with a digest of the whole.
func shortened(text, whole string) string {
	sum := sha256.Sum256([]byte(whole))
	digest := hex.EncodeToString(sum[:4])
	return strings.TrimRight(text[:min(len(text), validation.DNS1035LabelMaxLength-1-len(digest))], "-.") + "-" + digest
}
