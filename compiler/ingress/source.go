package ingress

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler/access"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/migrate"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/routing/hostname"
	"github.com/hapsnap/hapsnap/compiler/routing/ownership"
	"github.com/hapsnap/hapsnap/internal/printable"
)

type (
	ingress = inputs.Object[networkingv1.Ingress]
	service = inputs.Object[corev1.Service]
)

// source has everything from which the claims of an Ingress are made. Claims only name Secrets and ConfigMaps; the
// merge looks them up.
type source struct {
	ingress ingress
	scope   *scope
	// className is the class of the Ingress, and class has the parameters of that class, or is nil.
	className string
	class     *parameters
	// service finds the Services that the Ingress names.
	service serviceFinder
}

// scope is the part of the configuration on which claims depend.
type scope struct {
	paths                          config.Paths
	snippets                       config.Namespaces
	externalNames                  ExternalNames
	sharedAuthServices             []string
	inspection                     access.Inspection
	ignoreForeign, trustsForwarded bool

	plain *wishes // of an Ingress without options
}

func scopeOf(c Config) scope {
	s := scope{
		paths: c.Paths, snippets: c.Snippets, externalNames: c.ExternalNames, sharedAuthServices: c.SharedAuthServices, inspection: c.Inspection,
		ignoreForeign: c.IgnoreForeign, trustsForwarded: c.TrustsForwarded,
	}
	s.plain = &wishes{pathRules: s.pathRules(options.Paths{})}
	return s
}

// serviceFinder finds Services by name.
type serviceFinder func(types.NamespacedName) (service, bool)

// outline is a short description of an Ingress. It is enough to decide who has which host, and whether the Ingress is
// within its limits.
type outline struct {
	ownership.Claimant

	hosts    []namedHost
	shared   []string // namespaces with which it shares its hosts
	size     size
	isCanary bool
	// protects names what protects something, "" if nothing does. protectsAt is its position.
	protects   string
	protectsAt diag.Position
}

// namedHost is a sound host that an Ingress names, as the model names it, with its path in the object.
type namedHost struct {
	name string
	path []any
	tls  bool // the host is named in spec.tls
}

func claimantOf(ing ingress) ownership.Claimant {
	return ownership.Claimant{Ref: ing.Ref, Created: ing.Value.CreationTimestamp, At: ing.At}
}

// outlineOf returns the outline of an Ingress. It is a pure function.
func outlineOf(s source) *outline {
	shared, aliases := hostOptions(s.ingress)
	// Each Ingress counts as at least one route.
	ing := s.ingress
	var total size
	for _, rule := range ing.Value.Spec.Rules {
		hosts := append([]string{rule.Host}, aliases...)
		if rule.HTTP == nil || len(rule.HTTP.Paths) == 0 {
			total.addRoutes(hosts, "")
			continue
		}
		for _, p := range rule.HTTP.Paths {
			total.addRoutes(hosts, p.Path)
		}
	}
	for _, entry := range ing.Value.Spec.TLS {
		for _, host := range entry.Hosts {
			total.addRoutes([]string{host}, "")
		}
	}
	total.routes = max(1, total.routes)
	if own := optionBytes(ing.Value.Annotations); own > 0 {
		total.bytes = s.expandedBytes(own)
	}
	o := &outline{
		Claimant: claimantOf(s.ingress), hosts: hostsOf(s.ingress, aliases), shared: shared,
		size: total, isCanary: options.IsCanary(s.ingress.Value.Annotations),
	}
	o.protects, o.protectsAt = s.protected()
	return o
}

// protected names what protects something, in the Ingress or in its class, and returns its position.
func (s source) protected() (what string, at diag.Position) {
	ing := s.ingress
	if name := options.Protects(ing.Value.Annotations); name != "" {
		return "annotation " + name, ing.Position("metadata", "annotations", name)
	}
	if s.class != nil && s.class.values.Protect() {
		return "IngressClass " + s.className, ing.Position("spec")
	}
	if name := s.foreignProtection(); name != "" {
		return "annotation " + name, ing.Position("metadata", "annotations", name)
	}
	return "", diag.Position{}
}

// report returns a finding about the Ingress.
func (s source) report(severity diag.Severity, at diag.Position, message, hint string) diag.Diagnostic {
	return diag.Diagnostic{Severity: severity, Position: at, Object: s.ingress.Ref, Message: message, Hint: hint}
}

// hostOptions returns the namespaces with which an Ingress shares its hosts, and its aliases.
func hostOptions(ing ingress) (shared, aliases []string) {
	_, hasAliases := ing.Value.Annotations[options.Prefix+"server-alias"]
	_, hasShared := ing.Value.Annotations[options.Prefix+"share-host"]
	if !hasAliases && !hasShared {
		return nil, nil // most Ingresses have none
	}
	values, _ := options.Read(options.OnIngress, ing.Value.Annotations)
	settings, _, _ := options.Resolve(values)
	if len(ruleHosts(ing.Value.Spec.Rules)) != 1 {
		settings.Aliases = nil
	}
	return settings.ShareHost, settings.Aliases
}

// hostsOf returns every sound host that an Ingress names, as the model names it, with its path in the object.
func hostsOf(ing ingress, aliases []string) []namedHost {
	var out []namedHost
	add := func(host string, tls bool, path ...any) {
		if message, _ := hostname.Check(hostname.Normal(host)); message == "" {
			out = append(out, namedHost{hostname.Of(host), path, tls})
		}
	}
	for i, rule := range ing.Value.Spec.Rules {
		add(rule.Host, false, "spec", "rules", i, "host")
	}
	for i, entry := range ing.Value.Spec.TLS {
		for j, host := range entry.Hosts {
			add(host, true, "spec", "tls", i, "hosts", j)
		}
	}
	for _, host := range aliases {
		add(host, false, annotationPath("server-alias")...)
	}
	return out
}

// HostNames returns the names of the sound hosts that an Ingress names, including aliases, as a [routing.Model] has
// them. A rule without a host gives "".
func HostNames(ing inputs.Object[networkingv1.Ingress]) []string {
	_, aliases := hostOptions(ing)
	var out []string
	for _, host := range hostsOf(ing, aliases) {
		out = append(out, host.name)
	}
	for _, rule := range ing.Value.Spec.Rules {
		if rule.Host == "" {
			out = append(out, "")
		}
	}
	return out
}

// ruleHosts returns the hosts of rules, each once.
func ruleHosts(rules []networkingv1.IngressRule) []string {
	var hosts []string
	for _, rule := range rules {
		if rule.Host != "" && !slices.Contains(hosts, rule.Host) {
			hosts = append(hosts, rule.Host)
		}
	}
	return hosts
}

// addForeign reports the annotations of other controllers on an Ingress, which have no effect here. Somebody may change
// the class of an Ingress by hand, or let hapsnap take over the class of another controller. Then routes that such an
// annotation protected would be open to everybody. So an Ingress with an annotation that refuses requests is closed. It
// stays closed until an option of ours does the same, or until the configuration says that foreign annotations are
// ignored.
func (s source) addForeign(c *claims) {
	if s.scope.ignoreForeign {
		return
	}
	c.foreign, c.closed = s.foreignFindings("the routes of this Ingress answer 503")
	c.foreign = append(c.foreign, s.patterns(c.expressions)...)
}

// foreignCanary returns findings about an Ingress that is a canary for another controller but not for us. It returns
// nil for all other Ingresses. Such an Ingress gets no routes. If it were treated as an ordinary Ingress, and were
// older or first by name, it would take all requests of the routes that it should share, without their protection.
func (s source) foreignCanary() []diag.Diagnostic {
	ing := s.ingress
	if s.scope.ignoreForeign || len(ing.Value.Annotations) == 0 {
		return nil
	}
	unheeded := migrate.FindUnheeded(ing.Value.Annotations)
	i := slices.IndexFunc(unheeded, func(u migrate.Unheeded) bool { return slices.Contains(u.Instead, options.Prefix+"canary") })
	if i < 0 {
		return nil
	}
	found, _ := s.foreignFindings("this Ingress gets nothing")
	return append(found, s.report(diag.Error, ing.Position("metadata", "annotations", unheeded[i].Annotation),
		fmt.Sprintf("annotation %s of %s makes this Ingress a canary there; here it gets nothing", unheeded[i].Annotation, unheeded[i].Controller),
		"use "+options.Prefix+"canary, as compiler migrate does"))
}

// foreignFindings returns findings about annotations of other controllers, and whether one of them protects something.
// then says for the messages what happens to the Ingress.
func (s source) foreignFindings(then string) (found []diag.Diagnostic, protects bool) {
	ing := s.ingress
	for _, u := range migrate.FindUnheeded(ing.Value.Annotations) {
		if slices.Contains(u.Instead, options.Prefix+"canary") {
			continue // foreignCanary reports it
		}
		severity, message := diag.Warning, fmt.Sprintf("annotation %s of %s is not obeyed", u.Annotation, u.Controller)
		if u.Protects {
			severity, message = diag.Error, message+", and it protects something; "+then
			protects = true
		}
		hint := instead(u)
		if u.Protects {
			hint = strings.TrimPrefix(hint+"; if it means nothing here, remove it, or set foreignAnnotations: ignore", "; ")
		}
		found = append(found, s.report(severity, ing.Position("metadata", "annotations", u.Annotation), message, hint))
	}
	return found, protects
}

// instead says which options do the same as an annotation of another controller, or else what to do.
func instead(u migrate.Unheeded) string {
	if len(u.Instead) == 0 {
		return u.Note
	}
	hint := "use " + strings.Join(u.Instead, ", ")
	if u.ByHand {
		return hint + ", which needs something that only you can write: see docs/reference/annotations.md"
	}
	return hint + ", as compiler migrate does"
}

// foreignOfService reports the annotations of a Service by which another controller refuses requests. They close the
// routes of an Ingress to it as those of the Ingress itself do.
func (s source) foreignOfService(to service, ofIngress map[string]string) []diag.Diagnostic {
	if s.scope.ignoreForeign {
		return nil
	}
	return foreignOfService(to, ofIngress, "the routes of Ingresses to this Service answer 503")
}

// foreignOfService reports the annotations of a Service by which another controller refuses requests, unless one of the
// given options does the same. then says what happens.
func foreignOfService(to service, asked map[string]string, then string) (found []diag.Diagnostic) {
	if len(to.Value.Annotations) == 0 {
		return nil
	}
	for _, u := range migrate.FindUnheededOfService(to.Value.Annotations, asked) {
		hint := "if it means nothing here, remove it, or set foreignAnnotations: ignore"
		if advice := instead(u); advice != "" {
			hint = advice + "; " + hint
		}
		found = append(found, diag.Diagnostic{
			Severity: diag.Error, Position: to.Position("metadata", "annotations", u.Annotation), Object: to.Ref,
			Message: fmt.Sprintf("annotation %s of %s is not obeyed, and it protects something; %s", u.Annotation, u.Controller, then),
			Hint:    hint,
		})
	}
	return found
}

// patterns reports paths that another controller treats as regular expressions, and that are compared as plain texts
// here.
func (s source) patterns(expressions bool) []diag.Diagnostic {
	ing := s.ingress
	if expressions || !migrate.HasPatterns(ing.Value.Annotations) {
		return nil
	}
	var found []diag.Diagnostic
	for i, rule := range ing.Value.Spec.Rules {
		if rule.HTTP == nil {
			continue
		}
		for j, p := range rule.HTTP.Paths {
			if strings.ContainsAny(p.Path, `^$()*[]|\+?{}`) {
				found = append(found, s.report(diag.Warning, ing.Position("spec", "rules", i, "http", "paths", j, "path"),
					fmt.Sprintf("path %s is a regular expression of another controller, and is matched as it stands", printable.Quoted(p.Path)),
					"write it as a Prefix or Exact path; rewrite-path may hold an expression"))
			}
		}
	}
	return found
}

// foreignProtection returns an annotation of another controller that protects an Ingress and has no effect here. It
// returns "" if there is none.
func (s source) foreignProtection() string {
	if s.scope.ignoreForeign {
		return ""
	}
	for _, u := range migrate.FindUnheeded(s.ingress.Value.Annotations) {
		if u.Protects {
			return u.Annotation
		}
	}
	return ""
}

// usesExpressions reports whether ImplementationSpecific paths of the Ingress are regular expressions.
func (s source) usesExpressions() bool {
	class := s.class
	text, own := s.ingress.Value.Annotations[options.Prefix+options.PathType]
	if !own && class == nil {
		return false // most Ingresses do not
	}
	var values options.Values
	if own {
		values, _ = options.Read(options.OnIngress, map[string]string{options.Prefix + options.PathType: text})
	}
	if class != nil {
		values = values.Inherit(class.values)
	}
	settings, _, _ := options.Resolve(values)
	return settings.Expressions
}
