package process

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// limitedGroup is the environment variable that names the cgroup which a test process enters.
const limitedGroup = "HAPSNAP_TEST_CGROUP"

// configurationVariable is the one that has that process's configuration.
const configurationVariable = "HAPSNAP_TEST_CONFIGURATION"

// TestMain runs the tests, or, in a cgroup, what a program does when it starts.
func TestMain(m *testing.M) {
	group := os.Getenv(limitedGroup)
	if group == "" {
		os.Exit(m.Run())
	}
	if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	Started(slog.New(slog.NewTextHandler(os.Stdout, nil)), []byte(os.Getenv(configurationVariable)))
}

// In a cgroup with a limit, Go keeps to nine tenths of it, or to another ratio. The log says so, with the
// version, the CPUs and the digest of the configuration. It also says if there is no limit, or no
// configuration.
func TestStartedInACgroup(t *testing.T) {
	const limit = 200 << 20
	group := newCgroup(t, limit)
	for name, test := range map[string]struct {
		env, configuration string
		want               any
	}{
		"nine tenths":   {"", "configuration", limit / 10 * 9},
		"another ratio": {"AUTOMEMLIMIT=0.5", "configuration", limit / 2},
		"off":           {"AUTOMEMLIMIT=off", "", "none"},
		"set by hand":   {"GOMEMLIMIT=100MiB", "configuration", 100 << 20},
	} {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), limitedGroup+"="+group, configurationVariable+"="+test.configuration, test.env)
		out, err := cmd.CombinedOutput()
		digest := "none"
		if test.configuration != "" {
			digest = digestOf([]byte(test.configuration))
		}
		if want := fmt.Sprintf("msg=started version=%s memory=%v cpus=", Version(), test.want); err != nil || !strings.Contains(string(out), want) || !strings.Contains(string(out), " configuration="+digest+"\n") {
			t.Errorf("%s: %v: %s, want %s", name, err, bytes.TrimSpace(out), want)
		}
	}
}

// newCgroup makes a cgroup with a memory limit, of whichever version there is. As root with a writable cgroup
// file system, the test is not skipped.
func newCgroup(t *testing.T, limit int64) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root makes cgroups")
	}
	var errs []error
	for _, version := range []struct{ root, file string }{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
		{"/sys/fs/cgroup", "memory.max"},
	} {
		if _, err := os.Stat(filepath.Join(version.root, "cgroup.procs")); err != nil {
			errs = append(errs, err)
			continue
		}
		group := filepath.Join(version.root, fmt.Sprintf("hapsnap-test-%d", os.Getpid()))
		if err := os.Mkdir(group, 0o755); err != nil {
			errs = append(errs, err)
			continue
		}
		t.Cleanup(func() { _ = os.Remove(group) })
		if err := os.WriteFile(filepath.Join(group, version.file), []byte(strconv.FormatInt(limit, 10)), 0o600); err != nil {
			errs = append(errs, err)
			continue
		}
		return group
	}
	t.Skipf("no cgroup can be made here: %v", errs)
	return ""
}
