package sandbox

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
)

// Server is a server line of haproxy.cfg. Service is empty where the line is one
// of the templates' own; Address is what it leads to outside of a sandbox, and is
// empty where Service says it.
type Server struct {
	Backend, Name string
	Service       string // as namespace/name:port
	Address       string
}

// enclosed is a haproxy.cfg that reaches nothing, and that nobody else reaches.
type enclosed struct {
	config  string
	sockets map[int]string // the path of the socket for each port
	paths   []string       // of all sockets that clients connect to
}

// enclosure rewrites a bound haproxy.cfg.
type enclosure struct {
	dir      string
	address  func(backend, server, address string) string // of the server that stands in
	tracks   bool                                         // whether checks are needed, for servers follow those of others
	internal map[string]string                            // sockets between parts of HAProxy, by name
	out      enclosed

	section, name string
}

// enclose makes every bind line a socket in dir, and has every server line lead
// to the address of a server of ours.
func enclose(config, dir string, address func(backend, server, address string) string) enclosed {
	e := enclosure{dir: dir, address: address, internal: map[string]string{}, out: enclosed{sockets: map[int]string{}}}
	lines := strings.Split(config, "\n")
	for _, text := range lines {
		l := newLine(text)
		if name := l.word(1); l.word(0) == "bind" && isInternal(name) && e.internal[name] == "" {
			e.internal[name] = filepath.Join(dir, fmt.Sprint("i", len(e.internal)))
		}
		e.tracks = e.tracks || l.word(0) == "server" && l.has(3, "track")
	}
	for i, text := range lines {
		lines[i] = e.line(newLine(text))
	}
	e.out.config = strings.Join(lines, "\n")
	return e.out
}

// isInternal tells the address of a socket of the machine's from one of a network.
func isInternal(address string) bool {
	return strings.HasPrefix(address, "abns@") || strings.HasPrefix(address, "unix@") || strings.HasPrefix(address, "/")
}

// proxies are the sections with bind and server lines.
var proxies = map[string]bool{"frontend": true, "backend": true, "listen": true, "defaults": true}

// outside are the lines of the global section that concern the process and its
// machine.
var outside = map[string]bool{
	"chroot": true, "user": true, "group": true, "uid": true, "gid": true, "daemon": true, "pidfile": true,
	"master-worker": true, "cpu-map": true, "ulimit-n": true, "log": true, "unix-bind": true,
}

// line rewrites one line. None is added or taken away, so that what HAProxy says
// of a line can be told.
func (e *enclosure) line(l line) string {
	first := l.word(0)
	switch {
	case first == "":
		return l.text
	case haproxycfg.BeginsSection(first):
		e.section, e.name = first, l.word(1)
	case e.section == "global":
		if outside[first] || first == "stats" && l.word(1) == "socket" {
			return ""
		}
		return l.text
	case proxies[e.section]:
		return e.proxy(first, l)
	}
	return l.text
}

func (e *enclosure) proxy(first string, l line) string {
	switch first {
	case "bind":
		return e.bind(l)
	case "server":
		return e.server(l)
	case "default-server":
		return trusting(l.text)
	case "log":
		if l.word(1) != "global" {
			return ""
		}
	case "source":
		return ""
	case "http-request":
		return e.named(l)
	case "tcp-request":
		// A rule moves to where the address is known that the header of the PROXY protocol names.
		if l.word(1) != "connection" {
			return l.text
		}
		if strings.HasPrefix(l.word(2), "expect-") {
			return ""
		}
		return l.withWord(1, "session")
	}
	return l.text
}

// bind has the line listen on a socket. Clients say in a PROXY header who they are.
func (e *enclosure) bind(l line) string {
	address := l.word(1)
	indent := l.text[:l.words[0].Start]
	if path := e.internal[address]; path != "" {
		return fmt.Sprintf("%sbind unix@%s %s", indent, path, l.from(2))
	}
	if strings.HasPrefix(address, "quic") {
		return ""
	}
	path := filepath.Join(e.dir, fmt.Sprint("b", len(e.out.paths)))
	e.out.paths = append(e.out.paths, path)
	for one := range strings.SplitSeq(address, ",") {
		port, err := strconv.Atoi(one[strings.LastIndexByte(one, ':')+1:])
		if _, known := e.out.sockets[port]; err == nil && !known {
			e.out.sockets[port] = path
		}
	}
	proxied := "accept-proxy "
	if l.has(2, "accept-proxy") {
		proxied = ""
	}
	return fmt.Sprintf("%sbind unix@%s %s%s", indent, path, proxied, l.from(2))
}

// named has an action lead to the socket that it names.
func (e *enclosure) named(l line) string {
	for i := range l.words {
		if path := e.internal[l.word(i)]; path != "" {
			return l.withWord(i, "unix@"+path)
		}
	}
	return l.text
}

// server has the line lead to a server of ours. It is not checked, so that it is
// up from the beginning, and always.
func (e *enclosure) server(l line) string {
	address := l.word(2)
	l.text = l.text[:l.words[len(l.words)-1].End] // without a comment, for there is more to come
	if path := e.internal[address]; path != "" {
		return l.withWord(2, "unix@"+path)
	}
	text := trusting(l.withWord(2, e.address(e.name, l.word(1), address)))
	if e.tracks {
		return text
	}
	return text + " no-check no-agent-check"
}

// trusting has a server be believed whatever certificate it shows: those of ours
// are of no known authority.
func trusting(text string) string {
	l := newLine(text)
	for i := len(l.words) - 2; i >= 0; i-- {
		if l.word(i) == "verify" && l.word(i+1) == "required" {
			l.text = l.withWord(i+1, "none")
		}
	}
	return l.text
}

// line is a line of haproxy.cfg.
type line struct {
	text  string
	words []haproxycfg.Word
}

func newLine(text string) line {
	return line{text, haproxycfg.Line{Text: []byte(text)}.Words()}
}

// word returns a word as HAProxy sees it, or "".
func (l line) word(i int) string {
	if i >= len(l.words) {
		return ""
	}
	return l.words[i].Text
}

// from returns the line from a word on, without what stands before it.
func (l line) from(i int) string {
	if i >= len(l.words) {
		return ""
	}
	return l.text[l.words[i].Start:]
}

// withWord returns the text with another word in the place of one.
func (l line) withWord(i int, word string) string {
	return l.text[:l.words[i].Start] + word + l.text[l.words[i].End:]
}

// has reports whether one of the words from i on is word.
func (l line) has(i int, word string) bool {
	for ; i < len(l.words); i++ {
		if l.word(i) == word {
			return true
		}
	}
	return false
}
