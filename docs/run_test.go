package docs_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	compiler "github.com/hapsnap/hapsnap/compiler/cli"
	front "github.com/hapsnap/hapsnap/hapsnap/cli"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	pusher "github.com/hapsnap/hapsnap/pusher/cli"
)

// TestMain makes the test's own binary act as each of the programs, under their names. So nothing has to be
// built for the commands on the pages.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "compiler":
		os.Exit(process.Main(compiler.NewCommand()))
	case "pusher":
		os.Exit(process.Main(pusher.NewCommand()))
	case front.Name:
		root, args := front.FromArgs(os.Args)
		root.SetArgs(args)
		os.Exit(process.Main(root))
	}
	os.Exit(m.Run())
}

// TestCommandsRun runs the commands of every page, block by block, in a folder of the page's own, as a reader
// who starts at the top would. The folder has
//
//   - the files of examples/shop, in a git repository, and $HAPSNAP, which is the clone;
//   - the store edge.git ($STORE), with two snapshots that an instance has run;
//   - fleet.yaml, with that instance, and state.json ($STATE), of its pusher.
//
// Commands that do not end (run, status -w) are only compared with the flags of the programs.
func TestCommandsRun(t *testing.T) {
	t.Parallel()
	base := newFolder(t)
	for page, text := range pages(t) {
		blocks, _ := blocksOf(page, text)
		blocks = slices.DeleteFunc(blocks, func(b block) bool { return b.info != "sh" && b.info != "console" })
		if len(blocks) == 0 {
			continue
		}
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			f := base.copy(t, page)
			for _, b := range blocks {
				typed, printed := b.commands()
				for i, line := range typed {
					if err := f.run(t.Context(), line, printed[i]); err != nil {
						t.Fatalf("%s: %v", b, err)
					}
				}
			}
		})
	}
}

// folder is where the commands of a page run.
type folder struct {
	base, dir string // dir is the current folder of the shell
	env       []string
}

// newFolder makes the folder of which each page gets a copy.
func newFolder(t *testing.T) *folder {
	t.Helper()
	root, err := filepath.Abs(repository)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	haproxy, err := exec.LookPath(cmp.Or(os.Getenv("HAPROXY"), "haproxy"))
	if err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"compiler": self, "pusher": self, front.Name: self, "haproxy": haproxy} {
		if err := os.Symlink(target, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	f := &folder{base: t.TempDir(), env: append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "HAPSNAP="+root,
		"GIT_AUTHOR_NAME=reader", "GIT_AUTHOR_EMAIL=reader@example.com", "GIT_COMMITTER_NAME=reader", "GIT_COMMITTER_EMAIL=reader@example.com",
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_PAGER=cat", "LC_ALL=C.UTF-8")}
	f.dir = f.base
	if err := os.CopyFS(f.base, os.DirFS(filepath.Join(root, "examples/shop"))); err != nil {
		t.Fatal(err)
	}
	f.startInstance(t, haproxy)
	f.must(t, `git init --quiet . && git add . && git commit --quiet -m shop`)
	f.must(t, `git init --quiet --bare --initial-branch=edge edge.git`)
	f.must(t, `compiler render -f manifests --config config.yaml -o "$STORE"`)
	f.pushBoth(t)
	return f
}

// startInstance starts an instance on its own loopback address, and writes the file of its fleet.
func (f *folder) startInstance(t *testing.T, haproxy string) {
	t.Helper()
	// The ports are those of examples/shop. The process ID makes the address unique.
	ip := fmt.Sprintf("127.%d.%d.%d", 100+os.Getpid()>>16&0x7f, os.Getpid()>>8&0xff, os.Getpid()&0xff)
	instance, err := dataplanetest.New(dataplanetest.Options{
		HAProxy: haproxy, API: dataplanetest.V32, Addr: net.JoinHostPort(ip, "18555"), Env: []string{"BIND_ADDRESS=" + ip},
		Username: "admin", Password: "of-the-docs",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(instance.Close)
	fleet := fmt.Sprintf("apiVersion: hapsnap.dev/v1alpha1\nkind: Fleet\nmetadata: {name: edge}\nspec:\n  rollout: {waves: [\"1\"], soak: 0s}\n  instances:\n"+
		"  - {name: edge-1, url: %q, username: admin, password: of-the-docs, directories: {maps: %s, certificates: %s, general: %s}}\n",
		instance.URL(), instance.Dirs.Maps, instance.Dirs.Certificates, instance.Dirs.General)
	if err := os.WriteFile(filepath.Join(f.base, "fleet.yaml"), []byte(fleet), 0o600); err != nil {
		t.Fatal(err)
	}
}

// pushBoth runs the pusher until the instance has run both snapshots.
func (f *folder) pushBoth(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	run := f.command(ctx, `exec pusher run --store "$STORE" --instances fleet.yaml --live manifests --state "$STATE" --poll-interval 100ms`)
	run.Cancel = func() error { return run.Process.Signal(os.Interrupt) }
	var log bytes.Buffer
	run.Stderr = &log
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	again := time.NewTicker(200 * time.Millisecond)
	defer again.Stop()
	runs := func(revision string) {
		deadline := time.Now().Add(time.Minute)
		for {
			out, err := f.command(ctx, `pusher status --state "$STATE"`).CombinedOutput()
			if err == nil && regexp.MustCompile(`(?m)^edge-1 .* `+revision+`-\w+ +yes`).Match(out) && regexp.MustCompile(`(?m)^good +`+revision).Match(out) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("the instance does not run %s\n%s", revision, out)
			}
			<-again.C
		}
	}
	runs("r000001")
	f.must(t, `cp changes/sale.yaml manifests/ && compiler render -f manifests --config config.yaml -o "$STORE" && rm manifests/sale.yaml`)
	runs("r000002")
	stop()
	if err := run.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatalf("%v\n%s", err, &log)
	}
}

// copy returns a folder with the same files for a page.
func (f *folder) copy(t *testing.T, page string) *folder {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(f.base)); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", strings.TrimSuffix(filepath.Base(page), ".md")))); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return &folder{base: dir, dir: dir, env: f.env}
}

func (f *folder) command(ctx context.Context, line string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", line)
	cmd.Dir = f.dir
	cmd.Env = append(slices.Clone(f.env), "HOME="+f.base, "TMPDIR="+f.base, "STORE=git+file://"+f.base+"/edge.git?branch=edge", "STATE="+f.base+"/state.json")
	return cmd
}

func (f *folder) must(t *testing.T, line string) {
	t.Helper()
	if out, err := f.command(t.Context(), line).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
}

// endless are the commands that do not end by themselves.
var endless = regexp.MustCompile(`\b(compiler run|pusher run|(pusher|hapsnap) status -w)\b`)

// exitCode matches the line with which a page shows that a command fails.
var exitCode = regexp.MustCompile(`(?m)^\[exit code (\d+)\]\n`)

// run runs a command, and compares its output with the page.
func (f *folder) run(ctx context.Context, line, shown string) error {
	if endless.MatchString(line) {
		return nil
	}
	want := "0"
	if found := exitCode.FindStringSubmatch(shown); found != nil {
		want, shown = found[1], exitCode.ReplaceAllString(shown, "")
	}
	// The next command begins in the folder in which this one ended.
	place := filepath.Join(f.base, ".place")
	cmd := f.command(ctx, line+"\npwd >"+place)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil || fmt.Sprint(cmd.ProcessState.ExitCode()) != want {
		return fmt.Errorf("%s: %w, want exit code %s\n%s", line, err, want, out)
	}
	if dir, err := os.ReadFile(place); err == nil {
		f.dir = strings.TrimSpace(string(dir))
	}
	return compare(line, shown, string(out))
}

var snapshotID = regexp.MustCompile(`r(\d{6})-[0-9a-f]{10}`)

// compare looks for the lines of a page in the output, in their order. "…" stands for any number of lines.
func compare(line, shown, printed string) error {
	rest := strings.Split(snapshotID.ReplaceAllString(printed, "$1"), "\n")
	for want := range strings.Lines(snapshotID.ReplaceAllString(shown, "$1")) {
		want = strings.TrimRight(want, "\n")
		if want == "…" {
			continue
		}
		at := slices.Index(rest, want)
		if at < 0 {
			return fmt.Errorf("%s: does not print the line %q there:\n%s", line, want, printed)
		}
		rest = rest[at+1:]
	}
	return nil
}
