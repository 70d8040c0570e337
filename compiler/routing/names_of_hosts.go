package routing

import "strings"

// HostNames returns the names, as a [Model] has them, of the sound hosts that an Ingress names,
// aliases included; "" for a rule without a host.
func HostNames(ing ingress) []string {
	_, aliases := hostOptions(ing)
	var out []string
	t := translation{}
	t.eachHost(ing, aliases, func(host string, _ ...any) { out = append(out, host) })
	for _, rule := range ing.Value.Spec.Rules {
		if rule.Host == "" {
			out = append(out, "")
		}
	}
	return out
}

// WildcardOf returns the name of the wildcard that matches a host, "-" if none does.
func WildcardOf(host string) string { return wildcardKey(host) }

// IsWildcard reports whether a name is that of a wildcard.
func IsWildcard(host string) bool { return strings.HasPrefix(host, ".") }
