package manifests

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/kustomize/kyaml/yaml"
)

func service(name string) string {
	return "apiVersion: v1\nkind: Service\nmetadata: {name: " + name + "}\n"
}

// names returns the names of the objects of a set, in its order.
func names(s Set) string {
	var out []string
	for _, o := range s.Objects {
		out = append(out, o.Name)
	}
	return strings.Join(out, " ")
}

func TestReadRefusesWhatItCannotSee(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "link", "web.yaml"), service("web"))
	if err := os.Symlink("nowhere", filepath.Join(dir, "link", "gone.yaml")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "loop", "web.yaml"), service("web"))
	if err := os.Symlink("web2.yaml", filepath.Join(dir, "loop", "web2.yaml")); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"missing": "no such file or directory", os.DevNull: "is neither a directory nor a file",
		"link": "gone.yaml is a symbolic link that leads to nothing", "loop": "web2.yaml",
	} {
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		if set, err := Read(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Read(%s) = %v, %v, want an error with %s", path, set, err, want)
		}
	}
}

func TestReadEmptyDirectory(t *testing.T) {
	set, err := Read(t.TempDir())
	if err != nil || len(set.Objects)+len(set.Problems) > 0 {
		t.Errorf("got %v, %v", set, err)
	}
}

// The files of ConfigMap volumes are links into a hidden directory that is replaced.
func TestReadFollowsLinks(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "..2024", "web.yaml"), service("web"))
	write(t, filepath.Join(dir, "..2024", "sub", "api.yaml"), service("api"))
	for name, target := range map[string]string{
		"..data": "..2024", "web.yaml": "..data/web.yaml", "sub": "..data/sub", "again": "..data/sub", "up": ".",
	} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	set, err := Read(dir)
	if err != nil || names(set) != "api web" || len(set.Problems) > 0 {
		t.Errorf("got %q, %v, %v", names(set), set.Problems, err)
	}
}

func TestReaderParsesOnlyWhatChanged(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "all.yaml")
	write(t, file, service("a")+"---\n"+service("b"))
	var r Reader
	node := func() map[string]*yaml.Node {
		t.Helper()
		set, err := r.Read(dir)
		if err != nil {
			t.Fatal(err)
		}
		nodes := map[string]*yaml.Node{}
		for _, o := range set.Objects {
			nodes[o.Name] = o.node
		}
		return nodes
	}
	before := node()
	write(t, file, "# a line more\n"+service("a")+"---\n"+service("c")+"---\n"+service("b"))
	after := node()
	if after["b"] != before["b"] || after["c"] == nil {
		t.Error("the unchanged document was parsed again")
	}
	set, _ := r.Read(dir)
	if got := set.Objects[1].Position().Line; got != 10 {
		t.Errorf("b is on line %d, want 10: it moved", got)
	}
	write(t, file, service("c"))
	if got := node(); len(got) != 1 || len(r.parsed) != 1 {
		t.Errorf("removed documents are still there: %v, %d kept", got, len(r.parsed))
	}
}

// While files are created, replaced and removed all the time, no read fails and
// none misses the file that is always there.
func TestReadWhileFilesChange(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "stays.yaml"), service("stays"))
	done := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			other, temp := filepath.Join(dir, fmt.Sprintf("x%d.yaml", i%7)), filepath.Join(dir, ".temp")
			_ = os.WriteFile(temp, []byte(service("stays")), 0o644)
			_ = os.Rename(temp, filepath.Join(dir, "stays.yaml"))
			_ = os.WriteFile(temp, []byte(service(fmt.Sprintf("x%d", i%7))), 0o644)
			_ = os.Rename(temp, other)
			_ = os.Remove(filepath.Join(dir, fmt.Sprintf("x%d.yaml", (i+3)%7)))
		}
	})
	defer writer.Wait()
	defer close(done)
	for range 200 {
		set, err := Read(dir)
		if err != nil {
			// In a directory that keeps changing, a file that was listed may be gone when it is read: that is
			// an error, and not a smaller set.
			if !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			continue
		}
		if !strings.Contains(names(set), "stays") || len(set.Problems) > 0 {
			t.Fatalf("got %q, %v", names(set), set.Problems)
		}
	}
}

func BenchmarkReader(b *testing.B) {
	dir := b.TempDir()
	var all strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&all, "---\n"+`apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web-%d, namespace: shop}
spec:
  ingressClassName: hapsnap
  rules:
  - host: web-%d.example.com
    http:
      paths:
      - {path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}
`, i, i)
	}
	if err := os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(all.String()), 0o644); err != nil {
		b.Fatal(err)
	}
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			if _, err := Read(dir); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("again", func(b *testing.B) {
		var r Reader
		_, _ = r.Read(dir)
		for b.Loop() {
			if _, err := r.Read(dir); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// A small file that is no objects at all, a hundred thousand times, does not hide the problems of others, and takes little
// to tell.
func TestProblemsAreBounded(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), strings.Repeat("---\na: 1\n", 20_000))
	write(t, filepath.Join(dir, "b.yaml"), strings.Repeat(service("web")+"---\n", 500))
	write(t, filepath.Join(dir, "c.yaml"), "kind: [\n")
	write(t, filepath.Join(dir, "d.yaml"), "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n"+strings.Repeat("  k: v\n", 500))
	set, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if found := set.Objects[0].Decode(&corev1.ConfigMap{}); len(found) != mostOfOne {
		t.Errorf("%d fields that are given twice are listed", len(found))
	}
	of := map[string][]Problem{}
	for _, p := range set.Problems {
		of[filepath.Base(p.Position.File)] = append(of[filepath.Base(p.Position.File)], p)
	}
	if len(of["a.yaml"]) != mostOfOne+1 || len(of["b.yaml"]) != mostOfOne+1 || len(of["c.yaml"]) != 1 {
		t.Errorf("%d, %d and %d problems are listed", len(of["a.yaml"]), len(of["b.yaml"]), len(of["c.yaml"]))
	}
	if t.Failed() {
		return
	}
	if last := of["a.yaml"][mostOfOne]; last.Message != "19900 more problems are not listed" {
		t.Errorf("the last one is %+v", last)
	}
	if last := of["b.yaml"][mostOfOne]; last.Message != "399 more problems are not listed" || last.Name != "web" {
		t.Errorf("the last one is %+v", last)
	}
}

// Each object is passed on once, when its document was parsed, and can forget its content then.
func TestReaderPassesOnWhatItParsed(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), service("one")+"---\n"+service("two")+"---\n{")
	write(t, filepath.Join(dir, "b.yaml"), service("one"))
	parsed := map[string]int{}
	r := Reader{Parsed: func(o Object) {
		o.Forget()
		parsed[o.Name]++
	}}
	for _, want := range []string{"one two", "one three two"} {
		set, err := r.Read(dir)
		if err != nil || names(set) != want || len(set.Problems) != 2 {
			t.Fatalf("read %q, problems %v: %v", names(set), set.Problems, err)
		}
		for _, o := range set.Objects {
			var s corev1.Service
			if o.Decode(&s); s.Name != "" {
				t.Errorf("%s has its content", o)
			}
		}
		write(t, filepath.Join(dir, "c.yaml"), service("three"))
	}
	if parsed["one"] != 1 || parsed["two"] != 1 || parsed["three"] != 1 {
		t.Errorf("objects were passed on %v times", parsed)
	}
}
