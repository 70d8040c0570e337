package ingress

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/internal/urlpath"
)

// Objects that are too large only harm their own namespace: an Ingress that exceeds a limit is left out. The oldest
// Ingresses are kept, so a new one never replaces one that is served. If an Ingress that is left out protects
// something, it is closed, and its hosts are held. The same limits apply again to closed routes and held hosts, so the
// size of what a namespace asks for is always limited.

// limit goes through the Ingresses, oldest first, and cuts those that exceed a limit to what can still be closed. For
// each of them it notes why it is left out.
func limit(ingresses []*candidate, limits config.Limits) {
	used, closed := map[string]size{}, map[string]size{}
	for _, c := range ingresses {
		s, namespace := c.size, c.Ref.Namespace
		message, hint := overLimit(limits, s, used[namespace].plus(s), namespace)
		if message == "" {
			used[namespace] = used[namespace].plus(s)
			continue
		}
		rest := s.routes
		if most := limits.NamespaceRoutes; most > 0 {
			rest = min(rest, most-closed[namespace].routes)
		}
		if most := limits.IngressRoutes; most > 0 {
			rest = min(rest, most)
		}
		if most := limits.NamespaceRouteBytes; most > 0 {
			rest = min(rest, max(0, most-closed[namespace].text)/max(1, s.longest))
		}
		if most := limits.IngressRouteBytes; most > 0 {
			rest = min(rest, most/max(1, s.longest))
		}
		if rest < s.routes {
			message += fmt.Sprintf("; of its routes only the first %d are closed, or their hosts held", rest)
		}
		closed[namespace] = closed[namespace].plus(size{routes: rest, text: min(s.text, rest*s.longest)})
		c.cut(rest)
		c.over = &diag.Diagnostic{Severity: diag.Error, Position: c.Position("spec"), Object: c.Ref, Message: message, Hint: hint}
	}
}

// overLimit says which limit an Ingress exceeds, if any. all is the size of its namespace, including this Ingress.
func overLimit(limits config.Limits, s, all size, namespace string) (message, hint string) {
	for _, l := range []struct {
		most, has      int
		what, of, name string
	}{
		{limits.IngressRoutes, s.routes, "routes", "an Ingress", "ingressRoutes"},
		{limits.IngressRouteBytes, s.text, "bytes of hosts and paths", "an Ingress", "ingressRouteBytes"},
		{limits.NamespaceRouteBytes, all.text, "bytes of hosts and paths", "the Ingresses of namespace " + namespace, "namespaceRouteBytes"},
		{limits.IngressOptionBytes, s.bytes, "bytes of options in HAProxy's backends", "an Ingress", "ingressOptionBytes"},
		{limits.NamespaceRoutes, all.routes, "routes", "the Ingresses of namespace " + namespace, "namespaceRoutes"},
		{limits.NamespaceOptionBytes, all.bytes, "bytes of options in HAProxy's backends", "the Ingresses of namespace " + namespace, "namespaceOptionBytes"},
	} {
		if l.most > 0 && l.has > l.most {
			return fmt.Sprintf("is left out: with it there would be %d %s, and %s may have %d", l.has, l.what, l.of, l.most),
				"make it smaller, or have limits." + l.name + " of the configuration raised; the oldest Ingresses of a namespace are kept"
		}
	}
	return "", ""
}

// size is the size of what an Ingress asks for.
type size struct {
	routes, text int // text is the length of their hosts and paths
	longest      int // the length of the longest of them
	bytes        int // the length of the options
}

func (s size) plus(o size) size {
	return size{s.routes + o.routes, s.text + o.text, max(s.longest, o.longest), s.bytes + o.bytes}
}

// addRoutes adds the routes of a path for some hosts.
func (s *size) addRoutes(hosts []string, path string) {
	text := len(path)
	if !routing.IsPlainPath(path) {
		text = len(urlpath.Normal(path, false))
	}
	for _, host := range hosts {
		s.routes++
		s.text += len(host) + text
		s.longest = max(s.longest, len(host)+text)
	}
}

// optionBytes returns how many bytes the options of an object have.
func optionBytes(annotations map[string]string) int {
	n := 0
	for name, value := range annotations {
		if strings.HasPrefix(name, options.Prefix) {
			n += len(name) + len(value)
		}
	}
	return n
}

// expandedBytes returns how many bytes of options the backends of an Ingress have together. own is the length of the
// options that the Ingress itself sets.
func (s source) expandedBytes(own int) int {
	ing := s.ingress
	seen := map[networkingv1.IngressServiceBackend]bool{}
	add := func(b networkingv1.IngressBackend) {
		if b.Service != nil {
			seen[*b.Service] = true
		}
	}
	if b := ing.Value.Spec.DefaultBackend; b != nil {
		add(*b)
	}
	for _, rule := range ing.Value.Spec.Rules {
		if rule.HTTP == nil {
			continue
		}
		for _, p := range rule.HTTP.Paths {
			add(p.Backend)
		}
	}
	n := own
	for b := range seen {
		service, exists := s.service(types.NamespacedName{Namespace: ing.Ref.Namespace, Name: b.Name})
		n += own
		if exists {
			n += optionBytes(service.Value.Annotations)
		}
	}
	return n
}

// cut returns an Ingress with only the first routes, and with only those tls entries that fit into the same number. The
// value is shared with others, so what changes is copied.
func cut(ing ingress, routes int) ingress {
	value := *ing.Value
	value.Spec.Rules, value.Spec.TLS = nil, nil
	_, aliases := hostOptions(ing)
	for _, rule := range ing.Value.Spec.Rules {
		most := routes / (1 + len(aliases))
		if most <= 0 {
			break
		}
		paths := 1
		if rule.HTTP != nil && len(rule.HTTP.Paths) > 0 {
			paths = min(most, len(rule.HTTP.Paths))
			rule.HTTP = &networkingv1.HTTPIngressRuleValue{Paths: rule.HTTP.Paths[:paths]}
		}
		routes -= paths * (1 + len(aliases))
		value.Spec.Rules = append(value.Spec.Rules, rule)
	}
	for _, entry := range ing.Value.Spec.TLS {
		if routes -= len(entry.Hosts); routes < 0 {
			break
		}
		value.Spec.TLS = append(value.Spec.TLS, entry)
	}
	ing.Value = &value
	return ing
}

// clientsHeaders are the headers, in lower case, that clients usually set themselves, so that endpoints do not trust
// them. An authentication service may answer with such a header, for example Authorization. On routes without
// authentication, clients may still set it.
var clientsHeaders = map[string]bool{
	"authorization": true, "cookie": true, "accept": true, "accept-encoding": true, "accept-language": true, "content-type": true,
	"origin": true, "referer": true, "user-agent": true, "x-requested-with": true, "x-request-id": true, "x-csrf-token": true, "x-xsrf-token": true,
}

// answerHeaders returns the names, in lower case, of the headers that filters take from the answer of an authentication
// service.
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

// reserveHeaders protects the headers in which an authentication service names the user. It removes them from requests
// on all routes to a Service if some of these routes use such an authentication service. Endpoints do not see by which
// route a request came, and would trust a header that a client wrote.
func reserveHeaders(backends map[string]*routing.Backend, allow []string) {
	all := slices.Collect(maps.Values(backends))
	reserve(all, all, allow)
}

// ReserveHeaders does the same for some backends, with the headers that the other backends for the same Services set.
// It is for Services to which both Gateways and Ingresses lead.
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

// reserve makes backends remove headers that other backends of the same Service set.
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
		return // nearly always
	}
	for _, b := range backends {
		names := map[string]bool{}
		for _, target := range b.Targets {
			maps.Copy(names, reserved[serviceOf(target)])
		}
		for own := range answerHeaders(b.Filters) {
			delete(names, own) // its own filter removes them
		}
		if len(names) > 0 {
			b.Filters = append([]policy.Filter{policy.ReservedHeaders{Names: slices.Sorted(maps.Keys(names))}}, b.Filters...)
		}
	}
}
