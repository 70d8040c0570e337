package migrate_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/migrate"
	"github.com/hapsnap/hapsnap/compiler/options"
)

var update = flag.Bool("update", false, "rewrite the golden files and the document")

// Each golden has manifests in the folder in, and the result in out.
func TestGolden(t *testing.T) {
	goldens, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(goldens, "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			golden, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			t.Chdir(t.TempDir())
			golden.Files = slices.DeleteFunc(golden.Files, func(f txtar.File) bool { return !strings.HasPrefix(f.Name, "in/") })
			unpack(t, golden)
			got := migrated(t, optionsOf(string(golden.Comment)))
			if *update {
				golden.Files = append(golden.Files, got...)
				if err := os.WriteFile(file, txtar.Format(golden), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			want.Files = want.Files[len(golden.Files):]
			want.Comment = nil
			if diff := cmp.Diff(string(txtar.Format(want)), string(txtar.Format(&txtar.Archive{Files: got}))); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// optionsOf reads options from the comment of a golden.
func optionsOf(comment string) migrate.Options {
	o := migrate.Options{Remove: strings.Contains(comment, "--remove")}
	if strings.Contains(comment, "--class hapsnap") {
		o.Class = "hapsnap"
	}
	return o
}

func unpack(t *testing.T, a *txtar.Archive) {
	t.Helper()
	for _, f := range a.Files {
		if err := os.MkdirAll(filepath.Dir(f.Name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(f.Name, f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// migrated returns the findings and the changed files. A second run must change nothing.
func migrated(t *testing.T, o migrate.Options) []txtar.File {
	t.Helper()
	result, err := migrate.Directory("in", o)
	if err != nil {
		t.Fatal(err)
	}
	var found strings.Builder
	for _, d := range result.Findings {
		fmt.Fprintf(&found, "%s: %s\n", d.Severity, d)
	}
	out := []txtar.File{{Name: "found", Data: []byte(found.String())}}
	for _, f := range result.Files {
		out = append(out, txtar.File{Name: "out/" + filepath.ToSlash(f.Path), Data: f.Content})
	}
	if err := result.Write(t.Context(), "in"); err != nil {
		t.Fatal(err)
	}
	again, err := migrate.Directory("in", o)
	if err != nil {
		t.Fatal(err)
	}
	if again.Objects != 0 {
		t.Errorf("a second run changes %d objects", again.Objects)
	}
	return out
}

// Every rule has a golden, and names existing options.
func TestRulesAreShown(t *testing.T) {
	var inputs strings.Builder
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		golden, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range golden.Files {
			if strings.HasPrefix(f.Name, "in/") {
				inputs.Write(f.Data)
			}
		}
	}
	known := map[string]bool{}
	for _, o := range options.All() {
		known[o.Name] = true
	}
	seen := map[string]bool{}
	for _, d := range migrate.Dialects() {
		for _, r := range d.Rules {
			for _, name := range r.From {
				full := d.Prefixes[0] + name
				if seen[full] {
					t.Errorf("%s has two rules", full)
				}
				seen[full] = true
				if len(r.To) > 0 && !strings.Contains(inputs.String(), full+":") {
					t.Errorf("no golden has %s", full)
				}
			}
			for _, to := range r.To {
				if !known[to] {
					t.Errorf("%s leads to %s, which is no option", r.From[0], to)
				}
			}
		}
	}
}

// docs/reference/migration.md agrees with the rules.
func TestDocumentIsFresh(t *testing.T) {
	const file = "../../docs/reference/migration.md"
	got := migrate.Document()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("run make generate (-file +rules)\n%s", diff)
	}
}

// Annotations that stayed after a first run keep the meaning that they had together with the removed ones. A
// second run does not take them for meaningless.
func TestAgain(t *testing.T) {
	for name, c := range map[string]struct {
		annotations []string // what a first run with Remove leaves
		errors      int
		keeps       string // an annotation of ingress-nginx that stays
	}{
		"verification": {[]string{"hapsnap.dev/backend-protocol", "h1-tls", "nginx.ingress.kubernetes.io/proxy-ssl-secret", "other/backend", "nginx.ingress.kubernetes.io/proxy-ssl-verify", "on"}, 2, "proxy-ssl-verify"},
		"parameters":   {[]string{"hapsnap.dev/backend-protocol", "fcgi", "nginx.ingress.kubernetes.io/fastcgi-params-configmap", "gone"}, 1, "fastcgi-params-configmap"},
		"snippet":      {[]string{"hapsnap.dev/allow-list", "10.0.0.0/8", "nginx.ingress.kubernetes.io/configuration-snippet", "allow 192.0.2.1; deny all;"}, 1, "configuration-snippet"},
		"refusal":      {[]string{"hapsnap.dev/allow-list", "10.0.0.0/8", "nginx.ingress.kubernetes.io/configuration-snippet", "deny all;"}, 1, "configuration-snippet"},
		"headers":      {[]string{"hapsnap.dev/response-headers", "set A b", "nginx.ingress.kubernetes.io/configuration-snippet", `more_set_headers "C: d";`}, 1, "configuration-snippet"},
		"same headers": {[]string{"hapsnap.dev/response-headers", "set A b\nset C d", "nginx.ingress.kubernetes.io/configuration-snippet", `more_set_headers "C: d";`}, 0, ""},
		"ways in":      {[]string{"hapsnap.dev/allow-list", "10.0.0.0/8", "hapsnap.dev/auth-basic", "staff", "nginx.ingress.kubernetes.io/satisfy", "any"}, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			text := "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: x\n  annotations:\n"
			for i := 0; i < len(c.annotations); i += 2 {
				text += fmt.Sprintf("    %s: %q\n", c.annotations[i], c.annotations[i+1])
			}
			text += "spec:\n  ingressClassName: nginx\n  rules:\n  - {host: x.example, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}\n"
			if err := os.WriteFile("x.yaml", []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			result, err := migrate.Directory(".", migrate.Options{Remove: true})
			if err != nil {
				t.Fatal(err)
			}
			errors := 0
			for _, d := range result.Findings {
				if d.Severity == diag.Error {
					errors++
				}
			}
			for _, f := range result.Files {
				text = string(f.Content)
			}
			if errors != c.errors || c.keeps != "" && !strings.Contains(text, c.keeps) {
				t.Errorf("%d errors, %v\n%s", errors, result.Findings, text)
			}
			if name == "ways in" && !strings.Contains(text, "hapsnap.dev/satisfy") {
				t.Error("one way in is not enough any more")
			}
		})
	}
}

// The next run removes files that a killed process left unfinished. Files that another process is writing stay.
func TestWriteRemovesLeftovers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	old, young := filepath.Join(dir, ".migrate-1"), filepath.Join(dir, ".migrate-2")
	for _, path := range []string{old, young} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := time.Now().Add(-time.Hour)
	if err := os.Chtimes(old, before, before); err != nil {
		t.Fatal(err)
	}
	result := migrate.Result{Files: []migrate.File{{Path: "web.yaml", Content: []byte("x: y\n")}}}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := result.Write(ended, dir); !errors.Is(err, context.Canceled) {
		t.Errorf("an interrupted write: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "web.yaml")); err == nil {
		t.Error("an interrupted write goes on")
	}
	if err := result.Write(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(old); err == nil {
		t.Error("the leftover is still there")
	}
	if _, err := os.Stat(young); err != nil {
		t.Error(err)
	}
}

// Entries that are suggested for tcpServices are such as the compiler reads.
func TestSuggestedEntriesAreRead(t *testing.T) {
	t.Parallel()
	golden, err := os.ReadFile(filepath.Join("testdata", "beside.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	entries := regexp.MustCompile(`(?m)write into spec of the CompilerConfig: (tcpServices: \[\{.*\}\])`).FindAllStringSubmatch(string(golden), -1)
	if len(entries) != 5 {
		t.Fatalf("%d entries, want 5", len(entries))
	}
	filled := strings.NewReplacer("NETWORKS", "10.0.0.0/8", "VERSION", "1", "NAMESPACE/NAME", "shop/tls")
	for _, e := range entries {
		text := "apiVersion: hapsnap.dev/v1alpha1\nkind: CompilerConfig\nspec:\n  " + filled.Replace(e[1]) + "\n"
		if _, found := config.Parse("config.yaml", []byte(text)); len(found) > 0 {
			t.Errorf("%s: %s", text, found[0])
		}
	}
}
