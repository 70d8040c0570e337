package push

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
	"github.com/hapsnap/hapsnap/internal/printable"
	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// maxLine is the shortest length of a line that the API silently drops, with everything
// after it.
const maxLine = 65536

// checkText refuses a configuration that the API would accept and then damage.
func checkText(config []byte) error {
	for line := range haproxycfg.Lines(config) {
		if len(line.Text) >= maxLine {
			return fmt.Errorf("%w: line %d has %d bytes, of which the Dataplane API would keep none", ErrRefused, line.Number, len(line.Text))
		}
	}
	return nil
}

// text is what a haproxy.cfg says about itself. It reads both the text of this project and
// that of the API, which reorders and indents lines differently.
type text struct {
	version  int64 // of the "# _version=N" line, -1 if there is none
	node     string
	end      string // of the end marker
	sections int
	config   []byte                          // without the comments at its beginning
	read     func() map[serverKey]serverLine // see servers
}

// servers returns the lines of servers. They are read when they are asked for first: there may be 100,000 of them, and most
// looks at an instance need none.
func (t text) servers() map[serverKey]serverLine {
	if t.read == nil {
		return nil
	}
	return t.read()
}

type serverKey struct{ backend, name string }

type serverLine struct {
	address  netip.AddrPort
	weight   int // -1 if the line has none
	disabled bool
}

// same reports whether two lines put a server into the same state. If one line has no
// weight, weights are not compared.
func (l serverLine) same(o serverLine) bool {
	return l.address == o.address && l.disabled == o.disabled && (l.weight == o.weight || l.weight < 0 || o.weight < 0)
}

const (
	versionMark = "# _version="
	endMark     = "# hapsnap end "
)

func readText(config []byte) text { return readRaw(dataplane.Split(config)) }

// readRaw is readText of what the API sent.
func readRaw(raw dataplane.Text) text {
	config := raw.Body
	t := text{version: -1, config: config, read: sync.OnceValue(func() map[serverKey]serverLine { return serversOf(config) })}
	for line := range haproxycfg.Lines(raw.Head) {
		t.readComment(bytes.TrimSpace(line.Text))
	}
	global := false
	for line := range haproxycfg.Lines(config) {
		if section, begins := haproxycfg.BeginSection(line); begins {
			t.sections++
			global = section.Keyword == "global"
			continue
		}
		if trimmed := bytes.TrimSpace(line.Text); len(trimmed) > 0 && trimmed[0] == '#' {
			t.readComment(trimmed)
		} else if global && line.Is("node") {
			if words := line.Texts(); len(words) == 2 {
				t.node = words[1]
			}
		}
	}
	return t
}

// serversOf returns the lines of the servers that are ours.
func serversOf(config []byte) map[serverKey]serverLine {
	out := map[serverKey]serverLine{}
	for name, line := range serverLines(config) {
		out[serverKey{name.backend, string(name.server)}] = line
	}
	return out
}

// nameInLine is a [serverKey] that is valid until the next line is read.
type nameInLine struct {
	backend string
	server  []byte
}

// serverLines yields the lines of the servers that are ours. If two lines name the same server, the last one counts.
func serverLines(config []byte) iter.Seq2[nameInLine, serverLine] {
	return func(yield func(nameInLine, serverLine) bool) {
		backend := ""
		var words [][]byte
		for line := range haproxycfg.Lines(config) {
			if section, begins := haproxycfg.BeginSection(line); begins {
				backend = section.Name
				continue
			}
			if !line.Is("server") {
				continue
			}
			if words = bind.AppendWords(words[:0], line); len(words) >= 3 {
				if l, ok := readServer(words[2:]); ok && !yield(nameInLine{backend, words[1]}, l) {
					return
				}
			}
		}
	}
}

// readComment reads a line that is a comment to HAProxy. There is one for each directive, so it copies none.
func (t *text) readComment(line []byte) {
	if number, ok := bytes.CutPrefix(line, []byte(versionMark)); ok {
		if v, err := strconv.ParseInt(string(number), 10, 64); err == nil {
			t.version = v
		}
	}
	if node, ok := bytes.CutPrefix(line, []byte(endMark)); ok {
		t.end = string(node)
	}
}

// readServer reads a server line from its address on. It returns false if the address is
// not an IP address with a port, since such a server is not ours.
func readServer(words [][]byte) (serverLine, bool) {
	address, err := netip.ParseAddrPort(string(words[0]))
	l := serverLine{address: address, weight: -1}
	for i, word := range words {
		switch {
		case string(word) == "disabled":
			l.disabled = true
		case string(word) == "weight" && i+1 < len(words):
			if n, err := strconv.Atoi(string(words[i+1])); err == nil {
				l.weight = n
			}
		}
	}
	return l, err == nil
}

// lineOf returns the line of a server in a bound configuration. It has a weight even if the
// line in the file has none.
func lineOf(s bind.Server) serverLine {
	ip, _ := netip.ParseAddr(s.Address)
	return serverLine{
		address: netip.AddrPortFrom(ip, uint16(s.Port)), weight: s.Weight,
		disabled: s.State != bind.SlotReady,
	}
}

// holds reports whether the text is complete and is what was bound, with its servers.
func (t text) holds(b bind.Bound) bool {
	return t.holdsNode(b) && t.holdsServers(b.Servers)
}

func (t text) holdsNode(b bind.Bound) bool {
	return bind.SameNode(t.node, b.Node) && bind.SameNode(t.end, b.Node)
}

// holdsServers reports whether the text has the servers in their states. The servers of a backend follow each other.
// It compares line by line and keeps no line: many instances may be looked at at the same time.
func (t text) holdsServers(servers []bind.Server) bool {
	of := sync.OnceValue(func() map[string]span {
		of := map[string]span{}
		for _, at := range spans(servers) {
			of[servers[at.from].Backend] = at
		}
		return of
	})
	held, next := make([]bool, len(servers)), 0 // next is where the next line probably belongs
	for name, line := range serverLines(t.config) {
		if next >= len(servers) || servers[next].Backend != name.backend || servers[next].Name != string(name.server) {
			at, known := of()[name.backend]
			if !known {
				continue
			}
			n := slices.IndexFunc(at.of(servers), func(s bind.Server) bool { return s.Name == string(name.server) })
			if n < 0 {
				continue
			}
			next = at.from + n
		}
		held[next] = line.same(lineOf(servers[next]))
		next++
	}
	return !slices.Contains(held, false)
}

// withoutHeader returns a text of the API without its header. The header has the lines of
// the API, which name another version than a post of the text will get, and the term and
// the mark of the pusher that wrote it.
func withoutHeader(config dataplane.Text) dataplane.Text {
	head := config.Head
	for bytes.HasPrefix(head, []byte("# _")) || bytes.HasPrefix(head, []byte(termMark)) || bytes.HasPrefix(head, []byte(pusherMark)) {
		_, head, _ = bytes.Cut(head, []byte("\n"))
	}
	config.Head = head
	return config
}

// sameAs reports whether two texts name the same snapshot and put the servers into the same
// states.
func (t text) sameAs(o text) bool {
	return t.node == o.node && t.end == o.end && maps.EqualFunc(t.servers(), o.servers(), serverLine.same)
}

// Unserved reports whether some backend would serve nothing if HAProxy started from the
// file on disk, although the wanted servers serve it. That is so if no server that is ready
// on disk has the address of an endpoint that is ready now. Both lists hold the same
// servers in the same order, and those of a backend follow each other. disk is nil if the
// content of the file is not known, which counts as the worst case.
//
// Servers of weight 0 take no traffic. A server on disk with the address of a draining
// endpoint does not count, since that endpoint is about to go.
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
// ones. A server that is missing in the file counts as in maintenance.
func (t text) written(want []bind.Server) []bind.Server {
	out := make([]bind.Server, len(want))
	for n, s := range want {
		l, ok := t.servers()[serverKey{s.Backend, s.Name}]
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
// judged by the text on its disk. It returns "" if the text is not the same snapshot in
// another shape. If the slots of several backends differ, it names the first one.
func outgrown(disk text, info dataplane.RuntimeInfo, want bind.Bound) string {
	running, shape, err := bind.ParseNode(info.Node)
	wanted, wantedShape, wantErr := bind.ParseNode(want.Node)
	if err != nil || wantErr != nil || running.Short != wanted.Short || shape == wantedShape || disk.node != info.Node {
		return ""
	}
	has, wants := map[string]int{}, map[string]int{}
	for key := range disk.servers() {
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

// ErrInstance is the error of an instance that cannot take a snapshot for a reason of its
// own. HAProxy does not find a file that was uploaded, lacks a permission, or lacks
// descriptors, memory or disk. Another instance may be able to take the snapshot, so the
// error says nothing about it. [ErrDirectory] is another such error.
var ErrInstance = errors.New("the instance is at fault")

// instanceError is an [ErrInstance] with a hint for people.
type instanceError struct {
	cause error
	hint  string
}

func (e *instanceError) Error() string {
	return ErrInstance.Error() + ": " + e.cause.Error() + "; " + e.hint
}
func (e *instanceError) Is(target error) bool { return target == ErrInstance }

// faults are messages of HAProxy and the API that show a fault of the instance, each with a
// hint for people. One such message is enough, since a missing file also causes errors in
// other lines.
var faults = []struct {
	said *regexp.Regexp
	hint string
}{
	{
		regexp.MustCompile(`(?i)failed to open pattern file|unable to stat SSL certificate|couldn't open the \S+ '|'\S+' : unable to load /|error opening file|cannot open (file )?['/]|no such file or directory`),
		"HAProxy does not find a file there: compare directories in the Fleet with the folders of the Dataplane API, and see that HAProxy has the same",
	},
	{
		regexp.MustCompile(`(?i)cannot raise fd limit|not enough fds?\b|too many open files|fd limit .* too low|limit is \d+\. please raise 'ulimit-n'`),
		"raise the limit of open files of HAProxy there, such as LimitNOFILE",
	},
	{
		regexp.MustCompile(`(?i)no space left on device|disk quota exceeded|read-only file system`),
		"make room on its disk",
	},
	{
		regexp.MustCompile(`(?i)cannot allocate memory|out of memory|signal: killed|exit status 137`),
		"give it more memory",
	},
	{
		regexp.MustCompile(`(?i)fork/exec|executable file not found`),
		"the Dataplane API cannot run haproxy there: see haproxy_bin in its configuration",
	},
	{
		regexp.MustCompile(`(?i)cannot chroot|cannot find (user|group) id|cannot set [ug]id|unable to set [ug]id`),
		"see that user, group and chroot of the configuration exist there",
	},
	{
		regexp.MustCompile(`(?i)permission denied|operation not permitted`),
		"HAProxy may not do it there: see its user, the owners of files, and its capabilities",
	},
}

// bindFault is a port that could not be opened, with the section that opens it.
var (
	bindFault   = regexp.MustCompile(`(?i)cannot (bind|listen to|create receiving) .*socket|address already in use|cannot assign requested address`)
	bindSection = regexp.MustCompile(`(?i)(?:binding|starting) .*?(?:frontend|listen|proxy|backend) (\S+?):`)
)

// instanceFault decides from the messages about a refused configuration whether the
// instance is at fault, and returns a hint for people. A port that cannot be opened is the
// fault of the instance if the previous configuration opened it with the same lines.
// Otherwise it is the fault of the new configuration.
func instanceFault(said string, want, before []byte) (hint string, ok bool) {
	lines := findings(said)
	if len(lines) == 0 {
		lines = []string{said}
	}
	for _, line := range lines {
		if bindFault.MatchString(line) {
			if section := bindSection.FindStringSubmatch(line); section != nil && sameBinds(section[1], want, before) {
				return "HAProxy had this port open before: another process may have it there, or HAProxy may not open it any more", true
			}
			continue // even if a permission is the reason
		}
		for _, f := range faults {
			if f.said.MatchString(line) {
				return f.hint, true
			}
		}
	}
	return "", false
}

// sameBinds reports whether the previous configuration had all binds of a section.
func sameBinds(section string, want, before []byte) bool {
	had := map[string]bool{}
	for _, line := range binds(section, before) {
		had[line] = true
	}
	lines := binds(section, want)
	for _, line := range lines {
		if !had[line] {
			return false
		}
	}
	return len(lines) > 0
}

// binds returns the bind lines of a section, with normalised blanks and quotes and without
// comments.
func binds(section string, config []byte) []string {
	var out []string
	for s := range haproxycfg.Sections(config) {
		for _, line := range s.Lines {
			if s.Keyword != "" && s.Name == section && line.Is("bind") {
				out = append(out, strings.Join(line.Texts(), " "))
			}
		}
	}
	return out
}

// The lengths in bytes to which messages are cut: a message without a line that gives the
// reason, and the lines of HAProxy that give it.
const (
	maxGist = 400
	maxSaid = 2000
)

// alert matches a line in which HAProxy says why it did not start. finding matches a line
// that the API quotes when HAProxy refused a configuration.
var (
	alert   = regexp.MustCompile(`\[ALERT\]\s*(?:\(\d+\))?\s*:\s*(?:config : )?(.*)`)
	finding = regexp.MustCompile(`msg="((?:[^"\\]|\\.)*)"`)
	// noise matches alerts that follow from another error, alerts of HAProxy's processes
	// that end, and warnings.
	noise = regexp.MustCompile(`(?i)error\(s\) found in|fatal errors found in|failed to start their listeners|cannot transfer the fd|` +
		`sockpair|exit-on-failure|current worker .*exited|former worker .*exited|all workers exited|process exited with code|loading failure|failed to load worker|don't mix both usage`)
)

// Gist returns the part of an error that a person needs, on one line. HAProxy writes many
// lines when it does not start, of which some say why.
func Gist(err error) string {
	text := err.Error()
	if known, ok := err.(interface{ Gist() string }); ok { // an error that was read from an event log
		return known.Gist()
	}
	said, prefix, hint := findings(text), ErrRefused.Error(), ""
	if fault, ok := errors.AsType[*instanceError](err); ok {
		said, prefix, hint = findings(fault.cause.Error()), ErrInstance.Error(), "; "+fault.hint
	}
	if len(said) > 0 {
		return printable.Shortened(prefix+": "+strings.Join(said, "; "), maxSaid) + hint
	}
	if hint == "" && (alert.MatchString(text) || finding.MatchString(text)) {
		return prefix + ": HAProxy did not start with it, and did not say why"
	}
	return printable.Shortened(strings.Join(strings.Fields(text), " "), maxGist) // with the hint
}

// findings returns the lines of HAProxy's output that say why it did not start.
func findings(text string) []string {
	var said []string
	for _, form := range []*regexp.Regexp{alert, finding} {
		for _, match := range form.FindAllStringSubmatch(text, -1) {
			if line := strings.TrimSpace(match[1]); line != "" && !noise.MatchString(line) {
				said = append(said, strings.ReplaceAll(line, `\"`, `"`))
			}
		}
	}
	return said
}
