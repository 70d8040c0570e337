package config

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the document")

const (
	documentFile = "../../docs/reference/configuration.md"
	example      = "testdata/example.yaml"
)

func TestDocumentIsFresh(t *testing.T) {
	t.Parallel()
	want, err := writeDocument()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(documentFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(documentFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(got), want); diff != "" {
		t.Errorf("docs/reference/configuration.md is stale: run make generate (-is +should be)\n%s", diff)
	}
}

func TestExampleIsValid(t *testing.T) {
	t.Parallel()
	if _, _, found, err := Read(example); err != nil || len(found) > 0 {
		t.Error(err, found)
	}
}

const documentHead = `# The compiler's configuration

<!-- Generated from the code of compiler/config. The target generate of the Makefile writes it anew. -->

The flag ` + "`--config`" + ` names a file with one object of kind CompilerConfig. The compiler reads it strictly: an unknown field, a wrong type and an impossible value are errors with file, line and column. A field that is left out keeps its default, and a list replaces the default list. Flags win over the file.

The tables name each field by its path below ` + "`spec`" + `. ` + "`[]`" + ` stands for each element of a list, and ` + "`NAME`" + ` for each key of a map.

` + "```yaml\n"

// writeDocument returns the document: the example, the fields that stand by
// themselves, and a table for each section.
func writeDocument() (string, error) {
	comments, err := readComments(".", "agents", "field", "gateways", "kinds", "logs", "transport")
	if err != nil {
		return "", err
	}
	sample, err := os.ReadFile(example)
	if err != nil {
		return "", err
	}
	d := documentWriter{comments: comments}
	fmt.Fprintf(&d, "%s%s```\n", documentHead, sample)
	d.document(reflect.TypeFor[Config](), reflect.ValueOf(Default()))
	return d.String(), d.err()
}

// documentWriter writes tables of fields.
type documentWriter struct {
	strings.Builder
	comments comments
	missing  []string // fields without a comment
}

func (d *documentWriter) err() error {
	if len(d.missing) == 0 {
		return nil
	}
	return fmt.Errorf("fields without a comment: %s", strings.Join(d.missing, ", "))
}

// document writes a table of the fields without a section, and then a section for each of the others.
func (d *documentWriter) document(t reflect.Type, defaults reflect.Value) {
	fields := slices.Collect(t.Fields())
	d.head("General", "")
	for i, f := range fields {
		if section(f.Type) == nil {
			d.field(t, f, "", defaults.Field(i))
		}
	}
	for i, f := range fields {
		if section(f.Type) == nil {
			continue
		}
		d.head("`"+jsonName(f)+"`", d.comment(t, f))
		d.below(f.Type, jsonName(f), defaults.Field(i))
	}
}

func (d *documentWriter) head(title, text string) {
	fmt.Fprintf(d, "\n## %s\n\n", title)
	if text != "" {
		fmt.Fprintf(d, "%s\n\n", text)
	}
	d.WriteString("| field | value | default | what it is |\n|---|---|---|---|\n")
}

// section returns the struct that a field holds: itself, in a list or in a map. It returns nil for other
// fields.
func section(t reflect.Type) reflect.Type {
	switch t.Kind() {
	case reflect.Struct:
		return t
	case reflect.Slice, reflect.Map:
		return section(t.Elem())
	}
	return nil
}

// below writes the rows of the fields in a field. Elements of lists and maps have only the zero values as
// defaults.
func (d *documentWriter) below(t reflect.Type, path string, defaults reflect.Value) {
	switch t.Kind() {
	case reflect.Slice:
		d.below(t.Elem(), path+"[]", reflect.Zero(t.Elem()))
	case reflect.Map:
		d.below(t.Elem(), path+".NAME", reflect.Zero(t.Elem()))
	default:
		for i, f := range slices.Collect(t.Fields()) {
			d.field(t, f, path+".", defaults.Field(i))
		}
	}
}

// field writes the row of a field, and of the fields in it.
func (d *documentWriter) field(owner reflect.Type, f reflect.StructField, prefix string, standard reflect.Value) {
	d.row("`"+prefix+jsonName(f)+"`", d.value(f.Type), defaultText(standard), d.comment(owner, f))
	if section(f.Type) != nil {
		d.below(f.Type, prefix+jsonName(f), standard)
	}
}

func (d *documentWriter) row(cells ...string) {
	for i, c := range cells {
		cells[i] = strings.ReplaceAll(c, "|", `\|`)
	}
	d.WriteString("| " + strings.Join(cells, " | ") + " |\n")
}

// comment returns the comment of a field, with the name that users know.
func (d *documentWriter) comment(owner reflect.Type, f reflect.StructField) string {
	text := d.comments.fields[owner.Name()+"."+f.Name]
	if text == "" {
		d.missing = append(d.missing, owner.Name()+"."+f.Name)
	}
	rest, ok := strings.CutPrefix(text, f.Name+" ")
	if !ok {
		return text
	}
	for _, verb := range []string{"is ", "are "} {
		if what, ok := strings.CutPrefix(rest, verb); ok {
			return strings.ToUpper(what[:1]) + what[1:]
		}
	}
	return "`" + jsonName(f) + "` " + rest
}

// value describes what a type accepts.
func (d *documentWriter) value(t reflect.Type) string {
	if text := d.comments.values[t.Name()]; text != "" {
		return text
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return "fields"
	case reflect.Slice:
		return "a list, each " + d.value(t.Elem())
	}
	return wanted(t.Kind())
}

// defaultText writes a default as in YAML, "" for an empty one.
func defaultText(v reflect.Value) string {
	switch {
	case v.Kind() == reflect.Struct || v.Kind() == reflect.Map || v.Kind() == reflect.Slice && section(v.Type()) != nil:
		return ""
	case v.Kind() == reflect.Slice:
		items := make([]string, v.Len())
		for i := range items {
			items[i] = fmt.Sprintf("%q", v.Index(i))
		}
		return "`[" + strings.Join(items, ", ") + "]`"
	case v.Kind() == reflect.String && v.Len() == 0:
		return ""
	}
	return fmt.Sprintf("`%v`", v)
}

func jsonName(f reflect.StructField) string { return f.Tag.Get("json") }

// The document includes fields in lists and maps, and finds a field without a comment.
func TestDocumentOfNestedFields(t *testing.T) {
	t.Parallel()
	type inner struct {
		Port int `json:"port"`
	}
	type outer struct {
		Name string           `json:"name"`
		List []inner          `json:"list"`
		Map  map[string]inner `json:"map"`
	}
	d := documentWriter{comments: comments{fields: map[string]string{
		"outer.Name": "Name is a|b.", "outer.List": "What is listed.", "inner.Port": "Port says one.",
	}}}
	d.document(reflect.TypeFor[outer](), reflect.ValueOf(outer{Name: "x"}))
	const table = "| field | value | default | what it is |\n|---|---|---|---|\n"
	want := "\n## General\n\n" + table + "| `name` | a text | `x` | A\\|b. |\n" +
		"\n## `list`\n\nWhat is listed.\n\n" + table + "| `list[].port` | a number | `0` | `port` says one. |\n" +
		"\n## `map`\n\n" + table + "| `map.NAME.port` | a number | `0` | `port` says one. |\n"
	if diff := cmp.Diff(want, d.String()); diff != "" {
		t.Error(diff)
	}
	if err := d.err(); err == nil || err.Error() != "fields without a comment: outer.Map" {
		t.Errorf("got %v, want that outer.Map has no comment", err)
	}
}
