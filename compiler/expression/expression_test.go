package expression_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/expression"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                        "",
		"^/old/(.*)$":             "",
		"^/x(/|$)(.*)":            "",
		"/x(/|$)(.*)":             "",
		"^/x/?(.*)":               "",
		"^/([^/]+)/([^/]+)/(.*)$": "",
		"^/(?:[a-z]+/)*x$":        "",
		"^/(.*)/b(/.*)?$":         "",
		"^/v[0-9]{1,3}/(.*)":      "",
		`^/a\.b\/c$`:              "",
		"(?i)^/admin":             "",
		"^/[[:alpha:]]+/[^]/]+$":  "",
		"^(.+\\.php)(/.*)$":       "",
		`^/\x2f[\w-]*$`:           "",
		"^/a-b_c~d,e;f@g=h&i'j$":  "",

		"^/(\x1b\u202e" + strings.Repeat("a", 200): "is not a regular expression: missing closing ): `^/(\\x1b\\u202e" + strings.Repeat("a", 93) + "…`",

		"^/a1$*x":         "repeats what takes no characters",
		"^/(?:^)*x":       "repeats what takes no characters",
		"^/(a*)*$":        "repeats what may take no characters",
		"^/(<\x7f /x":     "is not a regular expression: missing closing )",
		"^/<\x7f":         `holds '\x7f'`,
		"^/[\x7f]":        `holds '\x7f'`,
		"^/(":             "is not a regular expression: missing closing )",
		"^/a{,5}":         "holds { that begins no repetition",
		"^/{id}":          "holds { that begins no repetition",
		`^/\pL`:           `holds "\\p"`,
		`^/\Qa\E`:         `holds "\\Q"`,
		"^/[[.a.]]":       "holds [ within […]",
		"^/\\[[:alpha:]]": "holds [ that begins with ':'",
		"^/(?P<x>a)":      "holds (? with something else than a colon",
		"^/a(?i)b":        "holds (? with something else than a colon",
		"^/é":             "holds 'é'",

		"^/(.*)/(.*)/x$":                 "may take 3e+08 steps on a path of 8 KiB",
		"a.*b.*c":                        "may take",
		".*a":                            "may take",
		"^/(a|a)*$":                      "has several ways to match within a repetition",
		"^/(a|[ab])*$":                   "has several ways to match within a repetition",
		"^/(a+)+$":                       "has several ways to match within a repetition",
		"^/(?:a|ab)*$":                   "has several ways to match within a repetition",
		"(a)(b)(c)(d)(e)(f)(g)(h)(i)(j)": "has 10 groups",
		"^" + strings.Repeat("(?:", 100) + "a" + strings.Repeat("+b)", 100): "has 100 repetitions within one another",
		"^(?:[ab][cd]){200}":        "",
		"^(?:[ab][cd]){1000} x":     "is too large: it takes 74005 bytes once it is compiled; 16384 are allowed",
		"^(?:[ab]c|d){0,900}x":      "is too large",
		"^(?:(?:[ab]c){20}d){20,}x": "is too large",
		strings.Repeat("a", 1025):   "is longer than 1024 bytes",
	} {
		_, err := expression.Parse(text)
		_, known := errors.AsType[*expression.Error](err)
		if want == "" && err != nil || want != "" && (!known || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// pieces are the parts of random expressions.
var pieces = []string{
	"a", "b", "/", ".", "[^/]", "[ab]", "[^a]", `\d`, `\w`, `\.`, "ab", "/b/", "$", "^", `\b`, "|", "(", ")", "(?:", "*", "+", "?", "{2}", "{0,3}", "{1,}", "*?", "(.*)", "[^/]+", "(/|$)", "(?i)",
	"{", "}", "[", "]", `\`, "[[:alpha:]]", `\x41`, "-", ",", "#", "(?#", "&&", "[a-", "\\x", "(*", "%",
}

func random(r *rand.Rand) string {
	var b strings.Builder
	if r.IntN(2) == 0 {
		b.WriteString("^/")
	}
	for range 1 + r.IntN(9) {
		b.WriteString(pieces[r.IntN(len(pieces))])
	}
	return b.String()
}

// accepted returns random valid expressions. The same seed gives the same ones.
func accepted(n int, seed uint64) []string {
	r := rand.New(rand.NewPCG(seed, 1))
	var out []string
	for len(out) < n {
		if text := random(r); text != "" {
			if _, err := expression.Parse(text); err == nil {
				out = append(out, text)
			}
		}
	}
	return out
}

// repeated are beginnings of expressions that are repeated as often as is accepted.
var repeated = []string{
	"^(?:[ab])", "^([ab])", "^(?:[ab][cd])", "^(?:ab|cd|ef|gh)", "^(?:[ab]+c)", "^(?:[ab]{3}c[de])", "^(?:(?:[ab]c){9}d)", `^(?:\d\w.[^b])`,
	"^(?:" + strings.Repeat("a", 80) + ")", "^(?:(?:(?:x[yz])?)a)", "^(?:(a|b[cd])x{2,3}y)", "(?i)^(?:[ab]c)",
}

// largest returns the accepted expressions with the most repetitions, in each form of repetition. It adds what
// may stand before an expression in HAProxy's files: a host, and a prefix for every two bytes of the
// expression.
func largest() []string {
	before := strings.Repeat("a", 253) + `\|(?:-` + strings.Repeat("|0123456789ab", 510) + `)\|`
	var out []string
	for _, start := range repeated {
		for _, form := range []string{"{%d}", "{0,%d}", "{%d,}", "{1,%d}", "{%d}?"} {
			for n := 1000; n > 0; n-- {
				text := start + fmt.Sprintf(form, n)
				if _, err := expression.Parse(text); err == nil {
					out = append(out, text, "^"+before+"(?:"+text+")")
					break
				}
			}
		}
	}
	return out
}

// HAProxy accepts every accepted expression. For an acl, it reports all that it does not accept. The empty
// expression is never written, since HAProxy 3.4 takes an empty word for the end of the line.
func TestHAProxyTakesWhatIsAccepted(t *testing.T) {
	t.Parallel()
	var config bytes.Buffer
	config.WriteString("defaults\n  mode http\n  timeout client 1s\n  timeout server 1s\n  timeout connect 1s\nfrontend f\n  bind 127.0.0.1:1\n")
	list := append(accepted(2000, 1), "^/x(/|$)(.*)", "/x(/|$)(.*)")
	list = append(list, largest()...)
	const firstLine = 8
	for i, text := range list {
		fmt.Fprintf(&config, "  acl a%d path -m reg -- '%s'\n", i, text) // none of these expressions has a quote
	}
	file := filepath.Join(t.TempDir(), "haproxy.cfg")
	if err := os.WriteFile(file, config.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), cmp.Or(os.Getenv("HAPROXY"), "haproxy"), "-c", "-f", file).CombinedOutput()
	for _, m := range regexp.MustCompile(`haproxy\.cfg:(\d+)\] : (.*)`).FindAllSubmatch(out, -1) {
		var line int
		_, _ = fmt.Sscan(string(m[1]), &line)
		t.Errorf("%q is accepted here, and refused by HAProxy: %s", list[line-firstLine], m[2])
	}
	if err != nil && !t.Failed() {
		t.Fatalf("%v\n%s", err, out)
	}
}
