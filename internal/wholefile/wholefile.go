// Package wholefile writes files as a whole: a reader, also after a crash, finds the old file or the new one,
// and never a half.
package wholefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Replace writes a file as a whole: after a crash there is the old one or the new one. Only the owner can read
// it.
func Replace(file string, data []byte) error {
	temporary, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".*")
	if err != nil {
		return OfFile(file, err)
	}
	defer os.Remove(temporary.Name()) // does nothing once it was renamed
	_, err = temporary.Write(data)
	if err == nil {
		err = temporary.Sync()
	}
	if closeErr := temporary.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(temporary.Name(), file)
	}
	if err == nil {
		err = syncDirectory(filepath.Dir(file))
	}
	return OfFile(file, err)
}

// OfFile turns an error of a temporary file into one of the file for which it is, so that the text is the same
// each time.
func OfFile(file string, err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return &fs.PathError{Op: path.Op, Path: file, Err: path.Err}
	}
	if link, ok := errors.AsType[*os.LinkError](err); ok {
		return &fs.PathError{Op: link.Op, Path: file, Err: link.Err}
	}
	return err
}

func syncDirectory(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// RemoveTemporaries removes the temporary files of [Replace] that a killed pusher left in a folder. Those of
// another process that may write there are younger than the age given.
func RemoveTemporaries(dir string, age time.Duration, names ...string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // there is none, or what comes next says what is wrong
	}
	for _, entry := range entries {
		for _, name := range names {
			if !isTemporary(entry.Name(), name) || !entry.Type().IsRegular() {
				continue
			}
			if info, err := entry.Info(); err == nil && time.Since(info.ModTime()) >= age {
				_ = os.Remove(filepath.Join(dir, entry.Name()))
			}
		}
	}
}

// isTemporary reports whether a name is of a temporary file for a file of a given name. "*" at the beginning of
// that name stands for anything.
func isTemporary(name, of string) bool {
	rest, hidden := strings.CutPrefix(name, ".")
	dot := strings.LastIndexByte(rest, '.')
	if !hidden || dot < 0 || rest[dot+1:] == "" || strings.Trim(rest[dot+1:], "0123456789") != "" {
		return false
	}
	if end, anything := strings.CutPrefix(of, "*"); anything {
		return strings.HasSuffix(rest[:dot], end)
	}
	return rest[:dot] == of
}
