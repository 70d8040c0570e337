package kubetest

import (
	"os"
	"path/filepath"
	"syscall"
)

// inTurn calls a function while no other process of this user is in one of its own.
// API servers that start at once keep each other from starting in time. Where the
// lock cannot be had, they do.
func inTurn(start func() error) error {
	file, err := os.OpenFile(filepath.Join(os.TempDir(), "hapsnap-kubetest.lock"), os.O_CREATE|os.O_RDONLY, 0o644)
	if err != nil {
		return start()
	}
	defer file.Close() // which gives the lock back
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return start()
	}
	return start()
}
