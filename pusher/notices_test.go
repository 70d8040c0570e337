package pusher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hapsnap/hapsnap/internal/events"
	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/pusher/binding"

	"github.com/hapsnap/hapsnap/pusher/notify"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/statestore"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/dirstore"
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

// fullKeeper is a state on a disk that is full, until it is not.
type fullKeeper struct {
	full  bool
	tries int
}

func (k *fullKeeper) Save(context.Context, []byte) error {
	if k.tries++; k.full {
		return fmt.Errorf("save state: write .state.json.%d: no space left on device", 1000+7*k.tries)
	}
	return nil
}

func (k *fullKeeper) Take(context.Context, func() ([]byte, error)) (statestore.Taken, error) {
	return statestore.Taken{}, nil
}
func (k *fullKeeper) Raise(context.Context, int64) (int64, error) { return 0, nil }
func (k *fullKeeper) Release()                                    {}
func (k *fullKeeper) String() string                              { return "full" }

// A full disk is told once, tried again ever more seldom, and nothing is pushed whose
// push was not saved. With space again, all goes on.
func TestFailureDiskOfTheStateFull(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := newSteps(t, 1, func() worldStore { return dirstore.Open(dir, dirstore.Options{}) })
	w.publish()
	var log bytes.Buffer
	k := &fullKeeper{full: true}
	w.e.services.keeper, w.e.Log, w.e.Metrics = k, slog.New(slog.NewTextHandler(&log, nil)), prometheus.NewRegistry()
	w.e.services.observer = observe.New(w.e.observed())
	pushes := 0
	for range 600 { // a minute of turns
		w.now = w.now.Add(100 * time.Millisecond)
		e := w.e
		view, err := w.store.View(t.Context())
		e.takeView(view, err, w.now)
		e.decision = decide(e.view, e.state.Rollout.Failed, w.now)
		e.tellInstances()
		w.read()
		next, begun, waits := e.policy.Step(e.state.Rollout, e.observe(w.now), w.now)
		if e.commit(t, next, waits, w.now) {
			pushes += len(begun)
		}
		e.look(w.now)
		e.tellPeople()
		e.keepState(w.now)
		e.endSave(t, w.now)
	}
	if pushes > 0 {
		t.Errorf("%d pushes began that were not saved", pushes)
	}
	if k.tries > 14 || k.tries < 6 {
		t.Errorf("saving was tried %d times in a minute", k.tries)
	}
	if n := strings.Count(log.String(), observe.TroubleMessage("state")); n != 1 {
		t.Errorf("the log has %d lines of it:\n%s", n, log.String())
	}
	k.full = false
	w.now = w.now.Add(lastSaveRetry)
	w.settle()
	w.e.tellPeople()
	if n := strings.Count(log.String(), "trouble is over"); n != 1 {
		t.Errorf("the log says %d times that it is over:\n%s", n, log.String())
	}
}

// Every trouble that the pusher notes has a message of its own.
func TestTroublesHaveMessages(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
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
		for _, m := range regexp.MustCompile(`e\.trouble\("([^"]+)"`).FindAllStringSubmatch(string(text), -1) {
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

// A snapshot that could not be kept on disk is kept later, and said meanwhile.
func TestSnapshotIsKeptOnceThereIsSpace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := newSteps(t, 1, func() worldStore { return dirstore.Open(dir, dirstore.Options{}) })
	cache := filepath.Join(t.TempDir(), "cache")
	if err := os.WriteFile(cache, nil, 0o600); err != nil { // in the way
		t.Fatal(err)
	}
	w.e.Cache = cache
	w.publish()
	w.step()
	id := w.e.decision.ID
	if err := w.e.snapshotCache.Trouble(); err == nil || !strings.Contains(err.Error(), cache) {
		t.Fatalf("trouble is %v", err)
	}
	if _, ok := w.e.snapshotCache.Get(id); !ok {
		t.Fatal("it is not at hand")
	}
	if again := w.e.snapshotCache.KeepAgain(w.now); len(again) > 0 {
		t.Error("it is tried again at once")
	}
	if err := os.Remove(cache); err != nil {
		t.Fatal(err)
	}
	w.now = w.now.Add(binding.KeepRetry)
	again := w.e.snapshotCache.KeepAgain(w.now)
	if len(again) != 1 || len(w.e.snapshotCache.KeepAgain(w.now)) > 0 {
		t.Fatalf("%d are tried again", len(again))
	}
	w.e.snapshotCache.Take(id, again[0], keep(cache, again[0]), w.now)
	if err := w.e.snapshotCache.Trouble(); err != nil {
		t.Error(err)
	}
	if s, err := readKept(cache, id); err != nil || s.ID() != id {
		t.Errorf("it is not kept: %v", err)
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
		_, err := parseState([]byte(text), "the place")
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
	s, err := parseState([]byte(good+`,"later":{"x":1},"rollout":{"sooner":true},"uploads":null}`), "")
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
