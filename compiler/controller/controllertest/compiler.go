// Package controllertest runs a compiler in a test, with a folder of manifests and a store in memory. It is for tests of
// compiler/controller, and of what a running compiler feeds.
package controllertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/controller"
	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/snapshots"
)

// HAProxy returns the checker of the haproxy that tests run.
func HAProxy(tb testing.TB) *validate.Checker {
	tb.Helper()
	c, err := validate.Find(tb.Context(), cmp.Or(os.Getenv("HAPROXY"), "haproxy"))
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// Store is a store in memory, which can be made to fail.
type Store struct {
	mu    sync.Mutex
	kept  []snapshots.Snapshot
	gone  error
	tries int
}

// Publish numbers a draft and keeps it, unless the newest snapshot has its digest.
func (m *Store) Publish(_ context.Context, d snapshots.Draft) (snapshots.ID, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tries++
	if m.gone != nil {
		return snapshots.ID{}, false, m.gone
	}
	head := snapshots.ID{}
	if n := len(m.kept); n > 0 {
		head = m.kept[n-1].ID()
	}
	if head.Names(d.Digest()) {
		return head, false, nil
	}
	s := d.Number(head.Revision+1, head)
	m.kept = append(m.kept, s)
	return s.ID(), true, nil
}

// IDs returns those of all snapshots, the newest last.
func (m *Store) IDs(context.Context) ([]snapshots.ID, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var ids []snapshots.ID
	for _, s := range m.kept {
		ids = append(ids, s.ID())
	}
	if m.gone != nil {
		m.tries++
	}
	return ids, m.gone
}

// Get returns a snapshot, or [snapshots.ErrNotFound].
func (m *Store) Get(_ context.Context, id snapshots.ID) (snapshots.Snapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.kept {
		if s.ID() == id {
			return s, nil
		}
	}
	return snapshots.Snapshot{}, snapshots.ErrNotFound
}

// Fail makes every call fail with an error from now on; nil ends that.
func (m *Store) Fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gone = err
}

// Newest returns the newest snapshot, how many there are, and how often one was
// brought.
func (m *Store) Newest() (s snapshots.Snapshot, n, tries int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.kept) > 0 {
		s = m.kept[len(m.kept)-1]
	}
	return s, len(m.kept), m.tries
}

// Compiler is a compiler that runs in a test.
type Compiler struct {
	Dir, Templates string
	Store          *Store
	Configuration  controller.Configuration // nil: it does not change
	Override       func(*config.Config)
	Status         *controller.Status
	Registry       *prometheus.Registry
}

// Run starts a compiler of the default configuration.
func Run(t *testing.T, files map[string]string, change ...func(*controller.Options)) *Compiler {
	t.Helper()
	r := Prepare(t, files)
	r.Start(t, config.Default(), change...)
	return r
}

// Prepare makes what a compiler needs.
func Prepare(t *testing.T, files map[string]string) *Compiler {
	t.Helper()
	root := t.TempDir()
	r := &Compiler{
		Dir: filepath.Join(root, "manifests"), Templates: filepath.Join(root, "templates"), Store: &Store{},
	}
	for _, dir := range []string{r.Dir, filepath.Join(r.Templates, "extend")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range files {
		r.Write(t, name, text)
	}
	return r
}

// Start starts a compiler, which stops with the test or before. It is a new one
// each time, as after a restart.
func (r *Compiler) Start(t *testing.T, c config.Config, change ...func(*controller.Options)) (stop func()) {
	t.Helper()
	r.Status, r.Registry = &controller.Status{}, prometheus.NewRegistry()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	o := controller.Options{
		Source: compiler.Source{Objects: compiler.Files(r.Dir), Templates: r.Templates, Config: c},
		Store:  r.Store, Checker: HAProxy(t), Log: slog.New(slog.DiscardHandler), Metrics: r.Registry, Status: r.Status,
		Configuration: r.Configuration, Override: r.Override,
		Interval: 20 * time.Millisecond, MaxWait: 200 * time.Millisecond,
	}
	for _, f := range change {
		f(&o)
	}
	go func() { ended <- controller.Run(ctx, o) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run ended with %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// Write writes a file of the manifests as editors do: beside it, then renamed.
func (r *Compiler) Write(t *testing.T, name, text string) { t.Helper(); Put(t, r.Dir, name, text) }

// Put writes a file as editors do: beside it, then renamed.
func Put(t *testing.T, dir, name, text string) {
	t.Helper()
	temporary := filepath.Join(dir, "."+filepath.Base(name))
	if err := os.WriteFile(temporary, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temporary, filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

// Await waits for a condition, and says what was wrong with it to the last.
func Await(t *testing.T, what string, try func() error) {
	t.Helper()
	end := time.Now().Add(2 * time.Minute)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for err := try(); err != nil; err = try() {
		if time.Now().After(end) {
			t.Fatalf("%s: %v", what, err)
		}
		<-tick.C
	}
}

// AwaitRoute waits until the newest snapshot has, or has not, a route of a host.
func (r *Compiler) AwaitRoute(t *testing.T, host string, want bool) snapshots.Snapshot {
	t.Helper()
	var newest snapshots.Snapshot
	Await(t, "route of "+host, func() error {
		s, n, _ := r.Store.Newest()
		prefix, _ := s.File("maps/prefix.map")
		if has := strings.Contains(string(prefix), host+"|"); n == 0 || has != want {
			return fmt.Errorf("%d snapshots, route %v", n, has)
		}
		newest = s
		return nil
	})
	return newest
}

// AwaitQuarantined waits until the metric says how many objects are left out.
func (r *Compiler) AwaitQuarantined(t *testing.T, want int) {
	t.Helper()
	r.AwaitMetric(t, "hapsnap_compiler_quarantined_objects", want)
}

// AwaitMetric waits until a gauge without labels has a value.
func (r *Compiler) AwaitMetric(t *testing.T, name string, want int) {
	t.Helper()
	Await(t, name, func() error {
		families, err := r.Registry.Gather()
		for _, f := range families {
			if f.GetName() != name {
				continue
			}
			if got := f.GetMetric()[0].GetGauge().GetValue(); got != float64(want) {
				return fmt.Errorf("%v, want %d", got, want)
			}
			return nil
		}
		return cmp.Or(err, errors.New("no such metric"))
	})
}

// Publishes returns how many drafts came to one result.
func (r *Compiler) Publishes(t *testing.T, result string) float64 {
	t.Helper()
	families, err := r.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "hapsnap_compiler_publishes_total" && m.GetLabel()[0].GetValue() == result {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// Manifest returns a Service and an Ingress of one name, whose host is NAME.example.
func Manifest(name, annotation string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {namespace: shop, name: %[1]s}
spec: {ports: [{port: 80}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  namespace: shop
  name: %[1]s
  annotations: {example.com/timeout: "%[2]s"}
spec:
  ingressClassName: hapsnap
  rules:
  - host: %[1]s.example
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: %[1]s, port: {number: 80}}}}]}
`, name, annotation)
}
