package instancetest

import (
	"bytes"
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/hapsnap/hapsnap/charts/charttest"
)

// The compiler's image has no shell, and HAProxy with its libraries. What the Dockerfile
// copies is enough for `compiler render`, which runs `haproxy -c`, as the image's user, in a
// root that it may write only /tmp of. It runs here with this machine's HAProxy.
func TestCompilerImage(t *testing.T) {
	t.Parallel()
	dockerfile, err := os.ReadFile(filepath.Join(charttest.Root(t), "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	root := imageRoot(t, string(dockerfile))
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", filepath.Join(root, "usr/local/bin/compiler"), "./cmd/compiler")
	build.Dir = charttest.Root(t)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	manifests := map[string]string{
		"/manifests/web.yaml": `{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: web, namespace: shop}, spec: {ingressClassName: hapsnap, rules: [{host: shop.example, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {ports: [{port: 80}]}}
`,
		// A container has it from its runtime. An empty file reads the same.
		"/dev/null": "",
	}
	for path, content := range manifests {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // another user reads it
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o666); err != nil { //nolint:gosec // the same
			t.Fatal(err)
		}
	}
	// Whatever the umask is.
	for path, mode := range map[string]os.FileMode{"/tmp": 0o777 | os.ModeSticky, "/dev/null": 0o666, "/": 0o755} {
		if err := os.Chmod(filepath.Join(root, path), mode); err != nil {
			t.Fatal(err)
		}
	}
	out, err := inImage(t, string(dockerfile), root, "/usr/local/bin/compiler", "render", "-f", "/manifests", "-o", "/tmp/out")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if text, err := os.ReadFile(filepath.Join(root, "tmp/out/haproxy.cfg")); err != nil || !bytes.Contains(text, []byte("shop_web")) {
		t.Errorf("%v\n%s", err, text)
	}
	if _, err := os.Stat(filepath.Join(root, "bin/sh")); err == nil {
		t.Error("there is a shell")
	}
}

// imageRoot runs what the Dockerfile runs to collect HAProxy's files, for another folder.
func imageRoot(t *testing.T, dockerfile string) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "root")
	step := regexp.MustCompile(`(?m)^RUN (set -eu; mkdir -p /root-of-haproxy(.*\\\n)*.*)$`).FindStringSubmatch(dockerfile)
	if step == nil {
		t.Fatal("the Dockerfile does not collect HAProxy's files")
	}
	haproxy, err := exec.LookPath(cmp.Or(os.Getenv("HAPROXY"), "haproxy"))
	if err != nil {
		t.Fatal(err)
	}
	script := strings.ReplaceAll(strings.ReplaceAll(step[1], "\\\n", " "), "/root-of-haproxy", root)
	c := exec.CommandContext(t.Context(), "/bin/sh", "-c", script)
	c.Env = append(os.Environ(), "PATH="+filepath.Dir(haproxy)+":"+os.Getenv("PATH"))
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return root
}

// inImage runs a program with an image's root, user and PATH, which are the Dockerfile's.
func inImage(t *testing.T, dockerfile, root string, command ...string) (string, error) {
	t.Helper()
	_, stage, found := strings.Cut(dockerfile, "\nFROM scratch AS compiler\n")
	stage, _, _ = strings.Cut(stage, "\nFROM ")
	path := regexp.MustCompile(`(?m)^ENV (PATH=.*)$`).FindStringSubmatch(stage)
	if !found || path == nil || !strings.Contains(stage, "\nUSER 65532:65532\n") {
		t.Fatalf("the Dockerfile has no stage compiler with a PATH and a user:\n%s", stage)
	}
	const user = 65532
	c := &exec.Cmd{Path: command[0], Args: command, Env: path[1:], Dir: "/", SysProcAttr: &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: user, Gid: user}}}
	if uid := os.Getuid(); uid != 0 {
		c.SysProcAttr = &syscall.SysProcAttr{
			Chroot: root, Cloneflags: syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: user, HostID: uid, Size: 1}},
		}
	}
	out, err := c.CombinedOutput()
	return string(out), err
}
