// Package killtest kills a process at the Nth of its writes, for every N, or makes the write fail. A test says
// what the process does. The process is the test's own binary once more, and a tracer (ptrace(2)) stops it
// before each system call. So the tests see exactly the effects of kill -9, and of a full disk: the kernel has
// carried out the system calls up to that point and no others.
//
// A write is a system call that changes a file or a folder, or sends something. Messages between threads do not
// count.
package killtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// variable holds the arguments of a process to be killed.
const variable = "HAPSNAP_KILLTEST"

// Main is for TestMain. In a process that [Run] started, it calls do with the arguments, prints what do
// returns, and ends. In other processes it returns at once.
func Main(do func(args []string) (string, error)) {
	text, doomed := os.LookupEnv(variable)
	if !doomed {
		return
	}
	said, err := do(strings.Split(text, "\n"))
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	fmt.Println(said)
	os.Exit(0)
}

// Fate says what happens to a process at a write.
type Fate int

// The fates.
const (
	Kill        Fate = iota // it ends, as by kill -9
	Fail                    // the write fails, as on a disk that is full; the next does not
	KillSending             // as Kill, but only what is sent to other processes counts
)

// Outcome says how a process ended.
type Outcome struct {
	Met    bool   // it reached the write
	Killed bool   // it was killed there
	Failed bool   // it ended by itself, with an error
	Said   string // what it printed
	Point  string // the write, for the log
}

// Run starts a process that calls the function that [Main] got, with the arguments, none of which has a line
// break. The process meets its fate when it is about to make its nth write.
func Run(t *testing.T, fate Fate, n int, args ...string) Outcome {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	said, err := os.CreateTemp(t.TempDir(), "said")
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	env := append(os.Environ(), variable+"="+strings.Join(args, "\n"))
	traced := make(chan error, 1)
	var o Outcome
	go func() { // becomes the tracer, and its thread ends with it
		var err error
		o, err = trace(exe, env, said, tracer{fate: fate, left: n})
		traced <- err
	}()
	if err := <-traced; err != nil {
		t.Fatalf("trace a process: %v", err)
	}
	data, err := os.ReadFile(said.Name())
	if err != nil {
		t.Fatal(err)
	}
	o.Said = strings.TrimSpace(string(data))
	return o
}

// othersTime bounds the wait for processes that a killed process started.
const othersTime = 10 * time.Second

// awaitOthers waits for the processes of a group, such as git, which end when they notice that their parent is
// gone.
func awaitOthers(group int) {
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for end := time.Now().Add(othersTime); lives(group); <-look.C {
		if time.Now().After(end) {
			_ = syscall.Kill(-group, syscall.SIGKILL)
			return
		}
	}
}

// lives reports whether a process of the group runs. A process that has ended and for which init has not waited
// yet does not count, which kill(2) cannot tell.
func lives(group int) bool {
	if syscall.Kill(-group, 0) != nil {
		return false
	}
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // it ended
		}
		// proc_pid_stat(5): the name may hold anything, and ends at the last bracket.
		_, fields, _ := strings.Cut(string(data[strings.LastIndexByte(string(data), ')')+1:]), " ")
		var state string
		var parent, its int
		if _, err := fmt.Sscan(fields, &state, &parent, &its); err == nil && its == group && state != "Z" {
			return true
		}
	}
	return false
}

// The parts of ptrace(2) for which package syscall has no name.
const (
	requestSyscallInfo = 0x420e  // PTRACE_GET_SYSCALL_INFO, Linux 5.3
	entry              = 1       // PTRACE_SYSCALL_INFO_ENTRY
	optionExitKill     = 1 << 20 // PTRACE_O_EXITKILL
	waitAll            = 1 << 30 // __WALL
	stopSyscall        = syscall.SIGTRAP | 0x80
)

// info is struct ptrace_syscall_info at the entry to a system call.
type info struct {
	op   uint8
	_    [3]uint8
	arch uint32
	ip   uint64
	sp   uint64
	nr   uint64
	args [6]uint64
}

// trace runs a process until it ends. It needs a thread of its own, since only the thread that started a
// process may trace it.
func trace(exe string, env []string, said *os.File, t tracer) (Outcome, error) {
	runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
	null, err := os.Open(os.DevNull)
	if err != nil {
		return Outcome{}, err
	}
	defer null.Close()
	pid, err := syscall.ForkExec(exe, []string{exe}, &syscall.ProcAttr{
		Env: env, Files: []uintptr{null.Fd(), said.Fd(), said.Fd()},
		Sys: &syscall.SysProcAttr{Ptrace: true, Setpgid: true},
	})
	if err != nil {
		return Outcome{}, fmt.Errorf("start: %w", err)
	}
	defer awaitOthers(pid)
	t.pid = pid
	if err := t.begin(); err != nil {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		return Outcome{}, err
	}
	return t.loop()
}

// tracer follows one process with all its threads.
type tracer struct {
	pid     int
	fate    Fate
	left    int    // writes to go
	point   string // the write, once it was reached
	failing int    // the thread that is in the failing write
}

// begin waits for the process to stop at its start, and asks for its system calls.
func (t *tracer) begin() error {
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(t.pid, &status, waitAll, nil); err != nil {
		return fmt.Errorf("wait for the start: %w", err)
	}
	options := syscall.PTRACE_O_TRACECLONE | syscall.PTRACE_O_TRACESYSGOOD | optionExitKill
	if err := syscall.PtraceSetOptions(t.pid, options); err != nil {
		return fmt.Errorf("set options: %w", err)
	}
	return syscall.PtraceSyscall(t.pid, 0)
}

func (t *tracer) loop() (Outcome, error) {
	for {
		var status syscall.WaitStatus
		thread, err := syscall.Wait4(-t.pid, &status, waitAll, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return Outcome{}, fmt.Errorf("wait: %w", err)
		case thread == t.pid && (status.Exited() || status.Signaled()):
			return Outcome{
				Met: t.point != "", Killed: status.Signaled(), Failed: status.Exited() && status.ExitStatus() != 0, Point: t.point,
			}, nil
		case !status.Stopped():
			continue // a thread ended
		}
		if status.StopSignal() == stopSyscall {
			if err := t.look(thread); err != nil {
				return Outcome{}, err
			}
		}
		// A killed thread is gone before it can continue.
		if err := syscall.PtraceSyscall(thread, passOn(status)); err != nil && !errors.Is(err, syscall.ESRCH) {
			return Outcome{}, fmt.Errorf("go on: %w", err)
		}
	}
}

// look does what is due when a thread enters or leaves a system call.
func (t *tracer) look(thread int) error {
	switch {
	case t.failing == thread:
		t.failing = 0
		return answer(thread, syscall.ENOSPC)
	case t.point != "" || !t.due(thread):
		return nil
	case t.fate != Fail:
		return syscall.Kill(t.pid, syscall.SIGKILL)
	default:
		t.failing = thread
		return skip(thread)
	}
}

// passOn returns the signal for a stopped thread: one that was sent to it, but none that the kernel sends for
// the tracer.
func passOn(status syscall.WaitStatus) int {
	switch signal := status.StopSignal(); signal {
	case stopSyscall, syscall.SIGTRAP, syscall.SIGSTOP:
		return 0
	default:
		return int(signal)
	}
}

// due reports whether a thread that stopped at a system call is about to make the
// write at which the process meets its fate.
func (t *tracer) due(thread int) bool {
	var i info
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PTRACE, requestSyscallInfo, uintptr(thread), unsafe.Sizeof(i), uintptr(unsafe.Pointer(&i)), 0, 0)
	if errno != 0 || i.op != entry || !isWrite(t.pid, i) || (t.fate == KillSending && !isSent(t.pid, i)) {
		return false
	}
	if t.left--; t.left > 0 {
		return false
	}
	t.point = describe(t.pid, i)
	return true
}

// onDescriptors are the system calls that write to an open file or connection, which is their first argument.
var onDescriptors = map[uint64]string{
	syscall.SYS_WRITE: "write", syscall.SYS_PWRITE64: "pwrite", syscall.SYS_WRITEV: "writev",
	syscall.SYS_SENDTO: "sendto", syscall.SYS_SENDMSG: "sendmsg", syscall.SYS_CONNECT: "connect",
	syscall.SYS_FSYNC: "fsync", syscall.SYS_FDATASYNC: "fdatasync", syscall.SYS_FTRUNCATE: "ftruncate",
	syscall.SYS_FLOCK: "flock", syscall.SYS_FCHMOD: "fchmod",
}

// onNames are the system calls that change a folder, or something in it.
var onNames = map[uint64]string{
	syscall.SYS_RENAMEAT: "rename", syscall.SYS_MKDIRAT: "mkdir", syscall.SYS_UNLINKAT: "unlink",
	syscall.SYS_LINKAT: "link", syscall.SYS_SYMLINKAT: "symlink", syscall.SYS_UTIMENSAT: "utimes", syscall.SYS_FCHMODAT: "chmod",
}

// isWrite reports whether a system call is a write. It excludes eventfds, with which threads wake each other,
// and the standard output, which is for the final result.
func isWrite(pid int, i info) bool {
	if _, ok := onDescriptors[i.nr]; ok {
		if i.args[0] <= 2 {
			return false
		}
		return !strings.Contains(target(pid, i.args[0]), "anon_inode:")
	}
	if i.nr == syscall.SYS_OPENAT {
		return i.args[2]&syscall.O_CREAT != 0
	}
	_, ok := onNames[i.nr]
	return ok
}

// isSent reports whether a write goes to another process.
func isSent(pid int, i info) bool {
	if _, ok := onDescriptors[i.nr]; !ok {
		return false
	}
	to := target(pid, i.args[0])
	return strings.HasPrefix(to, "pipe:") || strings.HasPrefix(to, "socket:")
}

// describe names a write for the log of a test.
func describe(pid int, i info) string {
	if name, ok := onDescriptors[i.nr]; ok {
		return name + " " + target(pid, i.args[0])
	}
	if i.nr == syscall.SYS_OPENAT {
		return "create"
	}
	return onNames[i.nr]
}

// target returns the file on which a descriptor of a process is open.
func target(pid int, descriptor uint64) string {
	path, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, descriptor))
	if err != nil {
		return "?"
	}
	return path
}
