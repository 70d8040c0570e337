package routingtest

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/snapshots"
)

// manyPolicies is the number of policies that a hostile tenant names.
const manyPolicies = 2000

// backendsOf returns the complete backends of a namespace in haproxy.cfg.
func backendsOf(r compiler.Result, namespace string) []string {
	text := string(r.Draft.Number(1, snapshots.ID{}).Config())
	return regexp.MustCompile(`(?m)^backend `+namespace+`_[^\n]*\n(?:[^\n]*\n)*?\n`).FindAllString(text, -1)
}

// Whatever a tenant writes into policies, and wherever it names them, closes at most its own routes. Nothing
// changes for others, and the findings stay short.
func TestWAFOfTenants(t *testing.T) {
	t.Parallel()
	good := serviceYAML("shop", "a", 1) + serviceYAML("evil", "a", 1) + wafPolicy("shop", "block", "engine: block") + wafPolicy("edge", "shared", "") + optioned("block", "waf", "block").yaml() +
		optioned("shared", "waf", "edge/shared").yaml() + optioned("bare").yaml()
	settings := func() config.Config {
		cfg := config.Default()
		cfg.Limits.NamespaceOptionBytes = 100_000
		cfg.WAF.Socket, cfg.Shared.WAFPolicies = "/run/waf.sock", []string{"edge/shared"}
		return cfg
	}
	before, _ := compile(t, good, settings())
	if len(before.Diagnostics) > 0 {
		t.Fatal(before.Diagnostics)
	}
	want := backendsOf(before, "shop")
	if len(want) != 3 {
		t.Fatalf("the backends are %q", want)
	}
	names := func(n int, form string) string {
		var out []string
		for i := range n {
			out = append(out, fmt.Sprintf(form, i))
		}
		return strings.Join(out, ", ")
	}
	policy := func(name, text string) string {
		return fmt.Sprintf("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: evil, name: %s}\ndata:\n  policy: %q\n", name, text)
	}
	of := func(name, value string) string {
		return ingress{namespace: "evil", name: name, annotations: annotated("waf", value), rules: []string{name + ".evil.example P / a"}}.yaml()
	}
	const head = "apiVersion: hapsnap.dev/v1alpha1\nkind: WAFPolicy\nspec:\n"
	aliases := head + "  exclude:\n  - &e\n    tags: &l [" + names(5000, "t%d") + "]\n    targets: *l\n" + strings.Repeat("  - *e\n", 3000)
	for name, c := range map[string]struct {
		yaml          string
		served, close int // the number of routes
	}{
		"a policy of 1 MB":            {policy("p", head+"  engine: block\n"+strings.Repeat("# comment\n", 100_000)) + of("p", "p"), 0, 1},
		"a key of 1 MB":               {policy("p", head+"  ? "+strings.Repeat("x", 1_000_000)+"\n  : block\n") + of("p", "p"), 0, 1},
		"a value of 60 kB":            {policy("p", head+"  engine: "+strings.Repeat("x", 60_000)+"\n") + of("p", "p"), 0, 1},
		"a kind of 60 kB":             {policy("p", "apiVersion: x\nkind: "+strings.Repeat("x", 60_000)+"\n") + of("p", "p"), 0, 1},
		"thousands of fields":         {policy("p", head+strings.Repeat("  x: 1\n", 9000)) + of("p", "p"), 0, 1},
		"deep":                        {policy("p", head+"  exclude: "+strings.Repeat("[", 30_000)+strings.Repeat("]", 30_000)+"\n") + of("p", "p"), 0, 1},
		"no text":                     {policy("p", "\x00\xff\u202e") + of("p", "p"), 0, 1},
		"aliases":                     {policy("p", aliases) + of("p", "p"), 0, 1},
		"a huge exclusion":            {policy("p", head+"  exclude:\n  - {rules: ["+names(5000, "'94%04d'")+"]}\n") + of("p", "p"), 0, 1},
		"many targets":                {policy("p", head+"  exclude:\n  - {rules: [911000-944999], targets: ["+names(60, "'ARGS:a%d'")+"]}\n  - {rules: [911000-944999], targets: ["+names(60, "'ARGS:b%d'")+"]}\n") + of("p", "p"), 0, 1},
		"a long policy":               {policy("p", head+"  exclude:\n"+strings.Repeat("  - {tags: ["+strings.Repeat("x", 60)+"]}\n", 60)) + of("p", "p"), 1, 0}, // they are one
		"strange names":               {strangeNames(of), 0, len(strange)},
		"the policy of another":       {of("p", "shop/block"), 0, 1},
		"thousands of policies":       {thousands(policy, of, head), 16, manyPolicies - 16},
		"many routes, and one policy": {oneOfMany(policy, of, head), 25, 15},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			after, _ := compile(t, good+c.yaml, settings())
			if got := backendsOf(after, "shop"); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("the backends of another namespace changed:\n%s\nwant\n%s", got, want)
			}
			served := 0
			for _, b := range backendsOf(after, "evil") {
				if strings.Contains(b, "#hapsnap servers") {
					served++
				}
			}
			if served != c.served {
				t.Errorf("%d routes are served, want %d", served, c.served)
			}
			said, long := 0, 0
			for _, d := range after.Diagnostics {
				long = max(long, len(d.Message)+len(d.Hint))
				if d.Severity != diag.Error || d.Object.Namespace != "evil" {
					t.Errorf("said: %s", d)
				}
				if d.Object.Kind == "Ingress" {
					said++
				}
			}
			if said != c.close || long > 1000 {
				t.Errorf("%d routes are said to be closed, want %d; the longest message has %d bytes", said, c.close, long)
			}
		})
	}
}

// strange are values of the option that are not the name of a ConfigMap.
var strange = []string{
	"", " ", "/", "x/", "/x", "a/b/c", "../x", "evil/../x", "a b", "a\nhttp-request deny", "a\r", "a\x00", "ümlaut", "'", `"`, "{}", "%[src]", "$x", "#x", "\u202e", strings.Repeat("x", 300), "X", "-", ".",
}

func strangeNames(of func(name, value string) string) string {
	var out strings.Builder
	for i, value := range strange {
		out.WriteString(of(fmt.Sprintf("n%d", i), value))
	}
	return out.String()
}

func thousands(policy, of func(name, value string) string, head string) string {
	var out strings.Builder
	for i := range manyPolicies {
		name := fmt.Sprintf("p%d", i)
		out.WriteString(policy(name, head+fmt.Sprintf("  threshold: %d\n", i+1)) + of(name, name))
	}
	return out.String()
}

// oneOfMany returns a policy of 3924 bytes and 40 routes that name it.
func oneOfMany(policy, of func(name, value string) string, head string) string {
	var out, tags strings.Builder
	for i := range 60 {
		fmt.Fprintf(&tags, "%02d%s, ", i, strings.Repeat("x", 60))
	}
	out.WriteString(policy("p", head+"  exclude:\n  - {tags: ["+tags.String()+"]}\n"))
	for i := range 40 {
		out.WriteString(of(fmt.Sprintf("i%d", i), "p"))
	}
	return out.String()
}
