//go:build !linux

package sandbox

import "syscall"

// diesWithParent returns nothing: only Linux has such a signal.
func diesWithParent() *syscall.SysProcAttr { return nil }
