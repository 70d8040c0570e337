package kubetest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// The addresses that are all this machine's in the namespace of InNamespace.
const (
	PodRange  = "10.244.0.0/16"
	PodRange6 = "fd00:10:244::/64"
)

// inside is set for the process in the namespace.
const inside = "HAPSNAP_KUBETEST_INSIDE"

// InNamespace starts this program again, with its arguments, in a network namespace
// of its own, runs the function there, and returns its exit code. What comes before
// it in the program is done twice, what comes after it too.
func InNamespace(run func() int) int {
	if os.Getenv(inside) == "" {
		return again()
	}
	// A program that a test starts may want a namespace too.
	err := errors.Join(os.Unsetenv(inside), raiseNetwork())
	if err != nil {
		fmt.Fprintln(os.Stderr, "set up the network of the tests:", err)
		return 1
	}
	return run()
}

// again runs this program in the namespace. It dies with this process, which is
// the thread that forked it.
func again() int {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...) //nolint:noctx // it ends with this process
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = newNamespace(os.Getuid(), os.Getgid())
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return exit.ExitCode()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "run the tests in a network namespace: %v\n\thint: this needs root, or a kernel that lets users make namespaces\n", err)
		return 1
	}
	return 0
}

// newNamespace asks for a network namespace, and for one of users where it takes
// root to make the first.
func newNamespace(uid, gid int) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Cloneflags: syscall.CLONE_NEWNET}
	if uid != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{HostID: uid, Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{HostID: gid, Size: 1}}
	}
	return attr
}
