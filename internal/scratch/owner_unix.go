//go:build !windows

package scratch

import (
	"os"
	"syscall"
)

// isMine reports whether a folder belongs to the user of this process.
func isMine(info os.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}
