package fleet

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

// The reference has every field of the file.
func TestFieldsAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/reference/fleet.md")
	if err != nil {
		t.Fatal(err)
	}
	names := fieldsOf(reflect.TypeFor[spec]())
	if len(names) < 15 {
		t.Fatalf("only the fields %q were found", names)
	}
	for _, name := range names {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/reference/fleet.md does not name the field `%s`", name)
		}
	}
}

// fieldsOf returns the names of all of our fields in a type. Kubernetes documents those of its own types.
func fieldsOf(t reflect.Type) []string {
	switch {
	case t.Kind() == reflect.Slice || t.Kind() == reflect.Pointer:
		return fieldsOf(t.Elem())
	case t.Kind() != reflect.Struct || strings.HasPrefix(t.PkgPath(), "k8s.io/"):
		return nil
	}
	var names []string
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		names = append(names, name)
		names = append(names, fieldsOf(t.Field(i).Type)...)
	}
	return names
}
