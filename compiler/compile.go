// Package compiler turns what a cluster, or a directory of manifests, says
// about ingress into snapshots. [Compile] is one pass: inputs -> model ->
// artifact -> validated draft. [Judge] says what would come of an object that
// somebody is about to write. Package compiler/controller keeps a store up to date.
//
// An object that cannot be translated or rendered, or whose lines HAProxy
// refuses, is left out and reported; everything else is published. If the
// templates or the configuration are at fault, nothing is.
//
// The steps are in packages of their own: inputs, routing, render and
// validate. Keeping snapshots is the business of the stores, rolling them out
// that of the pusher, which this package knows nothing of.
//
// # Decisions
//
// There is no last good version of an object. The output would depend on what was there
// before, and not be the same after a restart, or in CI. What protects users of a bad
// object is that it is refused before it is written, by the admission webhook or in CI,
// and that its routes are closed where it protects something; what protects all others is
// that it alone is left out, and the guard against mass losses.
//
// The rounds of leaving out are bounded for each namespace (compiler/drop.go). HAProxy
// stops at the first error in a rule of requests, so that each faulty object takes a
// check of everything. After eight rounds the rest of the namespace is looked through by
// halves, in 32 checks; what these do not clear is left out. The tenant pays, not
// everybody.
package compiler

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler/access"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway"
	"github.com/hapsnap/hapsnap/compiler/ingress"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/leak"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/internal/objectname"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// The reasons why there is nothing to publish though all could be read. The
// diagnostics of the Result say more.
var (
	// ErrTemplates means that the templates or the configuration have errors that no set of
	// objects avoids.
	ErrTemplates = errors.New("the templates or the configuration are at fault")
	// ErrNothing means that there is not one object, which is more likely a
	// wrong path or a volume that is not mounted than a wish to serve nothing.
	ErrNothing = errors.New("there is not one Kubernetes object to compile")
	// ErrGaveUp means that leaving out objects did not lead to anything that
	// HAProxy accepts.
	ErrGaveUp = errors.New("no set of objects that haproxy accepts was found")
)

// Input is what one compile is made from.
type Input struct {
	Objects   inputs.Inputs
	Config    config.Config
	Templates *render.Set
	// Memo is what earlier compiles rendered; nil renders everything. The result
	// is the same.
	Memo *render.Memo
	// Read is what is remembered of Secrets, so that they are not read again; nil
	// remembers nothing.
	Read *leak.Memo
	// Claims is what earlier compiles read of Ingresses, or nil.
	Claims *ingress.Memo
	// Routes is what earlier compiles read of routes of Gateways, or nil.
	Routes *gateway.Memo
	// Seals is what earlier compiles sealed, or nil.
	Seals *sealMemo
	// Countries is the list of countries that an earlier compile read, or nil.
	Countries *access.CountryMemo
	// CountryFiles are the files of that list.
	CountryFiles []access.CountryFile
	// SecretsUnseen says that there are no Secrets among the objects because none is to be
	// looked at, and not because there are none.
	SecretsUnseen bool
	// Crashes are the objects that earlier compiles panicked for, or nil.
	Crashes *crashes
	// Found is what was found when the objects were read.
	Found []diag.Diagnostic
	// Ignored counts the objects of kinds that are not read, for people.
	Ignored string
	// Now is the time of the draft. It decides nothing about the content.
	Now time.Time
	// Versions are those of the compiler and of the HAProxy that checks.
	CompilerVersion, HAProxyVersion string
	// Trigger says what the compile was made for, in a few words.
	Trigger string
	// Stages gets notice of what the compile is doing; nil is allowed.
	Stages Stages
	// Unpublished says that the draft is not to be published, so that HAProxy need not look at all backends. See
	// [validate.Input].
	Unpublished bool
}

// Result is what came of a compile. Draft has no Subject yet: see [Subject].
type Result struct {
	Draft       snapshots.Draft
	Artifact    render.Artifact
	Diagnostics []diag.Diagnostic // sorted
	Ignored     string            // as in the Input
	Ingresses   ingress.Census    // of which classes they are
	// Named are the Secrets and ConfigMaps whose names the compile met, whether
	// they were among the objects or not.
	Named routing.Asked
	// Verdicts are what the status of objects of the Gateway API is to say.
	Verdicts gateway.Verdicts
	// Panicked is set where the compile panicked, and memories may have been left in any state.
	Panicked bool
}

// checker says whether an artifact may be published.
type checker interface {
	Check(ctx context.Context, in validate.Input) (validate.Verdict, error)
}

// Compile makes a draft of the inputs. It leaves out, and reports as errors,
// the objects that cannot be published. The error is [ErrTemplates] or
// [ErrGaveUp], or that of a check that could not be made. An object that makes it panic is left out.
func Compile(ctx context.Context, in Input, check checker) (Result, error) {
	return compileSafely(ctx, in, check)
}

// compile is Compile, and may panic.
func compile(ctx context.Context, in Input, check checker) (Result, error) {
	in.Memo.Begin()
	private := privateOf(in)
	in.Seals.begin()
	selector := inputs.NewSelector(in.Config, in.Objects.Namespaces)
	in.Objects, in.Found = selector.Objects(in.Objects), selector.Diagnostics(in.Found, in.Objects)
	if !in.Config.TrustFileAges {
		in.Objects = in.Objects.OfOneAge()
	}
	keys := map[snapshots.SecretName]validate.KeyType{}
	for _, s := range in.Objects.Secrets {
		if certificates := s.Value.Data["tls.crt"]; len(certificates) > 0 {
			keys[snapshots.SecretName{Namespace: s.Ref.Namespace, Name: s.Ref.Name}] = validate.KeyTypeOf(certificates)
		}
	}
	c := compilation{
		in: in, check: check, keys: keys, private: private,
		secrets: map[types.NamespacedName]bool{}, configMaps: map[types.NamespacedName]bool{}, rounds: map[string]int{},
		yielded: yielded{hosts: map[string]bool{}, routes: map[diag.Object]bool{}},
	}
	good, err := c.settle(ctx)
	census := ingress.CensusOf(in.Objects, in.routing(nil))
	good.found = append(good.found, census.Warning(in.routing(nil))...)
	r := Result{Artifact: good.artifact, Ignored: in.Ignored, Ingresses: census, Verdicts: good.verdicts, Named: c.asked(good.artifact), Diagnostics: c.redacted(slices.Concat(in.Found, good.found, c.reported))}
	if err != nil {
		return r, err
	}
	_, end := in.Stages.Begin(ctx, StageDraft)
	r.Draft, err = c.draft(r)
	if err == nil {
		err = c.checkDraft(&r)
	}
	end(err)
	return r, err
}

// compilation is one call of [Compile].
type compilation struct {
	in       Input
	check    checker
	keys     map[snapshots.SecretName]validate.KeyType
	private  *leak.Index
	out      []diag.Object     // that were left out
	reported []diag.Diagnostic // why
	probed   map[place]bool    // nil until it is needed
	rounds   map[string]int    // that the objects of a namespace caused
	yielded  yielded           // by those that were left out

	secrets, configMaps map[types.NamespacedName]bool // that were asked for
}

// attempt is what comes of a set of objects.
type attempt struct {
	artifact render.Artifact
	found    []diag.Diagnostic
	faults   []render.Fault
	denied   []diag.Object // Ingresses that are left out, and whose routes are closed
	verdicts gateway.Verdicts
}

// yielded is what is not even held of Ingresses that are left out, since that would be at fault,
// too. What an Ingress protects stays closed all the same: see ingress.Config.Dropped.
type yielded struct {
	hosts  map[string]bool      // of namespaces: see [compilation.letGo]
	routes map[diag.Object]bool // closed ones, of Ingresses that protect something: see [compilation.drop]
}

// try compiles without the given objects, of which nothing is left, neither closed routes nor
// held hosts: whether it passes is up to the others alone.
func (c *compilation) try(ctx context.Context, without []diag.Object) (attempt, error) {
	all := yielded{hosts: map[string]bool{}, routes: map[diag.Object]bool{}}
	for _, object := range without {
		all.hosts[object.Namespace], all.routes[object] = true, true
	}
	return c.tryHolding(ctx, without, all)
}

// tryHolding is try, but that Ingresses that are left out keep their routes, closed, where they
// protect something, and that the hosts of the others stay known, so that no rule of somebody
// else without a host answers for them; but for what is yielded.
func (c *compilation) tryHolding(ctx context.Context, without []diag.Object, y yielded) (attempt, error) {
	objects := c.in.Objects.Without(without...)
	routed, refused := objects, make(map[diag.Object]bool, len(without))
	for _, object := range without {
		refused[object] = true
	}
	if len(without) > 0 { // refused objects keep their places, and the translation leaves them out
		routed.Ingresses, routed.Broken = c.in.Objects.Ingresses, c.in.Objects.Broken
	}
	_, end := c.in.Stages.Begin(ctx, StageTranslate)
	rules := c.in.routing(refused)
	rules.Released, rules.Dropped = y.hosts, y.routes
	model, found := c.in.Claims.Translate(routed, rules)
	end(nil)
	for _, name := range model.Asked.Secrets {
		c.secrets[name] = true
	}
	for _, name := range model.Asked.ConfigMaps {
		c.configMaps[name] = true
	}
	amongRoutes, closed := c.withProtected(objects, refused, y.routes)
	routes := c.in.gateways(model)
	routes.Refused, routes.Dropped = refused, y.routes
	part, more, verdicts := c.in.Routes.Translate(amongRoutes, routes)
	ofRoutes := slices.Clone(part.Backends)
	ingress.ReserveHeaders(part.Backends, slices.Concat(model.Backends, ofRoutes), c.in.Config.Forwarded.AllowHeaders)
	ingress.ReserveHeaders(model.Backends, ofRoutes, c.in.Config.Forwarded.AllowHeaders)
	model, ok := model.With(part)
	if !ok {
		return attempt{}, errors.New("what Gateways and Ingresses bring has the same names, which is a mistake of the compiler")
	}
	found = slices.Concat(found, more)
	for _, name := range part.Asked.Secrets {
		c.secrets[name] = true
	}
	for _, name := range part.Asked.ConfigMaps {
		c.configMaps[name] = true
	}
	a, err := c.publishable(ctx, render.Input{Model: model, Config: c.in.Config, Objects: func() []render.Object { return describe(objects) }, Memo: c.in.Memo})
	a.found, a.denied = slices.Concat(found, a.found, checkPathTemplates(model, a.artifact)), slices.Concat(model.Denied, closed)
	a.verdicts = verdicts
	return a, err
}

// withProtected returns objects with the routes of Gateways that are refused and have options which protect something,
// and names these. The translation closes them, or what else would serve their requests.
func (c *compilation) withProtected(objects inputs.Inputs, refused, dropped map[diag.Object]bool) (inputs.Inputs, []diag.Object) {
	if len(refused) == 0 {
		return objects, nil
	}
	var closed, left []diag.Object
	for kind, o := range c.in.Objects.Gateway.Each() {
		switch {
		case !refused[o.Ref]:
		case !kind.IsRoute() || options.Protects(o.Value.GetAnnotations()) == "":
			left = append(left, o.Ref)
		case !dropped[o.Ref]:
			closed = append(closed, o.Ref)
		}
	}
	objects.Gateway = c.in.Objects.Without(left...).Gateway
	return objects, closed
}

// mostAuthorityBytes is how much the certificate authorities of a namespace may have. They are files of each
// snapshot, hardly compress, and a store keeps a hundred snapshots: five authorities have about 10 KiB.
const mostAuthorityBytes = 512 << 10

// gateways is what the configuration and what Ingresses have leave to Gateways.
func (in Input) gateways(model routing.Model) gateway.Config {
	ports := in.Config.Ports()
	for _, l := range model.Listeners {
		if _, taken := ports[l.Port]; !taken {
			ports[l.Port] = "the listener " + l.Name
		}
	}
	c := in.Config.GatewayAPI
	services := gateway.Services{Enabled: c.Services.Enabled, Labels: c.Services.Labels, Annotations: c.Services.Annotations}
	who := access.Config{
		SharedLists: in.Config.Shared.NetworkLists, MostListBytes: in.Config.Limits.NamespaceListBytes, Counted: model.NetworkLists, Countries: in.Config.Countries.ConfigMaps,
		CountryMemo: in.Countries, CountryFiles: in.CountryFiles, SecretsUnseen: in.SecretsUnseen, Inspection: in.inspection(),
	}
	return gateway.Config{Access: who, SharedAuthServices: in.Config.Shared.AuthServices, Controller: c.ControllerName, Fleet: c.Fleet, Addresses: c.Networks(), Services: services, Ports: ports, Form: routing.FormOf(in.Config.Paths), SecretsUnseen: in.SecretsUnseen, Now: in.Now, MostRoutes: in.Config.Limits.NamespaceRoutes, MostRouteBytes: in.Config.Limits.NamespaceRouteBytes, MostOptionBytes: in.Config.Limits.NamespaceOptionBytes, MostAuthorityBytes: mostAuthorityBytes}
}

// routing is what the configuration says of the translation.
func (in Input) routing(refused map[diag.Object]bool) ingress.Config {
	return ingress.Config{
		Refused:            refused,
		SecretsUnseen:      in.SecretsUnseen,
		OwnedHosts:         in.Config.Hosts == config.OwnHosts,
		Limits:             in.Config.Limits,
		SharedHosts:        in.Config.SharedHosts,
		ReservedDomains:    in.Config.ReservedDomains,
		Paths:              in.Config.Paths,
		IgnoreForeign:      in.Config.ForeignAnnotations == config.IgnoreForeign,
		ErrorPages:         in.Config.ErrorPages,
		Countries:          in.Config.Countries.ConfigMaps,
		CountryHeader:      in.Config.Countries.Header != "",
		CountryMemo:        in.Countries,
		CountryFiles:       in.CountryFiles,
		SharedLists:        in.Config.Shared.NetworkLists,
		SharedAuthServices: in.Config.Shared.AuthServices,
		Inspection:         in.inspection(),
		IngressClass:       in.Config.IngressClass, ControllerClass: in.Config.ControllerClass,
		WatchWithoutClass: in.Config.WatchIngressWithoutClass, Now: in.Now,
		ExternalNames: ingress.ExternalNames{Refuse: in.Config.ExternalNames.Policy == config.RefuseExternalNames, Domains: in.Config.ExternalNames.Domains},
		Snippets:      in.Config.Snippets.Namespaces, TrustsForwarded: in.Config.Forwarded.Trusts(), AllowHeaders: in.Config.Forwarded.AllowHeaders, HTTPSPort: in.Config.HTTPS.Port, Ports: in.Config.Ports(), TCPServices: in.Config.TCPServices, TCPAnnotations: in.Config.TCPAnnotations,
		DefaultCertificate: defaultCertificate(in.Config), CertificatesAsSeen: in.Config.Certificates.RefMode() != snapshots.ModeReference,
	}
}

// inspection is what the configuration says of agents that are asked about requests.
func (in Input) inspection() access.Inspection {
	return access.Inspection{
		Agents: in.Config.Agents, WAF: in.Config.WAF.Enabled(), SharedPolicies: in.Config.Shared.WAFPolicies,
		MostPolicies: in.Config.Limits.NamespaceWAFPolicies, MostPolicyBytes: in.Config.Limits.NamespaceOptionBytes,
		Buffer: in.Config.BufferSize.Bytes(), Wait: string(in.Config.Timeouts.HTTPRequest),
	}
}

// IngressConfig is what a configuration says of the translation of Ingresses.
func IngressConfig(c config.Config) ingress.Config { return Input{Config: c}.routing(nil) }

// defaultCertificate returns the Secret of the default certificate, or zero.
func defaultCertificate(c config.Config) snapshots.SecretName {
	name, _ := objectname.Parse(c.HTTPS.DefaultCertificate) // which was checked, or is empty
	return snapshots.SecretName(name)
}

// publishable renders and validates.
func (c *compilation) publishable(ctx context.Context, in render.Input) (attempt, error) {
	_, end := c.in.Stages.Begin(ctx, StageRender)
	artifact, faults := c.in.Templates.Render(in)
	end(nil)
	if len(faults) > 0 {
		return attempt{faults: faults}, nil
	}
	ctx, end = c.in.Stages.Begin(ctx, StageValidate)
	verdict, err := c.check.Check(ctx, validate.Input{Artifact: artifact, Keys: c.keys, Private: c.private, OnePerText: c.in.Unpublished})
	end(err)
	if err != nil {
		return attempt{}, err
	}
	// Faults that HAProxy finds in authorities are laid to the ConfigMaps that have them, and not to the objects of
	// the line where they are loaded: a Gateway, or a route of somebody else.
	laid := slices.Clone(verdict.Faults)
	for i, f := range laid {
		for _, a := range in.Model.Authorities {
			if strings.Contains(f.Message, a.File) {
				laid[i].Message = "HAProxy cannot load the certificate authorities: " + f.Message
				laid[i].Origin.Objects, laid[i].Namespace = a.Origins, ""
				laid[i].Text = "" // it is others'
			}
		}
	}
	a := attempt{artifact: artifact, faults: laid}
	for _, w := range verdict.Warnings {
		a.found = append(a.found, templateDiagnostic(diag.Warning, w))
	}
	return a, nil
}

// describe returns what templates can read of the objects. Secrets are not
// among them, nor are their annotations, in which kubectl keeps their values.
func describe(in inputs.Inputs) []render.Object {
	out := slices.Concat(described(networkingv1.SchemeGroupVersion.String(), in.Ingresses), described(corev1.SchemeGroupVersion.String(), in.Services))
	for kind, o := range in.Gateway.Each() {
		if kind.Read {
			out = append(out, describedAs(inputs.GatewayVersion, routing.Origin{Object: o.Ref, Position: o.Position()}, o.Value))
		}
	}
	for _, o := range in.Others {
		whole := described(o.Value.GetAPIVersion(), []inputs.Object[unstructured.Unstructured]{o})
		whole[0].Whole = o.Value.Object
		out = append(out, whole...)
	}
	return out
}

func described[T any](apiVersion string, objects []inputs.Object[T]) []render.Object {
	var out []render.Object
	for _, o := range objects {
		meta, _ := any(o.Value).(metav1.Object)
		out = append(out, describedAs(apiVersion, routing.Origin{Object: o.Ref, Position: o.Position()}, meta))
	}
	return out
}

func describedAs(apiVersion string, origin routing.Origin, meta metav1.Object) render.Object {
	return render.Object{Origin: origin, APIVersion: apiVersion, Labels: meta.GetLabels(), Annotations: meta.GetAnnotations()}
}

// draft makes the draft of a result.
func (c *compilation) draft(r Result) (snapshots.Draft, error) {
	// Objects that errors were found on are left out, each with the first of its errors.
	var left []snapshots.Quarantined
	seen := map[diag.Object]bool{{}: true}
	for _, d := range r.Diagnostics {
		if d.Severity != diag.Error || seen[d.Object] {
			continue
		}
		seen[d.Object] = true
		left = append(left, snapshots.Quarantined{
			Kind: d.Object.Kind, Namespace: d.Object.Namespace, Name: d.Object.Name, Reason: d.Message,
		})
	}
	d := snapshots.Draft{
		Files: r.Artifact.Files, Certificates: r.Artifact.Certificates,
		Quarantined: left, Time: c.in.Now,
		Provenance: snapshots.Provenance{
			CompilerVersion: c.in.CompilerVersion, HAProxyVersion: c.in.HAProxyVersion,
			TemplatesDigest: c.in.Templates.Digest(), Inputs: c.in.Objects.Provenance(), Trigger: c.in.Trigger,
		},
	}
	mode := c.in.Config.Certificates.RefMode()
	// A reference names the version of the certificate that was seen here. Without one that can be served
	// the version stays empty, so that a push does not take whatever is in the Secret by then.
	references := slices.Clone(d.Certificates)
	for i, ref := range references {
		if ref.Use != snapshots.UseCertificate || ref.Secret == (snapshots.SecretName{}) {
			continue
		}
		references[i].Mode = mode
		if ref.Observed != nil && mode != snapshots.ModeReference {
			references[i].Version = ref.Observed.Version
		}
	}
	d.Certificates = references
	switch mode {
	case snapshots.ModeSealed:
		if err := seal(&d, c.in.Objects, c.in.Config.Certificates.Recipients, c.in.Seals); err != nil {
			return snapshots.Draft{}, err
		}
	case snapshots.ModeCompanion:
		if err := accompany(&d, c.in.Objects); err != nil {
			return snapshots.Draft{}, err
		}
	case snapshots.ModeReference, snapshots.ModeExact:
	}
	if c.in.Config.Endpoints == config.Recorded {
		file, err := recordEndpoints(r.Artifact, c.in.Objects)
		if err != nil {
			return snapshots.Draft{}, err
		}
		d.Files = append(d.Files[:len(d.Files):len(d.Files)], file)
	}
	return d, nil
}

// asked returns what all tries asked for by name, and the Secrets that templates
// named in an artifact.
func (c *compilation) asked(a render.Artifact) routing.Asked {
	// What cannot be followed in the file is the business of validation.
	needs, _ := bind.Needs(snapshots.Snapshot{Files: a.Files}.Config(), a.Certificates)
	for _, n := range needs {
		c.secrets[types.NamespacedName(n.Secret)] = true
	}
	return routing.Asked{
		Secrets:    slices.SortedFunc(maps.Keys(c.secrets), objectname.Compare),
		ConfigMaps: slices.SortedFunc(maps.Keys(c.configMaps), objectname.Compare),
	}
}
