// Package gatewayapi turns Ingresses into Gateways, HTTPRoutes and ReferenceGrants that answer the same
// requests alike, and says what differs or cannot be moved.
//
// It moves what Ingresses mean, not what they say: [ingress.Translate] makes a model of them, with the
// conflicts decided, the defaults of classes applied and the annotations read, and the model is written
// as routes. So there is nothing that the compiler serves and the migration does not know.
//
// # Decisions
//
// What closes a route and cannot be said of one has the rule answer 500: a rule that is left out would
// leave its requests to a shorter path, which does not protect them. The same holds for what changes
// requests on their way to servers. Only what says how servers are chosen, or what becomes of answers, is
// left out of rules that are served.
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
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/internal/manifests"
)

// Options say what is moved, and to where.
type Options struct {
	// Gateway is the name of the one that is made, and Class that of its GatewayClass.
	Gateway types.NamespacedName
	Class   string
	// HTTPPort and HTTPSPort are those of its listeners.
	HTTPPort, HTTPSPort int
	// IngressClass selects the Ingresses of a class; "" is for manifests that have only one.
	IngressClass string
	// Without are names of annotations, without prefix, that the routes can do without.
	Without []string
	// Config says which objects are read, and whether the ages in manifests count.
	Config config.Config
	// Ingresses is what the configuration says of the translation, and Form that in which Gateways
	// compare paths.
	Ingresses ingress.Config
	Form      routing.PathForm
}

// Result is what a directory of manifests becomes.
type Result struct {
	Manifests []byte // YAML, sorted
	Findings  []diag.Diagnostic
	Ingresses int // that were moved
	Routes    int // that were made
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
			result.Findings[i].Position.Line, result.Findings[i].Position.Column = 0, 0 // of a text that nobody has
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
	there := objectsOf(in.Gateway)
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

// read returns the inputs that the compiler reads under the configuration, and says which Ingresses it does not
// read: they are served by nobody, and are not to be from now on.
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

// selected returns the inputs with the Ingresses of one class, as those of the class that the
// translation takes for its own, and says which Ingresses without a class are left behind.
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
	for i, class := range in.Classes { // of whichever controller: its Ingresses are moved
		value := class.Value.DeepCopy()
		value.Spec.Controller = cmp.Or(o.Ingresses.ControllerClass, ingress.DefaultControllerClass)
		in.Classes[i].Value = value
	}
	return in, behind, nil
}

// classOfUnnamed returns the class of Ingresses that name none: the default one, or that of the configuration if it
// takes them, or "". Of several defaults it is the newest, as the API server has it.
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

// ExistsError says that an object that would be written is among the manifests.
type ExistsError struct{ Objects []string }

func (e *ExistsError) Error() string {
	return "the manifests have what would be written: " + strings.Join(e.Objects, ", ")
}
