package routing

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/live"
)

// authenticate finds what settings let clients in by, and reports whether all of
// it can be had.
func (t *translation) authenticate(s *options.Settings, by asker) bool {
	if s.Basic != nil {
		t.basicAuth(s.Basic, by)
	}
	return s.External == nil || t.externalAuth(s.External, by)
}

// externalAuth gives the Service that is asked a backend of its own: its servers
// are found there, whatever they are today.
func (t *translation) externalAuth(a *policy.ExternalAuth, by asker) bool {
	if a.Service.Namespace == "" {
		a.Service.Namespace = by.ingress.Ref.Namespace
	}
	name := snapshots.SecretName{Namespace: a.Service.Namespace, Name: a.Service.Name}
	refuse := func(message, hint string) bool {
		by.report(t, "auth-url", ": "+message, hint)
		return false
	}
	if name.Namespace != by.ingress.Ref.Namespace && !slices.Contains(t.cfg.SharedAuthServices, name.String()) {
		return refuse(fmt.Sprintf("Service %s is of another namespace, which does not share it", name),
			"use one of the same namespace, or have it added to shared.authServices of the configuration")
	}
	service, exists := t.services[name]
	if !exists {
		return refuse(fmt.Sprintf("Service %s does not exist", name), "create it, or correct the name")
	}
	r := t.resolvePort(service.Value, name, networkingv1.ServiceBackendPort{Number: int32(a.Service.Port)}, fmt.Sprint(a.Service.Port))
	if len(r.targets) == 0 {
		return refuse(r.finding.message, r.finding.hint)
	}
	settings, _, closed := options.Resolve(t.serviceOptions(service))
	if u := settings.Upstream; closed || u.TLS != nil || (u.Protocol != "" && u.Protocol != policy.HTTP1) || u.ProxyProtocol != 0 {
		return refuse(fmt.Sprintf("Service %s is spoken to in another way than HTTP/1.1 in the clear", name),
			"only that is supported towards an authentication service; see the annotations of the Service")
	}
	if external := r.targets[0].Name; external != nil {
		a.Host = fmt.Sprintf("%s:%d", external.Host, external.Port)
	}
	a.Backend = t.authBackend(r, settings.Upstream, by)
	return true
}

// authBackend returns the name of the backend of a Service that is asked for
// authentication. Three underscores tell it from the backends of routes.
func (t *translation) authBackend(r resolved, upstream policy.Upstream, by asker) string {
	name := "auth_" + r.name
	b := t.backends[name]
	upstream.Affinity = nil // there are no sessions to keep
	if b == nil {
		b = &Backend{Name: name, Targets: r.targets}
		if upstream != (policy.Upstream{}) {
			b.Upstream = &upstream
		}
		t.backends[name] = b
	}
	if n := len(b.Origins); n == 0 || b.Origins[n-1].Object != by.ingress.Ref {
		b.Origins = append(b.Origins, originOf(by.ingress, annotationPath("auth-url")...))
	}
	return name
}

// Userlist are the users of a Secret, one list for all backends that name it.
// Who they are is not known before a snapshot is pushed.
type Userlist struct {
	Name    string
	Secret  snapshots.SecretName
	Origins []Origin // of those that name it, sorted
}

// basicAuth gives the users of a Secret a list. It is there even if the Secret is
// not: then it has no users, and nobody gets in.
func (t *translation) basicAuth(a *policy.BasicAuth, by asker) {
	const option = "auth-basic"
	secret := snapshots.SecretName{Namespace: by.ingress.Ref.Namespace, Name: a.Secret}
	// Neither part holds an underscore, so that no two lists are confused.
	a.Users = secret.Namespace + "_" + secret.Name
	list := t.users[secret]
	if list == nil {
		list = &Userlist{Name: a.Users, Secret: secret}
		t.users[secret] = list
		t.checkUsers(secret)
	}
	if _, exists := t.secrets.find(secret); !exists {
		by.reportAs(t, diag.Warning, option, ": "+t.notSeen(secret), "nobody gets in until it does where snapshots are pushed")
	}
	origin := by.origin(option)
	if n := len(list.Origins); n == 0 || list.Origins[n-1] != origin {
		list.Origins = append(list.Origins, origin)
	}
}

// checkUsers reports the users of a Secret who cannot be let in, or at a cost.
func (t *translation) checkUsers(name snapshots.SecretName) {
	secret, exists := t.secrets.find(name)
	if !exists {
		return
	}
	at := secret.Position("data", bind.UsersKey)
	if plain := secret.Position("stringData", bind.UsersKey); plain.Line > at.Line {
		at = plain // of the two, the one that is there
	}
	report := func(severity diag.Severity, message, hint string) {
		t.found = append(t.found, diag.Diagnostic{
			Severity: severity, Position: at, Object: secret.Ref, Message: message, Hint: hint,
		})
	}
	_, problems, ok := live.Users(*secret.Value)
	if !ok {
		report(diag.Error, "has no key "+bind.UsersKey+" with users", "nobody gets in until it has: write lines as htpasswd -B does")
	}
	for _, p := range problems {
		severity := diag.Error
		if p.Usable {
			severity = diag.Warning
		}
		report(severity, "key "+bind.UsersKey+", "+p.Error(), p.Hint)
	}
}

// modelUsers returns the lists of users as the model has them.
func (t *translation) modelUsers() []Userlist {
	var out []Userlist
	for _, list := range t.users {
		slices.SortFunc(list.Origins, Origin.compare)
		list.Origins = slices.Compact(list.Origins)
		out = append(out, *list)
	}
	slices.SortFunc(out, func(a, b Userlist) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// clientsHeaders are those, in lower case, that clients send on their own account, and that
// endpoints do not believe as they are. Where a service that is asked for authentication answers
// with one, such as Authorization, it is still a client's on routes where none is asked.
var clientsHeaders = map[string]bool{
	"authorization": true, "cookie": true, "accept": true, "accept-encoding": true, "accept-language": true, "content-type": true,
	"origin": true, "referer": true, "user-agent": true, "x-requested-with": true, "x-request-id": true, "x-csrf-token": true, "x-xsrf-token": true,
}

// reserveHeaders has requests lose, on all routes to a Service, the headers by which a service
// that is asked for authentication on some of them tells of the user. Endpoints do not see by
// which route a request came, and would believe what a client wrote.
func (t *translation) reserveHeaders() {
	allowed := map[string]bool{}
	for _, name := range t.cfg.AllowHeaders {
		allowed[strings.ToLower(name)] = true
	}
	reserved := map[snapshots.SecretName]map[string]bool{} // names in lower case, by Service
	for _, b := range t.backends {
		for name := range answerHeaders(b.Filters) {
			if clientsHeaders[name] || allowed[name] {
				continue
			}
			for _, target := range b.Targets {
				if reserved[serviceOf(target)] == nil {
					reserved[serviceOf(target)] = map[string]bool{}
				}
				reserved[serviceOf(target)][name] = true
			}
		}
	}
	if len(reserved) == 0 {
		return // as mostly
	}
	for _, b := range t.backends {
		names := map[string]bool{}
		for _, target := range b.Targets {
			maps.Copy(names, reserved[serviceOf(target)])
		}
		for own := range answerHeaders(b.Filters) {
			delete(names, own) // its filter removes them itself
		}
		if len(names) > 0 {
			b.Filters = append([]policy.Filter{policy.ReservedHeaders{Names: slices.Sorted(maps.Keys(names))}}, b.Filters...)
		}
	}
}

// answerHeaders returns the names, in lower case, of the headers that filters take from the answer
// of a service that is asked for authentication.
func answerHeaders(filters []policy.Filter) map[string]bool {
	names := map[string]bool{}
	for _, f := range filters {
		if external, ok := f.(policy.ExternalAuth); ok {
			for _, name := range external.AnswerHeaders {
				names[strings.ToLower(name)] = true
			}
		}
	}
	return names
}
