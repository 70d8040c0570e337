package compiler

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/routing"
)

// probeTogether are options that only show together, or with another value than
// their example.
var probeTogether = []map[string]string{
	{"backend-protocol": "h1-tls", "backend-sni": "probe.invalid", "backend-verify": "system"},
	{"backend-protocol": "h1-tls", "backend-sni": "request-host"},
	{"backend-protocol": "grpc"},
	{"backend-protocol": "fcgi", "fcgi-root": "/srv"},
	{"allow-list": "192.0.2.0/24"},
	{"auth-url": "http://probe.hapsnap/probe"},
	{"cors-allow-origin": "*"},
	{"cors-allow-origin": "https://*.probe.invalid", "cors-allow-credentials": "true"},
	{"redirect": "https://probe.invalid"},
	{"rewrite-path": "/probe"},
	{"response-headers": "set X-Probe a\nadd X-Probe b\nremove X-Probe"},
	{"forwarded-for": "keep"}, {"forwarded-for": "off"},
}

// probeModel has one of everything: it is translated from an Ingress for each
// option, with the option's own example, so that a new one is not forgotten.
func probeModel(cfg config.Config) routing.Model {
	in := inputs.Inputs{
		Services: []inputs.Object[corev1.Service]{{
			Ref:   diag.Object{Kind: "Service", Namespace: "hapsnap", Name: "probe"},
			Value: &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}},
		}},
		ConfigMaps: []inputs.Object[corev1.ConfigMap]{{
			Ref:   diag.Object{Kind: "ConfigMap", Namespace: "hapsnap", Name: "probe"},
			Value: &corev1.ConfigMap{Data: map[string]string{"503": "<p>probe"}},
		}},
		Ingresses: []inputs.Object[networkingv1.Ingress]{probeIngress(0, nil)},
	}
	for _, o := range options.All() {
		in.Ingresses = append(in.Ingresses, probeIngress(len(in.Ingresses), probeOptions(o)))
	}
	for _, together := range probeTogether {
		in.Ingresses = append(in.Ingresses, probeIngress(len(in.Ingresses), together))
	}
	routed := routing.Config{IngressClass: routing.DefaultIngressClass, HTTPSPort: cfg.HTTPS.Port}
	if cfg.ErrorPages != "" {
		routed.ErrorPages = "hapsnap/probe"
	}
	model, _ := routing.Translate(in, routed)
	return model
}

// probeOptions are an option and what it needs, each with its example.
func probeOptions(o options.Option) map[string]string {
	out := map[string]string{o.Name: o.Example}
	for _, other := range options.All() {
		if other.Name == o.Needs || (other.Name == "backend-protocol" && strings.HasPrefix(o.Name, "backend-")) {
			if out[other.Name] == "" {
				out[other.Name] = other.Example
			}
		}
	}
	return out
}

// probeIngress is the i-th Ingress that nobody wrote. Without options it has
// everything that an Ingress can have besides.
func probeIngress(i int, asked map[string]string) inputs.Object[networkingv1.Ingress] {
	class, host := routing.DefaultIngressClass, fmt.Sprintf("p%d.probe.invalid", i)
	prefix, exact := networkingv1.PathTypePrefix, networkingv1.PathTypeExact
	to := func(port string) networkingv1.IngressBackend {
		return networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "probe", Port: networkingv1.ServiceBackendPort{Name: port}}}
	}
	rule := func(host string, paths ...networkingv1.HTTPIngressPath) networkingv1.IngressRule {
		return networkingv1.IngressRule{Host: host, IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: paths}}}
	}
	ing := &networkingv1.Ingress{}
	ing.Namespace, ing.Name = "hapsnap", fmt.Sprintf("probe-%d", i)
	ing.Spec.IngressClassName = &class
	ing.Spec.Rules = []networkingv1.IngressRule{rule(host, networkingv1.HTTPIngressPath{Path: "/", PathType: &prefix, Backend: to("http")})}
	ing.Spec.TLS = []networkingv1.IngressTLS{{Hosts: []string{host}, SecretName: "probe"}}
	ing.Annotations = map[string]string{}
	for name, value := range asked {
		ing.Annotations[options.Prefix+name] = value
	}
	if asked == nil {
		fallback := to("http")
		ing.Spec.DefaultBackend = &fallback
		ing.Spec.Rules = append(ing.Spec.Rules, rule("*.probe.invalid",
			networkingv1.HTTPIngressPath{Path: "/gone", PathType: &exact, Backend: to("gone")}))
	}
	return inputs.Object[networkingv1.Ingress]{Ref: diag.Object{Kind: "Ingress", Namespace: ing.Namespace, Name: ing.Name}, Value: ing}
}
