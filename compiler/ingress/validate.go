package ingress

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/routing/hostname"
	"github.com/hapsnap/hapsnap/compiler/routing/ownership"
	"github.com/hapsnap/hapsnap/internal/printable"
	"github.com/hapsnap/hapsnap/snapshots"
)

// validate returns the rules that an Ingress breaks: those of the API, and ours for texts
// that get into a map. An API server checks its own rules before anybody sees the object,
// but manifests are checked only here. If the API accepts a path that we cannot match, only
// that path is left out. Such paths are returned separately, by their place in the rules.
func validate(ing ingress, expressions bool) ([]diag.Diagnostic, map[pathAt]diag.Diagnostic) {
	look := validator{ing: ing, expressions: expressions, only: true}
	if look.all(); len(look.found) == 0 && len(look.unusable) == 0 {
		return nil, nil // most Ingresses break none
	}
	v := validator{ing: ing, expressions: expressions}
	v.all()
	return v.found, v.unusable
}

// all checks the whole Ingress.
func (v *validator) all() {
	spec := v.ing.Value.Spec
	if len(spec.Rules) == 0 && spec.DefaultBackend == nil {
		v.add("neither rules nor defaultBackend are given", "give one of the two", "spec")
	}
	if spec.DefaultBackend != nil {
		v.backend(*spec.DefaultBackend, "spec", "defaultBackend")
	}
	for i, rule := range spec.Rules {
		v.rule(i, rule)
	}
	for i, entry := range spec.TLS {
		v.tlsEntry(entry, v.sub(nil, "spec", "tls", i)...)
	}
}

// pathAt is the place of a path: the number of the rule, and that of the path in it, from
// 0.
type pathAt struct{ rule, path int }

type validator struct {
	ing ingress
	// expressions says that ImplementationSpecific paths are regular expressions.
	expressions bool
	// only says that positions do not matter, but only whether there is any finding. Making
	// the position of every field takes longer than checking the fields.
	only bool

	found    []diag.Diagnostic
	unusable map[pathAt]diag.Diagnostic
}

// add reports the field at a path.
func (v *validator) add(message, hint string, path ...any) {
	v.found = append(v.found, diag.Diagnostic{
		Severity: diag.Error, Position: v.ing.Position(path...), Object: v.ing.Ref, Message: message, Hint: hint,
	})
}

func (v *validator) rule(i int, rule networkingv1.IngressRule) {
	path := v.sub(nil, "spec", "rules", i)
	if rule.Host != "" {
		v.host(rule.Host, v.sub(path, "host")...)
	}
	if rule.HTTP == nil {
		return
	}
	paths := v.sub(path, "http", "paths")
	if len(rule.HTTP.Paths) == 0 {
		v.add("http has no paths", "give at least one path, or leave http out", paths...)
	}
	for j, p := range rule.HTTP.Paths {
		v.path(p, v.sub(paths, j)...)
		if message, hint := v.checkUsable(p); message != "" {
			if v.unusable == nil {
				v.unusable = map[pathAt]diag.Diagnostic{}
			}
			v.unusable[pathAt{i, j}] = diag.Diagnostic{
				Severity: diag.Error, Position: v.ing.Position(v.sub(paths, j, "path")...), Object: v.ing.Ref,
				Message: fmt.Sprintf("path %s %s", printable.Quoted(p.Path), message), Hint: hint,
			}
		}
	}
}

// checkUsable says why a path cannot be matched.
func (v *validator) checkUsable(p networkingv1.HTTPIngressPath) (message, hint string) {
	if v.expressions && p.PathType != nil && *p.PathType == networkingv1.PathTypeImplementationSpecific {
		return routing.CheckExpression(p.Path)
	}
	return routing.CheckUsable(p.Path)
}

func (v *validator) path(p networkingv1.HTTPIngressPath, path ...any) {
	switch {
	case p.PathType == nil:
		v.add("pathType is missing", "use Exact, Prefix or ImplementationSpecific", path...)
	case !slices.Contains([]networkingv1.PathType{
		networkingv1.PathTypeExact, networkingv1.PathTypePrefix, networkingv1.PathTypeImplementationSpecific,
	}, *p.PathType):
		v.add(fmt.Sprintf("pathType %s is unknown", printable.Quoted(string(*p.PathType))), "use Exact, Prefix or ImplementationSpecific", v.sub(path, "pathType")...)
	default:
		if message, hint := checkPath(p.Path, *p.PathType); message != "" {
			v.add(fmt.Sprintf("path %s %s", printable.Quoted(p.Path), message), hint, v.sub(path, "path")...)
		}
	}
	v.backend(p.Backend, v.sub(path, "backend")...)
}

func (v *validator) backend(b networkingv1.IngressBackend, path ...any) {
	switch {
	case b.Service != nil && b.Resource != nil:
		v.add("backend names both a service and a resource", "remove one of the two", path...)
	case b.Service != nil:
		v.service(*b.Service, v.sub(path, "service")...)
	case b.Resource == nil:
		v.add("backend names no service", "give service.name and service.port", path...)
	}
}

func (v *validator) service(s networkingv1.IngressServiceBackend, path ...any) {
	if s.Name == "" {
		v.add("backend names no service", "give service.name and service.port", path...)
	} else if problems := hostname.LabelProblems(s.Name); len(problems) > 0 {
		v.add(fmt.Sprintf("service name %s %s", printable.Quoted(s.Name), hostname.NotValid(problems)), "", v.sub(path, "name")...)
	}
	port := v.sub(path, "port")
	switch {
	case s.Port.Name != "" && s.Port.Number != 0:
		v.add("port has both a name and a number", "remove one of the two", port...)
	case s.Port.Name != "":
		if problems := validation.IsValidPortName(s.Port.Name); len(problems) > 0 {
			v.add(fmt.Sprintf("port name %s %s", printable.Quoted(s.Port.Name), hostname.NotValid(problems)), "for a number, write port.number", v.sub(port, "name")...)
		}
	case s.Port.Number == 0:
		v.add("port has neither a name nor a number", "give one of the two, from 1 to 65535", port...)
	case len(validation.IsValidPortNum(int(s.Port.Number))) > 0:
		v.add(fmt.Sprintf("port number %d is out of range", s.Port.Number), "use 1 to 65535", v.sub(port, "number")...)
	}
}

func (v *validator) tlsEntry(entry networkingv1.IngressTLS, path ...any) {
	for i, host := range entry.Hosts {
		v.host(host, v.sub(path, "hosts", i)...)
	}
	if entry.SecretName == "" {
		return
	}
	if problems := hostname.SubdomainProblems(entry.SecretName); len(problems) > 0 {
		v.add(fmt.Sprintf("secretName %s %s", printable.Quoted(entry.SecretName), hostname.NotValid(problems)), "", v.sub(path, "secretName")...)
	}
}

func (v *validator) host(host string, path ...any) {
	if message, hint := hostname.Check(hostname.Normal(host)); message != "" {
		v.add(fmt.Sprintf("host %s %s", printable.Quoted(host), message), hint, path...)
	}
}

// sub returns the path of a field below another path, unless positions do not matter.
func (v *validator) sub(path []any, steps ...any) []any {
	if v.only {
		return nil
	}
	return sub(path, steps...)
}

// sub returns the path of a field below another path.
func sub(path []any, steps ...any) []any { return append(slices.Clone(path), steps...) }

// checkPath says which rule of the API a path breaks.
func checkPath(path string, pathType networkingv1.PathType) (message, hint string) {
	specific := pathType == networkingv1.PathTypeImplementationSpecific
	switch {
	case path == "" && specific:
		return "", ""
	case !strings.HasPrefix(path, "/"):
		return "does not start with a slash", "write it as /path"
	case specific:
		return "", ""
	}
	const why = "use pathType ImplementationSpecific if it is meant"
	for _, s := range []string{"//", "/./", "/../", "%2f", "%2F"} {
		if strings.Contains(path, s) {
			return "holds " + s, why
		}
	}
	for _, s := range []string{"/..", "/."} {
		if strings.HasSuffix(path, s) {
			return "ends with " + s, why
		}
	}
	return "", ""
}

// Mistakes returns the errors of an Ingress that do not depend on other objects, sorted:
// fields that break a rule of the API, paths that cannot be matched, values of options, and
// protection that only another controller would provide. It takes next to no time. An
// Ingress without such errors may still be wrong together with other objects, or for
// HAProxy.
func Mistakes(ing inputs.Object[networkingv1.Ingress], cfg Config) []diag.Diagnostic {
	scope := scopeOf(cfg.withDefaults())
	s := source{ingress: ing, scope: &scope, service: func(types.NamespacedName) (service, bool) { return service{}, false }}
	found, unusable := validate(ing, s.usesExpressions())
	if _, own := ing.Value.Annotations[options.Prefix+options.PathType]; !own {
		// The class of the Ingress may say that paths are expressions.
		_, asExpressions := validate(ing, true)
		maps.DeleteFunc(unusable, func(at pathAt, _ diag.Diagnostic) bool { _, wrong := asExpressions[at]; return !wrong })
	}
	found = slices.Concat(found, slices.Collect(maps.Values(unusable)))
	_, problems := options.Read(options.OnIngress, ing.Value.Annotations)
	found = append(found, options.Diagnostics(ing.Ref, ing.Position, problems)...)
	c := newClaims(ing)
	s.addForeign(c)
	found = append(found, c.foreign...)
	return diag.Sort(slices.DeleteFunc(found, func(d diag.Diagnostic) bool { return d.Severity != diag.Error }))
}

// findings collects findings about objects.
type findings struct{ all []diag.Diagnostic }

func (f *findings) add(found ...diag.Diagnostic) { f.all = append(f.all, found...) }

// report adds a finding about an object.
func (f *findings) report(severity diag.Severity, by ownership.Claimant, at diag.Position, message, hint string) {
	f.add(diag.Diagnostic{Severity: severity, Position: at, Object: by.Ref, Message: message, Hint: hint})
}

// reportLost adds a finding about an object that claims what the winner has. Both may be
// the same object.
func (f *findings) reportLost(severity diag.Severity, by, winner ownership.Claimant, at diag.Position, message, hint string) {
	f.add(diag.Diagnostic{Severity: severity, Position: at, Object: by.Ref, Message: message, Hint: hint, Conflict: winner.Ref != by.Ref})
}

// ofHost names the host of a rule in a message.
func ofHost(host string) string {
	if host == "" {
		return " of all hosts"
	}
	return " of host " + host
}

// winnerAt returns the position of an older claim, if it is known.
func winnerAt(o routing.Origin) string {
	if at := o.Position.String(); at != "" {
		return "; the other is at " + at
	}
	return ""
}

// mostFindings is how many findings about one object are reported. Each becomes an Event
// and a line of the log. Thousands of them for one object would hide those of other
// objects.
const mostFindings = 100

// bounded sorts findings, and leaves out those of an object beyond the limit. The last one
// says how many more there are.
func bounded(found []diag.Diagnostic) []diag.Diagnostic {
	found = diag.Sort(found)
	count := map[diag.Object]int{}
	for _, d := range found {
		count[d.Object]++
	}
	seen := map[diag.Object]int{}
	more := map[diag.Object]int{} // the index in out
	out := found[:0:0]
	for _, d := range found {
		switch seen[d.Object]++; {
		case d.Object == diag.Object{} || count[d.Object] <= mostFindings || seen[d.Object] < mostFindings:
			out = append(out, d)
		case seen[d.Object] == mostFindings:
			more[d.Object] = len(out)
			d.Message = fmt.Sprintf("there are %d more findings on this object like these, which are not listed", count[d.Object]-mostFindings+1)
			d.Hint = "correct those that are"
			out = append(out, d)
		default:
			last := &out[more[d.Object]]
			last.Severity, last.Conflict = max(last.Severity, d.Severity), last.Conflict && d.Conflict
		}
	}
	return out
}

// stickyCookie identifies a cookie of a host, as browsers do.
type stickyCookie struct{ name, path string }

// stickyClaim is a route whose sessions stay with the servers of a Service.
type stickyClaim struct {
	claim
	cookie  stickyCookie
	service snapshots.ServicePort
}

// reportSharedCookies reports routes of a host that use the same cookie for different
// Services. Each Service then overwrites the cookie of the other.
func (f *findings) reportSharedCookies(hosts map[string]*virtualHost, backends map[string]*routing.Backend) {
	for _, host := range slices.Sorted(maps.Keys(hosts)) {
		owners := map[stickyCookie]stickyClaim{}
		reported := map[diag.Object]bool{}
		var sticky []stickyClaim // the routes of the oldest Ingress first
		for _, c := range hosts[host].routes {
			b := backends[c.backend]
			if b == nil || b.Upstream == nil || b.Upstream.Affinity == nil || len(b.Targets) == 0 {
				continue
			}
			a := b.Upstream.Affinity
			sticky = append(sticky, stickyClaim{c, stickyCookie{a.Cookie, cmp.Or(a.Path, "/")}, b.Targets[0].Service})
		}
		slices.SortFunc(sticky, func(a, b stickyClaim) int {
			return cmp.Or(a.by.Compare(b.by.Claimant), cmp.Compare(a.service.String(), b.service.String()), a.origin.Compare(b.origin))
		})
		for _, c := range sticky {
			owner, taken := owners[c.cookie]
			switch {
			case !taken:
				owners[c.cookie] = c
			case owner.service != c.service && !reported[c.by.Ref]:
				reported[c.by.Ref] = true
				f.report(diag.Warning, c.by.Claimant, c.origin.Position, fmt.Sprintf("the cookie %s of Service %s%s is that of Service %s too, by %s: each takes the other's sessions away",
					c.cookie.name, c.service.Service, ofHost(host), owner.service.Service, owner.by.Ref),
					"set "+options.Prefix+"affinity-cookie-name or affinity-cookie-path")
			}
		}
	}
}
