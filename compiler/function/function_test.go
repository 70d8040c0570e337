package function_test

import (
	"bytes"
	"cmp"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/function"
	"github.com/hapsnap/hapsnap/compiler/validate"
)

// list returns a ResourceList with the manifests of the example.
func list(t *testing.T, spec string) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("apiVersion: config.kubernetes.io/v1\nkind: ResourceList\nfunctionConfig:\n  apiVersion: hapsnap.dev/v1alpha1\n  kind: CompilerFunction\n  metadata: {name: edge}\n  spec: {" + spec + "}\nitems:\n")
	for _, name := range []string{"ingress.yaml", "services.yaml"} {
		text, err := os.ReadFile("../../examples/shop/manifests/" + name)
		if err != nil {
			t.Fatal(err)
		}
		for document := range strings.SplitSeq(string(text), "---\n") {
			b.WriteString("- " + strings.ReplaceAll(yaml.MustParse(document).MustString(), "\n", "\n  ") + "\n")
		}
	}
	return b.String()
}

func checker(t *testing.T) *validate.Checker {
	t.Helper()
	check, err := validate.Find(t.Context(), cmp.Or(os.Getenv("HAPROXY"), "haproxy"))
	if err != nil {
		t.Fatal(err)
	}
	return check
}

// run runs the function at a time.
func run(t *testing.T, in string, now time.Time) (out, log string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	err = function.Function{In: strings.NewReader(in), Out: &stdout, Log: &stderr, Check: checker(t), Now: now}.Run(t.Context())
	return stdout.String(), stderr.String(), err
}

// made returns the ConfigMap of a list, which is its last item.
func made(t *testing.T, list string) *yaml.RNode {
	t.Helper()
	items, err := yaml.MustParse(list).Pipe(yaml.Lookup("items"))
	if err != nil {
		t.Fatal(err)
	}
	elements, err := items.Elements()
	if err != nil || len(elements) == 0 {
		t.Fatal(err, list)
	}
	return elements[len(elements)-1]
}

// The ConfigMap has the files of the snapshot that the compiler makes from the same objects, and the manifest.
func TestFilesAreThoseOfTheCompiler(t *testing.T) {
	t.Parallel()
	out, log, err := run(t, list(t, ""), time.Now())
	if err != nil {
		t.Fatal(err, log)
	}
	source := compiler.Source{Objects: compiler.Files("../../examples/shop/manifests"), Config: config.Default()}
	result, err := source.Once(t.Context(), checker(t), time.Now(), "test")
	if err != nil {
		t.Fatal(err)
	}
	data := made(t, out).GetDataMap()
	if len(data) != len(result.Draft.Files)+1 || !strings.Contains(data["snapshot.yaml"], string(result.Draft.Digest())) {
		t.Errorf("%d files, want %d and the manifest of %s", len(data), len(result.Draft.Files), result.Draft.Digest())
	}
	for _, f := range result.Draft.Files {
		if data[function.Key(f.Path)] != string(f.Content) {
			t.Errorf("%s: %q", f.Path, data[function.Key(f.Path)])
		}
	}
}

// The result does not depend on the time, and the function does not change its own output.
func TestAgain(t *testing.T) {
	t.Parallel()
	in := list(t, "")
	first, _, err := run(t, in, time.Unix(1_800_000_000, 0))
	if err != nil {
		t.Fatal(err)
	}
	later, _, err := run(t, in, time.Unix(1_900_000_000, 0))
	if err != nil || later != first {
		t.Errorf("another time gives another list: %v\n%s", err, later)
	}
	again, _, err := run(t, first, time.Unix(1_800_000_000, 0))
	if err != nil || made(t, again).MustString() != made(t, first).MustString() || strings.Count(again, "immutable: true") != 1 {
		t.Errorf("the list gives another one: %v\n%s", err, again)
	}
}

// Errors of HAProxy about the configuration are results.
func TestConfigurationIsJudged(t *testing.T) {
	t.Parallel()
	out, log, err := run(t, list(t, `config: {tls: {ciphers: ["NO-SUCH-CIPHER"]}}`), time.Now())
	if !errors.Is(err, function.ErrInvalid) || !strings.Contains(log, "functionConfig: spec.config.tls.ciphers") || !strings.Contains(out, "severity: error") {
		t.Errorf("%v\n%s", err, log)
	}
}
