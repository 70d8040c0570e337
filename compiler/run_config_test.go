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
