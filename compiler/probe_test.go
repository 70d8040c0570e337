package compiler

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/validate"
)

// The probe has a filter of every kind, and protection and upstream with every
// field: a mistake of a template in any of them is told from one of an object.
func TestProbeHasOneOfEverything(t *testing.T) {
	t.Parallel()
	kinds := map[policy.Kind]bool{}
	fields := map[string]bool{}
	for _, b := range probeModel(config.Default()).Backends {
		for _, f := range b.Filters {
			kinds[f.Kind()] = true
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

// used takes note of the fields of a struct that are set.
func used(fields map[string]bool, v reflect.Value) {
	for f, value := range v.Fields() {
		if !value.IsZero() {
			fields[v.Type().Name()+"."+f.Name] = true
		}
	}
}

// filterKinds reads the kinds of filters from the package's source.
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

// A mistake of an overlay in a part that only some options write is one of the
// templates, and keeps nobody's Ingress out.
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

// compileOverlaid compiles an Ingress with options of all kinds with one template
// replaced.
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
