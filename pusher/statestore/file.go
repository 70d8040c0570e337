package statestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hapsnap/hapsnap/internal/filelock"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/internal/wholefile"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem"
)

// fallbackFile is the name of the file next to the state with the fallback certificate.
const fallbackFile = "fallback.pem"

// File keeps the state in a file, and the fallback certificate in one next to it.
type File struct {
	file string
	lock *filelock.Lock // nil: it was not taken
}

// NewFile returns the state in a file.
func NewFile(file string) *File { return &File{file: file} }

// Take locks the file against other pushers on this host. There are no terms.
func (f *File) Take(_ context.Context, fallback func() ([]byte, error)) (Taken, error) {
	if err := f.lockIt(); err != nil {
		return Taken{}, err
	}
	wholefile.RemoveTemporaries(filepath.Dir(f.file), 0, filepath.Base(f.file), fallbackFile) // nobody else writes there
	data, err := os.ReadFile(f.file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Taken{}, fmt.Errorf("read state: %w", err)
	}
	certificate, err := fallbackIn(filepath.Join(filepath.Dir(f.file), fallbackFile), fallback)
	return Taken{State: data, Fallback: certificate}, err
}

// Save replaces the file, or returns [ErrTaken]: if somebody removed the lock, another pusher may have taken the state.
func (f *File) Save(_ context.Context, data []byte) error {
	if f.lock != nil && !f.lock.At(f.lockFile()) {
		if err := f.lockIt(); errors.Is(err, filelock.ErrHeld) {
			return fmt.Errorf("save state: its lock was removed, and %w: %w", ErrTaken, err)
		} else if err != nil {
			return fmt.Errorf("save state: %w", err)
		}
	}
	if err := wholefile.Replace(f.file, data); err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	return nil
}

// Raise returns an error, since a file has no terms.
func (f *File) Raise(context.Context, int64) (int64, error) {
	return 0, errors.New("a state in a file has no term")
}

// Release unlocks the file.
func (f *File) Release() {
	if f.lock != nil {
		f.lock.Release()
	}
}

func (f *File) String() string { return f.file }

// Place names the file so that it also means something on other hosts.
func (f *File) Place() string {
	file, err := filepath.Abs(f.file)
	if err != nil {
		file = f.file
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host"
	}
	return "file:" + host + ":" + file
}

// fallbackIn returns the certificate that is served if no other fits. It is self-signed, made once, and
// kept in a file that only its owner can read, so that all instances have the same one at any time. An empty file
// counts as none.
func fallbackIn(file string, fallback func() ([]byte, error)) ([]byte, error) {
	data, err := os.ReadFile(file)
	switch {
	case err == nil && len(data) == 0: // nothing is lost if it is made again
	case err == nil:
		if _, err := pem.CheckKeyPair(data); err != nil {
			return nil, process.WithHint(fmt.Errorf("read fallback certificate %s: %w", file, err),
				"restore what was there, or delete it: the pusher makes another one, which clients see that name no known host")
		}
		return data, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("read fallback certificate: %w", err)
	}
	if data, err = fallback(); err != nil {
		return nil, err
	}
	if err := wholefile.Replace(file, data); err != nil {
		return nil, fmt.Errorf("keep fallback certificate: %w", err)
	}
	return data, nil
}

func (f *File) lockFile() string { return f.file + ".lock" }

// lockIt keeps a second pusher from using the same state, until the lock is released or the process ends.
func (f *File) lockIt() error {
	if err := os.MkdirAll(filepath.Dir(f.file), 0o700); err != nil {
		return fmt.Errorf("lock state: %w", err)
	}
	lock, err := filelock.Try(f.lockFile(), 0o600)
	switch {
	case errors.Is(err, filelock.ErrHeld):
		return fmt.Errorf("lock state %s: another pusher is using it: %w", f.file, err)
	case err != nil:
		return fmt.Errorf("lock state: %w", err)
	}
	f.Release()
	f.lock = lock
	return nil
}
