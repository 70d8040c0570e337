package process

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// limitedGroup is the environment variable that names the cgroup which a test process enters.
const limitedGroup = "HAPSNAP_TEST_CGROUP"

// configurationVariable is the one that has that process's configuration.
const configurationVariable = "HAPSNAP_TEST_CONFIGURATION"

// TestMain runs the tests, or, in a cgroup, what a program does when it starts.
func TestMain(m *testing.M) {
	group := os.Getenv(limitedGroup)
	if os.Getenv(signalled) != "" {
		os.Exit(Main(untilSignal()))
	}
	if group == "" {
		os.Exit(m.Run())
	}
	if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	Started(slog.New(slog.NewTextHandler(os.Stdout, nil)), []byte(os.Getenv(configurationVariable)))
}

// signalled is the environment variable of a test process that ends with a signal.
const signalled = "HAPSNAP_TEST_SIGNALLED"

// untilSignal is a command that needs some time to end after it was asked to: until its standard input ends.
func untilSignal() *cobra.Command {
	root := &cobra.Command{Use: "tool", RunE: func(cmd *cobra.Command, _ []string) error {
		fmt.Println("started")
		<-cmd.Context().Done()
		fmt.Println("stopping")
		_, _ = io.Copy(io.Discard, os.Stdin)
		return cmd.Context().Err()
	}}
	root.SetArgs(nil)
	return root
}

// Who sends a signal twice in a row, such as timeout(1), which signals the process and its group, does not keep the
// process from ending as usual. Who sends one again later ends it at once.
func TestASignalThatComesTwice(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		for _, later := range []bool{false, true} {
			status := endBySignals(t, sig, later)
			if status.Signaled() != later || !later && status.ExitStatus() != ExitInterrupted {
				t.Errorf("%s, and again later %v: it ended with the code %d, by a signal: %v", sig, later, status.ExitStatus(), status.Signaled())
			}
		}
	}
}

// endBySignals starts a process, sends it a signal twice in a row and, with later, again and again. It returns how the
// process ended.
func endBySignals(t *testing.T, sig syscall.Signal, later bool) syscall.WaitStatus {
	t.Helper()
	// A process that is started by tests under nohup would else have SIGHUP ignored.
	wanted := make(chan os.Signal, 1)
	signal.Notify(wanted, sig)
	defer signal.Stop(wanted)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), signalled+"=yes")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stdout)
	for _, want := range []string{"started", "stopping"} {
		if !lines.Scan() || lines.Text() != want {
			t.Errorf("%s: %q, want %s", sig, lines.Text(), want)
		}
		_ = cmd.Process.Signal(sig) // which fails after the end
	}
	if !later {
		_ = stdin.Close()
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // the state says more
		close(ended)
	}()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		select {
		case <-ended:
			return cmd.ProcessState.Sys().(syscall.WaitStatus)
		case <-again.C:
			if later {
				_ = cmd.Process.Signal(sig)
			}
		}
	}
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
