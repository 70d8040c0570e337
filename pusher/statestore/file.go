package statestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hapsnap/hapsnap/internal/filelock"
	"github.com/hapsnap/hapsnap/internal/wholefile"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem"
)

// fallbackFile is the name of the file next to the state with the fallback certificate.
const fallbackFile = "fallback.pem"

// File keeps the state in a file, and the fallback certificate in one next to it.
type File struct {
	file    string
	release func()
}

// NewFile returns the state in a file.
func NewFile(file string) *File { return &File{file: file} }

// Take locks the file against other pushers on this host. There are no terms.
func (f *File) Take(_ context.Context, fallback func() ([]byte, error)) (Taken, error) {
	release, err := lockState(f.file)
	if err != nil {
		return Taken{}, err
	}
	f.release = release
	wholefile.RemoveTemporaries(filepath.Dir(f.file), 0, filepath.Base(f.file), fallbackFile) // nobody else writes there
	data, err := os.ReadFile(f.file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Taken{}, fmt.Errorf("read state: %w", err)
	}
	certificate, err := fallbackIn(filepath.Join(filepath.Dir(f.file), fallbackFile), fallback)
	return Taken{State: data, Fallback: certificate}, err
}

// Save replaces the file.
func (f *File) Save(_ context.Context, data []byte) error {
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
	if f.release != nil {
		f.release()
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
// kept in a file that only its owner can read, so that all instances have the same one at any time.
func fallbackIn(file string, fallback func() ([]byte, error)) ([]byte, error) {
	data, err := os.ReadFile(file)
	if err == nil {
		if _, err := pem.CheckKeyPair(data); err != nil {
			return nil, fmt.Errorf("read fallback certificate %s: %w", file, err)
		}
		return data, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
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

// lockState keeps a second pusher from using the same state, until release is
// called or the process ends.
func lockState(file string) (release func(), err error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return nil, fmt.Errorf("lock state: %w", err)
	}
	lock, err := filelock.Try(file+".lock", 0o600)
	switch {
	case errors.Is(err, filelock.ErrHeld):
		return nil, fmt.Errorf("lock state %s: another pusher is using it: %w", file, err)
	case err != nil:
		return nil, fmt.Errorf("lock state: %w", err)
	}
	return lock.Release, nil
}
