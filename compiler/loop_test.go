package compiler_test

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
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/snapshots"
)

// memory is a store in memory, which can be made to fail.
type memory struct {
	mu    sync.Mutex
	kept  []snapshots.Snapshot
	gone  error
	tries int
}

func (m *memory) Publish(_ context.Context, d snapshots.Draft) (snapshots.ID, bool, error) {
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
	s := d.Seal(head.Revision+1, head)
	m.kept = append(m.kept, s)
	return s.ID(), true, nil
}

func (m *memory) IDs(context.Context) ([]snapshots.ID, error) {
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

func (m *memory) Get(_ context.Context, id snapshots.ID) (snapshots.Snapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.kept {
		if s.ID() == id {
			return s, nil
		}
	}
	return snapshots.Snapshot{}, snapshots.ErrNotFound
}

func (m *memory) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gone = err
}

// newest returns the newest snapshot, how many there are, and how often one was
// brought.
func (m *memory) newest() (s snapshots.Snapshot, n, tries int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.kept) > 0 {
		s = m.kept[len(m.kept)-1]
	}
	return s, len(m.kept), m.tries
}

// running is a compiler that runs in a test.
type running struct {
	dir, templates string
	store          *memory
	configuration  compiler.Configuration // nil: it does not change
	override       func(*config.Config)
	status         *compiler.Status
	registry       *prometheus.Registry
}

// run starts a compiler of the default configuration.
func run(t *testing.T, files map[string]string, change ...func(*compiler.Options)) *running {
	t.Helper()
	r := prepare(t, files)
	r.start(t, config.Default(), change...)
	return r
}

// prepare makes what a compiler needs.
func prepare(t *testing.T, files map[string]string) *running {
	t.Helper()
	root := t.TempDir()
	r := &running{
		dir: filepath.Join(root, "manifests"), templates: filepath.Join(root, "templates"), store: &memory{},
	}
	for _, dir := range []string{r.dir, filepath.Join(r.templates, "extend")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range files {
		r.write(t, name, text)
	}
	return r
}

// start starts a compiler, which stops with the test or before. It is a new one
// each time, as after a restart.
func (r *running) start(t *testing.T, c config.Config, change ...func(*compiler.Options)) (stop func()) {
	t.Helper()
	r.status, r.registry = &compiler.Status{}, prometheus.NewRegistry()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	o := compiler.Options{
		Source: compiler.Source{Objects: compiler.Files(r.dir), Templates: r.templates, Config: c},
		Store:  r.store, Checker: haproxy(t), Log: slog.New(slog.DiscardHandler), Metrics: r.registry, Status: r.status,
		Configuration: r.configuration, Override: r.override,
		Interval: 20 * time.Millisecond, MaxWait: 200 * time.Millisecond,
	}
	for _, f := range change {
		f(&o)
	}
	go func() { ended <- compiler.Run(ctx, o) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run ended with %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// write writes a file of the manifests as editors do: beside it, then renamed.
func (r *running) write(t *testing.T, name, text string) { t.Helper(); put(t, r.dir, name, text) }

func put(t *testing.T, dir, name, text string) {
	t.Helper()
	temporary := filepath.Join(dir, "."+filepath.Base(name))
	if err := os.WriteFile(temporary, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temporary, filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

// await waits for a condition, and says what was wrong with it to the last.
func await(t *testing.T, what string, try func() error) {
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

// awaitRoute waits until the newest snapshot has, or has not, a route of a host.
func (r *running) awaitRoute(t *testing.T, host string, want bool) snapshots.Snapshot {
	t.Helper()
	var newest snapshots.Snapshot
	await(t, "route of "+host, func() error {
		s, n, _ := r.store.newest()
		prefix, _ := s.File("maps/prefix.map")
		if has := strings.Contains(string(prefix), host+"|"); n == 0 || has != want {
			return fmt.Errorf("%d snapshots, route %v", n, has)
		}
		newest = s
		return nil
	})
	return newest
}

// awaitQuarantined waits until the metric says how many objects are left out.
func (r *running) awaitQuarantined(t *testing.T, want int) {
	t.Helper()
	r.awaitMetric(t, "hapsnap_compiler_quarantined_objects", want)
}

// awaitMetric waits until a gauge without labels has a value.
func (r *running) awaitMetric(t *testing.T, name string, want int) {
	t.Helper()
	await(t, name, func() error {
		families, err := r.registry.Gather()
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

// publishes returns how many drafts came to one result.
func (r *running) publishes(t *testing.T, result string) float64 {
	t.Helper()
	families, err := r.registry.Gather()
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

func manifest(name, annotation string) string {
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

func TestRunPublishesChanges(t *testing.T) {
	t.Parallel()
	r := run(t, map[string]string{"web.yaml": manifest("web", "5s")})
	first := r.awaitRoute(t, "web.example", true)
	if first.Manifest.Spec.Subject != "+1 backend, +1 route (Ingress shop/web)" || first.Verify() != nil {
		t.Errorf("first snapshot: %q, %v", first.Manifest.Spec.Subject, first.Verify())
	}
	r.write(t, "api.yaml", manifest("api", "5s"))
	second := r.awaitRoute(t, "api.example", true)
	if second.Manifest.Spec.Subject != "+1 backend, +1 route (Ingress shop/api)" || second.Manifest.Spec.Parent != first.ID() {
		t.Errorf("second snapshot: %q after %s", second.Manifest.Spec.Subject, second.Manifest.Spec.Parent)
	}
	await(t, "the head", func() error {
		if r.status.Head() != second.ID() {
			return fmt.Errorf("head %s, want %s", r.status.Head(), second.ID())
		}
		return r.status.Ready()
	})
	if err := os.Remove(filepath.Join(r.dir, "web.yaml")); err != nil {
		t.Fatal(err)
	}
	r.awaitRoute(t, "web.example", false)
	if problems, err := testutil.GatherAndLint(r.registry); err != nil || len(problems) > 0 {
		t.Errorf("metrics: %v, %v", err, problems)
	}
}

func TestRunLeavesOutWhatHAProxyRefuses(t *testing.T) {
	t.Parallel()
	r := run(t, map[string]string{"web.yaml": manifest("web", "5s")})
	put(t, filepath.Join(r.templates, "extend"), "backend.cfg", "    timeout server {{.Annotation \"example.com/timeout\"}}\n")
	r.awaitRoute(t, "web.example", true)
	r.write(t, "bad.yaml", manifest("bad", "banana"))
	r.write(t, "api.yaml", manifest("api", "7s"))
	r.awaitQuarantined(t, 1)
	r.awaitRoute(t, "api.example", true)
	r.awaitRoute(t, "bad.example", false)
	r.write(t, "bad.yaml", manifest("bad", "9s"))
	r.awaitRoute(t, "bad.example", true)
	r.awaitQuarantined(t, 0)
}

// While the store is gone the newest draft is kept; drafts in between are not
// published late.
func TestRunKeepsTheNewestWhileTheStoreIsGone(t *testing.T) {
	t.Parallel()
	r := run(t, map[string]string{"web.yaml": manifest("web", "5s")})
	r.awaitRoute(t, "web.example", true)
	_, before, tries := r.store.newest()
	r.store.fail(errors.New("remote hung up"))
	r.write(t, "one.yaml", manifest("one", "5s"))
	await(t, "a failed try", func() error {
		if _, _, now := r.store.newest(); now == tries {
			return errors.New("not tried")
		}
		if err := r.status.Ready(); err == nil || !strings.Contains(err.Error(), "remote hung up") {
			return fmt.Errorf("ready says %v", err)
		}
		return nil
	})
	r.write(t, "two.yaml", manifest("two", "5s"))
	await(t, "the draft is replaced", func() error {
		if r.publishes(t, "replaced") != 1 {
			return errors.New("it is not")
		}
		return nil
	})
	_, _, tries = r.store.newest()
	await(t, "another failed try", func() error {
		if _, _, now := r.store.newest(); now == tries {
			return errors.New("not tried")
		}
		return nil
	})
	r.store.fail(nil)
	s := r.awaitRoute(t, "two.example", true)
	r.awaitRoute(t, "one.example", true)
	if s.Manifest.Spec.Subject != "+2 backends, +2 routes (Ingress shop/one, Ingress shop/two)" {
		t.Errorf("subject %q", s.Manifest.Spec.Subject)
	}
	if _, after, _ := r.store.newest(); after != before+1 {
		t.Errorf("%d snapshots after %d, want one more", after, before)
	}
	await(t, "ready", r.status.Ready)
}

// Neither a directory that is gone nor a template that is wrong takes anything
// away from what was published.
func TestRunHoldsWhatItCannotRead(t *testing.T) {
	t.Parallel()
	r := run(t, map[string]string{"web.yaml": manifest("web", "5s")})
	first := r.awaitRoute(t, "web.example", true)
	aside := r.dir + "-aside"
	if err := os.Rename(r.dir, aside); err != nil {
		t.Fatal(err)
	}
	await(t, "not ready", func() error {
		if err := r.status.Ready(); err == nil || !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("ready says %v", err)
		}
		return nil
	})
	if err := os.Rename(aside, r.dir); err != nil {
		t.Fatal(err)
	}
	await(t, "ready again", r.status.Ready)
	put(t, filepath.Join(r.templates, "extend"), "backend.cfg", "{{if}}")
	await(t, "not ready", func() error {
		if err := r.status.Ready(); !errors.Is(err, compiler.ErrTemplates) {
			return fmt.Errorf("ready says %v", err)
		}
		return nil
	})
	if s, n, _ := r.store.newest(); n != 1 || s.ID() != first.ID() {
		t.Errorf("%d snapshots, newest %s", n, s.ID())
	}
	put(t, filepath.Join(r.templates, "extend"), "backend.cfg", "    option httpchk\n")
	await(t, "template published", func() error {
		if s, _, _ := r.store.newest(); !strings.Contains(string(s.Config()), "option httpchk") {
			return errors.New("not yet")
		}
		return nil
	})
}
