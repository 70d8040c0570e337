package compiler_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/controller/controllertest"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/internal/manifests"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/templates"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var now = time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)

var haproxy = controllertest.HAProxy

// unpack writes the files of an archive below a folder into a directory. Paths in diagnostics are relative to
// it.
func unpack(t *testing.T, a *txtar.Archive, folder string) (dir string, found bool) {
	t.Helper()
	root := t.TempDir()
	dir = filepath.Join(root, folder)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, f := range a.Files {
		name, ok := strings.CutPrefix(f.Name, folder+"/")
		if !ok {
			continue
		}
		found = true
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir, found
}

// source makes the Source from an archive: manifests/, templates/ and config.yaml.
func source(t *testing.T, a *txtar.Archive) compiler.Source {
	t.Helper()
	s := compiler.Source{Config: config.Default()}
	dir, _ := unpack(t, a, "manifests")
	s.Objects = compiler.Files(dir)
	if dir, ok := unpack(t, a, "templates"); ok {
		s.Templates = dir
	}
	for _, f := range a.Files {
		if f.Name == "config.yaml" {
			c, ds := config.Parse(f.Name, f.Data)
			if len(ds) > 0 {
				t.Fatal(ds)
			}
			s.Config = c
		}
	}
	return s
}

// Each file of testdata has manifests, perhaps templates and a configuration, and the result.
func TestGolden(t *testing.T) {
	t.Parallel()
	check := haproxy(t)
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no test data", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s := source(t, archive)
			result, err := s.Once(t.Context(), check, now, "test")
			got := given(archive)
			got.Files = append(got.Files, outcome(s, result, err, bytes.Contains(archive.Comment, []byte("All of haproxy.cfg")))...)
			if *update {
				if err := os.WriteFile(file, txtar.Format(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if diff := gocmp.Diff(string(txtar.Format(archive)), string(txtar.Format(got))); diff != "" && !*update {
				t.Error(diff)
			}
		})
	}
}

// given returns the inputs of an archive.
func given(a *txtar.Archive) *txtar.Archive {
	out := &txtar.Archive{Comment: a.Comment}
	for _, f := range a.Files {
		if !strings.HasPrefix(f.Name, "want/") {
			out.Files = append(out.Files, f)
		}
	}
	return out
}

// outcome describes a result: diagnostics, files and the subject. Sections of haproxy.cfg that are the same in
// every golden are left out unless whole is set.
func outcome(s compiler.Source, r compiler.Result, err error, whole bool) []txtar.File {
	var found bytes.Buffer
	replace := strings.NewReplacer(filepath.Dir(s.Objects.String())+"/", "", filepath.Dir(s.Templates)+"/", "")
	for _, d := range r.Diagnostics {
		fmt.Fprintln(&found, replace.Replace(d.String()))
	}
	if err != nil {
		fmt.Fprintln(&found, "error:", err)
	}
	out := []txtar.File{{Name: "want/diagnostics", Data: found.Bytes()}}
	if err != nil {
		return out
	}
	for _, f := range r.Draft.Files {
		data := f.Content
		if f.Path == snapshots.ConfigFile && !whole {
			data = backends(data)
		}
		if filepath.Ext(f.Path) == ".lua" {
			data = []byte("(a script)\n") // a HAProxy tests it elsewhere
		}
		out = append(out, txtar.File{Name: "want/" + f.Path, Data: data})
	}
	return append(out, txtar.File{Name: "want/subject", Data: []byte(compiler.Subject(snapshots.Snapshot{}, r) + "\n")})
}

// backends returns the lines of haproxy.cfg that depend on objects.
func backends(cfg []byte) []byte {
	var out bytes.Buffer
	in := false
	for line := range bytes.Lines(cfg) {
		if len(bytes.TrimSpace(line)) > 0 && line[0] != ' ' {
			keyword, _, _ := bytes.Cut(line, []byte(" "))
			in = slices.Contains([]string{"backend", "resolvers", "fcgi-app"}, string(keyword)) && !bytes.HasPrefix(line, []byte("backend hapsnap_ready "))
		}
		if in || bytes.Contains(line, []byte("default_backend")) {
			out.Write(line)
		}
	}
	return out.Bytes()
}

func load(t *testing.T, name string) *txtar.Archive {
	t.Helper()
	a, err := txtar.ParseFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// The same objects in any order give the same digest.
func TestOrderTakesNoPart(t *testing.T) {
	t.Parallel()
	check := haproxy(t)
	set, err := manifests.Read(source(t, load(t, "shop.txtar")).Objects.String())
	if err != nil {
		t.Fatal(err)
	}
	objects, _, _ := inputs.Gather(set)
	files, err := render.Shipped(templates.FS)
	if err != nil {
		t.Fatal(err)
	}
	parsed, _ := render.Parse(files)
	cfg := config.Default()
	cfg.Endpoints = config.Recorded
	digests := map[snapshots.Digest]int{}
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 0))
		in := inputs.Inputs{
			Ingresses: shuffled(r, objects.Ingresses), Classes: shuffled(r, objects.Classes),
			Services: shuffled(r, objects.Services), Secrets: shuffled(r, objects.Secrets),
			EndpointSlices: shuffled(r, objects.EndpointSlices),
		}
		result, err := compiler.Compile(t.Context(), compiler.Input{
			Objects: in, Config: cfg, Templates: parsed,
			Now: now.Add(time.Duration(seed) * time.Hour), Trigger: fmt.Sprint(seed), CompilerVersion: fmt.Sprint(seed),
		}, check)
		if err != nil {
			t.Fatal(err)
		}
		digests[result.Draft.Digest()]++
	}
	if len(digests) != 1 {
		t.Errorf("20 orders gave %d digests: %v", len(digests), digests)
	}
}

func shuffled[T any](r *rand.Rand, list []T) []T {
	list = slices.Clone(list)
	r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

func TestMissingDirectoryIsNoEmptyConfiguration(t *testing.T) {
	t.Parallel()
	s := compiler.Source{Objects: compiler.Files(filepath.Join(t.TempDir(), "none")), Config: config.Default()}
	r, err := s.Once(t.Context(), haproxy(t), now, "test")
	if !errors.Is(err, os.ErrNotExist) || len(r.Draft.Files) > 0 {
		t.Errorf("%v, %d files", err, len(r.Draft.Files))
	}
}

// If a folder is read again, its values are the same, except those from changed files.
func TestDirectoryReadsAgainWhatChanged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const service = "apiVersion: v1\nkind: Service\nmetadata: {name: %s}\nspec: {ports: [{port: 80}]}\n"
	write("a.yaml", fmt.Sprintf(service, "a"))
	write("b.yaml", fmt.Sprintf(service, "b"))
	files := compiler.Files(dir)
	read := func() []inputs.Object[corev1.Service] {
		t.Helper()
		in, err := files.Read(t.Context(), config.Default())
		if err != nil || len(in.Found) > 0 || len(in.Objects.Services) != 2 {
			t.Fatal(in, err)
		}
		return in.Objects.Services
	}
	before := read()
	write("b.yaml", "# moved\n"+fmt.Sprintf(service, "b"))
	after := read()
	if after[0].Value != before[0].Value {
		t.Error("a file that did not change was decoded again")
	}
	if after[1].Value == before[1].Value || after[1].Position("metadata", "name").Line != 4 {
		t.Errorf("what moved is on line %d, with the value that it had", after[1].Position("metadata", "name").Line)
	}
}

func TestSubject(t *testing.T) {
	t.Parallel()
	check := haproxy(t)
	compile := func(edit func(string) string) compiler.Result {
		a := load(t, "shop.txtar")
		for i, f := range a.Files {
			a.Files[i].Data = []byte(edit(string(f.Data)))
		}
		r, err := source(t, a).Once(t.Context(), check, now, "test")
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	same := func(s string) string { return s }
	before := compile(same).Draft.Number(1, snapshots.ID{})
	for name, test := range map[string]struct {
		edit func(string) string
		want string
	}{
		"nothing": {same, "no change"},
		"route moved": {func(s string) string {
			return strings.Replace(s, "name: api\n            port: {number: 80}\n      - path: /exact", "name: web\n            port: {name: http}\n      - path: /exact", 1)
		}, "~1 route (Ingress shop/web)"},
		"path": {func(s string) string { return strings.ReplaceAll(s, "path: /api", "path: /v2") }, "+1 route, -1 route (Ingress shop/web)"},
		"all of api": {func(s string) string {
			return strings.ReplaceAll(s, "name: api\n            port: {number: 80}", "name: web\n            port: {name: http}")
		}, "-1 backend, ~2 routes (Ingress shop/web)"},
		"no TLS": {func(s string) string { return strings.ReplaceAll(s, "secretName: web-tls", "") }, "-1 certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := compiler.Subject(before, compile(test.edit)); got != test.want {
				t.Errorf("subject is %q, want %q", got, test.want)
			}
		})
	}
}
