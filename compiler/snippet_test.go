package compiler_test

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/ingress"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/templates"
)

// If snippets are allowed, their lines are in the backend of their own Ingress, each as one line. Nothing else
// changes: no value writes more than it says, or elsewhere.
func TestSnippetWritesItsLinesOnly(t *testing.T) {
	t.Parallel()
	files, err := render.Shipped(templates.FS)
	if err != nil {
		t.Fatal(err)
	}
	set, found := render.Parse(files)
	if len(found) > 0 {
		t.Fatal(found)
	}
	option := optionNamed(t, options.SnippetOption)
	written := func(value string, allowed config.Namespaces) []string {
		in := inputs.Inputs{
			Services:  []inputs.Object[corev1.Service]{service("web", 80)},
			Ingresses: []inputs.Object[networkingv1.Ingress]{attacked(0, option, value)},
		}
		// What else is written for the host's paths depends on whether a snippet protects.
		cfg := config.Default()
		cfg.Paths.Unsafe = config.PassUnsafe
		model, _ := ingress.Translate(in, ingress.Config{Snippets: allowed, Paths: cfg.Paths})
		artifact, faults := set.Render(render.Input{Model: model, Config: cfg})
		if len(faults) > 0 {
			t.Fatalf("%q: %+v", value, faults)
		}
		var out []string
		for _, f := range artifact.Files {
			out = append(out, f.Path)
			for line := range bytes.Lines(f.Content) {
				out = append(out, string(line))
			}
		}
		return out
	}
	const plain = "http-request deny"
	baseline := written(plain, config.Namespaces{"shop"})
	at := slices.Index(baseline, "    "+plain+"\n")
	if at < 0 || !strings.HasPrefix(baseline[at-1], "backend shop_web_80.attack-0 ") {
		t.Fatalf("the snippet is not where it belongs: %q", baseline)
	}
	before, after := baseline[:at], baseline[at+1:]
	accepted := 0
	for _, value := range append(attacks(option), plain+"\n  # a comment\n\n\tacl x path /x\n") {
		got := written(value, config.Namespaces{"shop"})
		var want []string
		if lines, ok := linesOf(value); ok {
			accepted++
			want = slices.Concat(before, lines, after)
		} else { // closed: no servers, and no line of the snippet
			want = slices.DeleteFunc(slices.Concat(before, after), func(l string) bool { return strings.HasPrefix(l, "    #hapsnap servers") })
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q wrote (-want +got)\n%s", shorten(value), gocmp.Diff(want, got))
		}
		if got := written(value, config.Namespaces{"other"}); strings.Contains(strings.Join(got, ""), "EVIL") {
			t.Errorf("%q was written though it is not allowed", shorten(value))
		}
	}
	if accepted == 0 {
		t.Error("nothing was accepted")
	}
}

var keyword = regexp.MustCompile(`^[a-z][a-z0-9.-]*$`)

// linesOf returns the lines that a snippet may write. It decides by their text.
func linesOf(value string) (lines []string, ok bool) {
	for line := range strings.SplitSeq(value, "\n") {
		line = strings.Trim(line, " \t")
		if line == "" || (strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "#hapsnap")) {
			continue
		}
		first, _, _ := strings.Cut(line, " ")
		hidden := strings.ContainsAny(line, "\r\t\x00\x1b\u2028\u0085\ufeff") || !utf8.ValidString(line)
		if len(line) > 4096 || hidden || strings.HasSuffix(line, `\`) || !keyword.MatchString(first) || first == "server" {
			return nil, false
		}
		lines = append(lines, "    "+line+"\n")
	}
	return lines, len(lines) > 0 && len(value) <= 8<<10
}

func optionNamed(t *testing.T, name string) options.Option {
	t.Helper()
	for _, o := range options.All() {
		if o.Name == name {
			return o
		}
	}
	t.Fatalf("there is no option %s", name)
	return options.Option{}
}
