package bind

import (
	"bytes"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
)

// Server is one server line of a bound configuration: what the running
// worker should show for it.
type Server struct {
	Backend, Name string
	Address       string
	Port          int
	Weight        int // 1 to 256, or 0: takes no traffic
	State         SlotState
}

// Servers returns the servers of the directives, in order, as [Bound].Servers does for all
// directives of a configuration. With only the directives of the backends whose endpoints
// have changed, it returns what to change at run time at the cost of those backends. All
// directives of a backend must be given together, since they share its weight.
func Servers(directives []Directive, slots Slots) ([]Server, error) {
	groups := make([][]Slot, len(directives))
	n := 0
	for i, d := range directives {
		groups[i] = slots[d.Key()]
		n += len(groups[i])
	}
	out := make([]Server, 0, n)
	weights := directiveWeights(directives, groups)
	for i, d := range directives {
		if len(groups[i]) == 0 {
			return nil, fmt.Errorf("there are no slots for %s", d.Key())
		}
		for j, slot := range groups[i] {
			if err := checkSlot(slot); err != nil {
				return nil, fmt.Errorf("slot %d of %s: %w", j+1, d.Key(), err)
			}
			out = append(out, Server{
				Backend: d.Backend, Name: d.ServerName(j),
				Address: slot.Address, Port: slot.Port, Weight: weights[i], State: slot.State,
			})
		}
	}
	return out, nil
}

// checkSlot keeps anything but an address out of the configuration, since slots come from files and APIs.
func checkSlot(s Slot) error {
	ip, err := netip.ParseAddr(s.Address)
	if err != nil || ip.Zone() != "" {
		return fmt.Errorf("%q is not an IP address", s.Address)
	}
	if s.Port < 1 || s.Port > 65535 {
		return fmt.Errorf("%d is not a port", s.Port)
	}
	if s.State != SlotReady && s.State != SlotDrain && s.State != SlotSpare {
		return fmt.Errorf("%q is not a state", s.State)
	}
	return nil
}

// directiveWeights returns the weight of each directive's servers. The only directive of a
// backend shares no weight: its servers have HAProxy's default of 1.
func directiveWeights(directives []Directive, groups [][]Slot) []int {
	out := make([]int, len(directives))
	sharing := map[string][]int{} // indexes by backend, for backends with several directives
	for i, d := range directives {
		out[i] = min(d.Weight, 1)
		if d.Index > 0 {
			sharing[d.Backend] = nil
		}
	}
	for i, d := range directives {
		if indexes, ok := sharing[d.Backend]; ok {
			sharing[d.Backend] = append(indexes, i)
		}
	}
	for _, indexes := range sharing {
		shares := make([]share, len(indexes))
		for n, i := range indexes {
			var ready int
			for _, slot := range groups[i] {
				if slot.State == SlotReady {
					ready++
				}
			}
			shares[n] = share{directives[i].Weight, ready}
		}
		for n, weight := range serverWeights(shares) {
			out[indexes[n]] = weight
		}
	}
	return out
}

// appendAddress appends address and port in the form of a server line.
func (s Server) appendAddress(out []byte) []byte {
	if strings.Contains(s.Address, ":") {
		out = append(append(append(out, '['), s.Address...), ']')
	} else {
		out = append(out, s.Address...)
	}
	return strconv.AppendInt(append(out, ':'), int64(s.Port), 10)
}

// maxServerWeight is the greatest weight of a server in HAProxy.
const maxServerWeight = 256

// share is the part that one directive of a backend claims: a weight, for its number of ready endpoints.
type share struct {
	weight, ready int
}

// servers returns the number of servers that share the weight. Without a ready endpoint it is the number that
// one ready endpoint would give.
func (s share) servers() uint64 { return uint64(max(s.ready, 1)) }

// serverWeights returns the weight of each server of each share, so that the weights of all ready servers of a
// share add up to its part of the whole. A share of weight 0 gets 0, any other at least 1. A share without
// ready servers leaves its part to the others. HAProxy's weights are whole numbers up to 256. serverWeights
// takes the scale with the smallest error, and the smallest of equally good ones, so that proportions that can
// be exact are exact.
func serverWeights(shares []share) []int {
	if !slices.ContainsFunc(shares, share.counts) {
		shares = slices.Clone(shares)
		for i := range shares {
			shares[i].ready = 1
		}
	}
	// The share whose single ready server weighs most.
	var heaviest share
	for _, s := range shares {
		if s.counts() && uint64(s.weight)*heaviest.servers() > uint64(heaviest.weight)*s.servers() {
			heaviest = s
		}
	}
	if heaviest.weight == 0 {
		return make([]int, len(shares))
	}
	best := scaled(shares, heaviest, 1)
	least := worstError(shares, best)
	for scale := 2; scale <= maxServerWeight && least.num > 0; scale++ {
		weights := scaled(shares, heaviest, scale)
		if e := worstError(shares, weights); e.less(least) {
			best, least = weights, e
		}
	}
	return best
}

// counts reports whether the share takes part in the whole.
func (s share) counts() bool { return s.weight > 0 && s.ready > 0 }

// scaled returns the weights when a server of the heaviest share weighs scale.
func scaled(shares []share, heaviest share, scale int) []int {
	out := make([]int, len(shares))
	for i, s := range shares {
		if s.weight == 0 {
			continue
		}
		num := uint64(scale) * uint64(s.weight) * heaviest.servers()
		den := s.servers() * uint64(heaviest.weight)
		out[i] = int(min(max((2*num+den)/(2*den), 1), maxServerWeight))
	}
	return out
}

// worstError returns how far the worst share is from what it claims, as a part of the whole. All results for
// the same shares have the same unit.
func worstError(shares []share, weights []int) fraction {
	var claimed, given uint64
	for i, s := range shares {
		if s.ready > 0 {
			claimed += uint64(s.weight)
			given += uint64(s.ready) * uint64(weights[i])
		}
	}
	worst := fraction{0, max(given, 1)}
	for i, s := range shares {
		if s.ready > 0 {
			got, want := uint64(s.ready)*uint64(weights[i])*claimed, uint64(s.weight)*given
			worst.num = max(worst.num, max(got, want)-min(got, want))
		}
	}
	return worst
}

// fraction is compared exactly, so that a weight does not depend on how a processor rounds.
type fraction struct {
	num, den uint64
}

func (f fraction) less(o fraction) bool {
	fh, fl := bits.Mul64(f.num, o.den)
	oh, ol := bits.Mul64(o.num, f.den)
	return fh < oh || (fh == oh && fl < ol)
}

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

// balance is how a section says that HAProxy chooses servers. Fields that it does not set are empty.
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

// CountDescriptors counts what a bound configuration reserves. It keeps nothing of the lines, of which there may be
// 100,000: many instances may be pushed to at the same time.
func CountDescriptors(config []byte) Descriptors {
	var found Descriptors
	var defaults inheritance[checking]
	var section haproxycfg.Section
	servers := defaults.of(section) // what default-server says
	var list [][]byte               // the words of a line
	words := func(line haproxycfg.Line) [][]byte {
		list = AppendWords(list[:0], line)
		return list
	}
	for line := range haproxycfg.Lines(config) {
		next, begins := haproxycfg.BeginSection(line)
		switch {
		case begins:
			defaults.end(section, servers)
			section = next
			servers = defaults.of(section)
		case line.Is("bind"):
			found.Listeners += strings.Count(argument(line), ",") + 1
		case section.Keyword == "global" && line.Is("maxconn"):
			found.MaxConn = number(argument(line))
		case section.Keyword == "global" && line.Is("fd-hard-limit"):
			found.HardLimit = number(argument(line))
		case line.Is("default-server"):
			servers = servers.read(words(line))
		case section.HasServers() && line.Is("server"):
			found.Checks += servers.read(words(line)).count()
		case section.HasServers() && line.Is("server-template"):
			found.Checks += templated(slices.Concat(line.Texts(), make([]string, 3))[2]) * servers.read(words(line)).count()
		}
	}
	return found
}

// AppendWords appends the words of a line to a list, as HAProxy sees them. If the line has no quotes, escapes, variables
// or comments, they are parts of it, and nothing is allocated beside the list.
func AppendWords(list [][]byte, line haproxycfg.Line) [][]byte {
	if bytes.ContainsAny(line.Text, "\"'\\#$\r\n\x00") {
		for _, word := range line.Texts() {
			list = append(list, []byte(word))
		}
		return list
	}
	before := len(list)
	for at := 0; at < len(line.Text); at++ {
		from := at
		for at < len(line.Text) && !haproxycfg.IsBlank(line.Text[at]) {
			at++
		}
		if at > from {
			list = append(list, line.Text[from:at])
		}
	}
	if len(list) > before && list[before][0] == '[' {
		return list[:before] // a scope
	}
	return list
}

// templated returns how many servers a server-template makes: HAProxy takes a number, or the range of their numbers as LOW-HIGH.
func templated(word string) int {
	low, high, isRange := strings.Cut(word, "-")
	if !isRange {
		return number(word)
	}
	return max(0, number(high)-number(low)+1)
}

// number reads a number; other text is 0.
func number(word string) int {
	n, _ := strconv.Atoi(word)
	return n
}

// checking says which checks a server has, unless its line sets something else.
type checking struct{ health, agent bool }

func (c checking) read(words [][]byte) checking {
	for _, word := range words {
		switch string(word) {
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
