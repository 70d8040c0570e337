package podtest

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// All files of a volume change at once: a reader that holds the folder behind the links sees one version. Old
// files are removed, and an unchanged volume is left alone.
func TestVolumeIsRefreshed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "volume")
	write := func(files map[string]string) string {
		t.Helper()
		content := map[string][]byte{}
		for name, text := range files {
			content[name] = []byte(text)
		}
		if err := writeVolume(path, content, 0o440, os.Getgid()); err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		entries, err := os.ReadDir(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if info, err := os.Stat(filepath.Join(path, e.Name())); err != nil || info.IsDir() {
				continue
			}
			text, err := os.ReadFile(filepath.Join(path, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			got[e.Name()] = string(text)
		}
		if !maps.Equal(got, files) {
			t.Errorf("the volume has %v, want %v", got, files)
		}
		data, err := os.Readlink(filepath.Join(path, dataLink))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(path, dataLink+"_tmp")); err == nil || len(entries) != len(files)+2 {
			t.Errorf("something is left behind: %v", entries)
		}
		return data
	}
	empty := write(nil)
	first := write(map[string]string{"username": "one", "password": "first"})
	if again := write(map[string]string{"username": "one", "password": "first"}); again != first {
		t.Error("a volume was written in which nothing changed")
	}
	second := write(map[string]string{"password": "second"})
	if empty == first || first == second {
		t.Errorf("files were changed in place: %s, %s, %s", empty, first, second)
	}
}

// An optional volume lacks the missing keys. Another one is refused.
func TestMissingKeys(t *testing.T) {
	t.Parallel()
	all := map[string][]byte{"one": []byte("1")}
	wanted := []corev1.KeyToPath{{Key: "one", Path: "first"}, {Key: "two", Path: "second"}}
	if got, err := items(all, wanted, "secret", true); err != nil || len(got) != 1 || string(got["first"]) != "1" {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := items(all, wanted, "secret", false); err == nil {
		t.Errorf("got %v", got)
	}
}
