package ui

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hapsnap/hapsnap/internal/testing/eventually"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/request"
)

// An answer names the objects and fields that wrote its lines, but only for lines that the objects still write.
// Otherwise it says why not.
func TestOriginsOfLines(t *testing.T) {
	t.Parallel()
	s := shop(1)
	ask := func(origins func(context.Context, Question) ([]Wrote, error)) string {
		h := server(t, Source{Channel: "edge", Fleet: shopFleet(s.ID()), Store: storeOf(s), Origins: origins}).Handler()
		var body string
		eventually.Holds(t, "the objects have answered", func() bool {
			_, body = get(t, h, "/routes?method=POST&host=shop.example.com&path=/cart/&headers=X-A:+b")
			return !strings.Contains(body, "is being asked")
		})
		return body
	}
	var plain answered
	if _, body := get(t, shopPage(t), "/api/v1/answer?host=shop.example.com&path=/cart/"); json.Unmarshal([]byte(body), &plain) != nil || len(plain.Lines) == 0 {
		t.Fatal(body)
	}
	l := plain.Lines[len(plain.Lines)-1]
	body := ask(func(_ context.Context, q Question) ([]Wrote, error) {
		if q.Method != "POST" || q.URL != "https://shop.example.com/cart/" || len(q.Headers) != 1 || q.Headers[0] != "X-A=b" {
			t.Errorf("asked for %+v", q)
		}
		return []Wrote{
			{Line: l, Origins: []Origin{{Kind: "Ingress", Namespace: "shop", Name: "web", Field: "spec.rules[0]", File: "manifests/web.yaml", LineNumber: 15}, {Kind: "Ingress", Name: evil}}},
			{Line: request.Line{File: l.File, Line: l.Line, Text: "another text"}, Origins: []Origin{{Kind: "Ingress", Name: "of-another-line"}}},
		}, nil
	})
	text := strings.Join(strings.Fields(plainText(body)), " ")
	for _, want := range []string{l.Text + " from Ingress shop/web spec.rules[0] manifests/web.yaml:15", "The objects are those of now"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	if strings.Contains(text, "of-another-line") {
		t.Errorf("an object of another line: %s", text)
	}
	if strings.Contains(body, "<script>") || strings.Contains(body, "<img") || !strings.Contains(text, "<img src=x") {
		t.Errorf("a name is a part of the page: %s", body)
	}
	body = ask(func(context.Context, Question) ([]Wrote, error) {
		return nil, errors.New("web.yaml:7: <b>not</b> valid")
	})
	if !strings.Contains(body, "cannot be told: web.yaml:7: &lt;b&gt;not") {
		t.Errorf("the error is not said: %s", plainText(body))
	}
}

// A hunk names the objects and fields that wrote the added lines if the objects still write them. Otherwise the
// page says why not.
func TestCausesOfHunks(t *testing.T) {
	t.Parallel()
	store, _ := told(t)
	ask := func(lines func(context.Context, []string) ([]Wrote, error)) string {
		h := server(t, Source{Fleet: says(oneInstance()), Store: store, Lines: lines}).Handler()
		var body string
		eventually.Holds(t, "the objects have answered", func() bool {
			_, body = get(t, h, "/diff?a=r2&b=r3")
			return !strings.Contains(body, "is being asked")
		})
		return strings.Join(strings.Fields(plainText(body)), " ")
	}
	wrote := func(text string) func(context.Context, []string) ([]Wrote, error) {
		return func(_ context.Context, places []string) ([]Wrote, error) {
			if !slices.Equal(places, []string{"maps/prefix.map:2"}) {
				t.Errorf("asked for %v", places)
			}
			return []Wrote{{request.Line{File: "maps/prefix.map", Line: 2, Text: text}, []Origin{{Kind: "Ingress", Namespace: "team2", Name: "api", Field: "spec.rules[0].http.paths[0]", File: "manifests/api.yaml", LineNumber: 9}}}}, nil
		}
	}
	const cause = "Ingress team2/api · spec.rules[0].http.paths[0] · manifests/api.yaml:9"
	if page := ask(wrote("team2.example.com|/ team2_api")); !strings.Contains(page, cause) {
		t.Errorf("no cause in %s", page)
	}
	if page := ask(wrote("what the objects write by now")); strings.Contains(page, cause) || !strings.Contains(page, "team2.example.com|/ team2_api") {
		t.Errorf("a cause of another line in %s", page)
	}
	if page := ask(func(context.Context, []string) ([]Wrote, error) { return nil, errors.New("web.yaml:7: not valid") }); !strings.Contains(page, "Which fields wrote the lines cannot be told: web.yaml:7: not valid") {
		t.Errorf("the error is not said: %s", page)
	}
}

// The list of routes names the objects that wrote its lines, but only for lines that the objects still write. One
// question is asked for a page. Otherwise the page says why not.
func TestObjectsOfRoutes(t *testing.T) {
	t.Parallel()
	s := shop(1)
	ask := func(want string, lines func(context.Context, []string) ([]Wrote, error)) string {
		h := server(t, Source{Channel: "edge", Fleet: shopFleet(s.ID()), Store: storeOf(s), Lines: lines}).Handler()
		return getWith(t, h, "/routes?q=shop.example.com", want)
	}
	var asked atomic.Int32
	body := ask("Ingress shop/web manifests/web.yaml:15", func(_ context.Context, places []string) (wrote []Wrote, _ error) {
		asked.Add(1)
		for i, p := range places {
			file, line, text := lineOf(t, s, p)
			by := []Origin{{Kind: "Ingress", Namespace: "shop", Name: "web", Field: "spec.rules[0]", File: "manifests/web.yaml", LineNumber: 15}, {Kind: "Ingress", Name: evil}}
			if i == 0 {
				text, by = "what the objects write by now", []Origin{{Kind: "Ingress", Name: "of-another-line"}}
			}
			wrote = append(wrote, Wrote{request.Line{File: file, Line: line, Text: text}, by})
		}
		return wrote, nil
	})
	if n := asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
	if strings.Contains(body, "of-another-line") || strings.Contains(body, "<script>") || strings.Contains(body, "<img") {
		t.Errorf("got %s", body)
	}
	ask("Which objects wrote the lines cannot be told: web.yaml:7: not valid", func(context.Context, []string) ([]Wrote, error) {
		return nil, errors.New("web.yaml:7: not valid")
	})
	ask("cannot be told: 1 lines were explained of 3", func(context.Context, []string) ([]Wrote, error) { return make([]Wrote, 1), nil })
	if _, page := get(t, shopPage(t), "/routes"); strings.Contains(page, ">object</th>") {
		t.Error("there is a column of objects where nobody knows them")
	}
}

// lineOf returns the line of a snapshot at FILE:LINE.
func lineOf(t *testing.T, s snapshots.Snapshot, place string) (file string, line int, text string) {
	t.Helper()
	file, number, _ := strings.Cut(place, ":")
	line, _ = strconv.Atoi(number)
	for _, f := range s.Files {
		if lines := strings.Split(string(f.Content), "\n"); f.Path == file && line > 0 && line <= len(lines) {
			return file, line, lines[line-1]
		}
	}
	t.Fatalf("there is no line %s", place)
	return "", 0, ""
}
