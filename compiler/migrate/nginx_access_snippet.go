package migrate

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/options"
)

// everywhere are all addresses there are.
const everywhere = "0.0.0.0/0, ::/0"

// snippetAccess translates a snippet that holds nothing but allow, deny and return. It reports
// whether the snippet is such a one, be it that it could not be translated.
func (c *call) snippetAccess(name, text string) bool {
	directives, err := directivesOf(text)
	if err != nil || !slices.ContainsFunc(directives, isAccess) {
		return false
	}
	const hint = "use allow-list, deny-list or redirect"
	if slices.ContainsFunc(directives, func(words []string) bool { return !isAccess(words) }) {
		return false // whatever comes before is said
	}
	for _, other := range []string{"whitelist-source-range", "allowlist-source-range", "denylist-source-range", "permanent-redirect", "temporal-redirect"} {
		if c.has(other) {
			c.keep(name, "refuses or redirects requests, and so does "+other, hint)
			return true
		}
	}
	if c.value("satisfy") == "any" {
		c.keep(name, "refuses requests, of which satisfy lets some pass", hint)
		return true
	}
	option, value, err := readAccess(directives)
	if err != nil {
		c.keep(name, err.Error(), hint)
		return true
	}
	c.set(option, value)
	for _, other := range []string{"allow-list", "deny-list", "redirect"} {
		if existing := c.object.annotations[options.Prefix+other]; existing != "" && (other != option || existing != value) {
			c.out = nil
			c.keep(name, "refuses or redirects requests, and so does "+options.Prefix+other, "write one of both")
			return true
		}
	}
	return true
}

func isAccess(words []string) bool {
	return words[0] == "allow" || words[0] == "deny" || words[0] == "return"
}

// readAccess returns the option that does the same as directives. Of allow and deny, nginx obeys
// the first one that matches.
func readAccess(directives [][]string) (option, value string, err error) {
	first := directives[0]
	if first[0] == "return" { // the rest is not reached: it comes before allow and deny
		return readReturn(first[1:])
	}
	last := directives[len(directives)-1]
	verb := first[0]
	ends := len(last) == 2 && last[1] == "all"
	if ends {
		directives = directives[:len(directives)-1]
	}
	var networks []string
	for _, words := range directives {
		switch {
		case words[0] == "return":
			return "", "", errors.New("return stands behind allow or deny")
		case len(words) != 2 || words[0] != verb:
			return "", "", errors.New("allow and deny are mixed")
		}
		if _, err := netip.ParsePrefix(words[1]); err != nil {
			if _, err := netip.ParseAddr(words[1]); err != nil {
				return "", "", fmt.Errorf("%s %s names no network", words[0], words[1])
			}
		}
		networks = append(networks, words[1])
	}
	list := strings.Join(networks, ", ")
	switch {
	case len(networks) == 0 && last[0] == "deny":
		return "deny-list", everywhere, nil
	case len(networks) == 0:
		return "", "", errors.New("allows all")
	case verb == "deny" && (!ends || last[0] == "allow"):
		return "deny-list", list, nil
	case verb == "deny":
		return "deny-list", everywhere, nil
	case ends && last[0] == "deny":
		return "allow-list", list, nil
	}
	return "", "", errors.New("allow without deny all refuses nobody")
}

// readReturn reads the words of return.
func readReturn(args []string) (option, value string, err error) {
	switch {
	case len(args) == 1 && args[0] == "403":
		return "deny-list", everywhere, nil
	case len(args) == 2 && slices.Contains([]string{"301", "302", "303", "307", "308"}, args[0]):
		location, err := exactly(args[1])
		return "redirect", location + " " + args[0], err
	}
	return "", "", fmt.Errorf("return %s answers what no option does", strings.Join(args, " "))
}

// serverSnippetRule translates snippets for all of a host, where that is one Ingress.
func serverSnippetRule() Rule {
	return Rule{
		From: []string{"server-snippet"}, To: []string{"request-headers", "response-headers", "allow-list", "deny-list", "redirect"},
		Note: "As `configuration-snippet`, where no other Ingress of the manifests has the host, and no `configuration-snippet` is beside it. Without `proxy_set_header`, which means nothing there.",
		convert: func(c *call) {
			const hint = "write it into request-headers, response-headers, allow-list, deny-list or redirect of each Ingress of the host"
			if c.has("configuration-snippet") {
				c.keep("server-snippet", "stands beside configuration-snippet, in place of which parts of it hold", hint)
				return
			}
			if host, other := c.object.set.sharesHost(c.object.namespace, c.object.name); other != "" {
				c.keep("server-snippet", fmt.Sprintf("is about all of %s, and Ingress %s has that host, too", host, other), hint)
				return
			}
			text := c.value("server-snippet")
			if directives, err := directivesOf(text); err == nil {
				for _, words := range directives {
					if strings.HasSuffix(words[0], "_set_header") || words[0] == "proxy_hide_header" {
						c.keep("server-snippet", words[0]+" means nothing for all of a host: each location has its own", "remove it, or write it into configuration-snippet")
						return
					}
				}
			}
			c.snippet("server-snippet")
			if len(c.out) > 0 {
				c.differs("server-snippet", "is about all of the host there, and about this Ingress here", "")
				if c.value("enable-cors") == "true" || c.has("custom-headers") {
					c.differs("server-snippet", "sets headers beside those of other annotations; in nginx those of the location hold alone", "")
				}
			}
		},
	}
}

// sharesHost returns a host of an Ingress that another Ingress has, too, and that Ingress.
func (s *Set) sharesHost(namespace, ingress string) (host, other string) {
	hosts := s.hosts(namespace, ingress)
	if s == nil {
		return "", ""
	}
	for _, r := range s.routes {
		if slices.Contains(hosts, r.host) && (r.namespace != namespace || r.ingress != ingress) {
			return cmp.Or(r.host, "all hosts"), r.namespace + "/" + r.ingress
		}
	}
	return "", ""
}
