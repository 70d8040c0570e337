package dataplanetest_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/internal/testing/eventually"
	"github.com/hapsnap/hapsnap/pusher/dataplane"
)

// never is a reload delay that is longer than any test.
const never = time.Hour

func TestPostsWithinOneDelayShareAReload(t *testing.T) {
	t.Parallel()
	i, c := start(t, dataplanetest.Options{ReloadDelay: never})
	first, err := c.PostRaw(t.Context(), renamed(t, i, "n1"), dataplane.PostOptions{Version: 1})
	if err != nil {
		t.Fatal(err)
	}
	second, err := c.PostRaw(t.Context(), renamed(t, i, "n2"), dataplane.PostOptions{Version: 2})
	if err != nil || first.ReloadID != second.ReloadID || !strings.HasSuffix(first.ReloadID, "-0") {
		t.Errorf("the reloads are %q and %q, %v", first.ReloadID, second.ReloadID, err)
	}
	if r, err := c.Reload(t.Context(), first.ReloadID); err != nil || r.Status != dataplane.ReloadInProgress || !r.At.IsZero() {
		t.Errorf("the reload is %+v, %v", r, err)
	}
	// A forced reload runs the one that is due.
	third, err := c.PostRaw(t.Context(), renamed(t, i, "n3"), dataplane.PostOptions{Version: 3, ForceReload: true})
	if err != nil || third.ReloadID != "" || node(t, c) != "n3" {
		t.Errorf("the forced post answered %+v, %v", third, err)
	}
	if r, err := c.Reload(t.Context(), first.ReloadID); err != nil || r.Status != dataplane.ReloadSucceeded {
		t.Errorf("the reload is %+v, %v", r, err)
	}
	fourth, err := c.PostRaw(t.Context(), renamed(t, i, "n4"), dataplane.PostOptions{Version: 4})
	if err != nil || !strings.HasSuffix(fourth.ReloadID, "-1") {
		t.Errorf("the next reload is %q, %v", fourth.ReloadID, err)
	}
}

func TestRestartOfTheAPILosesAPendingReload(t *testing.T) {
	t.Parallel()
	i, c := start(t, dataplanetest.Options{ReloadDelay: never})
	lost, err := c.PostRaw(t.Context(), renamed(t, i, "lost"), dataplane.PostOptions{Version: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := i.Restart(); err != nil {
		t.Fatal(err)
	}
	if v := version(t, c); v != lost.Version || node(t, c) != "bootstrap" {
		t.Errorf("version %d is in memory while %s runs", v, node(t, c))
	}
	if _, err := c.Reload(t.Context(), lost.ReloadID); !errors.Is(err, dataplane.ErrNotFound) {
		t.Errorf("the lost reload: %v", err)
	}
	// A text that was never loaded now counts as good: a failed reload restores it.
	i.Inject(dataplanetest.FailReload("made up").Times(1))
	next, err := c.PostRaw(t.Context(), renamed(t, i, "next"), dataplane.PostOptions{Version: lost.Version, ForceReload: true})
	if !errors.Is(err, dataplane.ErrReload) {
		t.Fatalf("posted %+v, %v", next, err)
	}
	if text, err := i.Config(); err != nil || text != lost.Config.String() {
		t.Errorf("restored was (%v):\n%s", err, text)
	}
	// The same id now names another reload.
	again, err := c.PostRaw(t.Context(), renamed(t, i, "again"), dataplane.PostOptions{Version: version(t, c)})
	if err != nil || again.ReloadID != lost.ReloadID {
		t.Errorf("the reload is %q after %q, %v", again.ReloadID, lost.ReloadID, err)
	}
}

func TestAPIDownAndUpOnTheSamePort(t *testing.T) {
	t.Parallel()
	i, c := start(t, dataplanetest.Options{})
	i.StopAPI()
	if l, err := asAStranger().Listen(t.Context(), "tcp", i.Addr); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("another could take its port: %v, %v", l, err)
	}
	if _, err := c.Version(t.Context()); !errors.Is(err, dataplane.ErrUnreachable) && !errors.Is(err, dataplane.ErrUnavailable) {
		t.Errorf("the client was told %v", err)
	}
	if _, err := c.PostRaw(t.Context(), renamed(t, i, "x"), dataplane.PostOptions{Version: 1}); !errors.Is(err, dataplane.ErrUnreachable) {
		t.Errorf("the client was told %v", err)
	}
	if _, err := i.WorkerPID(); err != nil {
		t.Errorf("haproxy went with its API: %v", err)
	}
	if err := i.StartAPI(); err != nil {
		t.Fatal(err)
	}
	if err := i.StartAPI(); err == nil {
		t.Error("started twice")
	}
	if v := version(t, c); v != 1 {
		t.Errorf("the version is %d", v)
	}
}

// asAStranger listens like a program that asks for any free port.
func asAStranger() *net.ListenConfig {
	return &net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var option error
		err := c.Control(func(fd uintptr) {
			option = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 0)
		})
		return errors.Join(err, option)
	}}
}

// A program that is being started has a copy of all sockets for a moment. The API can listen on its port again all the same.
func TestRestartWhileProgramsStart(t *testing.T) {
	t.Parallel()
	i, _ := start(t, dataplanetest.Options{ReloadDelay: never})
	ctx, end := context.WithCancel(t.Context())
	var starting sync.WaitGroup
	for range 8 {
		starting.Go(func() {
			for ctx.Err() == nil {
				_ = exec.CommandContext(ctx, "true").Run()
			}
		})
	}
	for range 1000 {
		err := i.Restart()
		if errors.Is(err, syscall.EADDRINUSE) {
			t.Error(err)
		}
		for err != nil { // the user has no file to watch left for a moment
			err = i.StartAPI()
		}
	}
	end()
	starting.Wait()
}

func TestRestartOfHAProxyLoadsWhatIsOnDisk(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*dataplanetest.Instance){
		"killed":  (*dataplanetest.Instance).KillHAProxy,
		"stopped": (*dataplanetest.Instance).StopHAProxy,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i, c := start(t, dataplanetest.Options{})
			if _, err := c.PostRaw(t.Context(), renamed(t, i, "disk"), dataplane.PostOptions{Version: 1, SkipReload: true}); err != nil {
				t.Fatal(err)
			}
			end(i)
			if _, err := c.RuntimeInfo(t.Context()); !errors.Is(err, dataplane.ErrRuntime) {
				t.Errorf("the client was told %v", err)
			}
			if err := i.StartHAProxy(); err != nil {
				t.Fatal(err)
			}
			if got := node(t, c); got != "disk" {
				t.Errorf("the worker runs %s", got)
			}
			end(i)
			if err := i.EditConfig("global\n  bogus\n"); err != nil {
				t.Fatal(err)
			}
			if err := i.StartHAProxy(); err == nil || !strings.Contains(err.Error(), "unknown keyword 'bogus'") {
				t.Errorf("haproxy started: %v", err)
			}
		})
	}
}

func TestEnvironmentTellsInstancesApart(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(shortDir(t), "f.sock")
	config := "global\n  node env\ndefaults\n  mode http\n  timeout client 1s\n  timeout server 1s\n  timeout connect 1s\n" +
		"frontend f\n  bind \"unix@${FRONTEND}\"\n  http-request return status 200\n"
	i, c := start(t, dataplanetest.Options{Config: config, Env: []string{"FRONTEND=" + socket}})
	if _, err := c.PostRaw(t.Context(), renamed(t, i, "env2"), dataplane.PostOptions{Version: 1, ForceReload: true}); err != nil {
		t.Fatal(err) // the validation has it too
	}
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "dt") //nolint:usetesting // its paths are too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func TestAnInstanceIsContinuedOnItsFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	i, c := start(t, dataplanetest.Options{Dir: dir})
	if err := c.CreateFile(t.Context(), dataplane.Maps, "a.map", []byte("a b\n")); err != nil {
		t.Fatal(err)
	}
	config := "global\n  node kept\ndefaults\n  mode http\n  timeout client 1s\n  timeout server 1s\n  timeout connect 1s\n" +
		"frontend f\n  bind unix@" + filepath.Join(shortDir(t), "f.sock") + "\n"
	if _, err := c.PostRaw(t.Context(), []byte(config), dataplane.PostOptions{Version: 1, ForceReload: true}); err != nil {
		t.Fatal(err)
	}
	i.Close()
	i.Close() // twice does no harm
	_, c = start(t, dataplanetest.Options{Dir: dir, Addr: i.Addr})
	if files, err := c.Files(t.Context(), dataplane.Maps); err != nil || len(files) != 1 || version(t, c) != 2 || node(t, c) != "kept" {
		t.Errorf("continued with %v, %v at version %d", files, err, version(t, c))
	}
}

func TestAnInstanceThatCannotStartSaysWhy(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		options dataplanetest.Options
		want    string
	}{
		"no haproxy":        {dataplanetest.Options{HAProxy: "/no/such/haproxy"}, "find haproxy"},
		"bad configuration": {dataplanetest.Options{Config: "global\n  bogus\n"}, "unknown keyword 'bogus'"},
		"bad address":       {dataplanetest.Options{Addr: "192.0.2.1:0"}, "start api"},
	} {
		i, err := dataplanetest.New(tt.options)
		if err == nil {
			i.Close()
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A reference that the API does not see is no reason to keep a file.
func TestFileNamedByAListOnlyIsDeleted(t *testing.T) {
	t.Parallel()
	i, c := start(t, dataplanetest.Options{})
	if err := c.CreateFile(t.Context(), dataplane.General, "list", []byte(i.Dirs.Maps+"/a.map\n")); err != nil {
		t.Fatal(err)
	}
	if err := c.CreateFile(t.Context(), dataplane.Maps, "a.map", nil); err != nil {
		t.Fatal(err)
	}
	if err := c.DeleteFile(t.Context(), dataplane.Maps, "a.map"); err != nil {
		t.Error(err)
	}
}

// 3.2 leaves out the end of an entry with names: the call fails, late.
func TestCertificateListEntryWithNamesHangs(t *testing.T) {
	t.Parallel()
	i := dataplanetest.Start(t, dataplanetest.Options{API: dataplanetest.V32})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost,
		i.URL()+"/v3/services/haproxy/runtime/ssl_crt_lists/entries?name=/x", strings.NewReader(`{"file":"/a.pem","sni_filter":["a"]}`))
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth("admin", "secret")
	resp, err := http.DefaultClient.Do(req)
	if err == nil {
		resp.Body.Close()
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it answered: %v", err)
	}
}

// 3.2 reports an unknown path before it checks the password; 3.4 checks the password first.
func TestUnknownPathsAndStrangers(t *testing.T) {
	t.Parallel()
	for api, want := range map[dataplanetest.API]int{dataplanetest.V32: 404, dataplanetest.V34: 401} {
		i := dataplanetest.Start(t, dataplanetest.Options{API: api})
		resp, err := http.Get(i.URL() + "/v3/nothing")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want || resp.Header.Get("Configuration-Version") != "1" {
			t.Errorf("%s answered %d with version %q", api, resp.StatusCode, resp.Header.Get("Configuration-Version"))
		}
	}
}

// A test that is killed cannot clean up after itself: HAProxy has to notice.
func TestHAProxyDoesNotOutliveTheProcessThatStartedIt(t *testing.T) {
	if os.Getenv("DATAPLANETEST_CHILD") != "" {
		liveAndWait(t)
		return
	}
	t.Parallel()
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "DATAPLANETEST_CHILD=1", "TMPDIR="+shortDir(t))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread() // the signal comes with the end of this thread
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	var pids []string
	for pids == nil && lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), "pids "); ok {
			pids = strings.Fields(rest)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // it was killed
	if len(pids) != 2 || pids[0] == pids[1] {
		t.Fatalf("the child said %v", pids)
	}
	for _, pid := range pids {
		eventually.Holds(t, "the process is gone", func() bool { return gone(pid) })
	}
}

// gone reports whether a process has ended, be it reaped or not.
func gone(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return true
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(after, "Z") || strings.HasPrefix(after, "X")
}

// liveAndWait runs an instance until it is killed, after a reload: by then the master has re-executed itself.
func liveAndWait(t *testing.T) {
	t.Helper()
	i, c := start(t, dataplanetest.Options{})
	if _, err := c.PostRaw(t.Context(), renamed(t, i, "child"), dataplane.PostOptions{Version: 1, ForceReload: true}); err != nil {
		t.Fatal(err)
	}
	pid, err := i.WorkerPID()
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("\npids %d %d\n", pid, i.MasterPID())
	select {}
}
