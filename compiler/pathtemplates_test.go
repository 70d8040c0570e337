package compiler_test

import (
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// Copies of older templates that do not normalize paths are reported if something is protected by its path.
func TestTemplatesThatComparePathsAsSent(t *testing.T) {
	t.Parallel()
	const head = `    http-request set-var(txn.host) req.fhdr(host),field(1,:),lower,rtrim(.)
    http-request set-var(txn.h) var(txn.host),map_str(maps/host.map)
`
	const tail = `    http-request set-var(txn.b) var(txn.h),concat(|,txn.p),map_str(maps/exact.map)
    http-request set-var(txn.b) var(txn.h),concat(|,txn.p,/),map_beg(maps/prefix.map) if !{ var(txn.b) -m found }
    use_backend %[var(txn.b)] if { var(txn.b) -m found }
`
	const raw, normal = "    http-request set-var(txn.p) path\n", "{{template \"partials/path.cfg\" .}}\n"
	for name, test := range map[string]struct{ routing, annotations, want string }{
		"from before":            {head + raw + tail, "hapsnap.dev/allow-list: 10.0.0.0/8", "the templates compare paths as they are sent"},
		"without the guard":      {head + normal + tail, "hapsnap.dev/allow-list: 10.0.0.0/8", "the templates pass on paths that servers read in different ways"},
		"as sent on purpose":     {head + raw + tail, "hapsnap.dev/allow-list: 10.0.0.0/8, hapsnap.dev/normalize-paths: 'false', hapsnap.dev/unsafe-paths: pass", ""},
		"nothing is protected":   {head + raw + tail, "", ""},
		"those that are shipped": {"", "hapsnap.dev/allow-list: 10.0.0.0/8", ""},
		"frontends from before":  {"", "", "the templates pass on CONNECT"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := []txtar.File{{Name: "manifests/all.yaml", Data: []byte(simpleIngress("shop/web", "shop.example", "/admin", test.annotations))}}
			if test.routing != "" {
				files = append(files, txtar.File{Name: "templates/partials/routing.cfg", Data: []byte(test.routing)})
			}
			if name == "frontends from before" {
				files = append(files, txtar.File{Name: "templates/partials/request-line.cfg", Data: []byte("{{- /* nothing */ -}}\n")})
			}
			r, err := source(t, &txtar.Archive{Files: files}).Once(t.Context(), haproxy(t), now, "test")
			if err != nil {
				t.Fatal(err, r.Diagnostics)
			}
			said := ""
			for _, d := range r.Diagnostics {
				if strings.HasPrefix(d.Message, "the templates") {
					said = d.Message
				}
			}
			if !strings.HasPrefix(said, test.want) || (said == "") != (test.want == "") {
				t.Errorf("it is said %q, want %q", said, test.want)
			}
		})
	}
}
