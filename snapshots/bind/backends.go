package bind

import (
	"bytes"
	"slices"
	"strings"
)

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

// over returns b with what it leaves open as in another section.
func (b balance) over(inherited balance) balance {
	if b.algorithm == "" {
		b.algorithm = inherited.algorithm
	}
	if b.hash == "" {
		b.hash = inherited.hash
	}
	return b
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
	said := map[section]balance{}
	named := map[string]balance{} // sections of defaults, by name
	var in section
	var last balance // of the last section of defaults
	end := func() {
		if in.keyword == "defaults" {
			last = said[in]
			named[in.name] = last
		}
	}
	for _, line := range numberedLines(config) {
		if opened, ok := openSection(line); ok {
			end()
			in = opened
			said[in] = balance{}.over(inherited(line, named, last, in))
			continue
		}
		switch keyword, rest := firstWord(line); string(keyword) {
		case "balance":
			said[in] = balance{algorithm: word(rest)}.over(said[in])
		case "hash-type":
			said[in] = balance{hash: word(rest)}.over(said[in])
		}
	}
	out := map[string]bool{}
	for s, b := range said {
		if s.hasServers() && weighted[s.name] && !b.dynamic() {
			out[s.name] = true
		}
	}
	return out
}

// inherited returns what a section begins with: what the defaults say that it names, or
// those before it. Those that name none begin with nothing.
func inherited(line []byte, named map[string]balance, last balance, in section) balance {
	words := bytes.Fields(line)
	for i, w := range words {
		if string(w) == "from" && i >= 2 && i+1 < len(words) {
			return named[strings.Trim(string(words[i+1]), `"'`)]
		}
	}
	if in.keyword == "defaults" {
		return balance{}
	}
	return last
}

func word(line []byte) string {
	w, _ := firstWord(line)
	return strings.Trim(string(w), `"'`)
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
	named := map[string]serverSection{} // sections of defaults
	var in section
	var current, last serverSection
	end := func() {
		d, ok := single[in.name]
		switch {
		case in.keyword == "defaults":
			last = current
			named[in.name] = current
		case in.hasServers() && ok && current.takesDynamic():
			out[in.name] = append(current.words, strings.Fields(d.Options)...)
		}
	}
	for _, line := range numberedLines(config) {
		if opened, ok := openSection(line); ok {
			end()
			in, current = opened, inheritedServers(line, named, last, opened)
			continue
		}
		current.read(line)
	}
	end()
	return out
}

// serverSection is what a section says of its servers, with what it inherits.
type serverSection struct {
	balance string
	sticks  bool
	words   []string // of default-server lines
}

// inheritedServers is as [inherited], for another kind of lines.
func inheritedServers(line []byte, named map[string]serverSection, last serverSection, in section) serverSection {
	words := bytes.Fields(line)
	for i, w := range words {
		if string(w) == "from" && i >= 2 && i+1 < len(words) {
			return named[strings.Trim(string(words[i+1]), `"'`)].clone()
		}
	}
	if in.keyword == "defaults" {
		return serverSection{}
	}
	return last.clone()
}

func (s serverSection) clone() serverSection {
	s.words = slices.Clone(s.words)
	return s
}

func (s *serverSection) read(line []byte) {
	keyword, rest := firstWord(line)
	words := strings.Fields(string(rest))
	switch string(keyword) {
	case "balance":
		s.balance = word(rest)
	case "cookie", "stick", "persist", "use-server", "server", "server-template", "dispatch":
		s.sticks = true
	case "default-server":
		s.words = append(s.words, words...)
	}
}

func (s serverSection) takesDynamic() bool {
	name, _, _ := strings.Cut(s.balance, "(")
	return !s.sticks && slices.Contains([]string{"", "roundrobin", "leastconn", "random"}, name)
}
