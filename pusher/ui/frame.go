package ui

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/pusher/report"
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

func (s *Server) header(q query, current string) header {
	h := header{
		Channel: q.source.Channel, Status: q.fleet.Status, Condition: q.fleet.Status.Condition(), Trouble: q.fleet.Trouble, At: q.fleet.At,
	}
	for _, t := range s.tabs {
		l := tabLink{Path: t.path, Title: t.title, Current: t.path == current}
		if t.count != nil {
			l.Count = t.count(q)
		}
		h.Tabs = append(h.Tabs, l)
	}
	return h
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
	h := s.header(q, a.tab.path)
	for _, p := range frameParts {
		add(p, h)
	}
	data, err := a.page.data(ctx, q)
	if err != nil {
		says := problemOf(err)
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
