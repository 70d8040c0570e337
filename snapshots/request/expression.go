package request

import (
	"cmp"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hapsnap/hapsnap/internal/urlpath"
	"github.com/hapsnap/hapsnap/snapshots"
)

// value is the result of an expression. The zero value is none.
type value struct {
	text  string
	state state
	plain bool // a number or a truth value, which is matched as one
}

type state int

const (
	missing state = iota
	known
	unknown // this package cannot tell
)

func text(s string) value    { return value{text: s, state: known} }
func number(n int64) value   { return value{text: strconv.FormatInt(n, 10), state: known, plain: true} }
func truth(is bool) value    { return number(map[bool]int64{true: 1}[is]) }
func (v value) int() int64   { n, _ := strconv.ParseInt(v.text, 10, 64); return n }
func (v value) isTrue() bool { return v.int() != 0 }

// call is a function of HAProxy with its arguments.
type call struct {
	name string
	args []string
}

func (c call) arg(i int) string {
	if i < len(c.args) {
		return c.args[i]
	}
	return ""
}

// parseExpression splits "fetch(a,b),converter(c)" into calls, and reports whether it could.
func parseExpression(text string) (calls []call, ok bool) {
	for text != "" {
		end := strings.IndexAny(text, "(,")
		if end < 0 {
			return append(calls, call{name: text}), true
		}
		c := call{name: text[:end]}
		if text[end] == ',' {
			calls, text = append(calls, c), text[end+1:]
			continue
		}
		args, rest, closed := arguments(text[end+1:])
		if !closed {
			return nil, false
		}
		c.args = args
		calls = append(calls, c)
		if rest == "" {
			return calls, true
		}
		if rest[0] != ',' {
			return nil, false
		}
		text = rest[1:]
	}
	return calls, len(calls) > 0
}

// arguments splits a list up to the parenthesis that ends it. It does not split quoted text.
func arguments(text string) (args []string, rest string, closed bool) {
	var b strings.Builder
	quote := byte(0)
	for i := range len(text) {
		switch c := text[i]; {
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			b.WriteByte(c)
		case c == '"' || c == '\'':
			quote = c
		case c == ',':
			args = append(args, b.String())
			b.Reset()
		case c == ')':
			return append(args, b.String()), text[i+1:], true
		default:
			b.WriteByte(c)
		}
	}
	return nil, "", false
}

// evaluate returns what an expression gives for the request.
func (w *walk) evaluate(expression string) value {
	calls, ok := parseExpression(expression)
	if !ok {
		return value{state: unknown}
	}
	v := w.fetch(calls[0])
	for _, c := range calls[1:] {
		if v.state != known {
			return v
		}
		v = w.convert(v, c)
	}
	return v
}

// fetch returns what the request has for an expression, before any converter.
func (w *walk) fetch(c call) value {
	switch c.name {
	case "str":
		return text(c.arg(0))
	case "int":
		return number(value{text: c.arg(0)}.int())
	case "bool":
		return truth(c.arg(0) == "true" || c.arg(0) == "1")
	case "always_true":
		return truth(true)
	case "always_false":
		return truth(false)
	case "var":
		return w.variables[c.arg(0)]
	case "src":
		return text(w.source.String())
	case "so_name":
		i := slices.Index(w.bind, "name")
		return textOrNone(append(w.bind, "", "")[i+1], i >= 0)
	case "dst_port":
		return number(int64(w.request.Port))
	case "ssl_fc":
		return truth(w.request.TLS)
	case "req.ssl_hello_type":
		return number(map[bool]int64{true: 1}[w.request.TLS])
	case "req.ssl_sni", "ssl_fc_sni":
		return textOrNone(w.request.ServerName(), w.request.TLS && w.request.ServerName() != "")
	case "fc_http_major":
		return number(1)
	case "method":
		return text(w.request.Method)
	case "path", "path_beg", "path_end", "path_sub", "path_reg":
		return w.path
	case "url":
		if w.path.state != known {
			return value{state: unknown}
		}
		return text(w.path.text + w.query)
	case "query":
		_, query, found := strings.Cut(w.request.Target, "?")
		return textOrNone(query, found)
	case "req.fhdr", "req.hdr", "hdr", "req.hdr_val", "req.fhdr_cnt", "req.hdr_cnt":
		return w.header(c)
	case "req.cook", "cook":
		for pair := range strings.SplitSeq(strings.Join(w.headers["cookie"], "; "), ";") {
			if name, v, found := strings.Cut(strings.TrimSpace(pair), "="); found && name == c.arg(0) {
				return text(v)
			}
		}
		return value{}
	case "url_param", "urlp":
		_, query, _ := strings.Cut(w.request.Target, "?")
		for pair := range strings.SplitSeq(query, "&") {
			if name, v, found := strings.Cut(pair, "="); found && name == c.arg(0) {
				return text(v)
			}
		}
		return value{}
	case "nbsrv":
		return number(int64(w.usable(c.arg(0))))
	}
	return value{state: unknown}
}

func textOrNone(s string, found bool) value {
	if !found {
		return value{}
	}
	return text(s)
}

// header returns a header as HAProxy reads it: the whole, or one element of a list with commas, by default the
// last one.
func (w *walk) header(c call) value {
	name := strings.ToLower(c.arg(0))
	if w.unsureHeaders[name] {
		return value{state: unknown}
	}
	all := w.headers[name]
	if !strings.HasPrefix(c.name, "req.fhdr") {
		var elements []string
		for _, line := range all {
			for element := range strings.SplitSeq(line, ",") {
				elements = append(elements, strings.TrimSpace(element))
			}
		}
		all = elements
	}
	if strings.HasSuffix(c.name, "_cnt") {
		return number(int64(len(all)))
	}
	at := int64(-1)
	if len(c.args) > 1 {
		at = value{text: c.args[1]}.int()
	}
	switch {
	case at < 0:
		at += int64(len(all))
	default:
		at-- // HAProxy counts from 1
	}
	if at < 0 || at >= int64(len(all)) {
		return value{}
	}
	if c.name == "req.hdr_val" {
		return number(value{text: all[at]}.int())
	}
	return text(all[at])
}

// convert applies a converter.
func (w *walk) convert(v value, c call) value {
	s := v.text
	switch c.name {
	case "lower":
		return text(strings.ToLower(s))
	case "upper":
		return text(strings.ToUpper(s))
	case "field":
		return field(s, c)
	case "rtrim":
		return text(strings.TrimRight(s, c.arg(0)))
	case "ltrim":
		return text(strings.TrimLeft(s, c.arg(0)))
	case "length":
		return number(int64(len(s)))
	case "bytes":
		from, most := value{text: c.arg(0)}.int(), int64(len(s))
		if len(c.args) > 1 {
			most = value{text: c.args[1]}.int()
		}
		if from < 0 || most < 0 {
			return value{state: unknown}
		}
		s = s[min(from, int64(len(s))):]
		return text(s[:min(most, int64(len(s)))])
	case "concat":
		return text(s + c.arg(0) + w.variables[c.arg(1)].text + c.arg(2))
	case "url_enc":
		return text(strings.ReplaceAll(url.QueryEscape(s), "+", "%20"))
	case "url_dec":
		decoded, err := url.QueryUnescape(s)
		if err != nil {
			return value{state: unknown}
		}
		return text(decoded)
	case "iif":
		return text(map[bool]string{true: c.arg(0), false: c.arg(1)}[v.isTrue()])
	case "port_only":
		_, port, _ := strings.Cut(s[strings.LastIndexByte(s, ']')+1:], ":")
		return number(value{text: port}.int())
	case "regsub":
		return substitute(s, c)
	case "and", "or", "xor", "add", "sub", "strcmp":
		return w.calculate(v, c)
	case "nbsrv":
		return number(int64(w.usable(s)))
	case "lua.hapsnap_path":
		return text(urlpath.Normal(s, c.arg(0) == "ignore"))
	case "map", "map_str", "map_beg", "map_reg", "map_ip", "map_str_int", "map_beg_int":
		return w.lookUp(s, c)
	}
	return value{state: unknown}
}

// field returns the part with that number, which may be empty. A negative number counts from the end. The third
// argument says how many parts to take; fewer parts are taken if there are no more.
func field(s string, c call) value {
	n := int(value{text: c.arg(0)}.int())
	if n < 0 {
		parts := strings.Split(s, c.arg(1)) // one character, as everywhere here
		end := len(parts) + n + 1
		if end < 1 {
			return value{}
		}
		count := max(int(value{text: c.arg(2)}.int()), 1)
		return text(strings.Join(parts[max(end-count, 0):end], c.arg(1)))
	}
	for at := 1; ; at++ {
		end := strings.IndexAny(s, c.arg(1))
		switch {
		case at == n && end < 0:
			return text(s)
		case at == n:
			return text(s[:end])
		case end < 0:
			return value{}
		}
		s = s[end+1:]
	}
}

func substitute(s string, c call) value {
	pattern := c.arg(0)
	if strings.Contains(c.arg(2), "i") {
		pattern = "(?i)" + pattern
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return value{state: unknown}
	}
	if strings.Contains(c.arg(2), "g") {
		return text(re.ReplaceAllLiteralString(s, c.arg(1)))
	}
	if at := re.FindStringIndex(s); at != nil {
		s = s[:at[0]] + c.arg(1) + s[at[1]:]
	}
	return text(s)
}

// calculate applies converters whose argument is a number or a variable.
func (w *walk) calculate(v value, c call) value {
	other := w.variables[c.arg(0)]
	if _, err := strconv.ParseInt(c.arg(0), 0, 64); err == nil && c.name != "strcmp" {
		other = value{text: c.arg(0), state: known}
	}
	if other.state != known {
		return other
	}
	a, b := v.int(), other.int()
	switch c.name {
	case "and":
		return number(a & b)
	case "or":
		return number(a | b)
	case "xor":
		return number(a ^ b)
	case "add":
		return number(a + b)
	case "sub":
		return number(a - b)
	}
	return number(int64(cmp.Compare(v.text, other.text)))
}

// entry is a line of a map.
type entry struct {
	key, value string
	line       Line
}

// entries returns those of a file of the snapshot, nil if there is no such file.
func entries(files []snapshots.File, path string) []entry {
	var out []entry
	for _, f := range files {
		if f.Path != path {
			continue
		}
		out = []entry{}
		n := 0
		for line := range strings.Lines(string(f.Content)) {
			n++
			line = strings.TrimSpace(line)
			if line == "" || line[0] == '#' {
				continue
			}
			key, value, _ := strings.Cut(line, " ")
			out = append(out, entry{key, strings.TrimSpace(value), Line{File: path, Line: n, Text: line}})
		}
	}
	return out
}

// lookUp looks up a key in a map, and records the line that it finds.
func (w *walk) lookUp(s string, c call) value {
	all := w.entries(c.arg(0))
	if all == nil {
		return value{state: unknown}
	}
	found, ok, sure := matchOf(c.name, s, all)
	switch isNumber := strings.HasSuffix(c.name, "_int"); {
	case !sure:
		return value{state: unknown}
	case ok:
		w.take(found.line)
		return value{text: found.value, state: known, plain: isNumber}
	case len(c.args) > 1:
		return value{text: c.args[1], state: known, plain: isNumber}
	}
	return value{}
}

// matchOf returns the entry that a kind of look-up finds. The result is not certain if Go cannot read an
// expression.
func matchOf(kind, s string, all []entry) (best entry, ok, sure bool) {
	longest := -1
	for _, e := range all {
		switch strings.TrimSuffix(strings.TrimSuffix(kind, "_int"), "_str") {
		case "map":
			if e.key == s {
				return e, true, true
			}
		case "map_beg":
			if strings.HasPrefix(s, e.key) && len(e.key) > longest {
				best, longest = e, len(e.key)
			}
		case "map_reg":
			re, err := regexp.Compile(e.key)
			if err != nil {
				return entry{}, false, false
			}
			if re.MatchString(s) {
				return e, true, true
			}
		case "map_ip":
			if bits := within(s, e.key); bits > longest {
				best, longest = e, bits
			}
		}
	}
	return best, longest >= 0, true
}

// within returns how many bits a network has that contains an address, -1 if the network does not contain it.
func within(address, network string) int {
	a, err := netip.ParseAddr(address)
	if err != nil {
		return -1
	}
	if single, err := netip.ParseAddr(network); err == nil {
		network = netip.PrefixFrom(single, single.BitLen()).String()
	}
	p, err := netip.ParsePrefix(network)
	if err != nil || !p.Contains(a) {
		return -1
	}
	return p.Bits()
}
