package push

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// maxLine is the length from which on the API silently drops a line and everything after
// it.
const maxLine = 65536

// checkText refuses a configuration that the API would accept and damage.
func checkText(config []byte) error {
	for line := range haproxycfg.Lines(config) {
		if len(line.Text) >= maxLine {
			return fmt.Errorf("%w: line %d has %d bytes, of which the Dataplane API would keep none", ErrRefused, line.Number, len(line.Text))
		}
	}
	return nil
}

// text is what a haproxy.cfg says about itself, in the wording of this project or of the
// API, which reorders and reindents it.
type text struct {
	version  int64 // of the "# _version=N" line, -1 if there is none
	node     string
	end      string // of the end marker
	sections int
	servers  map[serverKey]serverLine
}

type serverKey struct{ backend, name string }

type serverLine struct {
	address  netip.AddrPort
	weight   int // -1 if the line has none
	disabled bool
}

// same reports whether two lines put a server into the same state. If one of them has no
// weight, weights are not compared.
func (l serverLine) same(o serverLine) bool {
	return l.address == o.address && l.disabled == o.disabled && (l.weight == o.weight || l.weight < 0 || o.weight < 0)
}

const (
	versionMark = "# _version="
	endMark     = "# hapsnap end "
)

func readText(config []byte) text {
	t := text{version: -1, servers: make(map[serverKey]serverLine)}
	for section := range haproxycfg.Sections(config) {
		if section.Keyword != "" {
			t.sections++
		}
		for _, line := range section.Lines {
			switch word := line.First(); {
			case word == "":
				t.readComment(strings.TrimSpace(string(line.Text)))
			case section.Keyword == "global" && word == "node":
				if words := line.Texts(); len(words) == 2 {
					t.node = words[1]
				}
			case word == "server":
				if words := line.Texts(); len(words) >= 3 {
					if l, ok := readServer(words[2:]); ok {
						t.servers[serverKey{section.Name, words[1]}] = l
					}
				}
			}
		}
	}
	return t
}

// readComment reads the lines that are comments to HAProxy.
func (t *text) readComment(line string) {
	if number, ok := strings.CutPrefix(line, versionMark); ok {
		if v, err := strconv.ParseInt(number, 10, 64); err == nil {
			t.version = v
		}
	}
	if node, ok := strings.CutPrefix(line, endMark); ok {
		t.end = node
	}
}

// readServer reads a server line from its address on. It returns false if that is not an IP
// address and a port, since such a server is not ours.
func readServer(words []string) (serverLine, bool) {
	address, err := netip.ParseAddrPort(words[0])
	l := serverLine{address: address, weight: -1}
	for i, word := range words {
		switch {
		case word == "disabled":
			l.disabled = true
		case word == "weight" && i+1 < len(words):
			if n, err := strconv.Atoi(words[i+1]); err == nil {
				l.weight = n
			}
		}
	}
	return l, err == nil
}

// lineOf returns the line of a server in a bound configuration. It has no weight, since a
// backend with one directive has none.
func lineOf(s bind.Server) serverLine {
	ip, _ := netip.ParseAddr(s.Address)
	return serverLine{
		address: netip.AddrPortFrom(ip, uint16(s.Port)), weight: s.Weight,
		disabled: s.State != bind.SlotReady,
	}
}

// holds reports whether the text is all of what was bound, with its servers.
func (t text) holds(b bind.Bound) bool {
	return t.holdsNode(b) && t.holdsServers(b.Servers)
}

func (t text) holdsNode(b bind.Bound) bool {
	return bind.SameNode(t.node, b.Node) && bind.SameNode(t.end, b.Node)
}

func (t text) holdsServers(servers []bind.Server) bool {
	for _, s := range servers {
		l, ok := t.servers[serverKey{s.Backend, s.Name}]
		if !ok || !l.same(lineOf(s)) {
			return false
		}
	}
	return true
}

// withoutHeader returns a text of the API without the lines that it puts first, which name
// another version than a post of it will get, and without the term and the mark of the
// pusher that wrote it.
func withoutHeader(config []byte) []byte {
	for bytes.HasPrefix(config, []byte("# _")) || bytes.HasPrefix(config, []byte(termMark)) || bytes.HasPrefix(config, []byte(pusherMark)) {
		_, config, _ = bytes.Cut(config, []byte("\n"))
	}
	return config
}

// sameAs reports whether two texts name the same snapshot and put the servers into the same
// states.
func (t text) sameAs(o text) bool {
	return t.node == o.node && t.end == o.end && maps.EqualFunc(t.servers, o.servers, serverLine.same)
}

// Unserved reports whether a HAProxy that starts from the file on disk would serve nothing
// in some backend that the wanted servers serve: no server that is ready on disk has the
// address of an endpoint that is ready now. Both lists hold the same servers in the same
// order, those of a backend together. Disk is nil if nobody knows what the file says, which
// counts as the worst case.
//
// Servers of weight 0 take no traffic. A server on disk with the address of an endpoint
// that is draining does not count, since the endpoint is about to go.
func Unserved(disk, want []bind.Server) bool {
	if len(disk) != len(want) {
		return len(want) > 0
	}
	for at := 0; at < len(want); {
		end := at + 1
		for end < len(want) && want[end].Backend == want[at].Backend {
			end++
		}
		if unserved(disk[at:end], want[at:end]) {
			return true
		}
		at = end
	}
	return false
}

// unserved is [Unserved] for one backend.
func unserved(disk, want []bind.Server) bool {
	needed := false
	for n, s := range want {
		if !takesTraffic(s) {
			continue
		}
		if disk[n] == s {
			return false
		}
		needed = true
	}
	if !needed {
		return false
	}
	for _, d := range disk {
		for _, s := range want {
			if takesTraffic(s) && takesTraffic(d) && d.Address == s.Address && d.Port == s.Port {
				return false
			}
		}
	}
	return true
}

func takesTraffic(s bind.Server) bool {
	return s.State == bind.SlotReady && s.Weight != 0
}

// written returns the servers as the file on disk has them, in the order of the wanted
// ones. A server that is not in the file is in maintenance there.
func (t text) written(want []bind.Server) []bind.Server {
	out := make([]bind.Server, len(want))
	for n, s := range want {
		l, ok := t.servers[serverKey{s.Backend, s.Name}]
		switch {
		case !ok:
			s.State = bind.SlotSpare
		case !l.same(lineOf(s)):
			s.Address, s.Port, s.State = l.address.Addr().String(), int(l.address.Port()), bind.SlotReady
			if l.weight >= 0 {
				s.Weight = l.weight
			}
			if l.disabled {
				s.State = bind.SlotSpare
			}
		}
		out[n] = s
	}
	return out
}

// outgrown says why a worker that runs the snapshot in another shape has to be replaced,
// judged by the text on its disk. It is "" if that is not another shape of the snapshot. If
// several backends have other slots it names the first.
func outgrown(disk text, info dataplane.RuntimeInfo, want bind.Bound) string {
	running, shape, err := bind.ParseNode(info.Node)
	wanted, wantedShape, wantErr := bind.ParseNode(want.Node)
	if err != nil || wantErr != nil || running.Short != wanted.Short || shape == wantedShape || disk.node != info.Node {
		return ""
	}
	has, wants := map[string]int{}, map[string]int{}
	for key := range disk.servers {
		has[key.backend]++
	}
	var backends []string
	for _, s := range want.Servers {
		if wants[s.Backend]++; wants[s.Backend] == 1 {
			backends = append(backends, s.Backend)
		}
	}
	more := 0
	for _, b := range backends {
		if wants[b] > has[b] {
			more++
		}
	}
	i := slices.IndexFunc(backends, func(b string) bool { return wants[b] > has[b] })
	if i < 0 {
		return "lines that take a reload changed, such as certificates or weights"
	}
	said := fmt.Sprintf("backend %s needs %d server slots and has %d", backends[i], wants[backends[i]], has[backends[i]])
	switch {
	case more == 2:
		said += ", and so does 1 other"
	case more > 2:
		said += fmt.Sprintf(", and so do %d others", more-1)
	}
	return said
}
