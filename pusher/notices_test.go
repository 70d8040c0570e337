package pusher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/events"
	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/pusher/core"
	"github.com/hapsnap/hapsnap/pusher/notify"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/snapshots"
)

// spoken is a cluster that keeps what is said in it.
type spoken struct {
	mu            sync.Mutex
	lasting, once []events.Event
	calls         int
}

func (s *spoken) Run(ctx context.Context) { <-ctx.Done() }

func (s *spoken) Say(lasting, once []events.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lasting, s.once, s.calls = lasting, append(s.once, once...), s.calls+1
}

func (s *spoken) said() (lasting, once []string, calls int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return words(s.lasting), words(s.once), s.calls
}

func words(all []events.Event) []string {
	var out []string
	for _, e := range all {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s %s %s: %s", e.Type, e.Reason, e.Regarding.Kind, e.Regarding.Name, e.Note)))
	}
	return out
}

// What happens to a rollout is said of the fleet, once.
func TestRolloutsAreSaidInTheCluster(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V32, "a", "b")
	s := &spoken{}
	r.options.Events = s
	r.endpoints(echo(t, "one"))
	good := r.publish(config("1", ""))
	r.allRunAfter(good)
	bad := r.publish(config("2", broken))
	r.until("the broken one is undone", func(s observe.Status) bool { return len(s.Rejected) == 1 && s.Rejected[0].Recorded && s.Rollout == nil })
	r.kill()
	_, once, _ := s.said()
	said := strings.Join(once, "\n")
	for _, want := range []string{
		fmt.Sprintf("Normal RolloutBegins  : rollout of %s begins", good), fmt.Sprintf("Normal RolloutDone  : the fleet runs %s", good),
		fmt.Sprintf("Warning RolloutFailed  : rollout of %s failed: a: refused: ", bad), fmt.Sprintf("Warning SnapshotRejected  : %s is rejected", bad),
		fmt.Sprintf("Normal RolloutUndone  : rollout of %s is undone, the fleet runs %s", bad, good),
	} {
		if strings.Count(said, want) != 1 {
			t.Errorf("not said once: %s\n%s", want, said)
		}
	}
}

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

// People are notified of what becomes of rollouts, once of each.
func TestNotices(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V32, "a", "b")
	var mu sync.Mutex
	var got []notify.Notice
	r.options.Notify = func(n notify.Notice) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, n)
	}
	r.endpoints(echo(t, "one"))
	good := r.publish(config("1", ""))
	r.allRunAfter(good)
	bad := r.publish(config("2", broken))
	r.until("the broken one is undone", func(s observe.Status) bool { return len(s.Rejected) == 1 && s.Rollout == nil })
	r.kill()

	mu.Lock()
	defer mu.Unlock()
	var events []notify.Event
	for _, n := range got {
		events = append(events, n.Event)
	}
	want := []notify.Event{notify.RolloutBegins, notify.RolloutDone, notify.RolloutBegins, notify.RolloutFailed, notify.RolloutUndone}
	if !slices.Equal(events, want) {
		t.Fatalf("notices are %v, want %v", events, want)
	}
	if n := got[3]; n.Snapshot != bad.String() || !strings.Contains(n.Text, "rollout of "+bad.String()+" failed: a: refused: ") || n.Time.IsZero() {
		t.Errorf("the failure is told as %+v", n)
	}
	if n := got[4]; !strings.Contains(n.Text, "the fleet runs "+good.String()) {
		t.Errorf("the undoing is told as %+v", n)
	}
}
