package layers

import (
	"fmt"
	"slices"
	"strings"
)

// A Package is what the rules need to know of a Go package, by import path. The
// fields are those of `go list -json`.
type Package struct {
	ImportPath string
	// Imports are the direct imports of the package itself.
	Imports []string
	// TestImports and XTestImports are the direct imports of its tests.
	TestImports, XTestImports []string
}

// Violations returns, sorted, a line for each rule that the packages of a module
// break: the rule, and the shortest chain of imports that breaks it. Tests are
// held to the rules of the package that they test, except where a rule exempts
// them.
func Violations(module string, packages []Package) []string {
	g := newGraph(module, packages)
	var found []string
	for _, p := range packages {
		for _, r := range rules {
			found = append(found, g.breaches(p, r)...)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// graph is the imports between a module's packages, by their paths in it: "cmd/pusher".
type graph struct {
	module  string
	imports map[string][]string
}

func newGraph(module string, packages []Package) graph {
	g := graph{module: module, imports: map[string][]string{}}
	for _, p := range packages {
		g.imports[g.inside(p.ImportPath)] = g.own(p.Imports)
	}
	return g
}

func (g graph) inside(path string) string {
	return strings.TrimPrefix(strings.TrimPrefix(path, g.module), "/")
}

// own returns, sorted, those of the import paths that are in the module.
func (g graph) own(paths []string) []string {
	var in []string
	for _, path := range paths {
		if path == g.module || strings.HasPrefix(path, g.module+"/") {
			in = append(in, g.inside(path))
		}
	}
	slices.Sort(in)
	return in
}

// breaches returns how a package, and how its tests, break a rule.
func (g graph) breaches(p Package, r rule) []string {
	from := g.inside(p.ImportPath)
	if !r.from(from) {
		return nil
	}
	found := g.breach(r, from, from, p.Imports)
	if !r.exceptTests {
		tests := slices.Concat(p.TestImports, p.XTestImports)
		found = append(found, g.breach(r, from, from+" [test]", tests)...)
	}
	return found
}

// breach returns at most one line: how imports of a package, under the name to
// be shown for it, break a rule.
func (g graph) breach(r rule, from, name string, imports []string) []string {
	chain := g.path(g.own(imports), func(to string) bool { return to != from && r.never(to) })
	if chain == nil {
		return nil
	}
	chain = slices.Insert(chain, 0, name)
	return []string{fmt.Sprintf("%s: %s (%s)", r.name, strings.Join(chain, " -> "), r.why)}
}

// path returns the shortest chain of imports from one of the starts to a package
// that is wanted, both included; the first by name among equals.
func (g graph) path(starts []string, wanted func(string) bool) []string {
	seen := map[string]bool{}
	var queue [][]string
	for _, s := range starts {
		queue = append(queue, []string{s})
	}
	for len(queue) > 0 {
		chain := queue[0]
		queue = queue[1:]
		last := chain[len(chain)-1]
		if wanted(last) {
			return chain
		}
		if seen[last] {
			continue
		}
		seen[last] = true
		for _, next := range g.imports[last] {
			queue = append(queue, append(slices.Clone(chain), next))
		}
	}
	return nil
}
