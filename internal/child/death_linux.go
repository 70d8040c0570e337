package child

import (
	"os/exec"
	"syscall"
)

// diesWithParent has the kernel kill a process when the thread that started it ends.
func diesWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}
