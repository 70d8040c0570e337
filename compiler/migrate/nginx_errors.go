package migrate

import (
	"errors"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/options"
)

// nginxErrors translates what becomes of answers that are errors, and of requests for a Service
// without endpoints.
func nginxErrors(c *call) {
	if service := c.value("default-backend"); service != "" {
		c.set("fallback-service", service)
	}
	errors := c.value("custom-http-errors")
	switch {
	case errors == "":
		return
	case c.value("disable-proxy-intercept-errors") == "true": // which is about this very thing
		return
	case c.redirectsAll():
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
func (c *call) redirectsAll() bool {
	if c.object.annotations[options.Prefix+"redirect"] != "" || c.value("permanent-redirect") != "" || c.value("temporal-redirect") != "" {
		return true
	}
	return targetURL.MatchString(c.value("rewrite-target")) && len(c.object.paths) > 0 &&
		!slices.ContainsFunc(c.object.paths, func(p pathEdit) bool { return p.path != "/(.*)" && p.path != "/?(.*)" })
}

// nginxSatisfy translates that one way in is enough. With one way there is nothing to say.
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
		c.differs("satisfy", "lets nobody pass whom denylist-source-range holds, whatever password they know", "")
	}
}

// nginxCanaryHeader translates by which values of a header requests go to a canary.
func nginxCanaryHeader(c *call) {
	name, value, pattern := c.value("canary-by-header"), c.value("canary-by-header-value"), c.value("canary-by-header-pattern")
	switch {
	case name == "": // the others mean nothing then
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

// unreadable are mistakes that no engine forgives.
var unreadable = []syntax.ErrorCode{syntax.ErrMissingBracket, syntax.ErrMissingParen, syntax.ErrTrailingBackslash}
