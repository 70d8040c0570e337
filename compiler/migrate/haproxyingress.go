package migrate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/diag"
)

// haproxyIngress returns the dialect of haproxy-ingress.github.io. Services may have its annotations of the
// scope Backend too.
func haproxyIngress() Dialect {
	return Dialect{
		Name: "HAProxy Ingress (haproxy-ingress.github.io)", Prefixes: []string{"haproxy-ingress.github.io/", sharedPrefix}, Classes: []string{"haproxy"}, ofServices: true,
		Remarks: "This controller redirects hosts with `tls` to HTTPS, and sends Strict-Transport-Security, by default; so do the annotations that are written here. " +
			"Keys of the scope Global go into the CompilerConfig; those of an IngressClass's parameters into the ConfigMap that ours names.",
		Rules: rules(ingressRouting(), ingressServers(), ingressSessions(), ingressTLS(), ingressProtection(), ingressHeaders(), ingressOthers()),
		always: func(c *call) {
			if !c.object.hasTLS || c.passesThrough() {
				return
			}
			if !c.has("ssl-redirect") {
				c.set("ssl-redirect", "302")
			}
			if !c.has("hsts") {
				ingressHSTS(c)
			}
		},
		defaults: []diag.Diagnostic{configMapUnread("HAProxy Ingress",
			"allowlist-source-range, denylist-source-range, auth-url, auth-secret, auth-tls-secret, limit-connections, limit-rps, waf, config-frontend and config-backend")},
	}
}

func ingressRouting() []Rule {
	return rules(one(
		mapped("ssl-redirect", "ssl-redirect", map[string]string{"true": "302", "false": "false"}),
		same("app-root", "app-root"),
		same("server-alias", "server-alias"),
		Rule{From: []string{"redirect-to"}, To: []string{"redirect"}, convert: func(c *call) { c.set("redirect", c.value("redirect-to")+" 302") }},
		Rule{From: []string{"rewrite-target"}, To: []string{"rewrite-path"}, convert: func(c *call) { c.set("rewrite-path", c.value("rewrite-target")) }},
		ingressPathType(),
		mapped("ssl-passthrough", "ssl-passthrough", map[string]string{"true": "true", "false": ""}),
		same("tcp-service-port", "tcp-port").noted("Move it to the Service."),
	), without("A header of a request decides for a canary Ingress, with `canary-by-header`, and for a route of a Gateway.", "http-header-match", "http-header-match-regex"),
		without("Make an Ingress for the other name with `redirect`.", "redirect-from", "redirect-from-regex", "redirect-from-code", "redirect-to-code"),
		without("List the names in `server-alias`; `*.` stands for one label.", "server-alias-regex"),
		without("Use a canary Ingress with `canary-weight`, `canary-by-header` or `canary-by-cookie`.",
			"blue-green-balance", "blue-green-deploy", "blue-green-mode", "blue-green-cookie", "blue-green-header"),
		without("Plain HTTP to a host with passthrough is routed by its rules.", "ssl-passthrough-http-port"))
}

func ingressServers() []Rule {
	return rules(one(
		mapped("backend-protocol", "backend-protocol", map[string]string{
			"h1": "h1", "h2": "h2", "h1-ssl": "h1-tls", "h2-ssl": "h2-tls", "http": "h1", "https": "h1-tls", "grpc": "h2", "grpcs": "h2-tls",
		}),
		mapped("secure-backends", "backend-protocol", map[string]string{"true": "h1-tls", "false": ""}),
		Rule{From: []string{"balance-algorithm"}, To: []string{"balance"}, convert: func(c *call) { c.balance("balance-algorithm") }},
		same("maxconn-server", "max-connections"),
		same("maxqueue-server", "max-queue"),
		same("timeout-connect", "timeout-connect"),
		same("timeout-queue", "timeout-queue"),
		same("timeout-server", "timeout-server"),
		same("timeout-tunnel", "timeout-tunnel"),
		same("health-check-uri", "health-check-path"),
		checked("health-check-interval"),
		checked("backend-check-interval"),
		same("health-check-rise-count", "health-check-rise"),
		same("health-check-fall-count", "health-check-fall"),
		mapped("proxy-protocol", "send-proxy-protocol", map[string]string{"v1": "v1", "v2": "v2"}),
		secretRule("secure-crt-secret", "backend-client-secret"),
		secretRule("secure-verify-ca-secret", "backend-ca-secret"),
		Rule{
			From: []string{"secure-sni", "secure-verify-hostname"}, To: []string{"backend-sni"}, convert: ingressSNI,
			Note: "HAProxy also verifies the certificate against that name.",
		},
	), without("The timeout applies to clients: set `timeouts.httpKeepAlive` in the CompilerConfig.", "timeout-keep-alive"),
		needless("Spare slots follow the number of endpoints.", "backend-server-slots-increment", "slots-min-free", "dynamic-scaling", "backend-server-naming", "initial-weight"),
		without("Health checks go to the port that serves.", "health-check-addr", "health-check-port", "agent-check-addr", "agent-check-interval", "agent-check-port", "agent-check-send"),
		without("HAProxy always connects to endpoints.", "service-upstream"),
		without("Use a Service of type ExternalName for names in DNS.", "use-resolver"),
		without("The kernel chooses the source address.", "source-address-intf"),
		without("Set the timeout for all in the CompilerConfig.", "timeout-http-request", "timeout-server-fin"))
}

// ingressSNI translates the server name in TLS connections to endpoints.
func ingressSNI(c *call) {
	name := c.value("secure-verify-hostname")
	switch sni := c.value("secure-sni"); {
	case sni == "sni" || sni == "host":
		name = "request-host"
	case sni != "":
		name = sni
	}
	if other := c.value("secure-verify-hostname"); other != "" && other != name {
		c.keepAll(fmt.Sprintf("verifies %q, and asks for %q", other, name), "backend-sni is both")
		return
	}
	c.set("backend-sni", name)
}

func ingressSessions() []Rule {
	return rules(one(
		mapped("affinity", "affinity", map[string]string{"cookie": "cookie"}),
		same("session-cookie-name", "affinity-cookie-name"),
		same("session-cookie-domain", "affinity-cookie-domain"),
		mapped("session-cookie-preserve", "affinity-cookie-preserve", map[string]string{"true": "true", "false": ""}),
		mapped("session-cookie-same-site", "affinity-cookie-same-site", map[string]string{"true": "None", "false": ""}),
	), without("Cookies are inserted, with a hash of the endpoint's address.", "session-cookie-strategy", "session-cookie-value-strategy"),
		needless("Cookies are dynamic here.", "session-cookie-dynamic", "session-cookie-keywords"),
		without("Use `affinity-cookie-domain`.", "session-cookie-shared"))
}

func ingressTLS() []Rule {
	return rules(one(
		Rule{
			From: []string{"auth-tls-secret", "auth-tls-verify-client", "auth-tls-error-page"}, To: []string{"client-ca-secret", "client-verify", "client-error-page"},
			Of:   map[string][]string{"auth-tls-error-page": {"client-error-page"}},
			Note: "Clients whose certificate is wrong get no connection, and are not sent to `auth-tls-error-page`.",
			convert: func(c *call) {
				clientTLS("auth-tls-secret", "auth-tls-verify-client")(c)
				if c.has("auth-tls-error-page") && slices.ContainsFunc(c.out, func(a annotation) bool { return a.name == "client-ca-secret" }) {
					c.set("client-error-page", c.value("auth-tls-error-page"))
					c.differs("auth-tls-error-page", "is for clients without a certificate", "a client with a wrong certificate gets no connection")
				}
			},
		},
		mapped("auth-tls-cert-header", "client-cert-headers", map[string]string{"true": "cert, dn, sha1", "false": ""}).noted("The headers have other names."),
	), needless("Protection always fails closed.", "auth-tls-strict"),
		replaced("Fingerprints have capital digits.", "ssl-fingerprint-lower"),
		without("Set `tls` in the CompilerConfig, which applies to all hosts.", "ssl-ciphers", "ssl-cipher-suites", "ssl-options-host", "tls-alpn"),
		one(same("ssl-ciphers-backend", "backend-tls-ciphers")),
		without("HAProxy always offers its own cipher suites of TLS 1.3 to endpoints.", "ssl-cipher-suites-backend"),
		without("Say which versions of TLS HAProxy uses with endpoints, in `backend-tls-versions`.", "ssl-options-backend"),
		without("Let cert-manager issue the certificate into the Secret.", "cert-signer"),
		without("Name the Secret in `spec.tls`, or leave it to the default certificate.", "ssl-always-add-https"))
}

func ingressProtection() []Rule {
	return rules(one(
		networks("allowlist-source-range", "allow-list"), networks("whitelist-source-range", "allow-list"), networks("denylist-source-range", "deny-list"),
		Rule{From: []string{"limit-rps", "limit-connections", "limit-whitelist"}, To: []string{"rate-limit", "rate-limit-connections", "rate-limit-exempt"}, convert: func(c *call) {
			if c.has("limit-connections") {
				c.set("rate-limit-connections", c.value("limit-connections"))
			}
			if c.has("limit-rps") {
				c.set("rate-limit", c.value("limit-rps"))
			}
			if c.has("limit-whitelist") && (c.has("limit-rps") || c.has("limit-connections")) {
				c.set("rate-limit-exempt", c.value("limit-whitelist"))
			}
		}},
		same("proxy-body-size", "max-body-size"),
		Rule{
			From: []string{"auth-type", "auth-secret", "auth-realm"}, To: []string{"auth-basic", "auth-basic-realm"}, convert: ingressBasic,
			Note: "The Secret must have the key `auth`, with hashes.",
		},
		Rule{
			From: []string{"auth-url", "auth-method", "auth-signin", "auth-headers-succeed", "auth-headers-request", "auth-headers-fail"},
			To:   []string{"auth-url", "auth-method", "auth-signin", "auth-response-headers"}, convert: ingressExternal,
			Note: "A Service is named `http://NAME.NAMESPACE:PORT/path` here.",
		},
		wafRule("waf", "waf-mode"),
	), without("A client can write any header. Have the administrator list the networks of the proxies before HAProxy in `forwarded.trusted`, and set `forwarded.clientAddress: header`. Lists of networks then apply to the client that a trusted proxy names.", "allowlist-source-header"),
		without("Use `auth-url`.", "oauth", "oauth-headers", "oauth-uri-prefix"))
}

func ingressBasic(c *call) {
	if !c.has("auth-secret") {
		return
	}
	if secret, ok := c.secret("auth-secret"); ok {
		c.set("auth-basic", secret)
		c.setRealm("auth-realm")
		c.differs("auth-secret", "is now bound by HAProxy", "check that its users have hashes (user:hash): passwords in the clear (user::password) are refused")
	}
}

// ingressExternal translates external authentication. It may name a Service as svc://NAMESPACE/NAME:PORT/path.
func ingressExternal(c *call) {
	url := c.value("auth-url")
	if rest, ok := strings.CutPrefix(url, "svc://"); ok {
		service, path, _ := strings.Cut(rest, ":")
		namespace, name, qualified := strings.Cut(service, "/")
		if !qualified {
			namespace, name = c.object.namespace, service
		}
		url = "http://" + name + "." + namespace + ":" + path
	}
	if strings.Contains(url, "%[") {
		c.keepAll("the URL holds a sample of HAProxy", "the service gets X-Original-URL, -Method and -Host")
		return
	}
	c.set("auth-url", url)
	for _, name := range []string{"auth-method", "auth-signin"} {
		if c.has(name) {
			c.set(name, c.value(name))
		}
	}
	switch headers := c.value("auth-headers-succeed"); headers {
	case "-":
	case "", "*":
		c.differs("auth-url", "no header of the service's answer is copied to the request", "name those that endpoints need in auth-response-headers")
	default:
		c.set("auth-response-headers", headers)
	}
}

func ingressHeaders() []Rule {
	return rules(one(
		ingressEdits("request-headers", "request-set-headers", "headers", "request-add-headers", "request-del-headers"),
		ingressEdits("response-headers", "response-set-headers", "", "response-add-headers", "response-del-headers"),
		Rule{
			From: []string{"hsts", "hsts-max-age", "hsts-include-subdomains", "hsts-preload"}, To: []string{"hsts"}, convert: ingressHSTS,
		},
		Rule{
			From: []string{"cors-enable", "cors-allow-origin", "cors-allow-origin-regex", "cors-allow-methods", "cors-allow-headers", "cors-expose-headers", "cors-allow-credentials", "cors-max-age"},
			To:   []string{"cors-allow-origin", "cors-allow-origin-pattern", "cors-allow-methods", "cors-allow-headers", "cors-expose-headers", "cors-allow-credentials", "cors-max-age"},
			Of:   map[string][]string{"cors-allow-origin-regex": {"cors-allow-origin-pattern"}},
			Note: "Credentials are allowed with listed origins only. Expressions for origins must begin with `^` and end with `$`.", convert: cors("cors-enable", corsDefaults{
				credentials: true, age: "86400", methods: "GET, PUT, POST, DELETE, PATCH, OPTIONS",
				headers: "DNT,X-CustomHeader,Keep-Alive,User-Agent,X-Requested-With,If-Modified-Since,Cache-Control,Content-Type,Authorization",
			}),
		},
		mapped("forwardfor", "forwarded-for", map[string]string{"add": "append", "ignore": "off", "ifmissing": "keep"}),
	))
}

// ingressHSTS translates HSTS, which has four annotations.
func ingressHSTS(c *call) {
	if c.value("hsts") == "false" {
		return
	}
	value := "15768000"
	if c.has("hsts-max-age") {
		value = c.value("hsts-max-age")
	}
	if c.value("hsts-include-subdomains") == "true" {
		value += " includeSubDomains"
	}
	if c.value("hsts-preload") == "true" {
		value += " preload"
	}
	c.set("hsts", value)
}

func ingressOthers() []Rule {
	return rules(one(
		Rule{From: []string{"config-backend"}, To: []string{"snippet"}, Note: "This needs an administrator who allows snippets in the namespace.", convert: func(c *call) {
			c.set("snippet", c.value("config-backend"))
			c.differs("config-backend", "needs the administrator's leave", "name the namespace in snippets of the CompilerConfig")
		}},
	), without("An Ingress has one snippet: use `snippet`, if the administrator allows it.", "config-backend-early", "config-backend-late"),
		without("Use `tcpServices` in the CompilerConfig, or the annotations of the Service.", "config-tcp-service", "tcp-service-log-format", "tcp-service-proxy-protocol"),
		needless("Logs name the backend, which names namespace and Service.", "var-namespace"))
}

// ingressEdits translates edits of headers. They are made in the order set, add, remove. An alias counts if the
// first name is missing.
func ingressEdits(to, set, alias, add, remove string) Rule {
	from := slices.DeleteFunc([]string{set, alias, add, remove}, func(name string) bool { return name == "" })
	return Rule{From: from, To: []string{to}, convert: func(c *call) {
		replace := set
		if alias != "" && c.value(set) == "" {
			replace = alias
		}
		var lines []string
		for _, edit := range [][2]string{{replace, "set"}, {add, "add"}} {
			more, err := c.headerLines(edit[0], edit[1])
			if err != nil {
				c.keepAll(edit[0]+" "+err.Error(), "values are sent as they are written; see "+ours+to)
				return
			}
			lines = append(lines, more...)
		}
		for name := range strings.SplitSeq(c.value(remove), ",") {
			if name = strings.TrimSpace(name); name != "" {
				lines = append(lines, "remove "+name)
			}
		}
		setLines(c, to, lines)
	}}
}

// headerLines reads lines of a name and a value, with a colon, spaces or both in between.
func (c *call) headerLines(from, verb string) ([]string, error) {
	var out []string
	for line := range strings.Lines(c.value(from)) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		i := strings.IndexAny(line, ": \t")
		if i < 1 {
			return nil, fmt.Errorf("has the line %q without a value", line)
		}
		value := strings.ReplaceAll(strings.TrimLeft(line[i:], ": \t"), "%[namespace]", c.object.namespace)
		if strings.Contains(value, "%") && strings.Contains(strings.ReplaceAll(value, "%%", ""), "%") {
			return nil, fmt.Errorf("holds a sample of HAProxy, %q", value)
		}
		value = strings.ReplaceAll(value, "%%", "%")
		if n := len(value) - 1; n > 0 && (value[0] == '"' || value[0] == '\'') && value[n] == value[0] {
			value = value[1:n] // it was a quoted word of haproxy.cfg
		}
		if strings.ContainsAny(value, `"'\\`) {
			return nil, fmt.Errorf("holds a quote or a backslash, %q", value)
		}
		out = append(out, verb+" "+line[:i]+" "+value)
	}
	return out, nil
}

// ingressPathType translates the meaning of the pathType ImplementationSpecific.
func ingressPathType() Rule {
	r := mapped("path-type", "path-type-default", map[string]string{"exact": "Exact", "prefix": "Prefix", "begin": "Prefix", "regex": "Regex"}).
		noted("`begin` compares bytes there, and path elements here; `regex` compares case there, and not here.")
	plain := r.convert
	r.convert = func(c *call) {
		plain(c)
		if strings.EqualFold(c.value("path-type"), "regex") {
			c.differs("path-type", "compares expressions without regard to case", "")
		}
	}
	return r
}
