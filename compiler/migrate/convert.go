package migrate

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/options"
)

// object is the part of an Ingress or a Service that the rules read.
type object struct {
	kind, namespace string
	name            string
	set             *Set   // the manifests that it belongs to; nil means none
	class           string // from the field or the annotation
	annotations     map[string]string
	hasTLS          bool
	tlsHosts        []string
	paths           []pathEdit
}

// pathEdit is a path of an Ingress, and the prefix that replaces it, or "". A path that becomes an expression
// gets the pathType ImplementationSpecific.
type pathEdit struct {
	path, prefix string
	kind         string // pathType; "" if it is missing
	host         string
	service      string
	port         string // number or name
	expression   bool
}

// change is how the annotations of an object change.
type change struct {
	removed []string     // full names
	added   []annotation // ours, in the order of the rules
	found   []found
}

// found is a finding with the full name of its annotation. The name is "" if the finding is about the object.
type found struct {
	finding
	annotation string
}

// convert translates the annotations of an object that belong to a dialect. It
// changes the paths of the object where a rule says so.
func (d Dialect) convert(o *object) change {
	values, full := d.read(o.annotations)
	var out change
	if d.ignoresEmpty {
		out.removed = takeEmpty(values, full)
	}
	if d.always != nil && o.kind == "Ingress" && (len(values) > 0 || d.isAlone(o.class)) {
		out.take(d.apply(o, Rule{convert: d.always}, values), full)
	}
	known, unknown := map[string]bool{}, "is not known"
	if !d.translates() {
		unknown = "is of " + d.Name + ", and is not translated"
	}
	for _, r := range d.Rules {
		used := slices.DeleteFunc(slices.Clone(r.From), func(name string) bool { return len(full[name]) == 0 })
		for _, name := range r.From {
			known[name] = true
		}
		if len(used) > 0 {
			c := d.apply(o, r, values)
			out.take(c, full)
			out.remove(used, c.kept, full)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(full)) {
		if !known[name] && d.complete && !protective.MatchString(name) {
			out.found = append(out.found, found{finding{diag.Warning, name, "is removed", d.Name + " does not know it, and ignores it"}, full[name][0]})
			out.removed = append(out.removed, full[name]...)
			continue
		}
		if !known[name] {
			out.found = append(out.found, found{finding{diag.Error, name, unknown, "look up what it does, and see docs/reference/annotations.md"}, full[name][0]})
		}
	}
	return out
}

// protective matches names of annotations that may protect something. Such an annotation is kept even if no
// rule knows it.
var protective = regexp.MustCompile(`auth|deny|allow|block|black|white|limit|waf|secur`)

// takeEmpty removes the annotations without a value, and returns their full names.
func takeEmpty(values map[string]string, full map[string][]string) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if strings.TrimSpace(values[name]) == "" {
			out = append(out, full[name]...)
			delete(values, name)
			delete(full, name)
		}
	}
	return out
}

// read returns the values of the dialect's annotations by their short names, and their full names. If an
// annotation has several prefixes, the first prefix counts.
func (d Dialect) read(annotations map[string]string) (values map[string]string, full map[string][]string) {
	values, full = map[string]string{}, map[string][]string{}
	for _, prefix := range d.Prefixes {
		for name, value := range annotations {
			short, ok := strings.CutPrefix(name, prefix)
			if !ok {
				continue
			}
			if len(full[short]) == 0 {
				values[short] = value
			}
			full[short] = append(full[short], name)
		}
	}
	return values, full
}

// isAlone reports whether only this dialect uses a class by default.
func (d Dialect) isAlone(class string) bool {
	return d.hasClass(class) && !slices.ContainsFunc(dialects, func(o Dialect) bool { return o.Name != d.Name && o.hasClass(class) })
}

// translates reports whether annotations of the dialect are translated. The others are only known.
func (d Dialect) translates() bool { return len(d.Rules) > 0 }

func (d Dialect) hasClass(class string) bool { return slices.Contains(d.Classes, class) }

// apply calls one rule. If the compiler would not accept what the rule writes, nothing is written and
// its annotations stay.
func (d Dialect) apply(o *object, r Rule, values map[string]string) *call {
	c := &call{object: o, rule: r, values: values}
	r.convert(c)
	place := options.OnIngress
	if o.kind == "Service" {
		place = options.OnService
	}
	for _, a := range c.out {
		_, problems := options.Read(place, map[string]string{options.Prefix + a.name: a.value})
		if len(problems) == 0 {
			continue
		}
		c.out = nil
		for _, name := range r.From {
			if c.has(name) && !slices.Contains(c.kept, name) {
				c.keep(name, "cannot be translated: "+problems[0].Message, problems[0].Hint)
			}
		}
		break
	}
	return c
}

// take adds the results of a rule.
func (x *change) take(c *call, full map[string][]string) {
	for _, a := range c.out {
		// Lines about headers from two rules are joined. For other annotations, the value of the later rule
		// counts.
		i := slices.IndexFunc(x.added, func(b annotation) bool { return b.name == a.name })
		switch {
		case i < 0:
			x.added = append(x.added, a)
		case a.name == "request-headers" || a.name == "response-headers":
			x.added[i].value += "\n" + a.value
		default:
			x.added[i].value = a.value
		}
	}
	for _, f := range c.said {
		names := full[f.name]
		if len(names) == 0 {
			names = []string{""} // of the object
		}
		x.found = append(x.found, found{f, names[0]})
	}
}

// remove records the annotations that were translated.
func (x *change) remove(used, kept []string, full map[string][]string) {
	for _, name := range used {
		if !slices.Contains(kept, name) {
			x.removed = append(x.removed, full[name]...)
		}
	}
}

// Unheeded is an annotation of another controller that hapsnap does not follow.
type Unheeded struct {
	Annotation string // full name
	Controller string // that follows it
	// Protects is set if the annotation refuses requests. Without it, the route is open.
	Protects bool
	// Instead are our options that do the same together. It is empty if there are none.
	Instead []string
	// ByHand is set if only people can write what these options need.
	ByHand bool
	Note   string // as a hint
}

// protectsAlone are annotations that refuse requests, or leave some to other routes, and have no equivalent option.
var protectsAlone = []string{
	"auth-url-method", "auth-proxy", "auth-tls-strict", "allowlist-source-header", "oauth", "http-header-match", "http-header-match-regex", "route-acl",
}

// snippets are annotations with configuration of the other controller. refusing matches those that may refuse
// requests.
var (
	snippets = []string{"server-snippet", "configuration-snippet", "auth-snippet", "location-snippet", "config-backend", "config-backend-early", "config-backend-late", "backend-config-snippet", "config-frontend"}
	refusing = regexp.MustCompile(`(?i)deny|return\s+4|reject|tarpit|auth|allow\s|access_by|status\s+4`)
)

// mayRefuse reports whether a snippet may refuse requests. A directive that edits headers never does, whatever the
// values of the headers, such as DENY of X-Frame-Options.
func mayRefuse(snippet string) bool {
	directives, err := directivesOf(snippet)
	if err != nil {
		return refusing.MatchString(snippet)
	}
	return slices.ContainsFunc(directives, func(words []string) bool {
		return !slices.Contains(headerDirectives, words[0]) && refusing.MatchString(strings.Join(words, " ")+" ")
	})
}

// says reports whether a value turns anything on.
func says(value string) bool {
	return !slices.Contains([]string{"", "false", "off", "none", "no", "0"}, strings.ToLower(strings.TrimSpace(value)))
}

// FindUnheeded returns the annotations of other controllers that hapsnap does not follow, sorted. An annotation
// counts as followed if the object also has an option of ours that does the same.
func FindUnheeded(annotations map[string]string) []Unheeded {
	var out []Unheeded
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if !strings.Contains(key, "/") || strings.HasPrefix(key, options.Prefix) || !says(annotations[key]) {
			continue
		}
		for _, d := range dialects {
			if u, ok := d.unheeded(key, annotations); ok {
				out = append(out, u)
				break
			}
		}
	}
	return out
}

// FindUnheededOfService returns those annotations of a Service by which other controllers refuse requests, and that
// neither an option of the Service stands for nor one of the Ingress that leads to it.
func FindUnheededOfService(annotations, ofIngress map[string]string) []Unheeded {
	if !slices.ContainsFunc(slices.Collect(maps.Keys(annotations)), obeyedOnServices) {
		return nil // as most
	}
	all := maps.Clone(ofIngress)
	maps.DeleteFunc(all, func(key, _ string) bool { return !strings.HasPrefix(key, options.Prefix) })
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, annotations)
	return slices.DeleteFunc(FindUnheeded(all), func(u Unheeded) bool { return !u.Protects || !obeyedOnServices(u.Annotation) })
}

func obeyedOnServices(key string) bool {
	return slices.ContainsFunc(dialects, func(d Dialect) bool {
		return d.ofServices && slices.ContainsFunc(d.Prefixes, func(p string) bool { return strings.HasPrefix(key, p) })
	})
}

// HasPatterns reports whether annotations of another controller make the paths of an
// Ingress regular expressions.
func HasPatterns(annotations map[string]string) bool {
	for _, name := range []string{"nginx.ingress.kubernetes.io/use-regex", "nginx.ingress.kubernetes.io/rewrite-target"} {
		if says(annotations[name]) {
			return true
		}
	}
	return annotations["haproxy-ingress.github.io/path-type"] == "regex"
}

// dialects are the known dialects.
var dialects = Dialects()

func (d Dialect) unheeded(key string, annotations map[string]string) (Unheeded, bool) {
	i := slices.IndexFunc(d.Prefixes, func(p string) bool { return strings.HasPrefix(key, p) })
	if i < 0 {
		return Unheeded{}, false
	}
	name := strings.TrimPrefix(key, d.Prefixes[i])
	if !d.translates() {
		note := "see docs/reference/annotations.md for an option that does the same"
		if to := d.stands[name]; to != "" {
			if options.Stands(to, annotations) {
				return Unheeded{}, false
			}
			note = "use " + options.Prefix + to
		}
		protects := slices.Contains(d.protects, name) || slices.Contains(d.snippets, name) && mayRefuse(annotations[key])
		protects = protects && (d.idle == nil || !d.idle(name, annotations[key]))
		return Unheeded{Annotation: key, Controller: d.Name, Protects: protects, Note: note}, true
	}
	u := Unheeded{Annotation: key, Controller: d.Name, Protects: slices.Contains(protectsAlone, name) || slices.Contains(snippets, name) && mayRefuse(annotations[key])}
	known := u.Protects || slices.Contains(snippets, name)
	for _, r := range d.Rules {
		if !slices.Contains(r.From, name) {
			continue
		}
		if r.Needless {
			return Unheeded{}, false
		}
		known, u.Note, u.ByHand = true, hint(r.Note), r.ByHand
		standing := r.To
		if of := r.Of[name]; of != nil {
			standing = of
		}
		if slices.Contains(snippets, name) {
			standing = standsForSnippet(annotations[key], u.Protects, standing)
		}
		for _, to := range standing {
			if options.Stands(to, annotations) {
				return Unheeded{}, false
			}
			if len(u.Instead) == 0 || !options.Part(to) {
				u.Instead = append(u.Instead, options.Prefix+to)
			}
			u.Protects = u.Protects || options.Closing(to)
		}
	}
	if !known && !d.complete && d.Prefixes[i] != sharedPrefix {
		return Unheeded{Annotation: key, Controller: d.Name, Note: "compiler migrate does not know it: look up what it does, and see docs/reference/annotations.md"}, true
	}
	return u, known
}

// sharedPrefix begins annotations that several controllers read, and names that others write for themselves.
const sharedPrefix = "ingress.kubernetes.io/"

// standsForSnippet returns the options that may do the same as a snippet. If the snippet refuses requests, this
// is the option that refuses the same ones. Otherwise these are the options that refuse none.
func standsForSnippet(snippet string, protects bool, all []string) []string {
	same := "snippet"
	if directives, err := directivesOf(snippet); err == nil && !slices.ContainsFunc(directives, func(words []string) bool { return !isAccess(words) }) {
		if option, _, err := readAccess(directives); err == nil {
			same = option
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(to string) bool {
		return protects && to != same || !protects && options.Closing(to) && to != "snippet"
	})
}
