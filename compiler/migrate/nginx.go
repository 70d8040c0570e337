package migrate

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/diag"
)

// nginxPrefix is the beginning of the names of ingress-nginx' annotations.
const nginxPrefix = "nginx.ingress.kubernetes.io/"

// nginx returns the dialect of ingress-nginx.
func nginx() Dialect {
	return Dialect{
		Name: "ingress-nginx", Prefixes: []string{nginxPrefix}, Classes: []string{"nginx"}, ignoresEmpty: true, complete: true,
		Remarks: "ingress-nginx redirects an Ingress with `tls` to HTTPS unless `ssl-redirect` is `false`; so do the annotations that are written here. " +
			"It limits bodies to 1 MB without being asked; hapsnap does not. Of its ConfigMap, `use-forwarded-headers` and `compute-full-forwarded-for` are " +
			"`forwarded.policy: append` and `forwarded.clientAddress: header` in the CompilerConfig, `proxy-real-ip-cidr` is `forwarded.trusted`, which has no " +
			"default, `enable-underscores-in-headers` is `forwarded.underscoresInHeaders`, and `large-client-header-buffers` is `bufferSize`; " +
			"`forwarded-for-header` is always X-Forwarded-For. See [headers.md](headers.md).",
		Rules: rules(nginxRouting(), nginxServers(), nginxTLS(), nginxAccess(), nginxHeaders(), nginxRest(), nginxOthers()),
		always: func(c *call) {
			pathsOfHost(c)
			certificatesOfHost(c)
			if c.object.hasTLS && c.value("ssl-redirect") != "false" && !c.has("force-ssl-redirect") && !c.passesThrough() {
				c.set("ssl-redirect", "308")
			}
		},
		defaults: nginxDefaults,
	}
}

func nginxRouting() []Rule {
	return rules(one(
		Rule{From: []string{"ssl-redirect"}, To: []string{"ssl-redirect"}, Note: "See above.", convert: func(c *call) {
			if c.value("ssl-redirect") == "false" {
				c.set("ssl-redirect", "false")
			}
		}},
		mapped("force-ssl-redirect", "ssl-redirect", map[string]string{"true": "308", "false": ""}),
		Rule{From: []string{"app-root"}, To: []string{"app-root"}, Note: "The redirect holds if a path of the Ingress matches `/`.", convert: nginxAppRoot},
		same("server-alias", "server-alias"),
		same("upstream-vhost", "rewrite-host"),
		nginxRedirectRule(),
		Rule{
			From: []string{"rewrite-target", "use-regex"}, To: []string{"rewrite-path", "path-type-default", "redirect"}, convert: nginxRewrite,
			Note: "Paths such as `/x(/|$)(.*)` with the target `/$2` become the prefix `/x`. Other regular expressions stay, with `path-type-default: Regex`, if they cost little. The target `https://new.example/$1` of `/(.*)` is a redirect, as there.",
		},
		Rule{
			From: []string{"canary"}, To: []string{"canary"}, convert: nginxCanary,
			Note: "The canary also gets requests while the other Ingress has no endpoints; ingress-nginx answered 503.",
		},
		Rule{
			From: []string{"canary-weight", "canary-weight-total"}, To: []string{"canary-weight"}, convert: nginxWeight,
			Note: "A weight of a total above 100 is converted if that gives a whole number. While a Service has no endpoints, see `canary-weight` in docs/reference/annotations.md: ingress-nginx sends nothing to a canary without endpoints, and answers 503 while the other Ingress has none.",
		},
		Rule{
			From: []string{"canary-by-header", "canary-by-header-value", "canary-by-header-pattern"}, To: []string{"canary-by-header", "canary-by-header-pattern"},
			Of:   map[string][]string{"canary-by-header-pattern": {"canary-by-header-pattern"}},
			Note: "An expression that no engine can read is left out, with the header.", convert: nginxCanaryHeader,
		},
		same("canary-by-cookie", "canary-by-cookie"),
		Rule{
			From: []string{"custom-http-errors", "default-backend"}, To: []string{"intercept-errors", "fallback-service"}, convert: nginxErrors,
			Of:   map[string][]string{"custom-http-errors": {"intercept-errors"}, "default-backend": {"fallback-service"}},
			Note: "Errors of endpoints are answered with the pages of `errorPages` in the CompilerConfig, under their own status, and not by the default backend: HAProxy cannot ask a second Service about an answer. `default-backend` gets the requests for which the Ingress has no endpoint.",
		},
		Rule{
			From: []string{"from-to-www-redirect"}, To: []string{"redirect-www"}, convert: nginxWWW,
			Note: "The other name needs a certificate: list it in `tls`.",
		},
		Rule{
			From: []string{"proxy-cookie-path", "proxy-cookie-domain"}, To: []string{"rewrite-cookie-path", "rewrite-cookie-domain"}, convert: nginxCookies,
			Of:   map[string][]string{"proxy-cookie-path": {"rewrite-cookie-path"}, "proxy-cookie-domain": {"rewrite-cookie-domain"}},
			Note: "The value is one path or domain and its replacement; regular expressions are not translated.",
		},
	))
}

// nginxWeight translates a share of a total into a percentage.
func nginxWeight(c *call) {
	if !c.has("canary-weight") {
		return
	}
	weight, err := strconv.Atoi(c.value("canary-weight"))
	total := 100
	if c.has("canary-weight-total") && err == nil {
		total, err = strconv.Atoi(c.value("canary-weight-total"))
		total = max(total, 100) // ingress-nginx takes no smaller total
	}
	weight = min(weight, total)
	if err != nil || total <= 0 || weight*100%total != 0 {
		c.keepAll(fmt.Sprintf("%q of %d is not a whole number of percent", c.value("canary-weight"), total), "choose a weight from 0 to 100")
		return
	}
	percent := weight * 100 / total
	c.set("canary-weight", strconv.Itoa(percent))
	if percent == 100 {
		c.differs("canary-weight", "with 100, requests get 503 while the canary has no endpoints; ingress-nginx sent them to the other Ingress then",
			"use canary-by-header for tests, and change the Service of the other Ingress in the end")
	}
}

func orRoot(path string) string {
	if path == "" {
		return "/"
	}
	return path
}

// keepAll keeps all annotations of the rule.
func (c *call) keepAll(message, hint string) {
	for _, name := range c.rule.From {
		if c.has(name) {
			c.keep(name, message, hint)
		}
	}
}

func nginxServers() []Rule {
	return rules(one(
		Rule{From: []string{"backend-protocol"}, To: []string{"backend-protocol"}, convert: mapped("backend-protocol", "backend-protocol", map[string]string{
			"http": "h1", "https": "h1-tls", "grpc": "grpc", "grpcs": "grpc-tls", "fcgi": "fcgi",
		}).convert},
		mapped("load-balance", "balance", map[string]string{"round_robin": "roundrobin", "least_conn": "leastconn", "ewma": "leastconn", "ip_hash": "source"}).
			noted("`ewma` becomes `leastconn`, the algorithm that is most like it."),
		Rule{From: []string{"upstream-hash-by"}, To: []string{"balance"}, convert: nginxHash},
		seconds("proxy-connect-timeout", "timeout-connect"),
		seconds("proxy-read-timeout", "timeout-server", "timeout-tunnel").noted("The time also applies to WebSockets."),
		Rule{
			From: []string{"proxy-next-upstream", "proxy-next-upstream-tries"}, To: []string{"retries"}, convert: nginxRetries,
			Note: "HAProxy retries connections that failed, and does not count the first try. It does not repeat a request that an endpoint has begun to read or has answered.",
		},
		Rule{
			From: []string{
				"affinity", "session-cookie-name", "session-cookie-path", "session-cookie-domain", "session-cookie-samesite",
				"session-cookie-max-age", "session-cookie-expires", "session-cookie-secure",
			},
			To: []string{
				"affinity", "affinity-cookie-name", "affinity-cookie-path", "affinity-cookie-domain", "affinity-cookie-same-site",
				"affinity-cookie-max-age", "affinity-cookie-secure",
			},
			convert: nginxSession,
			Note:    "Without `session-cookie-path`, the path is that of the Ingress's rule, as there, or `/` if the Ingress has several. `session-cookie-expires` becomes Max-Age. The cookie is Secure over HTTPS, as there. An Ingress with several Services gets one cookie for each, with names that hapsnap chooses.",
		},
	), needless("Sessions stay with their endpoint; only new ones are balanced.", "affinity-mode", "session-cookie-change-on-failure", "affinity-canary-behavior"),
		needless("All browsers in use support SameSite=None.", "session-cookie-conditional-samesite-none"),
		needless("HAProxy streams bodies, and needs no buffers set.", "proxy-buffering", "proxy-buffers-number", "proxy-buffer-size", "proxy-busy-buffers-size",
			"proxy-max-temp-file-size", "proxy-request-buffering", "client-body-buffer-size"),
		needless("HAProxy speaks HTTP/1.1 to endpoints, and keeps connections open.", "proxy-http-version", "connection-proxy-header"),
		needless("`timeout-server` covers both directions.", "proxy-send-timeout"),
		needless("HAProxy tries another endpoint if a connection fails.", "proxy-next-upstream-timeout"),
		replaced("HAProxy connects to the endpoints of the Service, not to its cluster IP. If a service mesh routes by Service, add its proxy to HAProxy's pods.", "service-upstream"))
}

// nginxHash translates the variables of nginx that have an equivalent.
func nginxHash(c *call) {
	value := strings.NewReplacer("{", "", "}", "").Replace(c.value("upstream-hash-by"))
	header, isHeader := strings.CutPrefix(value, "$http_")
	query, isQuery := strings.CutPrefix(value, "$arg_")
	switch {
	case value == "$request_uri" || value == "$uri":
		c.set("balance", "uri")
	case value == "$remote_addr" || value == "$binary_remote_addr":
		c.set("balance", "source")
	case isHeader:
		c.set("balance", "header "+strings.ReplaceAll(header, "_", "-"))
	case isQuery:
		c.set("balance", "query "+query)
	default:
		c.keep("upstream-hash-by", fmt.Sprintf("%q has no equivalent", value), "balance hashes the address, the URI, a header or a query parameter")
	}
}

func nginxTLS() []Rule {
	return rules(one(
		mapped("ssl-passthrough", "ssl-passthrough", map[string]string{"true": "true", "false": ""}),
		Rule{
			From: []string{"auth-tls-secret", "auth-tls-verify-client", "auth-tls-pass-certificate-to-upstream", "auth-tls-match-cn", "auth-tls-error-page"},
			To:   []string{"client-ca-secret", "client-verify", "client-cert-headers", "client-match-cn", "client-error-page"}, convert: nginxClientTLS,
			Of:   map[string][]string{"auth-tls-match-cn": {"client-match-cn"}, "auth-tls-error-page": {"client-error-page"}},
			Note: "HAProxy compares `auth-tls-match-cn` with the common name only, and not with text in other parts of the subject. Clients whose certificate is wrong get no connection, and are not sent to `auth-tls-error-page`. The headers have the names of ingress-nginx. ingress-nginx asks for certificates for all Ingresses of a host; so do the Ingresses of the set that are rewritten. A missing or wrong certificate gets 403 instead of 400, and plain HTTP is refused too.",
		},
		Rule{
			From: []string{"proxy-ssl-secret", "proxy-ssl-verify", "proxy-ssl-name", "proxy-ssl-server-name", "proxy-ssl-ciphers", "proxy-ssl-protocols"},
			To:   []string{"backend-client-secret", "backend-verify", "backend-ca-secret", "backend-sni", "backend-tls-ciphers", "backend-tls-versions"}, convert: nginxUpstreamTLS,
			Of:   map[string][]string{"proxy-ssl-ciphers": {"backend-tls-ciphers"}, "proxy-ssl-protocols": {"backend-tls-versions"}, "proxy-ssl-verify": {"backend-verify", "backend-ca-secret"}},
			Note: "These are translated if `backend-protocol` is HTTPS or GRPCS. Without TLS to endpoints they have no effect, and are removed.",
		},
	), needless("HAProxy follows chains of any length.", "auth-tls-verify-depth", "proxy-ssl-verify-depth"),
		replaced("All hosts use the ciphers of `tls` in the CompilerConfig: compare them.", "ssl-ciphers", "ssl-prefer-server-ciphers"))
}

// nginxUpstreamTLS translates TLS to endpoints. Its one Secret holds the client certificate and the authorities
// to trust.
func nginxUpstreamTLS(c *call) {
	if !c.speaks("S", "-tls") {
		for _, name := range c.rule.From {
			if c.has(name) {
				c.differs(name, "is removed: it is about TLS to endpoints, which backend-protocol does not ask for", "")
			}
		}
		return
	}
	tlsLimits(c)
	if len(c.kept) > 0 {
		return
	}
	verify := c.value("proxy-ssl-verify") == "on"
	if name := c.value("proxy-ssl-name"); name != "" {
		c.set("backend-sni", name)
	} else if verify || c.value("proxy-ssl-server-name") == "on" {
		c.set("backend-sni", "request-host")
	}
	if !c.has("proxy-ssl-secret") {
		return
	}
	secret, ok := c.secret("proxy-ssl-secret")
	if !ok {
		c.out = nil
		return
	}
	c.set("backend-client-secret", secret)
	if verify {
		c.set("backend-ca-secret", secret)
	}
}

// nginxRest are annotations of ingress-nginx that change little.
func nginxRest() []Rule {
	return rules(one(
		same("fastcgi-index", "fcgi-index"),
		Rule{
			From: []string{"fastcgi-params-configmap"}, To: []string{"fcgi-params", "fcgi-root"}, convert: nginxParams,
			Note: "The variables are copied from the ConfigMap, if it is among the manifests and they contain no variables of nginx. Later changes of the ConfigMap have no effect.",
		},
	), needless("HAProxy sends a value to one endpoint, not to a subset, as long as that endpoint exists.", "upstream-hash-by-subset", "upstream-hash-by-subset-size"),
		needless("Redirects to HTTPS name no port; other redirects keep the port of their URL.", "use-port-in-redirects"),
		needless("A redirect is sent as it is written.", "relative-redirects"),
		needless("It changes `custom-http-errors`, which is left out if this is `true`.", "disable-proxy-intercept-errors"))
}

// limitExempt returns the networks that are not limited. limit-whitelist is the older name of limit-allowlist.
func (c *call) limitExempt() string {
	if c.has("limit-allowlist") {
		return c.value("limit-allowlist")
	}
	return c.value("limit-whitelist")
}

// nginxCanary translates the mark of a canary.
func nginxCanary(c *call) {
	if c.value("canary") != "true" {
		return
	}
	c.set("canary", "true")
	if weight := c.value("canary-weight"); weight != "0" && weight != "" || c.has("canary-by-header") || c.has("canary-by-cookie") {
		c.differs("canary", "gets its requests while the other Ingress has no endpoints, too, and all of them by weight; ingress-nginx answered 503", "")
	}
}

// verdict says in a word what happens to the annotations of a rule.
func (r Rule) verdict() string {
	switch {
	case r.Needless || r.Removed:
		return "said"
	case len(r.To) == 0:
		return "refused"
	case r.ByHand:
		return "by hand"
	case r.Note == "":
		return "equal"
	case strings.HasPrefix(r.Note, "See above"):
		return "equal"
	}
	return "differs"
}

// nginxOrigin matches the origins that ingress-nginx accepts. It skips others.
var nginxOrigin = regexp.MustCompile(`^([a-z]+://(\*\.)?[A-Za-z0-9\-.]*(:\d+)?|\*|null)?$`)

// nginxOrigins translates CORS without the origins that ingress-nginx skips.
func nginxOrigins(c *call) {
	var taken []string
	for origin := range strings.SplitSeq(c.value("cors-allow-origin"), ",") {
		origin = strings.TrimSpace(origin)
		switch {
		case origin == "*":
			taken = []string{"*"}
		case slices.Contains(taken, "*") || origin == "":
		case !nginxOrigin.MatchString(origin):
			c.differs("cors-allow-origin", "is translated without "+strconv.Quote(origin)+", which ingress-nginx skips", "an origin has a scheme, such as https://"+origin)
		default:
			taken = append(taken, strings.ToLower(origin))
		}
	}
	if c.has("cors-allow-origin") && len(taken) == 0 && c.value("enable-cors") == "true" {
		c.differs("enable-cors", "is left out, since no origin is left", "")
		return
	}
	if c.has("cors-allow-origin") {
		c.values = maps.Clone(c.values)
		c.values["cors-allow-origin"] = strings.Join(taken, ", ")
	}
	cors("enable-cors", nginxCORS)(c)
}

// nginxDefaults are things that ingress-nginx does for every Ingress by default, and hapsnap does not.
var nginxDefaults = []diag.Diagnostic{
	{
		Severity: diag.Warning,
		Message:  "ingress-nginx refuses bodies over 1 MB, and sends Strict-Transport-Security over HTTPS, unless its ConfigMap says otherwise; hapsnap does neither without being asked",
		Hint:     `for all Ingresses of a class, set max-body-size: 1m and hsts: "31536000 includeSubDomains" in its parameters; see docs/reference/annotations.md`,
	},
	{
		Severity: diag.Warning,
		Message:  "ingress-nginx waits 60 s for the next part of an answer, and for that of a WebSocket; hapsnap waits as timeouts of the CompilerConfig says",
		Hint:     "compare timeouts.server and timeouts.tunnel in docs/reference/configuration.md",
	},
	configMapUnread("ingress-nginx", "whitelist-source-range, denylist-source-range, block-cidrs, block-user-agents, block-referers, global-auth-url, enable-modsecurity and server-snippet"),
}
