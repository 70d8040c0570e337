//nolint:thelper // the checks are tests: a failure has to name their own lines
package dataplane_test

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/internal/testing/eventually"
	"github.com/hapsnap/hapsnap/pusher/dataplane"
)

// TestContract is the contract between the client and the API: one suite, for both versions of the double, and
// for a real Dataplane API that DATAPLANEAPI names or that is on PATH.
func TestContract(t *testing.T) {
	for _, kind := range []dataplanetest.API{dataplanetest.V32, dataplanetest.V34} {
		t.Run("double "+string(kind), func(t *testing.T) {
			t.Parallel()
			runContract(t, func(t *testing.T) *subject {
				t.Parallel()
				return startDouble(t, kind)
			})
		})
	}
	if program := realAPI(t); program != "" {
		// They run one after the other, since each takes seconds of computing to start.
		t.Run("real", func(t *testing.T) {
			runContract(t, func(t *testing.T) *subject { return startReal(t, program) })
		})
	}
}

// realAPI returns the real Dataplane API to test with, "" for none.
func realAPI(t *testing.T) string {
	t.Helper()
	program, reason := dataplanetest.Real(cmp.Or(os.Getenv("HAPROXY"), "haproxy"))
	if reason != "" {
		t.Log("without a real Dataplane API:", reason)
	}
	return program
}

func runContract(t *testing.T, start func(*testing.T) *subject) {
	for name, check := range map[string]func(*testing.T, *subject){
		"a fresh instance":                        checkFresh,
		"a post is rewritten and reloaded":        checkPost,
		"a forced reload is over at once":         checkForce,
		"a skipped reload changes the file only":  checkSkip,
		"validating writes nothing":               checkOnlyValidate,
		"a stale version conflicts":               checkStale,
		"one of many posts wins":                  checkConcurrent,
		"a refused post leaves a copy":            checkRefused,
		"an equal post is a new version":          checkEqualPost,
		"a failed reload leaves the memory wrong": checkFailedReload,
		"a failed forced reload":                  checkFailedForce,
		"a failed first reload":                   checkFailedFirstReload,
		"haproxy is gone":                         checkHAProxyGone,
		"what the parser loses":                   checkSilentLosses,
		"maps":                                    checkMaps,
		"general files":                           checkGeneral,
		"certificates":                            checkCertificates,
		"certificates are rotated live":           checkRotation,
		"files in use stay":                       checkFilesInUse,
		"maps that surprise":                      checkMapSurprises,
		"what somebody closed or took out":        checkClosed,
		"servers":                                 checkServers,
		"answers to changes of servers":           checkServerAnswers,
		"runtime actions":                         checkRuntimeActions,
		"a failing action ends the list":          checkFailingAction,
		"statistics":                              checkStatistics,
		"counters of the worker":                  checkCounters,
		"who asks":                                checkCredentials,
		"raw exchanges":                           checkRawExchanges,
		"storage exchanges":                       checkStorageExchanges,
		"transactions":                            checkTransactions,
		"servers that the worker is given":        checkRuntimeServersAdded,
		"dynamic servers":                         checkDynamicServers,
		"an edit by somebody else":                checkExternalEdit,
	} {
		t.Run(name, func(t *testing.T) { check(t, start(t)) })
	}
}

// subject is an API under test, with its HAProxy.
type subject struct {
	*dataplane.Client
	url  string
	dirs dataplanetest.Dirs
	run  string // a folder with a short path, for sockets
	pid  func() (int, error)
	kill func() // ends HAProxy
	// command sends a command to the socket of the worker, as a person does.
	command func(text string) (string, error)
}

const username, password = "admin", "secret"

func startDouble(t *testing.T, kind dataplanetest.API) *subject {
	t.Helper()
	i := dataplanetest.Start(t, dataplanetest.Options{API: kind, Username: username, Password: password})
	return newSubject(t, i, i.URL())
}

// startReal replaces the double by a real Dataplane API, with the same HAProxy and files.
func startReal(t *testing.T, program string) *subject {
	t.Helper()
	i := dataplanetest.Start(t, dataplanetest.Options{Program: program, Username: username, Password: password})
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the real API wrote:\n%s", i.APILog())
		}
	})
	return newSubject(t, i, i.URL())
}

func newSubject(t *testing.T, i *dataplanetest.Instance, url string) *subject {
	t.Helper()
	c, err := dataplane.New(dataplane.Options{URL: url, Username: username, Password: password})
	if err != nil {
		t.Fatal(err)
	}
	return &subject{
		Client: c, url: url, dirs: i.Dirs, run: filepath.Dir(i.MasterSocket()), pid: i.WorkerPID, kill: i.KillHAProxy,
		command: i.Socket,
	}
}

// config returns a configuration with this node. Its listener is a socket in the file system, so that tests do
// not compete for ports.
func (s *subject) config(node string, more ...string) string {
	return strings.NewReplacer("NODE", node, "RUN", s.run).Replace(`# made for a test
defaults
  mode http
  timeout connect 5s
  timeout client 30s
  timeout server 30s

backend zebra
  server s1 192.0.2.1:1 disabled
  server s2 192.0.2.1:1 disabled
  server s3 192.0.2.1:1 backup

backend ant
  http-request return status 200 content-type text/plain string ant

global
  node NODE
  stats socket RUN/stats.sock mode 600 level admin expose-fd listeners

frontend main
  bind unix@RUN/main.sock mode 600
  http-request return status 200 content-type text/plain string NODE if { path /node }
  use_backend zebra if { path_beg /zebra }
  default_backend ant
`) + strings.Join(more, "\n") + "\n"
}

// post commits a configuration with the current version.
func (s *subject) post(t *testing.T, config string, o dataplane.PostOptions) dataplane.Posted {
	t.Helper()
	posted, err := s.tryPost(t, config, o)
	if err != nil {
		t.Fatal(err)
	}
	return posted
}

func (s *subject) tryPost(t *testing.T, config string, o dataplane.PostOptions) (dataplane.Posted, error) {
	t.Helper()
	o.Version = s.version(t)
	return s.PostRaw(t.Context(), []byte(config), o)
}

func (s *subject) version(t *testing.T) int64 {
	t.Helper()
	v, err := s.Version(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (s *subject) raw(t *testing.T) dataplane.Raw {
	t.Helper()
	raw, err := s.Raw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func (s *subject) info(t *testing.T) dataplane.RuntimeInfo {
	t.Helper()
	info, err := s.RuntimeInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// reloaded waits until a reload has ended.
func (s *subject) reloaded(t *testing.T, id string) dataplane.Reload {
	t.Helper()
	var last dataplane.Reload
	eventually.Holds(t, "the reload ends", func() bool {
		r, err := s.Reload(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		last = r
		return r.Status != dataplane.ReloadInProgress
	})
	return last
}

// get sends a request to HAProxy's listener.
func (s *subject) get(t *testing.T, path string) (status int, body string) {
	t.Helper()
	c := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(s.run, "main.sock"))
		},
	}}
	return fetch(t, &c, http.MethodGet, "http://haproxy"+path, nil)
}

func wantError(t *testing.T, err, class error) {
	t.Helper()
	if !errors.Is(err, class) {
		t.Errorf("error is %v, want the class %q", err, class)
	}
}
