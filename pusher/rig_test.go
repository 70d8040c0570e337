package pusher

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/dirstore"
)

// patience bounds every wait in these tests.
const patience = time.Minute

// rig is a fleet of real HAProxies behind stand-ins of the Dataplane API, a store
// in a directory, and a pusher that can be stopped and started.
type rig struct {
	t         *testing.T
	dir       string
	store     *dirstore.Store
	names     []string
	instances map[string]*dataplanetest.Instance
	binds     map[string]string
	options   Options
	rollout   string // the policy, as lines of the fleet's file
	taken     string // an address that is in use

	mu       sync.Mutex
	status   observe.Status
	watchers []func(observe.Status)
	log      bytes.Buffer

	stop context.CancelFunc
	done chan error
}

func newRig(t *testing.T, api dataplanetest.API, names ...string) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), names: names, instances: map[string]*dataplanetest.Instance{}, binds: map[string]string{}}
	r.store = dirstore.Open(filepath.Join(r.dir, "store"), dirstore.Options{})
	r.taken = listen(t).Addr().String()
	for _, name := range names {
		r.addInstance(name, api)
	}
	soak := 300 * time.Millisecond
	r.options = Options{
		Store: r.store, Fleet: filepath.Join(r.dir, "fleet.yaml"), State: filepath.Join(r.dir, "state", "state.json"),
		Soak: &soak, PollInterval: 50 * time.Millisecond, ReloadTimeout: patience,
		DrainTime: 500 * time.Millisecond, PersistInterval: 200 * time.Millisecond,
		Log: slog.New(slog.NewTextHandler(r, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Status: func(s observe.Status) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.status = s
			for _, see := range r.watchers {
				see(s)
			}
		},
	}
	r.options.Live = filepath.Join(r.dir, "live")
	if err := os.MkdirAll(r.options.Live, 0o755); err != nil {
		t.Fatal(err)
	}
	r.writeFleet(names...)
	t.Cleanup(func() {
		r.kill()
		if t.Failed() {
			r.mu.Lock()
			defer r.mu.Unlock()
			t.Logf("log of the pusher:\n%s", r.log.String())
		}
	})
	return r
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
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
	o.Env = []string{"WEB=unix@" + r.binds[name], "TAKEN=" + r.taken}
	r.instances[name] = dataplanetest.Start(r.t, o)
}

// Write takes the log.
func (r *rig) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.Write(p)
}

func (r *rig) logged() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.String()
}

func (r *rig) write(name, text string) {
	r.t.Helper()
	file := filepath.Join(r.dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := replaceFile(file, []byte(text)); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) writeFleet(names ...string) {
	r.t.Helper()
	var b strings.Builder
	b.WriteString("apiVersion: hapsnap.dev/v1alpha1\nkind: Fleet\nmetadata: {name: edge}\nspec:\n" + r.rollout + "  instances:\n")
	for _, name := range names {
		i := r.instances[name]
		fmt.Fprintf(&b, "  - name: %s\n    url: %s\n    username: admin\n    password: secret\n", name, i.URL())
		fmt.Fprintf(&b, "    directories: {maps: %s, certificates: %s, general: %s}\n", i.Dirs.Maps, i.Dirs.Certificates, i.Dirs.General)
	}
	r.write("fleet.yaml", b.String())
}

// run starts the pusher.
func (r *rig) run() {
	ctx, stop := context.WithCancel(r.t.Context())
	r.stop, r.done = stop, make(chan error, 1)
	go func(o Options) { r.done <- Run(ctx, o) }(r.options)
}

// kill ends the pusher in the middle of whatever it does.
func (r *rig) kill() {
	if r.stop == nil {
		return
	}
	r.stop()
	if err := <-r.done; err != nil {
		r.t.Errorf("the pusher ended with: %v", err)
	}
	r.stop = nil
}

func (r *rig) seen() observe.Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status
}

// watch has every status shown to a function, before the pusher does anything more.
func (r *rig) watch(see func(observe.Status)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watchers = append(r.watchers, see)
}

// ever returns a function that reports whether some status since was as it should be,
// for those that may be over before anybody looks.
func (r *rig) ever(ok func(observe.Status) bool) func() bool {
	var was atomic.Bool
	r.watch(func(s observe.Status) {
		if ok(s) {
			was.Store(true)
		}
	})
	return was.Load
}

// until waits for a status that stays.
func (r *rig) until(what string, ok func(observe.Status) bool) observe.Status {
	r.t.Helper()
	var last observe.Status
	eventually(r.t, what, func() bool { last = r.seen(); return ok(last) })
	return last
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(patience)
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("waited in vain: %s", what)
		case <-look.C:
		}
	}
}

// allRun waits until all instances are in sync with the snapshot.
func (r *rig) allRun(id snapshots.ID) observe.Status {
	r.t.Helper()
	return r.until("all run "+id.String(), func(s observe.Status) bool {
		return s.Good == id && s.Rollout == nil && len(s.Instances) > 0 && s.InSync() == len(s.Instances) &&
			!slices.ContainsFunc(s.Instances, func(i observe.InstanceStatus) bool { return i.Running != id })
	})
}

// statusOf returns the status of an instance.
func statusOf(s observe.Status, name string) observe.InstanceStatus {
	for _, i := range s.Instances {
		if i.Name == name {
			return i
		}
	}
	return observe.InstanceStatus{}
}

// config is a haproxy.cfg that says which revision it is, and serves shop/web.
func config(revision, extra string) string {
	return `global
    maxconn 100

defaults
    mode http
    timeout connect 10s
    timeout client 1m
    timeout server 1m

frontend web
    bind "${WEB}"
    http-response set-header x-revision ` + revision + `
    http-request set-header x-host %[req.hdr(host),map(maps/host.map,none)]
    default_backend shop_web
` + extra + `
backend shop_web
    balance roundrobin
    #hapsnap servers shop/web:http
`
}

// broken passes haproxy -c and does not start: its port is in use.
const broken = `
frontend taken
    bind "${TAKEN}"
`

func (r *rig) publish(config string, certificates ...snapshots.CertificateRef) snapshots.ID {
	r.t.Helper()
	return r.publishMap(config, fmt.Sprintf("shop.example.com shop_%x\n", sha256.Sum256([]byte(config))), certificates...)
}

// publishMap publishes a configuration with a map of hosts.
func (r *rig) publishMap(config, hosts string, certificates ...snapshots.CertificateRef) snapshots.ID {
	r.t.Helper()
	id, published, err := r.store.Publish(r.t.Context(), snapshots.Draft{
		Files: []snapshots.File{
			{Path: snapshots.ConfigFile, Content: []byte(config)},
			{Path: "maps/host.map", Content: []byte(hosts)},
		},
		Certificates: certificates, Time: time.Now(), Subject: "a test",
	})
	if err != nil || !published {
		r.t.Fatalf("publish: %v, published %v", err, published)
	}
	return id
}

func (r *rig) channel(edit func(channel.Channel) channel.Channel) {
	r.t.Helper()
	err := r.store.UpdateChannel(r.t.Context(), "test", time.Now(), func(c *channel.Channel) error {
		*c = edit(*c)
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// get asks an instance's frontend.
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

// pushes counts the posts of a configuration that were to reload.
func (r *rig) pushes(name string) int {
	n := 0
	for _, q := range r.instances[name].Requests() {
		if q.Method == http.MethodPost && strings.HasSuffix(q.Path, "/configuration/raw") && strings.Contains(fmt.Sprint(q.Query), "force_reload") {
			n++
		}
	}
	return n
}

// reloads counts those of an instance's HAProxy since it was started.
func (r *rig) reloads(name string) int {
	r.t.Helper()
	n, err := r.instances[name].Reloads()
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

// writes counts the requests that could have changed an instance.
func (r *rig) writes(name string) int {
	n := 0
	for _, q := range r.instances[name].Requests() {
		if q.Method != http.MethodGet {
			n++
		}
	}
	return n
}

// echo is a server that answers with its name, and its place among endpoints.
func echo(t *testing.T, name string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, name) }))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// endpoints writes the EndpointSlices of shop/web, one for each address, for each
// endpoint has a port of its own here.
func (r *rig) endpoints(addresses ...string) {
	r.t.Helper()
	r.endpointsOf("web", "live/endpoints.yaml", addresses...)
}

// endpointsOf writes those of another Service in the namespace shop into a file.
func (r *rig) endpointsOf(service, file string, addresses ...string) {
	r.t.Helper()
	var b strings.Builder
	for n, address := range addresses {
		host, port, _ := net.SplitHostPort(address)
		fmt.Fprintf(&b, `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-%[2]d, namespace: shop, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{name: http, port: %[3]s, protocol: TCP}]
endpoints: [{addresses: [%[4]q], conditions: {ready: true}}]
`, service, n, port, host)
	}
	r.write(file, b.String())
}

func phase(p rollout.Phase) func(observe.Status) bool {
	return func(s observe.Status) bool { return s.Phase() == p }
}

// workers returns the processes of the workers, by the instances' names.
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

// answers reports whether one of a few requests is answered by the endpoint.
func (r *rig) answers(name, endpoint string) bool {
	for range 8 {
		if _, body, err := r.get(name); err == nil && body == endpoint {
			return true
		}
	}
	return false
}

// answersOnly reports whether all of a few requests are.
func (r *rig) answersOnly(name, endpoint string) bool {
	for range 4 {
		if _, body, err := r.get(name); err != nil || body != endpoint {
			return false
		}
	}
	return true
}

// allRunAfter starts the pusher and waits for all to run the snapshot.
func (r *rig) allRunAfter(id snapshots.ID) {
	r.t.Helper()
	r.run()
	r.allRun(id)
}

// publishRecorded publishes a snapshot with the endpoint of shop/web in it.
func (r *rig) publishRecorded(revision, address string) snapshots.ID {
	r.t.Helper()
	r.options.Live = ""
	at := netip.MustParseAddrPort(address)
	recorded, err := snapshots.MarshalEndpoints(map[snapshots.ServicePort][]snapshots.Endpoint{
		{Namespace: "shop", Service: "web", Port: "http"}: {{Address: at.Addr().String(), Port: int(at.Port())}},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	id, _, err := r.store.Publish(r.t.Context(), snapshots.Draft{Time: time.Now(), Files: []snapshots.File{
		{Path: snapshots.ConfigFile, Content: []byte(config(revision, ""))},
		{Path: "maps/host.map", Content: []byte("# none\n")},
		{Path: snapshots.EndpointsFile, Content: recorded},
	}})
	if err != nil {
		r.t.Fatal(err)
	}
	return id
}
