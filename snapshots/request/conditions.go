package request

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// verdict is whether a condition holds.
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

// named evaluates an acl, which holds if one of its lines does.
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

// methodOf is how an expression is compared if nothing says so.
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

// shorter is how an expression of a route looks no further than at some bytes; package regexp has no such
// assertion.
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

// compare compares a number with patterns: numbers, ranges, and after an operator all that follow.
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
