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
	bind    []string // the words of the bind line that the connection came in by

	variables     map[string]value
	headers       map[string][]string // by name in lower case
	unsureHeaders map[string]bool
	source        netip.Addr
	path          value // as rules have made it, and the query with its question mark
	query         string
	acls          map[string][][]string // of the section, by name: the words of each line
}

// take takes down a line that took part, once.
func (w *walk) take(l Line) {
	if !slices.Contains(w.answer.Lines, l) {
		w.answer.Lines = append(w.answer.Lines, l)
	}
}

// rules lets the rules of a section act on the request, and reports whether one answered it.
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

// act does what one rule says, and reports whether it answered the request.
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
		default: // the whole path is replaced, whatever part of it was matched
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

// reference is what stands for a group of an expression, or for a character.
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

// format fills in a text with %[expression], and reports whether all of them are known.
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

// closing returns where the bracket is that ends an expression.
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

// statusOf is the status of an answer of HAProxy's own.
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

// location is where a redirect leads, "" if that is not known.
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
