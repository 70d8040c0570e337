package compiler

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/hapsnap/hapsnap/compiler/access"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/config/agents"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/ingress"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/snapshots"
)

// place is a line of a template, with the message about what it writes.
type place struct {
	template string
	line     int
	message  string // the message without names
}

// quoted matches what HAProxy, or a check of values, quotes in a message. Most of that is names.
var quoted = regexp.MustCompile(`'[^']*'|"(?:[^"\\]|\\.)*"`)

// listed matches a list of quoted words. A message of HAProxy may list keywords, and scripts can
// add some.
var listed = regexp.MustCompile(`''(?:, '')+`)

func placeOf(f render.Fault) place {
	message := listed.ReplaceAllString(quoted.ReplaceAllString(f.Message, "''"), "''")
	return place{f.Origin.Template, f.Origin.Line, message}
}

// ofTemplates returns those faults of an attempt that are the fault of a template, whatever the
// object. If objects were blamed for them, every object would be left out, and a configuration
// without any route would be published. A fault is that of a template if it also occurs with an
// object that nobody wrote, and if HAProxy accepted no other line that the template wrote in the
// same place.
func (c *compilation) ofTemplates(ctx context.Context, a attempt) ([]render.Fault, error) {
	probed, err := c.probe(ctx, a.faults)
	if err != nil || len(probed) == 0 {
		return nil, err
	}
	// If a line of a template wrote any line without a fault, that line of the template is
	// accepted.
	type output struct {
		file string
		line int
	}
	refused := map[output]bool{}
	for _, f := range a.faults {
		refused[output{f.File, f.Line}] = true
	}
	accepted := map[place]bool{}
	for _, file := range a.artifact.Files {
		number := 0
		for line := range bytes.Lines(file.Content) {
			number++
			// An empty line, with which a template may end, proves nothing.
			if len(bytes.TrimSpace(line)) > 0 && !refused[output{file.Path, number}] {
				origin := a.artifact.Origin(file.Path, number)
				accepted[place{template: origin.Template, line: origin.Line}] = true
			}
		}
	}
	var out []render.Fault
	for _, f := range a.faults {
		if probed[placeOf(f)] && !accepted[place{template: f.Origin.Template, line: f.Origin.Line}] {
			out = append(out, f)
		}
	}
	return out, nil
}

// probe compiles objects that nobody wrote, once, and returns the faults. Faults of the template
// function fail do not count, since a template may ask for an annotation that the probe does not
// have. Faults of checks of values count, since all values of the probe are plain.
func (c *compilation) probe(ctx context.Context, faults []render.Fault) (map[place]bool, error) {
	var err error
	if c.probed == nil {
		if found, known := c.in.Probed.get(c.in, faults); known {
			return found, nil
		}
		if c.probed, err = c.probeOnce(ctx); err != nil {
			c.probed = nil
			return nil, err
		}
	}
	c.in.Probed.put(c.in, faults, c.probed)
	return c.probed, nil
}

// probeOnce makes the probe. It knows no Secrets, so that its result does not depend on any.
func (c *compilation) probeOnce(ctx context.Context) (map[place]bool, error) {
	found := map[place]bool{}
	cfg := withProbeAgents(c.in.Config)
	alone := compilation{in: c.in, check: c.check}
	for _, model := range probeModels(cfg) {
		a, err := alone.publishable(ctx, render.Input{Model: model, Config: cfg, Objects: probeObjects})
		if err != nil {
			return nil, err
		}
		for _, f := range a.faults {
			if !f.Refused || f.Value != "" {
				found[placeOf(f)] = true
			}
		}
	}
	return found, nil
}

// probeMemo remembers the faults of the last probe, which takes a tenth of a second. As long as an object is at fault, each
// compile needs them. They depend on the templates and the configuration, but also on HAProxy, and on what templates name
// outside of the snapshot, such as files. So they count for faults only that there were already when the probe was made.
type probeMemo struct {
	// unpublished says that nothing is published after it. Then the templates and the configuration alone count.
	unpublished bool

	mu        sync.Mutex
	templates *render.Set
	config    config.Config
	found     map[place]bool
	asked     map[place]bool // of the faults that there were
}

// mostAsked bounds the faults, whose messages may have anything in them.
const mostAsked = 1000

// get returns the faults of the probe with the templates and the configuration of an input, if they are known and count.
func (m *probeMemo) get(in Input, faults []render.Fault) (found map[place]bool, known bool) {
	if m == nil {
		return nil, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	known = m.of(in) && (m.unpublished || !slices.ContainsFunc(faults, func(f render.Fault) bool { return !m.asked[placeOf(f)] }))
	return m.found, known
}

// put takes the faults of a probe that was made because of these ones.
func (m *probeMemo) put(in Input, faults []render.Fault, found map[place]bool) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.of(in) || !maps.Equal(m.found, found) || len(m.asked) > mostAsked {
		m.templates, m.config, m.found, m.asked = in.Templates, in.Config, found, map[place]bool{}
	}
	for _, f := range faults {
		m.asked[placeOf(f)] = true
	}
}

// of reports whether the memory is of the templates and the configuration of an input.
func (m *probeMemo) of(in Input) bool {
	return m.found != nil && m.templates == in.Templates && reflect.DeepEqual(m.config, in.Config)
}

// probeObjects has one object of each kind that templates can loop over.
func probeObjects() []render.Object {
	return []render.Object{
		{Origin: probeOrigin("Ingress"), APIVersion: "networking.k8s.io/v1"},
		{Origin: probeOrigin("Service"), APIVersion: "v1"},
	}
}

func probeOrigin(kind string) routing.Origin {
	return routing.Origin{Object: diag.Object{Kind: kind, Namespace: "hapsnap", Name: "probe"}}
}

// probeTogether are options that only have an effect together, or with another value than their
// example.
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
	{"forwarded-for": "replace"}, {"forwarded-for": "append"}, {"forwarded-for": "keep"}, {"forwarded-for": "off"},
	{"client-ca-secret": "probe"}, {"client-ca-secret": "probe", "ssl-redirect": "true"}, {"client-ca-secret": "other", "client-cert-headers": "verify, dn, issuer-dn, sha1, sha256, cert, ssl-client-verify, ssl-client-subject-dn, ssl-client-issuer-dn, ssl-client-cert"},
	{"allow-list": "@probe/probe", "deny-list": "@probe/probe", "rate-limit": "1", "rate-limit-exempt": "@probe/probe"},
	{"auth-url": "http://probe.hapsnap/probe", "auth-response-headers": "X-Probe"},
	{"balance": "header X-Probe"}, {"balance": "query probe"}, {"balance": "random"},
	{"send-proxy-protocol": "v1"},
	{"rewrite-path": "/"},
	{"backend-protocol": "fcgi", "fcgi-root": "/srv", "fcgi-path-info": "^(/.+)(/.*)$"},
	{"allow-list": "192.0.2.0/24", "auth-basic": "probe", "satisfy": "any"},
	{"allow-list": "192.0.2.0/24", "auth-basic": "probe", "auth-url": "http://probe.hapsnap/probe", "satisfy": "any"},
	{"client-ca-secret": "probe", "client-match-cn": "probe", "client-error-page": "/probe"},
	{"request-headers": "copy X-Probe host"},
	{"backend-protocol": "fcgi", "fcgi-params": "PROBE probe"},
	{"snippet": "http-request set-var(txn.probe) int(1)"},
	{"agents": "bots, probe", "waf": "partial", "max-body-size": "1k"},
}

// The hosts of the Ingress whose connections are passed through, and of those that share their
// routes with canaries.
const (
	probePassed  = "passed.probe.invalid"
	probeShared  = "shared.probe.invalid"
	probePattern = "pattern.probe.invalid"
)

// probeModels returns the models that the probe renders. One has everything once. The other is for
// lines that templates only write if something is missing.
func probeModels(cfg config.Config) []routing.Model {
	bare := probeInputs()
	bare.Ingresses = []inputs.Object[networkingv1.Ingress]{probeIngress(0, map[string]string{})}
	scarce, _ := ingress.Translate(bare, probeConfig(cfg, nil))
	return []routing.Model{probeModel(cfg), scarce}
}

// probeModel has everything once. For each option it translates an Ingress with the option's own
// example, so that nobody can forget a new option.
func probeModel(cfg config.Config) routing.Model {
	in := probeInputs()
	in.Ingresses = append(in.Ingresses, probeIngress(0, nil))
	for _, o := range options.All() {
		in.Ingresses = append(in.Ingresses, probeIngress(len(in.Ingresses), probeOptions(o)))
	}
	for _, together := range probeTogether {
		in.Ingresses = append(in.Ingresses, probeIngress(len(in.Ingresses), together))
	}
	in.Ingresses = append(in.Ingresses,
		onHost(probeIngress(len(in.Ingresses), map[string]string{"ssl-passthrough": "true", "allow-list": "192.0.2.0/24, @probe/probe", "deny-list": "192.0.2.1, @probe/probe", "allow-countries": "DE", "deny-countries": "DE"}), probePassed),
		onHost(probeIngress(len(in.Ingresses)+1, nil), "*."+probePassed), onHost(probeIngress(len(in.Ingresses)+2, nil), probeShared),
		probeCanary(len(in.Ingresses)+3, probeShared, map[string]string{"canary-by-header": "X-Probe", "canary-by-cookie": "probe", "canary-weight": "10"}),
		probeExpressions(len(in.Ingresses)+4), onHost(probeIngress(len(in.Ingresses)+5, nil), probePattern),
		probeCanary(len(in.Ingresses)+6, probePattern, map[string]string{"canary-by-header": "X-Probe", "canary-by-header-pattern": "^probe$"}))
	model, _ := ingress.Translate(in, probeConfig(cfg, probeTCP(cfg)))
	// Hosts for which the default backend does not answer, and whose paths are compared as they come, with Ingresses of several
	// namespaces.
	model.Held = append(model.Held, routing.Held{Name: "held.invalid", Closed: true, Origin: probeOrigin("Ingress")})
	for i := range model.Hosts {
		model.Hosts[i].Closed = model.Hosts[i].Name == ".probe.invalid"
		for n := range model.Hosts[i].Guards {
			model.Hosts[i].Guards[n].Spelling = true
		}
	}
	return withProbeGateway(model, cfg)
}

// probeCanary returns an Ingress that shares the route of another one with the same host.
func probeCanary(i int, host string, asked map[string]string) inputs.Object[networkingv1.Ingress] {
	asked["canary"] = "true"
	ing := onHost(probeIngress(i, asked), host)
	ing.Value.Spec.Rules[0].HTTP.Paths[0].Backend.Service.Name = "canary"
	return ing
}

// probeExpressions returns an Ingress with two paths, of which one is a regular expression.
func probeExpressions(i int) inputs.Object[networkingv1.Ingress] {
	ing := probeIngress(i, map[string]string{options.PathType: "Regex", "rewrite-path": `/\1`})
	specific := networkingv1.PathTypeImplementationSpecific
	paths := ing.Value.Spec.Rules[0].HTTP.Paths
	ing.Value.Spec.Rules[0].HTTP.Paths = append(paths, networkingv1.HTTPIngressPath{Path: "/probe/(.*)", PathType: &specific, Backend: paths[0].Backend})
	return ing
}

// probeInputs returns the objects that the Ingresses of the probe name.
func probeInputs() inputs.Inputs {
	named := func(kind, name string) diag.Object { return diag.Object{Kind: kind, Namespace: "hapsnap", Name: name} }
	ports := []corev1.ServicePort{{Name: "http", Port: 80}}
	return inputs.Inputs{
		Services: []inputs.Object[corev1.Service]{
			{Ref: named("Service", "probe"), Value: &corev1.Service{Spec: corev1.ServiceSpec{Ports: ports}}},
			{Ref: named("Service", "canary"), Value: &corev1.Service{Spec: corev1.ServiceSpec{Ports: ports}}},
			{Ref: named("Service", "outside"), Value: &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "outside.probe.invalid", Ports: ports}}},
		},
		ConfigMaps: []inputs.Object[corev1.ConfigMap]{{
			Ref:   named("ConfigMap", "probe"),
			Value: &corev1.ConfigMap{Data: map[string]string{"503": "<p>probe", "probe": "192.0.2.0/24"}},
		}, {
			Ref:   named("ConfigMap", "countries"),
			Value: &corev1.ConfigMap{Data: map[string]string{"probe": "192.0.2.0/24 DE\n"}},
		}, {
			Ref:   named("ConfigMap", "strict"),
			Value: &corev1.ConfigMap{Data: map[string]string{access.PolicyKey: probePolicy("engine: block")}},
		}, {
			Ref:   named("ConfigMap", "partial"),
			Value: &corev1.ConfigMap{Data: map[string]string{access.PolicyKey: probePolicy("uninspected: allow, failure: open, bodyLimit: 1000")}},
		}},
	}
}

// probePolicy returns a firewall policy with some fields.
func probePolicy(spec string) string {
	return "apiVersion: " + snapshots.APIVersion + "\nkind: " + access.WAFPolicyKind + "\nspec: {" + spec + "}\n"
}

// withProbeAgents returns the configuration with the agents that the probe names: the one in the
// option's example, and another one. They replace agents of the administrator that have these
// names.
func withProbeAgents(cfg config.Config) config.Config {
	asked := agents.Message{Name: "asked", Arguments: []agents.Argument{{Name: "body", Value: agents.Body}}}
	bots := agents.Agent{
		Name: "bots", Service: "hapsnap/probe:http", Namespaces: []string{"hapsnap"}, Variables: []string{"bad"}, RefuseIf: "bad",
		Messages: []agents.Message{asked, {Name: "answered", On: agents.Response, Arguments: []agents.Argument{{Name: "status", Value: agents.ResponseStatus}}}},
	}
	second := agents.Agent{Name: "probe", Socket: "/run/probe.sock", Namespaces: bots.Namespaces, Messages: []agents.Message{{Name: "asked"}}, OnError: agents.Open}
	cfg.Agents = append(slices.DeleteFunc(slices.Clone(cfg.Agents), func(a agents.Agent) bool { return a.Name == bots.Name || a.Name == second.Name }), bots, second)
	if !cfg.WAF.Enabled() {
		cfg.WAF.Socket = "/run/probe-waf.sock"
	}
	return cfg
}

// probeConfig returns the configuration for translating the probe. It allows everything that an
// administrator may forbid.
func probeConfig(cfg config.Config, tcp []config.TCPService) ingress.Config {
	out := ingress.Config{
		IngressClass: ingress.DefaultIngressClass, TrustsForwarded: true, HTTPSPort: cfg.HTTPS.Port, Ports: cfg.Ports(),
		Paths: cfg.Paths, Snippets: config.Namespaces{"hapsnap"}, TCPServices: tcp, DefaultCertificate: defaultCertificate(cfg),
	}
	out.Inspection = Input{Config: cfg}.inspection()
	out.Countries, out.CountryHeader = []string{"hapsnap/countries"}, cfg.Countries.Header != ""
	if cfg.ErrorPages != "" {
		out.ErrorPages = "hapsnap/probe"
	}
	return out
}

// probeTCP returns TCP services of all kinds: a port whose connections are passed through, one at which TLS ends, one with
// both, and one with an external name.
func probeTCP(cfg config.Config) []config.TCPService {
	var ports []int
	for port, taken := 1, cfg.Ports(); len(ports) < 4; port++ {
		if taken[port] == "" {
			ports = append(ports, port)
		}
	}
	tls := config.TCPServiceTLS{Secret: "hapsnap/probe"}
	trusted := config.ProxyProtocol{Trusted: []string{"192.0.2.0/24"}}
	const to = "hapsnap/probe:http"
	return []config.TCPService{
		{Port: ports[0], Service: to, ProxyProtocol: trusted},
		{Port: ports[1], Service: to, SNI: []string{"ended.probe.invalid"}, TLS: tls}, {Port: ports[1], Service: to, TLS: tls},
		{Port: ports[2], Service: to, SNI: []string{"ended.probe.invalid"}, TLS: tls}, {Port: ports[2], Service: to, SNI: []string{"*.probe.invalid"}}, {Port: ports[2], Service: to},
		{Port: ports[3], Service: "hapsnap/outside:http", SendProxyProtocol: 2},
	}
}

// probeOptions returns an option and the options that it needs, each with its example.
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

// onHost returns a copy of the Ingress for another host.
func onHost(ing inputs.Object[networkingv1.Ingress], host string) inputs.Object[networkingv1.Ingress] {
	ing.Value.Spec.Rules, ing.Value.Spec.DefaultBackend = ing.Value.Spec.Rules[:1], nil
	ing.Value.Spec.Rules[0].Host, ing.Value.Spec.TLS = host, nil
	return ing
}

// probeIngress returns the i-th Ingress of the probe. Apart from the given options, it has
// everything that an Ingress can have.
func probeIngress(i int, asked map[string]string) inputs.Object[networkingv1.Ingress] {
	class, host := ingress.DefaultIngressClass, fmt.Sprintf("p%d.probe.invalid", i)
	prefix, exact := networkingv1.PathTypePrefix, networkingv1.PathTypeExact
	to := func(service, port string) networkingv1.IngressBackend {
		return networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: service, Port: networkingv1.ServiceBackendPort{Name: port}}}
	}
	rule := func(host string, paths ...networkingv1.HTTPIngressPath) networkingv1.IngressRule {
		return networkingv1.IngressRule{Host: host, IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: paths}}}
	}
	ing := &networkingv1.Ingress{}
	ing.Namespace, ing.Name = "hapsnap", fmt.Sprintf("probe-%d", i)
	ing.Spec.IngressClassName = &class
	ing.Spec.Rules = []networkingv1.IngressRule{rule(host, networkingv1.HTTPIngressPath{Path: "/", PathType: &prefix, Backend: to("probe", "http")})}
	ing.Spec.TLS = []networkingv1.IngressTLS{{Hosts: []string{host}, SecretName: "probe"}}
	ing.Annotations = map[string]string{}
	for name, value := range asked {
		ing.Annotations[options.Prefix+name] = value
	}
	if asked == nil {
		fallback := to("probe", "http")
		ing.Spec.DefaultBackend = &fallback
		ing.Spec.Rules = append(ing.Spec.Rules, rule("*.probe.invalid",
			networkingv1.HTTPIngressPath{Path: "/gone", PathType: &exact, Backend: to("probe", "gone")},
			networkingv1.HTTPIngressPath{Path: "/outside", PathType: &exact, Backend: to("outside", "http")}))
	}
	return inputs.Object[networkingv1.Ingress]{Ref: diag.Object{Kind: "Ingress", Namespace: ing.Namespace, Name: ing.Name}, Value: ing}
}

// checkPathTemplates warns about templates of a user that look up paths as they are sent, or that
// pass on CONNECT. An old copy of a shipped template does that. With such templates, a client can
// evade the protection of a path: it writes the path in another way, or uses the tunnel. Nothing
// else reports that.
func checkPathTemplates(m routing.Model, a render.Artifact) []diag.Diagnostic {
	var config []byte
	for _, f := range a.Files {
		if f.Path == snapshots.ConfigFile {
			config = f.Content
		}
	}
	has := func(word string) bool { return bytes.Contains(config, []byte(word)) }
	if !has("(maps/prefix.map)") && !has("(maps/exact.map)") {
		return nil // paths are looked up in another form, or not at all
	}
	if !has("CONNECT") {
		return []diag.Diagnostic{{
			Severity: diag.Warning,
			Message:  "the templates pass on CONNECT, so that what protects routes can be walked around through the tunnel",
			Hint:     "a copy of a frontend is older than the shipped one: renew it; the shipped one has partials/request-line.cfg",
		}}
	}
	normalizes, guards := has("lua.hapsnap_path"), has("(maps/paths.map)")
	if normalizes && guards {
		return nil // nearly always
	}
	for _, h := range m.Hosts {
		if len(h.Guards) == 0 {
			continue
		}
		var what string
		switch {
		case h.Form != routing.AsSent && !normalizes:
			what = "compare paths as they are sent, such as //admin and /%61dmin"
		case !guards:
			what = "pass on paths that servers read in different ways, such as /x/..%2fadmin"
		default:
			continue
		}
		return []diag.Diagnostic{{
			Severity: diag.Warning,
			Message:  fmt.Sprintf("the templates %s, so that what %s protects of host %s can be walked around", what, h.Guards[0].Origin.Object, h.Name),
			Hint:     "a copy of partials/routing.cfg, or of a frontend, is older than the shipped one: renew it; the shipped one has partials/path.cfg and partials/path-guard.cfg",
		}}
	}
	return nil
}
