package ui

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/snapshots"
)

// header is what every page says of the fleet at its top.
type header struct {
	Channel   string
	Condition report.Condition
	Status    report.Status
	Trouble   string // why nothing newer is known
	At        time.Time
	Tabs      []tabLink
}

// tabLink is a tab in the navigation.
type tabLink struct {
	Path, Title string
	Count       int
	Current     bool
}

// frameParts are those of every page, above its own.
var frameParts = []part{{name: "head"}, {name: "nav"}}

// Mark is how the condition looks, in a shape and a word: colour alone says nothing.
func (h header) Mark() string {
	switch h.Condition.Phase {
	case report.Healthy:
		return "●"
	case report.Progressing:
		return "◐"
	case report.Suspended:
		return "‖"
	case report.Degraded:
	}
	return "▲"
}

// Class is that of the style sheet for the condition.
func (h header) Class() string {
	switch {
	case h.Stale():
		return "bad"
	case h.Condition.Phase == report.Healthy:
		return "ok"
	case h.Condition.Phase == report.Degraded:
		return "bad"
	}
	return "run"
}

// Says is what the condition says, without the name of the snapshot that stands before it.
func (h header) Says() string {
	return strings.TrimPrefix(h.Condition.Message, h.Status.Channel.Wanted.String()+": ")
}

// Stale reports whether what is shown is old.
func (h header) Stale() bool { return h.Trouble != "" || h.Status.Stale }

// Pinned reports whether something else than the newest runs because a person said so.
func (h header) Pinned() bool {
	because := string(h.Status.Channel.Because)
	return because == "pin" || because == "override"
}

// Paused says whether rollouts are paused.
func (h header) Paused() bool {
	return string(h.Status.Channel.Because) == "pause" || h.Status.Rollout != nil && h.Status.Rollout.Paused != ""
}

// address is a page that somebody asked for, with what its path and query say.
type address struct {
	tab  *tab
	page *page
	r    *http.Request
}

// made is a page with what it shows.
type made struct {
	title string
	code  int
	parts []rendered // those of the frame first
	waits bool       // for what is being read: all but the frame stays what it was
}

// query returns what an address asks for, of what is known now.
func (s *Server) query(a address) query {
	q := query{now: time.Now(), source: s.source, archive: s.archive, compiler: s.compiler, health: s.health, origins: s.origins, lines: s.lines, thinking: s.thinking, path: a.r.PathValue, values: a.r.URL.Query(), address: a.r.URL.RequestURI()}
	if s.source.Fleet != nil {
		q.fleet = s.withLeader(s.source.Fleet())
	}
	if q.fleet.Live != nil { // a pusher that hangs says nothing any more
		q.fleet.Status = q.fleet.Status.AsOf(q.now, report.FreshState)
	}
	return q
}

// make makes the parts of a page. Where it cannot be had, one part says why.
func (s *Server) make(ctx context.Context, a address) (out made) {
	out.code = http.StatusOK
	defer s.caught(a.r, func() {
		out.code, out.title, out.parts = http.StatusInternalServerError, "Not shown", out.parts[:min(len(out.parts), len(frameParts))]
		for _, p := range frameParts[len(out.parts):] {
			out.parts = append(out.parts, rendered{Name: p.name, Class: p.class})
		}
		out.parts = append(out.parts, rendered{Name: "problem", Class: "wide trouble", HTML: "This page cannot be shown. The log of the program says why."})
	})
	q := s.query(a)
	add := func(p part, data any) {
		r, err := renderPart(p, data)
		if err != nil {
			s.log.Error("cannot make a part of a page", "part", p.name, "err", err)
			r = rendered{Name: p.name, Class: p.class, HTML: "This part cannot be shown. The log of the program says why."}
			out.code = http.StatusInternalServerError
		}
		out.parts = append(out.parts, r)
	}
	h := header{
		Channel: q.source.Channel, Status: q.fleet.Status, Condition: q.fleet.Status.Condition(), Trouble: q.fleet.Trouble, At: q.fleet.At,
	}
	for _, t := range s.tabs {
		l := tabLink{Path: t.path, Title: t.title, Current: t.path == a.tab.path}
		if t.count != nil {
			l.Count = t.count(q)
		}
		h.Tabs = append(h.Tabs, l)
	}
	for _, p := range frameParts {
		add(p, h)
	}
	data, err := a.page.data(ctx, q)
	if err != nil {
		says := problemOf(err)
		out.waits = errors.Is(err, errNotRead)
		out.code, out.title = says.code, "Not shown"
		add(part{name: "problem", class: "wide trouble"}, map[string]string{"Text": says.text, "Hint": says.hint})
		return out
	}
	out.title = a.page.title(data)
	for _, p := range a.page.parts {
		add(p, data)
	}
	return out
}

// problemOf is what a page says of an error.
func problemOf(err error) problem {
	if p, ok := err.(problem); ok { //nolint:errorlint // it is returned as it is
		return p
	}
	return problem{http.StatusServiceUnavailable, report.FirstLine(strings.TrimSpace(err.Error()), report.LongestMessage), "Reload the page to try again. The fleet does not wait for this."}
}

// tab is one of the pages in the navigation.
type tab struct {
	path  string // of its page, such as /history
	title string
	// count returns the number beside the title, 0 for none; nil for a tab without one.
	count func(q query) int
	pages []page
	apis  []api
}

// tabs are those of the navigation, in its order. A tab has a file of its own.
func tabs() []tab {
	return []tab{fleetTab(), historyTab(), routesTab(), leftOutTab(), certificatesTab()}
}

// page is one address, and what it shows.
type page struct {
	path  string // a pattern of [http.ServeMux], without a method
	title func(data any) string
	parts []part
	// data returns what the templates of the parts get. An error may be a [problem]. It has until
	// ctx is done, and is called again for each change while somebody looks if live is set.
	data func(ctx context.Context, q query) (any, error)
	live bool
}

// part is a piece of a page that the stream can replace. A template of its name makes it. One that
// is empty is not shown.
type part struct {
	name  string // also its id
	class string // wide takes the whole width
}

// query is what somebody asks for.
type query struct {
	now      time.Time
	fleet    Fleet
	source   Source
	archive  *archive
	compiler *compiler
	health   *inquiries[string, map[netip.AddrPort]seen]
	origins  *inquiries[asking, said]
	lines    *inquiries[string, said]
	thinking chan struct{}            // held by who searches routes
	path     func(name string) string // the value of a wildcard of the pattern
	values   url.Values
	address  string // the path and query of the page
}

// think waits until a search may take a processor: there are others, and a fleet to look after. The one renderer
// does not wait.
func (q query) think(ctx context.Context) (done func(), err error) {
	if ctx.Value(nowait{}) != nil || q.thinking == nil {
		return func() {}, nil
	}
	select {
	case q.thinking <- struct{}{}:
		return func() { <-q.thinking }, nil
	case <-ctx.Done():
		return nil, problem{http.StatusServiceUnavailable, "Too many search at once.", "Reload the page to try again."}
	}
}

// api is a table as JSON, below /api/v1/. Its OpenAPI description is made from this value.
type api struct {
	path    string // such as instances/{name}
	summary string
	params  []param
	example any // a value of the type that it answers with
	data    func(ctx context.Context, q query) (any, error)
}

// param is a parameter of the query of an api.
type param struct{ name, about string }

// problem is an error with a status of HTTP, and what to do about it.
type problem struct {
	code       int
	text, hint string
}

func (p problem) Error() string { return p.text }

func notFound(text, hint string) problem { return problem{http.StatusNotFound, text, hint} }

// titled returns a function that always returns the same title.
func titled(text string) func(any) string { return func(any) string { return text } }

//go:embed templates static
var assets embed.FS

// pages returns the templates of all parts, and of the frame. They are parsed when a page is first asked for, so that
// commands without a page start sooner.
var pages = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(functions).ParseFS(assets, "templates/*.html"))
})

// functions are those of the templates.
var functions = template.FuncMap{
	"short":   short,
	"when":    func(t time.Time) template.HTML { return timeOf(t, "", "") },
	"since":   func(t time.Time) template.HTML { return timeOf(t, "for", "since ") },
	"until":   func(t time.Time) template.HTML { return timeOf(t, "until", "until ") },
	"share":   percent,
	"seconds": func(s float64) string { return strconv.FormatFloat(s, 'f', -1, 64) + " s" },
	"tenths":  func(s float64) string { return strconv.FormatFloat(s, 'f', 1, 64) },
	"add":     func(a, b int) int { return a + b },
	"clock":   func(t time.Time) string { return t.UTC().Format("15:04:05") },
	"day":     func(t time.Time) string { return t.UTC().Format(time.DateOnly) },
	"link":    link,
	"to":      func(path, name string) string { return path + "/" + url.PathEscape(name) },
	"plural":  plural,
	"join":    strings.Join,
	"column": func(l *routeList, by, title string) map[string]string {
		class := map[bool]string{true: "num"}[by == "errors" || by == "rate"]
		return map[string]string{"Title": title, "Sorted": l.Sorted(by), "Link": l.SortLink(by), "Class": class}
	},
	"ofForm": func(path, snapshot string) map[string]string {
		return map[string]string{"Path": path, "Snapshot": snapshot}
	},
	"step":     stepOf,
	"whole":    func(x float64) string { return thousands(x, 0) },
	"thousand": func(n int64) string { return thousands(float64(n), 0) },
}

// plural is a number of things.
func plural(n int, one, many string) string {
	if n == 1 {
		return fmt.Sprintf("%d %s", n, one)
	}
	return fmt.Sprintf("%d %s", n, many)
}

// thousands is a number with so many decimals, its digits in groups of three.
func thousands(x float64, decimals int) string {
	whole, rest, _ := strings.Cut(strconv.FormatFloat(x, 'f', decimals, 64), ".")
	for n := len(whole) - 3; n > 0 && whole[n-1] != '-'; n -= 3 {
		whole = whole[:n] + "," + whole[n:]
	}
	if rest != "" {
		whole += "." + rest
	}
	return whole
}

// short is the revision of a snapshot as people say it, such as r13, "" for none.
func short(id snapshots.ID) string {
	if id.IsZero() {
		return ""
	}
	return fmt.Sprintf("r%d", id.Revision)
}

// timeOf is a time as an element. A script makes "5 s ago", "for 5 s" or "in 5 s" of it, as its class
// says; without one, it is the time in UTC, after a word.
func timeOf(t time.Time, class, word string) template.HTML {
	if t.IsZero() {
		return ""
	}
	if class != "" {
		class = ` class="` + class + `"`
	}
	t = t.UTC()
	return template.HTML(fmt.Sprintf(`<time%s datetime="%s">%s%s</time>`, class, t.Format(time.RFC3339), word, t.Format(time.DateTime))) //nolint:gosec // of digits and constants
}

// link is an address within the page: a path and values of its query, of which empty ones are left out.
func link(path string, pairs ...string) string {
	values := url.Values{}
	for n := 0; n+1 < len(pairs); n += 2 {
		if pairs[n+1] != "" {
			values.Set(pairs[n], pairs[n+1])
		}
	}
	if len(values) == 0 {
		return path
	}
	return path + "?" + values.Encode()
}

// rendered is a part of a page.
type rendered struct {
	Name, Class string
	HTML        template.HTML
}

// renderPart executes the template of a part. It is what a page holds and what the stream sends.
func renderPart(p part, data any) (rendered, error) {
	var out bytes.Buffer
	if err := pages().ExecuteTemplate(&out, p.name, data); err != nil {
		return rendered{}, err
	}
	return rendered{p.name, p.class, template.HTML(strings.TrimSpace(out.String()))}, nil //nolint:gosec // html/template made it
}
