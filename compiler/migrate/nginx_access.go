package migrate

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/options"
)

// nginxAccess are the rules for annotations that refuse requests.
func nginxAccess() []Rule {
	return rules(one(
		same("whitelist-source-range", "allow-list"),
		same("allowlist-source-range", "allow-list"),
		same("denylist-source-range", "deny-list"),
		Rule{
			From: []string{"limit-rps", "limit-rpm", "limit-connections", "limit-burst-multiplier", "limit-allowlist", "limit-whitelist"},
			To:   []string{"rate-limit", "rate-limit-connections", "rate-limit-period", "rate-limit-status", "rate-limit-exempt"},
			Note: "HAProxy allows bursts of five times the rate, as ingress-nginx does, by counting requests over five periods.", convert: nginxRate,
		},
		Rule{From: []string{"proxy-body-size"}, To: []string{"max-body-size"}, convert: func(c *call) {
			if value := strings.ToLower(c.value("proxy-body-size")); value != "0" {
				c.set("max-body-size", value)
			}
		}, Note: "Bodies of unknown length are counted while they stream. `0` means no limit."},
		Rule{
			From: []string{"auth-type", "auth-secret", "auth-secret-type", "auth-realm"}, To: []string{"auth-basic", "auth-basic-realm"}, convert: nginxBasic,
			Note: "The Secret must have the key `auth` (`auth-secret-type: auth-file`), with hashes that HAProxy can check: not apr1.",
		},
		externalRule(),
		Rule{
			From: []string{"satisfy"}, To: []string{"satisfy"}, convert: nginxSatisfy,
			Note: "`deny-list` also refuses clients that have a password. If `auth-url` is one of the ways in, clients with a password need nothing else.",
		},
	), without("hapsnap cannot limit bandwidth.", "limit-rate", "limit-rate-after"),
		without("Each HAProxy counts for itself: use `rate-limit`, divided by their number.", "global-rate-limit", "global-rate-limit-window", "global-rate-limit-key", "global-rate-limit-ignored-cidrs"),
		needless("HAProxy asks the service about every request, and caches no answers.", "auth-cache-key", "auth-cache-duration"),
		needless("HAProxy reuses connections to the service, and passes its cookies on with every answer.", "auth-keepalive",
			"auth-keepalive-requests", "auth-keepalive-timeout", "auth-keepalive-share-vars", "auth-always-set-cookie"),
		one(wafRule("enable-modsecurity", "enable-owasp-core-rules", "modsecurity-snippet")),
		needless("The agent's log names X-Request-ID.", "modsecurity-transaction-id"),
		without("The service gets what `auth-url` says in docs/reference/annotations.md, and all headers of the request.", "auth-proxy-set-headers", "auth-snippet", "auth-request-redirect"),
		one(mapped("enable-global-auth", "auth-url", map[string]string{"false": ""}).noted("There is no global setting; use `auth-url` on each Ingress, or the parameters of the class.")))
}

// wafRule is for annotations that have requests inspected for attacks. Which rules apply is said by a policy, which only people can
// write. If the object names one, the annotations are removed.
func wafRule(names ...string) Rule {
	return Rule{
		From: names, To: []string{"waf"}, ByHand: true, Note: "Write a policy into a ConfigMap, and name it with `waf`: see [how to](../how-to/waf.md). The rules of the policy are those of the Core Rule Set; others are not translated.",
		convert: func(c *call) {
			_, named := c.object.annotations[options.Prefix+"waf"]
			for _, name := range names {
				switch {
				case !c.has(name) || !says(c.value(name)):
				case !named:
					c.keep(name, "needs a policy, which only you can write", "see docs/how-to/waf.md, and name the policy with hapsnap.dev/waf")
				case name == "modsecurity-snippet":
					c.differs(name, "is removed, and its rules are not those of the policy of hapsnap.dev/waf", "compare them: a policy can exclude rules of the Core Rule Set, and has no others")
				}
			}
		},
	}
}

// nginxRate translates a leaky bucket into a window that allows the same bursts, and the same rate in the long
// run.
func nginxRate(c *call) {
	name, unit := "limit-rps", "s"
	if !c.has(name) {
		name, unit = "limit-rpm", "m"
	}
	if c.has("limit-rps") && c.has("limit-rpm") {
		c.keep("limit-rpm", "is a second limit, beside limit-rps", "use one rate-limit")
	}
	connections := c.has("limit-connections") && c.value("limit-connections") != "0" // 0 means no limit
	if connections {
		c.set("rate-limit-connections", c.value("limit-connections"))
	}
	if exempt := c.limitExempt(); exempt != "" && (c.has(name) || connections) {
		c.set("rate-limit-exempt", exempt)
	}
	if c.has(name) || connections {
		c.set("rate-limit-status", "503")
	}
	if !c.has(name) {
		return
	}
	burst := 5
	rate, err := strconv.Atoi(c.value(name))
	if err == nil && c.has("limit-burst-multiplier") {
		burst, err = strconv.Atoi(c.value("limit-burst-multiplier"))
	}
	if err != nil || rate < 1 || burst < 1 {
		c.out = nil
		c.keepAll("is not a number of requests", "use rate-limit and rate-limit-period")
		return
	}
	c.set("rate-limit", strconv.Itoa(rate*burst))
	c.set("rate-limit-period", strconv.Itoa(burst)+unit)
}

// nginxBasic translates password protection.
func nginxBasic(c *call) {
	switch {
	case c.value("auth-type") != "basic":
		c.keepAll(fmt.Sprintf("authentication of type %q has no equivalent", c.value("auth-type")), "use auth-basic or auth-url")
	case c.value("auth-secret-type") == "auth-map":
		c.keepAll("a Secret with one key for each user has no equivalent", "put all users under the key auth, one on a line")
	default:
		secret, ok := c.secret("auth-secret")
		if user := c.object.set.apr1(c.object.namespace + "/" + secret); ok && user != "" {
			c.keepAll(fmt.Sprintf("user %s of the Secret has a hash of apr1, which HAProxy cannot check", user), "hash the passwords anew, as htpasswd -B does; nobody can do so without them")
			return
		}
		if ok {
			c.set("auth-basic", secret)
			c.setRealm("auth-realm")
			c.set("request-headers", "remove Authorization")
			c.differs("auth-secret", "is now bound by HAProxy", "check that the Secret has the key auth, and no apr1 hashes")
		}
	}
}

func (c *call) setRealm(name string) {
	if c.has(name) {
		c.set("auth-basic-realm", c.value(name))
	}
}

// secret returns the name of a Secret, which must be of the object's namespace.
func (c *call) secret(name string) (string, bool) {
	namespace, secret, qualified := strings.Cut(c.value(name), "/")
	switch {
	case !qualified:
		return namespace, true
	case namespace == c.object.namespace:
		return secret, true
	}
	c.keepAll("Secret "+c.value(name)+" is of another namespace", "copy it into namespace "+c.object.namespace)
	return "", false
}

// clientTLS translates the authorities of client certificates, and whether a certificate is required.
func clientTLS(secretName, verifyName string) func(*call) {
	return func(c *call) {
		verify, known := map[string]string{"": "required", "on": "required", "optional": "optional"}[c.value(verifyName)]
		switch {
		case c.value(verifyName) == "off":
			return
		case !known:
			c.keepAll(fmt.Sprintf("%s %q has no equivalent", verifyName, c.value(verifyName)), "use client-verify required or optional")
			return
		}
		if secret, ok := c.secret(secretName); ok {
			c.set("client-ca-secret", secret)
			if verify != "required" {
				c.set("client-verify", verify)
			}
		}
	}
}

func nginxHeaders() []Rule {
	return rules(one(
		Rule{
			From: []string{"enable-cors", "cors-allow-origin", "cors-allow-methods", "cors-allow-headers", "cors-expose-headers", "cors-allow-credentials", "cors-max-age"},
			To:   []string{"cors-allow-origin", "cors-allow-methods", "cors-allow-headers", "cors-expose-headers", "cors-allow-credentials", "cors-max-age"},
			Note: "Methods, headers and age are those of ingress-nginx unless they are given. Credentials are allowed with listed origins only; browsers send none to `*` there either. HAProxy answers only preflight requests, which have Access-Control-Request-Method, and lists methods and headers only in these answers.", convert: nginxOrigins,
		},
		Rule{From: []string{"x-forwarded-prefix"}, To: []string{"request-headers"}, convert: func(c *call) {
			if slices.ContainsFunc(c.object.paths, func(p pathEdit) bool { return c.has("rewrite-target") && p.path != c.value("rewrite-target") }) {
				c.set("request-headers", "set X-Forwarded-Prefix "+c.value("x-forwarded-prefix"))
			}
		}, Note: "HAProxy sends the header if `rewrite-target` changes the path, as there."},
		Rule{
			From: []string{"custom-headers"}, To: []string{"response-headers"},
			Note: "The headers are copied from the ConfigMap, if it is among the manifests. Later changes of the ConfigMap have no effect.",
			convert: func(c *call) {
				name, headers, found := c.configMap("custom-headers", "write its headers into response-headers")
				if !found {
					return
				}
				var lines []string
				for _, name := range slices.Sorted(maps.Keys(headers)) {
					lines = append(lines, "set "+name+" "+headers[name])
				}
				setLines(c, "response-headers", lines)
				c.differs("custom-headers", "no longer follows ConfigMap "+name, "its headers are written into response-headers")
			},
		},
	), without("hapsnap does not rewrite Location; have the endpoint send the right one, or use `response-headers`.", "proxy-redirect-from", "proxy-redirect-to"))
}

func nginxOthers() []Rule {
	return rules(one(snippetRule(), serverSnippetRule()),
		without("The value is written for nginx. Look for an equivalent in "+"docs/reference/annotations.md, or use `snippet`, if the administrator allows it.",
			"stream-snippet"),
		without("An Ingress cannot mirror requests; a route of a Gateway can, with the filter RequestMirror.", "mirror-target", "mirror-request-body", "mirror-host"),
		needless("Logs are one setting for all hosts.", "enable-access-log", "enable-rewrite-log"),
		needless("HAProxy does not trace requests.", "enable-opentracing", "opentracing-trust-incoming-span", "enable-opentelemetry", "opentelemetry-trust-incoming-span", "opentelemetry-operation-name"),
		needless("Browsers ignore server push.", "http2-push-preload"),
		needless("A redirect keeps the path as it is.", "preserve-trailing-slash"),
		needless("ingress-nginx removed it.", "enable-influxdb", "influxdb-measurement", "influxdb-port", "influxdb-host", "influxdb-server-name"))
}

// everywhere are the networks of all addresses.
const everywhere = "0.0.0.0/0, ::/0"

// snippetAccess translates a snippet that has only allow, deny and return. It reports whether the snippet is of
// that kind, even if it could not be translated.
func (c *call) snippetAccess(name, text string) bool {
	directives, err := directivesOf(text)
	if err != nil || !slices.ContainsFunc(directives, isAccess) {
		return false
	}
	const hint = "use allow-list, deny-list or redirect"
	if slices.ContainsFunc(directives, func(words []string) bool { return !isAccess(words) }) {
		return false // another rule reports it
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

// readAccess returns the option that does the same as directives. nginx follows the first allow or deny that
// matches.
func readAccess(directives [][]string) (option, value string, err error) {
	first := directives[0]
	if first[0] == "return" { // nginx runs return before allow and deny, so it ignores the rest
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

// readReturn reads the arguments of return.
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

// serverSnippetRule translates snippets for a whole host if only one Ingress has the host.
func serverSnippetRule() Rule {
	return Rule{
		From: []string{"server-snippet"}, To: []string{"request-headers", "response-headers", "allow-list", "deny-list", "redirect"},
		Note: "This is translated like `configuration-snippet`, if no other Ingress of the manifests has the host and the Ingress has no `configuration-snippet`. `proxy_set_header` has no effect there, and is not translated.",
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
			snippet(c, "server-snippet")
			if len(c.out) > 0 {
				c.differs("server-snippet", "is about all of the host there, and about this Ingress here", "")
				if c.value("enable-cors") == "true" || c.has("custom-headers") {
					c.differs("server-snippet", "sets headers beside those of other annotations; in nginx those of the location hold alone", "")
				}
			}
		},
	}
}

// sharesHost returns a host of an Ingress that another Ingress has too, and that Ingress.
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
