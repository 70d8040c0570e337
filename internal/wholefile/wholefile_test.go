package wholefile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Errors name the file, and not the temporary one, which differs each time.
func TestErrorsOfFilesNameTheFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "none", "state.json")
	if err := Replace(file, nil); err == nil || !strings.Contains(err.Error(), file+":") {
		t.Errorf("error is %v", err)
	}
	folder := filepath.Join(dir, "folder")
	if err := os.MkdirAll(filepath.Join(folder, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Replace(folder, nil); err == nil || !strings.Contains(err.Error(), "rename "+folder+":") {
		t.Errorf("error is %v", err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("left are %v", entries)
	}
}
