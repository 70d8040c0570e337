package compiler_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/templates"
)

// soundOnes is the number of valid Ingresses of others.
const soundOnes = 60

// withSpoof returns valid Ingresses of three namespaces. HAProxy refuses another one with a message that quotes
// its annotation.
func withSpoof(annotations string) string {
	var out strings.Builder
	add := func(namespace, name, annotations string) {
		fmt.Fprintf(&out, `---
apiVersion: v1
kind: Service
metadata: {namespace: %[1]s, name: %[2]s}
spec: {ports: [{name: http, port: 80}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {namespace: %[1]s, name: %[2]s, creationTimestamp: "2024-01-01T00:00:00Z", annotations: {%[3]s}}
spec:
  ingressClassName: hapsnap
  rules: [{host: %[2]s.example, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: %[2]s, port: {name: http}}}}]}}]
`, namespace, name, annotations)
	}
	for i := range soundOnes {
		add(fmt.Sprint("shop", i%3), fmt.Sprint("w", i), "hapsnap.dev/timeout-server: 33s")
	}
	add("evil", "base", "")
	add("evil", "web", annotations)
	return out.String()
}

// onlyEvil fails the test unless exactly one Ingress is left out, and all others are served.
func onlyEvil(t *testing.T, r compiler.Result, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err, r.Diagnostics)
	}
	for _, q := range r.Draft.Quarantined {
		if q.Namespace != "evil" || q.Name != "web" {
			t.Errorf("left out: %+v", q)
		}
	}
	hosts := ""
	for _, f := range r.Draft.Files {
		if f.Path == "maps/host.map" || strings.HasPrefix(f.Path, "maps/") {
			hosts += string(f.Content)
		}
	}
	for i := range soundOnes {
		if !strings.Contains(hosts, fmt.Sprintf("w%d.example", i)) {
			t.Errorf("w%d.example is not served", i)
		}
	}
}

// An expression that PCRE would refuse is refused in its own Ingress, although it claims that another line is
// wrong.
func TestExpressionThatNamesAPlace(t *testing.T) {
	t.Parallel()
	objects := withSpoof(`hapsnap.dev/canary: "true", hapsnap.dev/canary-by-header: X-Probe, hapsnap.dev/canary-by-header-pattern: "^(?:[ab][cd]){1000} parsing [haproxy.cfg:125] : x"`)
	objects = strings.ReplaceAll(objects, "web.example", "base.example") // the host of which it is the canary
	s := source(t, &txtar.Archive{Files: []txtar.File{{Name: "manifests/all.yaml", Data: []byte(objects)}}})
	r, err := s.Once(t.Context(), haproxy(t), time.Unix(0, 0), "test")
	onlyEvil(t, r, err)
	if said := fmt.Sprint(r.Diagnostics); !strings.Contains(said, "is too large: it takes 74") {
		t.Error(said)
	}
}

// spoofing is a line whose value HAProxy quotes when it refuses it.
const spoofing = `    http-request set-var(txn.m) int(1) if { path -m reg -- '%s' }`

// Text that HAProxy quotes names no line. Only its author's Ingress is left out.
func TestQuotedTextThatNamesAPlace(t *testing.T) {
	t.Parallel()
	compiled := func(expression string) (compiler.Result, error) {
		s := source(t, &txtar.Archive{Files: []txtar.File{
			{Name: "manifests/all.yaml", Data: []byte(withSpoof("example.com/word: x"))},
			{Name: "templates/extend/backend.cfg", Data: []byte("{{if .Annotation \"example.com/word\"}}" + fmt.Sprintf(spoofing, expression) + "\n{{end}}")},
		}})
		return s.Once(t.Context(), haproxy(t), time.Unix(0, 0), "test")
	}
	honest, err := compiled("^x")
	if err != nil {
		t.Fatal(err, honest.Diagnostics)
	}
	before, _, _ := strings.Cut(string(snapshots.Snapshot{Files: honest.Draft.Files}.Config()), "#hapsnap servers shop0/w0:")
	first := 1 + strings.Count(before, "\n") // HAProxy's file has some additional lines
	for line := first; line < first+60; line += 5 {
		r, err := compiled(fmt.Sprintf("^(?:[ab][cd]){1000} parsing [haproxy.cfg:%d] : x", line))
		onlyEvil(t, r, err)
		if len(r.Draft.Quarantined) != 1 {
			t.Errorf("left out: %+v", r.Draft.Quarantined)
		}
	}
}

// spoofed is a HAProxy whose messages blame the first Ingress of others for the fault of evil.
type spoofed struct {
	*validate.Checker
	runs int
}

func (c *spoofed) Check(ctx context.Context, in validate.Input) (validate.Verdict, error) {
	c.runs++
	f := in.Artifact.Files[slices.IndexFunc(in.Artifact.Files, func(f snapshots.File) bool { return f.Path == "haproxy.cfg" })]
	if !strings.Contains(string(f.Content), "backend evil_") {
		return c.Checker.Check(ctx, in)
	}
	line := 1 + slices.IndexFunc(strings.Split(string(f.Content), "\n"), func(line string) bool { return strings.HasPrefix(line, "backend shop") })
	return validate.Verdict{Faults: []render.Fault{{
		Message: fmt.Sprintf("haproxy: something is wrong, seen %d times", c.runs), File: f.Path, Line: line, Origin: in.Artifact.Origin(f.Path, line),
	}}}, nil
}

// If the place of a fault is wrong, the fault remains when the object at that place is left out. Then that
// object is put back, and the cause is searched for.
func TestPlaceThatIsNotTheCause(t *testing.T) {
	t.Parallel()
	files, err := render.Shipped(templates.FS)
	if err != nil {
		t.Fatal(err)
	}
	set, wrong := render.Parse(files.Under(nil))
	if len(wrong) > 0 {
		t.Fatal(wrong)
	}
	in := compiler.Input{Objects: many(soundOnes), Config: config.Default(), Templates: set, Now: now}
	for i := range in.Objects.Ingresses {
		namespace := fmt.Sprint("shop", i%3)
		if i == soundOnes/2 {
			namespace = "evil"
		}
		service, ing := &in.Objects.Services[i], &in.Objects.Ingresses[i]
		service.Ref.Namespace, service.Value.Namespace = namespace, namespace
		ing.Ref.Namespace, ing.Value.Namespace = namespace, namespace
	}
	check := &spoofed{Checker: haproxy(t)}
	r, err := compiler.Compile(t.Context(), in, check)
	if err != nil {
		t.Fatal(err, r.Diagnostics)
	}
	if len(r.Draft.Quarantined) != 1 || r.Draft.Quarantined[0].Namespace != "evil" || check.runs > 30 {
		t.Errorf("after %d checks, left out: %+v", check.runs, r.Draft.Quarantined)
	}
}
