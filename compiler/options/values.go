package options

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/policy"
)

// Problem is something to say of an annotation.
type Problem struct {
	Severity      diag.Severity
	Annotation    string // its name
	Message, Hint string
	// Inherited says that it is about a parameter of the IngressClass.
	Inherited bool
}

// Diagnostics returns problems as diagnostics of the object that has the annotations. The function at returns the
// position of a field of it.
func Diagnostics(object diag.Object, at func(path ...any) diag.Position, problems []Problem) []diag.Diagnostic {
	var out []diag.Diagnostic
	for _, p := range problems {
		out = append(out, diag.Diagnostic{
			Severity: p.Severity, Position: at("metadata", "annotations", p.Annotation), Object: object, Message: p.Message, Hint: p.Hint,
		})
	}
	return out
}

// Values are the options of one object.
type Values struct {
	// Closed says that an option which protects something cannot be used.
	Closed bool
	given  []given // by name
}

// given is one option with a value that can be used.
type given struct {
	option    Option
	apply     apply
	inherited bool // from an IngressClass
}

// NeedsBackend reports whether there is an option that asks for something of the
// requests, beyond which of them are matched.
func (v Values) NeedsBackend() bool {
	return v.Closed || slices.ContainsFunc(v.given, func(g given) bool { return !g.option.Matches })
}

// Has reports whether an option is given and can be used.
func (v Values) Has(name string) bool {
	return slices.ContainsFunc(v.given, func(g given) bool { return g.option.Name == name })
}

// Giver returns the index of the object whose value of an option holds, which
// is that of the last one that has it; -1 if none has.
func Giver(name string, objects ...Values) int {
	for i, v := range slices.Backward(objects) {
		if v.Has(name) {
			return i
		}
	}
	return -1
}

// First returns the name of the first annotation that can be used, or "".
func (v Values) First() string {
	if len(v.given) == 0 {
		return ""
	}
	return Prefix + v.given[0].option.Name
}

// Protects returns the name of the first annotation that protects something,
// usable or not, or "".
func Protects(annotations map[string]string) string {
	for _, name := range ours(annotations) {
		if registry[name].Closes {
			return Prefix + name
		}
	}
	return ""
}

// Closing reports whether the option of a name protects something.
func Closing(name string) bool { return registry[name].Closes }

// Stands reports whether annotations hold an option, and the one without which it means
// nothing.
func Stands(name string, annotations map[string]string) bool {
	_, there := annotations[Prefix+name]
	needs := registry[name].Needs
	return there && (needs == "" || Stands(needs, annotations))
}

// Part reports whether an option means nothing without another one.
func Part(name string) bool { return registry[name].Needs != "" }

// titleOf is what an option is called in messages.
func titleOf(name string, inherited bool) string {
	if inherited {
		return "parameter " + name
	}
	return "annotation " + Prefix + name
}

// Parameters returns the content of a ConfigMap that an IngressClass names, as
// annotations. Its keys may do without the prefix.
func Parameters(data map[string]string) map[string]string {
	out := make(map[string]string, len(data))
	for _, key := range slices.Sorted(maps.Keys(data)) {
		out[Prefix+strings.TrimPrefix(key, Prefix)] = data[key]
	}
	return out
}

// Inherit returns the values of an Ingress with those of its class, which it
// wins over.
func (v Values) Inherit(class Values) Values {
	out := Values{Closed: v.Closed || class.Closed, given: slices.Clone(v.given)}
	for _, g := range class.given {
		if !v.Has(g.option.Name) {
			out.given = append(out.given, g)
		}
	}
	slices.SortStableFunc(out.given, func(a, b given) int { return strings.Compare(a.option.Name, b.option.Name) })
	return out
}

// Inherits reports whether an option is that of the class.
func (v Values) Inherits(name string) bool {
	return slices.ContainsFunc(v.given, func(g given) bool { return g.inherited && g.option.Name == name })
}

// Divide returns the options that protect something, and the others.
func (v Values) Divide() (protecting, others Values) {
	for _, g := range v.given {
		if g.option.Closes {
			protecting.given = append(protecting.given, g)
		} else {
			others.given = append(others.given, g)
		}
	}
	protecting.Closed = v.Closed
	return protecting, others
}

// Protect reports whether an option protects something, usable or not.
func (v Values) Protect() bool {
	return v.Closed || slices.ContainsFunc(v.given, func(g given) bool { return g.option.Closes })
}

// Read reads the annotations of an object. An option whose value cannot be used
// is left out; if it protects something, the values are closed.
func Read(on Place, annotations map[string]string) (Values, []Problem) {
	r := reader{on: on}
	for _, name := range ours(annotations) {
		r.annotation(name, annotations[Prefix+name])
	}
	return r.values, r.problems
}

// ours returns the names of annotations that begin with the prefix, without
// it, sorted.
func ours(annotations map[string]string) []string {
	var out []string
	for name := range annotations {
		if rest, ok := strings.CutPrefix(name, Prefix); ok {
			out = append(out, rest)
		}
	}
	slices.Sort(out)
	return out
}

// Misplaced returns what is wrong with the annotations of an object of a kind that has no options, and whether one of
// them would protect something elsewhere. Who wrote that there must not be left with something open.
func Misplaced(kind string, annotations map[string]string) (problems []Problem, protects bool) {
	var r reader
	for _, name := range ours(annotations) {
		o, ok := registry[name]
		switch {
		case !ok:
			r.report(diag.Warning, name, "is not known, and ignored", didYouMean(name))
		case o.Closes:
			protects = true
			r.report(diag.Error, name, fmt.Sprintf("protects something, and is an option of %s, not of a %s", o.On, kind), "move it there")
		default:
			r.report(diag.Warning, name, fmt.Sprintf("is an option of %s, and does nothing on a %s", o.On, kind), "move it there")
		}
	}
	return r.problems, protects
}

// reader is one call of Read.
type reader struct {
	on       Place
	values   Values
	problems []Problem
}

func (r *reader) annotation(name, text string) {
	o, ok := registry[name]
	switch {
	case !ok:
		r.report(diag.Warning, name, "is not known, and ignored", didYouMean(name))
		return
	case r.on == OnClass && !o.mayBe(OnClass):
		r.values.Closed = r.values.Closed || o.Closes
		r.report(diag.Error, name, "cannot be a default for the Ingresses of a class", "set it on the objects that it is for")
		return
	case (r.on == OnRoute || r.on == OnGateway) && !o.mayBe(r.on) && o.Closes:
		r.values.Closed = true
		r.report(diag.Error, name, "protects something, and is no option of "+r.on.String()+r.closes(), "remove it, or use what the Gateway API has for it")
		return
	case !o.mayBe(r.on):
		r.report(diag.Error, name, fmt.Sprintf("is an option of %s, and not of this object", o.On), "move it there")
		return
	}
	apply, err := o.parse(text)
	if err == nil {
		r.values.given = append(r.values.given, given{o, apply, r.on == OnClass})
		return
	}
	message, hint := described(text, err)
	if o.Closes {
		r.values.Closed = true
		message += r.closes()
	}
	r.report(diag.Error, name, ": "+message, hint)
}

// closes is what a message ends with if nothing is served for what it says.
func (r *reader) closes() string {
	if r.on == OnGateway {
		return "; nothing is served by it"
	}
	return closes
}

// closes is what messages end with if requests are refused for what they say.
const closes = "; the routes that it protects answer 503"

// report adds a problem. The message follows the name of the annotation.
func (r *reader) report(severity diag.Severity, name, message, hint string) {
	if !strings.HasPrefix(message, ":") {
		message = " " + message
	}
	r.problems = append(r.problems, Problem{severity, Prefix + name, titleOf(name, r.on == OnClass) + message, hint, r.on == OnClass})
}

// registry are the options by name.
var registry = byName(All())

func byName(all []Option) map[string]Option {
	out := make(map[string]Option, len(all))
	for _, o := range all {
		out[o.Name] = o
	}
	return out
}

// didYouMean returns a hint that names the option that is most like a name.
func didYouMean(name string) string {
	best, least := "", 1+len(name)/3
	for _, known := range slices.Sorted(maps.Keys(registry)) {
		if d := distance(name, known); d <= least && (best == "" || d < distance(name, best)) {
			best = known
		}
	}
	if best == "" {
		return "docs/reference/annotations.md lists those that are"
	}
	return "did you mean " + Prefix + best + "?"
}

// distance is how many letters must be added, removed or replaced to make b of
// a. A name that is far too long for any option is as far as it is long.
func distance(a, b string) int {
	if len(a) > 2*mostName {
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}

// mostName bounds the length of an option's name.
const mostName = 40

// boolean reads "true" or "false".
func boolean(text string) (bool, error) {
	switch text {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fault("is neither true nor false", `write "true" or "false"`)
}

// number returns a reader of whole numbers of a range.
func number(least, most int) func(string) (int, error) {
	return func(text string) (int, error) {
		n, err := strconv.Atoi(text)
		if err != nil || strconv.Itoa(n) != text {
			return 0, fault("is not a number", fmt.Sprintf("use a whole number from %d to %d", least, most))
		}
		if n < least || n > most {
			return 0, fault("is out of range", fmt.Sprintf("use %d to %d", least, most))
		}
		return n, nil
	}
}

// oneOf returns a reader of words that stand for values.
func oneOf[T any](values map[string]T) func(string) (T, error) {
	return func(text string) (T, error) {
		value, ok := values[text]
		if !ok {
			return value, fault("is not possible", "use "+alternatives(slices.Sorted(maps.Keys(values))))
		}
		return value, nil
	}
}

// alternatives writes "a, b or c".
func alternatives(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

var durationForm = regexp.MustCompile(`^[1-9][0-9]{0,8}(us|ms|s|m|h|d)$`)

// longest is the longest time, for HAProxy keeps them as milliseconds in 31 bits.
const longest = 24 * 24 * 3600

// duration reads a time.
func duration(text string) (policy.Duration, error) {
	d := policy.Duration(text)
	switch {
	case !durationForm.MatchString(text):
		return "", fault("is not a time", "use a number and a unit: us, ms, s, m, h or d, such as 30s")
	case d.Seconds() > longest:
		return "", fault("is too long", "use 24d at most")
	}
	return d, nil
}

// checkInterval reads the time between two checks. HAProxy connects to each endpoint as often, and a namespace may have
// 25,000 of them.
func checkInterval(text string) (policy.Duration, error) {
	if t, err := time.ParseDuration(text); err == nil && t < time.Second {
		return "", fault("is too short", "use 1s at least: each HAProxy checks each endpoint as often")
	}
	return duration(text)
}

var sizeForm = regexp.MustCompile(`^([1-9][0-9]{0,11})([kmg]?)$`)

// size reads a number of bytes.
func size(text string) (int64, error) {
	m := sizeForm.FindStringSubmatch(text)
	if m == nil {
		return 0, fault("is not a size", "use a number of bytes, or one with k, m or g, such as 8m")
	}
	n, _ := strconv.ParseInt(m[1], 10, 64)
	n <<= map[string]int{"": 0, "k": 10, "m": 20, "g": 30}[m[2]]
	if n > 1<<42 {
		return 0, fault("is too large", "use 4096g at most")
	}
	return n, nil
}

// fields splits a list at commas and white space.
func fields(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' || r == '\n' || r == '\r' })
}

// listOf returns a reader of lists whose elements are read by another.
func listOf[T any](read func(string) (T, error)) func(string) ([]T, error) {
	return func(text string) ([]T, error) {
		var out []T
		for _, word := range fields(text) {
			value, err := read(word)
			if err != nil {
				message, hint := described(word, err)
				_, message, _ = strings.Cut(message, " ")
				return nil, faultOf(word, message, hint)
			}
			out = append(out, value)
		}
		if len(out) == 0 {
			return nil, fault("lists nothing", "list one or more, separated by commas")
		}
		return out, nil
	}
}

// hostName reads the name of a host.
func hostName(text string) (string, error) {
	if problems := validation.IsDNS1123Subdomain(text); len(problems) > 0 {
		return "", fault("is not the name of a host", "use a DNS name in lower case, such as shop.example")
	}
	return text, nil
}

// hostPort reads the name of a host, perhaps with a port.
func hostPort(text string) (string, error) {
	host, port, both := strings.Cut(text, ":")
	if n, err := strconv.Atoi(port); both && (err != nil || n < 1 || n > 65535 || strconv.Itoa(n) != port) {
		return "", fault("has no valid port", "use 1 to 65535")
	}
	_, err := hostName(host)
	return text, err
}

// namespaceName reads the name of a namespace, or "*".
func namespaceName(text string) (string, error) {
	if text != "*" && len(validation.IsDNS1123Label(text)) > 0 {
		return "", fault("is not the name of a namespace", "use names of namespaces, or * for all")
	}
	return text, nil
}

// alias reads a host, perhaps one with a wildcard.
func alias(text string) (string, error) {
	_, err := hostName(strings.TrimPrefix(text, "*."))
	return text, err
}

// tokenForm is a token of RFC 9110, section 5.6.2, without the characters that
// need quotes in haproxy.cfg.
var tokenForm = regexp.MustCompile(`^[A-Za-z0-9!*+.^_|~-]+$`)

// token reads the name of a header or of a method.
func token(text string) (string, error) {
	if !tokenForm.MatchString(text) || len(text) > 200 {
		return "", fault("is not the name of a header", "use letters, digits and -")
	}
	return text, nil
}

// methodName reads the name of a method.
func methodName(text string) (string, error) {
	if text != strings.ToUpper(text) || !tokenForm.MatchString(text) || len(text) > 40 {
		return "", fault("is not a method", "use names such as GET, POST")
	}
	return text, nil
}

// fallbackService reads the name of a Service and perhaps a port.
func fallbackService(text string) (policy.ServiceRef, error) {
	name, port, both := strings.Cut(text, ":")
	r := policy.ServiceRef{Name: name}
	if len(validation.IsDNS1035Label(name)) > 0 {
		return r, fault("is not the name of a Service", "use a name of the same namespace, such as sorry or sorry:8080")
	}
	if !both {
		return r, nil
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 1 || n > 65535 || strconv.Itoa(n) != port {
		return r, fault("has no valid port", "use 1 to 65535")
	}
	r.Port = n
	return r, nil
}
