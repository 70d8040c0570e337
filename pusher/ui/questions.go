package ui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/request"
)

// askForm is a request as the viewer typed it.
type askForm struct {
	Method, Scheme, Host, Path, Headers, Client, Snapshot string
}

// methods are the methods that the form offers.
var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

// Methods are the methods that the form offers, and the typed one.
func (f askForm) Methods() []string {
	if !slices.Contains(methods, f.Method) {
		return append(slices.Clone(methods), f.Method)
	}
	return methods
}

func askFormOf(values url.Values) askForm {
	get := func(name string) string { return strings.TrimSpace(values.Get(name)) }
	f := askForm{
		Method: strings.ToUpper(cmp.Or(get("method"), "GET")), Scheme: cmp.Or(get("scheme"), "https"), Host: get("host"), Path: cmp.Or(get("path"), "/"),
		Headers: values.Get("headers"), Client: get("client"), Snapshot: get("snapshot"),
	}
	if scheme, rest, ok := strings.Cut(f.Host, "://"); ok { // the viewer pasted a URL
		f.Scheme, f.Host = scheme, rest
		if at := strings.IndexAny(rest, "/?"); at >= 0 {
			f.Host, f.Path = rest[:at], rest[at:]
		}
	}
	if _, err := netip.ParseAddr(f.Host); err == nil && strings.Contains(f.Host, ":") {
		f.Host = "[" + f.Host + "]"
	}
	if !strings.HasPrefix(f.Path, "/") && !strings.HasPrefix(f.Path, "?") {
		f.Path = "/" + f.Path
	}
	return f
}

// request returns the typed request.
func (f askForm) request() (request.Request, error) {
	if f.Host == "" || strings.ContainsAny(f.Host, "/?#@\\") {
		return request.Request{}, errors.New("the host is not a name or an address")
	}
	return request.Parse(f.Method, f.Scheme+"://"+f.Host+f.Path, f.headers(), f.Client)
}

// headers are the typed headers, each as NAME=VALUE.
func (f askForm) headers() []string {
	var headers []string
	for line := range strings.Lines(f.Headers) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		at := strings.IndexAny(line, "=:")
		if at > 0 && line[at] == ':' {
			line = line[:at] + "=" + strings.TrimSpace(line[at+1:])
		}
		headers = append(headers, line)
	}
	return headers
}

// answered is the answer to a request: which backend and Services get it, and why.
type answered struct {
	Request string `json:"request"`
	Who     string `json:"who"`
	chosen
	request.Answer
	Secret   string     `json:"secret,omitempty"` // of the certificate
	NotAfter *time.Time `json:"notAfter,omitempty"`
	Services []servers  `json:"services"`
	From     string     `json:"endpointsFrom,omitempty"` // where the endpoints are from, "" if they are not known
	Wrote    []Wrote    `json:"wrote,omitempty"`         // lines with the objects that they came from
	LeftOut  []leftOut  `json:"leftOut,omitempty"`       // objects that name the host and are left out, wholly or in part
	Command  string     `json:"command"`                 // that prints more
	Entry    string     `json:"port"`                    // of the listener
	// NoOrigins says why Wrote is empty. It is "" if Wrote is known, or if no compiler is configured.
	NoOrigins string `json:"noOrigins,omitempty"`
}

// servers are the servers that a Service contributes to a backend.
type servers struct {
	Service   string     `json:"service"`
	Weight    int        `json:"weight"`
	Known     bool       `json:"known"`
	Endpoints []endpoint `json:"endpoints"`
	Empty     bool       `json:"noneUp,omitempty"` // no server of the backend is up
}

// endpoint is an endpoint of a Service. On is how many of the asked instances have it as a server, and Up on how many
// of them it gets requests.
type endpoint struct {
	snapshots.Endpoint
	Up int `json:"upOnInstances,omitempty"`
	On int `json:"instancesAsked,omitempty"`
}

// Text is the address, and what is wrong with the endpoint.
func (e endpoint) Text() string {
	text := net.JoinHostPort(e.Address, fmt.Sprint(e.Port))
	switch {
	case e.Draining:
		text += " (draining)"
	case e.Down():
		text = "▲ " + text + " down"
	case e.Up < e.On:
		text = fmt.Sprintf("▲ %s up on %d of %d instances", text, e.Up, e.On)
	}
	return text
}

// Class marks an endpoint that is not up on every asked instance.
func (e endpoint) Class() string {
	if !e.Draining && e.Up < e.On {
		return "tag down"
	}
	return "tag"
}

// Down reports whether the endpoint gets requests on none of the asked instances.
func (e endpoint) Down() bool { return e.On > 0 && e.Up == 0 }

// endpoints joins the endpoints of a Service with the states of the servers of a backend.
func endpoints(of []snapshots.Endpoint, states map[netip.AddrPort]seen) []endpoint {
	out := make([]endpoint, 0, len(of))
	for _, e := range of {
		known := endpoint{Endpoint: e}
		if ip, err := netip.ParseAddr(e.Address); err == nil {
			s := states[netip.AddrPortFrom(ip.Unmap(), uint16(e.Port))] //nolint:gosec // it is a port
			known.Up, known.On = s.Up, s.On
		}
		out = append(out, known)
	}
	return out
}

// State summarizes how many servers there are, and how many are up.
func (s servers) State() string {
	n, up, somewhere, asked := len(s.Endpoints), 0, 0, 0
	for _, e := range s.Endpoints {
		everywhere := e.On > 0 && e.Up == e.On
		up, somewhere, asked = up+boolTo(everywhere), somewhere+boolTo(!everywhere && e.Up > 0), max(asked, e.On)
	}
	switch {
	case !s.Known:
		return "servers are not known here"
	case n == 0:
		return "no endpoint"
	case asked > 0 && somewhere > 0:
		return fmt.Sprintf("%d of %s up, and %d on some instances only", up, plural(n, "server", "servers"), somewhere)
	case asked > 0:
		return fmt.Sprintf("%d of %s up", up, plural(n, "server", "servers"))
	case s.Empty:
		return fmt.Sprintf("%s, none of them up", plural(n, "endpoint", "endpoints"))
	default:
		return plural(n, "endpoint", "endpoints")
	}
}

// Bad reports whether the Service is known to have no server that is up.
func (s servers) Bad() bool {
	down := !slices.ContainsFunc(s.Endpoints, func(e endpoint) bool { return !e.Down() })
	return s.Known && (len(s.Endpoints) == 0 || down) || s.Empty
}

// First are the endpoints that are shown.
func (s servers) First() []endpoint { return s.Endpoints[:min(len(s.Endpoints), mostAddresses)] }

// More is how many endpoints are not shown.
func (s servers) More() int { return max(0, len(s.Endpoints)-mostAddresses) }

const mostAddresses = 12

// endpointsOf returns the endpoints of the Services of a snapshot, and where they are from. It returns nil if they
// are not known.
func (q query) endpointsOf(s readSnapshot, now bool) (all map[snapshots.ServicePort][]snapshots.Endpoint, from string) {
	live := q.fleet.Live
	switch {
	case s.recorded != nil:
		return s.recorded, "as the snapshot has them"
	case now && live != nil && live.Endpoints != nil:
		return live.Endpoints, "now"
	}
	return nil, ""
}

// answer follows a request through a snapshot.
func (q query) answer(ctx context.Context, f askForm, of chosen) (*answered, error) {
	r, err := f.request()
	if err != nil {
		return nil, typed(err)
	}
	s, err := q.archive.routes(ctx, of.ID)
	if err != nil {
		return nil, err
	}
	if r.Port == 0 {
		if r.Port, err = s.requests.Port(r.TLS); err != nil {
			return nil, typed(err)
		}
	}
	known, from := q.endpointsOf(s, of.Now)
	done, err := q.think(ctx)
	if err != nil {
		return nil, err
	}
	a, err := led(done, s.requests, r, func(backend string) int {
		b := s.table.Backends[backend]
		if b == nil {
			return 0
		}
		n := b.Fixed
		for _, service := range b.Services {
			if known == nil {
				n++ // count a Service as one server while its endpoints are unknown
			}
			n += len(known[service.ServicePort])
		}
		return n
	})
	if err != nil {
		return nil, typed(err)
	}
	out := &answered{Request: r.String(), chosen: of, Answer: a, From: from, Services: []servers{}, Entry: fmt.Sprintf(":%d", r.Port)}
	var services []string
	among := a.Among
	if a.Backend != "" {
		among = []string{a.Backend}
	}
	for _, name := range among {
		b := s.table.Backends[name]
		if b == nil {
			continue
		}
		var states map[netip.AddrPort]seen
		if of.Now {
			states, _ = q.health.of(ctx, name)
		}
		for _, service := range b.Services {
			services = append(services, service.String())
			out.Services = append(out.Services, servers{
				service.String(), service.Weight, known != nil, endpoints(known[service.ServicePort], states), of.Now && q.noneUp()[name],
			})
		}
	}
	out.Who = a.Who(services)
	out.Command = commandFor(r, f)
	for _, c := range s.Manifest.Spec.Certificates {
		if a.Certificate != nil && c.File == a.Certificate.File && c.Secret.Name != "" {
			out.Secret = c.Secret.String()
			if c.Observed != nil && !c.Observed.NotAfter.IsZero() {
				out.NotAfter = &c.Observed.NotAfter
			}
		}
	}
	out.LeftOut = q.losers(s.Manifest, of, r)
	out.addOrigins(ctx, q, f, r)
	return out, nil
}

// led follows a request through a snapshot, and calls done at the end.
func led(done func(), through *request.Reader, r request.Request, usable func(backend string) int) (request.Answer, error) {
	defer done()
	return through.Led(r, usable)
}

// typed returns a problem about what the viewer typed.
func typed(err error) error {
	text := err.Error()
	return problem{http.StatusBadRequest, strings.ToUpper(text[:1]) + text[1:] + ".", process.Hint(err)}
}

// commandFor returns the command that prints more: the objects and fields that wrote the lines.
func commandFor(r request.Request, f askForm) string {
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
	var out strings.Builder
	out.WriteString("hapsnap explain request " + r.Method + " " + quote(f.Scheme+"://"+f.Host+r.Target))
	for _, name := range sortedKeys(r.Headers) {
		for _, v := range r.Headers[name] {
			out.WriteString(" --header " + quote(name+"="+v))
		}
	}
	if f.Client != "" {
		out.WriteString(" --client " + r.Client.String())
	}
	return out.String()
}

// stepOf says what HAProxy looks up in a file.
func stepOf(file string) string {
	switch {
	case file == "maps/host.map":
		return "host"
	case file == "maps/exact.map" || file == "maps/prefix.map" || strings.HasPrefix(file, "files/expression"):
		return "path"
	case strings.HasPrefix(file, "maps/sni") || strings.HasPrefix(file, "maps/terminated"):
		return "name in TLS"
	}
	return "map"
}

// noneUp returns the backends that are known to have no server up.
func (q query) noneUp() map[string]bool {
	out := map[string]bool{}
	if b := q.fleet.Status.Backends; b != nil {
		for _, e := range b.List {
			out[e.Backend] = true
		}
	}
	return out
}

// losers returns the objects that name the host of a request and are left out, wholly or in part.
func (q query) losers(m snapshots.Manifest, of chosen, r request.Request) []leftOut {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	var out []leftOut
	for _, l := range q.leftOut(m, of) {
		if slices.ContainsFunc(strings.FieldsFunc(l.Reason, func(c rune) bool { return strings.ContainsRune(" ,:;\"'()", c) }), func(word string) bool { return strings.EqualFold(strings.TrimRight(word, "."), host) }) {
			out = append(out, l)
		}
	}
	return out
}

// Question is a request. A compiler tells which objects wrote the lines that answer it.
type Question struct {
	Method, URL string
	Headers     []string // as NAME=VALUE
	Client      netip.Addr
}

// Wrote is a line with the objects and fields that wrote it.
type Wrote struct {
	request.Line
	Origins []Origin `json:"origins"`
}

// Origin is an object, and the field of it that wrote a line.
type Origin struct {
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	Field      string `json:"field,omitempty"`
	File       string `json:"file,omitempty"`
	LineNumber int    `json:"line,omitempty"`
}

// Object is the kind and name of the object.
func (o Origin) Object() string {
	return leftOut{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name}.Object()
}

// Place is the file and line of the field, "" for an object of a cluster.
func (o Origin) Place() string { return placeOf(o.File, o.LineNumber) }

// said is the answer to a question.
type said struct {
	wrote []Wrote
	err   error
}

// originsAge is how long an answer is kept, as objects change. originsTimeout bounds a question: to answer it, the
// compiler compiles all objects.
const (
	originsAge     = 30 * time.Second
	originsTimeout = 2 * time.Minute
)

// asking is a question as a key.
type asking struct {
	method, url, headers string
	client               netip.Addr
}

func newOrigins(ctx context.Context, ask func(context.Context, Question) ([]Wrote, error), changed func()) *inquiries[asking, said] {
	if ask == nil {
		return nil
	}
	return newInquiries(ctx, changed, originsAge, originsTimeout, 0, func(ctx context.Context, key asking) said {
		f := askForm{Headers: key.headers}
		wrote, err := ask(ctx, Question{key.method, key.url, f.headers(), key.client})
		return said{wrote, err}
	})
}

// addOrigins adds the objects that wrote the lines of an answer. The compiler explains what the objects make now.
// [answered.OriginsOf] therefore matches file and text, and a line that is different now has no origins.
func (a *answered) addOrigins(ctx context.Context, q query, f askForm, r request.Request) {
	known, ok := q.origins.of(ctx, asking{r.Method, f.Scheme + "://" + f.Host + r.Target, f.Headers, r.Client})
	switch {
	case q.origins == nil:
	case !ok:
		a.NoOrigins = noOrigins(true, "")
	case known.err != nil:
		a.NoOrigins = noOrigins(false, report.FirstLine(known.err.Error(), report.LongestMessage))
	default:
		a.Wrote = slices.DeleteFunc(slices.Clone(known.wrote), func(w Wrote) bool { return len(w.Origins) == 0 })
	}
}

// noOrigins says why the origins of lines are not known yet, or cannot be known. It is "" if they are known.
func noOrigins(asking bool, why string) string {
	switch {
	case asking:
		return "Which objects wrote the lines is being asked."
	case why != "":
		return "Which objects wrote the lines cannot be told: " + why
	}
	return ""
}

// OriginsOf returns the objects that wrote a line, as far as they are known.
func (a *answered) OriginsOf(l request.Line) []Origin {
	for _, w := range a.Wrote {
		if w.File == l.File && w.Text == l.Text {
			return w.Origins
		}
	}
	return nil
}

// newLines returns the inquiries that ask which objects wrote lines. A key lists the places of lines, one on each
// line.
func newLines(ctx context.Context, ask func(context.Context, []string) ([]Wrote, error), changed func()) *inquiries[string, said] {
	if ask == nil {
		return nil
	}
	return newInquiries(ctx, changed, originsAge, originsTimeout, 0, func(ctx context.Context, key string) said {
		places := strings.Split(key, "\n")
		wrote, err := ask(ctx, places)
		if err == nil && len(wrote) != len(places) {
			err = fmt.Errorf("%d lines were explained of %d", len(wrote), len(places))
		}
		return said{wrote, err}
	})
}

// written are lines of a snapshot, for which origins are asked.
type written struct {
	places []string
	texts  []string
}

func (w *written) add(file string, line int, text string) {
	w.places, w.texts = append(w.places, placeOf(file, line)), append(w.texts, text)
}

// origins returns the objects and fields that wrote each line. The compiler explains what the objects make now, so a
// line that is different now gets none. Asking is set until the answer has come, and why says why there is none.
func (w *written) origins(ctx context.Context, q query) (by [][]Origin, asking bool, why string) {
	by = make([][]Origin, len(w.places))
	if q.lines == nil || len(w.places) == 0 {
		return by, false, ""
	}
	known, ok := q.lines.of(ctx, strings.Join(w.places, "\n"))
	switch {
	case !ok:
		return by, true, ""
	case known.err != nil:
		return by, false, report.FirstLine(known.err.Error(), report.LongestMessage)
	}
	for i, one := range known.wrote {
		if strings.TrimSpace(one.Text) == strings.TrimSpace(w.texts[i]) {
			by[i] = one.Origins
		}
	}
	return by, false, ""
}

// mostCaused is how many hunks of a difference get the fields that caused them.
const mostCaused = 100
