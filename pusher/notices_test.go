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

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/internal/events"
	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/notify"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/pusher/statestore"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/dirstore"
)

// What is logged, posted and said in Events of a step is told from one source.
func TestHappenings(t *testing.T) {
	t.Parallel()
	one, two := snapshots.ID{Revision: 1, Short: "aaaaaaaaaa"}, snapshots.ID{Revision: 2, Short: "bbbbbbbbbb"}
	good := rollout.State{Good: one}
	of := func(phase rollout.Phase, paused string) rollout.State {
		return rollout.State{Good: one, Rollout: &rollout.Rollout{Target: two, Phase: phase, Paused: paused, Members: []string{"a"}}}
	}
	failed := func(phase rollout.Phase, recorded bool) rollout.State {
		s := of(phase, "")
		s.Failed = []rollout.Failure{{Snapshot: two, Reason: "a: refused", Recorded: recorded}}
		return s
	}
	undone := failed(rollout.Undoing, true)
	undone.Rollout = nil
	fought := rollout.State{
		Good:    one,
		Repairs: map[string]rollout.Repairs{"b": {Snapshot: one, Stopped: time.Unix(1, 0), Found: "theirs"}, "a": {Snapshot: one, Stopped: time.Unix(1, 0), Found: "theirs"}, "c": {Snapshot: one}},
	}
	const undone3 = "somebody else keeps changing it, 3 repairs in 10 minutes were undone: what it runs: want r000001-aaaaaaaaaa, found theirs"
	for name, test := range map[string]struct {
		old, next rollout.State
		want      string
	}{
		"nothing":     {good, good, ""},
		"begins":      {good, of(rollout.Pushing, ""), "rollout begins | rollout_begins | RolloutBegins | rollout of r000002-bbbbbbbbbb begins\nrollout goes on |  |  | \n"},
		"goes on":     {of(rollout.Pushing, ""), of(rollout.Soaking, ""), "rollout goes on |  |  | \n"},
		"done":        {of(rollout.Soaking, ""), rollout.State{Good: two}, "rollout done | rollout_done | RolloutDone | the fleet runs r000002-bbbbbbbbbb\n"},
		"is there":    {rollout.State{}, good, "fleet runs snapshot |  |  | \n"},
		"failed":      {of(rollout.Pushing, ""), failed(rollout.Pushing, false), "rollout failed | rollout_failed | RolloutFailed! | rollout of r000002-bbbbbbbbbb failed: a: refused\n"},
		"rejected":    {failed(rollout.Undoing, false), failed(rollout.Undoing, true), " |  | SnapshotRejected! | r000002-bbbbbbbbbb is rejected, until pusher retry\n"},
		"undone":      {failed(rollout.Undoing, true), undone, "rollout undone | rollout_undone | RolloutUndone | rollout of r000002-bbbbbbbbbb is undone, the fleet runs r000001-aaaaaaaaaa\n"},
		"first fails": {rollout.State{Rollout: of("", "").Rollout}, rollout.State{}, "rollout undone | rollout_undone | RolloutUndone | rollout of r000002-bbbbbbbbbb is undone\n"},
		"paused":      {of(rollout.Soaking, ""), of(rollout.Soaking, "b: 5xx"), "rollout paused | rollout_paused | RolloutPaused! | rollout of r000002-bbbbbbbbbb is paused: b: 5xx\n"},
		"resumes":     {of(rollout.Soaking, "b: 5xx"), of(rollout.Soaking, ""), "pause of rollout ends | rollout_goes_on | RolloutGoesOn | rollout of r000002-bbbbbbbbbb goes on after its pause\n"},
		"conflicts": {good, fought, "repairs stop | repairs_stop | RepairsStop! | a: " + undone3 + "\n" +
			"repairs stop | repairs_stop | RepairsStop! | b: " + undone3 + "\n"},
		"still in conflict": {fought, fought, ""},
		"conflicts end":     {fought, good, "repairs go on | repairs_go_on | RepairsGoOn | a: repairs go on\nrepairs go on | repairs_go_on | RepairsGoOn | b: repairs go on\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got strings.Builder
			for _, h := range happenings(test.old, test.next) {
				reason := h.reason
				if h.bad {
					reason += "!"
				}
				fmt.Fprintf(&got, "%s | %s | %s | %s\n", h.log, h.event, reason, h.text)
			}
			if diff := cmp.Diff(test.want, got.String()); diff != "" {
				t.Errorf("told differs (-want +got):\n%s", diff)
			}
		})
	}
}

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
	r.until("the broken one is undone", func(s Status) bool { return len(s.Rejected) == 1 && s.Rejected[0].Recorded && s.Rollout == nil })
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

// What holds is said of the pods and Secrets that it holds of, in the same words for
// as long as it does.
func TestTroubleOnObjects(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	tls, auth, gone := snapshots.SecretName{Namespace: "shop", Name: "tls"}, snapshots.SecretName{Namespace: "shop", Name: "auth"}, snapshots.SecretName{Namespace: "shop", Name: "gone"}
	s := &spoken{}
	e := &engine{
		bindings: newBindings(nil, fromCluster),
		Options:  Options{Events: s}, membership: membership{pods: &fleet.Pods{Namespace: "edge"}},
		instances: map[string]*instance{"pod": {Instance: fleet.Instance{Name: "pod", UID: "u1"}}, "listed": {Instance: fleet.Instance{Name: "listed"}}},
		secrets:   secretSet{tls: {uid: "u2"}, auth: {uid: "u3"}},
	}
	e.objects.broken = []brokenSecret{{tls, "Secret shop/tls: the key is another's"}}
	e.objects.missed = []brokenSecret{{auth, "nobody is let in"}, {gone, "the fallback certificate is served"}}
	status := []InstanceStatus{
		{Name: "fine", Reachable: true}, {Name: "listed", Since: now.Add(-tellAfter)},
		{Name: "away for a moment", Since: now.Add(-tellAfter / 2)}, {Name: "not asked yet"},
		{Name: "pod", Refused: true, Error: "HAProxy 2.2 is too old", Since: now},
	}
	e.sayObjects(status, now)
	for n := range 3 { // nothing is new
		status[1].Error = fmt.Sprintf("dial: port %d", n)
		e.sayObjects(status, now.Add(time.Duration(n)*time.Second))
	}
	lasting, _, calls := s.said()
	want := []string{
		"Warning InstanceUnreachable  : listed: it has been out of reach since 2026-01-01T11:59:00Z",
		"Warning InstanceRefused Pod pod: pod: nothing is pushed to it: HAProxy 2.2 is too old",
		"Warning Unusable Secret tls: Secret shop/tls: the key is another's",
		"Warning Unusable Secret auth: nobody is let in",
	}
	if diff := cmp.Diff(want, lasting); diff != "" {
		t.Errorf("said differs (-want +got):\n%s", diff)
	}
	if calls != 1 {
		t.Errorf("said %d times", calls)
	}
	if got := e.pod("pod"); got != (corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "edge", Name: "pod", UID: types.UID("u1")}) {
		t.Errorf("the pod is %+v", got)
	}

	// What is mended is said no more.
	e.objects.broken, e.objects.missed = nil, nil
	e.sayObjects([]InstanceStatus{{Name: "listed", Reachable: true}}, now)
	if lasting, _, _ := s.said(); len(lasting) > 0 {
		t.Errorf("still said: %v", lasting)
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
	w := newWorld(t, 1, func() worldStore { return dirstore.Open(dir, dirstore.Options{}) })
	w.publish()
	var log bytes.Buffer
	k := &fullKeeper{full: true}
	w.e.keeper, w.e.Log = k, slog.New(slog.NewTextHandler(&log, nil))
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
		e.report(w.now)
		e.keepState(w.now)
		e.endSave(t, w.now)
	}
	if pushes > 0 {
		t.Errorf("%d pushes began that were not saved", pushes)
	}
	if k.tries > 14 || k.tries < 6 {
		t.Errorf("saving was tried %d times in a minute", k.tries)
	}
	if n := strings.Count(log.String(), troubleMessage("state")); n != 1 {
		t.Errorf("the log has %d lines of it:\n%s", n, log.String())
	}
	k.full = false
	w.now = w.now.Add(lastSaveRetry)
	w.settle()
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
			if found++; troubleMessages[m[1]] == "" {
				t.Errorf("%s: trouble %q has no message", file, m[1])
			}
		}
	}
	if found == 0 {
		t.Error("no trouble was found")
	}
}

func TestTroublesThatDifferInNumbersAreOneLine(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	e := &engine{
		Options: Options{Log: slog.New(slog.NewTextHandler(&log, nil))}, troubles: map[string]Trouble{}, troubleLogged: map[string]loggedTrouble{},
	}
	now := noon
	say := func(text string) {
		now = now.Add(time.Second)
		e.trouble("store", errors.New(text), now)
		if e.troubles["store"].Error != text || !e.troubles["store"].Since.Equal(noon.Add(time.Second)) {
			t.Errorf("it says %+v, want %q", e.troubles["store"], text)
		}
	}
	for n := range 50 {
		say(fmt.Sprintf("write tmp-%d: no space left on device", n))
	}
	say("permission denied")
	say("permission denied")
	now = now.Add(2 * troubleRepeats)
	say("permission denied")
	e.trouble("store", nil, now)
	if n := strings.Count(log.String(), "\n"); n != 3 {
		t.Errorf("the log has %d lines, want 3:\n%s", n, log.String())
	}
	e.trouble("long", errors.New(strings.Repeat("z", 10*longestError)), now)
	if n := len(e.troubles["long"].Error); n > longestError+len("…") {
		t.Errorf("%d bytes are kept", n)
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
	w := newWorld(t, 1, func() worldStore { return dirstore.Open(dir, dirstore.Options{}) })
	cache := filepath.Join(t.TempDir(), "cache")
	if err := os.WriteFile(cache, nil, 0o600); err != nil { // in the way
		t.Fatal(err)
	}
	w.e.snapshotCache.dir = cache
	w.publish()
	w.step()
	id := w.e.decision.ID
	if err := w.e.snapshotCache.trouble(); err == nil || !strings.Contains(err.Error(), cache) {
		t.Fatalf("trouble is %v", err)
	}
	if _, ok := w.e.snapshotCache.have[id]; !ok {
		t.Fatal("it is not at hand")
	}
	if again := w.e.snapshotCache.keepAgain(w.now); len(again) > 0 {
		t.Error("it is tried again at once")
	}
	if err := os.Remove(cache); err != nil {
		t.Fatal(err)
	}
	w.now = w.now.Add(keepRetry)
	again := w.e.snapshotCache.keepAgain(w.now)
	if len(again) != 1 || len(w.e.snapshotCache.keepAgain(w.now)) > 0 {
		t.Fatalf("%d are tried again", len(again))
	}
	w.e.snapshotCache.take(id, again[0], keep(cache, again[0]), w.now)
	if err := w.e.snapshotCache.trouble(); err != nil {
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
	r.until("the broken one is undone", func(s Status) bool { return len(s.Rejected) == 1 && s.Rollout == nil })
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
