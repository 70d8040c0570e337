package migrate

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/hapsnap/hapsnap/compiler/diag"
)

// haproxytech returns the dialect of HAProxy Technologies' controller. Services may have most of its
// annotations too.
func haproxytech() Dialect {
	return Dialect{
		Name: "HAProxy Kubernetes Ingress Controller (haproxy.org)", Prefixes: []string{"haproxy.org/", "haproxy.com/"}, Classes: []string{"haproxy"}, ofServices: true,
		Remarks: "Annotations with the prefix `ingress.kubernetes.io/` count as those of HAProxy Ingress, below. Settings of its ConfigMap go into the CompilerConfig.",
		Rules:   rules(techRouting(), techServers(), techProtection(), techHeaders(), techOthers()),
		defaults: []diag.Diagnostic{configMapUnread("the HAProxy Kubernetes Ingress Controller",
			"allow-list, whitelist, deny-list, blacklist, auth-type, client-ca, rate-limit-requests, frontend-config-snippet and backend-config-snippet")},
	}
}

func techRouting() []Rule {
	return rules(one(
		Rule{
			From: []string{"ssl-redirect", "ssl-redirect-code"}, To: []string{"ssl-redirect"}, Note: "The status is 302 unless another one is given, as there.",
			convert: func(c *call) {
				code := "302"
				if c.has("ssl-redirect-code") {
					code = c.value("ssl-redirect-code")
				}
				if c.value("ssl-redirect") == "true" {
					c.set("ssl-redirect", code)
				}
			},
		},
		Rule{
			From: []string{"request-redirect", "request-redirect-code"}, To: []string{"redirect"}, convert: techRedirect,
			Note: "The host becomes a URL, with https if the Ingress has `tls`.",
		},
		Rule{From: []string{"path-rewrite"}, To: []string{"rewrite-path"}, convert: techRewrite, Note: "The value is one expression; a plain path replaces the whole path."},
		same("set-host", "rewrite-host"),
		mapped("ssl-passthrough", "ssl-passthrough", map[string]string{"true": "true", "false": ""}),
	), without("Make an Ingress for what the condition matches, or a canary.", "route-acl"),
		without("Redirects to HTTPS go to the port that clients see; redirect to another one with `redirect`.", "ssl-redirect-port"),
		without("Set options of the Ingress or Service for what the custom resource says.", "cr-backend"),
		needless("An Ingress with options has backends of its own.", "standalone-backend"))
}

// techRedirect translates a redirect to a host or a URL.
func techRedirect(c *call) {
	code := "302"
	if c.has("request-redirect-code") {
		code = c.value("request-redirect-code")
	}
	scheme := "http://"
	if c.object.hasTLS {
		scheme = "https://"
	}
	c.set("redirect", scheme+c.value("request-redirect")+" "+code)
}

// techRewrite translates the rewriting of a path by one expression.
func techRewrite(c *call) {
	value := c.value("path-rewrite")
	switch lines := strings.Split(value, "\n"); {
	case len(lines) > 1:
		c.keep("path-rewrite", "has several expressions", "write one expression, or make several Ingresses")
	case len(strings.Fields(value)) == 1:
		c.set("rewrite-path", "^.* "+value)
	default:
		c.set("rewrite-path", value)
	}
}

func techServers() []Rule {
	return rules(one(
		Rule{From: []string{"load-balance"}, To: []string{"balance"}, convert: func(c *call) { c.balance("load-balance") }, Note: "Algorithms and their arguments keep HAProxy's names; `hdr` and `url_param` become `header` and `query`."},
		same("pod-maxconn", "max-connections"),
		same("timeout-check", "health-check-timeout"),
		same("timeout-connect", "timeout-connect"),
		same("timeout-queue", "timeout-queue"),
		same("timeout-server", "timeout-server"),
		same("timeout-tunnel", "timeout-tunnel"),
		checked("check-interval"),
		Rule{From: []string{"check-http"}, To: []string{"health-check-path"}, convert: techCheck, Note: "The method becomes GET."},
		Rule{From: []string{"check"}, Needless: true, Note: "Endpoints are always checked.", convert: mapped("check", "health-check-path", map[string]string{"true": ""}).convert},
		mapped("send-proxy-protocol", "send-proxy-protocol", map[string]string{"proxy": "v1", "proxy-v1": "v1", "proxy-v2": "v2"}),
		Rule{
			From: []string{"server-ssl", "server-proto"}, To: []string{"backend-protocol"}, convert: func(c *call) {
				protocol := "h1"
				if c.value("server-proto") == "h2" {
					protocol = "h2"
				}
				if c.value("server-ssl") == "true" {
					protocol += "-tls"
				}
				c.set("backend-protocol", protocol)
			},
		},
		secretRule("server-ca", "backend-ca-secret"),
		secretRule("server-crt", "backend-client-secret"),
		Rule{From: []string{"cookie-persistence"}, To: []string{"affinity", "affinity-cookie-name"}, convert: func(c *call) {
			c.set("affinity", "cookie")
			c.set("affinity-cookie-name", c.value("cookie-persistence"))
		}},
	), without("Cookies are a hash of the endpoint's address: use `affinity`.", "cookie-persistence-no-dynamic"),
		without("The timeout applies to clients: set `timeouts.httpKeepAlive` in the CompilerConfig.", "timeout-http-keep-alive"),
		needless("Spare slots follow the number of endpoints.", "scale-server-slots"),
		without("Set the timeout for all in the CompilerConfig.", "timeout-client", "timeout-client-fin", "timeout-http-request", "timeout-server-fin"))
}

// techCheck translates a health check, of which only the path is kept.
func techCheck(c *call) {
	for word := range strings.FieldsSeq(c.value("check-http")) {
		if strings.HasPrefix(word, "/") {
			c.set("health-check-path", word)
			return
		}
	}
	c.keep("check-http", "names no path", "use health-check-path")
}

// balance translates a balancing algorithm of HAProxy.
func (c *call) balance(from string) {
	name, argument, _ := strings.Cut(strings.TrimSuffix(strings.Replace(c.value(from), "(", " ", 1), ")"), " ")
	argument = strings.TrimSpace(argument)
	switch name {
	case "roundrobin", "leastconn", "first", "source", "random", "uri":
		c.set("balance", name)
	case "static-rr":
		c.set("balance", "roundrobin")
	case "hdr":
		c.set("balance", "header "+argument)
	case "url_param":
		c.set("balance", "query "+argument)
	default:
		c.keep(from, fmt.Sprintf("%q has no equivalent", c.value(from)), "see "+ours+"balance")
	}
}

// secretRule translates an annotation that names a Secret.
func secretRule(from, to string) Rule {
	return Rule{From: []string{from}, To: []string{to}, Note: "The Secret must be in the same namespace.", convert: func(c *call) {
		if secret, ok := c.secret(from); ok {
			c.set(to, secret)
		}
	}}
}

func techProtection() []Rule {
	return rules(one(
		networks("allow-list", "allow-list"), networks("whitelist", "allow-list"),
		networks("deny-list", "deny-list"), networks("blacklist", "deny-list"),
		Rule{
			From: []string{"rate-limit-requests", "rate-limit-period", "rate-limit-status-code", "rate-limit-whitelist"}, To: []string{"rate-limit", "rate-limit-period", "rate-limit-status", "rate-limit-exempt"},
			convert: techRate,
		},
		Rule{
			From: []string{"auth-type", "auth-secret", "auth-realm"}, To: []string{"auth-basic", "auth-basic-realm"}, convert: techBasic,
			Note: "The Secrets there have one key for each user. Put all users under the key `auth`, one `user:hash` on each line.",
		},
	), needless("HAProxy's tables have room for 100,000 clients, and [fewer](bounds.md#how-many-clients-rate-limits-count) if there are many.", "rate-limit-size"))
}

// networks translates a list of networks. A file of patterns becomes a named list, which the administrator has
// to create.
func networks(from, to string) Rule {
	return Rule{From: []string{from}, To: []string{to}, Note: "Pattern files must be moved by hand, to named lists in ConfigMaps.", convert: func(c *call) {
		if strings.HasPrefix(c.value(from), "patterns/") {
			c.keep(from, "is a file of patterns", "put the networks into a ConfigMap, and name the list in "+to)
			return
		}
		c.set(to, c.value(from))
	}}
}

// techRate translates a rate limit, which responds with 403 unless a status is given.
func techRate(c *call) {
	if !c.has("rate-limit-requests") {
		return
	}
	c.set("rate-limit", c.value("rate-limit-requests"))
	if c.has("rate-limit-period") {
		c.set("rate-limit-period", c.value("rate-limit-period"))
	}
	status := "403"
	if c.has("rate-limit-status-code") {
		status = c.value("rate-limit-status-code")
	}
	c.set("rate-limit-status", status)
	switch exempt := c.value("rate-limit-whitelist"); {
	case strings.HasPrefix(exempt, "patterns/"):
		c.keep("rate-limit-whitelist", "is a file of patterns", "put the networks into a ConfigMap, and name the list in rate-limit-exempt")
	case exempt != "":
		c.set("rate-limit-exempt", exempt)
	}
}

// techBasic translates password protection. Our Secret has another form.
func techBasic(c *call) {
	if c.value("auth-type") != "basic-auth" {
		c.keepAll(fmt.Sprintf("authentication of type %q has no equivalent", c.value("auth-type")), "use auth-basic or auth-url")
		return
	}
	if secret, ok := c.secret("auth-secret"); ok {
		c.set("auth-basic", secret)
		c.setRealm("auth-realm")
		c.differs("auth-secret", "is translated, but its Secret has another form here", "put all users under the key auth, one user:hash on a line; nobody gets in until then")
	}
}

func techHeaders() []Rule {
	return rules(one(
		headerEdits("request-set-header", "request-headers"),
		headerEdits("response-set-header", "response-headers"),
		mapped("forwarded-for", "forwarded-for", map[string]string{"true": "", "false": "off"}),
		Rule{
			From: []string{"cors-enable", "cors-allow-origin", "cors-allow-methods", "cors-allow-headers", "cors-allow-credentials", "cors-max-age"},
			To:   []string{"cors-allow-origin", "cors-allow-origin-pattern", "cors-allow-methods", "cors-allow-headers", "cors-allow-credentials", "cors-max-age"},
			Note: "An expression for origins must begin with `^` and end with `$`.", convert: cors("cors-enable", corsDefaults{age: "5", methods: "*", headers: "*", expression: true}),
		},
	), without("Set `proxyProtocol` in the CompilerConfig, or use `forwarded-for`.", "src-ip-header"))
}

// headerEdits translates lines of a name and a value.
func headerEdits(from, to string) Rule {
	return Rule{From: []string{from}, To: []string{to}, convert: func(c *call) {
		var out []string
		for line := range strings.Lines(c.value(from)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			if name == "" {
				continue
			}
			out = append(out, "set "+name+" "+strings.Trim(strings.TrimSpace(value), `"`))
		}
		c.set(to, strings.Join(out, "\n"))
	}}
}

func techOthers() []Rule {
	return rules(one(
		Rule{From: []string{"backend-config-snippet"}, To: []string{"snippet"}, Note: "This needs an administrator who allows snippets in the namespace.", convert: func(c *call) {
			c.set("snippet", c.value("backend-config-snippet"))
			c.differs("backend-config-snippet", "needs the administrator's leave", "name the namespace in snippets of the CompilerConfig")
		}},
	), without("Set a log format in the CompilerConfig.", "request-capture", "request-capture-len"))
}

// Other controllers are also told what to do by objects that are neither Ingresses nor Services. None of these is
// translated, and what they serve or protect would be missed only when the other controller is gone.

// customGroup ends the API groups of the custom resources of HAProxy Technologies' controller, such as
// ingress.v3.haproxy.org.
const customGroup = ".haproxy.org"

// custom says of the kinds of these custom resources what to do instead.
var custom = map[string]string{
	"TCP":             "list its ports in tcpServices of the CompilerConfig, or let the Service ask for them with hapsnap.dev/tcp-port",
	"Backend":         "set options of the Ingresses and Services whose annotation cr-backend names it; see docs/reference/annotations.md",
	"ValidationRules": "it defines annotations such as backend.PREFIX/NAME, which hapsnap does not read: see docs/reference/annotations.md for options that do the same",

	"Global":   "compare it with docs/reference/configuration.md",
	"Defaults": "compare it with docs/reference/configuration.md",
}

// beside returns what is left to do about an object that is not rewritten.
func beside(n *yaml.Node) []Finding {
	group, _, _ := strings.Cut(text(n, "apiVersion"), "/")
	kind := text(n, "kind")
	switch {
	case strings.HasSuffix(group, customGroup):
		hint := custom[kind]
		if hint == "" {
			hint = "look up what it does, and see docs/reference/configuration.md"
		}
		return []Finding{{
			Severity: diag.Error, Object: objectOf(n, kind), Line: n.Line, Column: n.Column,
			Message: "is a custom resource of the HAProxy Kubernetes Ingress Controller, and is not translated", Hint: hint,
		}}
	case kind == "ConfigMap" && group == "v1":
		return tcpPorts(n)
	}
	return nil
}

// passed is an entry of the ConfigMaps in which all three controllers list TCP and UDP ports, such as
// 9000: "shop/db:5432:PROXY". The port of the Service may have a name.
var passed = regexp.MustCompile(`^([a-z0-9][-a-z0-9]*/[a-z0-9][-.a-z0-9]*):([-a-z0-9]+)((?::[^:]*)*)$`)

// tcpPorts returns a finding for each port, if each entry of the ConfigMap is about one.
func tcpPorts(n *yaml.Node) []Finding {
	var out []Finding
	data := child(n, "data")
	for i := 0; data != nil && data.Kind == yaml.MappingNode && i+1 < len(data.Content); i += 2 {
		key, value := data.Content[i], strings.TrimSpace(data.Content[i+1].Value)
		port, err := strconv.ParseUint(key.Value, 10, 16)
		m := passed.FindStringSubmatch(value)
		if err != nil || port == 0 || m == nil {
			return nil // it is about something else
		}
		f := Finding{Severity: diag.Error, Object: objectOf(n, "ConfigMap"), Line: key.Line, Column: key.Column}
		if strings.Contains(f.Object.Name, "udp") {
			f.Message = fmt.Sprintf("data.%d: HAProxy has no UDP port for %s", port, m[1])
			f.Hint = "give the Service a load balancer of its own, with type LoadBalancer"
		} else {
			f.Message = fmt.Sprintf("data.%d: the port is not translated, and nobody reaches %s by it without the other controller", port, m[1])
			f.Hint = "write into spec of the CompilerConfig: " + entryFor(port, m[1]+":"+m[2], strings.Split(m[3], ":"))
		}
		out = append(out, f)
	}
	return out
}

// entryFor returns the entry of tcpServices that does the same. The fields behind the port of the Service are PROXY for the
// header that clients send, PROXY, PROXY-V1 or PROXY-V2 for the one that endpoints get, and the Secret of a certificate. A
// controller has ssl in the first one, for its own certificate.
func entryFor(port uint64, service string, fields []string) string {
	entry, remarks := fmt.Sprintf("{port: %d, service: %q", port, service), ""
	field := func(i int) string {
		if i < len(fields) {
			return strings.TrimSpace(fields[i])
		}
		return ""
	}
	switch strings.ToUpper(field(1)) {
	case "PROXY":
		entry += ", proxyProtocol: {trusted: [NETWORKS]}"
		remarks = "; NETWORKS are those that send the header of the PROXY protocol"
	case "SSL":
		entry += `, tls: {secret: "NAMESPACE/NAME"}`
		remarks = "; the certificate was that of the controller"
	}
	switch sent := strings.ToUpper(field(2)); sent {
	case "PROXY": // version 1 in one controller, 2 in the other
		entry += ", sendProxyProtocol: VERSION"
		remarks += "; VERSION is 1 for what ingress-nginx sent, and 2 for HAProxy Ingress"
	case "PROXY-V1", "PROXY-V2":
		entry += ", sendProxyProtocol: " + strings.TrimPrefix(sent, "PROXY-V")
	}
	if secret := field(3); strings.Contains(secret, "/") {
		entry += fmt.Sprintf(", tls: {secret: %q}", secret)
	}
	return "tcpServices: [" + entry + "}]" + remarks
}

// objectOf names an object.
func objectOf(n *yaml.Node, kind string) diag.Object {
	return diag.Object{Kind: kind, Namespace: namespaceOf(n), Name: text(child(n, "metadata"), "name")}
}
