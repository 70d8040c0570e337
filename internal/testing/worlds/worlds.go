// Package worlds makes clusters of any size, for benchmarks and tests: Ingresses or HTTPRoutes, their
// Services, EndpointSlices and certificates, as an API server or a folder of manifests has them.
//
// The same number gives the same objects, except for the keys of the certificates. Of n Ingresses, two each
// share a host, and ten a certificate; one in ten has an option. Each Service has three endpoints. A namespace
// has a hundred Ingresses. Every object has a UID, a resourceVersion and a time of creation, by which caches
// recognise objects.
package worlds

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
)

// What there is of everything.
const (
	PerHost        = 2   // Ingresses of a host
	PerCertificate = 10  // Ingresses with the same certificate
	PerOption      = 10  // Ingresses of which one has an option
	PerNamespace   = 100 // Ingresses of a namespace
	Endpoints      = 3   // of a Service
)

// Class is the class of the Ingresses, and of the Gateway.
const Class = "hapsnap"

// GatewayPort is the port of the Gateway's listener.
const GatewayPort = 8080

// options are those that Ingresses have, in turn.
var options = [][2]string{
	{"timeout-server", "45s"}, {"balance", "leastconn"}, {"rate-limit", "200"}, {"allow-list", "10.0.0.0/8"},
	{"request-headers", "set X-Team shop"}, {"health-check-path", "/healthz"}, {"hsts", "31536000"}, {"affinity", "cookie"},
}

// created is when the first object was made; each further one is a second younger.
var created = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Namespace is the namespace of the i-th Ingress.
func Namespace(i int) string { return fmt.Sprintf("team-%04d", i/PerNamespace) }

// Name is the name of the i-th Ingress, and of its Service.
func Name(i int) string { return fmt.Sprintf("app-%06d", i) }

// Host is the host of the i-th Ingress.
func Host(i int) string { return fmt.Sprintf("app-%06d.example", i/PerHost*PerHost) }

// path returns the path of the i-th Ingress, which differs from those of the others on its host.
func path(i int) string {
	if i%PerHost == 0 {
		return "/"
	}
	return fmt.Sprintf("/part-%d", i%PerHost)
}

// secret is the name of the certificate of the i-th Ingress, where so many of a namespace share one.
func secret(i, perCertificate int) string {
	perNamespace := (PerNamespace + perCertificate - 1) / perCertificate
	return fmt.Sprintf("tls-%06d", i/PerNamespace*perNamespace+i%PerNamespace/perCertificate)
}

// meta returns the metadata that an API server sets on the i-th object of a kind.
func meta(kind byte, namespace, name string, i int) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: namespace, Name: name,
		UID:             types.UID(fmt.Sprintf("%08x-%04x-4%03x-8000-%012x", uint32(i)*2654435761, kind, i%4096, i)),
		ResourceVersion: fmt.Sprint(1_000_000 + 8*i + int(kind%8)), CreationTimestamp: metav1.NewTime(created.Add(time.Duration(i) * time.Second)),
	}
}

// Ingresses returns n Ingresses with all the objects that they need.
func Ingresses(n int) inputs.Inputs { return IngressesSharing(n, PerCertificate) }

// IngressesSharing is [Ingresses] with a given number of Ingresses of a namespace that share a certificate. It
// is a multiple of [PerHost], so that a host has one certificate.
func IngressesSharing(n, perCertificate int) inputs.Inputs {
	in := common(n, perCertificate)
	for i := range n {
		class, prefix := Class, networkingv1.PathTypePrefix
		backend := networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: Name(i), Port: networkingv1.ServiceBackendPort{Number: 80}}}
		ing := &networkingv1.Ingress{ObjectMeta: meta(1, Namespace(i), Name(i), i), Spec: networkingv1.IngressSpec{
			IngressClassName: &class,
			TLS:              []networkingv1.IngressTLS{{Hosts: []string{Host(i)}, SecretName: secret(i, perCertificate)}},
			Rules: []networkingv1.IngressRule{{Host: Host(i), IngressRuleValue: networkingv1.IngressRuleValue{
				HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{Path: path(i), PathType: &prefix, Backend: backend}}},
			}}},
		}}
		if i%PerOption == 3 {
			option := options[i/PerOption%len(options)]
			metav1.SetMetaDataAnnotation(&ing.ObjectMeta, "hapsnap.dev/"+option[0], option[1])
		}
		in.Ingresses = append(in.Ingresses, object("Ingress", ing))
	}
	return in
}

// Routes returns the same with an HTTPRoute in place of each Ingress, and their Gateway. The Gateway's
// certificates are those of the first namespace, since it may have 64 of them.
func Routes(n int) inputs.Inputs {
	in := common(n, PerCertificate)
	all := gatewayv1.NamespacesFromAll
	in.Gateway.Add(&gatewayv1.GatewayClass{
		ObjectMeta: meta(2, "", Class, 0),
		Spec:       gatewayv1.GatewayClassSpec{ControllerName: "hapsnap.dev/gateway-controller"},
	})
	in.Gateway.Add(&gatewayv1.Gateway{ObjectMeta: meta(3, Namespace(0), "web", 0), Spec: gatewayv1.GatewaySpec{
		GatewayClassName: Class,
		Listeners: []gatewayv1.Listener{{
			Name: "http", Port: GatewayPort, Protocol: gatewayv1.HTTPProtocolType,
			AllowedRoutes: &gatewayv1.AllowedRoutes{Namespaces: &gatewayv1.RouteNamespaces{From: &all}},
		}},
	}})
	for i := range n {
		name, port, prefix, value := gatewayv1.ObjectName(Name(i)), gatewayv1.PortNumber(80), gatewayv1.PathMatchPathPrefix, path(i)
		gateways := gatewayv1.Namespace(Namespace(0))
		r := &gatewayv1.HTTPRoute{ObjectMeta: meta(4, Namespace(i), Name(i), i)}
		r.Spec.ParentRefs = []gatewayv1.ParentReference{{Namespace: &gateways, Name: "web"}}
		r.Spec.Hostnames = []gatewayv1.Hostname{gatewayv1.Hostname(Host(i))}
		rule := gatewayv1.HTTPRouteRule{
			Matches:     []gatewayv1.HTTPRouteMatch{{Path: &gatewayv1.HTTPPathMatch{Type: &prefix, Value: &value}}},
			BackendRefs: []gatewayv1.HTTPBackendRef{{BackendRef: gatewayv1.BackendRef{BackendObjectReference: gatewayv1.BackendObjectReference{Name: name, Port: &port}}}},
		}
		if i%PerOption == 3 {
			rule.Filters = []gatewayv1.HTTPRouteFilter{{
				Type:                  gatewayv1.HTTPRouteFilterRequestHeaderModifier,
				RequestHeaderModifier: &gatewayv1.HTTPHeaderFilter{Set: []gatewayv1.HTTPHeader{{Name: "X-Team", Value: "shop"}}},
			}}
		}
		r.Spec.Rules = []gatewayv1.HTTPRouteRule{rule}
		in.Gateway.Add(r)
	}
	return in
}

// common is what Ingresses and routes both need.
func common(n, perCertificate int) inputs.Inputs {
	var in inputs.Inputs
	for i := range n {
		in.Services = append(in.Services, object("Service", &corev1.Service{
			ObjectMeta: meta(5, Namespace(i), Name(i), i), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
		}))
		in.EndpointSlices = append(in.EndpointSlices, object("EndpointSlice", slice(i)))
	}
	for i := 0; i < n; {
		end := min(i+perCertificate, (i/PerNamespace+1)*PerNamespace, n)
		var names []string
		for host := i; host < end; host += PerHost {
			names = append(names, Host(host))
		}
		certificate, key := certificate(i, names)
		in.Secrets = append(in.Secrets, object("Secret", &corev1.Secret{
			ObjectMeta: meta(7, Namespace(i), secret(i, perCertificate), i), Type: corev1.SecretTypeTLS,
			Data: map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key},
		}))
		i = end
	}
	return in
}

// slice has the endpoints of the i-th Service.
func slice(i int) *discoveryv1.EndpointSlice {
	name, port, ready := "http", int32(8080), true
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: meta(6, Namespace(i), Name(i)+"-x", i), AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
	}
	s.Labels = map[string]string{discoveryv1.LabelServiceName: Name(i)}
	for j := range Endpoints {
		at := i*Endpoints + j
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{fmt.Sprintf("10.%d.%d.%d", at>>16, at>>8&255, at&255)},
			Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		})
	}
	return s
}

// made are the certificates made so far: their keys take longer than everything else.
var made sync.Map

// certificate returns a certificate and its key for names, as PEM.
func certificate(i int, names []string) (certificate, key []byte) {
	id := fmt.Sprint(names)
	if known, ok := made.Load(id); ok {
		pair, _ := known.([2][]byte)
		return pair[0], pair[1]
	}
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(int64(i) + 1), Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		NotBefore: created, NotAfter: created.AddDate(10, 0, 0),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, signer.Public(), signer)
	if err != nil {
		panic(err)
	}
	plain, err := x509.MarshalPKCS8PrivateKey(signer)
	if err != nil {
		panic(err)
	}
	certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	key = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: plain})
	made.Store(id, [2][]byte{certificate, key})
	return certificate, key
}

func object[T any, P interface {
	*T
	metav1.Object
}](kind string, value P) inputs.Object[T] {
	return inputs.Object[T]{Ref: diag.Object{Kind: kind, Namespace: value.GetNamespace(), Name: value.GetName()}, Value: value}
}

// Annotate gives the i-th Ingress another value of an annotation, as a watch would show it: a new object with a
// new resourceVersion replaces the old one in a new list, and the former inputs do not change.
func Annotate(in inputs.Inputs, i int, name, value string) inputs.Inputs {
	return edit(in, i, func(ing *networkingv1.Ingress) { metav1.SetMetaDataAnnotation(&ing.ObjectMeta, name, value) })
}

// AddHost gives the i-th Ingress one more host, for its Service.
func AddHost(in inputs.Inputs, i int, host string) inputs.Inputs {
	return edit(in, i, func(ing *networkingv1.Ingress) {
		rule := *ing.Spec.Rules[0].DeepCopy()
		rule.Host = host
		ing.Spec.Rules = append(ing.Spec.Rules[:1], rule)
	})
}

// Canaries makes the second Ingress of each host a canary of the first. Requests reach it by a value of a
// header that no other canary has.
func Canaries(in inputs.Inputs) inputs.Inputs {
	in.Ingresses = append([]inputs.Object[networkingv1.Ingress]{}, in.Ingresses...)
	for i := 1; i < len(in.Ingresses); i += PerHost {
		canary := in.Ingresses[i].Value.DeepCopy()
		canary.Spec.TLS = nil
		canary.Spec.Rules[0].HTTP.Paths[0].Path = path(i - 1)
		canary.Annotations = map[string]string{"hapsnap.dev/canary": "true", "hapsnap.dev/canary-by-header": fmt.Sprintf("X-Canary yes-%d", i)}
		in.Ingresses[i].Value = canary
	}
	return in
}

func edit(in inputs.Inputs, i int, change func(*networkingv1.Ingress)) inputs.Inputs {
	ing := in.Ingresses[i].Value.DeepCopy()
	var version int
	if _, err := fmt.Sscan(ing.ResourceVersion, &version); err != nil {
		panic(err)
	}
	ing.ResourceVersion = fmt.Sprint(version + 100_000_000)
	change(ing)
	in.Ingresses = append([]inputs.Object[networkingv1.Ingress]{}, in.Ingresses...)
	in.Ingresses[i].Value = ing
	return in
}

// perFile is how many objects are in a file.
const perFile = 500

// Write writes objects as manifests into a folder, a few hundred in each file.
func Write(dir string, in inputs.Inputs) error {
	return errors.Join(
		write(dir, "ingresses", "networking.k8s.io/v1", in.Ingresses), write(dir, "services", "v1", in.Services),
		write(dir, "secrets", "v1", in.Secrets), write(dir, "endpointslices", "discovery.k8s.io/v1", in.EndpointSlices),
		write(dir, "classes", inputs.GatewayVersion, in.Gateway.Classes), write(dir, "gateways", inputs.GatewayVersion, in.Gateway.Gateways),
		write(dir, "routes", inputs.GatewayVersion, in.Gateway.HTTPRoutes),
	)
}

func write[T any](dir, name, apiVersion string, objects []inputs.Object[T]) error {
	for first := 0; first < len(objects); first += perFile {
		if err := writeFile(filepath.Join(dir, fmt.Sprintf("%s-%04d.yaml", name, first/perFile)), apiVersion, objects[first:min(first+perFile, len(objects))]); err != nil {
			return err
		}
	}
	return nil
}

func writeFile[T any](path, apiVersion string, objects []inputs.Object[T]) (err error) {
	file, err := os.Create(path) //nolint:gosec // the caller names the folder
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	out := bufio.NewWriter(file)
	for _, o := range objects {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o.Value)
		if err != nil {
			return err
		}
		content["apiVersion"], content["kind"] = apiVersion, o.Ref.Kind
		delete(content, "status")
		text, err := yaml.Marshal(content)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "---\n%s", text); err != nil {
			return err
		}
	}
	return out.Flush()
}

// Forget forgets the certificates that were made. Objects keep them.
func Forget() { made.Clear() }
