//go:build !amd64

package killtest

import (
	"errors"
	"syscall"
)

var errUnknownMachine = errors.New("system calls can be made to fail on amd64 only")

func skip(int) error                  { return errUnknownMachine }
func answer(int, syscall.Errno) error { return errUnknownMachine }
