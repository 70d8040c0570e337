package ui

import (
	"cmp"
	"encoding/json"
	"flag"
	"maps"
	"net/http"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/internal/testing/schemas"
)

var update = flag.Bool("update", false, "write the description of the JSON anew")

// openAPI is the OpenAPI 3.1 description of the tables of all tabs.
func openAPI() schemas.Schema {
	text := schemas.Schema{"type": "string"}
	paths := schemas.Schema{}
	for _, t := range tabs() {
		for _, a := range t.apis {
			params := []schemas.Schema{}
			for piece := range strings.SplitSeq(a.path, "/") {
				if name, ok := strings.CutPrefix(piece, "{"); ok {
					params = append(params, schemas.Schema{"name": strings.TrimSuffix(name, "}"), "in": "path", "required": true, "schema": text})
				}
			}
			for _, p := range a.params {
				params = append(params, schemas.Schema{"name": p.name, "in": "query", "description": p.about, "schema": text})
			}
			content := func(kind string, of schemas.Schema) schemas.Schema {
				return schemas.Schema{kind: schemas.Schema{"schema": of}}
			}
			paths["/api/v1/"+a.path] = schemas.Schema{"get": schemas.Schema{
				"summary": a.summary, "parameters": params, "responses": schemas.Schema{
					"200":     schemas.Schema{"description": a.summary, "content": content("application/json", open(answerOf(a)))},
					"default": schemas.Schema{"description": "Why there is no answer", "content": content("application/problem+json", schemas.Schema{"$ref": "#/components/schemas/Problem"})},
				},
			}}
		}
	}
	return schemas.Schema{
		"openapi": "3.1.0", "paths": paths,
		"info":       schemas.Schema{"title": "The page of a fleet", "version": "v1", "description": "Answers may have more fields than are described here: newer versions add some."},
		"components": schemas.Schema{"schemas": schemas.Schema{"Problem": schemas.Schema{"type": "object", "properties": schemas.Schema{"status": schemas.Schema{"type": "integer"}, "title": text, "detail": text}}}},
	}
}

// answerOf is the schema of an api's answer.
func answerOf(a api) schemas.Schema {
	return schemas.Maker{}.Of(reflect.TypeOf(a.example), reflect.Value{})
}

// open returns a schema that allows additional fields.
func open(s schemas.Schema) schemas.Schema {
	out := schemas.Schema{}
	for k, v := range s {
		switch v := v.(type) {
		case schemas.Schema:
			out[k] = open(v)
		case bool:
		default:
			out[k] = v
		}
	}
	return out
}

func TestOpenAPIIsFresh(t *testing.T) {
	t.Parallel()
	schemas.Published(t, openAPI(), "openapi.json", *update)
}

// Each answer has exactly the fields of the description.
func TestAnswersAreAsDescribed(t *testing.T) {
	t.Parallel()
	source, ids := poisoned(t)
	h := server(t, source).Handler()
	asked := map[string]string{
		"instances/{name}": "instances/edge-1", "snapshots/{name}": "snapshots/head", "diff": link("diff", "a", ids[0].String(), "b", ids[1].String()), "answer": "answer?host=shop.example.com&path=/cart",
	}
	for _, tab := range tabs() {
		for _, a := range tab.apis {
			file, answers := filepath.Join(t.TempDir(), "answer.json"), 0
			schemas.Published(t, answerOf(a), file, true)
			for _, from := range []http.Handler{h, shopPage(t)} {
				code, body := get(t, from, "/api/v1/"+cmp.Or(asked[a.path], a.path))
				if code != http.StatusOK {
					continue
				}
				answers++
				if err := schemas.Validate(t, schemas.Compiled(t, file), []byte(body)); err != nil {
					t.Errorf("%s: %v\n%s", a.path, err, body)
				}
			}
			if answers == 0 {
				t.Errorf("%s is not answered", a.path)
			}
		}
	}
	var served struct{ Paths map[string]any }
	if _, body := get(t, h, "/api/v1/openapi.json"); json.Unmarshal([]byte(body), &served) != nil || len(served.Paths) < 11 {
		t.Errorf("described are %v", slices.Collect(maps.Keys(served.Paths)))
	}
	if code, body := get(t, h, "/api/v1/snapshots/r99"); code != http.StatusNotFound || !strings.Contains(body, `"detail":`) {
		t.Errorf("%d: %s", code, body)
	}
}
