package compiler

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/config/logs"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/templates"
)

// The probe has a filter of every kind, and protection and upstream with every field. So a mistake of a
// template in any of them is distinguished from one of an object.
func TestProbeHasOneOfEverything(t *testing.T) {
	t.Parallel()
	kinds := map[policy.Kind]bool{}
	fields := map[string]bool{}
	for _, b := range probeModel(withProbeAgents(config.Default())).Backends {
		for _, f := range b.Filters {
			kinds[f.Kind()] = true
			if guard, is := f.(policy.Guard); is {
				used(fields, reflect.ValueOf(guard.Protection))
			}
		}
		if b.Protection != nil {
			used(fields, reflect.ValueOf(*b.Protection))
		}
		if b.Upstream != nil {
			used(fields, reflect.ValueOf(*b.Upstream))
		}
	}
	for _, kind := range filterKinds(t) {
		if !kinds[kind] {
			t.Errorf("no filter of kind %s: add to probeTogether", kind)
		}
	}
	for _, of := range []reflect.Type{reflect.TypeFor[policy.Protection](), reflect.TypeFor[policy.Upstream]()} {
		for f := range of.Fields() {
			if name := of.Name() + "." + f.Name; !fields[name] {
				t.Errorf("%s is never set: add to probeTogether", name)
			}
		}
	}
}

// used records the fields of a struct that are set.
func used(fields map[string]bool, v reflect.Value) {
	for f, value := range v.Fields() {
		if !value.IsZero() {
			fields[v.Type().Name()+"."+f.Name] = true
		}
	}
}

// filterKinds reads the kinds of filters from the source of the package.
func filterKinds(t *testing.T) (kinds []policy.Kind) {
	t.Helper()
	form := regexp.MustCompile(`(?m)^func \([^)]+\) Kind\(\) Kind \{ return "(\w+)" \}`)
	files, err := filepath.Glob("policy/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range form.FindAllStringSubmatch(string(text), -1) {
			kinds = append(kinds, policy.Kind(m[1]))
		}
	}
	if len(kinds) < 8 {
		t.Fatalf("only %v are found", kinds)
	}
	return kinds
}

// A mistake in a part of an overlay that only some options use counts as one of the templates. No Ingress is
// left out for it.
func TestMistakeInAPartialIsOfTheTemplates(t *testing.T) {
	t.Parallel()
	for _, partial := range []string{"filters", "protection", "upstream"} {
		t.Run(partial, func(t *testing.T) {
			t.Parallel()
			result, err := compileOverlaid(t, "partials/"+partial+".cfg", "{{- /* mistaken */}}\n    http-request no-such-rule\n")
			if !errors.Is(err, ErrTemplates) {
				t.Fatalf("%v %v", err, result.Diagnostics)
			}
			for _, d := range result.Diagnostics {
				if d.Object.Name != "" {
					t.Errorf("an object is blamed: %s", d)
				}
			}
		})
	}
}

// compileOverlaid compiles an Ingress with options of all kinds, with one replaced template.
func compileOverlaid(t *testing.T, name, text string) (Result, error) {
	t.Helper()
	dir, overlay := t.TempDir(), t.TempDir()
	manifest := `apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  namespace: shop
  name: web
  annotations: {hapsnap.dev/balance: leastconn, hapsnap.dev/hsts: "60", hapsnap.dev/max-body-size: 1m}
spec:
  ingressClassName: hapsnap
  defaultBackend: {service: {name: web, port: {number: 80}}}
---
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: web}
spec: {ports: [{port: 80}]}
`
	if err := os.MkdirAll(filepath.Dir(filepath.Join(overlay, name)), 0o755); err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string]string{filepath.Join(dir, "web.yaml"): manifest, filepath.Join(overlay, name): text} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check, err := validate.Find(t.Context(), cmp.Or(os.Getenv("HAPROXY"), "haproxy"))
	if err != nil {
		t.Fatal(err)
	}
	return Source{Objects: Files(dir), Templates: overlay, Config: config.Default()}.Once(t.Context(), check, time.Now(), "test")
}

// withinLines are templates that write a part of another template's line.
var withinLines = []string{"partials/client-check.cfg", "partials/source.cfg", "partials/listener-name.cfg", "partials/listener-tls.cfg"}

// Some configuration of the probe writes every line of every template. So a mistake in any of them is
// distinguished from one of an object. HAProxy accepts all of it.
func TestProbeReachesEveryLine(t *testing.T) {
	t.Parallel()
	files, err := render.Shipped(templates.FS)
	if err != nil {
		t.Fatal(err)
	}
	set, found := render.Parse(files)
	if len(found) > 0 {
		t.Fatal(found)
	}
	check, err := validate.Find(t.Context(), cmp.Or(os.Getenv("HAPROXY"), "haproxy"))
	if err != nil {
		t.Fatal(err)
	}
	reached := map[place]bool{}
	for name, edit := range probeConfigurations() {
		cfg := config.Default()
		edit(&cfg)
		cfg = withProbeAgents(cfg)
		for _, model := range probeModels(cfg) {
			artifact, faults := set.Render(render.Input{Model: model, Config: cfg, Objects: probeObjects})
			for _, f := range faults {
				t.Errorf("%s: %+v", name, f)
			}
			for _, lines := range artifact.Origins {
				for _, o := range lines {
					reached[place{template: o.Template, line: o.Line}] = true
				}
			}
			if name == "newer" { // newer than some HAProxys
				continue
			}
			verdict, err := check.Check(t.Context(), validate.Input{Artifact: artifact})
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range verdict.Faults {
				t.Errorf("%s: %s %q: %s", name, f.Origin.Template, f.Text, f.Message)
			}
		}
	}
	for _, f := range files {
		if slices.ContainsFunc(withinLines, func(name string) bool { return strings.HasSuffix(f.Path, name) }) {
			continue
		}
		for _, line := range writingLines(f.Text) {
			if !reached[place{template: f.Path, line: line}] {
				t.Errorf("%s:%d is never written: extend the probe, or probeConfigurations", f.Path, line)
			}
		}
	}
}

// probeConfigurations are settings on which lines depend, and that no object can set.
func probeConfigurations() map[string]func(*config.Config) {
	return map[string]func(*config.Config){
		"default": func(*config.Config) {},
		"most": func(c *config.Config) {
			c.NBThread, c.MaxConn, c.CloseSpreadTime = 2, 100, "5s"
			c.TLS.Ciphers, c.TLS.CipherSuites, c.TLS.Curves = []string{"ECDHE-ECDSA-AES128-GCM-SHA256"}, []string{"TLS_AES_128_GCM_SHA256"}, []string{"X25519"}
			c.Timeouts.ClientFin, c.Timeouts.ServerFin, c.Timeouts.Check = "5s", "5s", "5s"
			c.ProxyProtocol.Trusted = []string{"192.0.2.0/24"}
			c.Forwarded.Policy, c.Forwarded.Trusted, c.Forwarded.ClientAddress = config.AppendForwarded, []string{"192.0.2.0/24"}, config.AddressInHeader
			c.Log.Target, c.Log.Format = "127.0.0.1:514", logs.JSON
			c.Status.Stats.Enabled, c.Status.Ready = true, config.Ready{MinBackendsPercent: 50, Services: []string{"hapsnap/probe"}, MaxQueued: 10}
			c.ErrorPages, c.HTTPS.DefaultCertificate = "hapsnap/probe", "hapsnap/probe"
			c.Countries = config.Countries{ConfigMaps: []string{"hapsnap/countries"}, Header: "X-Country"}
			c.DNS.Nameservers = []string{"192.0.2.53"}
			c.ReservedDomains = []config.ReservedDomain{{Domain: "reserved.invalid", Namespaces: config.Namespaces{"hapsnap"}}}
		},
		"keep": func(c *config.Config) {
			c.Forwarded.Policy, c.Forwarded.Trusted = config.KeepForwarded, []string{"192.0.2.0/24"}
		},
		"newer": func(c *config.Config) { c.HTTPS.HTTP3.Enabled, c.HAProxyVersion = true, "3.1" },
	}
}

var (
	commentAction = regexp.MustCompile(`(?s)\{\{-? ?/\*.*?\*/ ?-?\}\}`)
	controlAction = regexp.MustCompile(`\{\{-? ?(?:if|else|with|range|end|template|\$\w+(?:, \$\w+)? :?=)[^}]*\}\}`)
)

// writingLines returns the numbers of the lines of a template that write a text or a value.
func writingLines(text string) []int {
	text = commentAction.ReplaceAllStringFunc(text, func(comment string) string { return strings.Repeat("\n", strings.Count(comment, "\n")) })
	text = controlAction.ReplaceAllString(text, "")
	var out []int
	for i, line := range strings.Split(text, "\n") {
		if strings.TrimSpace(line) != "" {
			out = append(out, i+1)
		}
	}
	return out
}

// The probe has all parts of lines for which an Ingress can ask.
func TestProbeHasConditions(t *testing.T) {
	t.Parallel()
	parts, yields := map[routing.Part]bool{}, false
	for _, h := range probeModel(withProbeAgents(config.Default())).Hosts {
		for _, r := range h.Routes {
			yields = yields || r.Yields
			for _, c := range r.Match.Conditions {
				parts[c.Of] = true
			}
		}
	}
	if !parts[routing.Header] || !parts[routing.HeaderPattern] || !parts[routing.Cookie] || !yields {
		t.Errorf("conditions of %v, yields: %v", parts, yields)
	}
}
