package request

import (
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
	"github.com/hapsnap/hapsnap/snapshots"
)

// walk is a request on its way through a configuration.
type walk struct {
	*Reader
	request Request
	usable  func(backend string) int
	answer  *Answer
	bind    []string // the words of the bind line of the connection

	variables     map[string]value
	headers       map[string][]string // by name in lower case
	unsureHeaders map[string]bool
	source        netip.Addr
	path          value // the path after rules changed it, and the query with its question mark
	query         string
	acls          map[string][][]string // of the section, by name: the words of each line
}

// take records a line that took part, once.
func (w *walk) take(l Line) {
	if !slices.Contains(w.answer.Lines, l) {
		w.answer.Lines = append(w.answer.Lines, l)
	}
}

// rules applies the rules of a section to the request, and reports whether one of them answered it.
func (w *walk) rules(s haproxycfg.Section, first string) (answered bool) {
	w.acls = map[string][][]string{}
	for _, l := range s.Lines {
		if words := l.Texts(); len(words) > 2 && words[0] == "acl" {
			w.acls[words[1]] = append(w.acls[words[1]], words[2:])
		}
	}
	for _, l := range s.Lines {
		words := l.Texts()
		if len(words) < 2 || words[0] != first {
			continue
		}
		if first == "tcp-request" { // connection, session or content
			words = words[1:]
			if len(words) < 2 || words[0] == "inspect-delay" {
				continue
			}
		}
		if w.act(lineOf(l), words[1:]) {
			return true
		}
	}
	return false
}

func lineOf(l haproxycfg.Line) Line {
	return Line{File: snapshots.ConfigFile, Line: l.Number, Text: strings.TrimSpace(string(l.Text))}
}

// act carries out one rule, and reports whether it answered the request.
func (w *walk) act(l Line, words []string) bool {
	v := w.holds(words)
	if v == no {
		return false
	}
	action, target := words[0], ""
	if open := strings.IndexByte(action, '('); open > 0 {
		action, target = action[:open], strings.TrimSuffix(action[open+1:], ")")
	}
	switch action {
	case "set-var":
		got := w.evaluate(words[1])
		if v == maybe {
			got = value{state: unknown}
		}
		if got.state != missing {
			w.variables[target] = got
		}
	case "unset-var":
		if v == maybe {
			w.variables[target] = value{state: unknown}
		} else {
			delete(w.variables, target)
		}
	case "del-header", "set-header", "add-header":
		w.editHeaders(action, words[1:], v == maybe)
	case "set-src":
		if a, err := netip.ParseAddr(w.evaluate(words[1]).text); err == nil && v == yes {
			w.source = a
		}
	case "set-path", "replace-path", "set-uri", "replace-uri", "set-pathq", "replace-pathq":
		w.path = w.changedPath(action, words[1:], v == maybe)
	case "return", "deny", "tarpit", "auth", "redirect", "use-service", "reject":
		if v == maybe {
			w.answer.Unsure = append(w.answer.Unsure, l)
			return false
		}
		w.answer.Rule, w.answer.Status = &l, statusOf(action, words)
		if action == "redirect" {
			w.answer.Location = w.location(words)
		}
		return true
	case "lua.hapsnap_auth":
		w.answer.Unsure = append(w.answer.Unsure, l)
		w.variables["txn.auth"] = text("passed") // which is what is left open
	}
	return false
}

// changedPath returns the path after a rule that changes it.
func (w *walk) changedPath(action string, words []string, unsure bool) value {
	switch {
	case unsure || w.path.state == unknown || len(words) == 0:
	case action == "set-path":
		if path, ok := w.format(words[0]); ok {
			return text(path)
		}
	case action == "replace-path" && len(words) > 1:
		found, sure := find(words[0], w.path.text)
		with, ok := w.format(words[1])
		switch {
		case !sure || !ok:
		case found == nil:
			return w.path
		default: // the whole path is replaced, whichever part of it matched
			return text(reference.ReplaceAllStringFunc(with, func(ref string) string {
				if n, err := strconv.Atoi(ref[1:]); err == nil {
					return slices.Concat(found, make([]string, 10))[n]
				}
				return ref[1:]
			}))
		}
	}
	return value{state: unknown}
}

// reference stands for a group of an expression, or for a character.
var reference = regexp.MustCompile(`\\.`)

// editHeaders changes the headers of the request.
func (w *walk) editHeaders(action string, words []string, unsure bool) {
	if len(words) == 0 {
		return
	}
	name := strings.ToLower(words[0])
	if action != "del-header" {
		if len(words) < 2 {
			return
		}
		got, ok := w.format(words[1])
		w.unsureHeaders[name] = w.unsureHeaders[name] || unsure || !ok
		if action == "set-header" {
			w.headers[name] = nil
		}
		w.headers[name] = append(w.headers[name], got)
		return
	}
	method := "str"
	if len(words) > 2 && words[1] == "-m" {
		method = words[2]
	}
	for _, header := range slices.Sorted(maps.Keys(w.headers)) {
		// Names are compared without regard to case, by expressions too.
		switch match(text(header), method, true, []string{words[0]}) {
		case yes:
			if unsure {
				w.unsureHeaders[header] = true
			} else {
				delete(w.headers, header)
			}
		case maybe:
			w.unsureHeaders[header] = true
		}
	}
}

// format fills in a text with %[expression], and reports whether all expressions are known.
func (w *walk) format(template string) (string, bool) {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(template, "%[")
		b.WriteString(strings.ReplaceAll(before, "%%", "%"))
		if !found {
			return b.String(), true
		}
		end := closing(rest)
		if end < 0 {
			return "", false
		}
		if rest[:end] == "pathq" {
			if w.path.state == unknown {
				return "", false
			}
			b.WriteString(w.path.text + w.query)
		} else {
			v := w.evaluate(rest[:end])
			if v.state == unknown {
				return "", false
			}
			b.WriteString(v.text)
		}
		template = rest[end+1:]
	}
}

// closing returns the position of the bracket that ends an expression.
func closing(text string) int {
	depth := 0
	for i := range len(text) {
		switch text[i] {
		case '(':
			depth++
		case ')':
			depth--
		case ']':
			if depth <= 0 {
				return i
			}
		}
	}
	return -1
}

// statusOf returns the status of an answer of HAProxy's own.
func statusOf(action string, words []string) int {
	for i, word := range words[:len(words)-1] {
		if word == "status" || word == "deny_status" || word == "code" {
			if n, err := strconv.Atoi(words[i+1]); err == nil {
				return n
			}
		}
	}
	return map[string]int{"return": 200, "deny": 403, "tarpit": 500, "auth": 401, "redirect": 302}[action]
}

// location returns the target of a redirect, "" if that is not known.
func (w *walk) location(words []string) string {
	for i, word := range words[:len(words)-1] {
		switch word {
		case "location":
			got, _ := w.format(words[i+1])
			return got
		case "prefix":
			got, _ := w.format(words[i+1] + "%[pathq]")
			return got
		case "scheme":
			got, _ := w.format(words[i+1] + "://" + w.request.Host + "%[pathq]")
			return got
		}
	}
	return ""
}

// verdict says whether a condition holds.
type verdict int

const (
	no verdict = iota
	yes
	maybe
)

func verdictOf(is bool) verdict {
	if is {
		return yes
	}
	return no
}

func (v verdict) not() verdict { return [...]verdict{yes, no, maybe}[v] }

// holds evaluates the condition at the end of a rule, if it has one.
func (w *walk) holds(words []string) verdict {
	i := slices.IndexFunc(words, func(word string) bool { return word == "if" || word == "unless" })
	if i < 0 {
		return yes
	}
	out := w.anyOf(words[i+1:])
	if words[i] == "unless" {
		return out.not()
	}
	return out
}

// anyOf evaluates terms that are joined by "or", and otherwise by and.
func (w *walk) anyOf(words []string) verdict {
	result, current := no, yes
	join := func() {
		if current == yes || current == maybe && result == no {
			result = current
		}
		current = yes
	}
	for len(words) > 0 {
		if words[0] == "or" || words[0] == "||" {
			join()
			words = words[1:]
			continue
		}
		var v verdict
		v, words = w.term(words)
		if v == no || v == maybe && current == yes {
			current = v
		}
	}
	join()
	return result
}

// term evaluates one term, and returns the words after it.
func (w *walk) term(words []string) (verdict, []string) {
	word, negated := strings.CutPrefix(words[0], "!")
	rest := words[1:]
	if word == "" && len(rest) > 0 {
		word, rest = rest[0], rest[1:]
	}
	var v verdict
	if word == "{" {
		end := slices.Index(rest, "}")
		if end < 0 {
			return maybe, nil
		}
		v, rest = w.test(rest[:end]), rest[end+1:]
	} else {
		v = w.named(word)
	}
	if negated {
		v = v.not()
	}
	return v, rest
}

// named evaluates an acl, which holds if one of its lines holds.
func (w *walk) named(name string) verdict {
	lines, ok := w.acls[name]
	if !ok {
		return maybe
	}
	out := no
	for _, l := range lines {
		if v := w.test(l); v == yes || v == maybe && out == no {
			out = v
		}
	}
	return out
}

// test evaluates "expression [-m method] [-i] [-f file] [--] pattern...".
func (w *walk) test(words []string) verdict {
	if len(words) == 0 {
		return maybe
	}
	v := w.evaluate(words[0])
	if v.state == unknown {
		return maybe
	}
	method, fold := methodOf(words[0], v), false
	var patterns []string
	rest := words[1:]
flags:
	for len(rest) > 0 {
		switch rest[0] {
		case "-m":
			if len(rest) < 2 {
				return maybe
			}
			method, rest = rest[1], rest[2:]
		case "-i":
			fold, rest = true, rest[1:]
		case "-f":
			if len(rest) < 2 {
				return maybe
			}
			for _, e := range w.entries(rest[1]) {
				patterns = append(patterns, e.key)
			}
			rest = rest[2:]
		case "--":
			rest = rest[1:]
			break flags
		default:
			break flags
		}
	}
	return match(v, method, fold, append(patterns, rest...))
}

// methodOf returns how an expression is compared by default.
func methodOf(expression string, v value) string {
	name, _, _ := strings.Cut(expression, "(")
	name, _, _ = strings.Cut(name, ",")
	switch {
	case v.plain:
		return "int"
	case name == "src" && !strings.Contains(expression, ","):
		return "ip"
	case strings.HasPrefix(name, "path_"):
		return strings.TrimPrefix(name, "path_")
	}
	return "str"
}

func match(v value, method string, fold bool, patterns []string) verdict {
	if method == "found" {
		return verdictOf(v.state == known)
	}
	if v.state != known {
		return no
	}
	if method == "bool" || len(patterns) == 0 {
		return verdictOf(v.isTrue() || v.text == "true")
	}
	if method == "int" || method == "len" {
		n := v.int()
		if method == "len" {
			n = int64(len(v.text))
		}
		return verdictOf(compare(n, patterns))
	}
	subject := v.text
	for _, p := range patterns {
		if fold && method != "reg" {
			subject, p = strings.ToLower(subject), strings.ToLower(p)
		}
		var hit bool
		switch method {
		case "str":
			hit = subject == p
		case "beg":
			hit = strings.HasPrefix(subject, p)
		case "end":
			hit = strings.HasSuffix(subject, p)
		case "sub":
			hit = strings.Contains(subject, p)
		case "ip":
			hit = within(subject, p) >= 0
		case "reg":
			if fold {
				p = "(?i)" + p
			}
			groups, sure := find(p, subject)
			if !sure {
				return maybe
			}
			hit = groups != nil
		default:
			return maybe
		}
		if hit {
			return yes
		}
	}
	return no
}

// shorter matches, in an expression of a route, the assertion that the text has no more than some number of
// bytes. Package regexp has no such assertion.
var shorter = regexp.MustCompile(`^((?:\(\?i\))*\^)\(\?=\[\\s\\S\]\{0,(\d+)\}\\z\)`)

// find returns what an expression and its groups match, nil if it does not match, and whether that is certain.
func find(pattern, subject string) (groups []string, sure bool) {
	if m := shorter.FindStringSubmatch(pattern); m != nil {
		if most, _ := strconv.Atoi(m[2]); len(subject) > most {
			return nil, true
		}
		pattern = m[1] + pattern[len(m[0]):]
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, false
	}
	return re.FindStringSubmatch(subject), true
}

// compare compares a number with patterns: numbers, ranges, and, after an operator, all numbers that follow.
func compare(n int64, patterns []string) bool {
	operator := "eq"
	for _, p := range patterns {
		if slices.Contains([]string{"eq", "ge", "gt", "le", "lt"}, p) {
			operator = p
			continue
		}
		low, high, isRange := strings.Cut(p, ":")
		from, to := value{text: low}.int(), value{text: high}.int()
		if isRange {
			if (low == "" || n >= from) && (high == "" || n <= to) {
				return true
			}
			continue
		}
		if map[string]bool{"eq": n == from, "ge": n >= from, "gt": n > from, "le": n <= from, "lt": n < from}[operator] {
			return true
		}
	}
	return false
}
