package compiler_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/config"
)

// volume is a folder with a configuration, as a volume of a ConfigMap has it: the
// file is a link through another one, which is switched over.
type volume struct {
	dir string
	n   int
}

// file is the name of the configuration.
func (v *volume) file() string { return filepath.Join(v.dir, "c.yaml") }

// write switches to another spec.
func (v *volume) write(t *testing.T, spec string) {
	t.Helper()
	v.n++
	next := fmt.Sprintf("..%d", v.n)
	text := "apiVersion: hapsnap.dev/v1alpha1\nkind: CompilerConfig\nspec: " + spec + "\n"
	fresh, data := filepath.Join(v.dir, "..data_tmp"), filepath.Join(v.dir, "..data")
	if err := errors.Join(
		os.Mkdir(filepath.Join(v.dir, next), 0o755),
		os.WriteFile(filepath.Join(v.dir, next, "c.yaml"), []byte(text), 0o600),
		os.Symlink(next, fresh), os.Rename(fresh, data),
	); err != nil {
		t.Fatal(err)
	}
	if v.n == 1 {
		if err := os.Symlink("..data/c.yaml", v.file()); err != nil {
			t.Fatal(err)
		}
	}
}

// awaitBind waits until the newest snapshot listens on a port.
func (r *running) awaitBind(t *testing.T, port int) {
	t.Helper()
	await(t, "port", func() error {
		if s, n, _ := r.store.newest(); n == 0 || !strings.Contains(string(s.Config()), fmt.Sprintf("    bind *:%d\n", port)) {
			return fmt.Errorf("%d snapshots, none with port %d", n, port)
		}
		return nil
	})
}

// awaitRefused waits until the configuration is refused for one reason.
func (r *running) awaitRefused(t *testing.T, want string) {
	t.Helper()
	await(t, "configuration refused", func() error {
		refused := r.status.Report().Compiler.Refused
		if refused == nil || len(refused.Found) != 1 || !strings.Contains(refused.Found[0].Diagnostic().String(), want) {
			return fmt.Errorf("refused: %+v", refused)
		}
		return nil
	})
	r.awaitMetric(t, "hapsnap_compiler_config_refused", 1)
	if err := r.status.Ready(); err != nil {
		t.Errorf("not ready, though the configuration before works: %v", err)
	}
}

// A configuration that changes is used if it is good. One that is not is refused
// whatever is wrong with it, and the one before goes on to be used.
func TestRunFollowsItsConfiguration(t *testing.T) {
	t.Parallel()
	v := &volume{dir: t.TempDir()}
	v.write(t, "{http: {port: 8001}}")
	r := prepare(t, map[string]string{"web.yaml": manifest("web", "5s")})
	put(t, filepath.Join(r.templates, "extend"), "global.cfg", "{{if eq .Config.HTTP.Port 8666}}    nonsense{{end}}")
	r.configuration = compiler.ConfigFile(v.file())
	r.override = func(c *config.Config) { c.HTTPS.Port = 8443 }
	before := config.Default()
	before.HTTP.Port, before.HTTPS.Port = 8001, 8443
	r.start(t, before)
	r.awaitBind(t, 8001)

	v.write(t, "{http: {port: 8002}}")
	r.awaitBind(t, 8002)
	r.awaitMetric(t, "hapsnap_compiler_config_refused", 0)

	for n, c := range []struct{ spec, reason string }{
		{"{http: {prot: 8003}}", "c.yaml:3:15: spec.http.prot: unknown field"},
		{"{http: {port: 70000}}", "c.yaml:3:21: spec.http.port: 70000 is not a port"},
		{"{http: {port: 8443}}", "c.yaml:3:7: spec.https.port: is the port of another listener"},
		{"{tls: {cipherSuites: [TLS_BANANA]}}", "c.yaml:3:29: spec.tls.cipherSuites[0]: \"TLS_BANANA\" is not known"},
		{"{http: {port: 8666}}", "extend/global.cfg:1: haproxy: unknown keyword 'nonsense'"},
	} {
		v.write(t, c.spec)
		r.awaitRefused(t, c.reason)
		// What else changes is compiled as before.
		host := fmt.Sprintf("host%d", n)
		r.write(t, host+".yaml", manifest(host, "5s"))
		s := r.awaitRoute(t, host+".example", true)
		if text := string(s.Config()); !strings.Contains(text, "bind *:8002\n") || !strings.Contains(text, "bind *:8443 ") {
			t.Errorf("after %s: %s", c.spec, text)
		}
	}

	v.write(t, "{http: {port: 8004}}")
	r.awaitBind(t, 8004)
	r.awaitMetric(t, "hapsnap_compiler_config_refused", 0)
	await(t, "nothing refused", func() error {
		if refused := r.status.Report().Compiler.Refused; refused != nil {
			return fmt.Errorf("still refused: %+v", refused)
		}
		return nil
	})
}

// A configuration that is away is none that is empty.
func TestRunKeepsAConfigurationThatIsGone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "c.yaml")
	const text = "apiVersion: hapsnap.dev/v1alpha1\nkind: CompilerConfig\nspec: {http: {port: 8001}}\n"
	put(t, dir, "c.yaml", text)
	r := prepare(t, map[string]string{"web.yaml": manifest("web", "5s")})
	r.configuration = compiler.ConfigFile(file)
	before := config.Default()
	before.HTTP.Port = 8001
	r.start(t, before)
	r.awaitBind(t, 8001)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	r.awaitMetric(t, "hapsnap_compiler_config_refused", 1)
	await(t, "why it is refused", func() error {
		if refused := r.status.Report().Compiler.Refused; refused == nil || !strings.Contains(refused.Error, "read configuration") || r.status.Ready() != nil {
			return fmt.Errorf("refused %+v, ready %v", refused, r.status.Ready())
		}
		return nil
	})
	r.write(t, "api.yaml", manifest("api", "5s"))
	r.awaitRoute(t, "api.example", true)
	r.awaitBind(t, 8001)
	put(t, dir, "c.yaml", text)
	r.awaitMetric(t, "hapsnap_compiler_config_refused", 0)
}

// manifestsOf returns the objects of several hosts in one file, so that all of
// them come and go in the same moment.
func manifestsOf(names ...string) string {
	var out []string
	for _, name := range names {
		out = append(out, manifest(name, "5s"))
	}
	return strings.Join(out, "---\n")
}

func tenants(n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("tenant-%d", i))
	}
	return out
}

// awaitHeld waits until a draft is held, and returns it.
func (r *running) awaitHeld(t *testing.T, lost string) compiler.ShrinkError {
	t.Helper()
	var held *compiler.ShrinkError
	await(t, "draft held", func() error {
		err := r.status.Ready()
		if !errors.As(err, &held) || held.Lost != lost || !strings.Contains(err.Error(), held.Approval()) {
			return fmt.Errorf("ready says %v", err)
		}
		return nil
	})
	r.awaitMetric(t, "hapsnap_compiler_held_drafts", 1)
	return *held
}

func TestRunHoldsAMassLoss(t *testing.T) {
	t.Parallel()
	r := prepare(t, map[string]string{"all.yaml": manifestsOf(tenants(20)...)})
	stop := r.start(t, config.Default())
	first := r.awaitRoute(t, "tenant-19.example", true)
	r.write(t, "all.yaml", manifestsOf(tenants(8)...))
	r.awaitHeld(t, "12 of 20 backends gone, 12 of 20 hosts gone")
	r.write(t, "all.yaml", manifestsOf(tenants(7)...))
	held := r.awaitHeld(t, "13 of 20 backends gone, 13 of 20 hosts gone")
	if s, n, _ := r.store.newest(); n != 1 || s.ID() != first.ID() {
		t.Errorf("%d snapshots, newest %s", n, s.ID())
	}

	// A restart changes nothing, nor does an approval of something else.
	stop()
	c := config.Default()
	c.ShrinkGuard.Approve = "0123456789"
	stop = r.start(t, c)
	if again := r.awaitHeld(t, held.Lost); again != held {
		t.Errorf("held %+v after a restart, %+v before", again, held)
	}
	stop()
	c.ShrinkGuard.Approve = held.Digest.Short()
	r.start(t, c)
	if s := r.awaitRoute(t, "tenant-19.example", false); s.Manifest.Spec.Digest != held.Digest || s.Manifest.Spec.Parent != first.ID() {
		t.Errorf("published %s after %s", s.ID(), s.Manifest.Spec.Parent)
	}
	await(t, "ready", r.status.Ready)
	r.awaitMetric(t, "hapsnap_compiler_held_drafts", 0)
}

// What is no mass loss any more needs no approval.
func TestRunPublishesWhatCameBack(t *testing.T) {
	t.Parallel()
	r := run(t, map[string]string{"all.yaml": manifestsOf(tenants(20)...)})
	r.awaitRoute(t, "tenant-19.example", true)
	r.write(t, "all.yaml", manifestsOf(tenants(2)...))
	r.awaitHeld(t, "18 of 20 backends gone, 18 of 20 hosts gone")
	r.write(t, "all.yaml", manifestsOf(tenants(19)...))
	r.awaitRoute(t, "tenant-19.example", false)
	r.awaitRoute(t, "tenant-18.example", true)
	await(t, "ready", r.status.Ready)
	r.awaitMetric(t, "hapsnap_compiler_held_drafts", 0)
	if _, n, _ := r.store.newest(); n != 2 {
		t.Errorf("%d snapshots, want the one with 20 and the one with 19", n)
	}
}
