package access_test

import (
	"fmt"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/access"
)

const policyHead = "apiVersion: hapsnap.dev/v1alpha1\nkind: WAFPolicy\nspec:\n"

func TestParseWAFPolicy(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text, want string
		more       access.WAFPolicy
	}{
		{"apiVersion: hapsnap.dev/v1alpha1\nkind: WAFPolicy\n", "{}", access.WAFPolicy{}},
		{policyHead + "  engine: detect\n  paranoia: 1\n  threshold: 5\n  failure: closed\n  uninspected: deny\n", "{}", access.WAFPolicy{}},
		{policyHead + "  engine: block\n  paranoia: 3\n  failure: open\n  uninspected: allow\n  bodyLimit: 4096\n", `{"engine":"block","paranoia":3}`, access.WAFPolicy{Open: true, Partial: true, BodyLimit: 4096}},
		{policyHead + "  exclude:\n  - {rules: [942100, '942000-942999'], targets: ['ARGS:q']}\n", `{"exclude":[{"rules":["942000-942999","942100"],"targets":["ARGS:q"]}]}`, access.WAFPolicy{}},
	} {
		got, wrong := access.ParseWAFPolicy(c.text)
		if len(wrong) > 0 || got.String() != c.want || got.Open != c.more.Open || got.Partial != c.more.Partial || got.BodyLimit != c.more.BodyLimit {
			t.Errorf("%s: %s %+v %v", c.text, got, got, wrong)
		}
	}
}

func TestParseWAFPolicyWrong(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                  "1: this is not a WAFPolicy",
		"a: [\n":                            "1: this is not YAML: did not find expected node content",
		"apiVersion: v1\nkind: ConfigMap\n": `1: this is "ConfigMap" of "v1", not a WAFPolicy`,
		policyHead + "  engine: block\n  paranoya: 2\n":                                 `5: spec."paranoya": unknown field`,
		policyHead + "  engine: block\n  engine: detect\n":                              "5: spec.engine: is set twice",
		policyHead + "  engine: off\n":                                                  `4: spec.engine: "off" is neither detect nor block`,
		policyHead + "  threshold: 0\n":                                                 `4: spec.threshold: "0" is not a number from 1 to 10000`,
		policyHead + "  failure: closed\n  paranoia: 1.5\n":                             `5: spec.paranoia: "1.5" is not a number from 1 to 4`,
		policyHead + "  exclude: all\n":                                                 "4: spec.exclude: want a list",
		policyHead + "  exclude:\n  - rules: ['942100']\n  - tags: [\"a\\\" ctl:x\"]\n": `6: spec.exclude[1].tags[0]: "a\" ctl:x" is no tag: letters, digits and / _ . -, at most 64`,
		policyHead + "  exclude:\n  - rules:\n    - '942100'\n    - '1'\n":              `7: spec.exclude[0].rules[1]: "1" is no id of a rule, such as 942100, and no range, such as 942000-942999: an id has six digits`,
		policyHead + "  exclude:\n  - targets: ['ARGS:q']\n":                            "5: spec.exclude[0].rules: an exclusion names rules, or tags of rules",
		policyHead + "  engine: block\n---\nx: y\n":                                     "5: this is a second document",
		policyHead + "  {engine: block}\n  x: y\n":                                      "4: this is not YAML: did not find expected key",
	} {
		_, wrong := access.ParseWAFPolicy(text)
		if len(wrong) == 0 || fmt.Sprintf("%d: %s", wrong[0].Line, wrong[0].Message) != want {
			t.Errorf("%q: %v, want %s", text, wrong, want)
		}
	}
}
