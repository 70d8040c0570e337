package sandbox

import "syscall"

// diesWithParent has the kernel kill a process when the thread that started it ends.
func diesWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
