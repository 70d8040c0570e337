package ingress

import (
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
	"github.com/hapsnap/hapsnap/internal/printable"
)

// validate returns the rules of the API that an Ingress breaks, and ours on
// what may reach a map. An API server holds to its own before anybody sees the
// object; manifests are checked here. Paths that the API takes and we cannot match are
// apart: they alone are left out, by their place in the rules.
func validate(ing ingress, expressions bool) ([]diag.Diagnostic, map[pathAt]diag.Diagnostic) {
	look := validator{ing: ing, expressions: expressions, only: true}
	if look.all(); len(look.found) == 0 && len(look.unusable) == 0 {
		return nil, nil // as most
	}
	v := validator{ing: ing, expressions: expressions}
	v.all()
	return v.found, v.unusable
}

// all judges the whole Ingress.
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

// pathAt is the place of a path: of which rule, and which of its paths, from 0.
type pathAt struct{ rule, path int }

type validator struct {
	ing ingress
	// expressions says that paths which are ImplementationSpecific are expressions.
	expressions bool
	// only says that it is only of interest whether anything is found, and not where: to
	// name the place of every field takes longer than to judge it.
	only bool

	found    []diag.Diagnostic
	unusable map[pathAt]diag.Diagnostic
}

// add reports the field at path.
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

// sub returns the path of a field below a path, unless that is of no interest.
func (v *validator) sub(path []any, steps ...any) []any {
	if v.only {
		return nil
	}
	return sub(path, steps...)
}

// sub returns the path of a field below a path.
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
	return checkSequences(path)
}

// checkSequences holds to what the API allows in Exact and Prefix paths, which
// proxies and applications understand differently.
func checkSequences(path string) (message, hint string) {
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

// Mistakes returns the errors of an Ingress that are there whatever else there is, sorted:
// fields that break a rule of the API, paths that cannot be matched, values of options, and
// what another controller would have protected. It costs next to nothing. An Ingress without
// any may still be at fault beside others, or for HAProxy.
func Mistakes(ing inputs.Object[networkingv1.Ingress], cfg Config) []diag.Diagnostic {
	scope := scopeOf(cfg.withDefaults())
	s := source{ingress: ing, scope: &scope, service: func(types.NamespacedName) (service, bool) { return service{}, false }}
	found, unusable := validate(ing, s.usesExpressions())
	if _, own := ing.Value.Annotations[options.Prefix+options.PathType]; !own {
		// Its class may say that paths are expressions.
		_, asExpressions := validate(ing, true)
		maps.DeleteFunc(unusable, func(at pathAt, _ diag.Diagnostic) bool { _, wrong := asExpressions[at]; return !wrong })
	}
	found = slices.Concat(found, slices.Collect(maps.Values(unusable)))
	_, problems := options.Read(options.OnIngress, ing.Value.Annotations)
	found = append(found, problemsOf(ing.Ref, ing.Position, problems)...)
	var c claims
	s.addForeign(&c)
	found = append(found, c.foreign...)
	return diag.Sort(slices.DeleteFunc(found, func(d diag.Diagnostic) bool { return d.Severity != diag.Error }))
}
