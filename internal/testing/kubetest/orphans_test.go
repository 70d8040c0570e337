package kubetest

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// orphanage makes this program start a server, and wait until it is killed.
const orphanage = "HAPSNAP_KUBETEST_ORPHANAGE"

func runAsOrphanage() (bool, int) {
	if os.Getenv(orphanage) == "" {
		return false, 0
	}
	s, err := New()
	if err != nil {
		fmt.Println(err)
		return true, 1
	}
	fmt.Println(s.dir)
	select {}
}

// A test that is killed leaves no process behind.
func TestNoOrphans(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), orphanage+"=1", "TMPDIR="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	dir := strings.TrimSpace(line)
	running := processes(t, dir)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if len(running) != 2 {
		t.Fatalf("the test ran %q, want etcd and kube-apiserver; it said %q", running, line)
	}
	await(t, "the server ends with the test", func() error {
		if left := processes(t, dir); len(left) > 0 {
			return fmt.Errorf("%q still run", left)
		}
		return nil
	})
}

// processes returns the programs that have a folder in their arguments.
func processes(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil || dir == "" {
		t.Fatalf("list the processes with %q: %v", dir, err)
	}
	var found []string
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err == nil && bytes.Contains(line, []byte(dir)) {
			found = append(found, filepath.Base(string(bytes.Split(line, []byte{0})[0])))
		}
	}
	return found
}

var cluster Shared

func TestMain(m *testing.M) {
	if ran, code := runAsOrphanage(); ran {
		os.Exit(code)
	}
	os.Exit(Main(m, &cluster))
}
