// Package compiler turns what a cluster, or a directory of manifests, says
// about ingress into snapshots. [Compile] is one pass: inputs -> model ->
// artifact -> validated draft. [Judge] says what would come of an object that
// somebody is about to write. Package compiler/controller keeps a store up to date.
//
// An object that cannot be translated or rendered, or whose lines HAProxy
// refuses, is left out and reported; everything else is published. If the
// templates or the configuration are at fault, nothing is.
//
// The steps are in packages of their own: inputs, ingress and gateway (both make a
// model of package routing), render, and validate. The stores keep snapshots, and the
// pusher rolls them out; this package knows neither.
//
// # Decisions
//
// A bad object is never replaced by its last good version. Otherwise the output would depend on
// earlier compiles, and would differ after a restart, or in CI. The users of a bad object
// are protected in two ways: the admission webhook or CI refuses the object before it is
// written, and if it protects something, its routes are closed. All others are protected
// because the object alone is left out, and by the guard against mass losses.
//
// The rounds of leaving out are bounded for each namespace (compiler/drop.go). HAProxy
// stops at the first error in an http-request rule, so each faulty object takes a check of
// everything. After eight rounds a bisection of at most 32 checks looks for the sound
// objects in the rest of the namespace. Objects that it does not clear are left out: the
// tenant pays, not everybody.
package compiler

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// The reasons why there is nothing to publish although everything could be read. The diagnostics of the Result say more.
var (
	// ErrTemplates means that the templates or the configuration have errors that no set of
	// objects avoids.
	ErrTemplates = errors.New("the templates or the configuration are at fault")
	// ErrNothing means that there is not one object. A wrong path, or a volume that is not mounted, is a more likely
	// reason than a wish to serve nothing.
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
	// Memories hold what earlier compiles made.
	Memories
	// Crashes are the objects that earlier compiles panicked for, or nil.
	Crashes *crashes
	// CountryFiles are the files of the list of countries.
	CountryFiles []access.CountryFile
	// SecretsUnseen says that the objects contain no Secrets because this compile must not read any. Other compiles
	// without Secrets report that they are missing.
	SecretsUnseen bool
	// Found are the diagnostics of reading the objects.
	Found []diag.Diagnostic
	// Ignored counts the objects of kinds that are not read, as text for people.
	Ignored string
	// Now is the time of the draft. It decides nothing about the content.
	Now time.Time
	// Versions are those of the compiler and of the HAProxy that checks.
	CompilerVersion, HAProxyVersion string
	// Trigger says what the compile was made for, in a few words.
	Trigger string
	// Stages is called at the beginning of each stage; nil is allowed.
	Stages Stages
	// Unpublished says that the draft will not be published, so that HAProxy need not check all backends. See
	// [validate.Input].
	Unpublished bool
}

// Memories hold what earlier compiles made, so that a compile only makes what differs. The result is the same with any
// of them and without. A nil one remembers nothing.
type Memories struct {
	Rendered  *render.Memo        // pieces of files
	Secrets   *leak.Memo          // what must not be published of Secrets
	Claims    *ingress.Memo       // what Ingresses ask for
	Routes    *gateway.Memo       // what routes of Gateways ask for
	Seals     *sealMemo           // encrypted certificates
	Countries *access.CountryMemo // the list of countries
}

// NewMemories returns memories that are empty.
func NewMemories() Memories {
	return Memories{
		Rendered: render.NewMemo(), Secrets: &leak.Memo{}, Claims: ingress.NewMemo(), Routes: gateway.NewMemo(),
		Seals: newSealMemo(), Countries: &access.CountryMemo{},
	}
}

// Result is what came of a compile. Draft has no Subject yet: see [Subject].
type Result struct {
	Draft       snapshots.Draft
	Artifact    render.Artifact
	Diagnostics []diag.Diagnostic // sorted
	Ignored     string            // as in the Input
	Ingresses   ingress.Census    // of which classes they are
	// Named are the Secrets and ConfigMaps that the compile looked for, whether they were among the objects or not.
	Named routing.Asked
	// Verdicts say what the status of objects of the Gateway API should be.
	Verdicts gateway.Verdicts
	// Panicked says that the compile panicked: the memories may be in any state, and must not be used again.
	Panicked bool
}

// checker says whether an artifact may be published.
type checker interface {
	Check(ctx context.Context, in validate.Input) (validate.Verdict, error)
}

// Compile makes a draft of the inputs. It leaves out, and reports as errors, the objects that cannot be published,
// and those that make it panic (crash.go). The error is [ErrTemplates] or [ErrGaveUp], or that of a check that
// could not be made.
func Compile(ctx context.Context, in Input, check checker) (Result, error) {
	in = in.Crashes.leaveOut(in)
	panicked := false
	for n := 0; ; n++ {
		r, err := caught(ctx, in, check)
		p, ok := errors.AsType[process.PanicError](err)
		if !ok || n == mostCrashes || ctx.Err() != nil {
			r.Panicked = panicked || ok
			return r, err
		}
		panicked = true
		in.Memories = Memories{} // the panic may have left them in any state
		o, found := crashing(ctx, in, check)
		if !found {
			return Result{Panicked: true}, err
		}
		said := diag.Diagnostic{
			Severity: diag.Error, Object: o.ref, Position: o.at,
			Message: fmt.Sprintf("is left out, since the compiler panics for it: %v", p.Value),
			Hint:    "report it, with the object, as a mistake of hapsnap, in " + p.Place,
		}
		in.Crashes.add(o, said)
		in = in.withoutCrashed(o, said)
	}
}

// compileOnce compiles an input. It may panic.
func compileOnce(ctx context.Context, in Input, check checker) (Result, error) {
	in.Rendered.Begin()
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
		secrets: map[types.NamespacedName]bool{}, configMaps: map[types.NamespacedName]bool{}, rounds: map[string]int{}, suspicions: map[string]*suspicion{},
		givenUp: givenUp{hosts: map[string]bool{}, routes: map[diag.Object]bool{}},
	}
	good, err := c.settle(ctx)
	census := ingress.CensusOf(in.Objects, in.routing(nil))
	good.found = append(good.found, census.Warning(in.routing(nil))...)
	r := Result{
		Artifact: good.artifact, Ignored: in.Ignored, Ingresses: census, Verdicts: good.verdicts, Named: c.asked(good.artifact),
		Diagnostics: c.redacted(slices.Concat(in.Found, good.found, c.reported)),
	}
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
	out      []diag.Object     // the objects that are left out
	reported []diag.Diagnostic // why
	probed   map[place]bool    // nil until it is needed
	rounds   map[string]int    // how many the objects of a namespace caused
	// suspicions are about messages that HAProxy repeats, by the message without its numbers
	suspicions map[string]*suspicion
	givenUp    givenUp // what the objects that are left out do not even keep

	secrets, configMaps map[types.NamespacedName]bool // that translations looked for
}

// attempt is the result of one set of objects.
type attempt struct {
	artifact render.Artifact
	found    []diag.Diagnostic
	faults   []render.Fault
	closed   []diag.Object // that are left out, and whose routes answer 503
	verdicts gateway.Verdicts
}

// Four words say what happens to an object at fault, from the least to the most:
//
//   - It is left out: nothing of it is served. The hosts of an Ingress stay held, so that no rule of another namespace
//     without a host answers for them.
//   - Its routes are closed if it protects something: they answer 503.
//   - Its hosts are released if those, too, are at fault: they are no longer held ([compilation.releaseHosts]).
//   - Its closed routes are dropped if those, too, are at fault ([compilation.drop]). The translation closes other
//     routes of its namespace instead: see ingress.Config.Dropped.

// givenUp is what objects that are left out do not keep.
type givenUp struct {
	hosts  map[string]bool      // the namespaces whose hosts are released
	routes map[diag.Object]bool // the objects whose closed routes are dropped
}

// try compiles without the given objects. Their hosts are released and their closed routes dropped, so that the result
// depends on the other objects alone.
func (c *compilation) try(ctx context.Context, without []diag.Object) (attempt, error) {
	all := givenUp{hosts: map[string]bool{}, routes: map[diag.Object]bool{}}
	for _, object := range without {
		all.hosts[object.Namespace], all.routes[object] = true, true
	}
	return c.tryHolding(ctx, without, all)
}

// tryHolding compiles without the given objects. Those that protect something keep closed routes, and the hosts of
// Ingresses stay held, except for what is given up. It translates Ingresses and Gateways, and joins both models.
func (c *compilation) tryHolding(ctx context.Context, without []diag.Object, except givenUp) (attempt, error) {
	objects := c.in.Objects.Without(without...)
	routed, refused := objects, make(map[diag.Object]bool, len(without))
	for _, object := range without {
		refused[object] = true
	}
	if len(without) > 0 { // the translation needs refused Ingresses, and leaves them out itself
		routed.Ingresses, routed.Broken = c.in.Objects.Ingresses, c.in.Objects.Broken
	}
	_, end := c.in.Stages.Begin(ctx, StageTranslate)
	rules := c.in.routing(refused)
	rules.Released, rules.Dropped = except.hosts, except.routes
	model, found := c.in.Claims.Translate(routed, rules)
	end(nil)
	c.note(model.Asked)
	amongRoutes, closedRoutes := c.withProtected(objects, refused, except.routes)
	routes := c.in.gateways(model)
	routes.Refused, routes.Dropped = refused, except.routes
	part, foundInGateways, verdicts := c.in.Routes.Translate(amongRoutes, routes)
	c.note(part.Asked)
	ofRoutes := slices.Clone(part.Backends)
	ingress.ReserveHeaders(part.Backends, slices.Concat(model.Backends, ofRoutes), c.in.Config.Forwarded.AllowHeaders)
	ingress.ReserveHeaders(model.Backends, ofRoutes, c.in.Config.Forwarded.AllowHeaders)
	model, ok := model.With(part)
	if !ok {
		return attempt{}, errors.New("what Gateways and Ingresses bring has the same names, which is a mistake of the compiler")
	}
	a, err := c.publishable(ctx, render.Input{
		Model: model, Config: c.in.Config, Memo: c.in.Rendered,
		Objects: func() []render.Object { return describe(objects) },
	})
	a.found = slices.Concat(found, foundInGateways, a.found, checkPathTemplates(model, a.artifact))
	a.closed = slices.Concat(model.Closed, closedRoutes)
	a.verdicts = verdicts
	return a, err
}

// note records the objects that a translation looked for.
func (c *compilation) note(asked routing.Asked) {
	for _, name := range asked.Secrets {
		c.secrets[name] = true
	}
	for _, name := range asked.ConfigMaps {
		c.configMaps[name] = true
	}
}

// withProtected returns objects, with those refused routes of Gateways whose options protect something. The translation
// closes these routes; it returns them too. For dropped ones it closes other routes of the namespace that would get their
// requests.
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

// mostAuthorityBytes is how many bytes the certificate authorities of a namespace may have. Each snapshot contains them,
// they hardly compress, and a store keeps a hundred snapshots. Five authorities have about 10 KiB.
const mostAuthorityBytes = 512 << 10

// gateways returns the configuration of the translation of Gateways. Ports and lists that Ingresses use count against it.
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
		SharedLists:   in.Config.Shared.NetworkLists,
		MostListBytes: in.Config.Limits.NamespaceListBytes,
		Counted:       model.NetworkLists,
		Countries:     in.Config.Countries.ConfigMaps,
		CountryMemo:   in.Countries,
		CountryFiles:  in.CountryFiles,
		SecretsUnseen: in.SecretsUnseen,
		Inspection:    in.inspection(),
	}
	return gateway.Config{
		Controller:         c.ControllerName,
		Fleet:              c.Fleet,
		Addresses:          c.Networks(),
		Services:           services,
		Ports:              ports,
		AllowedPorts:       c.Ports,
		Form:               routing.FormOf(in.Config.Paths),
		Access:             who,
		SharedAuthServices: in.Config.Shared.AuthServices,
		SecretsUnseen:      in.SecretsUnseen,
		Now:                in.Now,
		MostRoutes:         in.Config.Limits.NamespaceRoutes,
		MostRouteBytes:     in.Config.Limits.NamespaceRouteBytes,
		MostOptionBytes:    in.Config.Limits.NamespaceOptionBytes,
		MostAuthorityBytes: mostAuthorityBytes,
		MostPorts:          in.Config.Limits.NamespacePorts,
	}
}

// routing returns the configuration of the translation of Ingresses.
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
		IngressClass:       in.Config.IngressClass,
		ControllerClass:    in.Config.ControllerClass,
		WatchWithoutClass:  in.Config.WatchIngressWithoutClass,
		Now:                in.Now,
		ExternalNames:      ingress.ExternalNames{Refuse: in.Config.ExternalNames.Policy == config.RefuseExternalNames, Domains: in.Config.ExternalNames.Domains},
		Snippets:           in.Config.Snippets.Namespaces,
		TrustsForwarded:    in.Config.Forwarded.Trusts(),
		AllowHeaders:       in.Config.Forwarded.AllowHeaders,
		HTTPSPort:          in.Config.HTTPS.Port,
		Ports:              in.Config.Ports(),
		TCPServices:        in.Config.TCPServices,
		TCPAnnotations:     in.Config.TCPAnnotations,
		DefaultCertificate: defaultCertificate(in.Config),
		CertificatesAsSeen: in.Config.Certificates.RefMode() != snapshots.ModeReference,
	}
}

// inspection returns which agents HAProxy may ask about requests.
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
	// If HAProxy refuses certificate authorities, the fault is that of the ConfigMaps with the authorities. The line that
	// loads them comes from other objects: a Gateway, or a route of somebody else.
	laid := slices.Clone(verdict.Faults)
	for i, f := range laid {
		for _, a := range in.Model.Authorities {
			if strings.Contains(f.Message, a.File) {
				laid[i].Message = "HAProxy cannot load the certificate authorities: " + f.Message
				laid[i].Origin.Objects, laid[i].Namespace = a.Origins, ""
				laid[i].Text = "" // the line is of other objects
			}
		}
	}
	a := attempt{artifact: artifact, faults: laid}
	for _, w := range verdict.Warnings {
		a.found = append(a.found, templateDiagnostic(diag.Warning, w))
	}
	return a, nil
}

// describe returns what templates can read of the objects. It contains no Secrets, and not their annotations either:
// kubectl keeps the values of a Secret there.
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
	// Objects with errors are quarantined, each with its first error.
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
	// A reference names the version of the certificate that this compile saw. If it saw none that can be served, the
	// version stays empty, so that a push does not use what the Secret contains by then.
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

// asked returns the objects that all attempts looked for by name, and the Secrets that the templates named in an artifact.
func (c *compilation) asked(a render.Artifact) routing.Asked {
	// Validation reports what cannot be read in the file.
	needs, _ := bind.Needs(snapshots.Snapshot{Files: a.Files}.Config(), a.Certificates)
	for _, n := range needs {
		c.secrets[types.NamespacedName(n.Secret)] = true
	}
	return routing.Asked{
		Secrets:    slices.SortedFunc(maps.Keys(c.secrets), objectname.Compare),
		ConfigMaps: slices.SortedFunc(maps.Keys(c.configMaps), objectname.Compare),
	}
}
