package routing

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/snapshots"
)

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
