package migrate

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/options"
)

// Dialect has the annotations of one ingress controller.
type Dialect struct {
	Name string // of the controller, for people
	// Prefixes are the prefixes of its annotations.
	Prefixes []string
	// Classes are the usual names of its ingress class.
	Classes []string
	// Remarks come before the table in the document.
	Remarks string
	Rules   []Rule
	// ignoresEmpty is set if the controller ignores an annotation without a value.
	ignoresEmpty bool
	// ofServices is set if the controller obeys annotations of Services, too, that refuse requests.
	ofServices bool
	// complete is set if there is a rule for every annotation that the controller reads. It ignores all others.
	complete bool
	// always is called for every Ingress of the dialect, whatever its annotations. It translates defaults of
	// the controller.
	always func(*call)
	// protects and snippets are for a controller without rules: its annotations that refuse requests, and those with
	// configuration, which may.
	protects, snippets []string
	// stands has, for some of protects, our option that does the same.
	stands map[string]string
	// idle reports whether one of protects refuses nobody with its value. It may be nil.
	idle func(name, value string) bool
	// defaults say what else the controller does for every Ingress. They are reported once, and not for each object.
	defaults []diag.Diagnostic
}

// configMapUnread says that the ConfigMap of a controller is not read, and which of its keys protect all Ingresses.
func configMapUnread(controller, keys string) diag.Diagnostic {
	return diag.Diagnostic{
		Severity: diag.Warning, Message: "the ConfigMap of " + controller + " is not read; " + keys + " in it protect all Ingresses",
		Hint: "look there; allow-list, deny-list, auth-url, waf and other options can be parameters of the class, see docs/reference/annotations.md",
	}
}

// Rule translates annotations that belong together.
type Rule struct {
	From []string // names without prefix
	To   []string // our names without prefix; empty if there is no equivalent
	// Of says which of To are equivalent to a single one of From. Without an entry, all of To are.
	Of map[string][]string
	// Note describes the difference. If there is no equivalent, it says what to do instead.
	Note string
	// Needless is set if nothing is lost without the annotation.
	Needless bool
	// Removed is set if the annotation is removed, and something else applies from then on.
	Removed bool
	// ByHand is set if only people can write what To needs.
	ByHand  bool
	convert func(*call)
}

// call is the use of a rule on an object.
type call struct {
	object *object
	rule   Rule
	values map[string]string // of the other controller, by name without prefix
	out    []annotation
	kept   []string // names of annotations that stay, as they were not translated
	said   []finding
}

// annotation is one of ours, without prefix.
type annotation struct {
	name, value string
}

// finding is a finding on an annotation of the other controller.
type finding struct {
	severity      diag.Severity
	name          string
	message, hint string
}

// has reports whether the object has the annotation.
func (c *call) has(name string) bool {
	_, ok := c.values[name]
	return ok
}

// value returns the value of an annotation, trimmed.
func (c *call) value(name string) string { return strings.TrimSpace(c.values[name]) }

// set writes one of our annotations.
func (c *call) set(name, value string) {
	c.out = append(c.out, annotation{name, value})
}

// keep keeps an annotation, and reports why it could not be translated and what to do.
func (c *call) keep(name, message, hint string) {
	c.kept = append(c.kept, name)
	c.said = append(c.said, finding{diag.Error, name, message, hint})
}

// differs reports a difference between an annotation and its translation.
func (c *call) differs(name, message, hint string) {
	c.said = append(c.said, finding{diag.Warning, name, message, hint})
}

// configMap returns the ConfigMap that an annotation names, with or without its namespace. If the ConfigMap is
// not among the manifests, it keeps the annotation. instead is another way to solve that.
func (c *call) configMap(annotation, instead string) (name string, data map[string]string, found bool) {
	name = c.value(annotation)
	if !strings.Contains(name, "/") {
		name = c.object.namespace + "/" + name
	}
	data, found = c.object.set.configMap(name)
	if !found {
		c.keep(annotation, "names ConfigMap "+name+", which is not among the manifests", "add it to them, or "+instead)
	}
	return name, data, found
}

// same translates an annotation whose value has the same meaning here.
func same(from, to string) Rule {
	return Rule{From: []string{from}, To: []string{to}, convert: func(c *call) { c.set(to, c.value(from)) }}
}

// checked translates the time between two checks of an endpoint, of which there is a shortest one here.
func checked(from string) Rule {
	return Rule{
		From: []string{from}, To: []string{"health-check-interval"}, Note: "At least `1s`.", convert: func(c *call) {
			value := c.value(from)
			if every, err := time.ParseDuration(value); err == nil && 0 < every && every < time.Second {
				c.differs(from, fmt.Sprintf("%q is below the shortest time between two checks, 1s, which is written", value), "")
				value = "1s"
			}
			c.set("health-check-interval", value)
		},
	}
}

// noted returns the rule with a note about the difference.
func (r Rule) noted(note string) Rule {
	r.Note = note
	return r
}

// mapped translates an annotation with a table of values. A value that maps to "" is our default.
func mapped(from, to string, values map[string]string) Rule {
	return Rule{From: []string{from}, To: []string{to}, convert: func(c *call) {
		switch value, ok := values[strings.ToLower(c.value(from))]; {
		case !ok:
			c.keep(from, fmt.Sprintf("%q has no equivalent", c.value(from)), "see "+ours+to)
		case value != "":
			c.set(to, value)
		}
	}}
}

// ours is the document of our annotations, for hints.
const ours = "docs/reference/annotations.md, "

// without returns rules for annotations without an equivalent, with advice. A value that turns nothing on, such
// as "false", is removed.
func without(advice string, names ...string) []Rule {
	var out []Rule
	for _, name := range names {
		out = append(out, Rule{From: []string{name}, Note: advice, convert: func(c *call) {
			if !says(c.value(name)) {
				return
			}
			c.keep(name, "has no equivalent", hint(advice))
		}})
	}
	return out
}

// needless returns rules for annotations that are removed, since nothing is lost without them.
func needless(why string, names ...string) []Rule {
	var out []Rule
	for _, name := range names {
		out = append(out, Rule{From: []string{name}, Note: why, Needless: true, convert: func(c *call) {
			c.differs(name, "is removed", hint(why))
		}})
	}
	return out
}

// replaced returns rules for annotations that are removed, with what applies instead.
func replaced(instead string, names ...string) []Rule {
	var out []Rule
	for _, name := range names {
		out = append(out, Rule{From: []string{name}, Note: instead, Removed: true, convert: func(c *call) {
			if says(c.value(name)) {
				c.differs(name, "is removed", hint(instead))
			}
		}})
	}
	return out
}

// hint turns a note of the document into a hint.
func hint(note string) string {
	note = strings.TrimSuffix(strings.ReplaceAll(note, "`", ""), ".")
	first, size := utf8.DecodeRuneInString(note)
	if next, _ := utf8.DecodeRuneInString(note[size:]); unicode.IsUpper(next) {
		return note // HAProxy
	}
	return string(unicode.ToLower(first)) + note[size:]
}

// rules joins rules and lists of rules.
func rules(parts ...[]Rule) []Rule { return slices.Concat(parts...) }

// one makes a list of a rule.
func one(r ...Rule) []Rule { return r }

// speaks reports whether backend-protocol asks for a protocol towards endpoints, also if it was
// translated before.
func (c *call) speaks(theirs, ours string) bool {
	return strings.HasSuffix(strings.ToUpper(c.value("backend-protocol")), theirs) || strings.HasSuffix(c.object.annotations[options.Prefix+"backend-protocol"], ours)
}

// clash returns an option that the object has already with another value than the translated one, such
// as after an earlier translation of some annotations; that value stays.
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

// passesThrough reports whether TLS connections for the object are passed on, also if that was
// translated before.
func (c *call) passesThrough() bool {
	return c.value("ssl-passthrough") == "true" || c.object.annotations[options.Prefix+"ssl-passthrough"] == "true"
}

// seconds translates a time that is a number of seconds.
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

// corsDefaults are the defaults of a controller for CORS.
type corsDefaults struct {
	methods, headers string
	credentials      bool
	age              string // seconds
	expression       bool   // cors-allow-origin may be a regular expression
}

// cors translates the options of CORS, turned on by one of them.
func cors(enable string, d corsDefaults) func(*call) {
	return func(c *call) {
		if c.value(enable) != "true" {
			return // the others mean nothing alone
		}
		origin := c.value("cors-allow-origin")
		patterns := c.value("cors-allow-origin-regex")
		if d.expression && strings.ContainsAny(origin, `^\(`) {
			patterns, origin = origin, ""
		}
		if patterns != "" {
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
		wanted := c.value("cors-allow-credentials") == "true" || (d.credentials && !c.has("cors-allow-credentials"))
		switch {
		case wanted && origin == "*" && !c.has("cors-allow-credentials"): // browsers send none to "*" there either
		case wanted && origin == "*":
			c.differs(c.rule.From[0], "credentials are not allowed with any origin", "list the origins in cors-allow-origin")
		case wanted:
			c.set("cors-allow-credentials", "true")
		}
		if age := inSeconds(c.value("cors-max-age"), d.age); age != "" {
			c.set("cors-max-age", age)
		}
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

// Document returns the reference of what each annotation becomes, in Markdown.
func Document() string {
	var b strings.Builder
	b.WriteString(head)
	var others strings.Builder
	for _, d := range dialects {
		if !d.translates() {
			closing := "–"
			if all := slices.Concat(d.protects, d.snippets); len(all) > 0 {
				for i, name := range all {
					all[i] = "`" + name + "`"
					if to := d.stands[name]; to != "" {
						all[i] += " (`" + options.Prefix + to + "`)"
					}
				}
				closing = strings.Join(all, ", ")
			}
			fmt.Fprintf(&others, "| %s | `%s` | %s |\n", d.Name, strings.Join(d.Prefixes, "`, `"), closing)
			continue
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\nPrefixes: `%s`.\n\n| annotation | here | | note |\n|---|---|---|---|\n", d.Name, d.Remarks, strings.Join(d.Prefixes, "`, `"))
		for _, r := range d.Rules {
			b.WriteString(r.row())
		}
	}
	b.WriteString(othersHead + others.String())
	return b.String()
}

// othersHead begins the section about controllers without rules.
const othersHead = `
## Other controllers

The annotations of these are not translated. The migration lists each with an error, and the Ingress keeps its
class. If hapsnap serves such an Ingress all the same, its routes answer 503 while it has one of the last column
without the option in brackets, snippets if they may refuse requests. ` + "`inbound-cidrs` with `0.0.0.0/0`, and `mutual-authentication` without `verify`," + ` refuse
nobody.

| controller | prefixes | annotations that protect |
|---|---|---|
`

const head = `# Migration from other ingress controllers

<!-- Generated from the code of compiler/migrate. The target generate of the Makefile writes it anew. -->

[From ingress-nginx](../start/from-ingress-nginx.md) walks through a migration. This page says what
` + "`compiler migrate`" + ` does with each annotation.

It rewrites each annotation that has an equivalent, and keeps comments and everything else in the
files. It lists the other annotations by object, with what to do instead; its exit code is then 3.

The annotations of the other controller stay beside ours while that controller serves the object, so
that no route loses its protection on the way. With ` + "`--class`" + `, an Ingress whose annotations
were all translated gets our class and loses the old annotations. An Ingress with other annotations
left keeps its class, and so does one to a Service with an annotation left that protects something. ` + "`--remove`" + ` removes the translated annotations whatever the class is.
Use it if hapsnap serves the old class.

The third column of the tables says how the two compare:

- *equal*: the annotation behaves here as it did there.
- *differs*: it does so apart from what the note says. If the difference depends on the value,
  ` + "`compiler migrate`" + ` reports it for the object.
- *said*: the annotation is removed, with a warning that says what applies instead.
- *by hand*: as refused, until the object has the option, which only you can write.
- *refused*: the annotation stays, with an error, and the Ingress stays with its controller.

A value that turns something off, such as ` + "`false`" + `, is removed without a message.

The migration checks every annotation that it writes against the compiler's own
[options](annotations.md), and lists those that they would refuse instead of writing them. It does not
read the other controller's ConfigMap: see [the configuration](configuration.md). It lists the ports of
ConfigMaps for TCP and UDP, with the entries of [tcpServices](configuration.md#tcpservices) for them, and
the custom resources of the API group haproxy.org, with exit code 3: what these serve and protect is not
translated.

While hapsnap serves an Ingress, it reports each annotation of these controllers that none of the
Ingress's own options replaces. If such an annotation protects something, the routes of the Ingress
answer 503, so that a change of the class by hand exposes nothing. So do the routes of Ingresses to a
Service with an annotation that protects something for a controller that reads those of Services: Kong, AWS
and the two of HAProxy. A canary to such a Service gets nothing. The setting
` + "`foreignAnnotations: ignore`" + ` of the configuration turns that off.
`

// row returns the rule's row of its table.
func (r Rule) row() string {
	here := "–"
	switch {
	case r.Needless:
		here = "not needed"
	case r.Removed:
		here = "removed"
	case len(r.To) > 0 && r.To[0] != "":
		here = "`" + strings.Join(r.To, "`, `") + "`"
	}
	note := strings.ReplaceAll(r.Note, "|", `\|`)
	return fmt.Sprintf("| `%s` | %s | %s | %s |\n", strings.Join(r.From, "`, `"), here, r.verdict(), note)
}

// strangers returns the dialects of controllers whose annotations are not translated. An Ingress with one of them is
// reported and keeps its class, and its routes are closed if the annotation protects something: nobody should
// learn from a break-in that a change of the class left the protection behind.
func strangers() []Dialect {
	return []Dialect{
		{
			Name: "F5 NGINX Ingress Controller", Prefixes: []string{"nginx.org/", "nginx.com/", "appprotect.f5.com/", "appprotectdos.f5.com/"},
			protects: []string{"basic-auth-secret", "jwt-key", "policies", "limit-req-rate", "app-protect-enable", "app-protect-policy", "app-protect-dos-resource"},
			snippets: []string{"server-snippets", "location-snippets"},
			stands:   map[string]string{"basic-auth-secret": "auth-basic", "limit-req-rate": "rate-limit"},
		},
		{
			Name: "Traefik", Prefixes: []string{"traefik.ingress.kubernetes.io/"}, Classes: []string{"traefik"},
			protects: []string{"router.middlewares", "router.tls.options"},
		},
		{
			Name: "AWS Load Balancer Controller", Prefixes: []string{"alb.ingress.kubernetes.io/"}, Classes: []string{"alb"}, ofServices: true,
			protects: []string{"inbound-cidrs", "security-groups", "security-group-prefix-lists", "auth-type", "jwt-validation", "mutual-authentication", "waf-acl-id", "wafv2-acl-arn"},
			stands:   map[string]string{"inbound-cidrs": "allow-list", "mutual-authentication": "client-ca-secret"},
			idle: func(name, value string) bool {
				switch name {
				case "inbound-cidrs": // a list of which each lets somebody in
					return strings.Contains(","+strings.ReplaceAll(value, " ", "")+",", ",0.0.0.0/0,")
				case "mutual-authentication": // the other modes let everybody in
					return !strings.Contains(value, "verify")
				}
				return false
			},
		},
		{
			Name: "Application Gateway Ingress Controller", Prefixes: []string{"appgw.ingress.kubernetes.io/"}, Classes: []string{"azure-application-gateway"},
			protects: []string{"waf-policy-for-path", "use-private-ip"},
		},
		{
			Name: "Kong Ingress Controller", Prefixes: []string{"konghq.com/"}, Classes: []string{"kong"}, ofServices: true,
			protects: []string{"plugins"},
		},
		{
			Name: "Apache APISIX Ingress Controller", Prefixes: []string{"k8s.apisix.apache.org/"}, Classes: []string{"apisix"},
			protects: []string{"allowlist-source-range", "blocklist-source-range", "http-allow-methods", "http-block-methods", "auth-type", "auth-uri", "enable-csrf", "plugin-config-name"},
			stands:   map[string]string{"allowlist-source-range": "allow-list", "blocklist-source-range": "deny-list", "auth-uri": "auth-url"},
		},
		{
			Name: "Skipper", Prefixes: []string{"zalando.org/"}, Classes: []string{"skipper"},
			protects: []string{"skipper-filter", "skipper-routes", "ratelimit"},
		},
		{Name: "Contour", Prefixes: []string{"projectcontour.io/"}, Classes: []string{"contour"}},
	}
}
