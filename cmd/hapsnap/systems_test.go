package main

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// listed is the output of go list about a package.
type listed struct {
	Dir, ImportPath string
	GoFiles         []string
	ImportMap       map[string]string
	Error           *struct{ Err string }
}

// loaded has packages by import path. It is also the importer for one package.
type loaded struct {
	all     map[string]*types.Package
	renamed map[string]string
}

func (l loaded) Import(path string) (*types.Package, error) {
	if path == "unsafe" {
		return types.Unsafe, nil
	}
	if other := l.renamed[path]; other != "" {
		path = other
	}
	if p := l.all[path]; p != nil {
		return p, nil
	}
	return nil, errors.New("no package " + path)
}

// The program type-checks for other systems than Linux, with all of its packages and dependencies. Compiling it
// for two more systems would take minutes; a release does that.
func TestOtherSystems(t *testing.T) {
	t.Parallel()
	for _, system := range []string{"windows", "darwin"} {
		t.Run(system, func(t *testing.T) {
			t.Parallel()
			check(t, system)
		})
	}
}

func check(t *testing.T, system string) {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-e", "-json=Dir,ImportPath,GoFiles,ImportMap,Error", ".")
	list.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH=amd64")
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := map[string]*types.Package{}
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if p.Error != nil {
			t.Errorf("%s: %s", p.ImportPath, p.Error.Err)
		}
		packages[p.ImportPath] = typesOf(t, p, packages)
	}
	if len(packages) < 100 || packages["github.com/hapsnap/hapsnap/pusher/cli"] == nil {
		t.Errorf("only %d packages were looked at", len(packages))
	}
}

// typesOf type-checks a package. It checks the bodies of functions only in our packages.
func typesOf(t *testing.T, p listed, packages map[string]*types.Package) *types.Package {
	t.Helper()
	ours := strings.HasPrefix(p.ImportPath, "github.com/hapsnap/hapsnap/")
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	config := types.Config{
		Importer: loaded{packages, p.ImportMap}, IgnoreFuncBodies: !ours, Sizes: types.SizesFor("gc", "amd64"),
		Error: func(err error) {
			if ours || !strings.Contains(err.Error(), "imported and not used") {
				t.Error(err)
			}
		},
	}
	checked, _ := config.Check(p.ImportPath, fset, files, nil) // the errors were reported one by one
	return checked
}
