// Package schemas makes JSON Schemas of the Go types into which files are read, for tests that keep the
// published schemas up to date and compare them with what the programs accept. No program imports it.
package schemas

import (
	"bytes"
	"encoding"
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

// Draft is the version of JSON Schema, which Helm and editors know.
const Draft = "http://json-schema.org/draft-07/schema#"

// Schema is a JSON Schema.
type Schema map[string]any

// Maker makes schemas of types.
type Maker struct {
	// Describe returns the description of a field, or "".
	Describe func(owner reflect.Type, f reflect.StructField) string
	// Enum returns the values of a named type of texts, nil for any.
	Enum func(t reflect.Type) []string
	// Numeric reports whether a text of a type may be written as a whole number.
	Numeric func(t reflect.Type) bool
}

// Document returns the schema of a file with one object of a kind.
func (m Maker) Document(apiVersion, kind, title string, spec reflect.Type, defaults reflect.Value) Schema {
	return Schema{
		"$schema": Draft, "title": kind, "description": title, "type": "object", "additionalProperties": false,
		"required": []string{"apiVersion", "kind"},
		"properties": Schema{
			"apiVersion": Schema{"const": apiVersion}, "kind": Schema{"const": kind},
			"metadata": Schema{"type": "object", "additionalProperties": false, "properties": Schema{"name": Schema{"type": "string"}}},
			"spec":     m.Of(spec, defaults),
		},
	}
}

// File returns the schema of a file that is written as a type with apiVersion and kind.
func (m Maker) File(apiVersion, kind, title string, of reflect.Type) Schema {
	s := m.Of(of, reflect.Value{})
	s["$schema"], s["title"], s["description"] = Draft, kind, title
	s["required"] = []string{"apiVersion", "kind", "spec"}
	properties := s["properties"].(Schema) //nolint:forcetypeassert // as object makes it
	properties["apiVersion"], properties["kind"] = Schema{"const": apiVersion}, Schema{"const": kind}
	return s
}

// Of returns the schema of a type; defaults is a value of it, or the zero Value.
func (m Maker) Of(t reflect.Type, defaults reflect.Value) Schema {
	switch t {
	case reflect.TypeFor[metav1.Duration]():
		return Schema{"type": "string"}
	case reflect.TypeFor[intstr.IntOrString]():
		return Schema{"type": []string{"integer", "string"}}
	case reflect.TypeFor[time.Time]():
		return Schema{"type": "string", "format": "date-time"}
	}
	if t.Kind() != reflect.Pointer && t.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return Schema{"type": "string"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return m.Of(t.Elem(), reflect.Value{})
	case reflect.Struct:
		return m.object(t, defaults)
	case reflect.Map:
		return Schema{"type": "object", "additionalProperties": m.Of(t.Elem(), reflect.Value{})}
	case reflect.Slice:
		s := Schema{"type": "array", "items": m.Of(t.Elem(), reflect.Value{})}
		if defaults.IsValid() && t.Elem().Kind() == reflect.String {
			s["default"] = slices.AppendSeq([]any{}, func(yield func(any) bool) {
				for i := range defaults.Len() {
					yield(defaults.Index(i).String())
				}
			})
		}
		return s
	}
	s := m.scalar(t)
	if defaults.IsValid() && !defaults.IsZero() {
		s["default"] = defaults.Interface()
	}
	return s
}

func (m Maker) scalar(t reflect.Type) Schema {
	switch t.Kind() {
	case reflect.Bool:
		return Schema{"type": "boolean"}
	case reflect.Float64:
		return Schema{"type": "number"}
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return Schema{"type": "integer"}
	}
	s := Schema{"type": "string"}
	if m.Numeric != nil && m.Numeric(t) {
		s["type"] = []string{"string", "integer"}
	}
	if m.Enum != nil {
		if values := m.Enum(t); len(values) > 0 {
			s["enum"] = values
		}
	}
	return s
}

func (m Maker) object(t reflect.Type, defaults reflect.Value) Schema {
	properties := Schema{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if embedded := f.Type; f.Anonymous && name == "" {
			if embedded.Kind() == reflect.Pointer {
				embedded = embedded.Elem()
			}
			maps.Copy(properties, m.object(embedded, reflect.Value{})["properties"].(Schema)) //nolint:forcetypeassert // as below
			continue
		}
		if name == "-" || name == "" {
			continue
		}
		of := reflect.Value{}
		if defaults.IsValid() {
			of = defaults.Field(i)
		}
		s := m.Of(f.Type, of)
		if m.Describe != nil {
			if text := m.Describe(t, f); text != "" {
				s["description"] = text
			}
		}
		properties[name] = s
	}
	return Schema{"type": "object", "additionalProperties": false, "properties": properties}
}

// Published returns the file at path. With update it writes the file first. Otherwise the test fails unless the
// file is the schema.
func Published(tb testing.TB, s Schema, path string, update bool) {
	tb.Helper()
	want, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		tb.Fatal(err)
	}
	want = append(want, '\n')
	if update {
		if err := os.WriteFile(path, want, 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		tb.Errorf("%s is stale: run make generate", path)
	}
}

// Compiled returns the schema of a file, to validate with.
func Compiled(tb testing.TB, path string) *jsonschema.Schema {
	tb.Helper()
	s, err := jsonschema.NewCompiler().Compile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// Validate returns the errors of a YAML document against a schema.
func Validate(tb testing.TB, s *jsonschema.Schema, document []byte) error {
	tb.Helper()
	text, err := yaml.YAMLToJSON(document)
	if err != nil {
		tb.Fatalf("%v\n%s", err, document)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		tb.Fatal(err)
	}
	return s.Validate(value)
}

// Validated fails unless the published schema at path accepts a document, and refuses others.
func Validated(tb testing.TB, path string, good []byte, bad ...string) {
	tb.Helper()
	s := Compiled(tb, path)
	if err := Validate(tb, s, good); err != nil {
		tb.Errorf("%v\n%s", err, good)
	}
	for _, text := range bad {
		if Validate(tb, s, []byte(text)) == nil {
			tb.Errorf("the schema takes\n%s", text)
		}
	}
}

// Refused fails unless the published schema at path and the program both refuse each possible mistake below a
// schema. There must be a minimum number of mistakes. The program returns nil for what it accepts.
func Refused(tb testing.TB, s Schema, path string, head map[string]any, least int, program func(name string, text []byte) error) {
	tb.Helper()
	compiled, all := Compiled(tb, path), mistakesBelow(s, head)
	if len(all) < least {
		tb.Errorf("only %d mistakes", len(all))
	}
	for name, text := range all {
		refused := program(name, text)
		if err := Validate(tb, compiled, text); err == nil || refused == nil {
			tb.Errorf("%s: the schema says %v, the program %v\n%s", name, err, refused, text)
		}
	}
}

// mistakesBelow returns documents below a schema, by name, in which one value has a wrong type or is not in its
// enumeration, or one name is unknown. Each document begins with head.
func mistakesBelow(s Schema, head map[string]any) map[string][]byte {
	out := map[string][]byte{}
	mistakes(s, nil, func(name string, path []any, value any) {
		document := map[string]any{}
		for key, v := range head {
			document[key] = v
		}
		if path[0] == "spec" { // the others are in the head
			document["spec"] = nested(path[1:], value)
			text, err := yaml.Marshal(document)
			if err == nil {
				out[name] = text
			}
		}
	})
	return out
}

// nested puts a value below a path of names and, for elements of lists, numbers.
func nested(path []any, value any) any {
	if len(path) == 0 {
		return value
	}
	if name, ok := path[0].(string); ok {
		return map[string]any{name: nested(path[1:], value)}
	}
	return []any{nested(path[1:], value)}
}

func mistakes(s Schema, path []any, add func(name string, path []any, value any)) {
	at := func(what string) string {
		name := what + " at"
		for _, word := range path {
			if text, ok := word.(string); ok {
				name += "." + text
			} else {
				name += "[]"
			}
		}
		return name
	}
	below := func(word any) []any { return append(slices.Clone(path), word) }
	if len(path) > 0 {
		kinds, _ := s["type"].([]string)
		if kind, ok := s["type"].(string); ok {
			kinds = []string{kind}
		}
		for kind, value := range map[string]any{"object": map[string]any{"nonsense": 1}, "array": []any{map[string]any{}}, "string": "nonsense", "null": nil} {
			if !slices.Contains(kinds, kind) {
				add(at(kind), path, value)
			}
		}
		if s["enum"] != nil {
			add(at("no such value"), path, "nonsense")
		}
	}
	if properties, ok := s["properties"].(Schema); ok {
		if len(path) > 0 {
			add(at("unknown field"), below("nonsense"), 1)
		}
		for name, of := range properties {
			mistakes(of.(Schema), below(name), add)
		}
	}
	if items, ok := s["items"].(Schema); ok {
		mistakes(items, below(0), add)
	}
	if values, ok := s["additionalProperties"].(Schema); ok {
		mistakes(values, below("any"), add)
	}
}
