package validate_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/config/logs"
	"github.com/hapsnap/hapsnap/compiler/config/transport"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/internal/testing/scripttest"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/templates"
)

func find(t *testing.T) *validate.Checker {
	t.Helper()
	c, err := validate.Find(t.Context(), cmp.Or(os.Getenv("HAPROXY"), "haproxy"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var web = routing.Origin{Object: diag.Object{Kind: "Ingress", Namespace: "shop", Name: "web"}, Position: diag.Position{File: "m.yaml", Line: 3, Column: 1}}

// model has everything that the shipped templates write.
func model() routing.Model {
	return routing.Model{
		Hosts: []routing.Host{{Name: "shop.example", Routes: []routing.Route{
			{Match: routing.Match{PathMatch: routing.PathMatch{Type: routing.Prefix}}, Backend: "shop_web_http", Origin: web},
			{Match: routing.Match{PathMatch: routing.PathMatch{Type: routing.Exact, Path: "/x"}}, Backend: "shop_gone_80", Origin: web},
		}}},
		Backends: []routing.Backend{
			{Name: "shop_gone_80", Origins: []routing.Origin{web}},
			{Name: "shop_web_http", Origins: []routing.Origin{web}, Targets: []routing.Target{
				{Service: snapshots.ServicePort{Namespace: "shop", Service: "web", Port: "http"}, Weight: 1},
			}},
		},
		Certificates: []routing.Certificate{
			{File: "certs/shop_a.pem", Secret: snapshots.SecretName{Namespace: "shop", Name: "a"}, Hosts: []string{"shop.example"}, Origin: web},
			{File: "certs/shop_b.pem", Secret: snapshots.SecretName{Namespace: "shop", Name: "b"}, Hosts: []string{"*.shop.example"}, Origin: web},
		},
		Default: "shop_web_http",
	}
}

func artifact(t *testing.T, overlay map[string]string, m routing.Model) render.Artifact {
	t.Helper()
	return artifactOf(t, config.Default(), overlay, m)
}

func artifactOf(t *testing.T, cfg config.Config, overlay map[string]string, m routing.Model) render.Artifact {
	t.Helper()
	shipped, err := render.Shipped(templates.FS)
	if err != nil {
		t.Fatal(err)
	}
	var files render.Templates
	for name, text := range overlay {
		files = append(files, render.Template{Name: name, Path: "mine/" + name, Text: text})
	}
	set, ds := render.Parse(shipped.Under(files))
	if len(ds) > 0 {
		t.Fatal(ds)
	}
	a, faults := set.Render(render.Input{Model: m, Config: cfg, Objects: func() []render.Object {
		return []render.Object{{Origin: web, APIVersion: "networking.k8s.io/v1", Annotations: map[string]string{"t": "banana", "key": "-----BEGIN"}}}
	}})
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return a
}

func TestShippedTemplatesAreAccepted(t *testing.T) {
	t.Parallel()
	c := find(t)
	for name, m := range map[string]routing.Model{"nothing": {}, "everything": model()} {
		for _, kind := range []validate.KeyType{validate.ECDSA, validate.RSA, validate.Ed25519} {
			t.Run(name+" "+string(kind), func(t *testing.T) {
				t.Parallel()
				keys := map[snapshots.SecretName]validate.KeyType{{Namespace: "shop", Name: "a"}: kind}
				v, err := c.Check(t.Context(), validate.Input{Artifact: artifact(t, nil, m), Keys: keys})
				if err != nil || len(v.Faults) > 0 || len(v.Warnings) > 0 {
					t.Errorf("%v, %+v", err, v)
				}
			})
		}
	}
}

func TestEveryConfigurationIsAccepted(t *testing.T) {
	t.Parallel()
	c := find(t)
	sticky := model()
	sticky.Backends[1].Upstream = &policy.Upstream{Affinity: &policy.Affinity{Cookie: "x"}}
	for name, edit := range map[string]func(*config.Config){
		"variable":      func(c *config.Config) { c.Bind.Addresses = []string{"${EDGE_ADDRESS}"} },
		"both families": func(c *config.Config) { c.Bind.Addresses = []string{"::"} },
		"IPv6":          func(c *config.Config) { c.Bind.Addresses = []string{"::1", "127.0.0.1"} },
		"no HTTP":       func(c *config.Config) { c.HTTP.Port = 0 },
		"no HTTPS":      func(c *config.Config) { c.HTTPS.Port = 0 },
		"no status":     func(c *config.Config) { c.Status.Port = 0 },
		"modern TLS":    func(c *config.Config) { c.TLS.Policy = transport.Modern },
		"TLS": func(c *config.Config) {
			c.TLS = transport.TLS{
				Policy: transport.Intermediate, MinVersion: transport.TLS10, MaxVersion: transport.TLS13, Ciphers: []string{"DEFAULT@SECLEVEL=0", "!MD5"},
				CipherSuites: []string{"TLS_CHACHA20_POLY1305_SHA256"}, Curves: []string{"X25519", "secp384r1"},
			}
		},
		"only TLS 1.2":        func(c *config.Config) { c.TLS.MaxVersion = transport.TLS12 },
		"no HTTP/2":           func(c *config.Config) { c.HTTPS.HTTP2 = false },
		"default certificate": func(c *config.Config) { c.HTTPS.DefaultCertificate = "shop/a" },
		"PROXY protocol":      func(c *config.Config) { c.ProxyProtocol.Trusted = networks(100) },
		"no log":              func(c *config.Config) { c.Log.Target = logs.Nowhere },
		"JSON log":            func(c *config.Config) { c.Log.Format = logs.JSON },
		"syslog":              func(c *config.Config) { c.Log.Target, c.Log.Syslog = "10.0.0.5:1514", logs.RFC3164 },
		"syslog on IPv6":      func(c *config.Config) { c.Log.Target, c.Log.MaxLength = "fd00::5", 2048 },
		"syslog of a node":    func(c *config.Config) { c.Log.Target, c.Log.Level = "${HOST_IP}:514", logs.Notice },
		"log format":          func(c *config.Config) { c.Log.Format = `it's "%ci" at %T, %[ssl_fc_sni]` },
		"threads":             func(c *config.Config) { c.NBThread, c.MaxConn = 64, 1000 },
		"all timeouts": func(c *config.Config) {
			c.Timeouts.ClientFin, c.Timeouts.ServerFin, c.Timeouts.Check = "1s", "2s", "3s"
		},
		"durations":    func(c *config.Config) { c.HardStopAfter, c.Timeouts.Connect = "2d", "500ms" },
		"affinity key": func(c *config.Config) { c.Affinity.KeySecret, c.Affinity.Key = "shop/keys", "cookie" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config.Default()
			edit(&cfg)
			if faults := cfg.Check(); len(faults) > 0 {
				t.Fatal(faults)
			}
			v, err := c.Check(t.Context(), validate.Input{Artifact: artifactOf(t, cfg, nil, sticky)})
			if err != nil || len(v.Faults) > 0 || len(v.Warnings) > 0 {
				t.Errorf("%v, %+v", err, v)
			}
		})
	}
}

// HAProxy 3.1 and later do not warn about a configuration for them. Older ones refuse it.
func TestConfigurationForNewerHAProxys(t *testing.T) {
	t.Parallel()
	c := find(t)
	cfg := config.Default()
	cfg.HAProxyVersion = "3.1"
	a := artifactOf(t, cfg, nil, model())
	if !slices.ContainsFunc(a.Files, func(f snapshots.File) bool { return bytes.Contains(f.Content, []byte("lua-load")) }) {
		t.Fatal("no script is loaded")
	}
	said := filepath.Join(t.TempDir(), "said")
	script := filepath.Join(t.TempDir(), "haproxy")
	text := fmt.Sprintf("#!/bin/sh\n'%s' \"$@\" 2>'%s'\nstatus=$?\ncat '%s' >&2\nexit $status\n", c.Path, said, said)
	scripttest.Write(t, script, text)
	v, err := (&validate.Checker{Path: script, Version: c.Version}).Check(t.Context(), validate.Input{Artifact: a})
	if err != nil {
		t.Fatal(err)
	}
	if !config.HAProxyVersion(regexp.MustCompile(`^\d+\.\d+`).FindString(c.Version)).AtLeast(3, 1) {
		if len(v.Faults) != 1 || !strings.Contains(v.Faults[0].Message, "tune.lua.bool-sample-conversion") {
			t.Errorf("%+v", v)
		}
		return
	}
	if out, err := os.ReadFile(said); err != nil || bytes.Contains(out, []byte("hlua")) || len(v.Faults)+len(v.Warnings) > 0 {
		t.Errorf("%v, %+v\n%s", err, v, out)
	}
}

// HAProxy and the parser of the Dataplane API check stand-ins for what is joined from Secrets at a push.
func TestSecretsAreStoodInFor(t *testing.T) {
	t.Parallel()
	c := find(t)
	a := artifact(t, map[string]string{
		"haproxy/15-users.cfg":     "userlist both\n    #hapsnap users shop/auth\n    #hapsnap users shop/more\n",
		"extend/backend.cfg":       "    http-request auth unless { http_auth(both) }\n    cookie x dynamic indirect nocache insert\n    dynamic-cookie-key {{secret \"shop/keys\" \"cookie\"}}\n",
		"haproxy/55-verify.cfg":    "backend verified from main\n    #hapsnap servers shop/tls -- ssl verify required ca-file certs/ca_shop_a.pem\n",
		"files/https.crtlist":      "certs/fallback.pem !*\ncerts/shop_a.pem [ca-file certs/ca_shop_a.pem verify required] x\n",
		"extend/frontend-http.cfg": "    http-request deny unless { req.hdr(x) -m str {{secret \"shop/keys\" \"token\"}} }\n",
	}, model())
	a.Certificates = append(a.Certificates, snapshots.CertificateRef{
		File: "certs/ca_shop_a.pem", Secret: snapshots.SecretName{Namespace: "shop", Name: "a"}, Use: snapshots.UseCA,
	})
	v, err := c.Check(t.Context(), validate.Input{Artifact: a})
	if err != nil || len(v.Faults) > 0 || len(v.Warnings) > 0 {
		t.Errorf("%v, %+v", err, v)
	}
}

// Every fault is found with its template line and its objects.
func TestFaultsAreMappedBack(t *testing.T) {
	t.Parallel()
	c := find(t)
	for name, test := range map[string]struct {
		overlay map[string]string
		want    string
	}{
		"haproxy's verdict on an annotation": {
			map[string]string{"extend/backend.cfg": "\n{{with .Annotation \"t\"}}\n    timeout server {{.}}\n{{end}}"},
			`mine/extend/backend.cfg:3 Ingress shop/web "timeout server banana": haproxy: unexpected character 'b' in 'timeout server'`,
		},
		"server options": {
			map[string]string{"haproxy/50-backend.cfg": "{{/* each backend */}}\nbackend {{.Backend.Name}} from main\n{{range .Backend.Targets}}#hapsnap servers {{.Service}} -- banana\n{{end}}"},
			`mine/haproxy/50-backend.cfg:3 Ingress shop/web "#hapsnap servers shop/web:http -- banana": haproxy: 'server shop_web_http/s1' : unknown keyword 'banana'`,
		},
		"map": {
			map[string]string{"maps/ip.map": "# ip\n{{range .Hosts}}a {{.Name}}\n{{end}}", "extend/frontend.cfg": "    http-request set-var(txn.i) src,map_str_ip(maps/ip.map)\n"},
			`mine/maps/ip.map:2 Ingress shop/web "a shop.example": haproxy: error detected in frontend 'http' while parsing 'http-request set-var(txn.i)' rule : invalid args in converter 'map_str_ip' : unable to parse 'shop.example'`,
		},
		"crt-list": {
			map[string]string{"files/https.crtlist": "certs/fallback.pem !*\n\n{{range .Certificates}}{{.File}} [banana] x\n{{end}}"},
			`mine/files/https.crtlist:3 Ingress shop/web "certs/shop_a.pem [banana] x": haproxy: 'bind *:443' in section 'frontend' : 'crt-list' : unknown ssl keyword banana`,
		},
		"certificate of no Secret": {
			map[string]string{"files/https.crtlist": "certs/none.pem\n"},
			`shipped:haproxy/40-frontend-https.cfg:13 "bind *:443 ssl crt-list files/https.crtlist alpn h2,http/1.1": haproxy: 'bind *:443' in section 'frontend' : 'crt-list' : unable to stat SSL certificate from file 'certs/none.pem' : No such file or directory`,
		},
		"no place":        {map[string]string{"extend/frontend-http.cfg": "    use_backend nope if TRUE\n", "haproxy/40-frontend-https.cfg": ""}, ` "": haproxy: Proxy 'http': unable to find required use_backend: 'nope'`},
		"users elsewhere": {map[string]string{"extend/backend.cfg": "#hapsnap users x/y\n"}, `mine/extend/backend.cfg:1 Ingress shop/web "#hapsnap users x/y": #hapsnap: users belong in a userlist section`},
		"value where a number belongs": {
			map[string]string{"extend/backend.cfg": "    timeout server {{secret \"shop/keys\" \"t\"}}\n"},
			`mine/extend/backend.cfg:1 Ingress shop/web "timeout server hapsnap:secret/shop/keys/t": haproxy: unexpected character 't' in 'timeout server'`,
		},
		"unknown word": {map[string]string{"extend/backend.cfg": "#hapsnap serves x/y\n"}, `mine/extend/backend.cfg:1 Ingress shop/web "#hapsnap serves x/y": #hapsnap: unknown directive "serves x/y"`},
		"no listener": {
			map[string]string{"haproxy/30-frontend-http.cfg": "", "haproxy/40-frontend-https.cfg": "", "haproxy/60-status.cfg": ""},
			` "": haproxy would not start: nothing listens`,
		},
		"bad file name": {map[string]string{"maps/a.b.map": "x y\n"}, ` "": "maps/a.b.map": not a file name that the Dataplane API keeps: it must be maps/NAME.EXTENSION of letters, digits, _ and -`},
		"node":          {map[string]string{"extend/global.cfg": "    node mine\n"}, `mine/extend/global.cfg:1 "node mine": node is set when a snapshot is bound, and must not be in it`},
		"condition":     {map[string]string{"haproxy/15-x.cfg": ".if feature(OPENSSL)\n.endif\n"}, `mine/haproxy/15-x.cfg:1 ".if feature(OPENSSL)": .if is not possible: the Dataplane API sorts lines, and would break the block`},
		"long line":     {map[string]string{"haproxy/15-x.cfg": "# {{repeat 65600 \"x\"}}\n"}, "mine/haproxy/15-x.cfg:1 … is 65602 bytes long: the Dataplane API drops a line of more than 65535, and all after it"},
		"many words":    {map[string]string{"extend/frontend-http.cfg": "    acl x path{{range until 63}} /{{.}}{{end}}\n"}, `mine/extend/frontend-http.cfg:1 … has 66 words: HAProxy reads 64 of a line`},
		"same section":  {map[string]string{"haproxy/55-x.cfg": "backend shop_web_http\n"}, `mine/haproxy/55-x.cfg:1 "backend shop_web_http": the section "backend shop_web_http" already exists, in line …: the Dataplane API would keep only one of them`},
		"private key":   {map[string]string{"files/x.txt": "\n-----BEGIN EC PRIVATE KEY-----\n"}, `mine/files/x.txt:2 "": files/x.txt would hold a private key, and snapshots are kept where many can read them`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, err := c.Check(t.Context(), validate.Input{Artifact: artifact(t, test.overlay, model())})
			if err != nil || len(v.Faults) == 0 {
				t.Fatalf("%v, %+v: want faults", err, v)
			}
			if got := describe(v.Faults[0]); !matches(got, test.want) {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// matches compares texts. "…" in want matches anything.
func matches(got, want string) bool {
	before, after, elided := strings.Cut(want, "…")
	if !elided {
		return got == want
	}
	return len(got) >= len(before)+len(after) && strings.HasPrefix(got, before) && strings.HasSuffix(got, after)
}

func describe(f render.Fault) string {
	place := diag.Position{File: f.Origin.Template, Line: f.Origin.Line}.String()
	for _, o := range f.Origin.Objects {
		place += " " + o.Object.String()
	}
	return place + " \"" + f.Text + "\": " + f.Message
}

func TestHAProxyWarningsDoNotRefuse(t *testing.T) {
	t.Parallel()
	c := find(t)
	a := artifact(t, map[string]string{"haproxy/55-x.cfg": "\nfrontend idle from main\n"}, model())
	v, err := c.Check(t.Context(), validate.Input{Artifact: a})
	if err != nil || len(v.Faults) > 0 {
		t.Fatalf("%v, %+v", err, v)
	}
	if len(v.Warnings) != 1 || !strings.Contains(v.Warnings[0].Message, "frontend 'idle' has no 'bind' directive") {
		t.Errorf("warnings %+v", v.Warnings)
	}
}

func TestKeysAreFoundInBase64(t *testing.T) {
	t.Parallel()
	c := find(t)
	key := "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n"
	for _, before := range []string{"", "x", "xy", "xyz"} {
		text := base64.StdEncoding.EncodeToString([]byte(before + key))
		v, err := c.Check(t.Context(), validate.Input{Artifact: artifact(t, map[string]string{"files/x.txt": "a: " + text}, model())})
		if err != nil || len(v.Faults) != 1 || !strings.Contains(v.Faults[0].Message, "private key") {
			t.Errorf("%q: %v, %+v", before, err, v)
		}
	}
	certificate := base64.StdEncoding.EncodeToString([]byte("-----BEGIN CERTIFICATE-----\nMIIE\n"))
	v, err := c.Check(t.Context(), validate.Input{Artifact: artifact(t, map[string]string{"files/x.txt": certificate}, model())})
	if err != nil || len(v.Faults) != 0 {
		t.Errorf("a certificate: %v, %+v", err, v)
	}
}

func TestStagingIsRemoved(t *testing.T) {
	c := find(t)
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	for _, overlay := range []map[string]string{nil, {"extend/global.cfg": "    banana\n"}} {
		if _, err := c.Check(t.Context(), validate.Input{Artifact: artifact(t, overlay, model())}); err != nil {
			t.Fatal(err)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestCancelledCheckIsNoVerdict(t *testing.T) {
	t.Parallel()
	c := find(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if v, err := c.Check(ctx, validate.Input{Artifact: artifact(t, nil, model())}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %+v", err, v)
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ script, want string }{
		"old":         {"#!/bin/sh\necho 'HA-Proxy version 2.2.9-2+deb11u6 2023/12/12 - https://haproxy.org/'\n", "HAProxy 2.2.9-2+deb11u6 is too old: 2.6 is the oldest that is supported"},
		"very old":    {"#!/bin/sh\necho 'HA-Proxy version 1.8.32 2023/12/12'\n", "HAProxy 1.8.32 is too old"},
		"another":     {"#!/bin/sh\necho 'nginx version: 1.2'\n", `is not HAProxy: it calls itself "nginx version: 1.2"`},
		"broken":      {"#!/bin/sh\nexit 7\n", "exit status 7"},
		"new enough":  {"#!/bin/sh\necho 'HAProxy version 10.0.1 2033/12/12'\n", ""},
		"not present": {"", "no such file or directory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "haproxy")
			if test.script != "" {
				scripttest.Write(t, path, test.script)
			}
			_, err := validate.Find(t.Context(), path)
			if test.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.want) || process.Hint(err) == "" {
				t.Errorf("got %v, hint %q, want %q", err, process.Hint(err), test.want)
			}
		})
	}
}

func TestFindSaysThatHAProxyIsNotOnPath(t *testing.T) {
	t.Parallel()
	_, err := validate.Find(t.Context(), "no-such-haproxy")
	if diff := gocmp.Diff("there is no haproxy to check configurations with: no-such-haproxy is not on PATH", err.Error()); diff != "" || !errors.Is(err, validate.ErrNoHAProxy) {
		t.Error(diff)
	}
}

func networks(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("10.0.%d.0/24", i)
	}
	return out
}
