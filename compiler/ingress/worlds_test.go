package ingress_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"hash/fnv"
	"math/big"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/ingress"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/snapshots"
)

// maker makes random objects and configurations that reach every part of the translation: they compete with
// each other, name missing objects, and have mistakes.
type maker struct{ *rand.Rand }

func newMaker(seed uint64) maker { return maker{rand.New(rand.NewPCG(seed, 14))} }

func (m maker) pick(list ...string) string { return list[m.IntN(len(list))] }

func (m maker) one(in int) bool { return m.IntN(in) == 0 }

var namespaces = []string{"n1", "n2", "n3"}

// placed gives each field of an object a position, or none as in a cluster.
func placed[T any](m maker, o inputs.Object[T], files bool) inputs.Object[T] {
	if files {
		o.At = func(path ...any) diag.Position {
			h := fnv.New32()
			fmt.Fprint(h, path...)
			return diag.Position{File: o.Ref.Namespace + "-" + o.Ref.Name, Line: int(h.Sum32()%1000) + 1}
		}
	}
	return o
}

func named[T any](kind, namespace, name string, value *T) inputs.Object[T] {
	return inputs.Object[T]{Ref: diag.Object{Kind: kind, Namespace: namespace, Name: name}, Value: value}
}

// ingressOptions are options with values, some of them wrong. The list is independent of the registry, so a new
// option changes no world.
var ingressOptions = [][]string{
	{"allow-list", "10.0.0.0/8", "@nets/a", "@nets/bad", "@nets/none", "@n1/shared/a", "nonsense", "192.0.2.0/24, @nets/a, @nets/b"},
	{"deny-list", "192.0.2.0/24", "@nets/b"}, {"rate-limit", "100", "lots"}, {"rate-limit-exempt", "10.0.0.0/8", "@nets/a"},
	{"max-body-size", "8m"}, {"auth-basic", "users", "no-users", "bad-users"}, {"auth-basic-realm", "Staff only"},
	{"auth-url", "http://api.n1.svc:80/check", "http://api:80/x", "http://none:80/", "http://tls:443/", "http://ext:80/"},
	{"auth-response-headers", "X-Auth-User, X-Auth-Groups", "Authorization"}, {"balance", "leastconn", "roundrobin", "first", "dice"},
	{"timeout-server", "5s", "x"}, {"retries", "2"}, {"backend-protocol", "h2", "https", "h2-tls"}, {"send-proxy-protocol", "v2"},
	{"canary", "true"}, {"canary-weight", "10"}, {"canary-by-header", "X-Canary"}, {"canary-by-cookie", "canary"}, {"canary-by-header-pattern", "^beta-[0-9]+$"},
	{"request-headers", "set X-Env production"}, {"forwarded-for", "append"}, {"rewrite-cookie-path", "/internal /app"}, {"hsts", "31536000"},
	{"cors-allow-origin", "https://a.example"}, {"normalize-paths", "false", "true"}, {"unsafe-paths", "pass", "reject"}, {"path-parameters", "ignore", "match"},
	{"ssl-redirect", "true"}, {"redirect", "/else"}, {"app-root", "/app"}, {"fallback-service", "api:80", "none:80", "web", "h2:80"},
	{"rewrite-path", "/new", "^/x(.*)$ /y$1"}, {"rewrite-host", "internal.example"}, {"server-alias", "b.example", "d.example, www.d.example", "n1.example"},
	{"redirect-www", "true"}, {"share-host", "*", "n1, n2", "n3"}, {"ssl-passthrough", "true"}, {"affinity", "cookie"}, {"affinity-cookie-name", "s"},
	{"affinity-cookie-path", "/x"}, {"client-ca-secret", "ca", "no-ca"}, {"client-verify", "optional"}, {"backend-verify", "ca"}, {"backend-ca-secret", "ca", "no-ca"},
	{"backend-client-secret", "tls"}, {"path-type-default", "Regex"}, {"path-type", "exact", "regex", "prefix"}, {"config-snippet", "http-request set-header X-A b", "http-request deny if { src 192.0.2.1 }"},
	{"snippet", "http-request set-header X-A b", "http-request deny if { src 192.0.2.1 }"}, {"unknown", "1"}, {"tcp-port", "5432"}, {"fcgi-root", "/srv"}, {"allow-countries", "DE", "DE, FR"}, {"deny-countries", "FR"},
}

var serviceOptions = [][]string{
	{"balance", "leastconn", "nonsense"}, {"backend-protocol", "h2", "https"}, {"affinity", "cookie"}, {"timeout-server", "7s"}, {"allow-list", "@nets/a", "10.0.0.0/8"},
	{"health-check-path", "/healthz"}, {"backend-ca-secret", "ca", "no-ca"}, {"send-proxy-protocol", "v1"}, {"max-connections", "9"}, {"unknown", "x"},
	{"tcp-port", "5432", "5433:web", "9000, 9001:80", "80"}, {"tcp-sni", "db.example", "n2.example, a.example"}, {"tcp-tls-secret", "tls", "no-tls"},
}

// together are options that mean little alone.
var together = [][][]string{
	{{"auth-url", "http://api.n1.svc:80/check", "http://api:80/x"}, {"auth-response-headers", "X-Auth-User, X-Auth-Groups"}},
	{{"backend-protocol", "h1-tls", "h2-tls"}, {"backend-verify", "required"}, {"backend-ca-secret", "ca", "no-ca"}},
	{{"backend-protocol", "h1-tls"}, {"backend-client-secret", "tls", "no-tls", "bad-tls"}},
	{{"affinity", "cookie"}, {"affinity-cookie-name", "s"}, {"affinity-cookie-path", "/x", "/"}},
	{{"ssl-passthrough", "true"}, {"backend-protocol", "h1", "h1-tls"}},
	{{"client-ca-secret", "ca"}, {"client-verify", "optional"}},
	{{"ssl-passthrough", "true"}},
	{{"rate-limit", "100"}, {"rate-limit-exempt", "@nets/a"}},
}

var canaryOptions = [][][]string{
	{{"canary-weight", "10", "100"}}, {{"canary-by-header", "X-Canary"}}, {{"canary-by-cookie", "canary"}},
	{{"canary-by-header", "X-Canary"}, {"canary-by-header-pattern", "^beta-[0-9]+$"}}, {{"canary-by-header", "X-Canary=v2"}, {"canary-weight", "5"}}, {},
}

// canaryOf makes a canary of another Ingress.
func (m maker) canaryOf(main inputs.Object[networkingv1.Ingress], name string, files bool) inputs.Object[networkingv1.Ingress] {
	ing := main.Value.DeepCopy()
	ing.Name, ing.Annotations = name, map[string]string{"hapsnap.dev/canary": "true"}
	for i := range ing.Spec.Rules {
		if ing.Spec.Rules[i].HTTP == nil {
			continue
		}
		for j := range ing.Spec.Rules[i].HTTP.Paths {
			ing.Spec.Rules[i].HTTP.Paths[j].Backend = m.backend()
		}
	}
	for _, o := range canaryOptions[m.IntN(len(canaryOptions))] {
		ing.Annotations["hapsnap.dev/"+o[0]] = m.pick(o[1:]...)
	}
	if m.one(4) {
		m.annotate(ing.Annotations, "hapsnap.dev/", ingressOptions, 1)
	}
	return placed(m, named("Ingress", main.Ref.Namespace, name, ing), files)
}

var foreignAnnotations = [][]string{
	{"nginx.ingress.kubernetes.io/auth-url", "http://x"}, {"nginx.ingress.kubernetes.io/whitelist-source-range", "10.0.0.0/8"}, {"nginx.ingress.kubernetes.io/canary", "true"},
	{"nginx.ingress.kubernetes.io/use-regex", "true"}, {"nginx.ingress.kubernetes.io/proxy-body-size", "8m"}, {"haproxy.org/whitelist", "10.0.0.0/8"},
}

func (m maker) annotate(into map[string]string, prefix string, from [][]string, most int) {
	for range m.IntN(most + 1) {
		o := from[m.IntN(len(from))]
		into[prefix+o[0]] = m.pick(o[1:]...)
	}
}

func (m maker) backend() networkingv1.IngressBackend {
	if m.one(40) {
		return networkingv1.IngressBackend{Resource: &corev1.TypedLocalObjectReference{Kind: "Bucket", Name: "b"}}
	}
	s := &networkingv1.IngressServiceBackend{Name: m.pick("web", "web", "web", "api", "api", "tls", "ext", "h2", "none"), Port: networkingv1.ServiceBackendPort{Number: 80}}
	switch m.IntN(8) {
	case 0:
		s.Port = networkingv1.ServiceBackendPort{Name: "web"}
	case 1:
		s.Port = networkingv1.ServiceBackendPort{Number: 81}
	}
	return networkingv1.IngressBackend{Service: s}
}

func (m maker) ingress(namespace, name string, files bool) inputs.Object[networkingv1.Ingress] {
	prefix, exact, specific := networkingv1.PathTypePrefix, networkingv1.PathTypeExact, networkingv1.PathTypeImplementationSpecific
	ing := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{}}}
	if !m.one(5) {
		ing.CreationTimestamp = metav1.NewTime(time.Unix(int64(m.IntN(9)+1), 0))
	}
	if class := m.pick("hapsnap", "hapsnap", "hapsnap", "hapsnap", "second", "second", "other", ""); class != "" {
		ing.Spec.IngressClassName = &class
	}
	if m.one(20) {
		ing.Annotations["kubernetes.io/ingress.class"] = m.pick("hapsnap", "second", "other")
	}
	own := namespace + ".example"
	hosts := []string{own, own, "x." + own, "*." + own, "a.example", "b.example", "*.example", "x.a.example", "*.a.example", "www.a.example", "res.example", "", "A.example."}
	if m.one(20) {
		hosts = append(hosts, "bad host", "bad host")
	}
	for range 1 + m.IntN(2) {
		host := m.pick(hosts...)
		var paths []networkingv1.HTTPIngressPath
		for range 1 + m.IntN(3) {
			p := networkingv1.HTTPIngressPath{Path: m.pick("/", "/", "/x", "/x/y", "/x/", "/a;b", "/%61"), PathType: &prefix, Backend: m.backend()}
			if m.one(20) {
				p.Path = m.pick("//x", "/no thing")
			}
			switch m.IntN(6) {
			case 0:
				p.PathType = &exact
			case 1:
				p.PathType, p.Path = &specific, m.pick("/", "/x", "/x(y|z)", "/x/.*", "/(", "/a b", "", "/x/y[0-9]+", "/%61x")
			case 2:
				if m.one(10) {
					p.PathType = nil
				}
			}
			paths = append(paths, p)
		}
		rule := networkingv1.IngressRule{Host: host, IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: paths}}}
		if m.one(15) {
			rule.HTTP = nil
		}
		ing.Spec.Rules = append(ing.Spec.Rules, rule)
		if m.one(4) {
			entry := networkingv1.IngressTLS{Hosts: []string{host}, SecretName: m.pick("tls", "tls", "other-tls", "no-tls", "bad-tls", "Bad_Name", "")}
			switch m.IntN(5) {
			case 0:
				entry.Hosts = nil
			case 1:
				entry.Hosts = append(entry.Hosts, m.pick(hosts...))
			}
			ing.Spec.TLS = append(ing.Spec.TLS, entry)
		}
	}
	if m.one(12) {
		b := m.backend()
		ing.Spec.DefaultBackend = &b
		if m.one(3) {
			ing.Spec.Rules = nil
		}
	}
	if m.one(2) {
		m.annotate(ing.Annotations, "hapsnap.dev/", ingressOptions, 3)
	}
	if m.one(5) {
		for _, o := range together[m.IntN(len(together))] {
			ing.Annotations["hapsnap.dev/"+o[0]] = m.pick(o[1:]...)
		}
	}
	if m.one(12) {
		m.annotate(ing.Annotations, "", foreignAnnotations, 2)
	}
	return placed(m, named("Ingress", namespace, name, ing), files)
}

func (m maker) service(namespace, name string, files bool) inputs.Object[corev1.Service] {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{}, CreationTimestamp: metav1.NewTime(time.Unix(int64(m.IntN(5)), 0))}}
	s.Spec.Ports = []corev1.ServicePort{{Name: "web", Port: 80}}
	switch {
	case name == "ext":
		s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeExternalName, m.pick("partner.example", "localhost", "api.n1.svc", "bad name")
		s.Spec.Ports = nil
	case name == "tls":
		https := "https"
		s.Spec.Ports = []corev1.ServicePort{{Name: "web", Port: 443, AppProtocol: &https}, {Port: 80}}
	case name == "h2":
		h2c := "kubernetes.io/h2c"
		s.Spec.Ports = []corev1.ServicePort{{Port: 80, AppProtocol: &h2c}}
	case m.one(6):
		s.Spec.Ports = []corev1.ServicePort{{Name: "web", Port: 81}, {Name: "dns", Port: 80, Protocol: corev1.ProtocolUDP}}
	}
	if m.one(3) {
		m.annotate(s.Annotations, "hapsnap.dev/", serviceOptions, 2)
	}
	return placed(m, named("Service", namespace, name, s), files)
}

// pairOnce makes certificates that are the same in every run.
var pairOnce = sync.OnceValue(func() map[string]map[string][]byte {
	out := map[string]map[string][]byte{}
	for i, names := range [][]string{{"a.example", "*.a.example"}, {"n1.example"}, {"*.example", "n2.example"}} {
		seed := sha256.Sum256([]byte(fmt.Sprint(i)))
		key := ed25519.NewKeyFromSeed(seed[:])
		template := &x509.Certificate{
			SerialNumber: big.NewInt(int64(i + 1)), Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
			NotBefore: time.Unix(0, 0), NotAfter: time.Unix(int64(i+1)*1000, 0), IsCA: true, BasicConstraintsValid: true,
		}
		der, err := x509.CreateCertificate(nil, template, template, key.Public(), key)
		if err != nil {
			panic(err)
		}
		pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			panic(err)
		}
		out[fmt.Sprint(i)] = map[string][]byte{
			"tls.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), "tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}),
			"ca.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		}
	}
	return out
})

func (m maker) secret(namespace, name string, files bool) inputs.Object[corev1.Secret] {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	switch name {
	case "users":
		s.Data = map[string][]byte{"auth": []byte("alice:{SHA}" + m.pick("W6ph5Mm5Pz8GgiULbPgzG37mj9g=", "x") + "\n")}
	case "bad-users", "bad-tls":
		s.Data = map[string][]byte{"tls.crt": []byte("nothing")}
	default:
		s.Data = pairOnce()[fmt.Sprint(m.IntN(3))]
	}
	return placed(m, named("Secret", namespace, name, s), files)
}

func (m maker) configMap(namespace, name string, files bool) inputs.Object[corev1.ConfigMap] {
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string]string{}}
	switch name {
	case "nets", "shared":
		c.Data["a"] = m.pick("10.0.0.0/8\n", "10.0.0.0/8\n192.0.2.0/24\n", "fd00::/8")
		c.Data["b"] = m.pick("192.0.2.7\n", "# none\n")
		c.Data["bad"] = "10.0.0.0/8\nnonsense\n"
	case "parameters":
		for range m.IntN(3) {
			o := [][]string{{"timeout-server", "9s", "x"}, {"allow-list", "10.0.0.0/8"}, {"path-type-default", "Regex"}, {"path-type", "regex", "exact"}, {"forwarded-for", "append"}, {"ssl-redirect", "true"}, {"canary", "true"}, {"unknown", "x"}, {"normalize-paths", "false"}}[m.IntN(9)]
			c.Data[m.pick("", "hapsnap.dev/")+o[0]] = m.pick(o[1:]...)
		}
	case "countries":
		c.Data["a"] = m.pick("10.0.0.0/8 DE\n", "10.0.0.0/8 DE\n192.0.2.0/24 FR\n", "nonsense")
	case "pages":
		c.Data["503.html"], c.Data["bad"] = "<p>sorry</p>", "x"
	}
	return placed(m, named("ConfigMap", namespace, name, c), files)
}

func (m maker) class(name, controller string, parameters, files bool) inputs.Object[networkingv1.IngressClass] {
	c := &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}, Spec: networkingv1.IngressClassSpec{Controller: controller}}
	if m.one(4) {
		c.Annotations[networkingv1.AnnotationIsDefaultIngressClass] = "true"
	}
	if parameters {
		namespace, scope := m.pick("n1", "n1", "n2", ""), networkingv1.IngressClassParametersReferenceScopeNamespace
		c.Spec.Parameters = &networkingv1.IngressClassParametersReference{Kind: m.pick("ConfigMap", "ConfigMap", "ConfigMap", "Other"), Name: m.pick("parameters", "parameters", "none"), Namespace: &namespace, Scope: &scope}
	}
	return placed(m, named("IngressClass", "", name, c), files)
}

// world makes the objects of three namespaces and a configuration.
func (m maker) world() (inputs.Inputs, ingress.Config) {
	var in inputs.Inputs
	files := m.one(2)
	for _, namespace := range namespaces {
		for i := range 1 + m.IntN(5) {
			in.Ingresses = append(in.Ingresses, m.ingress(namespace, fmt.Sprint("i", i), files))
		}
		if m.one(2) {
			in.Ingresses = append(in.Ingresses, m.canaryOf(in.Ingresses[len(in.Ingresses)-1], "canary", files))
		}
		if m.one(6) {
			in.Broken = append(in.Broken, m.ingress(namespace, "broken", files))
		}
		for _, name := range []string{"web", "api", "tls", "ext", "h2"} {
			if !m.one(8) {
				in.Services = append(in.Services, m.service(namespace, name, files))
			}
		}
		for _, name := range []string{"tls", "other-tls", "ca", "users", "bad-users", "bad-tls"} {
			if !m.one(8) {
				in.Secrets = append(in.Secrets, m.secret(namespace, name, files))
			}
		}
		for _, name := range []string{"nets", "shared", "parameters", "pages", "countries"} {
			if !m.one(8) {
				in.ConfigMaps = append(in.ConfigMaps, m.configMap(namespace, name, files))
			}
		}
	}
	if !m.one(6) {
		in.Classes = append(in.Classes, m.class("hapsnap", ingress.DefaultControllerClass, m.one(4), files), m.class("second", ingress.DefaultControllerClass, !m.one(3), files), m.class("other", "other.example", false, files))
	}
	return in, m.config(in)
}

// config makes a configuration. It refuses some Ingresses.
func (m maker) config(in inputs.Inputs) ingress.Config {
	c := ingress.Config{
		WatchWithoutClass: m.one(3), OwnedHosts: m.one(2), IgnoreForeign: m.one(5), TrustsForwarded: m.one(3), SecretsUnseen: m.one(9), CertificatesAsSeen: m.one(5),
		SharedLists: []string{"n1/shared"}, Snippets: config.Namespaces{"n1"}, Paths: config.Default().Paths, HTTPSPort: 443,
		TCPAnnotations: config.TCPAnnotations{Ports: []string{"5432-5433", "9000"}, Namespaces: config.Namespaces{"n1", "n2"}}, Ports: map[int]string{80: "http"},
	}
	if m.one(3) {
		c.SharedAuthServices = []string{"n1/api"}
	}
	if m.one(4) {
		c.Paths.Normalize = false
	}
	if m.one(4) {
		c.ExternalNames = ingress.ExternalNames{Refuse: m.one(2), Domains: []string{"partner.example"}}
	}
	if m.one(3) {
		c.Now = time.Unix(1500, 0)
	}
	if m.one(2) {
		c.Countries, c.CountryHeader = []string{"n1/countries"}, m.one(4)
	}
	if m.one(4) {
		c.ErrorPages = m.pick("n1/pages", "n1/none")
	}
	if m.one(4) {
		c.DefaultCertificate = snapshots.SecretName{Namespace: "n1", Name: m.pick("tls", "no-tls")}
	}
	if m.one(3) {
		c.ReservedDomains = []config.ReservedDomain{{Domain: "res.example", Namespaces: config.Namespaces{"n1"}}, {Domain: "x.a.example", Namespaces: config.Namespaces{"n2"}}}
	}
	if m.one(4) {
		c.SharedHosts = []config.SharedHost{{Host: "*.example", Namespaces: config.Namespaces{"n2"}}}
	}
	if m.one(4) {
		c.TCPServices = []config.TCPService{{Port: 5432, Service: "n1/web:web"}, {Port: 5434, Service: "n1/none:1", SNI: []string{"a.example"}, SendProxyProtocol: 2}}
	}
	if m.one(3) {
		c.Limits = config.Limits{IngressRoutes: 4, NamespaceRoutes: 6, IngressRouteBytes: 90, NamespaceRouteBytes: 150, IngressOptionBytes: 200, NamespaceListBytes: 25}
	}
	if m.one(3) {
		c.Refused, c.Dropped, c.Released = map[diag.Object]bool{}, map[diag.Object]bool{}, map[string]bool{m.pick("n1", "n2", "none"): true}
		for _, ing := range in.Ingresses {
			if m.one(5) {
				c.Refused[ing.Ref] = true
				if m.one(3) {
					c.Dropped[ing.Ref] = true
				}
			}
		}
	}
	return c
}
