package validate_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/internal/testing/scripttest"
	"github.com/hapsnap/hapsnap/snapshots"
)

// mistakes are lines that HAProxy or we refuse in a backend, and lines that only look wrong. NAME is the
// backend, and OTHER another one.
var mistakes = []string{
	"http-request frobnicate", "http-request deny deny_status 9999", "http-request set-header", "http-request set-header X %[nothing(1)]",
	"http-request set-header X %[req.hdr(x),nothing]", "http-request set-var(req) str(1)", "http-request replace-path ( y", "http-request track-sc9 src",
	"http-request track-sc0 src table OTHER", "http-request track-sc0 src table nobody", "http-request deny if nobody", "http-request deny if { path_reg ( }",
	"http-request return status 200 file nothing.http", "http-request use-service lua.nothing", "http-request lua.nothing",
	"http-response set-header X %[req.hdr(x)]", "http-response frobnicate", "http-after-response del-header", "filter nothing", "filter compression",
	"timeout server ever", "timeout frobnicate 1s", "timeout server 1s 2s", "balance nothing", "balance hash", "balance url_param", "hash-type nothing", "retries many", "retry-on nothing",
	"option nothing", "option httpchk GET / HTTP/1.1 x", "http-check expect nothing", "http-check send meth", "tcp-check expect nothing", "option httpchk",
	"server one", "server one 127.0.0.1:99999", "server one 127.0.0.1:80 frobnicate", "server one 127.0.0.1:80 weight 999", "server one 127.0.0.1:80 track OTHER/nobody",
	"server one 127.0.0.1:80 ssl crt nothing.pem", "server one 127.0.0.1:80 ssl verify required", "server one 127.0.0.1:80 id 7", "id 4711", "id 0", "stick-table type ip",
	"stick-table type ip size 1k expire 1m store http_req_rate(10s)", "stick on src table OTHER", "stick on src table nobody", "cookie", "cookie one insert indirect nocache", "dynamic-cookie-key",
	"acl one path_beg", "acl one nothing x", "use-server nobody if TRUE", "errorfile 503 nothing.http", "errorfiles nobody", "http-error status 1000", "fullconn none",
	"compression algo nothing", "load-server-state-from-file nowhere", "mode nothing", "mode tcp", "description one", "maxconn 10", "bind :1", "use_backend OTHER", "email-alert from x",
	"http-reuse maybe", "log 127.0.0.1", "unique-id-format %x", "no option nothing", "default-server frobnicate", "default-server inter 1s", "guid one",
	"http-request set-header X %[nbsrv(nobody)]", "http-request set-header X %[nbsrv(OTHER)]", "http-request deny if { nbsrv(NAME) lt 1 }", "# a comment", "#hapsnap servers", "http-request deny \"if", "http-request deny \\",
	"\"id\" 4711", "\\x69d 4711", "server one 127.0.0.1:80 'id' 7", "\u00a0# no comment", "\u0085#hapsnap servers shop/a", "description one\\ ", "\v# a comment",
}

// If only one backend of each text is checked, HAProxy's verdict is the same as for all: for mistakes of every
// kind, in one backend or in several, before and after others with their text.
func TestVerdictsOfOnePerText(t *testing.T) {
	t.Parallel()
	check := find(t)
	for i, mistake := range mistakes {
		t.Run(mistake, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(1, uint64(i)))
			for _, share := range []float64{0.04, 0.3, 1} {
				config := withMistake(random, mistake, share)
				ask := func(short bool) string {
					a := render.Artifact{Files: []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte(config)}}}
					v, err := check.Check(t.Context(), validate.Input{Artifact: a, OnePerText: short})
					if err != nil {
						t.Fatal(err)
					}
					out := ""
					for _, f := range v.Faults {
						out += fmt.Sprintf("%d: %s: %s\n", f.Line, f.Text, f.Message)
					}
					return out
				}
				if whole, short := ask(false), ask(true); whole != short {
					t.Errorf("of one backend of each text it says\n%s\nand of all\n%s\n%s", short, whole, config)
				}
			}
		})
	}
}

// HAProxy checks few of many backends whose text differs only in the Services.
func TestOnePerTextAsksAboutFew(t *testing.T) {
	t.Parallel()
	check, asked := overheard(t, "haproxy.cfg")
	config := withMistake(rand.New(rand.NewPCG(1, 2)), "http-request deny", 1)
	v, err := check.Check(t.Context(), validate.Input{Artifact: render.Artifact{Files: []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte(config)}}}, OnePerText: true})
	if err != nil || len(v.Faults) > 0 {
		t.Fatal(v.Faults, err)
	}
	// These are three texts, and the two backends that the frontend names.
	if n := strings.Count(asked(), "\nbackend "); n < 3 || n > 5 {
		t.Errorf("of 25 backends, HAProxy was asked about %d", n)
	}
}

// overheard returns a checker with an executable of its own for HAProxy, and what HAProxy was given last in the files that
// match a pattern.
func overheard(t *testing.T, pattern string) (check *validate.Checker, asked func() string) {
	t.Helper()
	dir := t.TempDir()
	haproxy, copied := filepath.Join(dir, "haproxy"), filepath.Join(dir, "asked")
	script := fmt.Sprintf("#!/bin/sh\n[ \"$1\" != -c ] || cat %s >%s\nexec %s \"$@\"\n", pattern, copied, cmp.Or(os.Getenv("HAPROXY"), "haproxy"))
	scripttest.Write(t, haproxy, script)
	check, err := validate.Find(t.Context(), haproxy)
	if err != nil {
		t.Fatal(err)
	}
	return check, func() string {
		t.Helper()
		text, err := os.ReadFile(copied)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
}

// withMistake returns a haproxy.cfg whose backends have few different texts. A share of them, at least one, has
// the line.
func withMistake(random *rand.Rand, mistake string, share float64) string {
	const backends = 25
	var b strings.Builder
	b.WriteString("global\ndefaults main\n    mode http\n    timeout connect 1s\n    timeout client 1s\n    timeout server 1s\nfrontend f from main\n    bind unix@f.sock\n    use_backend b7 if { path /x }\n    default_backend \"b3\"\n")
	sure := random.IntN(backends)
	for i := range backends {
		own := ""
		if i == sure || random.Float64() < share {
			own = strings.NewReplacer("NAME", fmt.Sprint("b", i), "OTHER", fmt.Sprint("b", (i+random.IntN(backends-1)+1)%backends)).Replace(mistake)
		}
		fmt.Fprintf(&b, "backend b%d from main\n    balance %s\n", i, []string{"roundrobin", "leastconn", "source"}[random.IntN(3)])
		if own != "" {
			fmt.Fprintf(&b, "    %s\n", own)
		}
		fmt.Fprintf(&b, "    #hapsnap servers shop/web-%d:http -- maxconn 10\n", i)
	}
	return b.String()
}
