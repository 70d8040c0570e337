package inputs

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// contentFields are the fields of an object as field selectors see them: one that
// is not there is empty.
type contentFields map[string]any

// Has is that of [k8s.io/apimachinery/pkg/fields.Fields].
func (c contentFields) Has(field string) bool { return c.Get(field) != "" }

// Get returns the text of a field with a plain value, or "".
func (c contentFields) Get(field string) string {
	value, _ := lookup(c, strings.Split(field, "."))
	text, _ := scalar(value)
	return text
}

// lookup returns the value at a path of names, and whether there is one.
func lookup(content map[string]any, path []string) (any, bool) {
	var at any = content
	for _, name := range path {
		m, ok := at.(map[string]any)
		if !ok {
			return nil, false
		}
		if at, ok = m[name]; !ok {
			return nil, false
		}
	}
	return at, true
}

// scalar returns the text of a plain value of an object's content, as it is
// written in YAML, and whether it is one.
func scalar(value any) (string, bool) {
	switch v := value.(type) {
	case string:
		return v, true
	case bool, int64:
		return fmt.Sprint(v), true
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), true
	}
	return "", false
}

// EachField calls do for every plain value of an object's content that its author
// chose, in the order of names and elements: all but what objects are known by,
// which stands in too many places to tell anything. The path must not be kept.
func EachField(content map[string]any, do func(path []any, text string)) {
	for _, name := range slices.Sorted(maps.Keys(content)) {
		switch name {
		case "apiVersion", "kind":
		case "metadata":
			for _, part := range []string{"annotations", "labels"} {
				value, _ := lookup(content, []string{name, part})
				eachScalar(value, []any{name, part}, do)
			}
		default:
			eachScalar(content[name], []any{name}, do)
		}
	}
}

func eachScalar(value any, path []any, do func(path []any, text string)) {
	switch v := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			eachScalar(v[name], append(path, name), do)
		}
	case []any:
		for i, element := range v {
			eachScalar(element, append(path, i), do)
		}
	default:
		if text, ok := scalar(v); ok {
			do(path, text)
		}
	}
}
