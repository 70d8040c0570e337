package ui

import (
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"context"
)

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

// api is a table as JSON, below /api/v1/. It is described in OpenAPI by what is here.
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

// titled returns the same title for whatever is shown.
func titled(text string) func(any) string { return func(any) string { return text } }
