// Package gatewayapi turns Ingresses into Gateways, HTTPRoutes and ReferenceGrants that answer requests in the
// same way. It reports what differs or cannot be moved.
//
// It moves the meaning of Ingresses, not their text. [ingress.Translate] makes a model of them: it decides
// conflicts, applies the defaults of classes, and reads annotations. Then the model is written as routes. So
// the migration knows everything that the compiler serves.
//
// # Decisions
//
// If something closes a route or changes its requests, and an HTTPRoute cannot express that, the rule answers
// 500. If the rule were left out, its requests would go to a shorter path, which may not be protected. Only
// options about the choice of servers and about responses are left out of rules that are served.
package gatewayapi

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/ingress"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/migrate"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/internal/manifests"
)

// Options say what is moved, and where to.
type Options struct {
	// Gateway is the name of the new Gateway, and Class its GatewayClass.
	Gateway types.NamespacedName
	Class   string
	// HTTPPort and HTTPSPort are the ports of its listeners.
	HTTPPort, HTTPSPort int
	// IngressClass selects the Ingresses of a class. It may be "" if the manifests have only one.
	IngressClass string
	// Without are names of annotations, without prefix, that may be left out.
	Without []string
	// Config says which objects are read, and whether the ages in manifests count.
	Config config.Config
	// Ingresses configures the translation. Form is the form in which Gateways compare paths.
	Ingresses ingress.Config
	Form      routing.PathForm
}

// Result is the result for a directory of manifests.
type Result struct {
	Manifests []byte // sorted YAML
	Findings  []diag.Diagnostic
	Ingresses int // how many were moved
	Routes    int // how many were made
}

// ClassesError says that Ingresses have several classes.
type ClassesError struct{ Classes []string }

func (e *ClassesError) Error() string {
	return "the Ingresses have several classes: " + strings.Join(e.Classes, ", ")
}

// Directory moves the Ingresses of a directory of manifests and below it, or of one file.
func Directory(dir string, o Options) (Result, error) {
	rewritten, err := migrate.Directory(dir, migrate.Options{Remove: true})
	if err != nil {
		return Result{}, err
	}
	changed := map[string][]byte{}
	for _, f := range rewritten.Files {
		changed[f.Path] = f.Content
	}
	files, err := manifests.Files(dir)
	if err != nil {
		return Result{}, err
	}
	var texts []manifests.Text
	edited := map[string]bool{}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			return Result{}, fmt.Errorf("read manifests: %w", err)
		}
		if content, ok := changed[relative(dir, name)]; ok {
			data, edited[name] = content, true
		}
		texts = append(texts, manifests.Text{File: name, Data: data})
	}
	in, found, _ := inputs.Gather(manifests.ReadTexts(texts...))
	result, err := Move(in, o)
	if err != nil {
		return Result{}, err
	}
	result.Findings = slices.Concat(rewritten.Findings, found, result.Findings)
	for i, d := range result.Findings {
		if edited[d.Position.File] && !slices.Contains(rewritten.Findings, d) {
			result.Findings[i].Position.Line, result.Findings[i].Position.Column = 0, 0 // they would be positions in an intermediate text
		}
	}
	result.Findings = diag.Sort(result.Findings)
	return result, nil
}

func relative(dir, name string) string {
	path, err := filepath.Rel(dir, name)
	if err != nil || path == "." {
		return filepath.Base(name)
	}
	return path
}

// Move moves Ingresses.
func Move(in inputs.Inputs, o Options) (Result, error) {
	// Only these objects may be overwritten.
	there := map[string]map[types.NamespacedName]bool{}
	add := func(ref diag.Object) {
		if there[ref.Kind] == nil {
			there[ref.Kind] = map[types.NamespacedName]bool{}
		}
		there[ref.Kind][types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}] = true
	}
	for _, o := range in.Gateway.Gateways {
		add(o.Ref)
	}
	for _, o := range in.Gateway.Sets {
		add(o.Ref)
	}
	for _, o := range in.Gateway.HTTPRoutes {
		add(o.Ref)
	}
	for _, o := range in.Gateway.TLSRoutes {
		add(o.Ref)
	}
	for _, o := range in.Gateway.Grants {
		add(o.Ref)
	}
	in, unread := o.read(in)
	in, behind, err := o.selected(in)
	if err != nil {
		return Result{}, err
	}
	m := mover{Options: o, backends: map[string]routing.Backend{}, parts: map[string]map[string]bool{}, services: map[types.NamespacedName]inputs.Object[corev1.Service]{}, ingresses: map[diag.Object]inputs.Object[networkingv1.Ingress]{}, attached: map[string]map[string]bool{}, there: there}
	m.found = slices.Concat(unread, behind)
	in = m.drop(in)
	in.Services = slices.Concat(in.Services, m.missing(in))
	for _, s := range in.Services {
		m.services[types.NamespacedName{Namespace: s.Ref.Namespace, Name: s.Ref.Name}] = s
	}
	for _, ing := range slices.Concat(in.Ingresses, in.Broken) {
		m.ingresses[ing.Ref] = ing
	}
	cfg := o.Ingresses
	cfg.SecretsUnseen, cfg.WatchWithoutClass = true, true
	var found []diag.Diagnostic
	m.model, found = ingress.Translate(in, cfg)
	m.found = append(m.found, found...)
	m.move()
	if err := m.writesOver(); err != nil {
		return Result{}, err
	}
	out, err := m.encode()
	return Result{Manifests: out, Findings: diag.Sort(m.found), Ingresses: len(in.Ingresses), Routes: len(m.routes)}, err
}

// read returns the inputs that the compiler would read with the configuration. It reports Ingresses outside of
// them: nothing serves these now, and nothing shall serve them after the migration.
func (o Options) read(in inputs.Inputs) (inputs.Inputs, []diag.Diagnostic) {
	out := inputs.NewSelector(o.Config, in.Namespaces).Objects(in)
	if !o.Config.TrustFileAges {
		out = out.OfOneAge()
	}
	kept := map[diag.Object]bool{}
	for _, ing := range slices.Concat(out.Ingresses, out.Broken) {
		kept[ing.Ref] = true
	}
	var found []diag.Diagnostic
	for _, ing := range slices.Concat(in.Ingresses, in.Broken) {
		if !kept[ing.Ref] {
			found = append(found, diag.Diagnostic{
				Severity: diag.Warning, Object: ing.Ref, Position: ing.Position("metadata", "namespace"),
				Message: "it is not moved, since the configuration reads nothing from its namespace", Hint: "see namespaces and namespaceSelector of the configuration; the manifests have to hold the Namespaces if it selects them by label",
			})
		}
	}
	return out, found
}

// selected returns the inputs with the Ingresses of one class only, in the form in which the translation takes
// them for its own. It reports Ingresses without a class that are left out.
func (o Options) selected(in inputs.Inputs) (inputs.Inputs, []diag.Diagnostic, error) {
	unnamed := o.classOfUnnamed(in.Classes)
	classOf := func(ing inputs.Object[networkingv1.Ingress]) string {
		if class := ing.Value.Annotations[classAnnotation]; class != "" {
			return class
		}
		if name := ing.Value.Spec.IngressClassName; name != nil {
			return *name
		}
		return unnamed
	}
	wanted := o.IngressClass
	if wanted == "" {
		seen := map[string]bool{}
		for _, ing := range slices.Concat(in.Ingresses, in.Broken) {
			seen[classOf(ing)] = true
		}
		var classes []string
		for class := range seen {
			classes = append(classes, cmp.Or(class, "none"))
		}
		slices.Sort(classes)
		if len(classes) > 1 {
			return in, nil, &ClassesError{classes}
		}
	}
	classes := map[string]bool{}
	for _, class := range in.Classes {
		classes[class.Ref.Name] = true
	}
	var undefined []string
	var behind []diag.Diagnostic
	take := func(all []inputs.Object[networkingv1.Ingress]) (out []inputs.Object[networkingv1.Ingress]) {
		for _, ing := range all {
			class := classOf(ing)
			if wanted != "" && class != wanted {
				if ing.Value.Annotations[classAnnotation] == "" && ing.Value.Spec.IngressClassName == nil {
					behind = append(behind, diag.Diagnostic{
						Severity: diag.Warning, Object: ing.Ref, Position: ing.Position("spec"),
						Message: "it names no class, and is not moved: " + wanted + " is not the class of such Ingresses", Hint: "set ingressClassName, or give the manifest of the IngressClass that is the default",
					})
				}
				continue
			}
			ing.Value = ing.Value.DeepCopy()
			delete(ing.Value.Annotations, classAnnotation)
			if class != "" {
				ing.Value.Spec.IngressClassName = &class
			}
			if class != "" && !classes[class] {
				classes[class], undefined = true, append(undefined, class)
			}
			out = append(out, ing)
		}
		return out
	}
	in.Ingresses, in.Broken = take(in.Ingresses), take(in.Broken)
	in.Classes = slices.Clone(in.Classes)
	for _, class := range undefined {
		value := &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: class}}
		in.Classes = append(in.Classes, inputs.Object[networkingv1.IngressClass]{Ref: diag.Object{Kind: "IngressClass", Name: class}, Value: value})
	}
	for i, class := range in.Classes { // of any controller
		value := class.Value.DeepCopy()
		value.Spec.Controller = cmp.Or(o.Ingresses.ControllerClass, ingress.DefaultControllerClass)
		in.Classes[i].Value = value
	}
	return in, behind, nil
}

// classOfUnnamed returns the class of Ingresses without one: the default class, or that of the configuration if
// it includes them, or "". If there are several defaults it is the newest, as for the API server.
func (o Options) classOfUnnamed(classes []inputs.Object[networkingv1.IngressClass]) string {
	controller := ""
	for _, class := range classes {
		if class.Ref.Name == o.IngressClass {
			controller = class.Value.Spec.Controller
		}
	}
	var newest *inputs.Object[networkingv1.IngressClass]
	for i, class := range classes {
		if class.Value.Annotations[networkingv1.AnnotationIsDefaultIngressClass] != "true" || controller != "" && class.Value.Spec.Controller != controller {
			continue
		}
		if newest == nil || cmp.Or(newest.Value.CreationTimestamp.Compare(class.Value.CreationTimestamp.Time), class.Ref.Compare(newest.Ref)) < 0 {
			newest = &classes[i]
		}
	}
	switch {
	case newest != nil:
		return newest.Ref.Name
	case o.Ingresses.WatchWithoutClass:
		return o.Ingresses.IngressClass
	}
	return ""
}

// ExistsError says that the manifests already have an object that would be written.
type ExistsError struct{ Objects []string }

func (e *ExistsError) Error() string {
	return "the manifests have what would be written: " + strings.Join(e.Objects, ", ")
}

// outcome is what happens to an annotation of ours.
type outcome string

const (
	becomes outcome = "moved"
	differs outcome = "differs"
	lost    outcome = "left out"
	closed  outcome = "closed"
	ofOther outcome = "with the other"
	stays   outcome = "stays"
)

// outcomes say what happens to each option, and how.
var outcomes = map[string]struct {
	outcome
	note string
}{
	"ssl-redirect":     {becomes, "A route of its own on the listeners for HTTP, with RequestRedirect."},
	"redirect":         {differs, "RequestRedirect. A location with a path gets the query of the request, and a scheme and a host where it has none. One with a query or a fragment closes the route."},
	"app-root":         {differs, "A rule for exactly `/`, as with `redirect`."},
	"fallback-service": {lost, "While the Service has no endpoint, the answer is 503."},
	"rewrite-path":     {becomes, "URLRewrite, for a path. An expression, or a group of one, closes the route."},
	"rewrite-host":     {becomes, "URLRewrite. A host with a port closes the route."},
	"server-alias":     {becomes, "More hostnames."}, "redirect-www": {becomes, "A route for the other name, with RequestRedirect."},
	"share-host":      {ofOther, "Whoever may attach routes to the Gateway may have a host: see `allowedRoutes` of its listeners."},
	"ssl-passthrough": {becomes, "A listener for TLS and a TLSRoute. With an option that protects, its connections are closed."},
	"path-type-default": {differs, "`Exact`, `PathPrefix` or `RegularExpression`. An expression that a prefix comes before is left out, or closes the host if it is protected. " +
		"Expressions of several Ingresses of a host are tried in the order of their routes."},
	"normalize-paths": {lost, "The configuration says it for routes. Where something is protected, the routes of the host are closed."}, "unsafe-paths": {ofOther, "With what protects. See below."}, "path-parameters": {lost, "As `normalize-paths`."},
	"canary": {differs, "Rules of the route. While the canary has no endpoint, it answers 503."}, "canary-weight": {becomes, "Weights of backendRefs."}, "canary-by-header": {becomes, "Header matches."},
	"canary-by-header-pattern": {becomes, "A header match with an expression."}, "canary-by-cookie": {differs, "An expression for the header Cookie, of at most 1023 bytes."},
	"timeout-server":  {becomes, "`timeouts.backendRequest`."},
	"request-headers": {becomes, "RequestHeaderModifier. `copy`, or two changes of one header, close the route."}, "response-headers": {becomes, "ResponseHeaderModifier, as with `request-headers`."},
	"forwarded-for": {closed, "The configuration says it for routes."}, "hsts": {becomes, "ResponseHeaderModifier, of the route for HTTPS."},
	"rewrite-cookie-path": {lost, ""}, "rewrite-cookie-domain": {lost, ""}, "intercept-errors": {lost, ""},
	"cors-allow-origin": {differs, "The filter CORS. Origins with `*.` are left out, since it stands for more there; preflight requests of other origins are answered 204."}, "cors-allow-origin-pattern": {lost, "These origins are no longer allowed."},
	"cors-allow-methods": {becomes, ""}, "cors-allow-headers": {becomes, ""}, "cors-expose-headers": {becomes, ""}, "cors-allow-credentials": {becomes, ""}, "cors-max-age": {becomes, ""},
	"affinity": {lost, ""}, "backend-protocol": {closed, "Set it on the Service, or `appProtocol` on its port."}, "send-proxy-protocol": {closed, "Set it on the Service."}, "snippet": {closed, ""},
}

// outcomeOf returns what happens to an option.
func outcomeOf(o options.Option) (outcome, string) {
	known, has := outcomes[o.Name]
	switch {
	case o.On == options.OnService:
		return stays, "It is on the Service, for which hapsnap opens a port."
	case has:
		return known.outcome, known.note
	case o.Needs != "":
		return ofOther, "With `" + o.Needs + "`."
	case o.Closes:
		return closed, ""
	}
	return lost, "Set it on the Service, for all routes to it."
}

// Document returns a page about what happens to each annotation.
func Document() string {
	var b strings.Builder
	b.WriteString(`# Annotations of Ingresses as routes of the Gateway API

<!-- Generated from the code of compiler/migrate/gatewayapi. The target generate of the Makefile writes it anew. -->

[From Ingress to Gateway API](../start/from-ingress-to-gateway-api.md) walks through a migration. This page says
what ` + "`compiler migrate --to gateway`" + ` does with each annotation of ours. Those of other controllers
[become ours](migration.md) first.

- *moved*: the route does the same.
- *differs*: it does, apart from what the note says.
- *left out*: the route is served without it. The report says so for each object, and the exit code is 3.
- *closed*: the rule has no backend, and answers 500. The report says so, and the exit code is 3. ` + "`--without NAME`" + ` says
  that the routes may do without the annotation.
- *with the other*: it goes where the option goes that it belongs to.
- *stays*: nothing becomes of it, since it is not about Ingresses.

| annotation | as a route | note |
|---|---|---|
`)
	for _, o := range options.All() {
		outcome, note := outcomeOf(o)
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", o.Name, outcome, note)
	}
	b.WriteString(`
## What else differs

| Ingress | route |
|---|---|
` + "| a wildcard stands for one label | for one label or more: more hosts are served |" + `
| 503 for a Service that does not exist | 500 |
| hosts without a certificate are served over HTTPS with the default one | not over HTTPS, unless the configuration has a default certificate |
| a request by a connection for another host is served, if both are ours | 421: the client makes a connection of its own |
| a path may have 8192 bytes | 1024 |
| expressions for paths look at all of a path | at no path of more than 1023 bytes: where a shorter path is open, a protected expression closes all of its host |
| a namespace has 512 expressions for paths, and 64 expressions and names of headers and cookies for canaries | 64 expressions and names of headers for both: one expression more closes its host, and a canary more is left out |
| of two expressions the one that comes first has the request | one with a canary by header comes before one without: where this is another one, the canary is left out |
| paths that servers read in different ways are answered 400 where something is protected | all routes of the namespace on the host are closed whose Service may have the same Pods as one that is protected: unless the selectors of both say otherwise, or ` + "`unsafe-paths: pass`" + ` is set where it is protected |
| of two rules for the same the older Ingress has it | of the same, since only its rule becomes a route |
`)
	return b.String()
}
