package migrate

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hapsnap/hapsnap/compiler/diag"
)

// Dialect is the annotations of one ingress controller.
type Dialect struct {
	Name string // of the controller, for people
	// Prefixes are what the names of its annotations begin with. Each is tried.
	Prefixes []string
	// Classes are the usual names of its ingress class.
	Classes []string
	// Remarks are said in the document, before the table.
	Remarks string
	Rules   []Rule
	// ignoresEmpty says that the controller takes an annotation without a value for
	// one that is not there.
	ignoresEmpty bool
	// complete says that there is a rule for every annotation that the controller reads:
	// it ignores all others.
	complete bool
	// always looks at Ingresses of the dialect whatever their annotations, for
	// what the controller does without being asked.
	always func(*call)
}

// Rule says what becomes of annotations that belong together.
type Rule struct {
	From []string // their names, without prefix
	To   []string // ours, without prefix; none if there is no equivalent
	// Of says which of To stand for one of From alone; for others all do.
	Of map[string][]string
	// Note is what differs, or, without an equivalent, what to do instead.
	Note string
	// Needless says that nothing is lost without the annotation.
	Needless bool
	// Removed says that the annotation goes, and that something else holds from then on.
	Removed bool
	convert func(*call)
}

// call is one use of a rule on one object.
type call struct {
	object *object
	rule   Rule
	values map[string]string // of the other controller, by name without prefix
	out    []annotation
	kept   []string // names that stay, since they could not be translated
	said   []finding
}

// annotation is one of ours, without prefix.
type annotation struct {
	name, value string
}

// finding is something to say of an annotation of the other controller.
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

// value returns the value of an annotation without the space around it.
func (c *call) value(name string) string { return strings.TrimSpace(c.values[name]) }

// set writes one of our annotations.
func (c *call) set(name, value string) {
	c.out = append(c.out, annotation{name, value})
}

// keep leaves an annotation where it is, and says why it could not be
// translated and what to do.
func (c *call) keep(name, message, hint string) {
	c.kept = append(c.kept, name)
	c.said = append(c.said, finding{diag.Error, name, message, hint})
}

// differs says in what the translation of an annotation is not the same.
func (c *call) differs(name, message, hint string) {
	c.said = append(c.said, finding{diag.Warning, name, message, hint})
}

// same translates an annotation whose value means the same here.
func same(from, to string) Rule {
	return Rule{From: []string{from}, To: []string{to}, convert: func(c *call) { c.set(to, c.value(from)) }}
}

// noted is a rule with a note on what differs.
func (r Rule) noted(note string) Rule {
	r.Note = note
	return r
}

// mapped translates an annotation by what its value becomes. A value that
// becomes nothing stands for what holds here anyway.
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

// ours names the document of our annotations in a hint.
const ours = "docs/reference/annotations.md, "

// without are annotations without an equivalent, and what to do instead.
// A value that asks for nothing, such as "false", is removed.
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

// needless are annotations that are removed, since nothing is lost with them.
func needless(why string, names ...string) []Rule {
	var out []Rule
	for _, name := range names {
		out = append(out, Rule{From: []string{name}, Note: why, Needless: true, convert: func(c *call) {
			c.differs(name, "is removed", hint(why))
		}})
	}
	return out
}

// replaced are annotations that are removed, and in place of which something else holds.
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

// hint writes a note of the document as hints are written.
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
