package controller_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/controller"
	"github.com/hapsnap/hapsnap/compiler/controller/controllertest"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/internal/testing/scripttest"
)

// volume is a folder with a configuration, like the volume of a ConfigMap: the file is a link through another
// link, which is replaced.
type volume struct {
	dir string
	n   int
}

// file is the name of the configuration.
func (v *volume) file() string { return filepath.Join(v.dir, "c.yaml") }

// write replaces the spec.
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
func awaitBind(t *testing.T, r *controllertest.Compiler, port int) {
	t.Helper()
	controllertest.Await(t, "port", func() error {
		if s, n, _ := r.Store.Newest(); n == 0 || !strings.Contains(string(s.Config()), fmt.Sprintf("    bind *:%d\n", port)) {
			return fmt.Errorf("%d snapshots, none with port %d", n, port)
		}
		return nil
	})
}

// awaitRefused waits until the configuration is refused for a reason.
func awaitRefused(t *testing.T, r *controllertest.Compiler, want string) {
	t.Helper()
	controllertest.Await(t, "configuration refused", func() error {
		refused := r.Status.Report().Compiler.Refused
		if refused == nil || len(refused.Found) != 1 || !strings.Contains(refused.Found[0].Diagnostic().String(), want) {
			return fmt.Errorf("refused: %+v", refused)
		}
		return nil
	})
	r.AwaitMetric(t, "hapsnap_compiler_config_refused", 1)
	if err := r.Status.Ready(); err != nil {
		t.Errorf("not ready, though the configuration before works: %v", err)
	}
}

// A changed configuration is used if it is valid. An invalid one is refused, and the former one stays in use.
func TestRunFollowsItsConfiguration(t *testing.T) {
	t.Parallel()
	v := &volume{dir: t.TempDir()}
	v.write(t, "{http: {port: 8001}}")
	r := controllertest.Prepare(t, map[string]string{"web.yaml": controllertest.Manifest("web", "5s")})
	controllertest.Put(t, filepath.Join(r.Templates, "extend"), "global.cfg", "{{if eq .Config.HTTP.Port 8666}}    nonsense{{end}}")
	r.Configuration = controller.ConfigFile(v.file())
	r.Override = func(c *config.Config) { c.HTTPS.Port = 8443 }
	before := config.Default()
	before.HTTP.Port, before.HTTPS.Port = 8001, 8443
	r.Start(t, before)
	awaitBind(t, r, 8001)

	v.write(t, "{http: {port: 8002}}")
	awaitBind(t, r, 8002)
	r.AwaitMetric(t, "hapsnap_compiler_config_refused", 0)

	for n, c := range []struct{ spec, reason string }{
		{"{http: {prot: 8003}}", "c.yaml:3:15: spec.http.prot: unknown field"},
		{"{http: {port: 70000}}", "c.yaml:3:21: spec.http.port: 70000 is not a port"},
		{"{http: {port: 8443}}", "c.yaml:3:7: spec.https.port: is the port of another listener"},
		{"{tls: {cipherSuites: [TLS_BANANA]}}", "c.yaml:3:29: spec.tls.cipherSuites[0]: \"TLS_BANANA\" is not known"},
		{"{http: {port: 8666}}", "extend/global.cfg:1: haproxy: unknown keyword 'nonsense'"},
	} {
		v.write(t, c.spec)
		awaitRefused(t, r, c.reason)
		// Other changes are compiled meanwhile.
		host := fmt.Sprintf("host%d", n)
		r.Write(t, host+".yaml", controllertest.Manifest(host, "5s"))
		s := r.AwaitRoute(t, host+".example", true)
		if text := string(s.Config()); !strings.Contains(text, "bind *:8002\n") || !strings.Contains(text, "bind *:8443 ") {
			t.Errorf("after %s: %s", c.spec, text)
		}
	}

	v.write(t, "{http: {port: 8004}}")
	awaitBind(t, r, 8004)
	r.AwaitMetric(t, "hapsnap_compiler_config_refused", 0)
	controllertest.Await(t, "nothing refused", func() error {
		if refused := r.Status.Report().Compiler.Refused; refused != nil {
			return fmt.Errorf("still refused: %+v", refused)
		}
		return nil
	})
}

// A missing configuration does not count as an empty one.
func TestRunKeepsAConfigurationThatIsGone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "c.yaml")
	const text = "apiVersion: hapsnap.dev/v1alpha1\nkind: CompilerConfig\nspec: {http: {port: 8001}}\n"
	controllertest.Put(t, dir, "c.yaml", text)
	r := controllertest.Prepare(t, map[string]string{"web.yaml": controllertest.Manifest("web", "5s")})
	r.Configuration = controller.ConfigFile(file)
	before := config.Default()
	before.HTTP.Port = 8001
	r.Start(t, before)
	awaitBind(t, r, 8001)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	r.AwaitMetric(t, "hapsnap_compiler_config_refused", 1)
	controllertest.Await(t, "why it is refused", func() error {
		if refused := r.Status.Report().Compiler.Refused; refused == nil || !strings.Contains(refused.Error, "read configuration") || r.Status.Ready() != nil {
			return fmt.Errorf("refused %+v, ready %v", refused, r.Status.Ready())
		}
		return nil
	})
	r.Write(t, "api.yaml", controllertest.Manifest("api", "5s"))
	r.AwaitRoute(t, "api.example", true)
	awaitBind(t, r, 8001)
	controllertest.Put(t, dir, "c.yaml", text)
	r.AwaitMetric(t, "hapsnap_compiler_config_refused", 0)
}

// waiting are objects of which those of other kinds are not known until the test says so.
type waiting struct {
	*compiler.Directory
	changed chan struct{}
	mu      sync.Mutex
	known   bool
}

func (o *waiting) Read(ctx context.Context, c config.Config) (inputs.Gathered, error) {
	if err := o.Prepare(&c); err != nil {
		return inputs.Gathered{}, err
	}
	return o.Directory.Read(ctx, c)
}

func (o *waiting) Prepare(c *config.Config) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if c != nil && len(c.Kinds) > 0 && !o.known {
		return fmt.Errorf("%w: %ss", inputs.ErrIncomplete, c.Kinds[0].Kind)
	}
	return nil
}

func (o *waiting) Changes(ctx context.Context, log *slog.Logger) <-chan struct{} {
	files := o.Directory.Changes(ctx, log)
	go func() {
		for {
			select {
			case <-files:
				o.change()
			case <-ctx.Done():
				return
			}
		}
	}()
	return o.changed
}

func (o *waiting) change() {
	select {
	case o.changed <- struct{}{}:
	default:
	}
}

// know says whether the kinds are known.
func (o *waiting) know(known bool) {
	o.mu.Lock()
	o.known = known
	o.mu.Unlock()
	o.change()
}

// A configuration that asks for what is not known, such as a kind that is misspelled, waits. Meanwhile the former one is
// used, everything else is published, and another configuration may take its place.
func TestRunGoesOnWhileAConfigurationWaits(t *testing.T) {
	t.Parallel()
	v := &volume{dir: t.TempDir()}
	v.write(t, "{http: {port: 8001}}")
	r := controllertest.Prepare(t, map[string]string{"web.yaml": controllertest.Manifest("web", "5s")})
	o := &waiting{Directory: compiler.Files(r.Dir), changed: make(chan struct{}, 1)}
	r.Configuration = controller.ConfigFile(v.file())
	before := config.Default()
	before.HTTP.Port = 8001
	r.Start(t, before, func(options *controller.Options) { options.Source.Objects = o })
	awaitBind(t, r, 8001)
	waits := func(kind string) {
		t.Helper()
		controllertest.Await(t, "what it waits for", func() error {
			if refused := r.Status.Report().Compiler.Refused; refused == nil || !strings.Contains(refused.Error, kind) || len(refused.Found) > 0 || r.Status.Ready() != nil {
				return fmt.Errorf("refused %+v, ready %v", refused, r.Status.Ready())
			}
			return nil
		})
		r.AwaitMetric(t, "hapsnap_compiler_config_refused", 1)
	}
	const kind = "kinds: [{apiVersion: example.com/v1, kind: %s}]"
	v.write(t, "{http: {port: 8002}, "+fmt.Sprintf(kind, "Wigit")+"}")
	waits("Wigits")
	r.Write(t, "api.yaml", controllertest.Manifest("api", "5s"))
	r.AwaitRoute(t, "api.example", true)
	awaitBind(t, r, 8001)

	v.write(t, "{http: {port: 8003}}") // taken back
	awaitBind(t, r, 8003)
	r.AwaitMetric(t, "hapsnap_compiler_config_refused", 0)

	v.write(t, "{http: {prot: 8004}}")
	awaitRefused(t, r, "unknown field")
	v.write(t, "{http: {port: 8004}, "+fmt.Sprintf(kind, "Widget")+"}")
	waits("Widgets")
	v.write(t, "{http: {prot: 8004}}") // worse
	awaitRefused(t, r, "unknown field")
	o.know(true)
	r.Write(t, "shop.yaml", controllertest.Manifest("shop", "5s"))
	r.AwaitRoute(t, "shop.example", true)
	awaitBind(t, r, 8003)

	o.know(false)
	v.write(t, "{http: {port: 8004}, "+fmt.Sprintf(kind, "Widget")+"}")
	waits("Widgets")
	o.know(true)
	awaitBind(t, r, 8004)
	r.AwaitMetric(t, "hapsnap_compiler_config_refused", 0)
}

// A configuration with which HAProxy crashes does not keep everything else from being published, and is tried again if it or
// the templates change.
func TestRunGoesBackIfHAProxyCrashes(t *testing.T) {
	t.Parallel()
	v := &volume{dir: t.TempDir()}
	v.write(t, "{http: {port: 8001}}")
	r := controllertest.Prepare(t, map[string]string{"web.yaml": controllertest.Manifest("web", "5s")})
	controllertest.Put(t, filepath.Join(r.Templates, "extend"), "global.cfg", "    # one")
	r.Configuration = controller.ConfigFile(v.file())
	before := config.Default()
	before.HTTP.Port = 8001
	sound := controllertest.HAProxy(t)
	path := filepath.Join(t.TempDir(), "haproxy")
	scripttest.Write(t, path, "#!/bin/sh\nif grep -q '# one' haproxy.cfg && grep -q 'bind .*:8002' haproxy.cfg; then kill -SEGV $$; fi\nexec "+sound.Path+" \"$@\"\n")
	r.Start(t, before, func(o *controller.Options) { o.Checker = &validate.Checker{Path: path, Version: sound.Version} })
	awaitBind(t, r, 8001)

	v.write(t, "{http: {port: 8002}}")
	controllertest.Await(t, "the crash", func() error {
		if refused := r.Status.Report().Compiler.Refused; refused == nil || !strings.Contains(refused.Error, "cannot compile with it: ") || r.Status.Ready() != nil {
			return fmt.Errorf("refused %+v, ready %v", refused, r.Status.Ready())
		}
		return nil
	})
	r.AwaitMetric(t, "hapsnap_compiler_config_refused", 1)
	r.Write(t, "api.yaml", controllertest.Manifest("api", "5s"))
	r.AwaitRoute(t, "api.example", true)
	awaitBind(t, r, 8001)

	controllertest.Put(t, filepath.Join(r.Templates, "extend"), "global.cfg", "    # two")
	awaitBind(t, r, 8002)
	r.AwaitMetric(t, "hapsnap_compiler_config_refused", 0)
	if refused := r.Status.Report().Compiler.Refused; refused != nil {
		t.Errorf("it is used, and still refused: %+v", refused)
	}
}

// manifestsOf returns the objects of several hosts in one file, so that all come and go at once.
func manifestsOf(names ...string) string {
	var out []string
	for _, name := range names {
		out = append(out, controllertest.Manifest(name, "5s"))
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

// awaitHeld waits until a draft is held, and returns the error.
func awaitHeld(t *testing.T, r *controllertest.Compiler, lost string) controller.ShrinkError {
	t.Helper()
	var held *controller.ShrinkError
	controllertest.Await(t, "draft held", func() error {
		err := r.Status.Ready()
		if !errors.As(err, &held) || held.Lost != lost || !strings.Contains(err.Error(), held.Approval()) {
			return fmt.Errorf("ready says %v", err)
		}
		return nil
	})
	r.AwaitMetric(t, "hapsnap_compiler_held_drafts", 1)
	return *held
}

func TestRunHoldsAMassLoss(t *testing.T) {
	t.Parallel()
	r := controllertest.Prepare(t, map[string]string{"all.yaml": manifestsOf(tenants(20)...)})
	stop := r.Start(t, config.Default())
	first := r.AwaitRoute(t, "tenant-19.example", true)
	r.Write(t, "all.yaml", manifestsOf(tenants(8)...))
	awaitHeld(t, r, "12 of 20 backends gone, 12 of 20 hosts gone")
	r.Write(t, "all.yaml", manifestsOf(tenants(7)...))
	held := awaitHeld(t, r, "13 of 20 backends gone, 13 of 20 hosts gone")
	if s, n, _ := r.Store.Newest(); n != 1 || s.ID() != first.ID() {
		t.Errorf("%d snapshots, newest %s", n, s.ID())
	}

	// A restart changes nothing, and neither does the approval of something else.
	stop()
	c := config.Default()
	c.ShrinkGuard.Approve = "0123456789"
	stop = r.Start(t, c)
	if again := awaitHeld(t, r, held.Lost); again != held {
		t.Errorf("held %+v after a restart, %+v before", again, held)
	}
	stop()
	c.ShrinkGuard.Approve = held.Digest.Short()
	r.Start(t, c)
	if s := r.AwaitRoute(t, "tenant-19.example", false); s.Manifest.Spec.Digest != held.Digest || s.Manifest.Spec.Parent != first.ID() {
		t.Errorf("published %s after %s", s.ID(), s.Manifest.Spec.Parent)
	}
	controllertest.Await(t, "ready", r.Status.Ready)
	r.AwaitMetric(t, "hapsnap_compiler_held_drafts", 0)
}

// tenantsOf returns manifests of one namespace, with hosts of its own.
func tenantsOf(namespace string, n int) string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("%s-%d", namespace, i))
	}
	return strings.ReplaceAll(manifestsOf(names...), "namespace: shop", "namespace: "+namespace)
}

// A tenant who deletes most of what there is stops nobody else. Where it is not known that the objects were deleted, or where
// the others have next to nothing, or lose much as well, a person has to look at it.
func TestRunPublishesTheLossOfOneNamespace(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		unseen, restart bool

		other, left int // what the other namespace has before and after
		held        string
	}{
		"seen":                           {other: 8, left: 8},
		"not seen":                       {unseen: true, other: 8, left: 8, held: "30 of 38 backends gone, 30 of 38 hosts gone"},
		"gone while no compiler ran":     {restart: true, other: 8, left: 8, held: "30 of 38 backends gone, 30 of 38 hosts gone"},
		"others have next to nothing":    {other: 4, left: 4, held: "30 of 34 backends gone, 30 of 34 hosts gone"},
		"others lose much, too":          {other: 10, left: 5, held: "35 of 40 backends gone, 35 of 40 hosts gone"},
		"others change at the same time": {other: 8, left: 9},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := func(o *controller.Options) { o.SeesDeletions = !test.unseen }
			r := controllertest.Prepare(t, map[string]string{"all.yaml": manifestsOf(tenants(30)...) + "---\n" + tenantsOf("quiet", test.other)})
			stop := r.Start(t, config.Default(), seen)
			r.AwaitRoute(t, "tenant-29.example", true)
			controllertest.Await(t, "ready", r.Status.Ready)
			if test.restart {
				stop()
			}
			r.Write(t, "all.yaml", tenantsOf("quiet", test.left)) // at once
			if test.restart {
				r.Start(t, config.Default(), seen)
			}
			if test.held != "" {
				awaitHeld(t, r, test.held)
				return
			}
			s := r.AwaitRoute(t, "tenant-29.example", false)
			if prefix, _ := s.File("maps/prefix.map"); strings.Count(string(prefix), ".example|") != test.left {
				t.Errorf("the others have\n%s", prefix)
			}
			controllertest.Await(t, "ready", r.Status.Ready)
		})
	}
}

// paramsOfAll are parameters of the class of all Ingresses, which are on the lines of each backend.
const paramsOfAll = `apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: hapsnap}
spec:
  controller: hapsnap.dev/ingress-controller
  parameters: {apiGroup: "", kind: ConfigMap, name: parameters, namespace: infra, scope: Namespace}
---
apiVersion: v1
kind: ConfigMap
metadata: {namespace: infra, name: parameters}
data: {hsts: "60"}
---
`

// gatewayOfAll is a Gateway with an option, which is on the lines of each backend that its routes lead to.
const gatewayOfAll = `apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: hapsnap}
spec: {controllerName: hapsnap.dev/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {namespace: infra, name: all, annotations: {hapsnap.dev/rate-limit: "100"}}
spec:
  gatewayClassName: hapsnap
  listeners: [{name: http, port: 8000, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}]
---
`

// routesOf returns HTTPRoutes of one namespace at that Gateway, with hosts and Services of their own.
func routesOf(namespace string, n int) string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {namespace: %[1]s, name: s%[2]d}
spec: {ports: [{port: 80}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {namespace: %[1]s, name: r%[2]d}
spec:
  parentRefs: [{name: all, namespace: infra}]
  hostnames: ["%[1]s-%[2]d.example"]
  rules: [{backendRefs: [{name: s%[2]d, port: 80}]}]
`, namespace, i))
	}
	return strings.Join(out, "---\n")
}

// Whose a loss is does not depend on settings of administrators that concern everybody, and a few tenants who agree on it stop
// nobody, either: neither those who name the same hosts. A loss of many is held.
func TestRunPublishesTheLossOfFewNamespaces(t *testing.T) {
	t.Parallel()
	together := func(manifests ...string) string { return strings.Join(manifests, "---\n") }
	var quiet []string
	for i := range 8 {
		quiet = append(quiet, tenantsOf(fmt.Sprint("quiet", i), 2))
	}
	shared := strings.NewReplacer("namespace: one", "namespace: two", "path: /,", "path: /two,").Replace(tenantsOf("one", 20))
	for name, test := range map[string]struct{ stays, gone, held string }{
		"one, with parameters of the class":  {stays: paramsOfAll + tenantsOf("quiet0", 8), gone: tenantsOf("one", 20)},
		"one, at a Gateway with options":     {stays: gatewayOfAll + routesOf("quiet0", 8), gone: routesOf("one", 20)},
		"two of ten":                         {stays: together(quiet...), gone: together(tenantsOf("one", 20), tenantsOf("two", 20))},
		"two of ten, with the same hosts":    {stays: together(quiet...), gone: together(tenantsOf("one", 20), shared)},
		"two of seven":                       {stays: together(quiet[:5]...), gone: together(tenantsOf("one", 20), tenantsOf("two", 20)), held: "40 of 50 backends gone, 40 of 50 hosts gone"},
		"three of ten":                       {stays: together(quiet[:7]...), gone: together(tenantsOf("one", 20), tenantsOf("two", 20), tenantsOf("three", 20)), held: "60 of 74 backends gone, 60 of 74 hosts gone"},
		"two of ten, and some of the others": {stays: together(quiet[:5]...), gone: together(append(quiet[5:], tenantsOf("one", 20), shared)...), held: "46 of 56 backends gone, 26 of 36 hosts gone"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := config.Default()
			c.GatewayAPI.Enabled = true
			r := controllertest.Prepare(t, map[string]string{"all.yaml": together(test.stays, test.gone)})
			r.Start(t, c, func(o *controller.Options) { o.SeesDeletions = true })
			r.AwaitRoute(t, "one-19.example", true)
			controllertest.Await(t, "ready", r.Status.Ready)
			r.Write(t, "all.yaml", test.stays)
			if test.held != "" {
				awaitHeld(t, r, test.held)
				return
			}
			r.AwaitRoute(t, "one-19.example", false)
			controllertest.Await(t, "ready", r.Status.Ready)
		})
	}
}

// If it is no longer a mass loss, it needs no approval.
func TestRunPublishesWhatCameBack(t *testing.T) {
	t.Parallel()
	r := controllertest.Run(t, map[string]string{"all.yaml": manifestsOf(tenants(20)...)})
	r.AwaitRoute(t, "tenant-19.example", true)
	r.Write(t, "all.yaml", manifestsOf(tenants(2)...))
	awaitHeld(t, r, "18 of 20 backends gone, 18 of 20 hosts gone")
	r.Write(t, "all.yaml", manifestsOf(tenants(19)...))
	r.AwaitRoute(t, "tenant-19.example", false)
	r.AwaitRoute(t, "tenant-18.example", true)
	controllertest.Await(t, "ready", r.Status.Ready)
	r.AwaitMetric(t, "hapsnap_compiler_held_drafts", 0)
	if _, n, _ := r.Store.Newest(); n != 2 {
		t.Errorf("%d snapshots, want the one with 20 and the one with 19", n)
	}
}
