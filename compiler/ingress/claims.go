package ingress

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/routing/hostname"
	"github.com/hapsnap/hapsnap/compiler/routing/ownership"
	"github.com/hapsnap/hapsnap/snapshots"
)

// claims is what one Ingress asks for, whatever other Ingresses there are. When the claims of all
// are merged, it is decided whether the Ingress gets it. Claims never change once they are made,
// since translations share them.
type claims struct {
	ownership.Claimant
	annotations map[string]string

	// faults are the reasons why the Ingress cannot be used at all. If there are any, the claims
	// have nothing else.
	faults []diag.Diagnostic
	// unusable are the paths that cannot be matched, with the reasons.
	unusable map[pathAt]diag.Diagnostic
	// foreignCanary has findings if the Ingress is a canary for another controller, but not for us.
	foreignCanary []diag.Diagnostic

	*wishes // most Ingresses share theirs
	// closed says that an annotation of another controller would protect something.
	closed    bool
	ruleHosts []string // each once
	// withoutHost says that a rule, or the default backend, is for all hosts.
	withoutHost    string
	found          []diag.Diagnostic // about its options
	foreign        []diag.Diagnostic // about annotations of other controllers
	rules          []rule
	defaultBackend *defaultBackend
	tls            []tlsEntry
	canary         *options.Canary // nil for a canary that gets nothing
}

// wishes are what the options of an Ingress ask for beyond its spec. They are not changed once they are made.
type wishes struct {
	values options.Values // of the Ingress, and for options that it does not set, of its class
	class  *parameters    // nil if the class has none
	// needsOwnBackend says that requests to the Ingress need a backend of their own.
	needsOwnBackend bool
	aliases         []string // as far as the Ingress may have them
	exactPaths      bool
	// expressions says that ImplementationSpecific paths are regular expressions.
	expressions bool
	paths       options.Paths
	pathRules   pathRules
	// passthrough says that TLS connections are passed on without ending TLS.
	passthrough bool
	// clients says which certificates TLS clients must present.
	clients options.Clients
	// fallback is the Service for routes whose own Service has no usable endpoint.
	fallback    policy.ServiceRef
	redirectWWW bool
}

// noWishes are those of Ingresses whose options are not asked.
var noWishes = &wishes{}

// rule is a rule with its host as it is written and as the model names it.
type rule struct {
	host, key string
	origin    routing.Origin // the position of the host
	paths     []path
}

// path is a path in a rule.
type path struct {
	at      pathAt
	text    string // as it is written
	kind    networkingv1.PathType
	match   routing.PathMatch // in the form that the Ingress asks for
	origin  routing.Origin
	backend demand
	// passed is the backend for TLS connections that are passed through, or nil.
	passed *connectionDemand
}

// defaultBackend is a default backend.
type defaultBackend struct {
	origin  routing.Origin
	backend demand
}

// tlsEntry is an entry of spec.tls that names a Secret.
type tlsEntry struct {
	secret snapshots.SecretName
	named  routing.Origin // the position of the Secret's name
	hosts  []tlsHost
	found  []diag.Diagnostic
}

type tlsHost struct {
	host   string // in normal form
	origin routing.Origin
}

// newClaims returns the claims of an Ingress that asks for nothing.
func newClaims(ing ingress) *claims {
	return &claims{Claimant: claimantOf(ing), annotations: ing.Value.Annotations, wishes: noWishes}
}

// claimsOf returns what an Ingress asks for. It is a pure function.
func claimsOf(s source) *claims {
	ing := s.ingress
	c := newClaims(ing)
	c.faults, c.unusable = validate(ing, s.usesExpressions())
	if len(c.faults) > 0 {
		return c
	}
	if options.IsCanary(ing.Value.Annotations) {
		s.addCanary(c)
		return c
	}
	if c.foreignCanary = s.foreignCanary(); c.foreignCanary != nil {
		return c
	}
	s.addWishes(c)
	s.addForeign(c)
	spec := ing.Value.Spec
	m := demandMaker{source: s, wishes: c.wishes, options: map[string]*backendOptions{}}
	if spec.DefaultBackend != nil {
		c.defaultBackend = &defaultBackend{originOf(ing, "spec", "defaultBackend"), m.demand(*spec.DefaultBackend, []any{"spec", "defaultBackend"})}
	}
	for i, r := range spec.Rules {
		c.rules = append(c.rules, s.rule(c, i, r, m.demand))
	}
	for i, entry := range spec.TLS {
		s.addTLS(c, i, entry)
	}
	return c
}

// closedClaimsOf returns the routes to close of an Ingress that protects something and cannot be
// used as it is. It returns those parts that are sound, without backends. It is a pure function.
func closedClaimsOf(s source) *claims {
	ing := s.ingress
	c := newClaims(ing)
	s.addWishes(c)
	none := func(_ networkingv1.IngressBackend, at []any) demand {
		return demand{origins: []routing.Origin{originOf(ing, at...)}}
	}
	for i, r := range ing.Value.Spec.Rules {
		r = soundPaths(ing, r, c.expressions)
		if r.Host != "" && !soundHost(ing, r.Host) {
			continue
		}
		c.rules = append(c.rules, s.rule(c, i, r, none))
	}
	if ing.Value.Spec.DefaultBackend != nil {
		c.defaultBackend = &defaultBackend{originOf(ing, "spec", "defaultBackend"), none(networkingv1.IngressBackend{}, []any{"spec", "defaultBackend"})}
	}
	if len(validation.IsDNS1123Label(ing.Ref.Namespace)) > 0 {
		return c // there is no such Secret, and no file may have such a name
	}
	rules := slices.Clone(ing.Value.Spec.Rules)
	for i, r := range rules {
		if r.Host != "" && !soundHost(ing, r.Host) {
			rules[i].Host = ""
		}
	}
	sound := *ing.Value
	sound.Spec.Rules = rules
	s.ingress = inputs.Object[networkingv1.Ingress]{Ref: ing.Ref, Value: &sound, At: ing.At}
	c.ruleHosts = ruleHosts(rules)
	for i, entry := range ing.Value.Spec.TLS {
		if entry, usable := soundTLS(ing, entry); usable {
			s.addTLS(c, i, entry)
		}
	}
	return c
}

// soundTLS returns a tls entry with only its sound hosts. Clients whose requests are refused should
// still get the right certificate.
func soundTLS(ing ingress, entry networkingv1.IngressTLS) (networkingv1.IngressTLS, bool) {
	v := validator{ing: ing}
	if v.tlsEntry(networkingv1.IngressTLS{SecretName: entry.SecretName}); len(v.found) > 0 {
		return entry, false
	}
	entry.Hosts = slices.Clone(entry.Hosts)
	for j, host := range entry.Hosts {
		if !soundHost(ing, host) {
			entry.Hosts[j] = ""
		}
	}
	return entry, true
}

func soundHost(ing ingress, host string) bool {
	v := validator{ing: ing}
	v.host(host)
	return len(v.found) == 0
}

// soundPaths returns a rule with only those paths that can be matched.
func soundPaths(ing ingress, rule networkingv1.IngressRule, expressions bool) networkingv1.IngressRule {
	if rule.HTTP == nil {
		return rule
	}
	paths := slices.DeleteFunc(slices.Clone(rule.HTTP.Paths), func(p networkingv1.HTTPIngressPath) bool {
		p.Backend = networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "any", Port: networkingv1.ServiceBackendPort{Number: 1}}}
		v := validator{ing: ing, expressions: expressions}
		v.path(p)
		unusable, _ := v.checkUsable(p)
		return len(v.found) > 0 || unusable != ""
	})
	rule.HTTP = &networkingv1.HTTPIngressRuleValue{Paths: paths}
	return rule
}

// rule returns the i-th rule of the spec.
func (s source) rule(c *claims, i int, r networkingv1.IngressRule, demandOf func(networkingv1.IngressBackend, []any) demand) rule {
	out := rule{host: r.Host, key: hostname.Of(r.Host), origin: originOf(s.ingress, "spec", "rules", i, "host")}
	if r.HTTP == nil {
		return out
	}
	for j, p := range r.HTTP.Paths {
		at := []any{"spec", "rules", i, "http", "paths", j}
		claimed := path{at: pathAt{i, j}, text: p.Path, kind: *p.PathType, origin: originOf(s.ingress, append(at, "path")...), backend: demandOf(p.Backend, sub(at, "backend"))}
		claimed.match = claimed.matchIn(c.exactPaths, c.pathRules.form)
		if c.passthrough && (claimed.matchIn(c.exactPaths, routing.NormalForm) == routing.PathMatch{Type: routing.Prefix}) {
			claimed.passed = s.passOn(c, p.Backend)
		}
		out.paths = append(out.paths, claimed)
	}
	return out
}

// matchIn returns what a path matches if paths are compared in this form. An ImplementationSpecific
// path is a prefix, unless the Ingress says that it is exact. An empty path is the root.
func (p path) matchIn(exact bool, form routing.PathForm) routing.PathMatch {
	text := form.Of(orSlash(p.text))
	if p.kind == networkingv1.PathTypeExact || (exact && p.kind == networkingv1.PathTypeImplementationSpecific) {
		return routing.PathMatch{Type: routing.Exact, Path: text}
	}
	return routing.PathMatch{Type: routing.Prefix, Path: strings.TrimSuffix(text, "/")}
}

func (p path) isSpecific() bool { return p.kind == networkingv1.PathTypeImplementationSpecific }

func orSlash(path string) string {
	if path == "" {
		return "/"
	}
	return path
}

// addTLS adds the hosts of one entry of spec.tls for its Secret. An entry without a Secret asks for
// the default certificate, which every host can get.
func (s source) addTLS(c *claims, i int, entry networkingv1.IngressTLS) {
	if entry.SecretName == "" {
		return
	}
	at := []any{"spec", "tls", i}
	out := tlsEntry{
		secret: snapshots.SecretName{Namespace: s.ingress.Ref.Namespace, Name: entry.SecretName}, named: originOf(s.ingress, sub(at, "secretName")...),
	}
	hosts, positions := entry.Hosts, func(j int) []any { return sub(at, "hosts", j) }
	if len(hosts) == 0 {
		hosts, positions = c.ruleHosts, func(int) []any { return sub(at, "secretName") }
	}
	if len(hosts) == 0 {
		out.found = append(out.found, s.report(diag.Error, out.named.Position,
			fmt.Sprintf("Secret %s is not used: neither the tls entry nor a rule names a host", out.secret), "list the hosts in tls.hosts"))
	}
	for j, host := range hosts {
		if host == "" { // soundTLS left it out
			continue
		}
		out.hosts = append(out.hosts, tlsHost{hostname.Normal(host), originOf(s.ingress, positions(j)...)})
	}
	c.tls = append(c.tls, out)
}

// addWishes adds what the annotations of the Ingress ask for.
func (s source) addWishes(c *claims) {
	ing := s.ingress
	values, problems := options.Read(options.OnIngress, ing.Value.Annotations)
	c.found = append(c.found, options.Diagnostics(ing.Ref, ing.Position, problems)...)
	c.ruleHosts = ruleHosts(ing.Value.Spec.Rules)
	if ing.Value.Spec.DefaultBackend != nil {
		c.withoutHost = "there is a defaultBackend"
	} else if slices.ContainsFunc(ing.Value.Spec.Rules, func(r networkingv1.IngressRule) bool { return r.Host == "" }) {
		c.withoutHost = "a rule names none"
	}
	if s.class == nil && values.First() == "" && !values.Closed {
		c.wishes = s.scope.plain
		return // most Ingresses have none
	}
	if s.class != nil {
		values = values.Inherit(s.class.values)
	}
	w := &wishes{values: values, class: s.class, needsOwnBackend: values.NeedsBackend(), pathRules: s.scope.pathRules(options.Paths{})}
	c.wishes = w
	if values.First() == "" {
		return
	}
	settings, alone, _ := options.Resolve(values)
	if !w.needsOwnBackend { // otherwise a backend has these findings
		c.found = append(c.found, options.Diagnostics(ing.Ref, ing.Position, alone[0])...)
	}
	if settings.CountsForwarded() && !s.scope.trustsForwarded && !values.Inherits("forwarded-for") {
		c.found = append(c.found, s.report(diag.Warning, ing.Position(annotationPath("forwarded-for")...),
			"annotation "+options.Prefix+"forwarded-for has no effect: the configuration trusts no network, so that X-Forwarded-For is replaced",
			"the administrator lists the networks of proxies before HAProxy in forwarded.trusted"))
	}
	w.exactPaths, w.passthrough, w.clients = settings.ExactPaths, settings.Passthrough, settings.Clients
	w.expressions = settings.Expressions
	w.paths = settings.Paths
	w.fallback, w.redirectWWW = settings.Fallback, settings.RedirectWWW
	w.pathRules = s.scope.pathRules(w.paths)
	if len(settings.Aliases) == 0 {
		return
	}
	if len(c.ruleHosts) != 1 {
		c.found = append(c.found, s.report(diag.Error, ing.Position(annotationPath("server-alias")...),
			"annotation "+options.Prefix+"server-alias is for an Ingress with one host, and is ignored", "make an Ingress for each host"))
		return
	}
	w.aliases = settings.Aliases
}

// pathRules is what an Ingress says about the paths of its hosts.
type pathRules struct {
	form       routing.PathForm
	said       bool // an option says so
	unsafe     config.UnsafePaths
	parameters config.PathParameters
}

// pathRules returns the rules that apply to the Ingress, from its options or from the
// configuration.
func (s scope) pathRules(asked options.Paths) pathRules {
	said := s.paths
	if asked.Normalize != nil {
		said.Normalize = *asked.Normalize
	}
	said.Unsafe = cmp.Or(config.UnsafePaths(asked.Unsafe), said.Unsafe)
	said.Parameters = cmp.Or(config.PathParameters(asked.Parameters), said.Parameters)
	return pathRules{
		form: routing.FormOf(said), said: asked.Normalize != nil || asked.Parameters == string(config.IgnoreParameters),
		unsafe: said.Unsafe, parameters: said.Parameters,
	}
}

// addCanary adds what a canary asks for. A canary shares the routes of another Ingress, and has the
// options of that Ingress.
func (s source) addCanary(c *claims) {
	ing := s.ingress
	values, problems := options.Read(options.OnIngress, ing.Value.Annotations)
	c.found = options.Diagnostics(ing.Ref, ing.Position, problems)
	if !values.Has("canary") {
		return
	}
	if !s.scope.ignoreForeign {
		found, protects := s.foreignFindings("the canary gets nothing")
		if c.found = append(c.found, found...); protects {
			return
		}
	}
	settings, _, _ := options.Resolve(values)
	asked := settings.Canary
	if asked.Weight == nil && asked.Header.Name == "" && asked.Cookie == "" {
		c.found = append(c.found, s.report(diag.Warning, ing.Position(annotationPath("canary")...), "the canary asks for no requests",
			"set "+options.Prefix+"canary-weight, canary-by-header or canary-by-cookie"))
		return
	}
	c.canary = &asked
	r := s.resolver()
	for i, rule := range ing.Value.Spec.Rules {
		c.rules = append(c.rules, s.rule(c, i, rule, func(ref networkingv1.IngressBackend, at []any) demand {
			return s.plainDemand(r.resolve(ing.Ref.Namespace, ref), at)
		}))
	}
}
