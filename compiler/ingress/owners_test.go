package ingress_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/ingress"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/routing"
)

// world is some Ingresses of several namespaces that compete for hosts, in a short form, and the configuration
// of hosts.
type world struct {
	ingresses []claimer
	owned     bool
	reserved  []config.ReservedDomain
	shared    []config.SharedHost
}

type claimer struct {
	namespace, name  string
	age              int
	rules            []string // "HOST PATH"
	tls              []string // hosts of its Secret
	authority, share bool     // client-ca-secret; share-host: b
	refused          bool
}

var claimedHosts = []string{"h.example", "a.h.example", "b.h.example", "*.h.example", "*.example", "A.H.Example."}

func randomWorld(r *rand.Rand) world {
	w := world{owned: r.IntN(2) == 0}
	pick := func(from []string) string { return from[r.IntN(len(from))] }
	for n := range 2 + r.IntN(6) {
		c := claimer{
			namespace: pick([]string{"a", "b", "b-", "c"}) + "x", name: fmt.Sprint("i", n), age: r.IntN(4),
			authority: r.IntN(8) == 0, share: r.IntN(4) == 0, refused: r.IntN(8) == 0,
		}
		for range 1 + r.IntN(3) {
			c.rules = append(c.rules, pick(claimedHosts)+" "+pick([]string{"/", "/x"}))
		}
		for range r.IntN(3) {
			c.tls = append(c.tls, pick(claimedHosts))
		}
		w.ingresses = append(w.ingresses, c)
	}
	if r.IntN(3) == 0 {
		w.reserved = []config.ReservedDomain{{Domain: pick([]string{"h.example", "a.h.example"}), Namespaces: config.Namespaces{"cx"}}}
	}
	if r.IntN(3) == 0 {
		w.shared = []config.SharedHost{{Host: pick([]string{"h.example", "*.h.example"}), Namespaces: config.Namespaces{"ax"}}}
	}
	return w
}

// plain removes irrelevant differences from a host.
func plain(host string) string { return strings.TrimSuffix(strings.ToLower(host), ".") }

// starred returns the wildcard that matches a host.
func starred(host string) string {
	_, parent, _ := strings.Cut(host, ".")
	return "*." + parent
}

func (c claimer) before(o claimer) bool {
	return cmp.Or(cmp.Compare(c.age, o.age), cmp.Compare(c.namespace, o.namespace), cmp.Compare(c.name, o.name)) < 0
}

func (c claimer) names(host string) bool {
	return slices.ContainsFunc(c.rules, func(r string) bool { return plain(strings.Fields(r)[0]) == host }) ||
		slices.ContainsFunc(c.tls, func(h string) bool { return plain(h) == host })
}

// barred reports whether a host is reserved for other namespaces.
func (w world) barred(host, namespace string) bool {
	bare := strings.TrimPrefix(host, "*.")
	for _, d := range w.reserved {
		if bare == d.Domain || strings.HasSuffix(bare, "."+d.Domain) {
			return !slices.Contains(d.Namespaces, namespace)
		}
	}
	return false
}

// first returns the oldest Ingress that names the host, or one of the given wildcards for it, and that may have
// the host.
func (w world) first(host string, wildcards ...string) (oldest claimer, found bool) {
	for _, c := range w.ingresses {
		for _, name := range append(wildcards, host) {
			if c.names(name) && !w.barred(host, c.namespace) && (!found || c.before(oldest)) {
				oldest, found = c, true
			}
		}
	}
	return oldest, found
}

// owner returns the owner of a host, according to the documentation.
func (w world) owner(host string) (claimer, bool) {
	if w.owned && !strings.HasPrefix(host, "*.") {
		return w.first(host, starred(host))
	}
	return w.first(host)
}

// mayRoute reports whether a namespace may have paths of a host.
func (w world) mayRoute(host, namespace string) bool {
	if w.barred(host, namespace) {
		return false
	}
	o, _ := w.owner(host)
	if !w.owned || o.namespace == namespace || len(w.reserved) > 0 && !w.barred(host, namespace) && w.barred(host, "nobody") {
		return true
	}
	for _, c := range w.ingresses { // share-host: bx
		if c.share && namespace == "bx" && c.namespace == o.namespace && !w.barred(host, c.namespace) && (c.names(host) || !strings.HasPrefix(host, "*.") && c.names(starred(host))) {
			return true
		}
	}
	return slices.ContainsFunc(w.shared, func(s config.SharedHost) bool {
		return slices.Contains(s.Namespaces, namespace) && (s.Host == host || !strings.HasPrefix(host, "*.") && s.Host == starred(host))
	})
}

// hasCertificate reports whether a namespace names a Secret for a host.
func (w world) hasCertificate(host, namespace string) bool {
	return slices.ContainsFunc(w.ingresses, func(c claimer) bool {
		return c.namespace == namespace && !c.refused && slices.ContainsFunc(c.tls, func(h string) bool { return plain(h) == host })
	})
}

// certificateOf returns the namespace whose certificate clients of a host get, "" for the default one.
func (w world) certificateOf(host string) string {
	if o, found := w.owner(host); found && w.hasCertificate(host, o.namespace) {
		return o.namespace
	}
	wild, found := w.first(starred(host))
	exact, named := w.first(host)
	switch {
	case !found, w.barred(host, wild.namespace):
		return ""
	case named && exact.namespace != wild.namespace && exact.before(wild):
		return ""
	case w.hasCertificate(starred(host), wild.namespace):
		return wild.namespace
	}
	return ""
}

// inputs returns the objects of the world.
func (w world) inputs() (inputs.Inputs, ingress.Config) {
	cfg := ingress.Config{HTTPSPort: 443, OwnedHosts: w.owned, ReservedDomains: w.reserved, SharedHosts: w.shared, Refused: map[diag.Object]bool{}}
	var in inputs.Inputs
	for _, c := range w.ingresses {
		o := ingressOf(c.name, 0)
		o.Ref.Namespace, o.Ref.Name = c.namespace, c.name
		o.Value.CreationTimestamp = metav1.NewTime(time.Unix(int64(1+c.age), 0))
		o.Value.Annotations = map[string]string{}
		if c.authority {
			o.Value.Annotations["hapsnap.dev/client-ca-secret"] = "ca"
		}
		if c.share {
			o.Value.Annotations["hapsnap.dev/share-host"] = "bx"
		}
		rule := o.Value.Spec.Rules[0]
		o.Value.Spec.Rules = nil
		for _, text := range c.rules {
			next := *rule.DeepCopy()
			next.Host, next.HTTP.Paths[0].Path = strings.Fields(text)[0], strings.Fields(text)[1]
			o.Value.Spec.Rules = append(o.Value.Spec.Rules, next)
		}
		if len(c.tls) > 0 {
			o.Value.Spec.TLS = []networkingv1.IngressTLS{{Hosts: c.tls, SecretName: "cert"}}
		}
		if c.refused && !c.authority {
			cfg.Refused[o.Ref] = true
		}
		in.Ingresses = append(in.Ingresses, o)
	}
	return in, cfg
}

// The owner of each host, and the consequences, agree with a second implementation that looks at every Ingress
// for every question.
func TestOwnersAgreeWithReference(t *testing.T) {
	t.Parallel()
	for seed := range uint64(800) {
		w := randomWorld(rand.New(rand.NewPCG(seed, 13)))
		for i := range w.ingresses {
			w.ingresses[i].refused = w.ingresses[i].refused && !w.ingresses[i].authority
		}
		in, cfg := w.inputs()
		model, found := ingress.Translate(in, cfg)
		compareRoutes(t, w, model)
		for _, host := range []string{"h.example", "a.h.example", "b.h.example", "other.h.example", "other.example"} {
			if got, want := servedTo(model, host), w.certificateOf(host); got != want {
				t.Errorf("clients of %s get the certificate of %q, want %q", host, got, want)
			}
		}
		for _, name := range model.ServerNames {
			if o, _ := w.owner(name.Host); name.Clients != nil && !strings.Contains(name.Clients.Authority, "ca__"+o.namespace+"_") {
				t.Errorf("clients of %s, which is %s's, are asked for certificates of %s", name.Host, o.namespace, name.Clients.Authority)
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d: %+v\n%v", seed, w, found)
		}
	}
}

// compareRoutes compares the owners of all paths of all hosts.
func compareRoutes(t *testing.T, w world, model routing.Model) {
	t.Helper()
	want := map[string]claimer{}
	for _, c := range w.ingresses {
		for _, text := range c.rules {
			host, path, _ := strings.Cut(text, " ")
			host = plain(host)
			if c.refused || !w.mayRoute(host, c.namespace) {
				continue
			}
			if before, taken := want[host+path]; !taken || c.before(before) {
				want[host+path] = c
			}
		}
	}
	got := map[string]string{}
	for _, h := range model.Hosts {
		host := h.Name
		if strings.HasPrefix(host, ".") {
			host = "*" + host
		}
		for _, r := range h.Routes {
			got[host+cmp.Or(r.Match.Path, "/")] = r.Origin.Object.Namespace + "/" + r.Origin.Object.Name
		}
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if c := want[key]; got[key] != c.namespace+"/"+c.name {
			t.Errorf("%s is served by %q, want %s/%s", key, got[key], c.namespace, c.name)
		}
		delete(got, key)
	}
	if len(got) > 0 {
		t.Errorf("nobody should have %v", got)
	}
}

// servedTo returns the namespace of the certificate that clients of a host get, as HAProxy reads a crt-list:
// first the name itself, then its wildcard.
func servedTo(model routing.Model, host string) string {
	files, ok := listed(model, host, host)
	if !ok {
		files, _ = listed(model, starred(host), host)
	}
	if len(files) == 0 {
		return ""
	}
	namespace, _, _ := strings.Cut(strings.TrimPrefix(files[0], "certs/"), "_")
	return namespace
}

func listed(model routing.Model, name, host string) (files []string, ok bool) {
	for _, c := range model.Certificates {
		if slices.Contains(c.Hosts, name) {
			return []string{c.File}, true
		}
	}
	for _, n := range model.ServerNames {
		if n.Host == name && !slices.Contains(n.Except, host) {
			return n.Certificates, true
		}
	}
	return nil, false
}

func ownedBy(namespace, host string, age int64, annotations map[string]string) inputs.Object[networkingv1.Ingress] {
	o := ingressOf("web", 0)
	o.Ref.Namespace = namespace
	o.Value.CreationTimestamp = metav1.NewTime(time.Unix(100-age, 0))
	o.Value.Spec.Rules[0].Host, o.Value.Annotations = host, annotations
	return o
}

// A wildcard that passes connections through does not get those of certain hosts: hosts that another namespace
// named before, even if only for a certificate, reserved hosts, and hosts of a left-out Ingress.
func TestWildcardPassesNoConnectionsOfOthers(t *testing.T) {
	t.Parallel()
	old, refused := ownedBy("a", "elsewhere.example", 9, nil), ownedBy("a", "refused.w.example", 1, nil)
	refused.Ref.Name = "refused"
	old.Value.Spec.TLS = []networkingv1.IngressTLS{{Hosts: []string{"Old.w.example."}, SecretName: "cert"}}
	in := inputs.Inputs{Ingresses: []inputs.Object[networkingv1.Ingress]{
		old, refused, ownedBy("b", "*.w.example", 5, map[string]string{"hapsnap.dev/ssl-passthrough": "true"}),
	}}
	m, found := ingress.Translate(in, ingress.Config{
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

// Ports of Services get no connections for reserved hosts. If hosts are owned, they get none for hosts of
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
		m, found := ingress.Translate(in, ingress.Config{
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

// An older Ingress of the same namespace continues the ownership. Without one the host gets a new owner, and
// the former owner gets a finding.
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
		m, found := ingress.Translate(inputs.Inputs{Ingresses: test.ingresses}, ingress.Config{})
		kept := len(m.Certificates) == 1 && slices.Contains(m.Certificates[0].Hosts, "h.example")
		told := slices.ContainsFunc(found, func(d diag.Diagnostic) bool {
			return d.Object == anew.Ref && d.Conflict && strings.Contains(d.Message, "belongs to namespace b, by Ingress b/web, which is older")
		})
		if kept != test.kept || told == test.kept {
			t.Errorf("%s: kept %v, told %v: %v", name, kept, told, found)
		}
	}
}
