// Package request follows a request through the files of a snapshot: which listener takes it, which lines of
// maps match, which rule decides, and which backend gets it.
//
// It reads haproxy.cfg as HAProxy does, rule by rule, and knows nothing about Ingresses. So it explains what
// runs, whatever templates and objects made it. It evaluates the part of HAProxy's language with which the
// shipped templates decide about requests. It reports a rule that it cannot evaluate, and never guesses. For a
// certain answer, compiler/sandbox asks a real HAProxy.
//
// It does not decide what depends on more than the request and the snapshot: counters of clients, passwords,
// authentication services, and client certificates.
package request

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
)

// Request is the request to follow.
type Request struct {
	TLS     bool
	Port    int // on which HAProxy listens
	Method  string
	Host    string
	Target  string              // path and query
	Headers map[string][]string // by name, without Host
	Client  netip.Addr
}

// clientAddress is the client's address if the caller names none: of TEST-NET-2 (RFC 5737).
var clientAddress = netip.MustParseAddr("198.51.100.1")

const urlHint = "name it as in http://shop.example.com/cart"

// Parse reads a request as people write it. Port is zero if the URL names none. Headers are NAME=VALUE. The
// error is a usage error.
func Parse(method, text string, headers []string, client string) (Request, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return Request{}, process.WithHint(process.Usage("%q is no URL of http or https", text), urlHint)
	}
	r := Request{TLS: u.Scheme == "https", Method: strings.ToUpper(method), Host: u.Host, Headers: map[string][]string{}, Client: clientAddress}
	if r.Method == "" {
		r.Method = "GET"
	}
	if strings.ContainsFunc(r.Method, func(c rune) bool { return c < 'A' || c > 'Z' }) {
		return Request{}, process.WithHint(process.Usage("%q is no method", method), "put the method before the URL: explain request POST http://shop.example.com/")
	}
	_, rest, _ := strings.Cut(text, "://")
	r.Target = "/"
	if i := strings.IndexAny(rest, "/?"); i >= 0 { // as it was typed, since its encoding matters
		r.Target, _, _ = strings.Cut(rest[i:], "#")
		if r.Target[0] == '?' {
			r.Target = "/" + r.Target
		}
	}
	if strings.ContainsFunc(r.Target, func(c rune) bool { return c <= ' ' || c >= 0x7f }) {
		return Request{}, process.WithHint(process.Usage("the path of %q holds a character that no request has", text), "encode it: a blank is %20")
	}
	if port := u.Port(); port != "" {
		if r.Port, err = strconv.Atoi(port); err != nil || r.Port > 65535 {
			return Request{}, process.Usage("%s is no port", port)
		}
	}
	for _, h := range headers {
		name, v, ok := strings.Cut(h, "=")
		if !ok || name == "" || strings.ContainsAny(h, "\r\n") || strings.ContainsAny(name, " :") {
			return Request{}, process.WithHint(process.Usage("--header %q is no header", h), "write it as NAME=VALUE, such as X-Canary=always")
		}
		if strings.EqualFold(name, "host") {
			r.Host = v
			continue
		}
		r.Headers[name] = append(r.Headers[name], v)
	}
	if client != "" {
		if r.Client, err = netip.ParseAddr(client); err != nil {
			return Request{}, process.WithHint(process.Usage("--client %q is no IP address", client), "such as 203.0.113.7")
		}
	}
	return r, nil
}

// String returns the request line, with the URL.
func (r Request) String() string {
	scheme := "http"
	if r.TLS {
		scheme = "https"
	}
	return fmt.Sprintf("%s %s://%s%s", r.Method, scheme, r.Host, r.Target)
}

// ServerName returns the host that a client names over TLS, or "" for an address.
func (r Request) ServerName() string {
	if !r.TLS {
		return ""
	}
	name := r.Host
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, ']') {
		name = name[:i]
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if _, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil {
		return ""
	}
	return name
}

// Path returns the path. Requests such as OPTIONS * have none.
func (r Request) Path() (string, bool) {
	path, _, _ := strings.Cut(r.Target, "?")
	return path, strings.HasPrefix(path, "/")
}

// Line is a line of a file of the snapshot.
type Line struct {
	File string `json:"file"`
	Line int    `json:"line"`
	Text string `json:"text"`
}

// Answer says what happens to a request.
type Answer struct {
	Listener    Line         `json:"listener"`              // the line of haproxy.cfg by which it came in
	Certificate *Certificate `json:"certificate,omitempty"` // that the client sees, over TLS
	// Path is the path in the form in which it is compared, if that differs.
	Path  string `json:"path,omitempty"`
	Lines []Line `json:"lines"` // of maps, in the order in which they were found
	// Rule is the rule that decided: it chose the backend, or HAProxy answers because of it, with Status.
	Rule    *Line  `json:"rule,omitempty"`
	Backend string `json:"backend,omitempty"`
	// Among are the backends among which HAProxy draws lots for the request.
	Among    []string `json:"among,omitempty"`
	Status   int      `json:"status,omitempty"`
	Location string   `json:"location,omitempty"`
	// PassedOn means that the connection is passed on as it is: the backend ends TLS.
	PassedOn bool `json:"passedOn,omitempty"`
	// Closed means that the connection is closed without an answer.
	Closed  bool   `json:"closed,omitempty"`
	Options []Line `json:"options"` // what the backend does to the request, and to answers
	// Unsure are rules that may answer before the backend does. Whether they do depends on facts that are not
	// known here.
	Unsure []Line `json:"unsure,omitempty"`
	// Lost are lines of maps that match too, but are less specific.
	Lost []Line `json:"lost,omitempty"`
}

// Who returns a short text about who answers. services are the Services behind the backend.
func (a Answer) Who(services []string) string {
	switch {
	case a.Closed && a.Backend != "":
		return fmt.Sprintf("nobody: HAProxy closes the connection, for backend %s has no server", a.Backend)
	case a.Closed:
		return "nobody: HAProxy closes the connection"
	case len(a.Among) > 0:
		return "one of the backends " + strings.Join(a.Among, ", ")
	case a.Backend == "" && a.Status == 0:
		return "one of several backends, see what is not certain"
	case a.Status != 0 && a.Location != "":
		return fmt.Sprintf("HAProxy itself: %d to %s", a.Status, a.Location)
	case a.Status != 0 && (a.Backend == "" || a.Status != 503):
		return fmt.Sprintf("HAProxy itself: %d", a.Status)
	case a.Status != 0 && len(services) == 0:
		return fmt.Sprintf("HAProxy itself: %d, for no Service is behind backend %s: its routes are closed, or their Service does not exist", a.Status, a.Backend)
	case a.Status != 0:
		return fmt.Sprintf("HAProxy itself: %d, for backend %s has no server", a.Status, a.Backend)
	case len(services) == 0:
		return "backend " + a.Backend
	}
	return "backend " + a.Backend + ", Service " + strings.Join(services, " and ")
}

// Certificate is the certificate that a client sees.
type Certificate struct {
	File    string `json:"file"`
	Default bool   `json:"default,omitempty"` // no line names the host
	Line    Line   `json:"line"`
}

// ErrNoListener is returned for a port on which no frontend listens.
var ErrNoListener = errors.New("nothing listens on port")

// ErrCircle is returned for a connection that frontends hand to each other without end.
var ErrCircle = errors.New("frontends hand the connection on to each other in a circle")

// mostHops is how often a connection may be handed on within HAProxy.
const mostHops = 16

// Led returns what happens to a request, as [Reader.Led] does.
func Led(files []snapshots.File, r Request, usable func(backend string) int) (Answer, error) {
	return Read(files).Led(r, usable)
}

// Reader has read a snapshot, for any number of requests at the same time.
type Reader struct {
	files    []snapshots.File
	sections []haproxycfg.Section

	mu   sync.Mutex
	maps map[string][]entry // the maps that were read
}

// Read reads a snapshot for many requests. Its files must not change afterwards.
func Read(files []snapshots.File) *Reader {
	return &Reader{files: files, sections: slices.Collect(haproxycfg.Sections(snapshots.Snapshot{Files: files}.Config())), maps: map[string][]entry{}}
}

// entries returns the entries of a file of the snapshot, or nil if there is no such file.
func (from *Reader) entries(path string) []entry {
	from.mu.Lock()
	defer from.mu.Unlock()
	all, read := from.maps[path]
	if !read {
		all = entries(from.files, path)
		from.maps[path] = all
	}
	return all
}

// Led returns what happens to a request. Usable is how many servers of each backend can take requests. Nil
// means one of each.
func (from *Reader) Led(r Request, usable func(backend string) int) (Answer, error) {
	out := Answer{Lines: []Line{}, Options: []Line{}}
	if usable == nil {
		usable = func(string) int { return 1 }
	}
	w := walk{
		Reader: from, request: r, usable: usable, answer: &out, source: cmp.Or(r.Client, clientAddress),
		variables: map[string]value{}, unsureHeaders: map[string]bool{}, headers: map[string][]string{"host": {r.Host}},
	}
	w.path = textOrNone(r.Path())
	if at := strings.IndexByte(r.Target, '?'); at >= 0 {
		w.query = r.Target[at:]
	}
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		w.headers[strings.ToLower(name)] = append(w.headers[strings.ToLower(name)], r.Headers[name]...)
	}
	frontend, bind, ok := w.frontend(func(address string) bool { return portOf(address) == r.Port })
	if !ok {
		return Answer{}, fmt.Errorf("%w %d", ErrNoListener, r.Port)
	}
	out.Listener = lineOf(bind)
	hops := 0
	for w.bind = bind.Texts(); isTCP(frontend); w.bind = bind.Texts() {
		if hops++; hops > mostHops {
			return Answer{}, ErrCircle
		}
		if slices.Contains(w.bind, "ssl") {
			out.Certificate = w.certificate(bind)
		}
		var handedOn bool
		if frontend, bind, handedOn = w.connection(frontend); !handedOn {
			return out, nil
		}
	}
	if r.TLS {
		out.Certificate = w.certificate(bind)
	}
	w.serve(frontend)
	if p := w.variables["txn.p"]; p.state == known {
		if asked, _ := r.Path(); p.text != asked {
			out.Path = p.text
		}
		out.Lost = w.lost()
	}
	return out, nil
}

// Port returns the port of the listener that a URL without a port means: the first one with, or without, TLS.
// The error is a usage error, and lists the existing ports.
func Port(files []snapshots.File, secure bool) (int, error) { return Read(files).Port(secure) }

// Port returns what [Port] does.
func (from *Reader) Port(secure bool) (int, error) {
	w := walk{Reader: from}
	scheme, usual := "http", 80
	if secure {
		scheme, usual = "https", 443
	}
	var ports []int
	passesUsual := false // as it is, also for TLS
	for _, s := range w.sections {
		if s.Keyword != "frontend" || s.Name == "status" {
			continue
		}
		for _, l := range s.Lines {
			words := l.Texts()
			if len(words) < 2 || words[0] != "bind" || portOf(words[1]) == 0 {
				continue
			}
			port, ends := portOf(words[1]), slices.Contains(words, "ssl")
			if !isTCP(s) && ends == secure || isTCP(s) && secure && w.endsTLS(s, map[string]bool{}) {
				return port, nil
			}
			ports = append(ports, port)
			passesUsual = passesUsual || port == usual && isTCP(s) && !ends
		}
	}
	if passesUsual {
		return usual, nil
	}
	err := process.Usage("nothing listens for %s: no frontend is for it", scheme)
	if len(ports) == 0 {
		return 0, err
	}
	slices.Sort(ports)
	var names []string
	for _, port := range slices.Compact(ports) {
		names = append(names, strconv.Itoa(port))
	}
	return 0, process.WithHint(err, "name a port in the URL; there are "+strings.Join(names, ", "))
}

// endsTLS reports whether a frontend hands connections, by any of its backends and perhaps through other
// frontends, to a frontend within HAProxy where TLS ends.
func (w *walk) endsTLS(frontend haproxycfg.Section, seen map[string]bool) bool {
	if seen[frontend.Name] {
		return false
	}
	seen[frontend.Name] = true
	return slices.ContainsFunc(w.backendsOf(frontend), func(backend string) bool {
		to, bind, ok := w.behind(backend)
		return ok && (slices.Contains(bind.Texts(), "ssl") && !isTCP(to) || w.endsTLS(to, seen))
	})
}

// backendsOf returns the names of backends that a frontend may choose: those in its rules, and the values of
// its maps.
func (w *walk) backendsOf(frontend haproxycfg.Section) []string {
	var out []string
	for _, l := range frontend.Lines {
		words := l.Texts()
		if len(words) > 1 && (words[0] == "default_backend" || words[0] == "use_backend") {
			out = append(out, words[1])
		}
		for _, named := range mapNames.FindAllStringSubmatch(string(l.Text), -1) {
			for _, e := range w.entries(named[1]) {
				out = append(out, e.value)
			}
		}
	}
	return out
}

// mapNames finds the files of the converters map, map_str and similar ones.
var mapNames = regexp.MustCompile(`\bmap(?:_\w+)?\(([^,)]+)`)

// behind returns the frontend to which a backend hands connections, within HAProxy.
func (w *walk) behind(backend string) (haproxycfg.Section, haproxycfg.Line, bool) {
	for _, s := range w.sections {
		if s.Keyword != "backend" || s.Name != backend {
			continue
		}
		for _, l := range s.Lines {
			words := l.Texts()
			if len(words) < 3 || words[0] != "server" {
				continue
			}
			if to, bind, ok := w.frontend(func(address string) bool { return address == words[2] }); ok {
				return to, bind, true
			}
		}
	}
	return haproxycfg.Section{}, haproxycfg.Line{}, false
}

// frontend returns the first frontend that listens at an address.
func (w *walk) frontend(at func(address string) bool) (haproxycfg.Section, haproxycfg.Line, bool) {
	for _, s := range w.sections {
		if s.Keyword != "frontend" && s.Keyword != "listen" {
			continue
		}
		for _, l := range s.Lines {
			if words := l.Texts(); len(words) > 1 && words[0] == "bind" && at(words[1]) {
				return s, l, true
			}
		}
	}
	return haproxycfg.Section{}, haproxycfg.Line{}, false
}

// portOf returns the port of a TCP address, 0 if it has none.
func portOf(address string) int {
	if strings.HasPrefix(address, "quic") || strings.Contains(address, "/") {
		return 0
	}
	n, _ := strconv.Atoi(address[strings.LastIndexByte(address, ':')+1:])
	return n
}

func isTCP(s haproxycfg.Section) bool {
	return slices.ContainsFunc(s.Lines, func(l haproxycfg.Line) bool { return slices.Equal(l.Texts(), []string{"mode", "tcp"}) })
}

// connection leads the connection to a backend. A backend that only hands it on within HAProxy leads to another
// frontend. Any other backend gets it as it is, or the content of TLS if that ended here.
func (w *walk) connection(frontend haproxycfg.Section) (inner haproxycfg.Section, bind haproxycfg.Line, handedOn bool) {
	if w.rules(frontend, "tcp-request") {
		w.answer.Closed = true
		return haproxycfg.Section{}, haproxycfg.Line{}, false
	}
	w.choose(frontend)
	if to, at, ok := w.behind(w.answer.Backend); ok {
		w.answer.Backend, w.answer.Rule, w.answer.Status = "", nil, 0
		clear(w.variables) // it is another session
		return to, at, true
	}
	w.answer.Status = 0
	for _, s := range w.sections {
		if s.Keyword == "backend" && s.Name == w.answer.Backend {
			w.answer.Options = Options(s)
		}
	}
	if len(w.answer.Unsure) == 0 {
		w.answer.Closed = w.answer.Backend == "" || w.usable(w.answer.Backend) == 0
	}
	w.answer.PassedOn = !slices.Contains(w.bind, "ssl") && !w.answer.Closed
	return haproxycfg.Section{}, haproxycfg.Line{}, false
}

// serve applies the rules of a frontend, and of the backend that it chooses, to the request.
func (w *walk) serve(frontend haproxycfg.Section) {
	w.rules(frontend, "tcp-request")
	if w.rules(frontend, "http-request") {
		return
	}
	w.choose(frontend)
	for _, s := range w.sections {
		if s.Keyword == "backend" && s.Name == w.answer.Backend {
			w.answer.Options = Options(s)
			chosen := w.answer.Rule
			if w.rules(s, "http-request"); w.answer.Rule == chosen && w.usable(s.Name) == 0 {
				w.answer.Status = 503
			}
		}
	}
}

// choose follows use_backend and default_backend.
func (w *walk) choose(frontend haproxycfg.Section) {
	w.answer.Status = 503 // without a backend
	before := len(w.answer.Unsure)
	for _, l := range frontend.Lines {
		words := l.Texts()
		if len(words) < 2 || words[0] != "use_backend" {
			continue
		}
		switch w.holds(words) {
		case maybe:
			w.answer.Unsure = append(w.answer.Unsure, lineOf(l))
		case yes:
			name, ok := w.format(words[1])
			if !ok {
				w.answer.Unsure = append(w.answer.Unsure, lineOf(l))
				continue
			}
			w.chosen(lineOf(l), name)
			return
		}
	}
	for _, l := range frontend.Lines {
		if words := l.Texts(); len(words) > 1 && words[0] == "default_backend" {
			w.chosen(lineOf(l), words[1])
		}
	}
	if w.answer.Backend == "" && len(w.answer.Unsure) > before {
		// The lines that were found lead to these backends.
		var among []string
		for _, l := range w.answer.Lines {
			_, to, _ := strings.Cut(l.Text, " ")
			to = strings.TrimSpace(to)
			if !slices.Contains(among, to) && slices.ContainsFunc(w.sections, func(s haproxycfg.Section) bool { return s.Keyword == "backend" && s.Name == to }) {
				among = append(among, to)
			}
		}
		w.answer.Status, w.answer.Among = 0, among
	}
}

func (w *walk) chosen(by Line, backend string) {
	w.answer.Rule, w.answer.Backend, w.answer.Status = &by, backend, 0
}

// Servers returns how many server lines of each backend can take requests. It does not count servers that are
// joined live.
func Servers(config []byte) map[string]int {
	out := map[string]int{}
	for s := range haproxycfg.Sections(config) {
		for _, l := range s.Lines {
			if words := l.Texts(); s.HasServers() && len(words) > 2 && words[0] == "server" && !slices.Contains(words, "disabled") {
				out[s.Name]++
			}
		}
	}
	return out
}

// Options returns what a backend does to requests and answers: all its lines except servers.
func Options(s haproxycfg.Section) []Line {
	out := []Line{}
	for _, l := range s.Lines {
		if first := l.First(); first != "" && first != "server" {
			out = append(out, lineOf(l))
		}
	}
	return out
}

// lost returns the lines of maps for the host whose path matches too.
func (w *walk) lost() []Line {
	host, path := w.variables["txn.h"].text, w.variables["txn.p"].text
	var out []Line
	for _, e := range w.entries("maps/prefix.map") {
		if strings.HasPrefix(host+"|"+path+"/", e.key) && !slices.Contains(w.answer.Lines, e.line) {
			out = append(out, e.line)
		}
	}
	slices.SortStableFunc(out, func(a, b Line) int { return cmp.Compare(len(b.Text), len(a.Text)) })
	for _, e := range w.entries("maps/host.map") { // a wildcard that loses to an exact name
		name := w.variables["txn.host"].text
		if strings.HasPrefix(e.key, ".") && host == name && name[max(strings.IndexByte(name, '.'), 0):] == e.key {
			out = append(out, e.line)
		}
	}
	return out
}

// certificate returns the certificate that a client sees which names the host: that of the exact name, of a
// wildcard, or the first of the list.
func (w *walk) certificate(bind haproxycfg.Line) *Certificate {
	words := bind.Texts()
	i := slices.Index(words, "crt-list")
	if i < 0 || i+1 >= len(words) {
		return nil
	}
	name := w.request.ServerName()
	wildcard := "*" + name[max(strings.IndexByte(name, '.'), 0):]
	var first, wild *Certificate
	for _, e := range w.entries(words[i+1]) {
		c := Certificate{File: e.key, Line: e.line}
		names := e.value
		if strings.HasPrefix(names, "[") {
			_, names, _ = strings.Cut(names, "]")
		}
		listed := strings.Fields(names)
		if name != "" && slices.Contains(listed, name) {
			return &c
		}
		if wild == nil && name != "" && slices.Contains(listed, wildcard) && !slices.Contains(listed, "!"+name) {
			wild = &c
		}
		if first == nil {
			first = &Certificate{File: e.key, Default: true, Line: e.line}
		}
	}
	if wild != nil {
		return wild
	}
	return first
}
