package filelock

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// everything is the low word, and the high word, of the number of bytes that are locked.
const everything = ^uint32(0)

func try(f *os.File) error {
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, everything, everything, new(windows.Overlapped))
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return ErrHeld
	}
	return err
}

func unlock(f *os.File) {
	_ = windows.UnlockFileEx(windows.Handle(f.Fd()), 0, everything, everything, new(windows.Overlapped))
}
