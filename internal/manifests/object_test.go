package manifests

import (
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	networkingv1 "k8s.io/api/networking/v1"
)

func TestPosition(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "web.yaml")
	write(t, file, `apiVersion: v1
kind: Service
metadata: {name: other}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: web
  annotations:
    example.com/a.b: x
spec:
  rules:
  - host: é.example.com
    http:
      paths:
      - {path: /a, pathType: Prefix}
      - path: /b
`)
	set, err := Read(file)
	if err != nil {
		t.Fatal(err)
	}
	ingress := set.Objects[0]
	for _, c := range []struct {
		name         string
		path         []any
		line, column int
	}{
		{"the object", nil, 5, 1},
		{"a value", []any{"metadata", "name"}, 8, 9},
		{"a mapping is where its name is", []any{"metadata", "annotations"}, 9, 3},
		{"a name with dots", []any{"metadata", "annotations", "example.com/a.b"}, 10, 22},
		{"an item", []any{"spec", "rules", 0}, 13, 5},
		{"in a flow mapping", []any{"spec", "rules", 0, "http", "paths", 0, "pathType"}, 16, 30},
		{"the second item", []any{"spec", "rules", 0, "http", "paths", 1, "path"}, 17, 15},
		{"absent: the parent", []any{"spec", "rules", 0, "http", "paths", 1, "pathType"}, 17, 9},
		{"index out of range: the list", []any{"spec", "rules", 7, "host"}, 12, 3},
		{"a step into a value", []any{"metadata", "name", "x"}, 8, 9},
	} {
		if got, want := ingress.Position(c.path...), (Position{file, c.line, c.column}); got != want {
			t.Errorf("%s: Position(%v) = %v, want %v", c.name, c.path, got, want)
		}
	}
}

func TestPositionString(t *testing.T) {
	for want, p := range map[string]Position{
		"a.yaml":     {File: "a.yaml"},
		"a.yaml:3":   {File: "a.yaml", Line: 3},
		"a.yaml:3:4": {File: "a.yaml", Line: 3, Column: 4},
		"":           {},
	} {
		if got := p.String(); got != want {
			t.Errorf("%#v: got %q, want %q", p, got, want)
		}
	}
}

func TestMetadata(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "web.yaml"), `apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: web
  uid: 1-2-3
  resourceVersion: "77"
  creationTimestamp: 2024-05-06T07:08:09+02:00
  labels: {app: web, tier: "1"}
spec:
  ingressClassName: hapsnap
`)
	set, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	o := set.Objects[0]
	if o.UID != "1-2-3" || o.ResourceVersion != "77" || o.Labels["app"] != "web" || o.Labels["tier"] != "1" || o.Annotations != nil {
		t.Errorf("metadata is %+v", o)
	}
	if want := time.Date(2024, 5, 6, 5, 8, 9, 0, time.UTC); !o.Created.Equal(want) {
		t.Errorf("Created is %v, want %v", o.Created, want)
	}
	var ingress networkingv1.Ingress
	if errs := o.Decode(&ingress); len(errs) > 0 {
		t.Fatal(errs)
	}
	if got := *ingress.Spec.IngressClassName; got != "hapsnap" || !ingress.CreationTimestamp.Time.Equal(o.Created) {
		t.Errorf("decoded %+v", ingress)
	}
}

// Thousands of objects have the same fields: each name of one is in memory once.
func TestFieldPathsShareMemory(t *testing.T) {
	for _, path := range [][]any{{"spec", "rules", 0, "host"}, {"metadata", "annotations", "example.com/a.b"}} {
		a, b := FieldPath(path), FieldPath(path)
		if a != b || unsafe.StringData(a) != unsafe.StringData(b) {
			t.Errorf("%s and %s are not one string", a, b)
		}
	}
}
