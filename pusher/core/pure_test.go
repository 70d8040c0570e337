package core

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A step depends on the machine and on its events alone. The package reads no clock, uses no randomness, starts
// no goroutine, does not wait or log, and uses neither disk nor network.
func TestStepIsPure(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	paths = slices.DeleteFunc(paths, func(path string) bool { return strings.HasSuffix(path, "_test.go") })
	if len(paths) < 10 {
		t.Errorf("only these files were found: %v", paths)
	}
	for _, path := range paths {
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range impurities(files, file) {
			t.Error(found)
		}
	}
}

// impurities returns what in a file would make a step depend on anything else.
func impurities(files *token.FileSet, file *ast.File) (out []string) {
	found := func(at ast.Node, what string) {
		out = append(out, fmt.Sprintf("%s: %s", files.Position(at.Pos()), what))
	}
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
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, "a.go", "package core\n"+text, 0)
		if err != nil {
			t.Fatal(err)
		}
		found := impurities(files, file)
		if (want == "") != (len(found) == 0) || want != "" && !strings.HasSuffix(found[0], ": "+want) {
			t.Errorf("%s: found %q, want %q", text, found, want)
		}
	}
}
