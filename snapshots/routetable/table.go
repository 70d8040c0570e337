// Package routetable lists what a snapshot routes: each host and path, the backend and the Services to which it
// leads, what the backend does to requests, and the certificate that clients see.
//
// It reads only the maps, the crt-lists and haproxy.cfg, as the shipped templates write them. So it lists any
// snapshot, however old. Its list does not have what users' own templates route by other rules.
package routetable

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/request"
)

// Kind says how a path is compared.
type Kind string

// The kinds.
const (
	Exact      Kind = "exact"
	Prefix     Kind = "prefix"
	Regex      Kind = "regex"
	Default    Kind = "default"    // requests that no other route takes
	Connection Kind = "connection" // it has no path: connections are routed as wholes
)

// Table is what a snapshot routes.
type Table struct {
	Routes   []Route // by host, path, kind and listener; those of one choice in the order in which they are tried
	Hosts    int
	Backends map[string]*Backend
	// Unread is how many lines of maps have a form that this version does not know.
	Unread int
}

// Route is one way of requests to a backend.
type Route struct {
	Listener *Listener
	Host     string // as rules have it, such as *.example.com; "" stands for every host
	Path     string
	Kind     Kind
	When     []string // what else a request needs, such as "header x-canary is always"
	Shares   []Share  // one, or several by weight; none if the snapshot does not say where it leads
	// Certificate is the certificate that clients see for the host, nil if TLS does not end here.
	Certificate *Certificate
	File        string // the line of the map
	Line        int
	Text        string
}

// Listener is a set of ports that have routes in common.
type Listener struct {
	Name  string   // of a port of a Gateway; "" for those of the configuration
	Ports []string // such as "https :443"
	lists []string // its crt-lists
}

// Share is a backend and its part of the requests.
type Share struct {
	Backend *Backend
	Weight  int // among the shares of a route
}

// Backend is a section that gets requests.
type Backend struct {
	Name     string
	Services []Service
	Options  []request.Line // what it does to requests and answers
	Fixed    int            // servers that the configuration names itself
}

// Service is a Service whose endpoints are the servers of a backend.
type Service struct {
	snapshots.ServicePort
	Weight int
}

// Of lists the routes of a snapshot. The error names a #hapsnap comment that cannot be followed.
func Of(s snapshots.Snapshot) (*Table, error) {
	r := reader{files: map[string]string{}, backends: map[string]*Backend{}, patterns: map[string]string{}}
	for _, f := range s.Files {
		if strings.HasPrefix(f.Path, snapshots.MapsFolder) || strings.HasPrefix(f.Path, "files/") {
			r.files[f.Path] = string(f.Content)
		}
	}
	config := s.Config()
	if err := r.readBackends(config); err != nil {
		return nil, err
	}
	r.readListeners(config)
	r.readChoices()
	r.certificates(s.Manifest.Spec.Certificates)
	r.paths("maps/exact.map", Exact)
	r.paths("maps/prefix.map", Prefix)
	r.expressions()
	r.connections(config)
	return r.table(), nil
}

// reader makes a table.
type reader struct {
	files      map[string]string
	backends   map[string]*Backend
	listeners  map[string]*Listener
	targets    map[string][]target // of choices, by name
	conditions map[string][]condition
	splits     map[string][]Share
	patterns   map[string]string // expressions in haproxy.cfg, by their key
	byList     map[string]*certificateList
	routes     []Route
	unread     int
}

func (r *reader) table() *Table {
	slices.SortStableFunc(r.routes, func(a, b Route) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Listener.Name, b.Listener.Name))
	})
	t := &Table{Routes: r.routes, Backends: r.backends, Unread: r.unread}
	for i := range r.routes {
		if i == 0 || r.routes[i].Host != r.routes[i-1].Host {
			t.Hosts++
		}
	}
	return t
}

// readBackends reads the properties of each backend.
func (r *reader) readBackends(config []byte) error {
	fixed := request.Servers(config)
	for s := range haproxycfg.Sections(config) {
		if s.Keyword == "backend" {
			r.backends[s.Name] = &Backend{Name: s.Name, Options: request.Options(s), Fixed: fixed[s.Name]}
		}
	}
	directives, err := bind.Directives(config)
	for _, d := range directives {
		if b := r.backends[d.Backend]; b != nil {
			b.Services = append(b.Services, Service{d.Service, d.Weight})
		}
	}
	return err
}

// paths reads a map of hosts and paths.
func (r *reader) paths(file string, kind Kind) {
	for number, line := range lines(r.files[file]) {
		key, value, ok := strings.Cut(line, " ")
		owner, path, hasPath := strings.Cut(key, "|/")
		if !ok || !hasPath {
			r.unread++
			continue
		}
		path = "/" + path
		if kind == Prefix && len(path) > 1 {
			path = strings.TrimSuffix(path, "/")
		}
		at, host := "", owner
		if port, name, named := strings.Cut(owner, "|"); named {
			at, host = port, name
		}
		r.add(Route{Listener: r.listener(at), Host: shown(host), Path: path, Kind: kind, File: file, Line: number, Text: line}, value)
	}
}

// expressions reads the paths that are regular expressions of a host without a Gateway.
func (r *reader) expressions() {
	const file = "files/expressions.lst"
	for number, line := range lines(r.files[file]) {
		pattern, value, ok := strings.Cut(line, " ")
		pattern, ok2 := strings.CutPrefix(pattern, "(?i)^")
		host, rest, ok3 := strings.Cut(pattern, `\|(?:`)
		_, path, ok4 := strings.Cut(rest, `)\|(?:`)
		_, to, ok5 := strings.Cut(value, "|")
		if !ok || !ok2 || !ok3 || !ok4 || !ok5 {
			r.unread++
			continue
		}
		host = strings.ReplaceAll(host, `\`, "")
		r.add(Route{Listener: r.listener(""), Host: shown(host), Path: strings.TrimSuffix(path, ")"), Kind: Regex, File: file, Line: number, Text: line}, to)
	}
}

// connections reads which backend gets which hosts of TLS, and where all other connections of a port go.
func (r *reader) connections(config []byte) {
	for _, file := range slices.Sorted(maps.Keys(r.files)) {
		name, ok := strings.CutPrefix(file, "maps/sni_")
		terminated := false
		if !ok {
			name, terminated = strings.CutPrefix(file, "maps/terminated_")
		}
		if !ok && !terminated {
			continue
		}
		at := r.listener(strings.TrimSuffix(name, ".map"))
		for number, line := range lines(r.files[file]) {
			host, to, _ := strings.Cut(line, " ")
			if strings.HasPrefix(to, "hapsnap_terminate") {
				continue // the other map has it
			}
			r.add(Route{Listener: at, Host: shown(strings.TrimPrefix(host, "*")), Kind: Connection, File: file, Line: number, Text: line}, to)
		}
	}
	r.defaults(config)
}

// defaults reads the targets of requests and connections that no other route takes.
func (r *reader) defaults(config []byte) {
	seen := map[string]bool{} // the ports for HTTP and for HTTPS have it in common
	for s := range haproxycfg.Sections(config) {
		for _, l := range s.Lines {
			if s.Keyword != "frontend" || !l.Is("default_backend") {
				continue
			}
			words := l.Texts()
			route := Route{Listener: r.listener(""), Path: "/", Kind: Default, File: snapshots.ConfigFile, Line: l.Number, Text: string(l.Text)}
			if isTCP(s) {
				route.Listener, route.Path, route.Kind = r.listener(s.Name), "", Connection
			}
			if len(words) < 2 || seen[words[1]+string(route.Kind)+route.Listener.Name] || r.backends[words[1]] == nil || isTCP(s) && len(r.backends[words[1]].Services) == 0 {
				continue // what connections are handed on to within HAProxy is in the other lists
			}
			seen[words[1]+string(route.Kind)+route.Listener.Name] = true
			r.add(route, words[1])
		}
	}
}

// add adds a route, or the routes of the choice that its value names.
func (r *reader) add(route Route, value string) {
	value = strings.TrimSpace(value)
	route.Certificate = r.certificateFor(route)
	if !strings.Contains(value, "?") {
		route.Shares = r.shares(value)
		r.routes = append(r.routes, route)
		return
	}
	targets, known := r.targets[value]
	if !known {
		r.routes = append(r.routes, route) // rules of haproxy.cfg decide where it leads
		return
	}
	for _, t := range targets {
		one := route
		one.Shares = r.shares(t.to)
		for _, c := range r.conditions[value] {
			switch {
			case t.needs&c.bits != c.bits:
			case c.path:
				one.Path, one.Kind = c.text, Regex
			default:
				one.When = append(one.When, c.text)
			}
		}
		if t.whileUp {
			one.When = append(one.When, "while it has a server")
		}
		if one.Kind == Regex && route.Path != "/" {
			continue // it is also tried if longer prefixes match, and is listed at the root
		}
		r.routes = append(r.routes, one)
	}
}

func (r *reader) shares(to string) []Share {
	if strings.HasPrefix(to, "%") {
		return r.splits[to]
	}
	b := r.backends[to]
	if b == nil {
		name, _, _ := strings.Cut(to, "@") // the replacement of a filter of the route follows
		if b = r.backends[name]; b == nil {
			return nil
		}
	}
	return []Share{{b, 1}}
}

func (r *reader) listener(name string) *Listener {
	l := r.listeners[name]
	if l == nil {
		l = &Listener{Name: name}
		r.listeners[name] = l
	}
	return l
}

// shown returns a host of a map in the form that rules have.
func shown(host string) string {
	if strings.HasPrefix(host, ".") {
		return "*" + host
	}
	return host
}

// Certificate is a certificate that clients see.
type Certificate struct {
	File     string
	Secret   snapshots.SecretName // zero for the fallback certificate
	NotAfter time.Time            // as far as the compiler saw it
	Default  bool                 // no line names the host
}

// certificateList is a crt-list: which file is for which name.
type certificateList struct {
	names map[string]*Certificate // also "*.example.com"
	first *Certificate
}

// certificates reads the crt-lists.
func (r *reader) certificates(refs []snapshots.CertificateRef) {
	r.byList = map[string]*certificateList{}
	known := map[string]snapshots.CertificateRef{}
	for _, ref := range refs {
		known[ref.File] = ref
	}
	one := func(file string, isDefault bool) *Certificate {
		c := &Certificate{File: file, Secret: known[file].Secret, Default: isDefault}
		if seen := known[file].Observed; seen != nil {
			c.NotAfter = seen.NotAfter
		}
		return c
	}
	for _, l := range r.listeners {
		for _, path := range l.lists {
			if r.byList[path] != nil {
				continue
			}
			list := &certificateList{names: map[string]*Certificate{}}
			files := map[string]*Certificate{}
			for _, line := range lines(r.files[path]) {
				file, names, _ := strings.Cut(line, " ")
				if list.first == nil {
					list.first = one(file, true)
				}
				if names = strings.TrimSpace(names); strings.HasPrefix(names, "[") {
					_, names, _ = strings.Cut(names, "]")
				}
				for name := range strings.FieldsSeq(names) {
					if files[file] == nil {
						files[file] = one(file, false)
					}
					if name[0] != '!' && list.names[name] == nil {
						list.names[name] = files[file]
					}
				}
			}
			r.byList[path] = list
		}
	}
}

// certificateFor returns the certificate that clients see for the host of a route.
func (r *reader) certificateFor(route Route) *Certificate {
	if len(route.Listener.lists) == 0 {
		return nil
	}
	list := r.byList[route.Listener.lists[0]]
	if c := list.names[route.Host]; c != nil {
		return c
	}
	if _, parent, ok := strings.Cut(route.Host, "."); ok {
		if c := list.names["*."+parent]; c != nil {
			return c
		}
	}
	return list.first
}

// Query says which routes of a table are wanted.
type Query struct {
	// Text has words. A route matches if it has all of them: in its host, its path, its conditions, or in its
	// backends' names, Services and options. Case does not matter.
	Text       string
	Keep       func(*Route) bool     // nil keeps all
	Less       func(a, b *Route) int // compares; nil keeps the order of the table
	Page, Size int                   // from 1
}

// Page is a part of the routes that a query finds.
type Page struct {
	Routes      []*Route
	Found       int // in all pages
	Page, Pages int
}

// Words returns the words of a text, each once and in lower case.
func Words(text string) []string {
	words := strings.Fields(strings.ToLower(text))
	slices.Sort(words)
	return slices.Compact(words)
}

// Select returns a page of the routes that a query finds. A page beyond the last is the last.
func (t *Table) Select(q Query) Page {
	words := Words(q.Text)
	inBackend := make([]map[*Backend]bool, len(words))
	for i := range inBackend {
		inBackend[i] = map[*Backend]bool{}
	}
	var found []*Route
	for i := range t.Routes {
		route := &t.Routes[i]
		if has(route, words, inBackend) && (q.Keep == nil || q.Keep(route)) {
			found = append(found, route)
		}
	}
	if q.Less != nil {
		slices.SortStableFunc(found, q.Less)
	}
	size := max(q.Size, 1)
	p := Page{Found: len(found), Pages: max(1, (len(found)+size-1)/size)}
	p.Page = min(max(q.Page, 1), p.Pages)
	p.Routes = found[(p.Page-1)*size : min(p.Page*size, len(found))]
	return p
}

// has reports whether a route has all words. It remembers for each word which backends have it.
func has(route *Route, words []string, inBackend []map[*Backend]bool) bool {
	for i, word := range words {
		if contains(route.Host, word) || contains(route.Path, word) || contains(route.Listener.Name, word) ||
			slices.ContainsFunc(route.When, func(s string) bool { return contains(s, word) }) ||
			route.Certificate != nil && contains(route.Certificate.Secret.String(), word) {
			continue
		}
		if !slices.ContainsFunc(route.Shares, func(s Share) bool {
			is, known := inBackend[i][s.Backend]
			if !known {
				is = s.Backend.has(word)
				inBackend[i][s.Backend] = is
			}
			return is
		}) {
			return false
		}
	}
	return true
}

func (b *Backend) has(word string) bool {
	for _, s := range b.Services {
		if contains(s.String(), word) {
			return true
		}
	}
	for _, o := range b.Options {
		if contains(o.Text, word) {
			return true
		}
	}
	return contains(b.Name, word)
}

// contains is fast for text without upper-case letters.
func contains(text, word string) bool { return strings.Contains(strings.ToLower(text), word) }
