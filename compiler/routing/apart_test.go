package routing_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/routing"
)

func ownedBy(namespace, host string, age int64, annotations map[string]string) inputs.Object[networkingv1.Ingress] {
	o := ingressOf("web", 0)
	o.Ref.Namespace = namespace
	o.Value.CreationTimestamp = metav1.NewTime(time.Unix(100-age, 0))
	o.Value.Spec.Rules[0].Host, o.Value.Annotations = host, annotations
	return o
}

// A wildcard that passes its connections on does not have those of hosts that another namespace
// named before, even if only for their certificate, or that are reserved; nor of hosts whose
// Ingress is left out.
func TestWildcardPassesNoConnectionsOfOthers(t *testing.T) {
	t.Parallel()
	old, refused := ownedBy("a", "elsewhere.example", 9, nil), ownedBy("a", "refused.w.example", 1, nil)
	refused.Ref.Name = "refused"
	old.Value.Spec.TLS = []networkingv1.IngressTLS{{Hosts: []string{"Old.w.example."}, SecretName: "cert"}}
	in := inputs.Inputs{Ingresses: []inputs.Object[networkingv1.Ingress]{
		old, refused, ownedBy("b", "*.w.example", 5, map[string]string{"hapsnap.dev/ssl-passthrough": "true"}),
	}}
	m, found := routing.Translate(in, routing.Config{
		HTTPSPort: 443, Refused: map[diag.Object]bool{refused.Ref: true},
		ReservedDomains: []config.ReservedDomain{{Domain: "bank.w.example", Namespaces: config.Namespaces{"bank"}}},
	})
	ended := map[string]bool{}
	for _, l := range m.Listeners {
		for _, r := range l.Routes {
			ended[r.SNI] = r.Terminate
		}
	}
	for host, want := range map[string]bool{"old.w.example": true, "refused.w.example": true, "bank.w.example": true, ".w.example": false} {
		if got, listed := ended[host]; got != want || !listed {
			t.Errorf("TLS of %s ends here: %v, listed: %v\n%v", host, got, listed, found)
		}
	}
}

// Ports of Services have no connections for hosts that are reserved or, where hosts are owned, of
// others.
func TestPortsHaveOwners(t *testing.T) {
	t.Parallel()
	service := &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 9000}}}}
	service.Annotations = map[string]string{"hapsnap.dev/tcp-port": "9000", "hapsnap.dev/tcp-sni": "h.example, db.bank.example, own.example"}
	in := inputs.Inputs{
		Ingresses: []inputs.Object[networkingv1.Ingress]{ownedBy("a", "h.example", 1, nil)},
		Services:  []inputs.Object[corev1.Service]{{Ref: diag.Object{Kind: "Service", Namespace: "b", Name: "db"}, Value: service}},
	}
	for owned, want := range map[bool]string{false: "h.example own.example", true: "own.example"} {
		m, found := routing.Translate(in, routing.Config{
			OwnedHosts: owned, TCPAnnotations: config.TCPAnnotations{Ports: []string{"9000"}, Namespaces: config.Namespaces{"*"}},
			ReservedDomains: []config.ReservedDomain{{Domain: "bank.example", Namespaces: config.Namespaces{"bank"}}},
		})
		var hosts []string
		for _, l := range m.Listeners {
			for _, r := range l.Routes {
				hosts = append(hosts, r.SNI)
			}
		}
		slices.Sort(hosts)
		if got := strings.Join(hosts, " "); got != want {
			t.Errorf("owned %v: connections for %q, want %q\n%v", owned, got, want, found)
		}
	}
}

// Ownership goes on with an older Ingress of the same namespace, and moves if there is none; who
// loses it is told.
func TestOwnershipMoves(t *testing.T) {
	t.Parallel()
	anew, second, other := ownedBy("a", "h.example", 1, nil), ownedBy("a", "h.example", 9, nil), ownedBy("b", "h.example", 5, nil)
	anew.Ref.Name, second.Ref.Name = "anew", "second"
	second.Value.Spec.Rules[0].HTTP = nil
	anew.Value.Spec.TLS = []networkingv1.IngressTLS{{Hosts: []string{"h.example"}, SecretName: "cert"}}
	for name, test := range map[string]struct {
		ingresses []inputs.Object[networkingv1.Ingress]
		kept      bool
	}{
		"a second one is older": {[]inputs.Object[networkingv1.Ingress]{anew, second, other}, true},
		"there is no other":     {[]inputs.Object[networkingv1.Ingress]{anew, other}, false},
	} {
		m, found := routing.Translate(inputs.Inputs{Ingresses: test.ingresses}, routing.Config{})
		kept := len(m.Certificates) == 1 && slices.Contains(m.Certificates[0].Hosts, "h.example")
		told := slices.ContainsFunc(found, func(d diag.Diagnostic) bool {
			return d.Object == anew.Ref && d.Conflict && strings.Contains(d.Message, "belongs to namespace b, by Ingress b/web, which is older")
		})
		if kept != test.kept || told == test.kept {
			t.Errorf("%s: kept %v, told %v: %v", name, kept, told, found)
		}
	}
}
