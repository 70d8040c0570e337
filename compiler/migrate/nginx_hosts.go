package migrate

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/diag"
)

// nginxCORS are the defaults of ingress-nginx for CORS.
var nginxCORS = corsDefaults{
	credentials: true, age: "1728000", methods: "GET, PUT, POST, DELETE, PATCH, OPTIONS",
	headers: "DNT,Keep-Alive,User-Agent,X-Requested-With,If-Modified-Since,Cache-Control,Content-Type,Range,Authorization",
}

// pathsOfHost reports paths that match other requests in ingress-nginx. With use-regex or rewrite-target on any
// Ingress of a host, all of its paths are regular expressions for the beginning of a path, without regard to
// case. Otherwise, ImplementationSpecific paths are compared byte by byte.
func pathsOfHost(c *call) {
	var byExpression, byBytes []string
	cause := ""
	for _, p := range c.object.paths {
		if p.path == "" || p.path == "/" && p.kind != "Exact" {
			continue
		}
		switch by := c.object.set.expressionsOf(p.host); {
		case by != "" && p.kind != "Exact" && staysExpression(c):
		case by != "":
			cause = by
			byExpression = append(byExpression, p.path)
		case (p.kind == "ImplementationSpecific" || p.kind == "") && !strings.ContainsAny(p.path, patternSigns) && !strings.HasSuffix(p.path, "/"):
			byBytes = append(byBytes, p.path)
		}
	}
	isPlain := func(path string) bool { return !strings.ContainsAny(path, patternSigns) }
	switch {
	case slices.ContainsFunc(byExpression, isPlain):
		c.differs("", fmt.Sprintf("%s of this Ingress stood for all that begins so, whatever the case, because of use-regex or rewrite-target on Ingress %s", quoted(byExpression), cause),
			"here paths are compared by elements, and case counts: add what clients ask for besides")
	case len(byExpression) > 0:
		c.differs("", fmt.Sprintf("%s of this Ingress matched whatever the case", quoted(byExpression)), "here case counts: add what clients ask for besides")
	}
	if len(byBytes) > 0 {
		c.differs("", fmt.Sprintf("%s of this Ingress stood for all that begins so, being ImplementationSpecific: /apix, too, for /api", quoted(byBytes)),
			"here paths are compared by elements: add what clients ask for besides")
	}
}

// quoted lists the first three paths.
func quoted(paths []string) string {
	paths = slices.Compact(slices.Sorted(slices.Values(paths)))
	noun := "the path "
	if len(paths) > 1 {
		noun = "the paths "
	}
	rest := ""
	if len(paths) > 3 {
		rest = fmt.Sprintf(" and %d more", len(paths)-3)
		paths = paths[:3]
	}
	return noun + strings.Join(paths, ", ") + rest
}

// expressionsOf returns the first Ingress that makes the paths of a host regular
// expressions, or "".
func (s *Set) expressionsOf(host string) string {
	if s == nil {
		return ""
	}
	var found []string
	for _, r := range s.routes {
		target := strings.TrimSpace(r.annotations[nginxPrefix+"rewrite-target"])
		if r.host == host && (r.annotations[nginxPrefix+"use-regex"] == "true" || target != "" && target != r.path) {
			found = append(found, r.namespace+"/"+r.ingress)
		}
	}
	if len(found) == 0 {
		return ""
	}
	return slices.Min(found)
}

// certificatesOfHost requires client certificates if another Ingress of the host does, as ingress-nginx does
// for all clients of the host.
func certificatesOfHost(c *call) {
	if c.has("auth-tls-secret") || c.object.set == nil {
		return
	}
	for _, host := range c.object.set.hosts(c.object.namespace, c.object.name) {
		r, found := c.object.set.clientsOf(host)
		if !found {
			continue
		}
		of := r.namespace + "/" + r.ingress
		if r.namespace != c.object.namespace {
			c.said = append(c.said, finding{diag.Error, "", "clients of " + host + " need a certificate because of Ingress " + of + ", which is of another namespace",
				"copy the Secret of its authorities, and set client-ca-secret"})
			return
		}
		other := &call{object: c.object, rule: c.rule, values: map[string]string{}}
		for _, name := range []string{"auth-tls-secret", "auth-tls-verify-client", "auth-tls-pass-certificate-to-upstream", "auth-tls-match-cn", "auth-tls-error-page"} {
			if value := r.annotations[nginxPrefix+name]; value != "" {
				other.values[name] = value
			}
		}
		nginxClientTLS(other)
		if len(other.kept) > 0 { // the finding is on the other Ingress
			c.said = append(c.said, finding{diag.Error, "", "clients of " + host + " need a certificate because of Ingress " + of + ", whose annotations could not be translated",
				"see what is said of those"})
			return
		}
		c.out = append(c.out, other.out...)
		c.differs("", "clients of "+host+" need a certificate because of Ingress "+of+"; this Ingress asks for it, too, now", "remove client-ca-secret if these routes are for everybody")
		return
	}
}

// clientsOf returns a route of the Ingress that requires client certificates for the host.
func (s *Set) clientsOf(host string) (best setRoute, found bool) {
	for _, r := range s.routes {
		if r.host != host || r.annotations[nginxPrefix+"auth-tls-secret"] == "" || r.annotations[nginxPrefix+"auth-tls-verify-client"] == "off" {
			continue
		}
		if !found || r.namespace+"/"+r.ingress < best.namespace+"/"+best.ingress {
			best, found = r, true
		}
	}
	return best, found
}

// nginxClientTLS translates the authorities of client certificates, and the headers that pass the certificates
// to endpoints.
func nginxClientTLS(c *call) {
	if !c.has("auth-tls-secret") {
		return // the other annotations have no effect alone
	}
	clientTLS("auth-tls-secret", "auth-tls-verify-client")(c)
	if len(c.out) == 0 {
		return
	}
	headers := "ssl-client-verify, ssl-client-subject-dn, ssl-client-issuer-dn"
	if c.value("auth-tls-pass-certificate-to-upstream") == "true" {
		headers += ", ssl-client-cert"
	}
	c.set("client-cert-headers", headers)
	if value := c.value("auth-tls-match-cn"); value != "" {
		name, err := commonName(value)
		if err != nil {
			c.out = nil
			c.keepAll(err.Error(), "client-match-cn is an expression for the whole of a common name")
			return
		}
		c.set("client-match-cn", name)
		if strings.HasSuffix(name, ".*") {
			c.differs("auth-tls-match-cn", "takes any common name that begins so, as it did", "end client-match-cn without .* to take the whole of a name")
		}
	}
	if page := c.value("auth-tls-error-page"); page != "" {
		c.set("client-error-page", page)
		c.differs("auth-tls-error-page", "is for clients without a certificate; those with a wrong one get no connection", "")
	}
}

// commonName returns the expression for a common name. nginx searches for a match anywhere in the
// subject.
func commonName(value string) (string, error) {
	name, ok := strings.CutPrefix(value, "CN=")
	depth := 0
	for i, r := range name {
		switch {
		case r == '\\' && (i+1 == len(name) || strings.IndexByte(".-", name[i+1]) < 0):
			return "", errors.New("holds a backslash before more than a dot")
		case r == '(':
			depth++
		case r == ')':
			depth--
		case strings.ContainsRune(",=/^$", r): // these characters may match other parts of the subject
			return "", errors.New("is about more than the common name")
		case r == '|' && depth == 0:
			return "", errors.New("has parts of which one stands without CN=")
		}
	}
	switch {
	case !ok || name == "":
		return "", errors.New("does not begin with CN=")
	case strings.HasSuffix(name, ".*"):
		return name, nil
	}
	return name + ".*", nil
}

// tlsLimits translates TLS versions and ciphers for connections to endpoints.
func tlsLimits(c *call) {
	if ciphers := c.value("proxy-ssl-ciphers"); ciphers != "" && ciphers != "DEFAULT" {
		c.set("backend-tls-ciphers", ciphers)
	}
	asked := strings.Fields(c.value("proxy-ssl-protocols"))
	if len(asked) == 0 {
		return
	}
	known := []string{"TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"}
	least, most := len(known), -1
	for _, version := range asked {
		i := slices.Index(known, version)
		if i < 0 {
			c.out = nil
			c.keepAll("asks for "+version, "use backend-tls-versions, from 1.0 to 1.3")
			return
		}
		least, most = min(least, i), max(most, i)
	}
	if distinct := slices.Compact(slices.Sorted(slices.Values(asked))); len(distinct) != most-least+1 {
		c.out = nil
		c.keepAll("leaves out a version in between", "use backend-tls-versions with a range")
		return
	}
	c.set("backend-tls-versions", fmt.Sprintf("1.%d-1.%d", least, most))
}

// nginxWWW translates the redirect between the names of a host with and without www.
func nginxWWW(c *call) {
	if c.value("from-to-www-redirect") != "true" {
		return
	}
	c.set("redirect-www", "true")
	var names []string
	for _, p := range c.object.paths {
		name := "www." + p.host
		if rest, ok := strings.CutPrefix(p.host, "www."); ok {
			name = rest
		}
		if p.host != "" && !strings.HasPrefix(p.host, "*") && !slices.Contains(c.object.tlsHosts, name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if c.object.hasTLS && len(names) > 0 {
		c.differs("from-to-www-redirect", "serves "+strings.Join(names, ", ")+" with the default certificate; ingress-nginx served that of the host, if it covers the name", "list it in tls")
	}
}

// nginxCookies translates the rewriting of cookies from endpoints.
func nginxCookies(c *call) {
	for from, to := range map[string]string{"proxy-cookie-path": "rewrite-cookie-path", "proxy-cookie-domain": "rewrite-cookie-domain"} {
		words := strings.Fields(c.value(from))
		switch {
		case len(words) == 0 || words[0] == "off":
		case len(words) != 2 || strings.HasPrefix(words[0], "~") || strings.Contains(c.value(from), "$"):
			c.keep(from, "holds an expression or a variable", "use "+to+" with two words")
		default:
			c.set(to, words[0]+" "+words[1])
		}
	}
	slices.SortFunc(c.out, func(a, b annotation) int { return strings.Compare(a.name, b.name) })
}

// nginxParams translates FastCGI variables from a ConfigMap.
func nginxParams(c *call) {
	if !c.speaks("FCGI", "fcgi") {
		c.differs("fastcgi-params-configmap", "is removed: backend-protocol is not FCGI", "")
		return
	}
	name, params, found := c.configMap("fastcgi-params-configmap", "write its variables into fcgi-params")
	if !found {
		return
	}
	var lines []string
	for _, param := range slices.Sorted(maps.Keys(params)) {
		value := params[param]
		if strings.ContainsAny(value, "$\n") {
			c.keep("fastcgi-params-configmap", fmt.Sprintf("has %s with a variable of nginx", param), "write it out, or use fcgi-root and fcgi-path-info")
			return
		}
		if value != "" {
			lines = append(lines, param+" "+value)
		}
		if param == "DOCUMENT_ROOT" {
			c.set("fcgi-root", value)
		}
	}
	setLines(c, "fcgi-params", lines)
	c.differs("fastcgi-params-configmap", "no longer follows ConfigMap "+name, "its variables are written into fcgi-params")
}

// nginxSession translates sessions by cookie. Options of the cookie have no effect without affinity.
func nginxSession(c *call) {
	if c.value("affinity") != "cookie" {
		if c.has("affinity") {
			c.keepAll(strconv.Quote(c.value("affinity"))+" has no equivalent", "see "+ours+"affinity")
		}
		return
	}
	c.set("affinity", "cookie")
	var paths, services []string
	for _, p := range c.object.paths {
		if !slices.Contains(paths, cookiePathOf(p)) {
			paths = append(paths, cookiePathOf(p))
		}
		if !slices.Contains(services, p.service) {
			services = append(services, p.service)
		}
	}
	switch {
	case !c.has("session-cookie-name"):
	case len(services) > 1:
		c.differs("session-cookie-name", "is left out, for under one name the Services of the Ingress would take each other's sessions", "split the Ingress, and give each a name or a path of its own, if clients know the name")
	default:
		c.set("affinity-cookie-name", c.value("session-cookie-name"))
	}
	switch {
	case c.has("session-cookie-path"):
		c.set("affinity-cookie-path", c.value("session-cookie-path"))
	case len(paths) == 1 && paths[0] != "/":
		c.set("affinity-cookie-path", paths[0])
	case len(paths) > 1 && len(services) == 1:
		c.differs("affinity", "has a cookie for each path there, and one for all here", "set affinity-cookie-path, if they begin alike")
	}
	if c.has("session-cookie-domain") {
		c.set("affinity-cookie-domain", c.value("session-cookie-domain"))
	}
	if c.has("session-cookie-samesite") {
		c.set("affinity-cookie-same-site", c.value("session-cookie-samesite"))
	}
	age := c.value("session-cookie-max-age")
	if age == "" {
		age = c.value("session-cookie-expires")
	}
	switch n, err := strconv.Atoi(age); {
	case age == "":
	case err != nil || n < 1:
		c.differs("session-cookie-max-age", strconv.Quote(age)+" is no age for a cookie; it ends with the browser", "see "+ours+"affinity-cookie-max-age")
	default:
		c.set("affinity-cookie-max-age", age)
	}
	switch c.value("session-cookie-secure") {
	case "true", "false":
		c.set("affinity-cookie-secure", c.value("session-cookie-secure"))
	default:
		c.set("affinity-cookie-secure", "auto")
	}
}

// cookiePathOf returns the path of the session cookie for a path.
func cookiePathOf(p pathEdit) string {
	if p.prefix != "" {
		return p.prefix
	}
	return orRoot(pathStart(p.path))
}
