package bind

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
)

// inheritance is what sections inherit from the defaults before them.
type inheritance[T any] struct {
	named map[string]T
	last  T // of the last defaults
}

// of returns what a section begins with: the settings of the defaults that it names, or of
// those before it. If it names defaults that do not exist, it begins with nothing.
func (h *inheritance[T]) of(s haproxycfg.Section) (inherited T) {
	switch {
	case s.From != "":
		return h.named[s.From]
	case s.Keyword == "defaults":
		return inherited
	}
	return h.last
}

// end notes what a section sets, together with what it inherited.
func (h *inheritance[T]) end(s haproxycfg.Section, said T) {
	if s.Keyword != "defaults" {
		return
	}
	if h.named == nil {
		h.named = map[string]T{}
	}
	h.named[s.Name], h.last = said, said
}

// balance is how a section says that servers are chosen; fields that it does not set are
// empty.
type balance struct {
	algorithm, hash string
}

// dynamic reports whether weights of servers can be changed at run time to other values than 0
// and the full weight. HAProxy computes the tables of a static algorithm when it starts. Unknown
// algorithms count as static.
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
// run time, because the algorithm that chooses their servers is static.
func StaticBackends(config []byte, directives []Directive) map[string]bool {
	return staticBackends(config, weightedBackends(directives))
}

// staticBackends returns the sections whose weights cannot be changed at run time, among
// those that have weights written.
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

// DynamicBackends returns the backends to which HAProxy can add servers at run time
// (dynamic servers), to bridge the time until a slot gets its address. Each has the
// settings of its server lines, from the default-server lines of its defaults and its own
// and from its directive. The caller decides which settings a dynamic server can have.
//
// It leaves out backends where a dynamic server would not do what a slot does. HAProxy
// accepts none if the algorithm is static. A hash, a stick table and a cookie remember a
// server that is soon gone, and HAProxy 2.6 gives clients of a dynamic server an empty
// cookie if it makes cookies of addresses. Rules may choose a server by its name. And if
// several Services share a backend, weights change with each endpoint.
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
			switch line.First() {
			case "balance":
				said.balance = argument(line)
			case "cookie", "stick", "persist", "use-server", "server", "server-template", "dispatch":
				said.sticks = true
			case "default-server":
				said.words = slices.Concat(said.words, written(line.Text)[1:]) // other sections inherit the words
			}
		}
		defaults.end(section, said)
		if d, ok := single[section.Name]; ok && section.HasServers() && said.takesDynamic() {
			out[section.Name] = slices.Concat(said.words, written([]byte(d.Options)))
		}
	}
	return out
}

// serverSection is what a section says about its servers, with what it inherits.
type serverSection struct {
	balance string
	sticks  bool
	words   []string // of default-server lines
}

// written returns the words of a line as they are written. A dynamic server cannot be given
// words with quotes or escapes.
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

// Descriptors are the file descriptors that a worker of a configuration reserves when it
// starts. It does not start with fewer. HAProxy reserves one for each server that may be
// checked, also if the server is disabled, since a check cannot be added at run time.
type Descriptors struct {
	Checks    int // health checks and agent checks, those of spare slots too
	Listeners int
	MaxConn   int // the global one, 0 if HAProxy computes it
	HardLimit int // fd-hard-limit, 0 if there is none
}

// leastConnections is the lowest maxconn that HAProxy chooses by itself.
const leastConnections = 100

// Least returns how many descriptors a worker needs at least: two for each connection, and
// the reserved ones. HAProxy needs some more for itself.
func (d Descriptors) Least() int {
	return d.Checks + d.Listeners + 2*max(d.MaxConn, leastConnections)
}

// String says what the descriptors are for.
func (d Descriptors) String() string {
	return fmt.Sprintf("%d for servers that may be checked, %d for listeners, 2 for each of %d connections",
		d.Checks, d.Listeners, max(d.MaxConn, leastConnections))
}

// CountDescriptors counts what a bound configuration reserves.
func CountDescriptors(config []byte) Descriptors {
	var found Descriptors
	var defaults inheritance[checking]
	for section := range haproxycfg.Sections(config) {
		servers := defaults.of(section) // what default-server says
		for _, line := range section.Lines {
			switch keyword := line.First(); {
			case keyword == "bind":
				found.Listeners += strings.Count(argument(line), ",") + 1
			case keyword == "maxconn" && section.Keyword == "global":
				found.MaxConn = number(argument(line))
			case keyword == "fd-hard-limit" && section.Keyword == "global":
				found.HardLimit = number(argument(line))
			case keyword == "default-server":
				servers = servers.read(line.Texts())
			case keyword == "server" && section.HasServers():
				found.Checks += servers.read(line.Texts()).count()
			case keyword == "server-template" && section.HasServers():
				words := line.Texts()
				found.Checks += number(slices.Concat(words, make([]string, 3))[2]) * servers.read(words).count()
			}
		}
		defaults.end(section, servers)
	}
	return found
}

// number reads a number; other text is 0.
func number(word string) int {
	n, _ := strconv.Atoi(word)
	return n
}

// checking says which checks a server has, unless its line says otherwise.
type checking struct{ health, agent bool }

func (c checking) read(words []string) checking {
	for _, word := range words {
		switch word {
		case "check":
			c.health = true
		case "no-check":
			c.health = false
		case "agent-check":
			c.agent = true
		case "no-agent-check":
			c.agent = false
		}
	}
	return c
}

func (c checking) count() (n int) {
	if c.health {
		n++
	}
	if c.agent {
		n++
	}
	return n
}
