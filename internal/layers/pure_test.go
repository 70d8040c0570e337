package layers

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// pure are the packages that decide, each with what it has beside decisions.
var pure = map[string]map[string]string{
	"pusher/core":    {},
	"pusher/rollout": {},
	"pusher/binding": {
		"objects.go: imports context":      "WatchObjects reads the directory of live objects, for the runner",
		"objects.go: has a channel":        "so that it learns of changes there",
		"objects.go: waits":                "for them",
		"lossguard.go: imports sync":       "for a value that is computed when it is first asked for",
		"recorded.go: imports crypto/rand": "a replay puts certificates that mean nothing in the place of those that were served",
	},
	"snapshots/channel": {},
	"snapshots/bind":    {"bind.go: imports sync": "several jobs share the cache of a binder"},
}

// A decision depends on its arguments alone: a step of the pusher on the machine and on its events. The packages
// that decide read no clock, use no randomness, start no goroutine, do not wait or log, and use neither disk nor network.
func TestStepIsPure(t *testing.T) {
	t.Parallel()
	for pkg, allowed := range pure {
		used := map[string]bool{}
		for _, path := range production(t, pkg) {
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, path, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for at, what := range impurities(file) {
				if name := filepath.Base(path) + ": " + what; allowed[name] != "" {
					used[name] = true
				} else {
					t.Errorf("%s: %s", files.Position(at), what)
				}
			}
		}
		for name := range allowed {
			if !used[name] {
				t.Errorf("%s: %s is allowed, and not so any more", pkg, name)
			}
		}
	}
}

// production returns the files of a package without its tests.
func production(t *testing.T, pkg string) []string {
	t.Helper()
	paths, err := filepath.Glob("../../" + pkg + "/*.go")
	paths = slices.DeleteFunc(paths, func(path string) bool { return strings.HasSuffix(path, "_test.go") })
	if err != nil || len(paths) < 3 {
		t.Fatalf("%s: only these files were found: %v, %v", pkg, paths, err)
	}
	return paths
}

// impurities returns what in a file would make a decision depend on anything else, by position.
func impurities(file *ast.File) map[token.Pos]string {
	out := map[token.Pos]string{}
	found := func(at ast.Node, what string) { out[at.Pos()] = what }
	for _, i := range file.Imports {
		if path := strings.Trim(i.Path.Value, `"`); slices.ContainsFunc([]string{
			"context", "crypto/rand", "log", "log/slog", "math/rand", "math/rand/v2", "net", "net/http", "os", "os/exec", "sync", "sync/atomic", "syscall",
		}, func(not string) bool { return path == not }) {
			found(i, "imports "+path)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found(n, "starts a goroutine")
		case *ast.SelectStmt:
			found(n, "waits")
		case *ast.ChanType:
			found(n, "has a channel")
		case *ast.SelectorExpr:
			if of, is := n.X.(*ast.Ident); is && of.Name == "time" && slices.Contains([]string{"Now", "Since", "Until", "After", "AfterFunc", "Sleep", "Tick", "NewTimer", "NewTicker"}, n.Sel.Name) {
				found(n, "reads the clock by time."+n.Sel.Name)
			}
			if n.Sel.Name == "Log" {
				found(n, "logs")
			}
		}
		return true
	})
	return out
}

// The runner starts all goroutines of the pusher in one file. Packages below pusher that watch or call something have
// workers of their own.
func TestGoroutinesStartInTheRunner(t *testing.T) {
	t.Parallel()
	starts := 0
	for _, path := range production(t, "pusher") {
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			_, begins := n.(*ast.GoStmt)
			if of, is := n.(*ast.SelectorExpr); is {
				begins = of.Sel.Name == "Go" || of.Sel.Name == "AfterFunc"
			}
			if begins && filepath.Base(path) != "runner.go" {
				t.Errorf("%s: a goroutine begins outside of runner.go", files.Position(n.Pos()))
			} else if begins {
				starts++
			}
			return true
		})
	}
	if starts == 0 {
		t.Error("runner.go starts no goroutine")
	}
}

func TestImpuritiesAreFound(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`import "os"`:                               "imports os",
		`import "context"`:                          "imports context",
		`import "net"`:                              "imports net",
		`import "net/netip"`:                        "",
		`func f() { _ = time.Now() }`:               "reads the clock by time.Now",
		`func f() { _ = time.Since(x) }`:            "reads the clock by time.Since",
		`func f() { _ = now.Sub(x) }`:               "",
		`func f() { go f() }`:                       "starts a goroutine",
		`func (m *Machine) f() { m.Log.Info("x") }`: "logs",
		`var c chan int`:                            "has a channel",
		`func f() { select {} }`:                    "waits",
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "a.go", "package core\n"+text, 0)
		if err != nil {
			t.Fatal(err)
		}
		found := slices.Collect(maps.Values(impurities(file)))
		if (want == "") != (len(found) == 0) || want != "" && found[0] != want {
			t.Errorf("%s: found %q, want %q", text, found, want)
		}
	}
}
