package compiler

import (
	"os"
	"path/filepath"
	"testing"
)

// A file that cannot be read, or that is empty, is an error, and never an empty list.
func TestReadCountryFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if err == nil {
			err = os.WriteFile(path, []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	whole := write("whole.txt", "192.0.2.0/24 DE\n")
	write("volume/..data/networks.txt", "192.0.2.0/24 AT\n")
	link := filepath.Join(dir, "volume", "networks.txt") // as the kubelet makes it
	if err := os.Symlink(filepath.Join("..data", "networks.txt"), link); err != nil {
		t.Fatal(err)
	}
	write("bare/.hidden", "192.0.2.0/24 AT\n")
	write("nested/folder/networks.txt", "192.0.2.0/24 AT\n")
	large := write("large.txt", "")
	if err := os.Truncate(large, mostCountryBytes+1); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ path, file, wrong string }{
		{whole, whole, ""},
		{filepath.Join(dir, "volume"), link, ""},
		{filepath.Join(dir, "gone.txt"), "", "does not exist"},
		{filepath.Join(dir, "gone", "networks.txt"), "", "does not exist"},
		{filepath.Join(whole, "networks.txt"), "", "cannot be read: not a directory"},
		{filepath.Join(dir, "bare"), "", "has no file"},
		{filepath.Join(dir, "nested"), filepath.Join(dir, "nested", "folder"), "is not a file"},
		{write("empty.txt", ""), "", "is empty"},
		{write("blank.txt", " \n\n"), "", "is empty"},
		{"/dev/zero", "", "is not a file"},
		{large, "", "is larger than 134217728 bytes"},
	} {
		got := readCountryFiles([]string{c.path})
		if c.file == "" {
			c.file = c.path
		}
		if len(got) != 1 || got[0].Path != c.file || got[0].Wrong != c.wrong || (got[0].Text == "") == (c.wrong == "") {
			t.Errorf("%s: %+v, want %s: %q", c.path, got, c.file, c.wrong)
		}
	}
}
