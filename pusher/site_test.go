package pusher

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/events"
	"github.com/hapsnap/hapsnap/internal/testing/eventually"
	"github.com/hapsnap/hapsnap/internal/wholefile"
	"github.com/hapsnap/hapsnap/pusher/notify"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/dirstore"
)

// noon is the time at which tests without a clock begin.
var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// patience bounds every wait in these tests.
const patience = time.Minute

// process is a pusher that can be ended and started again, with what it reports.
type process struct {
	t       *testing.T
	options Options

	mu      sync.Mutex
	status  report.Status
	hears   func()
	log     bytes.Buffer
	notices []notify.Notice
	said    []events.Event // Events, as they were written

	stop context.CancelFunc
	done chan error
}

// newProcess returns a process for a pusher, and collects what the pusher reports.
func newProcess(t *testing.T, name string, o Options) *process {
	t.Helper()
	p := &process{t: t, options: o, hears: func() {}}
	p.options.Log = slog.New(slog.NewTextHandler(p, &slog.HandlerOptions{Level: slog.LevelDebug}))
	p.options.Status, p.options.Events = p.see, p
	p.options.Notify = func(n notify.Notice) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.notices = append(p.notices, n)
	}
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("log of %s:\n%s", name, p.logged())
		}
	})
	return p
}

// run starts the pusher.
func (p *process) run() {
	ctx, stop := context.WithCancel(p.t.Context())
	p.stop, p.done = stop, make(chan error, 1)
	go func(o Options) { p.done <- Run(ctx, o) }(p.options)
}

// Say collects the Events for the cluster.
func (p *process) Say(_, once []events.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.said = append(p.said, once...)
}

// Run waits for ctx.
func (p *process) Run(ctx context.Context) { <-ctx.Done() }

// kill ends the pusher in the middle of whatever it does.
func (p *process) kill() {
	if p.stop == nil {
		return
	}
	p.stop()
	if err := <-p.done; err != nil {
		p.t.Errorf("the pusher ended with: %v", err)
	}
	p.stop = nil
}

// Write collects the log.
func (p *process) Write(line []byte) (int, error) {
	p.mu.Lock()
	defer func() { p.mu.Unlock(); p.hears() }()
	return p.log.Write(line)
}

func (p *process) see(s report.Status) {
	p.mu.Lock()
	defer func() { p.mu.Unlock(); p.hears() }()
	p.status = s
}

// heard sets a function that is called after each report, from the next start on.
func (p *process) heard(hears func()) { p.hears = hears }

func (p *process) logged() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

func (p *process) seen() report.Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}

// until waits for a status that stays.
func (p *process) until(what string, ok func(report.Status) bool) report.Status {
	p.t.Helper()
	var last report.Status
	eventually.Holds(p.t, what, func() bool { last = p.seen(); return ok(last) })
	return last
}

// allRun waits until all instances are in sync with the snapshot.
func (p *process) allRun(id snapshots.ID) report.Status {
	p.t.Helper()
	return p.until("all run "+id.String(), func(s report.Status) bool {
		return s.Good == id && s.Rollout == nil && len(s.Instances) > 0 && s.InSync() == len(s.Instances) &&
			!slices.ContainsFunc(s.Instances, func(i report.Instance) bool { return i.Running != id })
	})
}

// statusOf returns the status of an instance.
func statusOf(s report.Status, name string) report.Instance {
	for _, i := range s.Instances {
		if i.Name == name {
			return i
		}
	}
	return report.Instance{}
}

// site is the environment of a pusher, in a directory: a store, live objects, and the files of the
// fleet and of the state.
type site struct {
	*process
	dir     string
	store   *dirstore.Store
	rollout string                   // the rollout policy, as lines of the fleet's file
	entry   func(name string) string // the entry of an instance, as lines of that file
	changed func()                   // called after a file was written
}

func newSite(t *testing.T) *site {
	t.Helper()
	dir := t.TempDir()
	s := &site{dir: dir, store: dirstore.Open(filepath.Join(dir, "store"), dirstore.Options{}), changed: func() {}}
	s.process = newProcess(t, "the pusher", Options{
		Store: s.store, Fleet: filepath.Join(dir, "fleet.yaml"), State: filepath.Join(dir, "state", "state.json"), Live: filepath.Join(dir, "live"),
	})
	s.must(os.MkdirAll(s.options.Live, 0o755))
	return s
}

func (s *site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) write(name, text string) {
	s.t.Helper()
	file := filepath.Join(s.dir, name)
	s.must(os.MkdirAll(filepath.Dir(file), 0o755))
	s.must(wholefile.Replace(file, []byte(text)))
	s.changed()
}

func (s *site) writeFleet(names ...string) {
	s.t.Helper()
	s.writeFleetTo("fleet.yaml", names...)
}

func (s *site) writeFleetTo(file string, names ...string) {
	s.t.Helper()
	text := "apiVersion: hapsnap.dev/v1alpha1\nkind: Fleet\nmetadata: {name: edge}\nspec:\n" + s.rollout + "  instances:\n"
	for _, name := range names {
		text += s.entry(name)
	}
	s.write(file, text)
}

// config is a haproxy.cfg that names its revision, and serves shop/web.
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

func (s *site) publish(config string, certificates ...snapshots.CertificateRef) snapshots.ID {
	s.t.Helper()
	return s.publishMap(config, fmt.Sprintf("shop.example.com shop_%x\n", sha256.Sum256([]byte(config))), certificates...)
}

// publishMap publishes a configuration with a map of hosts.
func (s *site) publishMap(config, hosts string, certificates ...snapshots.CertificateRef) snapshots.ID {
	s.t.Helper()
	id, published, err := s.store.Publish(s.t.Context(), snapshots.Draft{
		Files: []snapshots.File{
			{Path: snapshots.ConfigFile, Content: []byte(config)},
			{Path: "maps/host.map", Content: []byte(hosts)},
		},
		Certificates: certificates, Time: time.Now(), Subject: "a test",
	})
	if err != nil || !published {
		s.t.Fatalf("publish: %v, published %v", err, published)
	}
	return id
}

func (s *site) channel(edit func(channel.Channel) channel.Channel) {
	s.t.Helper()
	err := s.store.UpdateChannel(s.t.Context(), "test", time.Now(), func(c *channel.Channel) error {
		*c = edit(*c)
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// endpoints writes the EndpointSlices of shop/web. There is one for each address, since each
// endpoint has a port of its own.
func (s *site) endpoints(addresses ...string) {
	s.t.Helper()
	s.endpointsOf("web", "live/endpoints.yaml", addresses...)
}

// endpointsOf writes the EndpointSlices of another Service in the namespace shop into a file.
func (s *site) endpointsOf(service, file string, addresses ...string) {
	s.t.Helper()
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
	s.write(file, b.String())
}
