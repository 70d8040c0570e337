package routing

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/snapshots"
)

type (
	ingress = inputs.Object[networkingv1.Ingress]
	service = inputs.Object[corev1.Service]
)

// Translate returns what the Ingresses that are ours mean, and the findings on
// them, sorted. It is a pure function; the order of the inputs takes no part.
// An Ingress that breaks a rule of the API is left out as a whole, unless it
// protects something: then its routes answer 503. Of one with a path that cannot be
// matched, that path is left out. Of two that claim the same, the older one gets it.
func Translate(in inputs.Inputs, cfg Config) (Model, []diag.Diagnostic) {
	t := newTranslation(in, cfg.withDefaults())
	t.pages = t.errorPages()
	t.classes = newClasses(in.Classes, t.cfg)
	t.readParameters(in.Classes)
	broken := make(map[diag.Object]bool, len(in.Broken))
	for _, ing := range in.Broken {
		broken[ing.Ref] = true
	}
	var ours, canaries []ingress
	for _, ing := range byAge(slices.Concat(in.Ingresses, in.Broken)) {
		isOurs, found := t.classes.claim(ing)
		if !broken[ing.Ref] && !t.leftOut(ing) {
			t.found = append(t.found, found...)
		}
		if isOurs {
			ours = append(ours, ing)
		}
	}
	ours, over := t.limited(ours)
	t.findOwners(ours)
	t.bar(ours)
	for _, ing := range ours {
		if t.leftOut(ing) {
			t.held = append(t.held, ing)
			continue
		}
		if broken[ing.Ref] { // what is wrong with it was said when it was read
			t.deny(ing)
			t.hold(ing)
			continue
		}
		if d, isOver := over[ing.Ref]; isOver {
			t.found = append(t.found, d)
			t.deny(ing)
			t.hold(ing)
			continue
		}
		found, unusable := validate(ing, t.usesExpressions(ing))
		for _, d := range unusable {
			t.found = append(t.found, d)
		}
		isCanary := options.IsCanary(ing.Value.Annotations)
		if len(found) > 0 || isCanary && len(unusable) > 0 || t.cfg.Refused[ing.Ref] {
			t.found = append(t.found, found...)
			t.deny(ing)
			t.hold(ing)
			continue
		}
		if !isCanary && t.isForeignCanary(ing) {
			continue
		}
		if isCanary {
			canaries = append(canaries, ing)
			continue
		}
		t.ingress(ing, unusable)
	}
	t.tcpServices(in.Services)
	t.defaultCertificate()
	for _, ing := range canaries {
		t.canary(ing)
	}
	t.dropReplaced()
	t.reportSharedCookies()
	t.tellOwners()
	return t.model(), bounded(t.found)
}

// leftOut reports whether an Ingress is refused and has no routes, since it protects nothing, or
// not even closed ones can be had.
func (t *translation) leftOut(ing ingress) bool {
	return t.cfg.Dropped[ing.Ref] || t.cfg.Refused[ing.Ref] && !t.protects(ing)
}

// byAge returns the Ingresses oldest first, then by namespace and name: the
// order in which they get what they claim. One without a creation time has not
// been created yet, so that it comes last.
func byAge(ingresses []ingress) []ingress {
	return slices.SortedFunc(slices.Values(ingresses), func(a, b ingress) int {
		return cmp.Or(compareAge(a, b), a.Ref.Compare(b.Ref))
	})
}

func compareAge(a, b ingress) int {
	return compareTimes(a.Value.CreationTimestamp, b.Value.CreationTimestamp)
}

func compareTimes(x, y metav1.Time) int {
	switch {
	case x.IsZero() && y.IsZero():
		return 0
	case x.IsZero():
		return 1
	case y.IsZero():
		return -1
	}
	return x.Compare(y.Time)
}

// precedes says why an Ingress comes before another.
func precedes(winner, loser ingress) string {
	switch {
	case winner.Ref == loser.Ref:
		return "this same Ingress, further up"
	case compareAge(winner, loser) < 0:
		return winner.Ref.String() + ", which is older"
	}
	return winner.Ref.String() + ", which is as old and comes first by name"
}

// translation collects the model of one call of [Translate].
type translation struct {
	cfg        Config
	services   map[snapshots.SecretName]inputs.Object[corev1.Service]
	secrets    lookup[corev1.Secret]
	configMaps lookup[corev1.ConfigMap]

	owners     map[string]*owner    // by host of the model
	routed     map[string]bool      // hosts of the model that a rule or an alias names
	held       []ingress            // that are left out, and protect nothing
	sharedWith map[sharing][]string // namespaces

	hosts    map[string]*virtualHost
	backends map[string]*Backend
	aliases  map[diag.Object][]string
	replaced map[string]bool                         // backends that a route has left
	closed   map[string]bool                         // backends that lack what is to protect them
	fallback *claim                                  // of the default backend
	asked    asked                                   // by the Ingress at hand
	offered  map[snapshots.SecretName]options.Values // by the Services that were met
	users    map[snapshots.SecretName]*Userlist
	lists    map[policy.NetworkList]*NetworkList // those that were read; nil is malformed
	tls      map[string]*tlsClaim
	clients  map[string]*clientClaim
	certs    map[string]*Certificate // by file
	kinds    map[string]string       // of their keys, by file
	pages    []ErrorPage
	standard string // the file of the default certificate
	classes  classes
	// parameters are those of the classes that are ours, by class.
	parameters map[string]*parameters
	found      []diag.Diagnostic

	listBytes map[string]int // of the lists that were named, by namespace

	expressions map[string]int              // how many, by namespace
	listeners   map[int]*connectionListener // by port
	connections map[string]*Backend
	passed      map[string]hostClaim // by host

	shutOnes []diag.Object           // Ingresses: see [translation.deny]
	barred   map[sharing]diag.Object // by which dropped Ingress: see [translation.bar]
}

// virtualHost is a host with its routes, by what they match.
type virtualHost struct {
	origin Origin
	form   PathForm
	// held says that a rule for the host was left out, so that more than its routes are its
	// owner's.
	held   bool
	open   bool // an Ingress of its owner serves it to clients without a certificate too
	routes map[PathMatch]claim
	// expressions are the paths of routes that are some.
	expressions []string
}

// claim is a route or default backend, and the Ingress that has it.
type claim struct {
	by      ingress
	backend string
	origin  Origin
	guard   guarding
	// before are routes for the same path that are tried first, and sharedBy is
	// the canary that they are for.
	before   []Route
	sharedBy *ingress
	// fallback is the backend for when the others have no usable server, or "".
	fallback string
}

func newTranslation(in inputs.Inputs, cfg Config) *translation {
	return &translation{
		cfg:        cfg,
		services:   byName(in.Services),
		secrets:    newLookup(in.Secrets),
		configMaps: newLookup(in.ConfigMaps),
		parameters: map[string]*parameters{},
		owners:     map[string]*owner{},
		routed:     map[string]bool{},
		sharedWith: map[sharing][]string{},
		hosts:      map[string]*virtualHost{},
		backends:   map[string]*Backend{},
		aliases:    map[diag.Object][]string{},
		replaced:   map[string]bool{},
		closed:     map[string]bool{},
		offered:    map[snapshots.SecretName]options.Values{},
		users:      map[snapshots.SecretName]*Userlist{},
		lists:      map[policy.NetworkList]*NetworkList{},
		tls:        map[string]*tlsClaim{},
		clients:    map[string]*clientClaim{},
		certs:      map[string]*Certificate{},
		kinds:      map[string]string{},
		listBytes:  map[string]int{},

		expressions: map[string]int{},
		listeners:   map[int]*connectionListener{},
		connections: map[string]*Backend{},
		passed:      map[string]hostClaim{},
		barred:      map[sharing]diag.Object{},
	}
}

func byName[T any](objects []inputs.Object[T]) map[snapshots.SecretName]inputs.Object[T] {
	out := make(map[snapshots.SecretName]inputs.Object[T], len(objects))
	for _, o := range objects {
		out[snapshots.SecretName{Namespace: o.Ref.Namespace, Name: o.Ref.Name}] = o
	}
	return out
}

// report adds a finding on an Ingress.
func (t *translation) report(severity diag.Severity, ing ingress, at diag.Position, message, hint string) {
	t.found = append(t.found, diag.Diagnostic{Severity: severity, Position: at, Object: ing.Ref, Message: message, Hint: hint})
}

// reportLost adds a finding on an Ingress that claims what the winner has; that
// may be the same Ingress.
func (t *translation) reportLost(severity diag.Severity, ing, winner ingress, at diag.Position, message, hint string) {
	t.report(severity, ing, at, message, hint)
	t.found[len(t.found)-1].Conflict = winner.Ref != ing.Ref
}

// model returns what was collected, sorted.
func (t *translation) model() Model {
	m := Model{DefaultCertificate: t.standard, Asked: Asked{Secrets: t.secrets.names(), ConfigMaps: t.configMaps.names()}}
	t.reserveHeaders()
	m.Held, m.Shut = t.heldHosts(), t.shutOnes
	for _, name := range slices.Sorted(maps.Keys(t.hosts)) {
		m.Hosts = append(m.Hosts, t.modelHost(name))
	}
	m.Backends = modelBackends(t.backends)
	m.Listeners, m.ConnectionBackends = t.modelListeners(), modelBackends(t.connections)
	m.ServerNames = t.serverNames()
	for _, file := range slices.Sorted(maps.Keys(t.certs)) {
		m.Certificates = append(m.Certificates, *t.certs[file])
	}
	m.Userlists, m.NetworkLists = t.modelUsers(), t.modelNetworks()
	m.ErrorPages = t.pages
	if t.fallback != nil {
		m.Default, m.DefaultOrigin = t.fallback.backend, t.fallback.origin
	}
	return m
}

// modelBackends returns backends as the model has them.
func modelBackends(backends map[string]*Backend) []Backend {
	var out []Backend
	for _, name := range slices.Sorted(maps.Keys(backends)) {
		b := *backends[name]
		slices.SortFunc(b.Origins, Origin.compare)
		slices.Sort(b.Prefixes)
		b.Prefixes = slices.Compact(b.Prefixes)
		b.Expressions = sortedExpressions(b.Expressions)
		out = append(out, b)
	}
	return out
}

// modelHost returns a virtual host as the model has it, and tells backends
// which prefixes their filters replace.
func (t *translation) modelHost(name string) Host {
	h := t.hosts[name]
	out := Host{Name: name, Form: h.form, Origin: h.origin}
	_, all := h.routes[PathMatch{Type: Prefix}]
	out.Closed = !all && t.isClosed(name, h.held)
	out.Guards = t.guards(name, out.Closed)
	for match, c := range h.routes {
		for _, r := range c.modelRoutes() {
			b := t.backends[r.Backend]
			r.Match.PathMatch, r.Filters = match, b.Filters
			out.Routes = append(out.Routes, r)
			switch {
			case !replacesPrefix(b.Filters):
			case match.Type == Expression:
				b.Expressions = append(b.Expressions, backendExpression(match.Path))
			default:
				b.Prefixes = append(b.Prefixes, strings.TrimSuffix(match.Path, "/"))
			}
		}
	}
	out.Expressions = h.expressionRoutes()
	t.reportUnreached(h, name)
	slices.SortStableFunc(out.Routes, func(a, b Route) int { return a.Match.compare(b.Match.PathMatch) })
	return out
}

// mostFindings is how many findings there are on one object. Each becomes an Event and a line of
// the log: those of an object with thousands of mistakes would be in the way of what others are
// told.
const mostFindings = 100

// bounded sorts findings, and leaves out those of an object that has too many, but for the last,
// which says how many more there are.
func bounded(found []diag.Diagnostic) []diag.Diagnostic {
	found = diag.Sort(found)
	count := map[diag.Object]int{}
	for _, d := range found {
		count[d.Object]++
	}
	seen := map[diag.Object]int{}
	more := map[diag.Object]int{} // where in out
	out := found[:0:0]
	for _, d := range found {
		switch seen[d.Object]++; {
		case d.Object == diag.Object{} || count[d.Object] <= mostFindings || seen[d.Object] < mostFindings:
			out = append(out, d)
		case seen[d.Object] == mostFindings:
			more[d.Object] = len(out)
			d.Message = fmt.Sprintf("there are %d more findings on this object like these, which are not listed", count[d.Object]-mostFindings+1)
			d.Hint = "mend those that are"
			out = append(out, d)
		default:
			last := &out[more[d.Object]]
			last.Severity, last.Conflict = max(last.Severity, d.Severity), last.Conflict && d.Conflict
		}
	}
	return out
}

// Mistakes returns the errors of an Ingress that are there whatever else there is, sorted:
// fields that break a rule of the API, paths that cannot be matched, values of options, and
// what another controller would have protected. It costs next to nothing. An Ingress without
// any may still be at fault beside others, or for HAProxy.
func Mistakes(ing inputs.Object[networkingv1.Ingress], cfg Config) []diag.Diagnostic {
	t := newTranslation(inputs.Inputs{}, cfg.withDefaults())
	found, unusable := validate(ing, t.usesExpressions(ing))
	if _, own := ing.Value.Annotations[options.Prefix+options.PathType]; !own {
		// Its class may say that paths are expressions.
		_, asExpressions := validate(ing, true)
		maps.DeleteFunc(unusable, func(at pathAt, _ diag.Diagnostic) bool { _, wrong := asExpressions[at]; return !wrong })
	}
	t.found = slices.Concat(found, slices.Collect(maps.Values(unusable)))
	_, problems := options.Read(options.OnIngress, ing.Value.Annotations)
	t.reportProblems(ing.Ref, ing.Position, problems)
	t.heedForeign(ing)
	return diag.Sort(slices.DeleteFunc(t.found, func(d diag.Diagnostic) bool { return d.Severity != diag.Error }))
}
