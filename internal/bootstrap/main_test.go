package bootstrap

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// withDisk is a folder that the program finds on a disk of its own, which is full except for the former content
// of the folder.
const withDisk = "HAPSNAP_TEST_DISK"

// asProgram makes the test's own binary act as the program.
const asProgram = "HAPSNAP_TEST_BOOTSTRAP"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		if err := fillDisk(os.Getenv(withDisk)); err != nil {
			fmt.Fprintln(os.Stderr, "fill the disk:", err)
			os.Exit(99)
		}
		os.Exit(Main(os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// fillDisk mounts a small disk at a folder, with the folder's content, and fills it. Only this process sees the
// mount.
func fillDisk(dir string) error {
	if dir == "" {
		return nil
	}
	copied := map[string][]byte{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if copied[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	if err := errors.Join(syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""), syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k")); err != nil {
		return err
	}
	for name, content := range copied {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "other"), make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("it is not full: %w", err)
	}
	return nil
}
