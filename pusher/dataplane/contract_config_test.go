//nolint:thelper // the checks are tests: a failure has to name their own lines
package dataplane_test

import (
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hapsnap/hapsnap/internal/testing/eventually"
	"github.com/hapsnap/hapsnap/pusher/dataplane"
)

func checkFresh(t *testing.T, s *subject) {
	raw := s.raw(t)
	if !strings.Contains(raw.Config.String(), "node bootstrap") || raw.Checksum != "" {
		t.Errorf("a fresh file is %q with the checksum %q", raw.Config, raw.Checksum)
	}
	if v := s.version(t); v != 1 || raw.Version != v {
		t.Errorf("a fresh version is %d, in the header %d", v, raw.Version)
	}
	reloads, err := s.Reloads(t.Context())
	if err != nil || len(reloads) != 0 {
		t.Errorf("fresh reloads are %v, %v", reloads, err)
	}
	if _, err := s.Info(t.Context()); err != nil {
		t.Error(err)
	}
	info := s.info(t)
	pid, err := s.pid()
	if err != nil || info.PID != pid || info.Node != "bootstrap" || info.Version == "" {
		t.Errorf("runtime info is %+v, the worker is %d (%v)", info, pid, err)
	}
}

func checkPost(t *testing.T, s *subject) {
	before := s.info(t)
	posted := s.post(t, s.config("n1"), dataplane.PostOptions{})
	if posted.Version != 2 || posted.ReloadID == "" || posted.Checksum != posted.Config.Checksum() {
		t.Errorf("posted version %d, reload %q, checksum %q", posted.Version, posted.ReloadID, posted.Checksum)
	}
	lines := strings.Split(posted.Config.String(), "\n")
	if !strings.HasPrefix(lines[0], "# _md5hash=") || lines[1] != "# _version=2" || lines[2] != "# made for a test" {
		t.Errorf("the file begins %q", lines[:3])
	}
	var sections []string
	for _, line := range lines {
		if line != "" && line[0] != ' ' && line[0] != '#' {
			name, _, _ := strings.Cut(line, " from ")
			sections = append(sections, name)
		}
	}
	want := "global,defaults unnamed_defaults_1,frontend main,backend ant,backend zebra"
	if got := strings.Join(sections, ","); got != want {
		t.Errorf("the sections are %s\nwant %s", got, want)
	}

	r := s.reloaded(t, posted.ReloadID)
	if r.Status != dataplane.ReloadSucceeded || r.ID != posted.ReloadID || r.At.IsZero() {
		t.Errorf("the reload is %+v", r)
	}
	after := s.info(t)
	if after.Node != "n1" || after.PID == before.PID {
		t.Errorf("the worker was %+v and is %+v", before, after)
	}
	if raw := s.raw(t); raw.Config.String() != posted.Config.String() || raw.Version != 2 || raw.Checksum != posted.Checksum {
		t.Errorf("the file is version %d with the checksum %s, not what was posted", raw.Version, raw.Checksum)
	}
	_, err := s.Reload(t.Context(), posted.ReloadID+"9")
	wantError(t, err, dataplane.ErrNotFound)
	if all, err := s.Reloads(t.Context()); err != nil || len(all) != 1 || all[0].ID != posted.ReloadID {
		t.Errorf("the reloads are %v, %v", all, err)
	}
}

func checkForce(t *testing.T, s *subject) {
	posted := s.post(t, s.config("n1"), dataplane.PostOptions{ForceReload: true})
	if posted.ReloadID != "" || posted.Version != 2 {
		t.Errorf("posted version %d, reload %q", posted.Version, posted.ReloadID)
	}
	if info := s.info(t); info.Node != "n1" {
		t.Errorf("the worker is %+v", info)
	}
	if all, err := s.Reloads(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("a forced reload was recorded: %v, %v", all, err)
	}
	eventually.Holds(t, "the worker has node n1", func() bool { _, body := s.get(t, "/node"); return body == "n1" })
}

func checkSkip(t *testing.T, s *subject) {
	before := s.info(t)
	posted := s.post(t, s.config("n1"), dataplane.PostOptions{SkipReload: true})
	if posted.ReloadID != "" || posted.Version != 2 {
		t.Errorf("posted version %d, reload %q", posted.Version, posted.ReloadID)
	}
	if after := s.info(t); after.PID != before.PID || after.Node != "bootstrap" {
		t.Errorf("the worker was %+v and is %+v", before, after)
	}
	if raw := s.raw(t); !strings.Contains(raw.Config.String(), "node n1") {
		t.Errorf("the file is %s", raw.Config)
	}
}

func checkOnlyValidate(t *testing.T, s *subject) {
	posted, err := s.PostRaw(t.Context(), []byte(s.config("n1")), dataplane.PostOptions{Version: 99, OnlyValidate: true})
	if err != nil || posted.ReloadID != "" || !strings.Contains(posted.Config.String(), "node bootstrap") {
		t.Errorf("validating answered %+v, %v", posted, err)
	}
	_, err = s.tryPost(t, s.config("n1", "  bogus"), dataplane.PostOptions{OnlyValidate: true})
	wantError(t, err, dataplane.ErrValidation)
	if v := s.version(t); v != 1 {
		t.Errorf("the version is %d", v)
	}
}

func checkStale(t *testing.T, s *subject) {
	s.post(t, s.config("n1"), dataplane.PostOptions{SkipReload: true})
	_, err := s.PostRaw(t.Context(), []byte(s.config("n2")), dataplane.PostOptions{Version: 1})
	wantError(t, err, dataplane.ErrConflict)
	_, err = s.PostRaw(t.Context(), []byte(s.config("n2")), dataplane.PostOptions{Version: 3})
	wantError(t, err, dataplane.ErrConflict)
	if raw := s.raw(t); raw.Version != 2 || !strings.Contains(raw.Config.String(), "node n1") {
		t.Errorf("version %d is %s", raw.Version, raw.Config)
	}
}

func checkConcurrent(t *testing.T, s *subject) {
	v := s.version(t)
	var won, lost int
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			_, err := s.PostRaw(t.Context(), []byte(s.config("n1")), dataplane.PostOptions{Version: v, SkipReload: true})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				won++
			case errors.Is(err, dataplane.ErrConflict):
				lost++
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won != 1 || lost != 9 || s.version(t) != v+1 {
		t.Errorf("%d won, %d lost, the version is %d after %d", won, lost, s.version(t), v)
	}
}

func checkRefused(t *testing.T, s *subject) {
	before := s.raw(t)
	_, err := s.tryPost(t, s.config("n1", "backend b", "  bogus keyword"), dataplane.PostOptions{})
	wantError(t, err, dataplane.ErrValidation)
	if !strings.Contains(err.Error(), "unknown keyword 'bogus' in 'backend' section") {
		t.Errorf("the reason is %v", err)
	}
	_, err = s.tryPost(t, s.config("n1", "  use_backend %[path,map("+s.dirs.Maps+"/none.map)]"), dataplane.PostOptions{})
	wantError(t, err, dataplane.ErrValidation)
	if after := s.raw(t); after.Version != before.Version || after.Config.String() != before.Config.String() {
		t.Errorf("a refused post changed the file to version %d: %s", after.Version, after.Config)
	}
	_, err = s.PostRaw(t.Context(), []byte("no newline"), dataplane.PostOptions{Version: 1})
	wantError(t, err, dataplane.ErrRejected)
	_, err = s.PostRaw(t.Context(), nil, dataplane.PostOptions{Version: 1})
	wantError(t, err, dataplane.ErrRejected)

	left, err := s.Transactions(t.Context())
	if err != nil || len(left) != 2 || left[0].Status != "failed" {
		t.Fatalf("left behind: %+v, %v", left, err)
	}
	for _, l := range left {
		if err := s.DeleteTransaction(t.Context(), l.ID); err != nil {
			t.Error(err)
		}
	}
	if left, err := s.Transactions(t.Context()); err != nil || len(left) != 0 {
		t.Errorf("still left behind: %+v, %v", left, err)
	}
	files, _ := filepath.Glob(filepath.Join(s.dirs.Transactions, "failed", "*"))
	if len(files) != 0 {
		t.Errorf("files left behind: %v", files)
	}
	wantError(t, s.DeleteTransaction(t.Context(), left[0].ID), dataplane.ErrNotFound)
}

func checkEqualPost(t *testing.T, s *subject) {
	first := s.post(t, s.config("n1"), dataplane.PostOptions{ForceReload: true})
	before := s.info(t)
	again, err := s.PostRaw(t.Context(), first.Config.Bytes(), dataplane.PostOptions{Version: first.Version, ForceReload: true})
	if err != nil {
		t.Fatal(err)
	}
	if again.Version != first.Version+1 || again.Checksum == first.Checksum {
		t.Errorf("version %d with %s became %d with %s", first.Version, first.Checksum, again.Version, again.Checksum)
	}
	if after := s.info(t); after.PID == before.PID {
		t.Error("an equal post did not reload")
	}
	_, a, _ := strings.Cut(first.Config.String(), "# made")
	_, b, _ := strings.Cut(again.Config.String(), "# made")
	if a != b {
		t.Errorf("normal form is not stable:\n%s\nbecame\n%s", a, b)
	}
}

// taken returns an address that nothing else can bind during the test.
func taken(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

func checkFailedReload(t *testing.T, s *subject) {
	good := s.post(t, s.config("n1"), dataplane.PostOptions{ForceReload: true})
	before := s.info(t)
	bad := s.post(t, s.config("n2", "frontend taken", "  bind "+taken(t)), dataplane.PostOptions{})
	r := s.reloaded(t, bad.ReloadID)
	if r.Status != dataplane.ReloadFailed || !strings.Contains(r.Response, "cannot bind socket") {
		t.Errorf("the reload is %+v", r)
	}
	if after := s.info(t); after.PID != before.PID || after.Node != "n1" {
		t.Errorf("the worker was %+v and is %+v", before, after)
	}
	raw := s.raw(t)
	if raw.Config.String() != good.Config.String() || raw.Version != bad.Version {
		t.Errorf("after the failure version %d is on disk:\n%s", raw.Version, raw.Config)
	}
	if view := s.call(t, http.MethodGet, "/configuration/frontends/taken/binds", "", 200); !strings.Contains(view, "127.0.0.1") {
		t.Errorf("the memory is not that of the failed configuration: %s", view)
	}
	healed := s.post(t, s.config("n1"), dataplane.PostOptions{SkipReload: true})
	if healed.Version != bad.Version+1 {
		t.Errorf("the healing post is version %d after %d", healed.Version, bad.Version)
	}
}

// The first file of an instance has no hash. When the API restores it, that counts as an edit by somebody else,
// and the version is counted from the file's own, so a version occurs twice.
func checkFailedFirstReload(t *testing.T, s *subject) {
	bad := s.post(t, s.config("n1", "frontend taken", "  bind "+taken(t)), dataplane.PostOptions{})
	if r := s.reloaded(t, bad.ReloadID); r.Status != dataplane.ReloadFailed {
		t.Errorf("the reload is %+v", r)
	}
	eventually.Holds(t, "the API keeps the file", func() bool { return s.raw(t).Checksum != "" })
	raw := s.raw(t)
	if raw.Version != bad.Version || !strings.Contains(raw.Config.String(), "node bootstrap") {
		t.Errorf("after version %d failed, version %d is on disk:\n%s", bad.Version, raw.Version, raw.Config)
	}
}

func checkHAProxyGone(t *testing.T, s *subject) {
	good := s.post(t, s.config("n1"), dataplane.PostOptions{ForceReload: true})
	s.kill()
	_, err := s.RuntimeInfo(t.Context())
	wantError(t, err, dataplane.ErrRuntime)
	_, err = s.Servers(t.Context(), "zebra")
	wantError(t, err, dataplane.ErrNotFound)
	_, err = s.SetServer(t.Context(), "zebra", "s1", dataplane.ServerChange{AdminState: dataplane.StateReady})
	wantError(t, err, dataplane.ErrNotFound)
	if _, err := s.Info(t.Context()); err != nil {
		t.Error(err)
	}
	posted := s.post(t, s.config("n2"), dataplane.PostOptions{})
	if r := s.reloaded(t, posted.ReloadID); r.Status != dataplane.ReloadFailed || r.Response != "" {
		t.Errorf("the reload is %+v", r)
	}
	_, err = s.tryPost(t, s.config("n2"), dataplane.PostOptions{ForceReload: true})
	wantError(t, err, dataplane.ErrReload)
	if raw := s.raw(t); raw.Config.String() != good.Config.String() || raw.Version != good.Version+2 {
		t.Errorf("version %d is on disk:\n%s", raw.Version, raw.Config)
	}
	s.call(t, http.MethodGet, "/stats/native", "", 500)
}

func checkFailedForce(t *testing.T, s *subject) {
	good := s.post(t, s.config("n1"), dataplane.PostOptions{ForceReload: true})
	_, err := s.tryPost(t, s.config("n2", "frontend taken", "  bind "+taken(t)), dataplane.PostOptions{ForceReload: true})
	wantError(t, err, dataplane.ErrReload)
	if err == nil || !strings.Contains(err.Error(), "cannot bind socket") {
		t.Errorf("the reason is %v", err)
	}
	if info := s.info(t); info.Node != "n1" {
		t.Errorf("the worker is %+v", info)
	}
	if raw := s.raw(t); raw.Config.String() != good.Config.String() || raw.Version != good.Version+1 {
		t.Errorf("after the failure version %d is on disk:\n%s", raw.Version, raw.Config)
	}
}

func checkSilentLosses(t *testing.T, s *subject) {
	limit := s.config("n1", "# "+strings.Repeat("x", 65535-2), "backend kept", "  mode http")
	if posted := s.post(t, limit, dataplane.PostOptions{SkipReload: true}); !strings.Contains(posted.Config.String(), "backend kept") {
		t.Error("a line of 65,535 bytes was lost")
	}
	over := s.config("n1", "# "+strings.Repeat("x", 65536-2), "backend lost", "  mode http")
	if posted := s.post(t, over, dataplane.PostOptions{SkipReload: true}); strings.Contains(posted.Config.String(), "backend lost") {
		t.Error("a line of 65,536 bytes and what follows was kept")
	}
	twice := s.config("n1", "backend twin", "  timeout server 1s", "backend twin", "  timeout server 2s")
	posted := s.post(t, twice, dataplane.PostOptions{SkipReload: true}).Config.String()
	if strings.Count(posted, "backend twin") != 1 || strings.Contains(posted, "timeout server 1s") {
		t.Errorf("of two sections with one name was kept:\n%s", posted)
	}
	torn := s.config("n1", ".if !defined(NOSUCHVARIABLE)", "backend conditional", "  mode http", ".endif")
	posted = s.post(t, torn, dataplane.PostOptions{SkipReload: true}).Config.String()
	before, _, _ := strings.Cut(posted, "backend conditional")
	if strings.HasSuffix(strings.TrimSpace(before), ".if !defined(NOSUCHVARIABLE)") {
		t.Errorf("a condition was kept around its section:\n%s", posted)
	}
	if onDisk, err := os.ReadFile(filepath.Join(filepath.Dir(s.dirs.Maps), "haproxy.cfg")); err != nil || string(onDisk) != posted {
		t.Errorf("the answer is not what is on disk (%v)", err)
	}
}
