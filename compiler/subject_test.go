package compiler_test

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/snapshots"
)

const smallShop = `
-- config.yaml --
apiVersion: hapsnap.dev/v1alpha1
kind: CompilerConfig
-- manifests/shop.yaml --
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: web}
spec: {ports: [{port: 80}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  namespace: shop
  name: web
  annotations:
    hapsnap.dev/timeout-server: 30s
spec:
  ingressClassName: hapsnap
  tls: [{hosts: [shop.example], secretName: web-tls}]
  rules:
  - host: shop.example
    http: &http
      paths:
      - {path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}
      - {path: /api, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}
`

// If little is new in a snapshot, the subject says what.
func TestSubjectOfLittle(t *testing.T) {
	t.Parallel()
	check := haproxy(t)
	compile := func(t *testing.T, pairs ...string) compiler.Result {
		t.Helper()
		r, err := source(t, txtar.Parse([]byte(strings.NewReplacer(append(pairs, "&http", "")...).Replace(smallShop)))).Once(t.Context(), check, now, "test")
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	before := compile(t).Draft.Number(1, snapshots.ID{})
	annotation := "hapsnap.dev/timeout-server: 30s"
	for name, test := range map[string]struct{ from, to, want string }{
		"only a host": {
			"  rules:\n", "  rules:\n  - host: www.example\n    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}\n",
			"+1 route (Ingress shop/web)",
		},
		"only another name of a host":  {annotation, annotation + "\n    hapsnap.dev/server-alias: www.shop.example", "+2 routes (Ingress shop/web)"},
		"only a redirected host":       {annotation, annotation + "\n    hapsnap.dev/redirect-www: 'true'", "+1 backend, +1 route (Ingress shop/web)"},
		"only a certificate":           {"tls: [", "tls: [{hosts: [www.shop.example], secretName: www-tls}, ", "+1 certificate"},
		"only a name of a certificate": {"tls: [{hosts: [shop.example]", "tls: [{hosts: [shop.example, www.shop.example]", "~files/https.crtlist"},
		"only another certificate":     {"web-tls", "www-tls", "+1 certificate, -1 certificate"},
		"only an option":               {annotation, "hapsnap.dev/timeout-server: 40s", "~1 backend (Ingress shop/web)"},
		"only a map line":              {"path: /api", "path: /v2", "+1 route, -1 route (Ingress shop/web)"},
		"only a rewritten path":        {annotation, annotation + "\n    hapsnap.dev/rewrite-path: /x", "~1 backend (Ingress shop/web)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := compiler.Subject(before, compile(t, test.from, test.to)); got != test.want {
				t.Errorf("subject is %q, want %q", got, test.want)
			}
		})
	}
}

// Every difference gives the snapshot a subject other than "no change", which only equal content has.
func TestSubjectMissesNothing(t *testing.T) {
	t.Parallel()
	r, err := source(t, load(t, "shop.txtar")).Once(t.Context(), haproxy(t), now, "test")
	if err != nil {
		t.Fatal(err)
	}
	before := r.Draft.Number(1, snapshots.ID{})
	subject := func(edit func(*snapshots.Draft)) string {
		d := r.Draft
		d.Files, d.Certificates, d.Recipients = slices.Clone(d.Files), slices.Clone(d.Certificates), slices.Clone(d.Recipients)
		edit(&d)
		if d.Digest() == r.Draft.Digest() {
			return ""
		}
		return compiler.Subject(before, compiler.Result{Draft: d, Artifact: render.Artifact{}})
	}
	if got := compiler.Subject(before, r); got != "no change" {
		t.Errorf("the subject of the same content is %q", got)
	}
	tried := 0
	judge := func(what string, edit func(*snapshots.Draft)) {
		t.Helper()
		tried++
		if got := subject(edit); got == "no change" {
			t.Errorf("the subject is %q, and this is new: %s", got, what)
		}
	}
	for i, f := range r.Draft.Files {
		judge("no file "+f.Path, func(d *snapshots.Draft) { d.Files = slices.Delete(d.Files, i, i+1) })
		lines := strings.SplitAfter(string(f.Content), "\n")
		for n := range lines {
			judge(f.Path+" without "+lines[n], func(d *snapshots.Draft) {
				d.Files[i].Content = []byte(strings.Join(slices.Delete(slices.Clone(lines), n, n+1), ""))
			})
		}
	}
	judge("a file", func(d *snapshots.Draft) {
		d.Files = append(d.Files, snapshots.File{Path: "files/new.txt", Content: []byte("x")})
	})
	for line, want := range map[string]string{"www.shop.example shop.example\n": "+1 host www.shop.example", ".b.example b.example\n": "+1 host *.b.example", "a a\nb b\n": "+2 hosts"} {
		got := subject(func(d *snapshots.Draft) {
			for i, f := range d.Files {
				if f.Path == "maps/host.map" {
					d.Files[i].Content = append(slices.Clone(f.Content), line...)
				}
			}
		})
		if got != want {
			t.Errorf("the subject of a further %q is %q, want %q", line, got, want)
		}
	}
	for i, c := range r.Draft.Certificates {
		judge("no certificate "+c.File, func(d *snapshots.Draft) { d.Certificates = slices.Delete(d.Certificates, i, i+1) })
		judge("another Secret of "+c.File, func(d *snapshots.Draft) { d.Certificates[i].Secret.Name += "x" })
		judge("another use of "+c.File, func(d *snapshots.Draft) { d.Certificates[i].Use += "x" })
	}
	if tried < 100 {
		t.Errorf("only %d differences were tried", tried)
	}
}
