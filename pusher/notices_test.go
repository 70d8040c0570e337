package pusher

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/pusher/core"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/snapshots"
)

// Every trouble that the pusher notes has a message of its own.
func TestTroublesHaveMessages(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("core/*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\w\.trouble\("([^"]+)"`).FindAllStringSubmatch(string(text), -1) {
			if found++; observe.TroubleMessage(m[1]) == observe.TroubleMessage("") {
				t.Errorf("%s: trouble %q has no message", file, m[1])
			}
		}
	}
	if found == 0 {
		t.Error("no trouble was found")
	}
}

// What cannot be written names the file, and not one that is different each time.
func TestErrorsOfFilesNameTheFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "none", "state.json")
	if err := replaceFile(file, nil); err == nil || !strings.Contains(err.Error(), file+":") {
		t.Errorf("error is %v", err)
	}
	folder := filepath.Join(dir, "folder")
	if err := os.MkdirAll(filepath.Join(folder, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := replaceFile(folder, nil); err == nil || !strings.Contains(err.Error(), "rename "+folder+":") {
		t.Errorf("error is %v", err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("left are %v", entries)
	}
}

func TestLeftoversOfStatesAreRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mine := []string{".state.json.123", ".fallback.pem.4567"}
	others := []string{"state.json", ".state.json.", ".state.json.1a", ".state.json.old", ".other.json.123", "state.json.123", ".state.json.lock", ".r000001-0123456789.json.77"}
	for _, name := range append(mine, others...) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, ".state.json.999"), 0o700); err != nil { // nobody's
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "state.json")); err != nil {
		t.Fatal(err)
	}
	k := &stateFile{file: filepath.Join(dir, "state.json")}
	if _, err := k.Take(t.Context(), newFallback(noon)); err != nil {
		t.Fatal(err)
	}
	defer k.Release()
	for _, name := range mine {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s is still there", name)
		}
	}
	for _, name := range append(others[1:], ".state.json.999") {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Errorf("%s is gone", name)
		}
	}
	removeTemporaries(dir, time.Hour, "*.json") // of the cache, in which others may write
	if _, err := os.Stat(filepath.Join(dir, ".r000001-0123456789.json.77")); err != nil {
		t.Error("what may be another's is gone")
	}
	old := time.Now().Add(-2 * time.Hour)
	for _, name := range []string{".r000001-0123456789.json.77", ".other.json.123"} {
		if err := os.Chtimes(filepath.Join(dir, name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	removeTemporaries(dir, time.Hour, "*.json")
	if _, err := os.Stat(filepath.Join(dir, ".r000001-0123456789.json.77")); err == nil {
		t.Error("what is left of a snapshot is still there")
	}
}

func TestWhatIsNoState(t *testing.T) {
	t.Parallel()
	good := `{"apiVersion":"` + snapshots.APIVersion + `","kind":"PusherState"`
	for text, says := range map[string]string{
		"":                                 "empty",
		" \n":                              "empty",
		"null":                             "does not say",
		"{}":                               "does not say",
		`{"a":1}`:                          "does not say",
		"[]":                               "array",
		"7":                                "number",
		`"state"`:                          "string",
		"\x00\x00\x00\x00":                 "invalid character",
		good:                               "unexpected end",
		good + `}{}`:                       "after top-level value",
		`{"kind":"PusherState"}`:           "does not say",
		`{"apiVersion":"v1","kind":"Pod"}`: `"Pod"`,
		`{"apiVersion":"hapsnap.dev/v9","kind":"PusherState"}`: "hapsnap.dev/v9",
		good + `,"rollout":[]}`:                                "array",
		good + `,"rollout":{"good":"r1"}}`:                     "r1",
		good + `,"uploads":{"a":{"name":"x"}}}`:                "object",
		good + `,"status":7}`:                                  "number",
	} {
		_, err := core.ParseState([]byte(text), "the place")
		_, used := ParseInUse([]byte(text), "the place")
		_, status := ParseStatus([]byte(text), "the place")
		if strings.Contains(text, "rollout") || strings.Contains(text, "uploads") {
			status = err // which it does not read
		}
		for verb, err := range map[string]error{"run": err, "in use": used, "status": status} {
			if !errors.Is(err, ErrNotState) || !strings.Contains(err.Error(), "the place") || !strings.Contains(err.Error(), says) {
				t.Errorf("%s, %q: error is %v, want %q", verb, text, err, says)
			}
		}
	}
	s, err := core.ParseState([]byte(good+`,"later":{"x":1},"rollout":{"sooner":true},"uploads":null}`), "")
	if err != nil || s.Uploads == nil {
		t.Errorf("fields of a later version: %v", err)
	}
}
