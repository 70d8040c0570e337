// Package child starts programs that do not outlive the process that started them.
package child

import (
	"os/exec"
	"runtime"
)

// Start starts a command. On Linux the kernel kills it when this process ends, however that ends; other systems
// have no such signal. The channel is closed when the command has ended: its ProcessState says how.
func Start(cmd *exec.Cmd) (ended <-chan struct{}, err error) {
	diesWithParent(cmd)
	started, gone := make(chan error), make(chan struct{})
	go func() {
		// The kernel sends the signal when the thread that started the command ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // the state says how it ended
			close(gone)
		}
	}()
	return gone, <-started
}
