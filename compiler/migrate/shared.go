package migrate

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/compiler/options"
)

// speaks reports whether endpoints are spoken to in a way that backend-protocol asks for, be it
// that this was translated before.
func (c *call) speaks(theirs, ours string) bool {
	return strings.HasSuffix(strings.ToUpper(c.value("backend-protocol")), theirs) || strings.HasSuffix(c.object.annotations[options.Prefix+"backend-protocol"], ours)
}

// clash returns an option that the object has already with another value than it would get, as
// where a part of what it had was translated before; it stays as it is.
func (c *call) clash() string {
	for _, a := range c.out {
		there, has := c.object.annotations[options.Prefix+a.name]
		for line := range strings.SplitSeq(a.value, "\n") { // of headers, several rules write some
			if has && !slices.Contains(strings.Split(there, "\n"), line) {
				return options.Prefix + a.name
			}
		}
	}
	return ""
}

// passesThrough reports whether TLS is not ended for the object, be it that this
// was translated before.
func (c *call) passesThrough() bool {
	return c.value("ssl-passthrough") == "true" || c.object.annotations[options.Prefix+"ssl-passthrough"] == "true"
}

// seconds translates a time that is written as a number of seconds.
func seconds(from string, to ...string) Rule {
	return Rule{From: []string{from}, To: to, convert: func(c *call) {
		number, isTime := strings.CutSuffix(c.value(from), "s")
		n, err := strconv.Atoi(number)
		if err != nil {
			c.keep(from, fmt.Sprintf("%q is not a number of seconds", c.value(from)), "see "+ours+to[0])
			return
		}
		if isTime {
			c.differs(from, fmt.Sprintf("%q is no number for ingress-nginx, which took its default", c.value(from)), "it holds from now on; remove it if the default was right")
		}
		for _, name := range to {
			c.set(name, strconv.Itoa(n)+"s")
		}
	}}
}

// corsDefaults are what a controller does about CORS if it is only turned on.
type corsDefaults struct {
	methods, headers string
	credentials      bool
	age              string // seconds
}

// cors translates the options of CORS, turned on by one of them.
func cors(enable string, d corsDefaults) func(*call) {
	return func(c *call) {
		if c.value(enable) != "true" {
			return // the others mean nothing alone
		}
		origin := c.value("cors-allow-origin")
		if patterns := c.value("cors-allow-origin-regex"); patterns != "" {
			var lines []string
			for _, pattern := range strings.Fields(patterns) {
				start, begins := strings.CutPrefix(pattern, "^")
				whole, ends := strings.CutSuffix(start, "$")
				if !begins || !ends {
					c.keepAll(fmt.Sprintf("%q is looked for anywhere in an origin, also in one that anybody can have", pattern), "begin it with ^, and end it with $")
					return
				}
				lines = append(lines, whole)
			}
			c.set("cors-allow-origin-pattern", strings.Join(lines, "\n"))
		} else if origin == "" {
			origin = "*"
		}
		if strings.ContainsAny(origin, `^\(`) {
			c.keepAll("an origin that is a regular expression has no equivalent", "list the origins; https://*. stands for one label")
			return
		}
		if origin != "" {
			c.set("cors-allow-origin", origin)
		}
		c.set("cors-allow-methods", cmp.Or(c.value("cors-allow-methods"), d.methods))
		c.set("cors-allow-headers", cmp.Or(c.value("cors-allow-headers"), d.headers))
		if expose := c.value("cors-expose-headers"); expose != "" {
			c.set("cors-expose-headers", expose)
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
	case wanted && origin == "*" && !c.has("cors-allow-credentials"): // browsers take them from no answer to "*" there either
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
