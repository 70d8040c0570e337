package ui

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
)

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
