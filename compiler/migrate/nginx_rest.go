package migrate

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// nginxRest are annotations of ingress-nginx that change little.
func nginxRest() []Rule {
	return rules(one(
		same("fastcgi-index", "fcgi-index"),
		Rule{
			From: []string{"fastcgi-params-configmap"}, To: []string{"fcgi-params", "fcgi-root"}, convert: nginxParams,
			Note: "The variables of the ConfigMap, if it is among the manifests, and they hold no variables of nginx. They no longer follow it.",
		},
	), needless("A value goes to one endpoint, and not to a few, while that is there.", "upstream-hash-by-subset", "upstream-hash-by-subset-size"),
		needless("A redirect to HTTPS names no port, and other redirects the one that they are given.", "use-port-in-redirects"),
		needless("A redirect is sent as it is written.", "relative-redirects"),
		needless("It is about `custom-http-errors`, which is left out where it is `true`.", "disable-proxy-intercept-errors"))
}

// limitExempt returns the networks that are not limited; limit-whitelist is the older
// name of limit-allowlist.
func (c *call) limitExempt() string {
	if c.has("limit-allowlist") {
		return c.value("limit-allowlist")
	}
	return c.value("limit-whitelist")
}

// saysOfCanaries says what becomes of requests while a Service of a canary has no
// endpoints.
func (c *call) saysOfCanaries(percent int) {
	if percent == 100 {
		c.differs("canary-weight", "with 100, requests get 503 while the canary has no endpoints; ingress-nginx sent them to the other Ingress then",
			"use canary-by-header for tests, and change the Service of the other Ingress in the end")
	}
}

// nginxCanary translates that an Ingress is a canary.
func nginxCanary(c *call) {
	if c.value("canary") != "true" {
		return
	}
	c.set("canary", "true")
	if weight := c.value("canary-weight"); weight != "0" && weight != "" || c.has("canary-by-header") || c.has("canary-by-cookie") {
		c.differs("canary", "gets its requests while the other Ingress has no endpoints, too, and all of them by weight; ingress-nginx answered 503", "")
	}
}

// verdict says in a word what becomes of a rule's annotations.
func (r Rule) verdict() string {
	switch {
	case r.Needless || r.Removed:
		return "said"
	case len(r.To) == 0:
		return "refused"
	case r.Note == "":
		return "equal"
	case strings.HasPrefix(r.Note, "See above"):
		return "equal"
	}
	return "differs"
}

// nginxOrigin matches the origins that ingress-nginx takes; it skips others.
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
