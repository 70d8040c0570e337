package pusher

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/snapshots"
)

// rig is a site whose instances are real HAProxies behind doubles of the Dataplane API.
type rig struct {
	*site
	names     []string
	instances map[string]*dataplanetest.Instance
	binds     map[string]string
}

func newRig(t *testing.T, api dataplanetest.API, names ...string) *rig {
	t.Helper()
	r := &rig{site: newSite(t), names: names, instances: map[string]*dataplanetest.Instance{}, binds: map[string]string{}}
	soak := 300 * time.Millisecond
	r.options.Soak, r.options.PollInterval, r.options.ReloadTimeout = &soak, 50*time.Millisecond, patience
	r.options.DrainTime, r.options.PersistInterval = 500*time.Millisecond, 200*time.Millisecond
	for _, name := range names {
		r.addInstance(name, api)
	}
	r.entry = func(name string) string {
		i := r.instances[name]
		return fmt.Sprintf("  - name: %s\n    url: %s\n    username: admin\n    password: secret\n", name, i.URL()) +
			fmt.Sprintf("    directories: {maps: %s, certificates: %s, general: %s}\n", i.Dirs.Maps, i.Dirs.Certificates, i.Dirs.General)
	}
	r.writeFleet(names...)
	t.Cleanup(r.kill) // before the instances end
	return r
}

// eachAPI runs a test for each supported line of the Dataplane API.
func eachAPI(t *testing.T, names []string, test func(r *rig)) {
	t.Helper()
	for _, api := range []dataplanetest.API{dataplanetest.V32, dataplanetest.V34} {
		t.Run(string(api), func(t *testing.T) {
			t.Parallel()
			test(newRig(t, api, names...))
		})
	}
}

func (r *rig) addInstance(name string, api dataplanetest.API) {
	r.t.Helper()
	r.addInstanceWith(name, dataplanetest.Options{API: api})
}

func (r *rig) addInstanceWith(name string, o dataplanetest.Options) {
	r.t.Helper()
	sockets, err := os.MkdirTemp("", "rig")
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { os.RemoveAll(sockets) })
	r.binds[name] = filepath.Join(sockets, "web.sock")
	o.Env = []string{"WEB=unix@" + r.binds[name]}
	r.instances[name] = dataplanetest.Start(r.t, o)
}

// get sends a request to an instance's frontend.
func (r *rig) get(name string) (revision, body string, err error) {
	client := http.Client{Timeout: patience, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", r.binds[name])
		},
	}}
	response, err := client.Get("http://shop.example.com/")
	if err != nil {
		return "", "", err
	}
	defer response.Body.Close()
	var text bytes.Buffer
	_, err = text.ReadFrom(response.Body)
	return response.Header.Get("x-revision"), text.String(), err
}

// pushes counts the posts of a configuration with a reload.
func (r *rig) pushes(name string) int {
	n := 0
	for _, q := range r.instances[name].Requests() {
		if q.Method == http.MethodPost && strings.HasSuffix(q.Path, "/configuration/raw") && strings.Contains(fmt.Sprint(q.Query), "force_reload") {
			n++
		}
	}
	return n
}

// writes counts the requests that may have changed an instance.
func (r *rig) writes(name string) int {
	n := 0
	for _, q := range r.instances[name].Requests() {
		if q.Method != http.MethodGet {
			n++
		}
	}
	return n
}

// echo starts a server that answers with its name. It returns its endpoint's place.
func echo(t *testing.T, name string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, name) }))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// workers returns the process IDs of the workers, by the instances' names.
func (r *rig) workers() []int {
	r.t.Helper()
	var pids []int
	for _, name := range r.names {
		pid, err := r.instances[name].WorkerPID()
		if err != nil {
			r.t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// keeps fails unless the workers are still these: nothing was reloaded.
func (r *rig) keeps(workers []int) {
	r.t.Helper()
	if now := r.workers(); !slices.Equal(now, workers) {
		r.t.Errorf("the workers are %v, were %v", now, workers)
	}
}

// answersOnly reports whether an endpoint answers all of a few requests.
func (r *rig) answersOnly(name, endpoint string) bool {
	for range 4 {
		if _, body, err := r.get(name); err != nil || body != endpoint {
			return false
		}
	}
	return true
}

// allRunAfter starts the pusher and waits until all instances run the snapshot.
func (r *rig) allRunAfter(id snapshots.ID) {
	r.t.Helper()
	r.run()
	r.allRun(id)
}
