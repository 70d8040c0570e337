package controller

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The watch follows the files that the present configuration names.
func TestCountryWatch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one", "a.txt"), filepath.Join(dir, "two", "a.txt")
	write := func(path, text string) {
		t.Helper()
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if err == nil {
			err = os.WriteFile(path, []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write(one, "1")
	write(two, "2")
	log := slog.New(slog.DiscardHandler)
	var w countryWatch
	if w.follow(t.Context(), nil, log) != nil {
		t.Error("something is watched, and nothing is named")
	}
	first := w.follow(t.Context(), []string{one}, log)
	if w.follow(t.Context(), []string{one}, log) != first {
		t.Error("the same file is watched anew")
	}
	heard := func(path string) {
		t.Helper()
		changed := w.follow(t.Context(), []string{path}, log)
		write(path, strings.Repeat("x", 3))
		select {
		case <-changed:
		case <-time.After(time.Minute):
			t.Errorf("nothing was heard of %s", path)
		}
	}
	heard(one)
	heard(two)
	if w.follow(t.Context(), nil, log) != nil {
		t.Error("something is watched, and nothing is named any more")
	}
}
