//go:build !linux

package compiler

import "errors"

func exchange(string, string) error { return errors.ErrUnsupported }
