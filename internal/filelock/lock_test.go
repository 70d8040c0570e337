package filelock

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

func TestTry(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	held, err := Try(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Try(path, 0o600); !errors.Is(err, ErrHeld) {
		t.Errorf("a second one got: %v", err)
	}
	held.Release()
	again, err := Try(path, 0o600)
	if err != nil {
		t.Fatalf("after it was given back: %v", err)
	}
	again.Release()
}

func TestTryWithoutDirectory(t *testing.T) {
	_, err := Try(filepath.Join(t.TempDir(), "none", "lock"), 0o600)
	if !errors.Is(err, os.ErrNotExist) || errors.Is(err, ErrHeld) {
		t.Errorf("got: %v", err)
	}
}

// A process that holds a copy of the file, as every process does while it is being
// started, does not hold the lock any longer than its owner.
func TestReleaseWhileACopyIsOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	held, err := Try(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), "cat")
	child.ExtraFiles = []*os.File{held.file}
	input, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	held.Release()
	again, err := Try(path, 0o600)
	if err != nil {
		t.Errorf("after it was given back: %v", err)
	} else {
		again.Release()
	}
	if err := errors.Join(input.Close(), child.Wait()); err != nil {
		t.Error(err)
	}
}

func TestWait(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	held, err := Try(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 3*interval)
	defer cancel()
	if _, err := Wait(short, path, 0o600); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting for a lock that is held ended with: %v", err)
	}

	time.AfterFunc(3*interval, held.Release)
	again, err := Wait(t.Context(), path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	again.Release()
}
