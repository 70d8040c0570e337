package manifests

import (
	"cmp"
	"encoding/base64"
	stdjson "encoding/json"
	"errors"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/json"
	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/hapsnap/hapsnap/internal/process"
)

// FieldError is a field that does not fit the type of its object. The message
// never holds the value, which may be secret.
type FieldError struct {
	Path     string // such as spec.rules[0].host
	Position Position
	Message  string // what is wrong with the field: "is not a known field"
	Hint     string
}

// Error returns the path and the message.
func (e FieldError) Error() string { return strings.TrimSpace(e.Path + " " + e.Message) }

// maxTypeErrors and searchedBytes bound the search for wrong types, which takes many decodings: in a large
// object Decode looks for fewer, but for at least one.
const (
	maxTypeErrors = 10
	searchedBytes = 1 << 20
)

// Decode stores the object in the value that into points to, a type of k8s.io/api, as strictly as the
// API server with fieldValidation=Strict: names are case-sensitive, and a field that is unknown, given
// twice or of the wrong type is an error. The errors are sorted by position. If there are any, the
// value holds only those parts of the object that fit.
func (o Object) Decode(into any) []FieldError {
	found := o.duplicates(o.node, nil, nil)
	omit := map[*yaml.Node]bool{}
	data := encode(o.node)
	strict, err := json.UnmarshalStrict(data, into, json.DisallowUnknownFields)
	for range min(maxTypeErrors, 1+searchedBytes/len(data)) {
		if err == nil {
			break
		}
		fieldError, culprit := o.blame(into, omit)
		found = append(found, fieldError)
		omit[culprit] = true
		e := encoder{limit: 1 << 30, omit: omit}
		e.value(o.node)
		rest := reflect.New(reflect.TypeOf(into).Elem())
		strict, err = json.UnmarshalStrict(e.out, rest.Interface(), json.DisallowUnknownFields)
		reflect.ValueOf(into).Elem().Set(rest.Elem())
	}
	for _, s := range strict {
		found = append(found, o.unknownField(s, reflect.TypeOf(into)))
	}
	slices.SortStableFunc(found, func(a, b FieldError) int { return a.Position.Compare(b.Position) })
	return found
}

// blame finds the first node that does not fit. In a type that decodes itself, the decoder does not say where
// it was. But decoding the first n nodes fails if they include the culprit, so a binary search finds it.
func (o Object) blame(into any, omit map[*yaml.Node]bool) (FieldError, *yaml.Node) {
	t := reflect.TypeOf(into).Elem()
	try := func(limit int) (encoder, error) {
		e := encoder{limit: limit, omit: omit}
		e.value(o.node)
		_, err := json.UnmarshalStrict(e.out, reflect.New(t).Interface(), json.DisallowUnknownFields)
		return e, err
	}
	whole, _ := try(1 << 30)
	n := sort.Search(whole.written-1, func(i int) bool { _, err := try(i + 1); return err != nil })
	e, err := try(n + 1)
	message, hint := typeMessage(e.last, err)
	return FieldError{Path: FieldPath(e.lastPath), Position: o.Position(e.lastPath...), Message: message, Hint: hint}, e.last
}

// typeMessage says what a decoding error means for the node that caused it.
func typeMessage(n *yaml.Node, err error) (message, hint string) {
	var (
		wrong  *stdjson.UnmarshalTypeError
		base   base64.CorruptInputError
		aTime  *time.ParseError
		isType = errors.As(err, &wrong)
	)
	switch {
	case errors.As(err, &base):
		return "is not base64", "use stringData for plain text"
	case errors.As(err, &aTime):
		return "is not a time", "write it like 2024-05-06T07:08:09Z"
	case !isType:
		return "has a value of a form that its type does not take", ""
	}
	want := wantOf(wrong.Type)
	switch {
	case strings.HasPrefix(wrong.Value, "number ") && want == "a whole number" && isWhole(n.Value):
		return "is out of range", ""
	case want == "a string" && n.Kind == yaml.ScalarNode:
		hint = "put the value in quotes"
	}
	return "is " + kindOf(n) + ", not " + want, hint
}

// isWhole reports whether s is written as an integer.
func isWhole(s string) bool {
	return strings.Trim(strings.TrimPrefix(s, "-"), "0123456789") == ""
}

// wantOf describes in words what a field of a Go type holds.
func wantOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return "a base64 string"
		}
		return "a list"
	case reflect.Map, reflect.Struct:
		return "a mapping"
	case reflect.Float32, reflect.Float64:
		return "a number"
	}
	return "a whole number"
}

// duplicates finds the first fields that are given twice. The object is left out, however many there are.
func (o Object) duplicates(n *yaml.Node, path []any, found []FieldError) []FieldError {
	if n.Kind == yaml.SequenceNode {
		for i, item := range n.Content {
			found = o.duplicates(item, append(path, i), found)
		}
	}
	if n.Kind != yaml.MappingNode {
		return found
	}
	earlier := keyIndex{content: n.Content}
	if len(n.Content) > 2*indexedKeys {
		earlier.byName = make(map[string]*yaml.Node, len(n.Content)/2)
	}
	for i := 0; i+1 < len(n.Content) && len(found) < mostOfOne; i += 2 {
		key := n.Content[i]
		here := append(path, key.Value)
		if first := earlier.first(i); first != key {
			found = append(found, FieldError{
				Path: FieldPath(here), Position: o.place.at(key),
				Message: "is given twice, first on line " + strconv.Itoa(o.place.at(first).Line),
				Hint:    "keep one of the two",
			})
			continue
		}
		found = o.duplicates(n.Content[i+1], here, found)
	}
	return found
}

// keyIndex finds the first of equal keys of a mapping. Most mappings have so few fields that a search is
// quicker than an index.
type keyIndex struct {
	content []*yaml.Node
	byName  map[string]*yaml.Node
}

// indexedKeys is the number of fields from which on there is an index.
const indexedKeys = 16

// first returns the first key that equals the one at i. Callers call it for each key in order.
func (x keyIndex) first(i int) *yaml.Node {
	key := x.content[i]
	if x.byName != nil {
		if earlier := x.byName[key.Value]; earlier != nil {
			return earlier
		}
		x.byName[key.Value] = key
		return key
	}
	for j := 0; j < i; j += 2 {
		if x.content[j].Value == key.Value {
			return x.content[j]
		}
	}
	return key
}

// unknownField describes a strict error of the decoder, and lists the fields that exist in that place.
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
		typed := ""
		if len(path) > 0 {
			typed, _ = path[len(path)-1].(string)
		}
		out.Hint = cmp.Or(process.DidYouMean(typed, names), "the fields here are "+strings.Join(names, ", "))
	}
	return out
}

// parsePath splits a path of the decoder along the fields that the node has, since names of fields may hold
// dots and brackets. It also returns the key at the end of the path.
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
				names := make([]string, 0, len(fields))
				for name := range fields {
					names = append(names, name)
				}
				slices.Sort(names)
				return names
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
