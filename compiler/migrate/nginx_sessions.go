package migrate

import (
	"slices"
	"strconv"
)

func nginxSessionRule() Rule {
	return Rule{
		From: []string{
			"affinity", "session-cookie-name", "session-cookie-path", "session-cookie-domain", "session-cookie-samesite",
			"session-cookie-max-age", "session-cookie-expires", "session-cookie-secure",
		},
		To: []string{
			"affinity", "affinity-cookie-name", "affinity-cookie-path", "affinity-cookie-domain", "affinity-cookie-same-site",
			"affinity-cookie-max-age", "affinity-cookie-secure",
		},
		convert: nginxSession,
		Note:    "Without `session-cookie-path`, the path is that of the Ingress's rule, as there; `/` where it has several. `session-cookie-expires` becomes Max-Age. Secure over HTTPS, as there. An Ingress of several Services gets a cookie for each, whose names are ours.",
	}
}

// nginxSession translates sessions by cookie. What is said of the cookie means nothing
// without affinity.
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

// cookiePathOf returns the path of the cookie of a rule.
func cookiePathOf(p pathEdit) string {
	if p.prefix != "" {
		return p.prefix
	}
	return orRoot(pathStart(p.path))
}
