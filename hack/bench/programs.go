package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/internal/testing/worlds"
)

// programRows are the rows about the compiler as a program.
var programRows = []row{
	{name: "render", what: "`compiler render` of a folder", limit: readingYAML, goal: 2, unit: seconds, most: 50_000, measure: renderFolder},
	{name: "diff-folders", what: "`compiler diff` of two folders", limit: readingYAML + ", both", goal: 2, unit: seconds, most: 50_000, measure: diffFolders},
	{name: "explain", what: "`compiler explain` of a line", limit: readingYAML, goal: 2, unit: seconds, most: 50_000, measure: explainLine},
	{name: "memory", what: "memory of the compiler at its peak: a full compile and five changes", limit: "a process that holds the same objects", goal: 2, unit: bytes, measure: compilerMemory},
}

// built returns the path of the compiler.
func (b *bench) built(ctx context.Context) (string, error) {
	if b.program == "" {
		path := filepath.Join(b.dir, "compiler")
		if out, err := exec.CommandContext(ctx, "go", "build", "-o", path, "./cmd/compiler").CombinedOutput(); err != nil {
			return "", fmt.Errorf("go build: %w: %s", err, out)
		}
		b.program = path
	}
	return b.program, nil
}

// against compares a run of the compiler with reading YAML.
func against(ctx context.Context, w *world, folders []string, args func(n int) []string) (Cell, error) {
	program, err := w.built(ctx)
	if err != nil {
		return Cell{}, err
	}
	self, err := os.Executable()
	if err != nil {
		return Cell{}, err
	}
	n := 0
	return w.inTurns(ctx, plain(func() error {
		return ran(exec.CommandContext(ctx, self, append([]string{childVerb, "read"}, folders...)...))
	}),
		func(context.Context) (func() error, error) {
			n++
			cmd := exec.CommandContext(ctx, program, args(n)...)
			cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(w.check.Path)+":"+os.Getenv("PATH"))
			return func() error { return ran(cmd) }, nil
		})
}

func ran(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, out)
	}
	return nil
}

func renderFolder(ctx context.Context, w *world) (Cell, error) {
	dir, err := w.folder(0)
	if err != nil {
		return Cell{}, err
	}
	return against(ctx, w, []string{dir}, func(n int) []string {
		return []string{"render", "-f", dir, "-o", filepath.Join(w.dir, fmt.Sprintf("rendered-%d-%d", w.n, n))}
	})
}

func diffFolders(ctx context.Context, w *world) (Cell, error) {
	a, err := w.folder(0)
	if err != nil {
		return Cell{}, err
	}
	b, err := w.folder(1)
	if err != nil {
		return Cell{}, err
	}
	return against(ctx, w, []string{a, b}, func(int) []string { return []string{"diff", a, b} })
}

func explainLine(ctx context.Context, w *world) (Cell, error) {
	dir, err := w.folder(0)
	if err != nil {
		return Cell{}, err
	}
	return against(ctx, w, []string{dir}, func(int) []string { return []string{"explain", "-f", dir, "maps/exact.map:1"} })
}

// compilerMemory asks two processes of this program for the memory that they take.
func compilerMemory(ctx context.Context, w *world) (Cell, error) {
	self, err := os.Executable()
	if err != nil {
		return Cell{}, err
	}
	ask := func(what string) (float64, error) {
		out, err := exec.CommandContext(ctx, self, childVerb, what, strconv.Itoa(w.n)).Output()
		if err != nil {
			return 0, fmt.Errorf("%s: %w", what, err)
		}
		return strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
	}
	limit, err := ask("hold")
	if err != nil {
		return Cell{}, err
	}
	work, err := ask("compile")
	return Cell{Limit: limit, Work: work, Turns: 1}, err
}

// childVerb has this program do a part of a row in a process of its own.
const childVerb = "child"

func part(ctx context.Context, args []string) error {
	switch args[0] {
	case "read":
		for _, dir := range args[1:] {
			if err := readYAML(dir); err != nil {
				return err
			}
		}
		return nil
	case "hold", "compile":
		n, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		taken, err := memoryOf(ctx, args[0], n)
		fmt.Println(taken)
		return err
	}
	return fmt.Errorf("no such part: %s", args[0])
}

// readYAML reads all manifests below a folder into nodes, with their positions.
func readYAML(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		file, err := os.Open(path) //nolint:gosec // below the folder that was named
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }()
		decoder := yaml.NewDecoder(file)
		for {
			var node yaml.Node
			if err := decoder.Decode(&node); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
		}
	})
}

// memoryOf returns the memory that the objects of a world take, or that of compiling them at its peak.
func memoryOf(ctx context.Context, what string, n int) (float64, error) {
	check, err := validate.Find(ctx, haproxyName())
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "hapsnap-bench-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	w := newWorld(&bench{check: check, dir: dir}, n)
	worlds.Forget()
	debug.FreeOSMemory()
	if what == "hold" {
		defer func() { _ = w.objects.Ingresses[0] }()
		return residentBytes("VmRSS:")
	}
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0o600); err != nil { // the peak so far is forgotten
		return 0, err
	}
	p, err := newPublisher(ctx, w, newDirectory(w))
	for n := 0; n < 5 && err == nil; n++ {
		p.in.Objects = w.annotated(p.in.Objects, n)
		err = p.publish(ctx, false)
	}
	if err != nil {
		return 0, err
	}
	return residentBytes("VmHWM:")
}

// residentBytes returns a figure of this process's memory.
func residentBytes(name string) (float64, error) { return residentOf(os.Getpid(), name) }

func residentOf(pid int, name string) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, after, _ := strings.Cut(string(status), name)
	var kB float64
	_, err = fmt.Sscan(after, &kB)
	return kB * 1024, err
}
