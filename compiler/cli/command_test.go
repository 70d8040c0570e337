package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/internal/testing/terminal"
)

// Another program can offer the commands below a command of its own, with its streams, and more than once. An
// error is returned with its exit code, and not printed.
func TestCommandsInAnotherProgram(t *testing.T) {
	t.Parallel()
	for range 2 {
		var out, errs bytes.Buffer
		root := &cobra.Command{Use: "front", SilenceErrors: true, SilenceUsage: true}
		root.AddCommand(NewCommand())
		root.SetOut(&out)
		root.SetErr(&errs)
		root.SetArgs([]string{"compiler", "version"})
		if err := root.ExecuteContext(t.Context()); err != nil || !strings.HasPrefix(out.String(), "front ") {
			t.Errorf("version: %v, printed %q", err, &out)
		}
		root.SetArgs([]string{"compiler", "render"})
		err := root.ExecuteContext(t.Context())
		if e, ok := errors.AsType[*process.ExitError](err); !ok || e.Code != process.ExitUsage || errs.Len() > 0 {
			t.Errorf("render without flags: %v, printed %q", err, &errs)
		}
	}
}

// exec runs the program in a directory of its own.
func exec(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	root := NewCommand()
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&err)
	code = process.Main(root)
	return code, out.String(), err.String()
}

func haproxy() string { return cmp.Or(os.Getenv("HAPROXY"), "haproxy") }

// manifests writes an Ingress with a path, and its Service.
func manifests(t *testing.T, dir, path string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: web}
spec: {ports: [{port: 80}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web}
spec:
  ingressClassName: hapsnap
  rules:
  - http:
      paths:
      - path: %q
        pathType: Prefix
        backend: {service: {name: web, port: {number: 80}}}
`, path)
	if err := os.WriteFile(filepath.Join(dir, "web.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestRenderWritesATree(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	manifests(t, filepath.Join(dir, "m"), "/x")
	out := filepath.Join(dir, "out")
	code, stdout, stderr := exec(t, "render", "-f", filepath.Join(dir, "m"), "-o", out, "--haproxy", haproxy(), "--http-port", "8080")
	if code != process.ExitOK || stdout != "" || stderr != "" {
		t.Fatalf("exit code %d, %q, %q", code, stdout, stderr)
	}
	cfg, err := os.ReadFile(filepath.Join(out, "haproxy.cfg"))
	if err != nil || !strings.Contains(string(cfg), "bind *:8080\n") {
		t.Errorf("%v\n%s", err, cfg)
	}
}

// On a terminal, render prints a summary. In scripts it prints only problems.
func TestRenderSumsUp(t *testing.T) {
	t.Setenv("TERM", "xterm")
	dir := t.TempDir()
	manifests(t, filepath.Join(dir, "in"), "/")
	args := []string{"render", "-f", filepath.Join(dir, "in"), "-o", filepath.Join(dir, "out"), "--haproxy", haproxy()}
	if code, out, errs := exec(t, args...); code != process.ExitOK || out+errs != "" {
		t.Fatalf("exit code %d: %s%s", code, out, errs)
	}
	screen := terminal.Open(t, 80)
	root := NewCommand()
	root.SetArgs(args)
	root.SetOut(screen.File)
	root.SetErr(screen.File)
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if seen := screen.Seen(t); !strings.HasSuffix(seen, "1 backend with servers, 0 hosts, 0 certificates; nothing left out\n") {
		t.Errorf("the terminal was sent %q", seen)
	}
}

func TestRenderPublishesToAStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	manifests(t, filepath.Join(dir, "m"), "/x")
	args := []string{"render", "-f", filepath.Join(dir, "m"), "-o", "dir:" + filepath.Join(dir, "store"), "--haproxy", haproxy()}
	for _, want := range []string{" published\n", " unchanged\n"} {
		code, stdout, stderr := exec(t, args...)
		if code != process.ExitOK || !strings.HasPrefix(stdout, "r000001-") || !strings.HasSuffix(stdout, want) {
			t.Errorf("exit code %d, %q, %q, want %q", code, stdout, stderr, want)
		}
	}
}

// With a fault the command fails, and nothing is written unless the user asks for the good part.
func TestRenderRefusesFaults(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	manifests(t, filepath.Join(dir, "m"), "/a b")
	out := filepath.Join(dir, "out")
	args := []string{"render", "-f", filepath.Join(dir, "m"), "-o", out, "--haproxy", haproxy()}
	code, stdout, stderr := exec(t, args...)
	if code != process.ExitInvalid || stdout != "" || !strings.HasPrefix(stderr, filepath.Join(dir, "m", "web.yaml")+":14:15: Ingress default/web: ") || strings.Contains(stderr, "compiler:") {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
	if _, err := os.Stat(out); !os.IsNotExist(err) {
		t.Errorf("out exists: %v", err)
	}
	if code, _, stderr := exec(t, append(args, "--allow-quarantine")...); code != process.ExitOK || stderr == "" {
		t.Errorf("with --allow-quarantine: exit code %d, %q", code, stderr)
	}
	if _, err := os.Stat(filepath.Join(out, "haproxy.cfg")); err != nil {
		t.Error(err)
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.yaml")
	if err := os.WriteFile(bad, []byte("apiVersion: hapsnap.dev/v1alpha1\nkind: CompilerConfig\nspec: {prot: 1}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"no manifests":    {[]string{"render", "-o", "x"}, process.ExitUsage, "use -f DIR"},
		"no output":       {[]string{"render", "-f", dir}, process.ExitUsage, "no output is named"},
		"standard output": {[]string{"render", "-f", dir, "-o", "-"}, process.ExitUsage, "cannot be printed"},
		"no store":        {[]string{"run", "-f", dir}, process.ExitUsage, "no store is named"},
		"unknown store":   {[]string{"run", "-f", dir, "--store", "ftp://x", "--haproxy", haproxy()}, process.ExitUsage, "git+file:///PATH"},
		"argument":        {[]string{"render", "x"}, process.ExitUsage, "compiler render --help"},
		"port":            {[]string{"render", "-f", dir, "-o", "x", "--http-port", "70000"}, process.ExitUsage, "--http-port: 70000 is not a port"},
		"configuration":   {[]string{"render", "-f", dir, "-o", "x", "--config", bad}, process.ExitInvalid, bad + ":3:8: spec.prot: unknown field"},
		"no haproxy":      {[]string{"render", "-f", dir, "-o", "x", "--haproxy", "no-such-haproxy"}, process.ExitFailure, "no-such-haproxy is not on PATH"},
		"no directory":    {[]string{"render", "-f", filepath.Join(dir, "none"), "-o", "x", "--haproxy", haproxy()}, process.ExitFailure, "no such file or directory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if code, _, stderr := exec(t, c.args...); code != c.code || !strings.Contains(stderr, c.want) {
				t.Errorf("exit code %d, %q, want %d with %q", code, stderr, c.code, c.want)
			}
		})
	}
}

// What migrate does looks at no context, and may take a minute. It ends all the same.
func TestMigrateIsInterrupted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	manifests(t, dir, "/")
	ended, end := context.WithCancel(t.Context())
	end()
	for _, args := range [][]string{{"migrate", "-f", dir}, {"migrate", "-f", dir, "--to", "gateway"}} {
		root := NewCommand()
		root.SetArgs(args)
		root.SetErr(io.Discard)
		if err := root.ExecuteContext(ended); !errors.Is(err, context.Canceled) {
			t.Errorf("%v: %v", args, err)
		}
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	if code, stdout, _ := exec(t, "version"); code != process.ExitOK || !strings.HasPrefix(stdout, "compiler ") {
		t.Errorf("exit code %d, %q", code, stdout)
	}
}

func TestParseSide(t *testing.T) {
	t.Parallel()
	exists := func(path string) bool { return path == "manifests@r1" || path == "manifests" }
	for name, want := range map[string]struct {
		store, revision string
		code            int
	}{
		"manifests":                       {},
		"manifests@r1":                    {}, // it exists
		"not-there":                       {}, // the error comes when it is read
		"not-there@x":                     {},
		"store@head":                      {store: "store", revision: "head"},
		"dir:store@r12":                   {store: "dir:store", revision: "r12"},
		"dir:store@12":                    {store: "dir:store", revision: "12"},
		"dir:store@r000012-9f3ac01b2d":    {store: "dir:store", revision: "r000012-9f3ac01b2d"},
		"git+ssh://git@host/edge.git@r3":  {store: "git+ssh://git@host/edge.git", revision: "r3"},
		"git+file:///e.git?branch=b@head": {store: "git+file:///e.git?branch=b", revision: "head"},
		"git+ssh://git:secret@host/e.git": {code: process.ExitUsage},
		"dir:store":                       {code: process.ExitUsage},
		"dir:store@":                      {code: process.ExitUsage},
		"dir:store@newest":                {code: process.ExitUsage},
	} {
		store, revision, err := parseSide(name, exists)
		if store != want.store || revision != want.revision || process.Code(t.Context(), err) != want.code {
			t.Errorf("%s: store %q, revision %q, %v", name, store, revision, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v holds the password", name, err)
		}
	}
}
