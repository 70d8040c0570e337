package migrate

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/options"
)

// externalRule translates external authentication.
func externalRule() Rule {
	return Rule{
		From: []string{"auth-url", "auth-method", "auth-signin", "auth-signin-redirect-param", "auth-response-headers"},
		To:   []string{"auth-url", "auth-host", "auth-method", "auth-signin", "auth-signin-return", "auth-signin-parameter", "auth-response-headers"},
		Note: "A URL of a host, such as `https://$host/oauth2/auth`, becomes that of the Service to which an Ingress among the manifests sends that host and path. " +
			"Of `auth-signin`, `$host` and what is usual as `rd` are translated. There are no other variables of nginx.",
		convert: func(c *call) {
			if !c.has("auth-url") {
				for _, name := range c.rule.From {
					if c.has(name) {
						c.differs(name, "is removed: it means nothing without auth-url", "")
					}
				}
				return
			}
			if err := authURL(c); err != nil {
				keepFor(c, "auth-url", err, "name a Service, such as http://auth.shop.svc:8080/check; it gets X-Original-URL, -Method and -Host")
				return
			}
			if err := signIn(c); err != nil {
				keepFor(c, "auth-signin", err, "write the URL out; the one that was asked for follows as parameter rd")
				return
			}
			for _, name := range []string{"auth-method", "auth-response-headers"} {
				if c.has(name) {
					c.set(name, c.value(name))
				}
			}
		},
	}
}

// keepFor keeps all annotations of the rule because one of them cannot be translated.
func keepFor(c *call, name string, err error, hint string) {
	c.out, c.said = nil, nil
	for _, other := range c.rule.From {
		switch {
		case other == name:
			c.keep(name, err.Error(), hint)
		case c.has(other):
			c.keep(other, "stays with "+name, "")
		}
	}
}

// ofHost matches a URL whose host is the host of the request.
var ofHost = regexp.MustCompile(`^(https?|\$scheme|\$pass_access_scheme)://(\$host|\$http_host|\$best_http_host|\$server_name)(/.*)?$`)

// authURL translates the URL of the authentication service.
func authURL(c *call) error {
	value := c.value("auth-url")
	if m := ofHost.FindStringSubmatch(value); m != nil {
		if strings.Contains(m[3], "$") {
			return fmt.Errorf("holds a variable of nginx")
		}
		return authOfHosts(c, c.object.set.hosts(c.object.namespace, c.object.name), orRoot(m[3]), "request-host")
	}
	u, err := url.Parse(value)
	switch {
	case strings.Contains(value, "$"):
		return fmt.Errorf("holds a variable of nginx")
	case err != nil || u.Host == "":
		return fmt.Errorf("is no URL")
	}
	if _, ours := c.object.set.route(u.Hostname(), orRoot(u.Path)); !ours {
		if u.Scheme == "https" {
			return fmt.Errorf("asks by TLS, and no Ingress among the manifests has host %s and path %s", u.Hostname(), orRoot(u.Path))
		}
		c.set("auth-url", value)
		return nil
	}
	path := orRoot(u.EscapedPath())
	if u.RawQuery != "" {
		path += "?" + u.RawQuery
	}
	return authOfHosts(c, []string{u.Hostname()}, path, u.Host)
}

// authOfHosts finds the Service that gets a path on all hosts. Every host must route the path to the same
// Service, unchanged.
func authOfHosts(c *call, hosts []string, target, host string) error {
	path, _, _ := strings.Cut(target, "?")
	service := ""
	for _, h := range hosts {
		r, found := c.object.set.route(h, path)
		if !found {
			return fmt.Errorf("leads to host %q and path %s, which no Ingress among the manifests has", h, path)
		}
		for _, name := range []string{"rewrite-target", "upstream-vhost", "backend-protocol", "auth-url", "auth-type"} {
			if value := r.annotations[nginxPrefix+name]; value != "" && !strings.EqualFold(value, "http") {
				return fmt.Errorf("leads to Ingress %s/%s, whose %s would not hold for the Service itself", r.namespace, r.ingress, name)
			}
		}
		for _, name := range []string{"rewrite-path", "rewrite-host", "backend-protocol", "auth-url", "auth-basic"} {
			if value := r.annotations[options.Prefix+name]; value != "" && value != "h1" {
				return fmt.Errorf("leads to Ingress %s/%s, whose %s would not hold for the Service itself", r.namespace, r.ingress, name)
			}
		}
		number, known := c.object.set.number(r)
		if !known {
			return fmt.Errorf("leads to port %s of Service %s/%s, whose number is not known: the Service is not among the manifests", r.port, r.namespace, r.service)
		}
		next := r.service + "." + r.namespace + ".svc:" + number
		if service != "" && next != service {
			return fmt.Errorf("leads to two Services, %s and %s", service, next)
		}
		service = next
		if r.namespace != c.object.namespace {
			c.differs("auth-url", fmt.Sprintf("asks Service %s/%s of another namespace", r.namespace, r.service),
				fmt.Sprintf("add %s/%s to shared.authServices of the CompilerConfig; until then the routes answer 503", r.namespace, r.service))
		}
	}
	if service == "" {
		return fmt.Errorf("leads to the hosts of the Ingress, which has none")
	}
	c.set("auth-url", "http://"+service+target)
	c.set("auth-host", host)
	return nil
}

// returned matches the usual query parameter with the URL to return to: the whole URL, or its path and query.
var returned = regexp.MustCompile(`^(?:((?:\$scheme|\$pass_access_scheme|https?)(?:://|%3A%2F%2F)(?:\$host|\$http_host|\$best_http_host))?(\$request_uri|\$escaped_request_uri))$`)

// signIn translates the URL of the login page.
func signIn(c *call) error {
	if !c.has("auth-signin") {
		return nil
	}
	base, query, _ := strings.Cut(c.value("auth-signin"), "?")
	if m := ofHost.FindStringSubmatch(base); m != nil {
		base = orRoot(m[3])
		if m[1] == "https" && !redirectsToTLS(c) {
			c.differs("auth-signin", "leads by the scheme of the request to the same host, and not always by https", "turn ssl-redirect on")
		}
	}
	parameter := c.value("auth-signin-redirect-param")
	if parameter == "" {
		parameter = "rd"
	}
	back := "url"
	var rest []string
	for pair := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(pair, "=")
		m := returned.FindStringSubmatch(value)
		switch {
		case pair == "":
		case (name == parameter || !c.has("auth-signin-redirect-param")) && m != nil:
			if name != parameter {
				c.differs("auth-signin", "tells what was asked for as "+name+" alone, and not as "+parameter+", too", "")
				parameter = name
			}
			back = "url"
			if m[1] == "" {
				back = "path"
			}
			if m[2] == "$request_uri" {
				c.differs("auth-signin", "tells "+name+" percent-encoded, which nginx did not do with $request_uri", "")
			}
		default:
			if name == parameter && value != "" {
				back = "none"
			}
			rest = append(rest, pair)
		}
	}
	if len(rest) > 0 {
		base += "?" + strings.Join(rest, "&")
	}
	if strings.Contains(base, "$") {
		return fmt.Errorf("holds a variable of nginx")
	}
	c.set("auth-signin", base)
	if back != "url" {
		c.set("auth-signin-return", back)
	}
	if parameter != "rd" && back != "none" {
		c.set("auth-signin-parameter", parameter)
	}
	return nil
}

// redirectsToTLS reports whether ingress-nginx redirects plain HTTP to HTTPS for the object.
func redirectsToTLS(c *call) bool {
	return c.value("force-ssl-redirect") == "true" || c.object.hasTLS && c.value("ssl-redirect") != "false"
}

// nginxErrors translates the pages for errors of endpoints, and for requests whose Service has no endpoints.
func nginxErrors(c *call) {
	if service := c.value("default-backend"); service != "" {
		c.set("fallback-service", service)
	}
	errors := c.value("custom-http-errors")
	switch {
	case errors == "":
		return
	case c.value("disable-proxy-intercept-errors") == "true": // the annotation disables what is translated here
		return
	case redirectsAll(c):
		c.differs("custom-http-errors", "is removed: all requests are redirected, and no endpoint is asked", "")
		return
	}
	for status := range strings.SplitSeq(errors, ",") {
		if n, err := strconv.Atoi(strings.TrimSpace(status)); err != nil || n < 400 || n > 599 {
			c.out = nil
			c.keepAll(strconv.Quote(status)+" is not the status of an error", "use intercept-errors with 400 to 599")
			return
		}
	}
	c.set("intercept-errors", errors)
	c.differs("custom-http-errors", "answers with the pages of errorPages in the CompilerConfig, and with a word where there is none; no Service is asked for a page", "")
}

// redirectsAll reports whether an Ingress redirects all of its requests.
func redirectsAll(c *call) bool {
	if c.object.annotations[options.Prefix+"redirect"] != "" || c.value("permanent-redirect") != "" || c.value("temporal-redirect") != "" {
		return true
	}
	return targetURL.MatchString(c.value("rewrite-target")) && len(c.object.paths) > 0 &&
		!slices.ContainsFunc(c.object.paths, func(p pathEdit) bool { return p.path != "/(.*)" && p.path != "/?(.*)" })
}

// nginxSatisfy translates that one of several protections is enough. If there is only one, it changes nothing.
func nginxSatisfy(c *call) {
	ways := 0
	for ours, names := range map[string][]string{"allow-list": {"whitelist-source-range", "allowlist-source-range"}, "auth-basic": {"auth-type"}, "auth-url": {"auth-url"}} {
		if c.object.annotations[options.Prefix+ours] != "" || slices.ContainsFunc(names, func(name string) bool { return c.value(name) != "" }) {
			ways++
		}
	}
	if c.value("satisfy") != "any" || ways < 2 {
		return
	}
	c.set("satisfy", "any")
	if c.has("denylist-source-range") {
		c.differs("satisfy", "still refuses the clients of denylist-source-range, even with a password", "")
	}
}

// nginxCanaryHeader translates the values of a header that send requests to a canary.
func nginxCanaryHeader(c *call) {
	name, value, pattern := c.value("canary-by-header"), c.value("canary-by-header-value"), c.value("canary-by-header-pattern")
	switch {
	case name == "": // the other annotations have no effect then
		return
	case value != "" || pattern == "":
		c.set("canary-by-header", strings.TrimSpace(name+" "+value))
		return
	}
	_, err := syntax.Parse(pattern, syntax.Perl)
	if why, ok := errors.AsType[*syntax.Error](err); ok && slices.Contains(unreadable, why.Code) {
		c.differs("canary-by-header-pattern", "is left out, with the header: no engine reads the expression, and ingress-nginx sends no request to the canary for it", "")
		return
	}
	c.set("canary-by-header", name)
	c.set("canary-by-header-pattern", pattern)
}

// unreadable are syntax errors that every engine rejects.
var unreadable = []syntax.ErrorCode{syntax.ErrMissingBracket, syntax.ErrMissingParen, syntax.ErrTrailingBackslash}
