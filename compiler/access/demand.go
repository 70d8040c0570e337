package access

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/internal/manifests"
	"github.com/hapsnap/hapsnap/snapshots"
)

// Spot is the place of an option that applies, and its name in messages.
type Spot struct {
	Origin routing.Origin
	Title  string
}

// Finding returns something to say of an option's value.
func (s Spot) Finding(severity diag.Severity, message, hint string) diag.Diagnostic {
	return diag.Diagnostic{Severity: severity, Position: s.Origin.Position, Object: s.Origin.Object, Hint: hint, Message: s.Title + message}
}

// Closes returns the finding that an option's value leads to nothing. The routes are closed for it.
func (s Spot) Closes(message, hint string) diag.Diagnostic {
	return s.Finding(diag.Error, message+"; the routes that it protects answer 503", hint)
}

// Lists are what options name that tell clients apart by their networks.
type Lists struct {
	networks  []listDemand
	countries []countryDemand
}

// listDemand is a list of networks that an option names.
type listDemand struct {
	list policy.NetworkList
	by   string // the namespace that asks
	spot Spot
}

// Users are a list of users that an option names.
type Users struct {
	secret snapshots.SecretName
	spot   Spot
}

// Service is a Service that authenticates requests, or the reason why it cannot.
type Service struct {
	Refused *diag.Diagnostic
	Found   []diag.Diagnostic // on the Service
	Backend routing.Backend   // without origins
	Origin  routing.Origin
}

// Asker are the objects whose options a backend carries, all of one namespace.
type Asker struct {
	Namespace string
	// Spot returns the place of the value of an option that applies.
	Spot func(option string) Spot
	// SharedServices are those, as namespace/name, that every namespace may ask for authentication.
	SharedServices []string
	// Inspection says which agents there are.
	Inspection Inspection
	// Service returns a Service, and Port what a port of it leads to.
	Service func(types.NamespacedName) (inputs.Object[corev1.Service], bool)
	Port    func(service inputs.Object[corev1.Service], number int) Port
}

// Port is what a port of a Service leads to. Without targets, Message says why.
type Port struct {
	Name          string // of a backend for it
	Targets       []routing.Target
	Message, Hint string
}

// FindLists names the lists that a protection names by their namespaces, and returns them.
func FindLists(p *policy.Protection, by Asker) Lists {
	var out Lists
	find := func(n *policy.Networks, option string) {
		n.Lists = slices.Clone(n.Lists) // which others read too
		for i := range n.Lists {
			if n.Lists[i].Namespace == "" {
				n.Lists[i].Namespace = by.Namespace
			}
			out.networks = append(out.networks, listDemand{n.Lists[i], by.Namespace, by.Spot(option)})
		}
	}
	find(&p.Allow, "allow-list")
	find(&p.Deny, "deny-list")
	if p.Rate != nil {
		rate := *p.Rate
		p.Rate = &rate
		find(&rate.Exempt, "rate-limit-exempt")
	}
	if len(p.AllowCountries) > 0 {
		out.countries = append(out.countries, countryDemand{p.AllowCountries, by.Spot(options.AllowCountries)})
	}
	if len(p.DenyCountries) > 0 {
		out.countries = append(out.countries, countryDemand{p.DenyCountries, by.Spot(options.DenyCountries)})
	}
	return out
}

// FindUsers gives the users of a Secret a list. It is there even if the Secret is not: then it has no
// users, and nobody gets in.
func FindUsers(s *options.Settings, by Asker) *Users {
	basic := *s.Basic
	secret := snapshots.SecretName{Namespace: by.Namespace, Name: basic.Secret}
	basic.Users = userlistName(secret)
	s.Basic = &basic
	return &Users{secret, by.Spot("auth-basic")}
}

// userlistName names the list of the users of a Secret. Neither part holds an underscore, so that
// no two lists are confused.
func userlistName(secret snapshots.SecretName) string { return secret.Namespace + "_" + secret.Name }

// FindService gives the Service that is asked a backend of its own: its servers are found there,
// whatever they are today.
func FindService(s *options.Settings, by Asker) *Service {
	a := *s.External
	s.External = &a
	if a.Service.Namespace == "" {
		a.Service.Namespace = by.Namespace
	}
	spot := by.Spot("auth-url")
	out := &Service{Origin: spot.Origin}
	name := types.NamespacedName{Namespace: a.Service.Namespace, Name: a.Service.Name}
	refuse := func(message, hint string) *Service {
		d := spot.Closes(": "+message, hint)
		out.Refused = &d
		return out
	}
	if name.Namespace != by.Namespace && !slices.Contains(by.SharedServices, name.String()) {
		return refuse(fmt.Sprintf("Service %s is of another namespace, which does not share it", name),
			"use one of the same namespace, or have it added to shared.authServices of the configuration")
	}
	service, exists := by.Service(name)
	if !exists {
		return refuse(fmt.Sprintf("Service %s does not exist", name), "create it, or correct the name")
	}
	r := by.Port(service, a.Service.Port)
	if len(r.Targets) == 0 {
		return refuse(r.Message, r.Hint)
	}
	values, problems := options.Read(options.OnService, service.Value.Annotations)
	out.Found = options.Diagnostics(service.Ref, service.Position, problems)
	settings, _, closed := options.Resolve(values)
	if u := settings.Upstream; closed || u.TLS != nil || (u.Protocol != "" && u.Protocol != policy.HTTP1) || u.ProxyProtocol != 0 {
		return refuse(fmt.Sprintf("Service %s is spoken to in another way than HTTP/1.1 in the clear", name),
			"only that is supported towards an authentication service; see the annotations of the Service")
	}
	if external := r.Targets[0].Name; external != nil {
		a.Host = fmt.Sprintf("%s:%d", external.Host, external.Port)
	}
	// Three underscores tell it from the backends of routes.
	a.Backend = "auth_" + r.Name
	upstream := settings.Upstream
	upstream.Affinity = nil // there are no sessions to keep
	out.Backend = routing.Backend{Name: a.Backend, Targets: r.Targets}
	if upstream != (policy.Upstream{}) {
		out.Backend.Upstream = &upstream
	}
	return out
}

// originOf returns an object and the place of a field in it.
func originOf[T any](o inputs.Object[T], path ...any) routing.Origin {
	return routing.Origin{Object: o.Ref, Position: o.Position(path...), Field: manifests.FieldPath(path)}
}
