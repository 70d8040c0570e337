package podtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/hapsnap/hapsnap/internal/child"
)

// setns is not in the package syscall for every architecture.
const setns = sysSetns

// A process cannot outlive the test.
type process struct {
	command *exec.Cmd
	gone    <-chan struct{}
}

func startProcess(c *exec.Cmd) (*process, error) {
	gone, err := child.Start(c)
	return &process{command: c, gone: gone}, err
}

// code is the exit code of a process that is gone.
func (p *process) code() int32 { return int32(p.command.ProcessState.ExitCode()) }

func (p *process) pid() int { return p.command.Process.Pid }

func (p *process) kill(s syscall.Signal) { _ = p.command.Process.Signal(s) }

func (p *process) ended() bool {
	select {
	case <-p.gone:
		return true
	default:
		return false
	}
}

// pause waits for a while, or for the end of a context.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// asShim has the test's own binary set up a container, and then become its program.
const asShim = "HAPSNAP_PODTEST"

// spec is what the shim needs to know.
type spec struct {
	Root     string
	Host     string
	Mounts   []mount
	ReadOnly bool
	Dir      string
	Command  []string
	Env      []string
	UID, GID int
	Groups   []int
}

type mount struct {
	Source, Target string
	ReadOnly       bool
}

// Shim has to come first in TestMain: it takes over where a container is to be started, and
// returns otherwise.
func Shim() {
	text := os.Getenv(asShim)
	switch text {
	case "":
		return
	case "pause":
		select {}
	}
	runtime.LockOSThread()
	var s spec
	err := json.Unmarshal([]byte(text), &s)
	if err == nil {
		err = s.become()
	}
	fmt.Fprintln(os.Stderr, "podtest: start a container:", err)
	os.Exit(127)
}

// become returns only an error.
func (s spec) become() error {
	if err := s.mounts(); err != nil {
		return err
	}
	if err := syscall.Sethostname([]byte(s.Host)); err != nil {
		return fmt.Errorf("set the name of the host: %w", err)
	}
	if err := errors.Join(syscall.Chroot(s.Root), syscall.Chdir(s.Dir)); err != nil {
		return fmt.Errorf("enter the root: %w", err)
	}
	path, err := s.program()
	if err != nil {
		return err
	}
	if err := errors.Join(syscall.Setgroups(s.Groups), syscall.Setresgid(s.GID, s.GID, s.GID), syscall.Setresuid(s.UID, s.UID, s.UID)); err != nil {
		return fmt.Errorf("become a user: %w", err)
	}
	const (
		setDeathSignal  = 1  // PR_SET_PDEATHSIG, which another user has to set again
		noNewPrivileges = 38 // PR_SET_NO_NEW_PRIVS
	)
	for option, value := range map[uintptr]uintptr{setDeathSignal: uintptr(syscall.SIGKILL), noNewPrivileges: 1} {
		if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, option, value, 0, 0, 0, 0); errno != 0 {
			return fmt.Errorf("prctl: %w", errno)
		}
	}
	syscall.Umask(0o022)
	return fmt.Errorf("run %s: %w", path, syscall.Exec(path, s.Command, s.Env)) //nolint:gosec // that is what it is for
}

// program looks for the command on the container's own PATH.
func (s spec) program() (string, error) {
	os.Clearenv()
	for _, e := range s.Env {
		if path, ok := cutPath(e); ok {
			if err := os.Setenv("PATH", path); err != nil {
				return "", err
			}
		}
	}
	return exec.LookPath(s.Command[0])
}

func cutPath(e string) (string, bool) {
	const name = "PATH="
	if len(e) < len(name) || e[:len(name)] != name {
		return "", false
	}
	return e[len(name):], true
}

// mounts makes the container's file system out of its root.
func (s spec) mounts() error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts private: %w", err)
	}
	if err := bind(s.Root, s.Root); err != nil {
		return err
	}
	for _, device := range []string{"null", "zero", "full", "random", "urandom"} {
		target := filepath.Join(s.Root, "dev", device)
		if err := errors.Join(os.MkdirAll(filepath.Dir(target), 0o755), os.WriteFile(target, nil, 0o666), bind("/dev/"+device, target)); err != nil { //nolint:gosec // as in a container
			return err
		}
	}
	for _, m := range s.Mounts {
		target := filepath.Join(s.Root, m.Target)
		if err := errors.Join(os.MkdirAll(target, 0o755), bind(m.Source, target)); err != nil { //nolint:gosec // as in a container
			return fmt.Errorf("mount %s: %w", m.Target, err)
		}
		if m.ReadOnly {
			if err := readOnly(target); err != nil {
				return err
			}
		}
	}
	processes := filepath.Join(s.Root, "proc")
	if err := os.MkdirAll(processes, 0o755); err != nil && !errors.Is(err, fs.ErrExist) { //nolint:gosec // as in a container
		return err
	}
	if err := syscall.Mount("proc", processes, "proc", 0, ""); err != nil {
		return fmt.Errorf("mount proc: %w", err)
	}
	if s.ReadOnly {
		return readOnly(s.Root)
	}
	return nil
}

func bind(source, target string) error {
	if err := syscall.Mount(source, target, "", syscall.MS_BIND|syscall.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s to %s: %w", source, target, err)
	}
	return nil
}

func readOnly(target string) error {
	if err := syscall.Mount("", target, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("make %s read-only: %w", target, err)
	}
	return nil
}
