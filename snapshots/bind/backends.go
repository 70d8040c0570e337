package bind

import (
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
)

// inheritance is what sections inherit of the defaults before them.
type inheritance[T any] struct {
	named map[string]T
	last  T // of the last defaults
}

// of returns what a section begins with: what the defaults say that it names, or those
// before it. Defaults that name none begin with nothing.
func (h *inheritance[T]) of(s haproxycfg.Section) (inherited T) {
	switch {
	case s.From != "":
		return h.named[s.From]
	case s.Keyword == "defaults":
		return inherited
	}
	return h.last
}

// end takes note of what a section says, with what it inherited.
func (h *inheritance[T]) end(s haproxycfg.Section, said T) {
	if s.Keyword != "defaults" {
		return
	}
	if h.named == nil {
		h.named = map[string]T{}
	}
	h.named[s.Name], h.last = said, said
}

// balance is what a section says of how its servers are chosen; fields are empty where
// it says nothing.
type balance struct {
	algorithm, hash string
}

// dynamic reports whether the weights of servers can be changed at run time, apart from
// taking all of it away and giving it back. HAProxy computes the tables of a static
// algorithm when it starts. What is not known is taken for static.
func (b balance) dynamic() bool {
	name, _, _ := strings.Cut(b.algorithm, "(")
	switch name {
	case "", "roundrobin", "leastconn", "random", "first":
		return true
	case "static-rr":
		return false
	}
	return b.hash == "consistent"
}

// StaticBackends returns the backends with directives whose weights cannot be changed at
// run time: the algorithm that chooses their servers is static.
func StaticBackends(config []byte, directives []Directive) map[string]bool {
	return staticBackends(config, weightedBackends(directives))
}

// staticBackends returns the sections whose weights cannot be changed at run time, of
// those that are to have weights written.
func staticBackends(config []byte, weighted map[string]bool) map[string]bool {
	if len(weighted) == 0 {
		return nil
	}
	out := map[string]bool{}
	var defaults inheritance[balance]
	for section := range haproxycfg.Sections(config) {
		b := defaults.of(section)
		for _, line := range section.Lines {
			switch {
			case line.Is("balance"):
				b.algorithm = argument(line)
			case line.Is("hash-type"):
				b.hash = argument(line)
			}
		}
		defaults.end(section, b)
		if section.HasServers() && weighted[section.Name] && !b.dynamic() {
			out[section.Name] = true
		}
	}
	return out
}

// argument returns the word after the first one, "" if there is none.
func argument(line haproxycfg.Line) string {
	if words := line.Words(); len(words) > 1 {
		return words[1].Text
	}
	return ""
}

// DynamicBackends returns the backends whose servers may be joined by others at run time,
// which HAProxy calls dynamic servers, for as long as it takes to give a slot its address;
// each with the settings that its server lines have, from the default-server lines of its
// defaults and its own and from its directive. Which settings a dynamic server can be given
// is up to the caller.
//
// Left out is where a dynamic server would not do what a slot does: HAProxy takes none
// where the algorithm is static; a hash, a stick table and a cookie remember a server that
// is soon gone, and HAProxy 2.6 gives clients of a dynamic server an empty cookie where it
// makes cookies of addresses; rules may choose by name; and where several Services share a
// backend, weights change with each endpoint.
func DynamicBackends(config []byte, directives []Directive) map[string][]string {
	single := map[string]Directive{}
	for _, d := range directives {
		if d.Index == 0 {
			single[d.Backend] = d
		}
	}
	for _, d := range directives {
		if d.Index > 0 {
			delete(single, d.Backend)
		}
	}
	if len(single) == 0 {
		return nil
	}
	out := map[string][]string{}
	var defaults inheritance[serverSection]
	for section := range haproxycfg.Sections(config) {
		said := defaults.of(section)
		for _, line := range section.Lines {
			said = said.with(line)
		}
		defaults.end(section, said)
		if d, ok := single[section.Name]; ok && section.HasServers() && said.takesDynamic() {
			out[section.Name] = slices.Concat(said.words, written([]byte(d.Options)))
		}
	}
	return out
}

// serverSection is what a section says of its servers, with what it inherits.
type serverSection struct {
	balance string
	sticks  bool
	words   []string // of default-server lines
}

func (s serverSection) with(line haproxycfg.Line) serverSection {
	switch line.First() {
	case "balance":
		s.balance = argument(line)
	case "cookie", "stick", "persist", "use-server", "server", "server-template", "dispatch":
		s.sticks = true
	case "default-server":
		s.words = slices.Concat(s.words, written(line.Text)[1:]) // other sections inherit the words
	}
	return s
}

// written returns the words of a line as they are written: one with quotes or escapes is
// none of those that a dynamic server can be given.
func written(line []byte) []string {
	words := haproxycfg.Line{Text: line}.Words()
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = string(line[w.Start:w.End])
	}
	return out
}

func (s serverSection) takesDynamic() bool {
	name, _, _ := strings.Cut(s.balance, "(")
	return !s.sticks && slices.Contains([]string{"", "roundrobin", "leastconn", "random"}, name)
}
