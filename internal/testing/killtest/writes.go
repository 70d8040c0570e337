package killtest

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

// onDescriptors are the system calls that write to an open file or connection, which
// is their first argument.
var onDescriptors = map[uint64]string{
	syscall.SYS_WRITE: "write", syscall.SYS_PWRITE64: "pwrite", syscall.SYS_WRITEV: "writev",
	syscall.SYS_SENDTO: "sendto", syscall.SYS_SENDMSG: "sendmsg", syscall.SYS_CONNECT: "connect",
	syscall.SYS_FSYNC: "fsync", syscall.SYS_FDATASYNC: "fdatasync", syscall.SYS_FTRUNCATE: "ftruncate",
	syscall.SYS_FLOCK: "flock", syscall.SYS_FCHMOD: "fchmod",
}

// onNames are those that change a folder, or what is in it.
var onNames = map[uint64]string{
	syscall.SYS_RENAMEAT: "rename", syscall.SYS_MKDIRAT: "mkdir", syscall.SYS_UNLINKAT: "unlink",
	syscall.SYS_LINKAT: "link", syscall.SYS_SYMLINKAT: "symlink", syscall.SYS_UTIMENSAT: "utimes", syscall.SYS_FCHMODAT: "chmod",
}

// isWrite reports whether a system call is a write. By eventfds, threads wake each
// other; the standard output is for what is said in the end.
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

// target returns what a descriptor of a process is open on.
func target(pid int, descriptor uint64) string {
	path, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, descriptor))
	if err != nil {
		return "?"
	}
	return path
}
