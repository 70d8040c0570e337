package manifests

import (
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/json"
	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// unknownField describes a strict error of the decoder, and says which fields
// there are in that place.
func (o Object) unknownField(err error, t reflect.Type) FieldError {
	var named json.FieldError
	if !errors.As(err, &named) {
		return FieldError{Message: err.Error(), Position: o.Position()}
	}
	path, key := parsePath(o.node, named.FieldPath())
	out := FieldError{Path: FieldPath(path), Message: "is not a known field", Position: o.Position(path...)}
	if key != nil {
		out.Position = o.place.at(key)
	}
	if names := fieldNames(t, path); len(names) > 0 {
		out.Hint = "the fields here are " + strings.Join(names, ", ")
	}
	return out
}

// parsePath splits a path of the decoder, in which the names of fields may hold
// dots and brackets themselves, along the fields that the node has. It also
// returns the key at the end of the path.
func parsePath(n *yaml.Node, s string) (path []any, key *yaml.Node) {
	for s != "" {
		s = strings.TrimPrefix(s, ".")
		if number, rest, ok := strings.Cut(s, "]"); ok && s[0] == '[' {
			i, err := strconv.Atoi(number[1:])
			if _, item := child(n, i); err == nil && item != nil {
				path, n, key, s = append(path, i), item, nil, rest
				continue
			}
		}
		name := longestField(n, s)
		if name == "" {
			return append(path, s), nil
		}
		k, value := field(n, name)
		path, n, key, s = append(path, name), value, k, s[len(name):]
	}
	return path, key
}

// longestField returns the longest name of a field with which the path s starts.
func longestField(n *yaml.Node, s string) string {
	longest := ""
	for i := 0; n != nil && n.Kind == yaml.MappingNode && i < len(n.Content); i += 2 {
		name := n.Content[i].Value
		rest, ok := strings.CutPrefix(s, name)
		if ok && len(name) > len(longest) && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			longest = name
		}
	}
	return longest
}

// fieldNames returns the names that the last step of a path could have, sorted,
// or nil if the path does not lead into a struct.
func fieldNames(t reflect.Type, path []any) []string {
	for i, step := range path {
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		switch {
		case t.Kind() == reflect.Slice || t.Kind() == reflect.Map:
			t = t.Elem()
		case t.Kind() != reflect.Struct:
			return nil
		default:
			fields := jsonFields(t, map[string]reflect.Type{})
			if i == len(path)-1 {
				return sortedKeys(fields)
			}
			name, _ := step.(string)
			if t = fields[name]; t == nil {
				return nil
			}
		}
	}
	return nil
}

// jsonFields adds the fields of a struct, by their names in JSON.
func jsonFields(t reflect.Type, into map[string]reflect.Type) map[string]reflect.Type {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && (name == "" || options == "inline") && f.Type.Kind() == reflect.Struct:
			jsonFields(f.Type, into)
		case name != "" && name != "-":
			into[name] = f.Type
		}
	}
	return into
}

func sortedKeys(m map[string]reflect.Type) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
