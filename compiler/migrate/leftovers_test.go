package migrate_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/compiler/migrate"
)

// The next run removes files that a killed process left unfinished. Files that another process is writing stay.
func TestWriteRemovesLeftovers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	old, young := filepath.Join(dir, ".migrate-1"), filepath.Join(dir, ".migrate-2")
	for _, path := range []string{old, young} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := time.Now().Add(-time.Hour)
	if err := os.Chtimes(old, before, before); err != nil {
		t.Fatal(err)
	}
	result := migrate.Result{Files: []migrate.File{{Path: "web.yaml", Content: []byte("x: y\n")}}}
	if err := result.Write(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(old); err == nil {
		t.Error("the leftover is still there")
	}
	if _, err := os.Stat(young); err != nil {
		t.Error(err)
	}
}
