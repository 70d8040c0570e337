package manifests

import (
	"encoding/base64"
	stdjson "encoding/json"
	"errors"
	"reflect"
	"slices"
	"sort"
	"strings"
	"time"

	"sigs.k8s.io/json"
	"sigs.k8s.io/kustomize/kyaml/yaml"
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

// Finding a wrong type takes many decodings, so that fewer are looked for in a
// large object; at least one is.
const (
	maxTypeErrors = 10
	searchedBytes = 1 << 20
)

// Decode stores the object in the value that into points to, a type of
// k8s.io/api, as strictly as the API server with fieldValidation=Strict: names
// are case-sensitive, and a field that is unknown, given twice or of the wrong
// type is an error. The errors are sorted by position; with any of them the
// value holds what fits of the object, and does not say what its author meant.
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

// blame finds the first node that does not fit. The decoder does not say where
// it was in a type that decodes itself; but decoding the first n nodes fails
// from the culprit on, so that a binary search finds it.
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

// wantOf says in words what a field of a Go type holds.
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
