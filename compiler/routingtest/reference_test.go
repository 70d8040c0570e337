package routingtest

import (
	"cmp"
	"slices"
	"strings"
)

// expected returns the expected answer to a request: the name of a Service, or a status. It applies the table
// of routing semantics in the simplest way, and compares each rule with the request. It shares no code with the
// compiler or the templates. A Service "empty" has no endpoints, and "gone" does not exist.
func expected(ingresses []ingress, host, target string) string {
	if r, ok := ruleFor(ingresses, host, target); ok {
		return answerOf(r.service)
	}
	for _, i := range slices.SortedFunc(slices.Values(ingresses), older) {
		if i.fallback != "" {
			return answerOf(i.fallback)
		}
	}
	return "404"
}

// ruleFor returns the rule for a request.
func ruleFor(ingresses []ingress, host, target string) (rule referenceRule, ok bool) {
	inOrder := slices.SortedFunc(slices.Values(ingresses), older)
	rules := rulesOf(inOrder, ownerOf(inOrder, hostOf(host)))
	path, _, _ := strings.Cut(target, "?")
	path = plainest(path)
	for _, r := range rules {
		if r.kind == "E" && plainest(r.path) == path {
			return r, true
		}
	}
	most := 0
	for _, r := range rules {
		if n := sharedElements(plainest(r.path), path); r.kind != "E" && n > most {
			rule, most = r, n
		}
	}
	return rule, most > 0
}

// older orders Ingresses by rows 33 and 35.
func older(a, b ingress) int {
	return cmp.Or(cmp.Compare(a.age, b.age), cmp.Compare(or(a.namespace, "shop"), or(b.namespace, "shop")), cmp.Compare(a.name, b.name))
}

// hostOf returns the host of a request in the form of rules (rows 20 to 22), and "" if no rule can have it.
func hostOf(header string) string {
	if strings.HasPrefix(header, "[") {
		return ""
	}
	name, _, _ := strings.Cut(header, ":")
	return strings.ToLower(strings.TrimSuffix(name, "."))
}

// ownerOf returns the host whose rules apply to a request (rows 24 to 30): the same host, else the wildcard for
// its first label, else "-" for no host.
func ownerOf(ingresses []ingress, host string) string {
	candidates := []string{host}
	if label, parent, found := strings.Cut(host, "."); found && label != "" {
		candidates = append(candidates, "*."+parent)
	}
	for _, candidate := range candidates {
		for _, i := range ingresses {
			for _, r := range i.rules {
				if strings.Fields(r)[0] == candidate {
					return candidate
				}
			}
		}
	}
	return "-"
}

type referenceRule struct{ namespace, host, kind, path, service string }

// rulesOf returns the rules for a host with paths, in the order of the Ingresses.
func rulesOf(ingresses []ingress, host string) []referenceRule {
	var out []referenceRule
	for _, i := range ingresses {
		for _, r := range i.rules {
			if words := strings.Fields(r); words[0] == host && len(words) == 4 {
				out = append(out, referenceRule{or(i.namespace, "shop"), host, words[1], words[2], words[3]})
			}
		}
	}
	return out
}

// sharedElements returns the number of elements of a prefix, including the root, or 0 if the path does not
// begin with all of them (rows 7 to 15, 56).
func sharedElements(prefix, path string) int {
	if prefix == "-" {
		prefix = "/"
	}
	want, got := strings.Split(strings.TrimSuffix(prefix, "/"), "/"), strings.Split(path, "/")
	if len(want) > len(got) || !slices.Equal(want, got[:len(want)]) {
		return 0
	}
	return len(want)
}

// answerOf returns the answer to a request for a Service (rows 37 and 38).
func answerOf(service string) string {
	if service == "empty" || service == "gone" {
		return "503"
	}
	return service
}
