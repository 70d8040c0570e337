// Package scripttest writes programs that tests run.
package scripttest

import (
	"os"
	"syscall"
	"testing"
)

// Write writes a program that can be run at once. Meanwhile it lets no other test start a process: the child
// would have the file open for writing until it executes, and the system does not run such a file ("text file
// busy").
func Write(tb testing.TB, path, text string) {
	tb.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil { //nolint:gosec // it is to be run
		tb.Fatal(err)
	}
}
