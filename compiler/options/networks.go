package options

import (
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hapsnap/hapsnap/compiler/policy"
)

// networks reads networks and names of lists.
func networks(text string) (policy.Networks, error) {
	var out policy.Networks
	_, err := listOf(func(word string) (struct{}, error) {
		name, isList := strings.CutPrefix(word, "@")
		if isList {
			list, err := networkList(name)
			out.Lists = append(out.Lists, list)
			return struct{}{}, err
		}
		prefix, err := network(word)
		out.Prefixes = append(out.Prefixes, prefix)
		return struct{}{}, err
	})(text)
	return out, err
}

// network reads a CIDR or an address.
func network(word string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(word); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(word)
	if err != nil {
		return netip.Prefix{}, fault("is not a network", "use CIDRs such as 10.0.0.0/8 or fd00::/8, or addresses")
	}
	if p.Masked() != p {
		return netip.Prefix{}, fault("has bits beyond its length", "it would be "+p.Masked().String())
	}
	return p, nil
}

// networkList reads the name of a list, NAME/KEY or NAMESPACE/NAME/KEY.
func networkList(name string) (policy.NetworkList, error) {
	parts := strings.Split(name, "/")
	list := policy.NetworkList{ConfigMap: parts[0], Key: parts[len(parts)-1]}
	wrong := len(parts) != 2 && len(parts) != 3
	if len(parts) == 3 {
		list.Namespace, list.ConfigMap = parts[0], parts[1]
		wrong = len(validation.IsDNS1123Label(list.Namespace)) > 0
	}
	if wrong || len(validation.IsDNS1123Subdomain(list.ConfigMap)) > 0 || len(validation.IsConfigMapKey(list.Key)) > 0 {
		return list, fault("is not the name of a list", "use @CONFIGMAP/KEY, or @NAMESPACE/CONFIGMAP/KEY")
	}
	return list, nil
}

// LineError is what is wrong with a line of a text.
type LineError struct {
	Line          int // from 1
	Message, Hint string
}

// ParseNetworks reads a list of networks: CIDRs and addresses, separated by
// commas, white space and line ends; a '#' and what follows it on its line is a
// comment.
func ParseNetworks(text string) ([]netip.Prefix, []LineError) {
	var out []netip.Prefix
	var wrong []LineError
	number := 0
	for line := range strings.Lines(text) {
		number++
		line, _, _ = strings.Cut(line, "#")
		for _, word := range fields(line) {
			prefix, err := network(word)
			if err != nil {
				message, hint := described(word, err)
				wrong = append(wrong, LineError{number, message, hint})
				continue
			}
			out = append(out, prefix)
		}
	}
	return out, wrong
}
