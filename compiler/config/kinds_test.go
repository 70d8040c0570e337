package config

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/compiler/config/kinds"
)

// Impossible values about what is read from a cluster are errors at their place.
func TestCheckOfWhatIsRead(t *testing.T) {
	t.Parallel()
	const widget = "kinds: [{apiVersion: example.com/v1, kind: Widget"
	for text, want := range map[string]string{
		"namespaces: [shop, edge]":                             "",
		"namespaces: ['*']":                                    `spec.namespaces[0]: "*" is not a namespace`,
		"namespaceSelector: 'tenant in (a, b),!system'":        "",
		"namespaceSelector: 'tenant=='":                        "",
		"namespaceSelector: 'tenant in'":                       `spec.namespaceSelector: "tenant in" is not a label selector: unable to parse requirement: found '' expected: '('`,
		"secrets: {watch: named}":                              "",
		"secrets: {watch: all}":                                "",
		"secrets: {watch: selected, labelSelector: edge=true}": "",
		"secrets: {watch: selected}":                           "spec.secrets.watch: is selected, but there is no labelSelector",
		"secrets: {labelSelector: edge=true}":                  "spec.secrets.labelSelector: selects nothing where watch is named",
		"configMaps: {watch: all, labelSelector: edge=true}":   "spec.configMaps.labelSelector: selects nothing where watch is all",
		"configMaps: {watch: some}":                            `spec.configMaps.watch: "some" is neither named, selected nor all`,
		"configMaps: {watch: selected, labelSelector: '?'}":    `spec.configMaps.labelSelector: "?" is not a label selector: unable to parse requirement: <nil>: Invalid value: "?": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character`,
		widget + "}]": "",
		widget + ", optional: true, namespaces: [a], namespaceSelector: b, labelSelector: '!c', fieldSelector: 'spec.class=d,metadata.name!=e'}]":                                   "",
		widget + ", indexes: {a: .spec.host, b: '{.spec.hosts[*].name}', c: spec.host, d: '.spec.rules[?(@.tls==true)].host', e: \".metadata.annotations['example\\\\.com/a']\"}}]": "",
		widget + ", drop: [spec.schema, .status, \"metadata.annotations['example.com/notes']\"]}]":                                                                                  "",
		"kinds: [{apiVersion: v1, kind: ConfigMap, labelSelector: routes=true}]":                                                                                                    "",
		"kinds: [{apiVersion: v1, kind: Secret}]":                                   "spec.kinds[0].kind: templates cannot read Secrets",
		"kinds: [{apiVersion: example.com/v1, kind: Secret}]":                       "",
		"kinds: [{apiVersion: a/b/c, kind: Widget}]":                                `spec.kinds[0].apiVersion: "a/b/c" is not an apiVersion`,
		"kinds: [{apiVersion: example.com, kind: Widget}]":                          `spec.kinds[0].apiVersion: "example.com" is not an apiVersion`,
		"kinds: [{kind: Widget}]":                                                   `spec.kinds[0].apiVersion: "" is not an apiVersion`,
		"kinds: [{apiVersion: v1, kind: widget}]":                                   `spec.kinds[0].kind: "widget" is not a kind`,
		"kinds: [{apiVersion: v1}]":                                                 `spec.kinds[0].kind: "" is not a kind`,
		widget + "}, {apiVersion: example.com/v1beta1, kind: Widget}]":              "spec.kinds[1].kind: Widget is listed twice",
		widget + "}, {apiVersion: example.org/v1, kind: Widget}]":                   "",
		"kinds: [{apiVersion: v1, kind: Service}, {apiVersion: v2, kind: Service}]": "spec.kinds[1].kind: Service is listed twice",
		widget + ", namespaces: [a, '*']}]":                                         `spec.kinds[0].namespaces[1]: "*" is not a namespace`,
		widget + ", labelSelector: ','}]":                                           `spec.kinds[0].labelSelector: "," is not a label selector: found ',', expected: !, identifier, or 'end of string'`,
		widget + ", fieldSelector: spec.class}]":                                    `spec.kinds[0].fieldSelector: "spec.class" is not a field selector: invalid selector: 'spec.class'; can't understand 'spec.class'`,
		widget + ", fieldSelector: '.spec[0]=a'}]":                                  `spec.kinds[0].fieldSelector: ".spec[0]=a" is not a field selector: ".spec[0]" is not the path of a field`,
		widget + ", indexes: {a-b: .spec}}]":                                        `spec.kinds[0].indexes.a-b: "a-b" is not the name of an index`,
		widget + ", indexes: {a: '.spec['}}]":                                       `spec.kinds[0].indexes.a: ".spec[" is not a JSONPath: unterminated array`,
		widget + ", indexes: {a: '{range .spec.hosts[*]}{.name}{end}'}}]":           `spec.kinds[0].indexes.a: "{range .spec.hosts[*]}{.name}{end}" is not a JSONPath: it must be one path to values`,
		widget + ", indexes: {a: 'x-{.spec.host}'}}]":                               `spec.kinds[0].indexes.a: "x-{.spec.host}" is not a JSONPath: it must be one path to values`,
		widget + ", indexes: {a: ''}}]":                                             `spec.kinds[0].indexes.a: "" is not a JSONPath: it must be one path to values`,
		widget + ", drop: ['spec[0]']}]":                                            `spec.kinds[0].drop[0]: "spec[0]" is not the path of a field`,
		widget + ", drop: ['']}]":                                                   `spec.kinds[0].drop[0]: "" is not the path of a field`,
		widget + ", drop: [metadata.name]}]":                                        `spec.kinds[0].drop[0]: "metadata.name" identifies objects and cannot be changed`,
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			_, found := Parse("c.yaml", []byte(head+"spec:\n  "+text+"\n"))
			got := ""
			for _, d := range found {
				got += d.Message
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFaultOfAKindHasItsPlace(t *testing.T) {
	t.Parallel()
	_, found := Parse("c.yaml", []byte(head+"spec:\n  kinds:\n  - apiVersion: v1\n    kind: Secret\n"))
	const want = "c.yaml:6:11: spec.kinds[0].kind: templates cannot read Secrets\n" +
		"\thint: values of Secrets are filled in by the pusher: use the function secret in a template"
	if len(found) != 1 || found[0].String() != want {
		t.Errorf("got %v, want %s", found, want)
	}
}

func TestFieldPath(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"status":                             {"status"},
		".spec.a-b_c":                        {"spec", "a-b_c"},
		"metadata.annotations['a.b/c'].d":    {"metadata", "annotations", "a.b/c", "d"},
		"metadata.annotations['a.b/c']['d']": {"metadata", "annotations", "a.b/c", "d"},
		"a..b":                               nil,
		"a[0]":                               nil,
		"a.":                                 nil,
		"":                                   nil,
	} {
		got, err := kinds.FieldPath(text)
		if !slices.Equal(got, want) || (err == nil) != (want != nil) {
			t.Errorf("%q: got %q, %v", text, got, err)
		}
	}
}
