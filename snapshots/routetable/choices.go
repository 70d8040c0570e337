package routetable

import (
	"iter"
	"math/bits"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
)

// target is a route of a choice: it gets the request if all the bits that it needs are set.
type target struct {
	position int
	needs    uint64
	to       string
	whileUp  bool
}

// condition is what sets bits.
type condition struct {
	bits uint64
	text string
	path bool // the text is an expression of the path
}

// lines yields the lines of a map with their numbers, without comments.
func lines(text string) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		number := 0
		for line := range strings.Lines(text) {
			number++
			if line = strings.TrimSpace(line); line != "" && line[0] != '#' && !yield(number, line) {
				return
			}
		}
	}
}

// readListeners reads the ports, and the expressions with which rules compare parts of requests.
func (r *reader) readListeners(config []byte) {
	r.listeners = map[string]*Listener{"": {}}
	for s := range haproxycfg.Sections(config) {
		if s.Keyword != "frontend" || s.Name == "status" {
			continue
		}
		for _, l := range s.Lines {
			switch {
			case l.Is("bind"):
				r.readBind(s.Name, l.Texts(), isTCP(s))
			case l.Is("http-request"):
				r.readPattern(string(l.Text))
			}
		}
	}
}

func isTCP(s haproxycfg.Section) bool {
	return slices.ContainsFunc(s.Lines, func(l haproxycfg.Line) bool { return l.Is("mode") && slices.Equal(l.Texts(), []string{"mode", "tcp"}) })
}

func (r *reader) readBind(frontend string, words []string, tcp bool) {
	after := func(word string) string {
		if i := slices.Index(words, word); i >= 0 && i+1 < len(words) {
			return words[i+1]
		}
		return ""
	}
	name, scheme := after("name"), "http"
	if tcp {
		name, scheme = strings.TrimSuffix(frontend, "_terminated"), "tcp"
	}
	l := r.listener(name)
	if slices.Contains(words, "ssl") {
		scheme = map[bool]string{false: "https", true: "tls"}[tcp]
		if list := after("crt-list"); list != "" && !slices.Contains(l.lists, list) {
			l.lists = append(l.lists, list)
		}
	}
	if len(words) < 2 || strings.HasPrefix(words[1], "quic") {
		return
	}
	port := words[1][strings.LastIndexByte(words[1], ':')+1:]
	if _, err := strconv.Atoi(port); err == nil {
		scheme += " :" + port
	}
	if !slices.Contains(l.Ports, scheme) {
		l.Ports = append(l.Ports, scheme)
	}
}

// readPattern remembers the expression of a rule such as
//
//	http-request set-var(txn.m) str(|pattern:ID|),... if ... { var(txn.p),bytes(0,1024) -m reg -- EXPRESSION }
func (r *reader) readPattern(text string) {
	_, rest, ok := strings.Cut(text, "set-var(txn.m) str(")
	if !ok {
		return
	}
	key, _, _ := strings.Cut(rest, ")")
	words, err := haproxycfg.Words([]byte(text))
	if err != nil {
		return
	}
	var all []string
	for _, w := range words {
		all = append(all, w.Text)
	}
	i := slices.Index(all, "--")
	if i < 3 || i+1 >= len(all) {
		return
	}
	expression := all[i+1]
	if _, end, found := strings.Cut(expression, `\z)(?:`); found {
		expression = strings.TrimSuffix(end, `)\z`)
	}
	of, _, _ := strings.Cut(all[i-3], ",")
	r.patterns[key] = of + " " + expression
}

// readChoices reads the maps that decide by more than host and path, and those with weights.
func (r *reader) readChoices() {
	r.targets, r.conditions, r.splits = map[string][]target{}, map[string][]condition{}, map[string][]Share{}
	needs, below := map[string]uint64{}, map[string]int{}
	for _, line := range lines(r.files["maps/conditions.map"]) {
		at := strings.LastIndexByte(line, ' ')
		if at < 0 {
			r.unread++
			continue
		}
		key := line[:at]
		n, err := strconv.ParseUint(line[at+1:], 10, 64)
		switch choice := key[strings.LastIndexByte(key, '|')+1:]; {
		case err != nil:
			r.unread++
		case choice != key:
			r.conditions[choice] = append(r.conditions[choice], r.conditionOf(strings.TrimSuffix(key, choice), n))
		default:
			needs[key], below[key] = n, int(min(n, 1<<31))
		}
	}
	for _, line := range lines(r.files["maps/choices.map"]) {
		key, to, _ := strings.Cut(line, " ")
		at := strings.LastIndexByte(key, ':')
		position, err := strconv.Atoi(key[at+1:])
		if at < 0 || err != nil || strings.Contains(key, "|") {
			continue // it is another list: of hosts and of ports
		}
		switch name := key[:at]; {
		case strings.Contains(name, "?"):
			plain, whileUp := strings.CutPrefix(to, "+")
			r.targets[name] = append(r.targets[name], target{position, needs[key], plain, whileUp})
		case strings.HasPrefix(name, "%"):
			r.splits[name] = append(r.splits[name], Share{r.backends[to], below[key]})
		}
	}
	// HAProxy tries it in this order.
	for _, all := range r.targets {
		slices.SortStableFunc(all, func(a, b target) int { return a.position - b.position })
	}
	for _, all := range r.conditions {
		slices.SortStableFunc(all, func(a, b condition) int { return bits.TrailingZeros64(a.bits) - bits.TrailingZeros64(b.bits) })
	}
	for name, all := range r.splits {
		slices.SortStableFunc(all, func(a, b Share) int { return a.Weight - b.Weight })
		before := 0
		for i := range all {
			all[i].Weight, before = all[i].Weight-before, all[i].Weight
		}
		r.splits[name] = slices.DeleteFunc(all, func(s Share) bool { return s.Backend == nil })
	}
}

// conditionOf reads "VALUE|PART:NAME|" or "|pattern:ID|".
func (r *reader) conditionOf(key string, n uint64) condition {
	if pattern, ok := r.patterns[key]; ok {
		of, expression, _ := strings.Cut(pattern, " ")
		if of == "var(txn.p)" {
			return condition{n, expression, true}
		}
		return condition{n, partOf(of) + " matches " + expression, false}
	}
	value, rest, _ := strings.Cut(key, "|")
	part, name, _ := strings.Cut(strings.TrimSuffix(rest, "|"), ":")
	if decoded, err := url.PathUnescape(value); err == nil {
		value = decoded
	}
	return condition{n, strings.TrimSpace(part+" "+name) + " is " + value, false}
}

// partOf names the part of a request that an expression of HAProxy fetches.
func partOf(fetch string) string {
	name, argument, _ := strings.Cut(strings.TrimSuffix(fetch, ")"), "(")
	switch name {
	case "req.fhdr":
		return "header " + argument
	case "url_param":
		return "query " + argument
	}
	return fetch
}
