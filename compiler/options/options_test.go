package options_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/options"
)

var update = flag.Bool("update", false, "rewrite the document")

const document = "../../docs/reference/annotations.md"

func TestDocumentIsFresh(t *testing.T) {
	want := options.Document()
	if *update {
		if err := os.WriteFile(document, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(got), want); diff != "" {
		t.Errorf("docs/reference/annotations.md is stale: run make generate (-is +should be)\n%s", diff)
	}
}

func place(o options.Option) options.Place {
	if o.On&options.OnIngress != 0 {
		return options.OnIngress
	}
	return options.OnService
}

// Each option has a golden of its rendering, and a test with a real HAProxy.
func TestEveryOptionIsShown(t *testing.T) {
	goldens, behaviour := contents(t, "../testdata/*.txtar"), contents(t, "../routingtest/*_test.go")
	for _, o := range options.All() {
		if !regexp.MustCompile(regexp.QuoteMeta(options.Prefix+o.Name) + `"?:`).MatchString(goldens) {
			t.Errorf("no golden in compiler/testdata has %s", o.Name)
		}
		if !regexp.MustCompile(`(?:"|` + regexp.QuoteMeta(options.Prefix) + `)` + regexp.QuoteMeta(o.Name) + `["` + "`" + `:]`).MatchString(behaviour) {
			t.Errorf("no test in compiler/routingtest has %s", o.Name)
		}
	}
}

// contents returns what is in files.
func contents(t *testing.T, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	var b strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(text)
	}
	return b.String()
}

func TestRegistry(t *testing.T) {
	seen := map[string]bool{}
	for _, o := range options.All() {
		if seen[o.Name] {
			t.Errorf("%s is there twice", o.Name)
		}
		seen[o.Name] = true
	}
	for _, o := range options.All() {
		t.Run(o.Name, func(t *testing.T) {
			if o.Summary == "" || o.Value == "" || o.Group == "" || (o.Needs != "" && !seen[o.Needs]) {
				t.Errorf("not described: %+v", o)
			}
			values, problems := options.Read(place(o), map[string]string{options.Prefix + o.Name: o.Example})
			if len(problems) > 0 || !values.Has(o.Name) || values.Closed {
				t.Errorf("its own example is refused: %v", problems)
			}
			values, problems = options.Read(place(o), map[string]string{options.Prefix + o.Name: " "})
			if len(problems) != 1 || problems[0].Severity != diag.Error || values.Closed != o.Closes || values.Has(o.Name) {
				t.Errorf("an empty value: %+v, closed %v", problems, values.Closed)
			}
		})
	}
}

func TestProblems(t *testing.T) {
	for name, c := range map[string]struct {
		on            options.Place
		option, value string
		message, hint string
	}{
		"typing error":      {options.OnIngress, "alow-list", "x", "is not known, and ignored", "did you mean hapsnap.dev/allow-list?"},
		"nothing like it":   {options.OnIngress, "hyperspace", "x", "is not known, and ignored", "docs/reference/annotations.md lists those that are"},
		"long name":         {options.OnIngress, strings.Repeat("x", 5000), "x", "is not known, and ignored", "docs/reference/annotations.md lists those that are"},
		"not on a Service":  {options.OnService, "redirect", "/x", "is an option of Ingress, and not of this object", "move it there"},
		"part of a list":    {options.OnIngress, "deny-list", "10.0.0.0/8, nowhere", `: "nowhere" is not a network; the routes that it protects answer 503`, "use CIDRs such as 10.0.0.0/8 or fd00::/8, or addresses"},
		"zone":              {options.OnIngress, "deny-list", "fe80::1%eth0", `: "fe80::1%eth0" is not a network; the routes that it protects answer 503`, "use CIDRs such as 10.0.0.0/8 or fd00::/8, or addresses"},
		"list without key":  {options.OnIngress, "deny-list", "@geo", `: "@geo" is not the name of a list; the routes that it protects answer 503`, "use @CONFIGMAP/KEY, or @NAMESPACE/CONFIGMAP/KEY"},
		"number":            {options.OnIngress, "rate-limit", "+5", `: "+5" is not a number; the routes that it protects answer 503`, "use a whole number from 1 to 1000000000"},
		"too long a time":   {options.OnIngress, "timeout-server", "25d", `: "25d" is too long`, "use 24d at most"},
		"checks too often":  {options.OnIngress, "health-check-interval", "999ms", `: "999ms" is too short`, "use 1s at least: each HAProxy checks each endpoint as often"},
		"other scheme":      {options.OnIngress, "redirect", "javascript://x/", `: "javascript://x/" is not a location`, "use a path, or a URL with http or https"},
		"other host":        {options.OnIngress, "redirect", "//evil.example", `: "//evil.example" is not a path`, "use one that begins with one slash, such as /app"},
		"group":             {options.OnIngress, "rewrite-path", `^/(a) /\2`, `: "/\\2" refers to \2, which is no group of the expression`, `use \1 for the first group in parentheses`},
		"lookahead":         {options.OnIngress, "rewrite-path", `^/(?=a) /`, ": \"^/(?=a)\" is not a regular expression: invalid or unsupported Perl syntax: `(?=`", ""},
		"header with colon": {options.OnIngress, "request-headers", "set X-A: b", `: "X-A:" is not the name of a header`, "use letters, digits and -"},
		"hop by hop":        {options.OnIngress, "request-headers", "remove Transfer-Encoding", `: "Transfer-Encoding" is not a header that can be edited`, "for Host, use hapsnap.dev/rewrite-host"},
		"canary's header":   {options.OnIngress, "canary-by-header", "X Canary: a", `: "Canary: a" is not a value that can be compared`, "use letters, digits and -._~:/@+=,;*"},
		"no value":          {options.OnIngress, "canary-by-header", "X-Canary=", `: "X-Canary=" is not a value that can be compared`, "use letters, digits and -._~:/@+=,;*"},
		"canary's cookie":   {options.OnIngress, "canary-by-cookie", "a=b", `: "a=b" is not the name of a cookie`, "use letters, digits, - and _"},
		"no percentage":     {options.OnIngress, "canary-weight", "101", `: "101" is out of range`, "use 0 to 100"},
		"origin with path":  {options.OnIngress, "cors-allow-origin", "https://a.example/", `: "https://a.example/" is not an origin`, `use such as https://shop.example, https://*.shop.example, or "*"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, problems := options.Read(c.on, map[string]string{options.Prefix + c.option: c.value})
			if len(problems) != 1 {
				t.Fatalf("problems: %+v", problems)
			}
			want := "annotation " + options.Prefix + c.option + c.message
			if !strings.HasPrefix(c.message, ":") {
				want = "annotation " + options.Prefix + c.option + " " + c.message
			}
			if p := problems[0]; p.Message != want || p.Hint != c.hint {
				t.Errorf("got  %q, %q\nwant %q, %q", p.Message, p.Hint, want, c.hint)
			}
		})
	}
}

func TestIsCanary(t *testing.T) {
	for value, want := range map[string]bool{"true": true, "false": false, "": true, "no": true} {
		if got := options.IsCanary(map[string]string{options.Prefix + "canary": value}); got != want {
			t.Errorf("%q: %v, want %v", value, got, want)
		}
	}
	if options.IsCanary(map[string]string{options.Prefix + "canary-weight": "10"}) {
		t.Error("a weight alone makes a canary")
	}
}

func TestDifferent(t *testing.T) {
	prefixed := func(pairs ...string) map[string]string {
		out := map[string]string{"example.com/balance": "x"}
		for i := 0; i < len(pairs); i += 2 {
			out[options.Prefix+pairs[i]] = pairs[i+1]
		}
		return out
	}
	own := prefixed("canary", "true", "canary-weight", "1", "no-option", "x", "retries", "1", "balance", "uri", "hsts", "1", "tcp-port", "1")
	first, second := prefixed("retries", "1", "balance", "source"), prefixed("retries", "2", "balance", "uri")
	if diff := cmp.Diff([]string{"balance", "hsts"}, options.Different(own, first, second)); diff != "" {
		t.Error(diff)
	}
	if got := options.Different(own, own); got != nil {
		t.Errorf("%v differ from themselves", got)
	}
}

// Annotations of others are none of ours.
func TestReadOfNothing(t *testing.T) {
	values, problems := options.Read(options.OnIngress, map[string]string{"example.com/balance": "x"})
	if len(problems) > 0 || values.NeedsBackend() {
		t.Errorf("%v %v", values, problems)
	}
}

// TestResolveSharesNothing resolves one object after another: the settings of the first must not change with
// those of the second.
func TestResolveSharesNothing(t *testing.T) {
	resolve := func(annotations map[string]string) options.Settings {
		values, problems := options.Read(options.OnIngress, annotations)
		settings, more, closed := options.Resolve(values)
		if len(problems)+len(more) > 0 || closed {
			t.Fatal(problems, more, closed)
		}
		return settings
	}
	first := resolve(map[string]string{
		options.Prefix + "affinity": "cookie", options.Prefix + "affinity-cookie-name": "first",
		options.Prefix + "rate-limit": "7", options.Prefix + "auth-basic": "users", options.Prefix + "auth-url": "http://auth.shop.svc:80/",
	})
	resolve(map[string]string{
		options.Prefix + "affinity": "cookie", options.Prefix + "affinity-cookie-name": "second",
		options.Prefix + "rate-limit": "9", options.Prefix + "auth-basic": "others", options.Prefix + "auth-url": "http://other.shop.svc:80/",
	})
	if first.Upstream.Affinity.Cookie != "first" || first.Protection.Rate.Requests != 7 || first.Basic.Secret != "users" || first.External.Service.Name != "auth" {
		t.Errorf("the first settings became %+v, %+v, %+v, %+v", first.Upstream.Affinity, first.Protection.Rate, first.Basic, first.External)
	}
}
