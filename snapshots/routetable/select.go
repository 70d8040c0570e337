package routetable

import (
	"slices"
	"strings"
)

// Query says which routes of a table are wanted.
type Query struct {
	// Text are words. A route has all of them: in its host, its path, its conditions, or in its backends' names,
	// Services and options. Upper and lower case are the same.
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

// Words returns those of a text, each once and in lower case.
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

// has reports whether a route has all words. What is known of a backend is remembered for each word.
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

// contains is quick where there is nothing in upper case.
func contains(text, word string) bool { return strings.Contains(strings.ToLower(text), word) }
