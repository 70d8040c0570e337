package compiler

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler/access"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/ingress"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/routing/hostname"
	"github.com/hapsnap/hapsnap/internal/process"
)

// world is everything that exists beside the reviewed object. It holds no Secrets.
type world struct {
	source    Source
	objects   inputs.Inputs
	templates *render.Set
	version   string // of HAProxy
	// countryFiles are the files with the list of countries.
	countryFiles []access.CountryFile
	// overlaid says that there are templates of an administrator. In those, anything may refer to anything.
	overlaid bool
	// known are the ConfigMaps for which it is known whether they exist. If it is nil, that is known for all.
	known map[types.NamespacedName]bool
	// found are the errors that already exist.
	found map[diag.Diagnostic]bool
	scope *scope // nil if everything is translated for each review
}

// world reads the objects. The error wraps [inputs.ErrIncomplete] while not all are known.
func (j *Judge) world(ctx context.Context, newest compiled) (*world, error) {
	w := &world{source: newest.source, version: j.check.Version}
	objects := w.source.Objects
	if shared, ok := objects.(*sharedObjects); ok {
		objects = shared.Objects
		if _, whole := objects.(*Directory); !whole {
			w.known = shared.known()
		}
	}
	g, err := objects.Read(ctx, w.source.Config)
	if err != nil {
		return nil, err
	}
	w.objects = inputs.NewSelector(w.source.Config, g.Objects.Namespaces).Objects(g.Objects)
	w.objects.Secrets = nil
	w.countryFiles = readCountryFiles(w.source.Config.Countries.Files)
	var files render.Templates
	if files, w.overlaid, err = w.source.templates(); err != nil {
		return nil, err
	}
	w.templates, err = j.sets.parse(files)
	return w, err
}

// input returns the input for compiling objects.
func (w *world) input(objects inputs.Inputs) Input {
	return Input{
		Objects: objects, Config: w.source.Config, Templates: w.templates, SecretsUnseen: true,
		Now: time.Now(), Trigger: "review", CompilerVersion: process.Version(), HAProxyVersion: w.version,
		CountryFiles: w.countryFiles, Crashes: w.source.crashes.copy(),
	}
}

// with returns the objects with a reviewed Ingress in place of the one with the same name. It returns false if the
// namespace of the Ingress is not read.
func (w *world) with(ing inputs.Object[networkingv1.Ingress]) (inputs.Inputs, bool) {
	read := inputs.NewSelector(w.source.Config, w.objects.Namespaces).Objects(inputs.Inputs{Ingresses: []inputs.Object[networkingv1.Ingress]{ing}})
	return replaced(w.objects, ing, read.Ingresses), len(read.Ingresses) > 0
}

// replaced returns objects in which other Ingresses replace the one with the name of ing.
func replaced(in inputs.Inputs, ing inputs.Object[networkingv1.Ingress], by []inputs.Object[networkingv1.Ingress]) inputs.Inputs {
	other := func(o inputs.Object[networkingv1.Ingress]) bool { return o.Ref == ing.Ref }
	in.Ingresses = append(slices.DeleteFunc(slices.Clone(in.Ingresses), other), by...)
	in.Broken = slices.DeleteFunc(slices.Clone(in.Broken), other)
	return in
}

// unknown returns those ConfigMaps for which it is not known whether they exist.
func (w *world) unknown(named []types.NamespacedName) []types.NamespacedName {
	if w.known == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(named), func(name types.NamespacedName) bool { return w.known[name] })
}

// ofNamespace leaves out the Ingresses of other namespaces.
func ofNamespace(in inputs.Inputs, namespace string) inputs.Inputs {
	other := func(o inputs.Object[networkingv1.Ingress]) bool { return o.Ref.Namespace != namespace }
	in.Ingresses = slices.DeleteFunc(slices.Clone(in.Ingresses), other)
	in.Broken = slices.DeleteFunc(slices.Clone(in.Broken), other)
	return in
}

// templateSets parses templates, and remembers the last ones.
type templateSets struct {
	mu    sync.Mutex
	files render.Templates
	set   *render.Set
}

func (s *templateSets) parse(files render.Templates) (*render.Set, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.set != nil && reflect.DeepEqual(s.files, files) {
		return s.set, nil
	}
	set, wrong := render.Parse(files)
	if len(wrong) > 0 {
		return nil, fmt.Errorf("%w: %s", ErrTemplates, wrong[0].Message)
	}
	s.files, s.set = files, set
	return set, nil
}

// passedMemo remembers by its content what HAProxy accepted. So a repeated review takes no run of HAProxy.
type passedMemo struct {
	mu         sync.Mutex
	young, old map[[sha256.Size]byte]bool
}

// mostPassed is how many entries a generation of a passedMemo has.
const mostPassed = 4096

func (p *passedMemo) has(key [sha256.Size]byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.young[key] || p.old[key]
}

func (p *passedMemo) add(key [sha256.Size]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.young == nil || len(p.young) >= mostPassed {
		p.young, p.old = map[[sha256.Size]byte]bool{}, p.young
	}
	p.young[key] = true
}

// translated is a reviewed Ingress after it was translated together with the others.
type translated struct {
	review *reviewOf
	in     inputs.Inputs            // the objects, including the reviewed one
	part   routing.Model            // what the Ingress adds
	before map[diag.Diagnostic]bool // the errors without the review
	found  []diag.Diagnostic
}

// Most Ingresses do not affect each other. The findings about a reviewed Ingress, and its part of the configuration,
// only depend on three kinds of namespaces: its own, those that share a host with it, and those that have routes
// without a host. The judge translates only these, unless the result may depend on more. TestScopedReviews compares the
// results with those of translating everything.

// scope finds the namespaces that matter for a review.
type scope struct {
	byHost, below map[string][]string // namespaces that have a host, and that have one below a wildcard
	always        []string            // namespaces with routes, or a backend, for hosts of others
	ingresses     map[string][]inputs.Object[networkingv1.Ingress]
	broken        map[string][]inputs.Object[networkingv1.Ingress]
}

func newScope(in inputs.Inputs) *scope {
	s := &scope{
		byHost: map[string][]string{}, below: map[string][]string{},
		ingresses: map[string][]inputs.Object[networkingv1.Ingress]{}, broken: map[string][]inputs.Object[networkingv1.Ingress]{},
	}
	for _, ing := range in.Ingresses {
		s.ingresses[ing.Ref.Namespace] = append(s.ingresses[ing.Ref.Namespace], ing)
		s.take(ing)
	}
	for _, ing := range in.Broken {
		s.broken[ing.Ref.Namespace] = append(s.broken[ing.Ref.Namespace], ing)
		s.take(ing)
	}
	return s
}

func (s *scope) take(ing inputs.Object[networkingv1.Ingress]) {
	namespace := ing.Ref.Namespace
	add := func(list []string) []string {
		if slices.Contains(list, namespace) {
			return list
		}
		return append(list, namespace)
	}
	if ing.Value.Spec.DefaultBackend != nil {
		s.always = add(s.always)
	}
	for _, host := range ingress.HostNames(ing) {
		if host == "" {
			s.always = add(s.always)
			continue
		}
		s.byHost[host] = add(s.byHost[host])
		s.below[hostname.WildcardOf(host)] = add(s.below[hostname.WildcardOf(host)])
	}
}

// namespaces returns the namespaces that matter for a reviewed Ingress.
func (s *scope) namespaces(ing inputs.Object[networkingv1.Ingress]) map[string]bool {
	out := map[string]bool{ing.Ref.Namespace: true}
	add := func(lists ...[]string) {
		for _, namespace := range slices.Concat(lists...) {
			out[namespace] = true
		}
	}
	add(s.always)
	hosts := ingress.HostNames(ing)
	for _, own := range slices.Concat(s.ingresses[ing.Ref.Namespace], s.broken[ing.Ref.Namespace]) {
		hosts = append(hosts, ingress.HostNames(own)...) // the Ingress may reach a limit of its namespace
	}
	for _, host := range hosts {
		add(s.byHost[host], s.byHost[hostname.WildcardOf(host)])
		if hostname.IsWildcard(host) {
			add(s.below[host])
		}
	}
	return out
}

// scoped returns the objects that matter for a reviewed Ingress. It also reports whether these are fewer than all.
func (w *world) scoped(ing inputs.Object[networkingv1.Ingress]) (inputs.Inputs, bool) {
	if w.overlaid || w.scope == nil || refersFreely(ing) {
		return w.objects, false
	}
	for _, class := range w.objects.Classes {
		if class.Value.Spec.Parameters != nil {
			return w.objects, false
		}
	}
	namespaces := w.scope.namespaces(ing)
	out := w.objects
	out.Ingresses, out.Broken = nil, nil
	for namespace := range namespaces {
		out.Ingresses = append(out.Ingresses, w.scope.ingresses[namespace]...)
		out.Broken = append(out.Broken, w.scope.broken[namespace]...)
	}
	if 2*len(out.Ingresses) > len(w.objects.Ingresses) || slices.ContainsFunc(out.Ingresses, refersFreely) {
		return w.objects, false // all objects are translated already, or scoping would save nothing
	}
	out.Services = ofNamespaces(out.Services, func(namespace string) bool { return namespaces[namespace] })
	return out, true
}

// refersFreely reports whether an Ingress has an option that may refer to objects of other namespaces, or an option
// whose uses are counted across namespaces.
func refersFreely(ing inputs.Object[networkingv1.Ingress]) bool {
	for _, name := range []string{options.PathType, "auth-url", "snippet"} {
		if _, has := ing.Value.Annotations[options.Prefix+name]; has {
			return true
		}
	}
	return false
}

func ofNamespaces[T any](objects []inputs.Object[T], keep func(namespace string) bool) []inputs.Object[T] {
	return slices.DeleteFunc(slices.Clone(objects), func(o inputs.Object[T]) bool { return !keep(o.Ref.Namespace) })
}

// Shared returns objects that a loop and a [Judge] can both use.
func Shared(objects Objects) Objects { return &sharedObjects{Objects: objects} }

// sharedObjects are objects that a loop and a [Judge] both use. A review may ask for objects by name, in addition to
// those of the loop, as long as it waits. The loop never waits for these.
type sharedObjects struct {
	Objects

	mu             sync.Mutex
	loop, reviewed routing.Asked
	read           routing.Asked // what the loop had asked for when it last read
}

// Read is for the loop. If the objects that only reviews ask for are not known yet, Read gives them up.
func (s *sharedObjects) Read(ctx context.Context, c config.Config) (inputs.Gathered, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, err := s.Objects.Read(ctx, c)
	if errors.Is(err, inputs.ErrIncomplete) && len(s.reviewed.ConfigMaps) > 0 {
		s.reviewed = routing.Asked{}
		s.Objects.Complete(s.loop)
		g, err = s.Objects.Read(ctx, c)
	}
	s.read = s.loop.And(s.reviewed)
	return g, err
}

// Prepare is for the loop.
func (s *sharedObjects) Prepare(next *config.Config) error { return prepare(s.Objects, next) }

// Complete is for the loop.
func (s *sharedObjects) Complete(named routing.Asked) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(named)
	s.loop = named
	return s.Objects.Complete(s.loop.And(s.reviewed)) || named.Within(s.read)
}

// Await is for the loop.
func (s *sharedObjects) Await(named routing.Asked) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(named)
	s.loop = s.loop.And(named)
	return s.Objects.Await(s.loop) || named.Within(s.read)
}

// forget gives up what reviews ask for if the loop names some of that, and has read without it: it is watched, but the loop
// has not seen it.
func (s *sharedObjects) forget(named routing.Asked) {
	late := func(name types.NamespacedName) bool {
		one := routing.Asked{ConfigMaps: []types.NamespacedName{name}}
		return one.Within(s.reviewed) && !one.Within(s.read)
	}
	if len(s.reviewed.ConfigMaps) > 0 && slices.ContainsFunc(named.ConfigMaps, late) {
		s.reviewed = routing.Asked{}
		s.Objects.Complete(s.loop)
	}
}

// ask makes the cluster watch what reviews ask for now. It no longer watches what only earlier reviews asked for.
func (s *sharedObjects) ask(named routing.Asked) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(named.ConfigMaps)+len(s.reviewed.ConfigMaps) > 0 {
		s.reviewed = named
		s.Objects.Complete(s.loop.And(s.reviewed))
	}
}

// known returns the ConfigMaps that are watched. Reading the objects then shows whether they exist.
func (s *sharedObjects) known() map[types.NamespacedName]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[types.NamespacedName]bool{}
	for _, name := range slices.Concat(s.loop.ConfigMaps, s.reviewed.ConfigMaps) {
		out[name] = true
	}
	return out
}
