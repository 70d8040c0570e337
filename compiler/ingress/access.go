package ingress

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/live"
)

// userlists are the lists of users that backends name.
type userlists struct {
	*findings
	secrets       lookup[corev1.Secret]
	secretsUnseen bool
	lists         map[snapshots.SecretName]*routing.Userlist
}

// take gives the users of a Secret a list. It is there even if the Secret is not: then it has no
// users, and nobody gets in.
func (u *userlists) take(d usersDemand) {
	list := u.lists[d.secret]
	if list == nil {
		list = &routing.Userlist{Name: userlistName(d.secret), Secret: d.secret}
		u.lists[d.secret] = list
		u.check(d.secret)
	}
	if _, exists := u.secrets.find(types.NamespacedName(d.secret)); !exists {
		u.add(d.spot.finding(diag.Warning, ": "+notSeen(d.secret, u.secretsUnseen), "nobody gets in until it does where snapshots are pushed"))
	}
	if n := len(list.Origins); n == 0 || list.Origins[n-1] != d.spot.origin {
		list.Origins = append(list.Origins, d.spot.origin)
	}
}

// check reports the users of a Secret who cannot be let in, or at a cost.
func (u *userlists) check(name snapshots.SecretName) {
	secret, exists := u.secrets.find(types.NamespacedName(name))
	if !exists {
		return
	}
	at := secret.Position("data", bind.UsersKey)
	if plain := secret.Position("stringData", bind.UsersKey); plain.Line > at.Line {
		at = plain // of the two, the one that is there
	}
	report := func(severity diag.Severity, message, hint string) {
		u.add(diag.Diagnostic{Severity: severity, Position: at, Object: secret.Ref, Message: message, Hint: hint})
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

// model returns the lists of users as the model has them.
func (u *userlists) model() []routing.Userlist {
	var out []routing.Userlist
	for _, list := range u.lists {
		slices.SortFunc(list.Origins, routing.Origin.Compare)
		list.Origins = slices.Compact(list.Origins)
		out = append(out, *list)
	}
	slices.SortFunc(out, func(a, b routing.Userlist) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// networkLists are the lists of networks that backends name.
type networkLists struct {
	*findings
	configMaps lookup[corev1.ConfigMap]
	countries  *countries
	shared     []string                                    // ConfigMaps that every namespace may name
	most       int                                         // bytes of a namespace's; 0 for any number
	lists      map[policy.NetworkList]*routing.NetworkList // those that were read; nil is malformed
	bytes      map[string]int                              // of those that were named, by namespace
}

// take takes lists into the model, and reports whether all of them can be had.
func (n *networkLists) take(demands lists) bool {
	ok := true
	for _, d := range demands.networks {
		if message, hint := n.find(d); message != "" {
			n.add(d.spot.closes(fmt.Sprintf(": list %s %s", d.list, message), hint))
			ok = false
		}
	}
	return n.countries.take(demands.countries) && ok
}

// find takes a list into the model, or says why it cannot.
func (n *networkLists) find(d listDemand) (message, hint string) {
	list, name := d.list, types.NamespacedName{Namespace: d.list.Namespace, Name: d.list.ConfigMap}
	isShared := slices.Contains(n.shared, name.String())
	if name.Namespace != d.by && !isShared {
		return "is of another namespace, which does not share it", "copy it, or have " + name.String() + " added to shared.networkLists of the configuration"
	}
	configMap, exists := n.configMaps.find(name)
	if !exists {
		return fmt.Sprintf("cannot be read: ConfigMap %s does not exist", name), "create it, or correct the name"
	}
	text, exists := configMap.Value.Data[list.Key]
	if !exists {
		return fmt.Sprintf("cannot be read: ConfigMap %s has no key %s", name, list.Key), "add it, or correct the name"
	}
	if _, known := n.lists[list]; !known {
		if !isShared {
			if message, hint = n.tooLarge(list.Namespace, len(text)); message != "" {
				return message, hint
			}
		}
		n.lists[list] = n.read(list, configMap, text)
	}
	if n.lists[list] == nil {
		return "is malformed", "see the message on ConfigMap " + name.String()
	}
	return "", ""
}

// tooLarge says that the lists of a namespace are over the limit with one more of so many
// bytes, which counts then or not at all.
func (n *networkLists) tooLarge(namespace string, bytes int) (message, hint string) {
	if all := n.bytes[namespace] + bytes; n.most > 0 && all > n.most {
		return fmt.Sprintf("is too large: with it, the lists that are named of namespace %s would have %d bytes, and may have %d", namespace, all, n.most),
			"make it smaller, or have limits.namespaceListBytes of the configuration raised"
	}
	n.bytes[namespace] += bytes
	return "", ""
}

// read returns a list, or nil if anything of it is wrong, and says so.
func (n *networkLists) read(list policy.NetworkList, configMap inputs.Object[corev1.ConfigMap], text string) *routing.NetworkList {
	networks, wrong := options.ParseNetworks(text)
	if len(wrong) == 0 {
		slices.SortFunc(networks, comparePrefixes)
		return &routing.NetworkList{NetworkList: list, Networks: slices.Compact(networks), Origin: originOf(configMap, "data", list.Key)}
	}
	more := ""
	if n := len(wrong) - 1; n > 0 {
		more = fmt.Sprintf(", and %d more are wrong", n)
	}
	n.add(diag.Diagnostic{
		Severity: diag.Error, Position: configMap.Position("data", list.Key), Object: configMap.Ref, Hint: wrong[0].Hint,
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

// model returns the lists of networks as the model has them.
func (n *networkLists) model() []routing.NetworkList {
	var out []routing.NetworkList
	for _, list := range n.lists {
		if list != nil {
			out = append(out, *list)
		}
	}
	slices.SortFunc(out, func(a, b routing.NetworkList) int { return cmp.Compare(a.String(), b.String()) })
	return out
}

// clientsHeaders are those, in lower case, that clients send on their own account, and that
// endpoints do not believe as they are. Where a service that is asked for authentication answers
// with one, such as Authorization, it is still a client's on routes where none is asked.
var clientsHeaders = map[string]bool{
	"authorization": true, "cookie": true, "accept": true, "accept-encoding": true, "accept-language": true, "content-type": true,
	"origin": true, "referer": true, "user-agent": true, "x-requested-with": true, "x-request-id": true, "x-csrf-token": true, "x-xsrf-token": true,
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

// reserveHeaders has requests lose, on all routes to a Service, the headers by which a service
// that is asked for authentication on some of them tells of the user. Endpoints do not see by
// which route a request came, and would believe what a client wrote.
func reserveHeaders(backends map[string]*routing.Backend, allow []string) {
	all := slices.Collect(maps.Values(backends))
	reserve(all, all, allow)
}

// ReserveHeaders does the same for backends that others than Ingresses bring, and that lead to Services of
// which backends of Ingresses say who asks.
func ReserveHeaders(backends, ofIngresses []routing.Backend, allow []string) {
	var to, from []*routing.Backend
	for i := range backends {
		to = append(to, &backends[i])
	}
	for i := range ofIngresses {
		from = append(from, &ofIngresses[i])
	}
	reserve(to, from, allow)
}

// reserve has backends remove headers that others of the same Service set.
func reserve(backends, by []*routing.Backend, allow []string) {
	allowed := map[string]bool{}
	for _, name := range allow {
		allowed[strings.ToLower(name)] = true
	}
	reserved := map[types.NamespacedName]map[string]bool{} // names in lower case, by Service
	for _, b := range by {
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
	for _, b := range backends {
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
