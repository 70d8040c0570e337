package migrate

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/diag"
)

// nginxCORS are what ingress-nginx does if CORS is only turned on.
var nginxCORS = corsDefaults{
	credentials: true, age: "1728000", methods: "GET, PUT, POST, DELETE, PATCH, OPTIONS",
	headers: "DNT,Keep-Alive,User-Agent,X-Requested-With,If-Modified-Since,Cache-Control,Content-Type,Range,Authorization",
}

// nginxHosts translates what ingress-nginx does to all Ingresses of a host because one of
// them says so, and says how it compares paths.
func nginxHosts(c *call) {
	c.pathsOfHost()
	c.certificatesOfHost()
}

// pathsOfHost says what the paths of an Ingress stood for. With use-regex or
// rewrite-target on any Ingress of a host, all of its paths are regular expressions for
// what a path begins with, whatever the case; without, paths that are
// ImplementationSpecific are compared byte by byte.
func (c *call) pathsOfHost() {
	var byExpression, byBytes []string
	cause := ""
	for _, p := range c.object.paths {
		if p.path == "" || p.path == "/" && p.kind != "Exact" {
			continue
		}
		switch by := c.object.set.expressionsOf(p.host); {
		case by != "" && p.kind != "Exact" && c.staysExpression():
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

// quoted lists paths, the first three at most.
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

// certificatesOfHost asks for certificates where another Ingress of the host has its
// clients asked for them: ingress-nginx asks all clients of the host then.
func (c *call) certificatesOfHost() {
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
		if len(other.kept) > 0 { // said at the other Ingress
			c.said = append(c.said, finding{diag.Error, "", "clients of " + host + " need a certificate because of Ingress " + of + ", whose annotations could not be translated",
				"see what is said of those"})
			return
		}
		c.out = append(c.out, other.out...)
		c.differs("", "clients of "+host+" need a certificate because of Ingress "+of+"; this Ingress asks for it, too, now", "remove client-ca-secret if these routes are for everybody")
		return
	}
}

// clientsOf returns a route of the Ingress that has clients of a host asked for
// certificates.
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

// nginxClientTLS translates the authorities of clients, and what endpoints are told of
// certificates.
func nginxClientTLS(c *call) {
	if !c.has("auth-tls-secret") {
		return // the others mean nothing alone
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
	c.clientName()
}

// clientName translates which names clients may have, and where those without a certificate
// are sent.
func (c *call) clientName() {
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

// commonName returns the expression for a common name of one for the subject, of which nginx
// looks for a match anywhere.
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
		case strings.ContainsRune(",=/^$", r): // where it begins and ends is about other parts of the subject
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
