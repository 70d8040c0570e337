package layers

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const module = "github.com/hapsnap/hapsnap"

// The module itself breaks no rule.
func TestModule(t *testing.T) {
	t.Parallel()
	packages := list(t)
	if len(packages) == 0 {
		t.Fatal("no packages")
	}
	for _, found := range Violations(module, packages) {
		t.Error(found)
	}
}

// `go install` of a program at a version works only if go.mod replaces and excludes nothing.
func TestProgramsCanBeInstalled(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json", "../../go.mod").Output()
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Replace, Exclude []any }
	if err := json.Unmarshal(out, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Replace) > 0 || len(file.Exclude) > 0 {
		t.Errorf("go.mod replaces %v and excludes %v", file.Replace, file.Exclude)
	}
}

// violations are packages, and what the rules say of them.
var violations = []struct {
	name     string
	packages []Package
	want     []string
}{
	{
		name: "kept",
		packages: []Package{
			imports("cmd/compiler", "compiler"),
			imports("cmd/pusher", "pusher", "pusher/dataplane"),
			imports("compiler", "snapshots", "templates", "compiler/routing"),
			imports("compiler/routing"),
			imports("pusher", "snapshots", "pusher/dataplane"),
			imports("pusher/dataplane"),
			imports("internal/testing/dataplanetest", "pusher/dataplane"),
			imports("pusher/fleettest", "internal/testing/dataplanetest"),
			imports("examples/demo", "internal/testing/dataplanetest"),
			imports("snapshots", "internal/process"),
			imports("templates/sections", "templates"),
			{ImportPath: module + "/templates", XTestImports: []string{module + "/templates"}},
			{ImportPath: module + "/pusher", TestImports: []string{module + "/internal/testing/dataplanetest"}},
		},
	},
	{
		name:     "compiler to pusher",
		packages: []Package{imports("compiler/routing", "pusher/dataplane")},
		want:     []string{"the compiler reaches no pusher: compiler/routing -> pusher/dataplane (it writes snapshots and knows no instance)"},
	},
	{
		name: "compiler to pusher through another",
		packages: []Package{
			imports("cmd/compiler", "internal/a"),
			imports("internal/a", "internal/b"),
			imports("internal/b", "internal/a", "pusher"),
		},
		want: []string{"the compiler reaches no pusher: cmd/compiler -> internal/a -> internal/b -> pusher (it writes snapshots and knows no instance)"},
	},
	{
		name:     "pusher to compiler, in a test",
		packages: []Package{{ImportPath: module + "/pusher/rollout", XTestImports: []string{module + "/compiler"}}},
		want:     []string{"the pusher reaches no compiler: pusher/rollout [test] -> compiler (it reads snapshots and never renders)"},
	},
	{
		name:     "pusher's program to templates",
		packages: []Package{imports("cmd/pusher", "templates")},
		want:     []string{"the pusher reaches no compiler: cmd/pusher -> templates (it reads snapshots and never renders)"},
	},
	{
		name:     "snapshots to a half",
		packages: []Package{imports("snapshots/gitstore", "compiler/diag")},
		want:     []string{"snapshots reaches neither half: snapshots/gitstore -> compiler/diag (it is the contract between them)"},
	},
	{
		name:     "the contract to what is done with it",
		packages: []Package{imports("snapshots", "snapshots/bind/pem", "snapshots/channel"), imports("snapshots/channel")},
		want:     []string{"the contract reaches no channel and no binding: snapshots -> snapshots/channel (it says what a snapshot is, not which one runs or how)"},
	},
	{
		name: "channel and binding to each other",
		packages: []Package{
			imports("snapshots/channel", "internal/a"), imports("internal/a", "snapshots/bind/htpasswd"),
			imports("snapshots/bind", "snapshots/bind/htpasswd", "snapshots/live"), imports("snapshots/live", "snapshots/channel"),
		},
		want: []string{
			"the binding reaches no channel: snapshots/bind -> snapshots/live -> snapshots/channel (what an instance gets does not depend on what people say should run)",
			"the channel reaches no binding: snapshots/channel -> internal/a -> snapshots/bind/htpasswd (which snapshot should run does not depend on live data)",
		},
	},
	{
		name: "the machine to a store, and to its runner",
		packages: []Package{
			imports("pusher/core", "pusher/binding", "pusher/rollout"), imports("pusher/binding", "internal/a"), imports("internal/a", "snapshots/stores"),
			{ImportPath: module + "/pusher/core", Imports: []string{module + "/pusher"}, TestImports: []string{module + "/snapshots/dirstore"}},
		},
		want: []string{
			"the machine reaches no store and nothing that runs it: pusher/core -> pusher (it takes events and returns effects, and somebody else has what these take)",
			"the machine reaches no store and nothing that runs it: pusher/core -> pusher/binding -> internal/a -> snapshots/stores (it takes events and returns effects, and somebody else has what these take)",
		},
	},
	{
		name:     "key material to ours",
		packages: []Package{imports("snapshots/bind/pem", "snapshots")},
		want:     []string{"key material reaches nothing of ours: snapshots/bind/pem -> snapshots (the contract and the binding both read it)"},
	},
	{
		name:     "templates to ours",
		packages: []Package{imports("templates", "snapshots")},
		want:     []string{"templates reaches nothing of ours: templates -> snapshots (templates are data; what reads them is in compiler)"},
	},
	{
		name: "the agent to a half, and others to the agent",
		packages: []Package{
			imports("waf/agent", "waf/policy", "snapshots"), imports("waf/policy", "internal/a"),
			imports("compiler/options", "waf/policy"), imports("compiler/cli", "waf/agent"),
			{ImportPath: module + "/compiler", TestImports: []string{module + "/waf/agent"}},
		},
		want: []string{
			"nothing but the agent reaches its engine: compiler/cli -> waf/agent (the compiler writes policies down, and an agent is a program of its own)",
			"the agent reaches neither half: waf/agent -> snapshots (it has what to do from the messages of HAProxy, and nothing else)",
		},
	},
	{
		name:     "the provisioner to a half, and a half to the provisioner",
		packages: []Package{imports("provisioner", "compiler/config/gateways", "compiler/gateway", "charts"), imports("pusher", "charts"), imports("hapsnap/cli", "provisioner")},
		want: []string{
			"nothing but the front door reaches the provisioner: pusher -> charts (the programs in pods of a fleet make none)",
			"the provisioner reaches neither half: provisioner -> compiler/gateway (it makes a fleet of the chart, as people do, and knows how a Gateway names it)",
		},
	},
	{
		name: "a program to the double",
		packages: []Package{
			imports("cmd/pusher", "pusher/fleettest"),
			imports("pusher/fleettest", "internal/testing/dataplanetest"),
		},
		want: []string{"no program reaches the double: cmd/pusher -> pusher/fleettest -> internal/testing/dataplanetest (the double is for tests and the demo)"},
	},
	{
		name:     "a program to the API server of tests",
		packages: []Package{imports("compiler", "internal/testing/kubetest"), imports("testscripts", "internal/testing/kubetest")},
		want:     []string{"no program reaches the API server: compiler -> internal/testing/kubetest (it is for tests)"},
	},
	{
		name:     "a program to the browser of tests",
		packages: []Package{imports("pusher/ui", "internal/testing/browsertest"), imports("pusher/ui/uitest", "internal/testing/browsertest")},
		want:     []string{"no program reaches the browser of tests: pusher/ui -> internal/testing/browsertest (it is for tests)"},
	},
	{
		name:     "a name that only begins like a half",
		packages: []Package{imports("compiler", "pushers"), imports("compilers", "pusher")},
	},
}

// Every rule finds a violation. So a rule that binds no package, because of a typo or a package that moved, is
// noticed.
func TestViolations(t *testing.T) {
	t.Parallel()
	for _, c := range violations {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, Violations(module, c.packages)); diff != "" {
				t.Errorf("violations (-want +got):\n%s", diff)
			}
		})
	}
}

// imports returns a package of the module that imports others.
func imports(path string, others ...string) Package {
	p := Package{ImportPath: module + "/" + path}
	for _, other := range others {
		p.Imports = append(p.Imports, module+"/"+other)
	}
	return p
}

// list asks the go command for the packages of the module.
func list(t *testing.T) []Package {
	t.Helper()
	var stderr strings.Builder
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports,TestImports,XTestImports", module+"/...")
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("list packages: %v\n%s", err, &stderr)
	}
	var packages []Package
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p Package
		switch err := d.Decode(&p); {
		case errors.Is(err, io.EOF):
			return packages
		case err != nil:
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}
