// Package layers holds the rules about which package may import which, and finds
// what breaks them.
//
// The two programs have two identities: the compiler holds no credentials of HAProxy, and the pusher never
// renders. That holds only as long as no import, direct or through another package, leads from one half to the
// other. The linter checks direct imports while one types; the test here checks all of them.
//
// Only that test uses this package.
package layers

import (
	"fmt"
	"slices"
	"strings"
)

// A Package is what the rules need to know of a Go package, by import path. The fields are those of `go list
// -json`.
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
	g := graph{module: module, imports: map[string][]string{}}
	for _, p := range packages {
		g.imports[g.inside(p.ImportPath)] = g.own(p.Imports)
	}
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

// breach returns at most one line: how imports of a package break a rule. The line shows the package under the
// given name.
func (g graph) breach(r rule, from, name string, imports []string) []string {
	chain := g.path(g.own(imports), func(to string) bool { return to != from && r.never(to) })
	if chain == nil {
		return nil
	}
	chain = slices.Insert(chain, 0, name)
	return []string{fmt.Sprintf("%s: %s (%s)", r.name, strings.Join(chain, " -> "), r.why)}
}

// path returns the shortest chain of imports from one of the starts to a wanted package, both included. Among
// equally short ones it returns the first by name.
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

// A rule says which packages may not reach which others. .golangci.yml holds the
// same rules for direct imports.
type rule struct {
	name        string
	from        func(path string) bool // the packages that the rule binds
	never       func(path string) bool // the packages that they may not reach
	exceptTests bool                   // their tests may
	why         string
}

const double = "internal/testing/dataplanetest"

var rules = []rule{
	{
		name:  "the compiler reaches no pusher",
		from:  under("compiler", "cmd/compiler"),
		never: under("pusher", "cmd/pusher"),
		why:   "it writes snapshots and knows no instance",
	},
	{
		name:  "the pusher reaches no compiler",
		from:  under("pusher", "cmd/pusher"),
		never: under("compiler", "cmd/compiler", "templates"),
		why:   "it reads snapshots and never renders",
	},
	{
		name:  "the agent reaches neither half",
		from:  under("waf", "cmd/waf"),
		never: under("compiler", "pusher", "hapsnap", "snapshots", "templates", "cmd/compiler", "cmd/pusher"),
		why:   "it has what to do from the messages of HAProxy, and nothing else",
	},
	{
		name:        "nothing but the agent reaches its engine",
		from:        func(path string) bool { return forUse(path) && !under("waf", "cmd/waf")(path) },
		never:       func(path string) bool { return under("waf", "cmd/waf")(path) && path != "waf/policy" },
		exceptTests: true,
		why:         "the compiler writes policies down, and an agent is a program of its own",
	},
	{
		name:        "only the front door joins the halves",
		from:        func(path string) bool { return forUse(path) && !under("hapsnap", "cmd/hapsnap", "docs")(path) },
		never:       under("hapsnap"),
		exceptTests: true,
		why:         "hapsnap is what people type, and nothing builds on it",
	},
	{
		name: "the provisioner reaches neither half",
		from: under("provisioner"),
		never: func(path string) bool {
			return under("compiler", "pusher", "hapsnap", "snapshots", "templates", "cmd")(path) && !under("compiler/config/gateways", "compiler/config/field")(path)
		},
		exceptTests: true,
		why:         "it makes a fleet of the chart, as people do, and knows how a Gateway names it",
	},
	{
		name: "nothing but the front door reaches the provisioner",
		from: func(path string) bool {
			return forUse(path) && !under("provisioner", "hapsnap", "cmd/hapsnap", "docs")(path)
		},
		never:       under("provisioner", "charts"),
		exceptTests: true,
		why:         "the programs in pods of a fleet make none",
	},
	{
		name:  "snapshots reaches neither half",
		from:  under("snapshots"),
		never: under("compiler", "pusher", "cmd", "templates"),
		why:   "it is the contract between them",
	},
	{
		name:  "the contract reaches no channel and no binding",
		from:  func(path string) bool { return path == "snapshots" },
		never: func(path string) bool { return under("snapshots/channel")(path) || isBinding(path) },
		why:   "it says what a snapshot is, not which one runs or how",
	},
	{
		name:  "the channel reaches no binding",
		from:  under("snapshots/channel"),
		never: isBinding,
		why:   "which snapshot should run does not depend on live data",
	},
	{
		name:  "the binding reaches no channel",
		from:  under("snapshots/bind"),
		never: under("snapshots/channel"),
		why:   "what an instance gets does not depend on what people say should run",
	},
	{
		name: "the joined data reaches no rollout and no instance",
		from: under("pusher/binding"),
		never: func(path string) bool {
			return path == "pusher" || under("pusher/rollout", "pusher/fleet", "pusher/preflight", "pusher/statestore", "snapshots/channel")(path)
		},
		exceptTests: true,
		why:         "what a snapshot is with today's endpoints does not depend on who gets it",
	},
	{
		name: "the machine reaches no store and nothing that runs it",
		from: under("pusher/core"),
		never: func(path string) bool {
			return path == "pusher" || under(
				"cmd", "pusher/announce", "pusher/cli", "pusher/discovery", "pusher/statestore", "internal/election",
				"snapshots/configmapstore", "snapshots/dirstore", "snapshots/gitstore", "snapshots/stores",
			)(path)
		},
		exceptTests: true,
		why:         "it takes events and returns effects, and somebody else has what these take",
	},
	{
		name: "what is done on instances reaches nothing that decides",
		from: under("pusher/instance"),
		never: func(path string) bool {
			return path == "pusher" || under("pusher/statestore", "pusher/discovery")(path)
		},
		exceptTests: true,
		why:         "it carries out one effect on one instance",
	},
	{
		name:        "key material reaches nothing of ours",
		from:        under("snapshots/bind/pem", "snapshots/bind/htpasswd"),
		never:       func(string) bool { return true },
		exceptTests: true,
		why:         "the contract and the binding both read it",
	},
	{
		name:  "the model reaches no translation",
		from:  under("compiler/routing", "compiler/policy", "compiler/options", "compiler/render"),
		never: under("compiler/ingress"),
		why:   "another API is translated beside Ingress, and rendered alike",
	},
	{
		name:  "templates reaches nothing of ours",
		from:  under("templates"),
		never: func(path string) bool { return !under("templates")(path) },
		why:   "templates are data; what reads them is in compiler",
	},
	{
		name:        "no program reaches the double",
		from:        forUse,
		never:       under(double),
		exceptTests: true,
		why:         "the double is for tests and the demo",
	},
	{
		name:        "no program reaches the API server",
		from:        forUse,
		never:       under("internal/testing/kubetest"),
		exceptTests: true,
		why:         "it is for tests",
	},
	{
		name:        "no program is killed on purpose",
		from:        forUse,
		never:       under("internal/testing/killtest"),
		exceptTests: true,
		why:         "it is for tests",
	},
	{
		name:        "no program reaches the browser of tests",
		from:        forUse,
		never:       under("internal/testing/browsertest"),
		exceptTests: true,
		why:         "it is for tests",
	},
}

// isBinding reports whether a package is snapshots/bind or one that reads users for it. The contract may import
// the package that reads certificates.
func isBinding(path string) bool {
	return path == "snapshots/bind" || under("snapshots/bind/htpasswd")(path)
}

// under reports whether a path is one of the roots or below one.
func under(roots ...string) func(string) bool {
	return func(path string) bool {
		for _, root := range roots {
			if path == root || strings.HasPrefix(path, root+"/") {
				return true
			}
		}
		return false
	}
}

// forUse reports whether a package is neither the demo, nor the benchmarks, nor a support of tests,
// which has a path element that ends in "test" or is testscripts.
func forUse(path string) bool {
	if under("examples/demo", "hack/bench", "testscripts")(path) {
		return false
	}
	for element := range strings.SplitSeq(path, "/") {
		if strings.HasSuffix(element, "test") {
			return false
		}
	}
	return true
}
