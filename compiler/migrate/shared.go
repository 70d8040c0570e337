package migrate

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/compiler/options"
)

// onlyTrue translates an annotation that means something if it is "true".
func onlyTrue(name string) func(*call) {
	return func(c *call) {
		if c.value(name) == "true" {
			c.set(name, "true")
		}
	}
}

// passesThrough reports whether TLS is not ended for the object, be it that this
// was translated before.
func (c *call) passesThrough() bool {
	return c.value("ssl-passthrough") == "true" || c.object.annotations[options.Prefix+"ssl-passthrough"] == "true"
}

// seconds translates a time that is written as a number of seconds.
func seconds(from, to string) Rule {
	return Rule{From: []string{from}, To: []string{to}, convert: func(c *call) {
		n, err := strconv.Atoi(strings.TrimSuffix(c.value(from), "s"))
		if err != nil {
			c.keep(from, fmt.Sprintf("%q is not a number of seconds", c.value(from)), "see "+ours+to)
			return
		}
		c.set(to, strconv.Itoa(n)+"s")
	}}
}

// redirectRule translates a redirect of everything, with its status.
func redirectRule(location, code, usual string) Rule {
	return Rule{From: []string{location, code}, To: []string{"redirect"}, convert: func(c *call) {
		if !c.has(location) {
			return
		}
		status := usual
		if c.has(code) {
			status = c.value(code)
		}
		if strings.Contains(c.value(location), "$") {
			c.keepAll("the location holds a variable", "a redirect to a URL without a path keeps the request's path and query")
			return
		}
		c.set("redirect", c.value(location)+" "+status)
	}}
}

// corsDefaults are what a controller does about CORS if it is only turned on.
type corsDefaults struct {
	credentials bool
	age         string // seconds
}

// cors translates the options of CORS, turned on by one of them. Those that
// are "*" are left to our defaults.
func cors(enable string, d corsDefaults) func(*call) {
	return func(c *call) {
		if c.value(enable) != "true" {
			return // the others mean nothing alone
		}
		origin := c.value("cors-allow-origin")
		if origin == "" {
			origin = "*"
		}
		if strings.ContainsAny(origin, `^\(`) {
			c.keepAll("an origin that is a regular expression has no equivalent", "list the origins; https://*. stands for one label")
			return
		}
		c.set("cors-allow-origin", origin)
		for _, name := range []string{"cors-allow-methods", "cors-allow-headers", "cors-expose-headers"} {
			if value := c.value(name); value != "" && value != "*" {
				c.set(name, value)
			}
		}
		c.corsCredentials(origin, d)
		if age := inSeconds(c.value("cors-max-age"), d.age); age != "" {
			c.set("cors-max-age", age)
		}
	}
}

// corsCredentials allows credentials where that is not an invitation to all.
func (c *call) corsCredentials(origin string, d corsDefaults) {
	wanted := c.value("cors-allow-credentials") == "true" || (d.credentials && !c.has("cors-allow-credentials"))
	switch {
	case wanted && origin == "*":
		c.differs(c.rule.From[0], "credentials are not allowed with any origin", "list the origins in cors-allow-origin")
	case wanted:
		c.set("cors-allow-credentials", "true")
	}
}

// inSeconds returns a number of seconds, which may have been written as a time.
func inSeconds(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	if d, err := time.ParseDuration(value); err == nil {
		return strconv.Itoa(int(d.Seconds()))
	}
	return value
}
