package ui

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/hapsnap/hapsnap/internal/printable"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/snapshots"
)

// header is the top of every page.
type header struct {
	Channel   string
	Condition report.Condition
	Status    report.Status
	Trouble   string // why the page shows nothing newer
	At        time.Time
	Tabs      []tabLink
}

// tabLink is a tab in the navigation.
type tabLink struct {
	Path, Title string
	Count       int
	Current     bool
}

// frameParts are the parts of the frame, which is on every page.
var frameParts = []part{{name: "head"}, {name: "nav"}}

// Mark shows the condition with a shape and a word, for people who do not see colours.
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

// Class is the class of the condition in the style sheet.
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

// Says is the message of the condition. It leaves out the name of the snapshot, which stands before it.
func (h header) Says() string {
	return strings.TrimPrefix(h.Condition.Message, h.Status.Channel.Wanted.String()+": ")
}

// Stale reports whether the page shows an old state.
func (h header) Stale() bool { return h.Trouble != "" || h.Status.Stale }

// Pinned reports whether a person decided what runs.
func (h header) Pinned() bool {
	because := string(h.Status.Channel.Because)
	return because == "pin" || because == "override"
}

// Paused reports whether rollouts are paused.
func (h header) Paused() bool {
	return string(h.Status.Channel.Because) == "pause" || h.Status.Rollout != nil && h.Status.Rollout.Paused != ""
}

// address is a page, with the values of the path and query that a viewer asked for.
type address struct {
	tab  *tab
	page *page
	r    *http.Request
}

// made is a page that was made.
type made struct {
	title string
	code  int
	parts []rendered // the parts of the frame come first
	waits bool       // set while the page waits for a reading: viewers keep the parts that they have, except the frame
}

// query returns the query of an address, with what is known now.
func (s *Server) query(a address) query {
	q := query{now: time.Now(), source: s.source, archive: s.archive, compiler: s.compiler, health: s.health, origins: s.origins, lines: s.lines, thinking: s.thinking, path: a.r.PathValue, values: a.r.URL.Query(), address: a.r.URL.RequestURI()}
	if s.source.Fleet != nil {
		q.fleet = s.withLeader(s.source.Fleet())
	}
	if q.fleet.Live != nil { // a pusher that hangs publishes nothing newer
		q.fleet.Status = q.fleet.Status.AsOf(q.now, report.FreshState)
	}
	return q
}

// make makes the parts of a page. If its data cannot be read, one part says why.
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

// problemOf returns what a page says about an error.
func problemOf(err error) problem {
	if p, ok := err.(problem); ok { //nolint:errorlint // it is returned as it is
		return p
	}
	return problem{http.StatusServiceUnavailable, report.FirstLine(strings.TrimSpace(err.Error()), report.LongestMessage), "Reload the page to try again. The fleet does not wait for this."}
}

// tab is a tab of the navigation.
type tab struct {
	path  string // of its page, such as /history
	title string
	// count returns the number beside the title, 0 for none. It is nil for a tab without a number.
	count func(q query) int
	pages []page
	apis  []api
}

// tabs are the tabs of the navigation, in order. Each has a file of its own.
func tabs() []tab {
	return []tab{fleetTab(), historyTab(), routesTab(), leftOutTab(), certificatesTab()}
}

// page is the page of one pattern of addresses.
type page struct {
	path  string // a pattern of [http.ServeMux], without a method
	title func(data any) string
	parts []part
	// data returns what the templates of the parts get. An error may be a [problem]. It has until ctx is done. If
	// live is set, it is called again after each change while somebody looks.
	data func(ctx context.Context, q query) (any, error)
	live bool
}

// part is a part of a page, which the stream can replace. Its template has the same name. An empty part is not shown.
type part struct {
	name  string // also the id of the element
	class string // wide takes the whole width
}

// query is what a viewer asks for, with what is known at the time.
type query struct {
	now      time.Time
	fleet    Fleet
	source   Source
	archive  *archive
	compiler *compiler
	health   *inquiries[string, map[netip.AddrPort]seen]
	origins  *inquiries[asking, said]
	lines    *inquiries[string, said]
	thinking chan struct{}            // held during a search of routes
	path     func(name string) string // the value of a wildcard of the pattern
	values   url.Values
	address  string // the path and query of the page
}

// think waits until a search may use a processor: only one search runs at a time, as the pusher needs processors too.
// A caller that does not wait is let through at once; the only one is the renderer.
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
	example any // a value of the type of the answer
	data    func(ctx context.Context, q query) (any, error)
}

// param is a parameter of the query of an api.
type param struct{ name, about string }

// problem is an error with a status code of HTTP, and with advice.
type problem struct {
	code       int
	text, hint string
}

func (p problem) Error() string { return p.text }

func notFound(text, hint string) problem { return problem{http.StatusNotFound, text, hint} }

func titled(text string) func(any) string { return func(any) string { return text } }

//go:embed templates static
var assets embed.FS

// pages returns the templates of all parts and of the frame. They are parsed for the first page, so that commands
// without a page start faster.
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

// plural is a number and its noun.
func plural(n int, one, many string) string {
	if n == 1 {
		return fmt.Sprintf("%d %s", n, one)
	}
	return fmt.Sprintf("%d %s", n, many)
}

// thousands formats a number with this many decimals, and its digits in groups of three.
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

// short is the revision of a snapshot, such as r13, "" for none.
func short(id snapshots.ID) string {
	if id.IsZero() {
		return ""
	}
	return fmt.Sprintf("r%d", id.Revision)
}

// timeOf is a time as an element. A script replaces it by "5 s ago", "for 5 s" or "in 5 s", as the class says.
// Without a class, it is the time in UTC after a word.
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

// link is an address of the page: a path, and a query without its empty values.
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

// renderPart executes the template of a part. Pages and streams both use it.
func renderPart(p part, data any) (rendered, error) {
	var out bytes.Buffer
	if err := pages().ExecuteTemplate(readable{&out}, p.name, data); err != nil {
		return rendered{}, err
	}
	return rendered{p.name, p.class, template.HTML(strings.TrimSpace(out.String()))}, nil //nolint:gosec // html/template made it
}

// readable writes HTML, and escapes the characters that html/template leaves and nobody sees: control characters, and
// those that turn the text after them around or hide. Otherwise the text of a tenant, or the name of an author, could
// make a line read as another one. It gets whole characters, as html/template writes whole texts.
type readable struct{ io.Writer }

func (w readable) Write(html []byte) (int, error) {
	out := html
	if i := bytes.IndexFunc(html, unseen); i >= 0 {
		out = append([]byte{}, html[:i]...)
		for _, r := range string(html[i:]) {
			if unseen(r) {
				out = append(out, printable.Text(string(r))...)
			} else {
				out = utf8.AppendRune(out, r)
			}
		}
	}
	_, err := w.Writer.Write(out)
	return len(html), err
}

// unseen reports whether a character is shown as nothing, or only changes what others look like. Line ends and tabs
// belong to the page.
func unseen(r rune) bool {
	return r != '\n' && r != '\t' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}
