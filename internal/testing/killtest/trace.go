package killtest

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"unsafe"
)

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
