package ui

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/snapshots/request"
)

// An answer names the objects and fields that wrote its lines, those lines alone that the objects still write, or
// says why not.
func TestOriginsOfLines(t *testing.T) {
	t.Parallel()
	s := shop(1)
	ask := func(origins func(context.Context, Question) ([]Wrote, error)) string {
		h := server(t, Source{Channel: "edge", Fleet: shopFleet(s.ID()), Store: storeOf(s), Origins: origins}).Handler()
		var body string
		eventually(t, func() bool {
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

// A hunk names the objects and fields that wrote what came, where the objects still write it, or the page says why not.
func TestCausesOfHunks(t *testing.T) {
	t.Parallel()
	store, _ := told(t)
	ask := func(line func(context.Context, string, int) (Wrote, error)) string {
		h := server(t, Source{Fleet: says(oneInstance()), Store: store, Line: line}).Handler()
		var body string
		eventually(t, func() bool {
			_, body = get(t, h, "/diff?a=r2&b=r3")
			return !strings.Contains(body, "is being asked")
		})
		return strings.Join(strings.Fields(plainText(body)), " ")
	}
	wrote := func(text string) func(context.Context, string, int) (Wrote, error) {
		return func(_ context.Context, file string, line int) (Wrote, error) {
			if file != "maps/prefix.map" || line != 2 {
				t.Errorf("asked for %s:%d", file, line)
			}
			return Wrote{request.Line{File: file, Line: line, Text: text}, []Origin{{Kind: "Ingress", Namespace: "team2", Name: "api", Field: "spec.rules[0].http.paths[0]", File: "manifests/api.yaml", LineNumber: 9}}}, nil
		}
	}
	const cause = "Ingress team2/api · spec.rules[0].http.paths[0] · manifests/api.yaml:9"
	if page := ask(wrote("team2.example.com|/ team2_api")); !strings.Contains(page, cause) {
		t.Errorf("no cause in %s", page)
	}
	if page := ask(wrote("what the objects write by now")); strings.Contains(page, cause) || !strings.Contains(page, "team2.example.com|/ team2_api") {
		t.Errorf("a cause of another line in %s", page)
	}
	if page := ask(func(context.Context, string, int) (Wrote, error) { return Wrote{}, errors.New("web.yaml:7: not valid") }); !strings.Contains(page, "Which fields wrote the lines cannot be told: web.yaml:7: not valid") {
		t.Errorf("the error is not said: %s", page)
	}
}
