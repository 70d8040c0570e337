// Package compiler makes snapshots of what a cluster, or a directory of manifests, says about ingress. [Compile] is one
// pass: inputs -> model -> artifact -> validated draft. [Judge] says what would happen to an object that somebody is
// about to write. Package compiler/controller keeps a store up to date.
//
// An object that cannot be translated or rendered, or whose lines HAProxy refuses, is left out and reported. Everything
// else is published. If the templates or the configuration are at fault, nothing is published.
//
// The steps are in packages of their own: inputs, ingress and gateway (which both make a model of package routing),
// render, and validate. The stores keep snapshots, and the pusher rolls them out. This package knows neither.
//
// # Decisions
//
// A bad object is never replaced by its last good version. Otherwise the output would depend on earlier compiles, and
// would differ after a restart, or in CI. The users of a bad object are protected in two ways. The admission webhook or
// CI refuses the object before it is written. And if the object protects something, its routes are closed. Other users
// are protected because only that object is left out, and by the guard against mass losses.
//
// Each namespace may cause only a limited number of rounds of leaving out objects (compiler/drop.go). HAProxy stops at
// the first error in an http-request rule, so each faulty object may take a check of everything. After eight rounds, a
// bisection of at most 32 checks looks for the sound objects in the rest of the namespace. Objects that it does not
// clear are left out: this namespace loses them, and nobody else waits.
package compiler

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler/access"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway"
	"github.com/hapsnap/hapsnap/compiler/ingress"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/leak"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/internal/objectname"
	"github.com/hapsnap/hapsnap/snapshots"
)

// Why nothing can be published although everything could be read. The diagnostics of the Result say more.
var (
	// ErrTemplates means that the templates or the configuration have errors, whatever the objects are.
	ErrTemplates = errors.New("the templates or the configuration are at fault")
	// ErrNothing means that there is no object at all. A wrong path, or a volume that is not mounted, is more likely
	// than the intention to serve nothing.
	ErrNothing = errors.New("there is not one Kubernetes object to compile")
	// ErrGaveUp means that HAProxy refused the configuration, whatever objects were left out.
	ErrGaveUp = errors.New("no set of objects that haproxy accepts was found")
)

// Input is what one compile is made from.
type Input struct {
	Objects   inputs.Inputs
	Config    config.Config
	Templates *render.Set
	// Memories hold what earlier compiles made.
	Memories
	// Crashes are the objects for which earlier compiles panicked, or nil.
	Crashes *crashes
	// CountryFiles are the files with the list of countries.
	CountryFiles []access.CountryFile
	// SecretsUnseen says that the objects contain no Secrets because this compile must not read any. Otherwise a
	// compile without Secrets reports them as missing.
	SecretsUnseen bool
	// Found are the diagnostics from reading the objects.
	Found []diag.Diagnostic
	// Ignored says how many objects are of kinds that the compiler does not read, as text for people.
	Ignored string
	// Now is the time of the draft. The content does not depend on it.
	Now time.Time
	// Versions of the compiler, and of the HAProxy that checks.
	CompilerVersion, HAProxyVersion string
	// Trigger says in a few words why the compile was started.
	Trigger string
	// Stages is called at the beginning of each stage. It may be nil.
	Stages Stages
	// Await takes the names for which the translation looked, and reports whether their objects are known. If not, the
	// compile ends with [inputs.ErrIncomplete], before anything is rendered and checked. Nil takes them for known.
	Await func(named routing.Asked) bool
	// Unpublished says that the draft will not be published, so that HAProxy need not check all backends. See
	// [validate.Input].
	Unpublished bool

	crashed map[string]int // how many objects are left out for crashes, by namespace
}

// Memories hold what earlier compiles made, so that a compile makes only what differs. The result is the same with and
// without them. A nil memory remembers nothing.
type Memories struct {
	Rendered  *render.Memo        // pieces of files
	Secrets   *leak.Memo          // what Secrets contain that must not be published
	Claims    *ingress.Memo       // what Ingresses ask for
	Routes    *gateway.Memo       // what routes of Gateways ask for
	Seals     *sealMemo           // encrypted certificates
	Keys      *keyMemo            // the kinds of keys in Secrets
	Countries *access.CountryMemo // the list of countries
	Probed    *probeMemo          // which lines of templates are at fault
}

// NewMemories returns empty memories.
func NewMemories() Memories {
	return Memories{
		Rendered: render.NewMemo(), Secrets: &leak.Memo{}, Claims: ingress.NewMemo(), Routes: gateway.NewMemo(),
		Seals: newSealMemo(), Keys: &keyMemo{}, Countries: &access.CountryMemo{}, Probed: &probeMemo{},
	}
}

// Result is the result of a compile. The Draft has no Subject yet, see [Subject].
type Result struct {
	Draft       snapshots.Draft
	Artifact    render.Artifact
	Diagnostics []diag.Diagnostic // sorted
	LeftOut     int               // how many objects have errors; the Draft may list fewer
	Ignored     string            // like Input.Ignored
	Ingresses   ingress.Census    // how many Ingresses of each class there are
	// Named are the Secrets and ConfigMaps that the compile looked for, whether or not they are among the objects.
	Named routing.Asked
	// Unread are single objects that the API server does not let be read, as in the inputs.
	Unread []diag.Object
	// Shared are the ConfigMaps that objects of every namespace may need, whether or not they are among the objects.
	Shared []types.NamespacedName
	// Verdicts say which status the objects of the Gateway API should have.
	Verdicts gateway.Verdicts
	// Stale says that the objects may be older than what is known, so that another compile has to follow.
	Stale bool
	// Panicked says that the compile panicked. The memories may then be damaged, and must not be used again.
	Panicked bool
}

// checker decides whether an artifact may be published.
type checker interface {
	Check(ctx context.Context, in validate.Input) (validate.Verdict, error)
}

// Compile makes a draft of the inputs. It leaves out the objects that cannot be published, and those that make it panic
// (crash.go), and reports them as errors. The error is [ErrTemplates] or [ErrGaveUp], that of a check that could not
// be made, or [inputs.ErrIncomplete].
func Compile(ctx context.Context, in Input, check checker) (Result, error) {
	in = in.Crashes.leaveOut(in)
	panicked := false
	for n := 0; ; n++ {
		r, err := caught(ctx, in, check)
		why, ok := crashOf(err)
		if panicked = panicked || why.panicked; !ok || n == mostCrashes || ctx.Err() != nil {
			r.Panicked = panicked
			if err == nil {
				in.Crashes.ended(in.Objects)
			}
			return r, err
		}
		if why.panicked {
			in.Memories = Memories{} // the panic may have damaged them
		}
		o, own, found := crashing(ctx, in, check, why.doubtful)
		if !found {
			r.Panicked = panicked // a Result without the names that were looked for would have their watches end
			return r, err
		}
		said := diag.Diagnostic{Severity: diag.Error, Object: o.ref, Position: o.at, Message: "is left out, since " + why.message, Hint: why.hint}
		in.Crashes.add(o, said, own)
		in = in.withoutCrashed(o, said, own)
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
	c := compilation{
		in: in, check: check, keys: in.Keys.of(in.Objects.Secrets), private: private,
		secrets: map[types.NamespacedName]bool{}, configMaps: map[types.NamespacedName]bool{}, rounds: map[string]int{}, suspicions: map[string]*suspicion{},
		givenUp: givenUp{hosts: map[string]bool{}, routes: map[diag.Object]bool{}},
	}
	good, err := c.settle(ctx)
	c.reportMistakes()
	census := ingress.CensusOf(in.Objects, in.ingresses(nil))
	good.found = append(good.found, census.Warning(in.ingresses(nil))...)
	r := Result{
		Artifact: good.artifact, Ignored: in.Ignored, Ingresses: census, Verdicts: good.verdicts, Named: c.asked(good), Unread: in.Objects.Unread, Shared: shared(in),
		Diagnostics: c.redacted(slices.Concat(in.Found, good.found, c.reported)),
	}
	if err != nil {
		return r, err
	}
	left := leftOut(r.Diagnostics)
	r.LeftOut = len(left)
	_, end := in.Stages.Begin(ctx, StageDraft)
	r.Draft, err = c.draft(r, left)
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
	reported []diag.Diagnostic // why they are left out
	// blamed are the objects that are left out for a line of a template, by line and kind.
	blamed map[templateLine]map[diag.Object]bool
	probed map[place]bool // nil until it is needed
	rounds map[string]int // how many rounds the objects of each namespace have caused
	// suspicions are about messages that HAProxy repeats. The keys are the messages without numbers.
	suspicions map[string]*suspicion
	givenUp    givenUp // what even closed routes and held hosts do not keep

	secrets, configMaps map[types.NamespacedName]bool // for which translations looked
}

// mostAuthorityBytes is how many bytes the certificate authorities of a namespace may have. Each snapshot contains
// them, they hardly compress, and a store keeps a hundred snapshots. Five authorities have about 10 KiB.
const mostAuthorityBytes = 512 << 10

// gateways returns the configuration for translating Gateways. Ports and lists that Ingresses use count towards the
// limits of Gateways.
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

// ingresses returns the configuration for translating Ingresses.
func (in Input) ingresses(refused map[diag.Object]bool) ingress.Config {
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

// IngressConfig returns what a configuration says about translating Ingresses.
func IngressConfig(c config.Config) ingress.Config { return Input{Config: c}.ingresses(nil) }

// defaultCertificate returns the Secret with the default certificate, or the zero name.
func defaultCertificate(c config.Config) snapshots.SecretName {
	name, _ := objectname.Parse(c.HTTPS.DefaultCertificate) // the name was checked, or is empty
	return snapshots.SecretName(name)
}

// shared returns the ConfigMaps that objects of every namespace may need: those that the configuration shares, and the
// parameters of IngressClasses. Missing error pages close no route.
func shared(in Input) []types.NamespacedName {
	var out []types.NamespacedName
	for _, text := range slices.Concat(in.Config.Shared.NetworkLists, in.Config.Shared.WAFPolicies, in.Config.Countries.ConfigMaps) {
		namespace, name, _ := strings.Cut(text, "/")
		out = append(out, types.NamespacedName{Namespace: namespace, Name: name})
	}
	for _, class := range in.Objects.Classes {
		if p := class.Value.Spec.Parameters; p != nil && p.Kind == "ConfigMap" && p.Namespace != nil {
			out = append(out, types.NamespacedName{Namespace: *p.Namespace, Name: p.Name})
		}
	}
	return out
}
