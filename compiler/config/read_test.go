package config

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// nested has every shape that a configuration may have.
type nested struct {
	List []named `json:"list"`
	Map  map[string]struct {
		Ports []int `json:"ports"`
		On    bool  `json:"on"`
	} `json:"map"`
}

type named struct {
	Name string  `json:"name"`
	Sub  []named `json:"sub"`
}

func parseNested(text string) (nested, reader) {
	r := reader{file: "c.yaml"}
	value := nested{List: []named{{Name: "default", Sub: []named{{Name: "x"}}}}}
	if root := r.root([]byte(text)); root != nil {
		r.decode(root, reflect.ValueOf(&value).Elem(), nil)
	}
	return value, r
}

func TestDecodeNestedListsAndMaps(t *testing.T) {
	t.Parallel()
	got, r := parseNested("list:\n- {name: a, sub: [{name: b}, {name: c}]}\n- &second {name: d}\n- *second\nmap:\n  \"80\": {ports: [1, 2], on: true}\n  y: {}\n")
	var want nested
	want.List = []named{{Name: "a", Sub: []named{{Name: "b"}, {Name: "c"}}}, {Name: "d"}, {Name: "d"}}
	want.Map = map[string]struct {
		Ports []int `json:"ports"`
		On    bool  `json:"on"`
	}{"80": {Ports: []int{1, 2}, On: true}, "y": {}}
	if diff := cmp.Diff(want, got); diff != "" || len(r.found) > 0 {
		t.Errorf("%v\n%s", r.found, diff)
	}
}

func TestDecodeReportsPositionInListsAndMaps(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"list:\n- name: a\n  sub:\n  - nam: b\n": "c.yaml:4:5: list[0].sub[0].nam: unknown field\n\thint: use one of name, sub",
		"list: {name: a}\n":                      "c.yaml:1:7: list: want a list, not fields",
		"list:\n- a\n":                           "c.yaml:2:3: list[0]: want fields, not \"a\"",
		"list:\n- name: [a]\n":                   "c.yaml:2:9: list[0].name: want a text, not a list",
		"list:\n":                                "c.yaml:1:6: list: want a list, not nothing",
		"map:\n  x:\n    ports: [1, b]\n":        "c.yaml:3:16: map.x.ports[1]: want a number, not \"b\"",
		"map:\n  x: {on: maybe}\n":               "c.yaml:2:11: map.x.on: want true or false, not \"maybe\"",
		"map:\n  x: {}\n  x: {}\n":               "c.yaml:3:3: map.x: is set twice",
		"map: [a]\n":                             "c.yaml:1:6: map: want fields, not a list",
	} {
		_, r := parseNested(text)
		if len(r.found) != 1 || r.found[0].String() != want {
			t.Errorf("%q:\ngot  %v\nwant %s", text, r.found, want)
		}
	}
}

// A fault of the check is at the value, or where the value should be.
func TestLookup(t *testing.T) {
	t.Parallel()
	var r reader
	root := r.root([]byte("list:\n- {name: sub}\n- {name: b, sub: [{name: c}]}\nalias: &a {x: 1}\nother: *a\n"))
	for _, c := range []struct {
		path         []string
		line, column int
	}{
		{[]string{"list", "1", "sub", "0", "name"}, 3, 26},
		{[]string{"list", "0", "sub"}, 2, 3},
		{[]string{"list", "7", "sub"}, 2, 1},
		{[]string{"none"}, 1, 1},
		{[]string{"other", "x"}, 4, 15},
	} {
		if n := lookup(root, c.path); n.Line != c.line || n.Column != c.column {
			t.Errorf("%v is at %d:%d, want %d:%d", c.path, n.Line, n.Column, c.line, c.column)
		}
	}
}
