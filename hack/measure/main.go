// Measure prints figures about the code of this module, without its tests, that show how coarsely or finely it
// is divided: lines, files, functions and their lengths, the type with the most methods, and the package with
// the most exported names.
//
//	go run ./hack/measure [-v] [FOLDER]
//
// With -v it also names the widest types and packages, and counts the lines of tests
// in each package.
package main

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// shown is how many of the widest types and packages -v names.
const shown = 10

func main() {
	verbose := flag.Bool("v", false, "name the widest types and packages")
	flag.Parse()
	root := cmp.Or(flag.Arg(0), ".")
	m, err := measure(root)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	m.print(*verbose)
}

// typeFigures are those of a type: its methods, and the files that they are in.
type typeFigures struct {
	name    string
	methods int
	files   map[string]bool
}

// figures are those of a module.
type figures struct {
	lines, files, short int // short files have less than 50 lines
	functions           []int
	types               map[string]*typeFigures // by package and name
	exported            map[string]int          // by package
	tests               map[string]int          // lines, by package
}

func measure(root string) (*figures, error) {
	m := &figures{types: map[string]*typeFigures{}, exported: map[string]int{}, tests: map[string]int{}}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "build" || d.Name() == "testdata" || d.Name() == "tools"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go"):
			return nil
		}
		return m.add(path)
	})
	return m, err
}

func (m *figures) add(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	lines, folder := bytes.Count(text, []byte("\n")), filepath.Dir(path)
	if strings.HasSuffix(path, "_test.go") {
		m.tests[folder] += lines
		return nil
	}
	m.lines += lines
	m.files++
	if lines < 50 {
		m.short++
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			m.functions = append(m.functions, set.Position(d.End()).Line-set.Position(d.Pos()).Line+1)
			if d.Recv != nil {
				m.method(folder, path, d)
			} else if d.Name.IsExported() {
				m.exported[folder]++
			}
		case *ast.GenDecl:
			m.exported[folder] += exportedIn(d)
		}
	}
	return nil
}

func (m *figures) method(folder, path string, d *ast.FuncDecl) {
	receiver := d.Recv.List[0].Type
	if star, ok := receiver.(*ast.StarExpr); ok {
		receiver = star.X
	}
	if index, ok := receiver.(*ast.IndexExpr); ok {
		receiver = index.X
	}
	name, ok := receiver.(*ast.Ident)
	if !ok {
		return
	}
	key := folder + "." + name.Name
	if m.types[key] == nil {
		m.types[key] = &typeFigures{name: key, files: map[string]bool{}}
	}
	m.types[key].methods++
	m.types[key].files[path] = true
}

// exportedIn counts the exported names that a declaration adds to its package.
func exportedIn(d *ast.GenDecl) int {
	n := 0
	for _, spec := range d.Specs {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			if s.Name.IsExported() {
				n++
			}
		case *ast.ValueSpec:
			for _, name := range s.Names {
				if name.IsExported() {
					n++
				}
			}
		}
	}
	return n
}

func (m *figures) print(verbose bool) {
	slices.Sort(m.functions)
	at := func(share float64) int { return m.functions[int(share*float64(len(m.functions)-1))] }
	types := slices.SortedFunc(maps.Values(m.types), func(a, b *typeFigures) int {
		return cmp.Or(cmp.Compare(b.methods, a.methods), cmp.Compare(a.name, b.name))
	})
	spread := slices.SortedFunc(maps.Values(m.types), func(a, b *typeFigures) int {
		return cmp.Or(cmp.Compare(len(b.files), len(a.files)), cmp.Compare(a.name, b.name))
	})
	packages := slices.SortedFunc(maps.Keys(m.exported), func(a, b string) int {
		return cmp.Or(cmp.Compare(m.exported[b], m.exported[a]), cmp.Compare(a, b))
	})
	fmt.Printf("lines %d\nfiles %d, of them under 50 lines %d\n", m.lines, m.files, m.short)
	fmt.Printf("functions %d, lines median %d, p90 %d, longest %d\n", len(m.functions), at(0.5), at(0.9), at(1))
	fmt.Printf("lines per function %.1f\n", float64(m.lines)/float64(len(m.functions)))
	fmt.Printf("most methods: %d in %d files (%s)\n", types[0].methods, len(types[0].files), types[0].name)
	fmt.Printf("methods in most files: %d (%s)\n", len(spread[0].files), spread[0].name)
	fmt.Printf("most exported names: %d (%s)\n", m.exported[packages[0]], packages[0])
	if !verbose {
		return
	}
	for _, t := range types[:min(shown, len(types))] {
		fmt.Printf("\ttype %s: %d methods in %d files\n", t.name, t.methods, len(t.files))
	}
	for _, p := range packages[:min(shown, len(packages))] {
		fmt.Printf("\tpackage %s: %d exported names\n", p, m.exported[p])
	}
	for _, p := range slices.Sorted(maps.Keys(m.tests)) {
		fmt.Printf("\ttests of %s: %d lines\n", p, m.tests[p])
	}
}
