package controller_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/controller"
	"github.com/hapsnap/hapsnap/compiler/controller/controllertest"
	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/internal/testing/scripttest"
)

// putGlobal writes a template that adds to the section global.
func putGlobal(t *testing.T, r *controllertest.Compiler, text string) {
	t.Helper()
	controllertest.Put(t, filepath.Join(r.Templates, "extend"), "global.cfg", text)
}

// awaitTemplates waits until the templates are refused for a reason, "" for none, while those before them are used.
func awaitTemplates(t *testing.T, r *controllertest.Compiler, reason string) {
	t.Helper()
	controllertest.Await(t, "templates refused", func() error {
		refused := r.Status.Report().Compiler.RefusedTemplates
		var said string
		if refused != nil {
			said = refused.Error
			for _, f := range refused.Found {
				said += f.Diagnostic().String()
			}
		}
		if (reason == "") != (refused == nil) || !strings.Contains(said, reason) {
			return fmt.Errorf("refused: %q", said)
		}
		return nil
	})
	want := 1
	if reason == "" {
		want = 0
	}
	r.AwaitMetric(t, "hapsnap_compiler_templates_refused", want)
	if err := r.Status.Ready(); err != nil {
		t.Errorf("not ready, though the templates before work: %v", err)
	}
}

// awaitText waits until the newest snapshot has a text.
func awaitText(t *testing.T, r *controllertest.Compiler, text string) {
	t.Helper()
	controllertest.Await(t, "a snapshot", func() error {
		if s, n, _ := r.Store.Newest(); n == 0 || !strings.Contains(string(s.Config()), text) {
			return fmt.Errorf("%d snapshots, none with %q", n, text)
		}
		return nil
	})
}

// Templates with an error, whatever finds it, do not keep everything else from being published.
func TestRunGoesOnWithTheTemplatesBefore(t *testing.T) {
	t.Parallel()
	r := controllertest.Prepare(t, map[string]string{"web.yaml": controllertest.Manifest("web", "5s")})
	putGlobal(t, r, "    # one")
	r.Start(t, config.Default())
	awaitText(t, r, "# one")
	for n, c := range []struct{ text, reason string }{
		{"{{if}}", "extend/global.cfg:1"},
		{"    nonsense", "extend/global.cfg:1: haproxy: unknown keyword 'nonsense'"},
		{"{{.Config.Nothing}}", "extend/global.cfg:1"},
		{"", "none of haproxy/*.cfg"}, // a file that cannot be one
	} {
		other := filepath.Join(r.Templates, "extend", "other.txt")
		if c.text == "" {
			controllertest.Put(t, filepath.Dir(other), filepath.Base(other), "x")
		} else {
			putGlobal(t, r, c.text)
		}
		awaitTemplates(t, r, c.reason)
		host := fmt.Sprintf("host%d", n)
		r.Write(t, host+".yaml", controllertest.Manifest(host, "5s"))
		if s := r.AwaitRoute(t, host+".example", true); !strings.Contains(string(s.Config()), "# one") {
			t.Errorf("after %q: %s", c.text, s.Config())
		}
		if c.text == "" {
			if err := os.Remove(other); err != nil {
				t.Fatal(err)
			}
		}
		putGlobal(t, r, "    # one")
		awaitTemplates(t, r, "")
	}
	if err := os.Remove(filepath.Join(r.Templates, "extend", "global.cfg")); err != nil {
		t.Fatal(err)
	}
	awaitTemplates(t, r, "has no template any more")
	r.Write(t, "api.yaml", controllertest.Manifest("api", "5s"))
	if s := r.AwaitRoute(t, "api.example", true); !strings.Contains(string(s.Config()), "# one") {
		t.Errorf("without templates: %s", s.Config())
	}
	putGlobal(t, r, "    # two")
	awaitText(t, r, "# two")
	awaitTemplates(t, r, "")
}

// A compiler that starts with wrong templates has none to go back to, and publishes nothing. Once some have worked, it has.
func TestRunStartsWithWrongTemplates(t *testing.T) {
	t.Parallel()
	r := controllertest.Prepare(t, map[string]string{"web.yaml": controllertest.Manifest("web", "5s")})
	putGlobal(t, r, "{{if}}")
	r.Start(t, config.Default())
	for _, text := range []string{"{{if}}", "{{else}}"} {
		putGlobal(t, r, text)
		controllertest.Await(t, "not ready", func() error {
			if err := r.Status.Ready(); !errors.Is(err, compiler.ErrTemplates) {
				return fmt.Errorf("ready says %v", err)
			}
			return nil
		})
	}
	putGlobal(t, r, "    # one")
	awaitText(t, r, "# one")
	awaitTemplates(t, r, "")
	putGlobal(t, r, "{{if}}")
	awaitTemplates(t, r, "extend/global.cfg:1")
}

// startConfigured starts a compiler with a template and a configuration of port 8001.
func startConfigured(t *testing.T, template string) (*controllertest.Compiler, *volume) {
	t.Helper()
	v := &volume{dir: t.TempDir()}
	v.write(t, "{http: {port: 8001}}")
	r := controllertest.Prepare(t, map[string]string{"web.yaml": controllertest.Manifest("web", "5s")})
	putGlobal(t, r, template)
	r.Configuration = controller.ConfigFile(v.file())
	before := config.Default()
	before.HTTP.Port = 8001
	r.Start(t, before)
	awaitBind(t, r, 8001)
	return r, v
}

// Templates and a configuration that are meant for each other are used, whichever of them comes first, and although each of
// them is wrong without the other. What is wrong in both keeps neither from being used alone.
func TestRunTriesTemplatesAndConfigurationTogether(t *testing.T) {
	t.Parallel()
	const meant = "{{if ne .Config.HTTP.Port %d}}    nonsense{{end}}    # of %[1]d\n"
	for name, first := range map[string]func(templates, configuration func()){
		"the templates come first":      func(templates, _ func()) { templates() },
		"the configuration comes first": func(_, configuration func()) { configuration() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, v := startConfigured(t, fmt.Sprintf(meant, 8001))

			templates := func() {
				putGlobal(t, r, fmt.Sprintf(meant, 8002))
				awaitTemplates(t, r, "unknown keyword 'nonsense'")
			}
			configuration := func() {
				v.write(t, "{http: {port: 8002}}")
				awaitRefused(t, r, "unknown keyword 'nonsense'")
			}
			first(templates, configuration)
			v.write(t, "{http: {port: 8002}}")
			putGlobal(t, r, fmt.Sprintf(meant, 8002))
			awaitText(t, r, "# of 8002")
			awaitBind(t, r, 8002)
			awaitTemplates(t, r, "")
			r.AwaitMetric(t, "hapsnap_compiler_config_refused", 0)

			putGlobal(t, r, "    rubbish")
			awaitTemplates(t, r, "unknown keyword 'rubbish'")
			v.write(t, "{http: {port: 8003}}") // which the old templates do not take either
			awaitRefused(t, r, "unknown keyword")
			awaitTemplates(t, r, "unknown keyword 'rubbish'")
			v.write(t, "{http: {port: 8002}, idleCloseOnResponse: false}")
			r.AwaitMetric(t, "hapsnap_compiler_config_refused", 0)
			awaitTemplates(t, r, "unknown keyword 'rubbish'")
			putGlobal(t, r, "    # any")
			awaitText(t, r, "# any")
			awaitTemplates(t, r, "")
		})
	}
}

// Templates with which HAProxy crashes are not used.
func TestRunGoesBackIfHAProxyCrashesWithTemplates(t *testing.T) {
	t.Parallel()
	r := controllertest.Prepare(t, map[string]string{"web.yaml": controllertest.Manifest("web", "5s")})
	putGlobal(t, r, "    # one")
	sound := controllertest.HAProxy(t)
	path := filepath.Join(t.TempDir(), "haproxy")
	scripttest.Write(t, path, "#!/bin/sh\nif grep -q '# two' haproxy.cfg; then kill -SEGV $$; fi\nexec "+sound.Path+" \"$@\"\n")
	r.Start(t, config.Default(), func(o *controller.Options) { o.Checker = &validate.Checker{Path: path, Version: sound.Version} })
	awaitText(t, r, "# one")
	putGlobal(t, r, "    # two")
	awaitTemplates(t, r, "cannot compile with them: ")
	r.Write(t, "api.yaml", controllertest.Manifest("api", "5s"))
	r.AwaitRoute(t, "api.example", true)
	putGlobal(t, r, "    # three")
	awaitText(t, r, "# three")
	awaitTemplates(t, r, "")
}

// Templates that were refused are tried again with a configuration that the templates before take as well.
func TestRunTriesRefusedTemplatesWithAnotherConfiguration(t *testing.T) {
	t.Parallel()
	r, v := startConfigured(t, "    # one")
	putGlobal(t, r, "{{if ne .Config.HTTP.Port 8002}}    nonsense{{end}}    # two")
	awaitTemplates(t, r, "unknown keyword 'nonsense'")
	v.write(t, "{http: {port: 8002}}")
	awaitText(t, r, "# two")
	awaitBind(t, r, 8002)
	awaitTemplates(t, r, "")
	r.AwaitMetric(t, "hapsnap_compiler_config_refused", 0)
}
