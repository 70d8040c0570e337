package ingress_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/ingress"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/internal/manifests"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// Each golden has manifests, perhaps the line "WatchWithoutClass" in its comment, and as "want" their model and
// diagnostics.
func TestTranslateGolden(t *testing.T) {
	for path, golden := range goldens(t) {
		t.Run(name(path), func(t *testing.T) {
			in := gather(t, golden.Files)
			got := describe(ingress.Translate(in, configOf(golden)))
			if *update {
				rewrite(t, path, golden, got)
				return
			}
			if diff := cmp.Diff(wanted(golden), got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func goldens(t *testing.T) map[string]*txtar.Archive {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no goldens: %v", err)
	}
	out := map[string]*txtar.Archive{}
	for _, path := range paths {
		golden, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		out[path] = golden
	}
	return out
}

func name(path string) string { return strings.TrimSuffix(filepath.Base(path), ".txtar") }

func configOf(golden *txtar.Archive) ingress.Config {
	return ingress.Config{WatchWithoutClass: strings.Contains(string(golden.Comment), "WatchWithoutClass")}
}

func wanted(golden *txtar.Archive) string {
	for _, f := range golden.Files {
		if f.Name == "want" {
			return string(f.Data)
		}
	}
	return ""
}

func rewrite(t *testing.T, path string, golden *txtar.Archive, got string) {
	t.Helper()
	golden.Files = slices.DeleteFunc(golden.Files, func(f txtar.File) bool { return f.Name == "want" })
	golden.Files = append(golden.Files, txtar.File{Name: "want", Data: []byte(got)})
	if err := os.WriteFile(path, txtar.Format(golden), 0o644); err != nil {
		t.Fatal(err)
	}
}

// gather reads manifests, which must be well-formed.
func gather(tb testing.TB, files []txtar.File) inputs.Inputs {
	tb.Helper()
	dir := tb.TempDir()
	for _, f := range files {
		if f.Name == "want" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, f.Name), f.Data, 0o644); err != nil {
			tb.Fatal(err)
		}
	}
	set, err := manifests.Read(dir)
	if err != nil {
		tb.Fatal(err)
	}
	in, found, _ := inputs.Gather(set)
	if len(found) > 0 {
		tb.Fatal(found)
	}
	for i := range in.Ingresses {
		in.Ingresses[i].At = relative(dir, in.Ingresses[i].At)
	}
	for i := range in.Services {
		in.Services[i].At = relative(dir, in.Services[i].At)
	}
	for i := range in.Classes {
		in.Classes[i].At = relative(dir, in.Classes[i].At)
	}
	for i := range in.Secrets {
		in.Secrets[i].At = relative(dir, in.Secrets[i].At)
	}
	return in
}

// relative removes the temporary directory from positions.
func relative(dir string, at func(...any) diag.Position) func(...any) diag.Position {
	return func(path ...any) diag.Position {
		p := at(path...)
		p.File = strings.TrimPrefix(p.File, dir+"/")
		return p
	}
}

// describe writes a model and diagnostics as text.
func describe(m routing.Model, found []diag.Diagnostic) string {
	var b strings.Builder
	for _, h := range m.Hosts {
		fmt.Fprintf(&b, "host %q%s\n", h.Name, from(h.Origin))
		for _, r := range h.Routes {
			fmt.Fprintf(&b, "\t%s %q%s -> %s%s\n", r.Match.Type, r.Match.Path, conditions(r), r.Backend, from(r.Origin))
		}
	}
	if m.Default != "" {
		fmt.Fprintf(&b, "default %s%s\n", m.Default, from(m.DefaultOrigin))
	}
	for _, x := range m.Backends {
		fmt.Fprintf(&b, "backend %s%s\n", x.Name, from(x.Origins...))
		for _, target := range x.Targets {
			at := ""
			if n := target.Name; n != nil {
				at = fmt.Sprintf(" at %s:%d", n.Host, n.Port)
			}
			fmt.Fprintf(&b, "\t%s%s weight %d\n", target.Service, at, target.Weight)
		}
	}
	for _, c := range m.Certificates {
		fmt.Fprintf(&b, "certificate %s of %s for %s%s\n", c.File, c.Secret, strings.Join(c.Hosts, " "), from(c.Origin))
	}
	for _, n := range m.ServerNames {
		fmt.Fprintf(&b, "server name %s, not %s: %s%s\n", n.Host, strings.Join(n.Except, " "), strings.Join(n.Certificates, " "), from(n.Origin))
		if c := n.Clients; c != nil {
			fmt.Fprintf(&b, "\tclients by %s, required %v\n", c.Authority, c.Required)
		}
	}
	for _, d := range found {
		b.WriteString(d.String() + "\n")
	}
	return b.String()
}

// conditions writes the conditions of a route apart from its path.
func conditions(r routing.Route) string {
	var b strings.Builder
	for _, c := range r.Match.Conditions {
		fmt.Fprintf(&b, " if %s %s is %s", c.Of, c.Name, c.Value)
	}
	if r.Yields {
		b.WriteString(" and it has servers")
	}
	return b.String()
}

func from(origins ...routing.Origin) string {
	var names []string
	for _, o := range origins {
		names = append(names, fmt.Sprintf("%s/%s %s", o.Object.Namespace, o.Object.Name, o.Position))
	}
	return "  (" + strings.Join(names, ", ") + ")"
}
