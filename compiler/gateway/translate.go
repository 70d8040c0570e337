package gateway

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway/attach"
	"github.com/hapsnap/hapsnap/compiler/gateway/layout"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/internal/objectname"
)

// Config says which Gateways are translated.
type Config struct {
	// Controller is the controllerName of the GatewayClasses that are ours.
	Controller string
	// Addresses are those that Gateways get for themselves; with none, they share the configuration's,
	// and the Ports.
	Addresses []netip.Prefix
	// Services are those that are made for Gateways.
	Services Services
	// Ports are those that Gateways cannot have, and what has them.
	Ports map[int]string
	// Form is the one in which paths are compared.
	Form routing.PathForm
	// SecretsUnseen says that no Secret is looked at, and that none is missing.
	SecretsUnseen bool
	// MostRoutes is how many matches, once for each of their hosts, the routes of a namespace may have;
	// 0 is no limit.
	MostRoutes int
	// MostAuthorityBytes is how many bytes the certificate authorities may have that objects of a namespace
	// ask for; 0 is no limit.
	MostAuthorityBytes int
}

// Translate returns what Gateways that are ours and their routes bring to a model, the findings on them,
// sorted, and what their status is to say. It is a pure function; the order of the inputs takes no part.
func Translate(in inputs.Inputs, cfg Config) (routing.Model, []diag.Diagnostic, Verdicts) {
	if len(in.Gateway.Classes) == 0 {
		return routing.Model{}, nil, Verdicts{}
	}
	t := &translation{cfg: cfg, binds: map[string]*bind{}, secrets: map[types.NamespacedName]inputs.Object[corev1.Secret]{}, certificates: map[string]routing.Certificate{}, routes: map[string]int{}, parts: map[string]map[string]bool{}}
	for _, s := range in.Secrets {
		t.secrets[types.NamespacedName{Namespace: s.Ref.Namespace, Name: s.Ref.Name}] = s
	}
	t.backends = &backends{services: map[types.NamespacedName]inputs.Object[corev1.Service]{}, byName: map[string]*routing.Backend{}, ofConnections: map[string]*routing.Backend{}, splits: map[string]routing.Split{}, closed: map[diag.Object]diag.Position{}, overruled: map[diag.Object]overruling{}}
	for _, s := range in.Services {
		t.backends.services[types.NamespacedName{Namespace: s.Ref.Namespace, Name: s.Ref.Name}] = s
	}
	t.world.Namespaces = map[string]labels.Set{}
	for _, n := range in.Namespaces {
		t.world.Namespaces[n.Ref.Name] = n.Value.Labels
	}
	t.world.Grants = in.Gateway.Grants
	t.authorities = newAuthorities(in, cfg.MostAuthorityBytes)
	t.gateways(in.Gateway)
	t.backends.world, t.backends.policies = t.world, newPolicies(t, in.Gateway.Policies)
	routes := slices.Clone(in.Gateway.HTTPRoutes)
	for _, r := range in.Gateway.GRPCRoutes {
		routes = append(routes, asHTTP(r))
	}
	for _, r := range sorted(append(routes, connectionRoutes(in.Gateway)...)) {
		t.route(r)
	}
	for _, g := range t.world.Gateways {
		v := gatewayVerdict(g)
		v.Service = t.service(g)
		t.verdicts.Gateways = append(t.verdicts.Gateways, v)
		for _, s := range g.Sets {
			t.verdicts.Sets = append(t.verdicts.Sets, setVerdict(s))
		}
	}
	t.verdicts.Policies = t.backends.policies.verdicts()
	for service, o := range t.backends.overruled {
		t.report(diag.Warning, service, o.at, fmt.Sprintf("what its annotations say of TLS to its servers does not hold for routes of Gateways: %s does", o.by), "remove them")
	}
	for service, at := range t.backends.closed {
		t.report(diag.Error, service, at, "its annotations protect it, or need a Secret, and routes of Gateways cannot follow them: what they send to it is refused",
			"remove them, or route to it by an Ingress")
	}
	model := t.model()
	return model, diag.Sort(t.found), t.verdicts
}

type translation struct {
	cfg      Config
	world    attach.World
	backends *backends
	binds    map[string]*bind
	found    []diag.Diagnostic
	verdicts Verdicts

	authorities  *authorities
	secrets      map[types.NamespacedName]inputs.Object[corev1.Secret]
	certificates map[string]routing.Certificate // by file

	routes map[string]int             // by namespace
	parts  map[string]map[string]bool // by namespace
}

// sorted returns objects by age and name, each name once.
func sorted[T any](objects []inputs.Object[T]) []inputs.Object[T] {
	age := func(o inputs.Object[T]) time.Time { return any(o.Value).(metav1.Object).GetCreationTimestamp().Time }
	out := slices.Clone(objects)
	slices.SortFunc(out, func(a, b inputs.Object[T]) int {
		return cmp.Or(age(a).Compare(age(b)), cmp.Compare(a.Ref.Namespace, b.Ref.Namespace), cmp.Compare(a.Ref.Name, b.Ref.Name), a.Ref.Compare(b.Ref))
	})
	seen := map[diag.Object]bool{}
	return slices.DeleteFunc(out, func(o inputs.Object[T]) bool {
		again := seen[o.Ref]
		seen[o.Ref] = true
		return again
	})
}

// report adds a finding.
func (t *translation) report(severity diag.Severity, object diag.Object, at diag.Position, message, hint string) {
	t.found = append(t.found, diag.Diagnostic{Severity: severity, Object: object, Position: at, Message: message, Hint: hint})
}

// model returns what was collected, sorted.
func (t *translation) model() routing.Model {
	var m routing.Model
	for _, file := range slices.Sorted(maps.Keys(t.certificates)) {
		c := t.certificates[file]
		m.Certificates = append(m.Certificates, c)
		m.Asked.Secrets = append(m.Asked.Secrets, types.NamespacedName(c.Secret))
	}
	for _, file := range slices.Sorted(maps.Keys(t.authorities.files)) {
		m.Authorities = append(m.Authorities, t.authorities.files[file])
	}
	m.Asked.ConfigMaps = slices.SortedFunc(maps.Keys(t.authorities.asked), objectname.Compare)
	for _, name := range slices.Sorted(maps.Keys(t.binds)) {
		b := t.binds[name]
		if b.routesConnections() {
			m.Listeners = append(m.Listeners, b.listener())
		}
		if !b.takesRequests() {
			continue
		}
		m.Binds = append(m.Binds, b.Bind)
		hosts, over := layout.Hosts(name, t.cfg.Form, b.requests())
		m.Hosts = append(m.Hosts, hosts...)
		for _, o := range over {
			t.report(diag.Error, o.Match.Origin.Object, o.Match.Origin.Position, o.String()+"; what comes after is not served", "use fewer matches for one path")
			t.verdicts.partial(o.Match.Origin.Object, fmt.Sprintf("Dropped Rule %d: %s", o.Match.Rank.Rule, o))
		}
	}
	slices.SortFunc(m.Hosts, func(a, b routing.Host) int { return cmp.Compare(a.Key(), b.Key()) })
	slices.SortFunc(m.Listeners, func(a, b routing.Listener) int { return cmp.Compare(a.Name, b.Name) })
	t.backends.model(&m)
	placeMirrors(&m)
	return m
}
