package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/dirstore"
)

// hapsnap runs a command line and returns its exit code and what it printed.
func hapsnap(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	root := NewCommand(Name)
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&errs)
	code = process.Main(root)
	return code, out.String(), errs.String()
}

// filledStore is a directory with two snapshots.
func filledStore(t *testing.T) (path string, ids []snapshots.ID) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "store")
	store := dirstore.Open(path, dirstore.Options{})
	for _, text := range []string{"one", "two"} {
		id, _, err := store.Publish(t.Context(), snapshots.Draft{
			Files:   []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte("# " + text + "\n")}},
			Subject: "the config " + text, Time: time.Now().Add(-time.Hour),
		})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return path, ids
}

// programs matches verbs of the other programs, which people do not type.
var programs = regexp.MustCompile(`\b(pusher|compiler) (\w+)`)

// Every verb has examples with valid flags and arguments. Its help names this program, except for verbs that
// run in pods.
func TestVerbsAreExplained(t *testing.T) {
	t.Parallel()
	for _, name := range []string{Name, Plugin} {
		root := NewCommand(name)
		for _, verb := range root.Commands() {
			if verb.Name() == "version" || verb.Name() == "help" || verb.Name() == "completion" {
				continue
			}
			var flags string
			verb.Flags().VisitAll(func(f *pflag.Flag) { flags += f.Usage + "\n" })
			for _, said := range programs.FindAllStringSubmatch(verb.Use+"\n"+verb.Short+"\n"+verb.Long+"\n"+flags, -1) {
				if found, _, err := root.Find([]string{said[2]}); err == nil && found != root && said[0] != "pusher status" && said[0] != "compiler status" {
					t.Errorf("%s speaks of %q", verb.CommandPath(), said[0])
				}
			}
			if !verb.HasExample() {
				t.Errorf("%s has no example", verb.CommandPath())
			}
			for line := range strings.Lines(verb.Example) {
				checkExample(t, name, strings.TrimSpace(line))
			}
		}
	}
}

// word is a word of a shell, perhaps in quotes.
var word = regexp.MustCompile(`'[^']*'|\S+`)

func checkExample(t *testing.T, name, line string) {
	t.Helper()
	rest, ok := strings.CutPrefix(line, name+" ")
	args := word.FindAllString(rest, -1)
	for i := range args {
		args[i] = strings.Trim(args[i], "'")
	}
	verb, args, err := NewCommand(name).Find(args)
	if err == nil {
		err = verb.ParseFlags(args)
	}
	if err == nil {
		err = verb.ValidateArgs(verb.Flags().Args())
	}
	if !ok || err != nil {
		t.Errorf("example %q: %v", line, err)
	}
}

// The program can be called as kubectl calls its plugins.
func TestFromArgs(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/usr/bin/hapsnap": Name, `kubectl-hapsnap.exe`: Plugin, "/home/me/.krew/bin/kubectl-hapsnap": Plugin,
	} {
		root, args := FromArgs([]string{path, "pin", "r1"})
		if !slices.Equal(args, []string{"pin", "r1"}) || root.CommandPath() != want {
			t.Errorf("%s: %v %v", path, root.CommandPath(), args)
		}
		pin, _, err := root.Find(args)
		if err != nil || !strings.Contains(pin.UsageString(), want+" pin SNAPSHOT [flags]") {
			t.Errorf("%s: %v\n%s", path, err, pin.UsageString())
		}
	}
	if _, args := FromArgs([]string{"kubectl_complete-hapsnap", "pi"}); !slices.Equal(args, []string{cobra.ShellCompRequestCmd, "pi"}) {
		t.Errorf("kubectl completes with %v", args)
	}
}

// Errors and answers of both halves name the verbs of this program.
func TestErrorsNameThisProgram(t *testing.T) {
	t.Parallel()
	store, _ := filledStore(t)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"pin", "r9", "--store", store}, process.ExitUsage, "hapsnap: the store holds no snapshot r9\n\thint: name one that hapsnap history lists, in full, as r12, or head\n"},
		{[]string{"pinn"}, process.ExitUsage, "hapsnap: unknown command \"pinn\" for \"hapsnap\"\n\thint: did you mean pin or sign?\n"},
		{[]string{"provisioner", "--metrics-address", "8080"}, process.ExitUsage, "hapsnap: --metrics-address: \"8080\" is not HOST:PORT\n\thint: write it with a port and without http://, such as localhost:8081, or :8081 for all addresses of this host\n"},
		{[]string{"provisioner", "--lease", "edge"}, process.ExitUsage, "hapsnap: --lease \"edge\" is not namespace/name\n\thint: name a Lease such as edge/hapsnap-provisioner\n"},
		{[]string{"provisioner", "--grace", "5"}, process.ExitUsage, "hapsnap: invalid argument \"5\" for \"--grace\" flag: want a duration such as 30m, 2h or 3d\n\thint: see hapsnap provisioner --help\n"},
		{[]string{"provisioner", "--resync", "0"}, process.ExitUsage, "hapsnap: --resync=0s: want a second or more\n"},
		{[]string{"run"}, process.ExitUsage, "hapsnap: unknown command \"run\" for \"hapsnap\"\n\thint: use compiler run or pusher run: hapsnap has the verbs that people type, and these two programs do the work\n"},
		{[]string{"wait", "rollout"}, process.ExitUsage, "hapsnap: one argument is given, \"rollout\"; the command is hapsnap wait --for rollout|snapshot=SNAPSHOT|condition=NAME\n\thint: see hapsnap wait --help\n"},
		{[]string{"pin", "r1", "--stroe", store}, process.ExitUsage, "hapsnap: unknown flag: --stroe\n\thint: did you mean --state or --store?\n"},
		{[]string{"pin"}, process.ExitUsage, "hapsnap: no argument is given; the command is hapsnap pin SNAPSHOT\n\thint: see hapsnap pin --help\n"},
		{[]string{"history"}, process.ExitUsage, "hapsnap: no store is named, and there is no cluster to find it in\n\thint: name the store with --store or HAPSNAP_STORE, or add a context: hapsnap context add NAME --store STORE\n"},
		{[]string{"history", "-n", "5"}, process.ExitUsage, "hapsnap: no cluster is named in which to look for the installation\n\thint: -n is the namespace, as with kubectl; --limit 5 says how many to list\n"},
		{[]string{"status"}, process.ExitUsage, "hapsnap: neither a state, a store nor a program is named\n\thint: use --state, --store or --address, or add a context: hapsnap context add NAME --store STORE\n"},
		{[]string{"status", "--address", "http://localhost:8081"}, process.ExitUsage, "hapsnap: --address: \"http://localhost:8081\" is not HOST:PORT\n\thint: write it with a port and without http://, such as localhost:8081, or :8081 for all addresses of this host\n"},
		{[]string{"diff", "r1", "manifests"}, process.ExitUsage, "hapsnap: r1 is a snapshot, and no store is named\n\thint: use --store or HAPSNAP_STORE, or name it as STORE@r1\n"},
	} {
		if code, _, stderr := hapsnap(t, c.args...); code != c.code || stderr != c.want {
			t.Errorf("%v: exit code %d, said %q, want %q", c.args, code, stderr, c.want)
		}
	}
}

// diff finds both sides. Its exit code says whether they differ.
func TestDiffTakesSnapshotsOfTheStore(t *testing.T) {
	t.Parallel()
	store, _ := filledStore(t)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"r1", "head", "--store", store}, 1, "+# two"},
		{[]string{"r1", "dir:" + store + "@r1", "--store", store}, 0, ""},
		{[]string{"dir:" + store + "@r1", "r2", "--store", store}, 1, "+# two"},
	} {
		code, out, stderr := hapsnap(t, append([]string{"diff", "--exit-code"}, c.args...)...)
		if code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%v: exit code %d\n%s%s", c.args, code, out, stderr)
		}
	}
}

// status shows what was compiled, and above it the fleet if there is a state.
func TestStatusShowsBothHalves(t *testing.T) {
	t.Parallel()
	store, ids := filledStore(t)
	code, out, stderr := hapsnap(t, "status", "--store", store)
	if code != process.ExitOK || !strings.Contains(out, "newest    "+ids[1].String()) {
		t.Errorf("exit code %d\n%s%s", code, out, stderr)
	}
	code, out, _ = hapsnap(t, "status", "--store", store, "-o", "json")
	var both struct {
		Fleet    any `json:"fleet"`
		Compiled struct {
			Head struct{ Snapshot string }
		} `json:"compiled"`
	}
	if err := json.Unmarshal([]byte(out), &both); err != nil || code != process.ExitOK || both.Fleet != nil || both.Compiled.Head.Snapshot != ids[1].String() {
		t.Errorf("exit code %d, %v\n%s", code, err, out)
	}
	// A missing state is an error, without partial output.
	state := filepath.Join(t.TempDir(), "state.json")
	if code, out, stderr = hapsnap(t, "status", "--store", store, "--state", state); code != process.ExitFailure || out != "" || !strings.Contains(stderr, "there is no state file") {
		t.Errorf("exit code %d\n%s%s", code, out, stderr)
	}
}

// Every verb has a man page. Two runs write the same.
func TestManPages(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "man1")
	var before []byte
	for range 2 {
		if code, _, stderr := hapsnap(t, "man", dir); code != process.ExitOK {
			t.Fatal(stderr)
		}
		page, err := os.ReadFile(filepath.Join(dir, "hapsnap-pin.1"))
		if err != nil || !strings.Contains(string(page), "incident 4711") || before != nil && !bytes.Equal(page, before) {
			t.Errorf("%v\n%s", err, page)
		}
		before = page
	}
	for _, verb := range NewCommand(Name).Commands() {
		if _, err := os.Stat(filepath.Join(dir, "hapsnap-"+verb.Name()+".1")); err != nil && verb.IsAvailableCommand() {
			t.Error(err)
		}
	}
}

// The completion of arguments and flags finds the store like the verb itself.
func TestCompletionFindsTheStore(t *testing.T) {
	path, ids := filledStore(t)
	t.Setenv("HAPSNAP_STORE", "dir:"+path)
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	for _, args := range [][]string{{"pin", ""}, {"rollback", "--to", ""}, {"diff", ids[0].String(), ""}, {"explain", "request", "http://shop.example.com/", "--snapshot", ""}} {
		_, out, _ := hapsnap(t, append([]string{"__complete"}, args...)...)
		if !strings.Contains(out, ids[0].String()+"\t") || !strings.HasSuffix(out, ":36\n") {
			t.Errorf("%v: %q", args, out)
		}
	}
	if _, out, _ := hapsnap(t, "__complete", "wait", "--for", "snapshot="); !strings.Contains(out, "snapshot="+ids[0].String()+"\t") {
		t.Errorf("%q", out)
	}
	if code, _, errs := hapsnap(t, "context", "add", "edge", "--store", "dir:"+path); code != process.ExitOK {
		t.Fatal(errs)
	}
	if _, out, _ := hapsnap(t, "__complete", "status", "--context", ""); out != "edge\tdir:"+path+"\n:4\n" {
		t.Errorf("%q", out)
	}
}
