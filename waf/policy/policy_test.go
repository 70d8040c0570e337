package policy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Parse reads texts, and String writes them in the one canonical form.
func TestCanonical(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{}`: `{}`,
		`{"engine":"detect","paranoia":1,"threshold":5,"exclude":[]}`:                                                `{}`,
		` { "threshold" : 10, "engine":"block" } `:                                                                   `{"engine":"block","threshold":10}`,
		`{"exclude":[{"tags":["b","a","b"],"rules":["942100"]}]}`:                                                    `{"exclude":[{"rules":["942100"],"tags":["a","b"]}]}`,
		`{"exclude":[{"rules":["942100"]},{"rules":["911100"],"targets":["XML"]},{"rules":["942100","942100"]}]}`:    `{"exclude":[{"rules":["911100"],"targets":["XML"]},{"rules":["942100"]}]}`,
		`{"exclude":[{"tags":["attack-sqli"],"targets":["ARGS:user[name]","ARGS:ctl00$x","REQUEST_COOKIES:_s.*"]}]}`: `{"exclude":[{"tags":["attack-sqli"],"targets":["ARGS:ctl00$x","ARGS:user[name]","REQUEST_COOKIES:_s.*"]}]}`,
	} {
		p, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if diff := cmp.Diff(want, p.String()); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
	}
}

// Parse refuses a text that is not a policy, and names the wrong field.
func TestRefused(t *testing.T) {
	t.Parallel()
	exclude := func(what string) string { return `{"exclude":[{` + what + `}]}` }
	many := func(item string, n int) string { return strings.TrimSuffix(strings.Repeat(item+",", n), ",") }
	for text, want := range map[string]string{
		``:                                     "no JSON object",
		`null`:                                 "no JSON object",
		`[]`:                                   "no JSON object",
		`{} {}`:                                "after top-level value",
		`{"engine":"on"}`:                      `engine: "on" is neither`,
		`{"Engine":"block"}`:                   `unknown field "Engine"`,
		`{"engine":"block","engine":"detect"}`: `duplicate field "engine"`,
		`{"paranoia":5}`:                       "paranoia: 5 is not from 1 to 4",
		`{"paranoia":-1}`:                      "paranoia: -1",
		`{"paranoia":1.5}`:                     "paranoia",
		`{"threshold":10001}`:                  "threshold: 10001",
		`{"threshold":-5}`:                     "threshold: -5",
		`{"exclude":[{}]}`:                     "exclude[0].rules: an exclusion names rules",
		exclude(`"targets":["ARGS"]`):          "exclude[0].rules: an exclusion names rules",
		exclude(`"rules":["949110"]`):          "from 911000 to 944999",
		exclude(`"rules":["901100-944999"]`):   "from 911000 to 944999",
		exclude(`"rules":["200002-944999"]`):   "among different rules",
		exclude(`"rules":["942999-942000"]`):   "ends before it begins",
		exclude(`"rules":["+42100"]`):          "six digits",
		exclude(`"rules":["942100 id:1"]`):     "six digits",
		exclude(`"rules":["942100\nSecRuleEngine Off"]`):          "six digits",
		exclude(`"rules":["942100-"]`):                            "six digits",
		exclude(`"rules":[942100]`):                               "cannot unmarshal number",
		exclude(`"tags":["a\"\nSecRuleEngine Off"]`):              "no tag",
		exclude(`"tags":[""]`):                                    "no tag",
		exclude(`"tags":["a b"]`):                                 "no tag",
		exclude(`"rules":["942100"],"targets":["TX:score"]`):      "begins with none of",
		exclude(`"rules":["942100"],"targets":["args:q"]`):        "begins with none of",
		exclude(`"rules":["942100"],"targets":["!ARGS:q"]`):       "begins with none of",
		exclude(`"rules":["942100"],"targets":["ARGS:"]`):         "a key has",
		exclude(`"rules":["942100"],"targets":["ARGS:q|TX"]`):     "a key has",
		exclude(`"rules":["942100"],"targets":["ARGS:/x/"]`):      "a key has",
		exclude(`"rules":["942100"],"targets":["ARGS:*"]`):        "a key has",
		exclude(`"rules":["942100"],"targets":["ARGS:a*b"]`):      "a key has",
		exclude(`"rules":["942100"],"targets":["ARGS:q\n"]`):      "a key has",
		exclude(`"rules":["942100"],"targets":["ARGS:é"]`):        "a key has",
		exclude(`"rules":["942100"],"targets":["REQUEST_URI:q"]`): "takes no key",
		exclude(`"rules":[` + many(`"942100"`, 65) + `]`):         "there are 65",
		`{"exclude":[` + many(`{"tags":["a"]}`, 65) + `]}`:        "there are 65",
		`{` + strings.Repeat(" ", MaxText) + `}`:                  "4098 bytes",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, and not %s", text, err, want)
		}
	}
}

// Check applies the same rules to policies that were not parsed, and bounds the length of the text.
func TestCheck(t *testing.T) {
	t.Parallel()
	if err := (Policy{}).Check(); err != nil {
		t.Error(err)
	}
	var long Policy
	for i := range MaxExclusions {
		long.Exclude = append(long.Exclude, Exclusion{Tags: []string{fmt.Sprintf("%02d%s", i, strings.Repeat("x", 60))}})
	}
	if err := long.Check(); err == nil || !strings.Contains(err.Error(), "the limit is 4096") {
		t.Error(err)
	}
	var wide Policy
	for i := range 2 {
		e := Exclusion{Tags: []string{"attack-sqli"}}
		for j := range MaxTargets/2 + 1 {
			e.Targets = append(e.Targets, fmt.Sprintf("ARGS:%d-%d", i, j))
		}
		wide.Exclude = append(wide.Exclude, e)
	}
	if err := wide.Check(); err == nil || !strings.Contains(err.Error(), "exclude: there are 102 targets, and the limit is 100") {
		t.Error(err)
	}
	if err := (Policy{Paranoia: 9, Threshold: -1}).Check(); err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("not both: %v", err)
	}
}

// The digest depends on the meaning, not on the spelling.
func TestDigest(t *testing.T) {
	t.Parallel()
	a := Policy{Engine: Detect, Exclude: []Exclusion{{Tags: []string{"y", "x"}}}}
	b := Policy{Threshold: 5, Exclude: []Exclusion{{Tags: []string{"x", "y"}}}}
	if a.Digest() != b.Digest() || len(a.Digest()) != 12 {
		t.Error(a.Digest(), b.Digest())
	}
	if c := (Policy{Engine: Block}); c.Digest() == a.Digest() {
		t.Error("another policy has the same digest")
	}
	if diff := cmp.Diff([]string{"y", "x"}, a.Exclude[0].Tags); diff != "" {
		t.Error("the policy was changed:", diff)
	}
}

func TestOrDefaults(t *testing.T) {
	t.Parallel()
	if diff := cmp.Diff(Policy{Engine: "detect", Paranoia: 1, Threshold: 5}, Policy{}.OrDefaults()); diff != "" {
		t.Error(diff)
	}
}

// Each accepted text is canonical after one round, and has no character with a meaning in the language of the
// rules or to HAProxy.
func FuzzParse(f *testing.F) {
	f.Add(`{"engine":"block","paranoia":2,"threshold":7,"exclude":[{"rules":["942100","942000-942999"],"tags":["attack-sqli"],"targets":["ARGS:q","XML"]}]}`)
	f.Add(`{"exclude":[{"rules":["942100"],"targets":["ARGS:user[name]*"]}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse(text)
		if err != nil {
			return
		}
		canonical := p.String()
		again, err := Parse(canonical)
		if err != nil {
			t.Fatalf("%q became %q: %v", text, canonical, err)
		}
		if diff := cmp.Diff(p, again); diff != "" || again.String() != canonical {
			t.Fatalf("%q is not canonical: %s", canonical, diff)
		}
		for _, e := range p.Exclude {
			for _, item := range append(append(e.Rules, e.Tags...), e.Targets...) {
				if strings.ContainsAny(item, "\"'\\,|&!%# \t\r\n\x00") {
					t.Fatalf("%q let %q through", text, item)
				}
			}
		}
	})
}
