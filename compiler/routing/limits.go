package routing

import (
	"fmt"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/snapshots"
)

// Objects of absurd size cost their namespace, and nobody else: what is over a limit is left
// out. The oldest Ingresses are kept, so that a new one never throws out one that is served. One
// that is left out is closed where it protects something, and its hosts are held, up to the same
// limits once more; so what a namespace can ask for is bounded, whatever its objects hold.

// size is what an Ingress asks of a compile.
type size struct {
	routes, text int // text is the bytes of their hosts and paths
	longest      int // of one of them
	bytes        int // of options
}

func (s size) plus(o size) size {
	return size{s.routes + o.routes, s.text + o.text, max(s.longest, o.longest), s.bytes + o.bytes}
}

// limited returns the Ingresses, oldest first as they come, of which those that are over a limit
// hold no more than can be closed; and why each of those is left out.
func (t *translation) limited(ingresses []ingress) ([]ingress, map[diag.Object]diag.Diagnostic) {
	used, closed := map[string]size{}, map[string]size{}
	over := map[diag.Object]diag.Diagnostic{}
	for i, ing := range ingresses {
		s, namespace := t.sizeOf(ing), ing.Ref.Namespace
		message, hint := t.overLimit(s, used[namespace].plus(s), namespace)
		if message == "" {
			used[namespace] = used[namespace].plus(s)
			continue
		}
		rest := s.routes
		if most := t.cfg.Limits.NamespaceRoutes; most > 0 {
			rest = min(rest, most-closed[namespace].routes)
		}
		if most := t.cfg.Limits.IngressRoutes; most > 0 {
			rest = min(rest, most)
		}
		if most := t.cfg.Limits.NamespaceRouteBytes; most > 0 {
			rest = min(rest, max(0, most-closed[namespace].text)/max(1, s.longest))
		}
		if most := t.cfg.Limits.IngressRouteBytes; most > 0 {
			rest = min(rest, most/max(1, s.longest))
		}
		if rest < s.routes {
			message += fmt.Sprintf("; of its routes only the first %d are closed, or their hosts held", rest)
		}
		closed[namespace] = closed[namespace].plus(size{routes: rest, text: min(s.text, rest*s.longest)})
		ingresses[i] = cut(ing, rest)
		over[ing.Ref] = diag.Diagnostic{Severity: diag.Error, Position: ing.Position("spec"), Object: ing.Ref, Message: message, Hint: hint}
	}
	return ingresses, over
}

// overLimit says which limit an Ingress is over, if any; all is the size of its namespace with it.
func (t *translation) overLimit(s, all size, namespace string) (message, hint string) {
	for _, l := range []struct {
		most, has      int
		what, of, name string
	}{
		{t.cfg.Limits.IngressRoutes, s.routes, "routes", "an Ingress", "ingressRoutes"},
		{t.cfg.Limits.IngressRouteBytes, s.text, "bytes of hosts and paths", "an Ingress", "ingressRouteBytes"},
		{t.cfg.Limits.NamespaceRouteBytes, all.text, "bytes of hosts and paths", "the Ingresses of namespace " + namespace, "namespaceRouteBytes"},
		{t.cfg.Limits.IngressOptionBytes, s.bytes, "bytes of options in HAProxy's backends", "an Ingress", "ingressOptionBytes"},
		{t.cfg.Limits.NamespaceRoutes, all.routes, "routes", "the Ingresses of namespace " + namespace, "namespaceRoutes"},
		{t.cfg.Limits.NamespaceOptionBytes, all.bytes, "bytes of options in HAProxy's backends", "the Ingresses of namespace " + namespace, "namespaceOptionBytes"},
	} {
		if l.most > 0 && l.has > l.most {
			return fmt.Sprintf("is left out: with it there would be %d %s, and %s may have %d", l.has, l.what, l.of, l.most),
				"make it smaller, or have limits." + l.name + " of the configuration raised; the oldest Ingresses of a namespace are kept"
		}
	}
	return "", ""
}

// sizeOf returns what an Ingress asks for. Each counts as one route at least.
func (t *translation) sizeOf(ing ingress) size {
	_, aliases := hostOptions(ing)
	var s size
	for _, rule := range ing.Value.Spec.Rules {
		hosts := append([]string{rule.Host}, aliases...)
		if rule.HTTP == nil || len(rule.HTTP.Paths) == 0 {
			s.addRoutes(hosts, "")
			continue
		}
		for _, p := range rule.HTTP.Paths {
			s.addRoutes(hosts, p.Path)
		}
	}
	for _, entry := range ing.Value.Spec.TLS {
		for _, host := range entry.Hosts {
			s.addRoutes([]string{host}, "")
		}
	}
	s.routes = max(1, s.routes)
	if own := optionBytes(ing.Value.Annotations); own > 0 {
		s.bytes = t.expandedBytes(ing, own)
	}
	return s
}

// addRoutes adds those of a path of hosts.
func (s *size) addRoutes(hosts []string, path string) {
	text := len(path)
	if !isPlainPath(path) {
		text = len(NormalPath(path, false))
	}
	for _, host := range hosts {
		s.routes++
		s.text += len(host) + text
		s.longest = max(s.longest, len(host)+text)
	}
}

// isPlainPath reports whether a path has as many bytes in the normal form, or fewer.
func isPlainPath(path string) bool {
	for i := range len(path) {
		if c := path[i]; c != '/' && c != ';' && !mayStand(c) {
			return false
		}
	}
	return true
}

// optionBytes returns how many bytes the options have of an object.
func optionBytes(annotations map[string]string) int {
	n := 0
	for name, value := range annotations {
		if strings.HasPrefix(name, options.Prefix) {
			n += len(name) + len(value)
		}
	}
	return n
}

// expandedBytes returns how many bytes of options the backends of an Ingress have, of which it
// says own many by itself.
func (t *translation) expandedBytes(ing ingress, own int) int {
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
		service := t.services[snapshots.SecretName{Namespace: ing.Ref.Namespace, Name: b.Name}]
		n += own
		if service.Value != nil {
			n += optionBytes(service.Value.Annotations)
		}
	}
	return n
}

// cut returns an Ingress with no more than so many of its routes, the first ones, and of its tls
// entries none that is beyond them. Its value is shared, so that what changes is copied.
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

// listTooLarge says that the lists of a namespace are over the limit with one more of so many
// bytes, which counts then or not at all.
func (t *translation) listTooLarge(namespace string, bytes int) (message, hint string) {
	most := t.cfg.Limits.NamespaceListBytes
	if all := t.listBytes[namespace] + bytes; most > 0 && all > most {
		return fmt.Sprintf("is too large: with it, the lists that are named of namespace %s would have %d bytes, and may have %d", namespace, all, most),
			"make it smaller, or have limits.namespaceListBytes of the configuration raised"
	}
	t.listBytes[namespace] += bytes
	return "", ""
}
