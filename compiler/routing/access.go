package routing

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
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

// clientClaim is what the clients of a host are asked for when they connect, and
// the Ingress that said so first.
type clientClaim struct {
	by        ingress
	authority snapshots.SecretName
	required  bool // by all Ingresses that ask for it
	origin    Origin
}

// askClients has the clients of the Ingress's hosts asked for certificates. They
// are asked when they connect, before there is a request, so that one authority
// holds for all of a host; where it cannot be had, the routes are closed.
func (t *translation) askClients(ing ingress) {
	asked := t.asked.clients
	if asked.Authority == "" || t.asked.values.Closed {
		return
	}
	at := originOf(ing, annotationPath("client-ca-secret")...)
	authority := snapshots.SecretName{Namespace: ing.Ref.Namespace, Name: asked.Authority}
	hosts := append(ruleHosts(ing.Value.Spec.Rules), t.asked.aliases...)
	if message, hint := t.cannotAsk(ing, authority, hosts); message != "" {
		t.asked.refused = true
		t.report(diag.Error, ing, at.Position, "annotation "+options.Prefix+"client-ca-secret "+message+"; the routes that it protects answer 503", hint)
		return
	}
	t.authority(ing, authority, at)
	for _, host := range hosts {
		host = normalHost(host)
		claim := t.clients[host]
		if claim == nil {
			claim = &clientClaim{by: ing, authority: authority, required: true, origin: at}
			t.clients[host] = claim
		}
		claim.required = claim.required && asked.Check.Required && asked.Check.ErrorPage == ""
	}
}

// cannotAsk says why clients cannot be asked for certificates of an authority.
func (t *translation) cannotAsk(ing ingress, authority snapshots.SecretName, hosts []string) (message, hint string) {
	if ing.Value.Spec.DefaultBackend != nil {
		return "is for hosts, and there is a defaultBackend", "clients are asked when they connect, by host: give rules with hosts"
	}
	for _, rule := range ing.Value.Spec.Rules {
		if rule.Host == "" {
			return "is for hosts, and a rule names none", "clients are asked when they connect, by host: give rules with hosts"
		}
	}
	for _, host := range hosts {
		switch s, o := t.standingOf(ing, hostName(host)); {
		case s != owns && o == nil:
			return fmt.Sprintf("asks nothing of clients of host %s, which is in a domain that is reserved for other namespaces", host), "use another host"
		case s != owns:
			return fmt.Sprintf("asks nothing of clients of host %s: that is up to its owner, namespace %s, by %s", host, o.namespace(), precedes(o.by, ing)), "use a host of your own"
		}
		if claim := t.clients[normalHost(host)]; claim != nil && claim.authority != authority {
			return fmt.Sprintf("cannot ask for certificates of Secret %s: clients of host %s are asked for those of Secret %s by %s",
				authority, host, claim.authority, precedes(claim.by, ing)), "name the same Secret in both" + winnerAt(claim.origin)
		}
	}
	return "", ""
}

// servesAll reports whether the Ingress at hand serves clients without a
// certificate too.
func (t *translation) servesAll() bool {
	return t.asked.clients.Authority == "" && !t.asked.denied && !t.asked.values.Closed
}

func (t *translation) isOpen(host string) bool {
	h := t.hosts[host]
	return h != nil && h.open
}

// clientCheck returns what the clients of a host are asked for when they
// connect, nil if nothing. One who shows none is only refused then if no Ingress
// serves the host to such; else its requests are, where they are not served.
func (t *translation) clientCheck(host string) *ClientCheck {
	claim := t.clients[host]
	if claim == nil {
		return nil
	}
	return &ClientCheck{Authority: authorityFile(claim.authority), Required: claim.required && !t.isOpen(hostName(host))}
}

// NetworkList is a list of networks that a backend names. It is a file of its
// own, one for all backends, since a list may have many thousands.
type NetworkList struct {
	policy.NetworkList
	Networks []netip.Prefix // sorted, each once
	Origin   Origin         // in the ConfigMap
}

// findLists finds the lists that a protection names, and reports whether all
// of them can be had.
func (t *translation) findLists(p *policy.Protection, by asker) bool {
	ok := t.findListsOf(&p.Allow, "allow-list", by)
	ok = t.findListsOf(&p.Deny, "deny-list", by) && ok
	if p.Rate != nil {
		ok = t.findListsOf(&p.Rate.Exempt, "rate-limit-exempt", by) && ok
	}
	return ok
}

// findListsOf finds the lists of one option.
func (t *translation) findListsOf(n *policy.Networks, option string, by asker) bool {
	lists := slices.Clone(n.Lists) // which other backends read too
	n.Lists = lists
	ok := true
	for i := range lists {
		if lists[i].Namespace == "" {
			lists[i].Namespace = by.ingress.Ref.Namespace
		}
		if message, hint := t.findList(lists[i], by); message != "" {
			by.report(t, option, fmt.Sprintf(": list %s %s", lists[i], message), hint)
			ok = false
		}
	}
	return ok
}

// findList takes a list into the model, or says why it cannot.
func (t *translation) findList(list policy.NetworkList, by asker) (message, hint string) {
	name := snapshots.SecretName{Namespace: list.Namespace, Name: list.ConfigMap}
	if name.Namespace != by.ingress.Ref.Namespace && !slices.Contains(t.cfg.SharedLists, name.String()) {
		return "is of another namespace, which does not share it", "copy it, or have " + name.String() + " added to shared.networkLists of the configuration"
	}
	configMap, exists := t.configMaps.find(name)
	if !exists {
		return fmt.Sprintf("is not to be had: ConfigMap %s does not exist", name), "create it, or correct the name"
	}
	text, exists := configMap.Value.Data[list.Key]
	if !exists {
		return fmt.Sprintf("is not to be had: ConfigMap %s has no key %s", name, list.Key), "add it, or correct the name"
	}
	if _, known := t.lists[list]; !known {
		if !slices.Contains(t.cfg.SharedLists, name.String()) {
			if message, hint = t.listTooLarge(list.Namespace, len(text)); message != "" {
				return message, hint
			}
		}
		t.lists[list] = t.readList(list, configMap, text)
	}
	if t.lists[list] == nil {
		return "is malformed", "see what is said of ConfigMap " + name.String()
	}
	return "", ""
}

// readList returns a list, or nil if anything of it is wrong, and says so.
func (t *translation) readList(list policy.NetworkList, configMap inputs.Object[corev1.ConfigMap], text string) *NetworkList {
	networks, wrong := options.ParseNetworks(text)
	at := configMap.Position("data", list.Key)
	if len(wrong) == 0 {
		slices.SortFunc(networks, comparePrefixes)
		return &NetworkList{list, slices.Compact(networks), originOf(configMap, "data", list.Key)}
	}
	more := ""
	if n := len(wrong) - 1; n > 0 {
		more = fmt.Sprintf(", and %d more are wrong", n)
	}
	t.found = append(t.found, diag.Diagnostic{
		Severity: diag.Error, Position: at, Object: configMap.Ref, Hint: wrong[0].Hint,
		Message: fmt.Sprintf("key %s, line %d: %s%s; the routes that are protected by this list answer 503", list.Key, wrong[0].Line, wrong[0].Message, more),
	})
	return nil
}

func comparePrefixes(a, b netip.Prefix) int {
	if c := a.Addr().Compare(b.Addr()); c != 0 {
		return c
	}
	return a.Bits() - b.Bits()
}

// modelNetworks returns the lists of networks as the model has them.
func (t *translation) modelNetworks() []NetworkList {
	var out []NetworkList
	for _, list := range t.lists {
		if list != nil {
			out = append(out, *list)
		}
	}
	slices.SortFunc(out, func(a, b NetworkList) int { return cmp.Compare(a.String(), b.String()) })
	return out
}
