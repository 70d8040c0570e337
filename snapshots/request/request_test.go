package request

import (
	"errors"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
)

const configuration = `defaults main
    mode http

frontend http from main
    bind 127.0.0.1:80,[::1]:80
    acl inside src 10.0.0.0/8
    acl inside src 192.168.1.1
    http-request del-header ^x-secret -m reg
    http-request set-header X-Two one,two
    http-request set-var(txn.b) str(first) if { path_beg /first } or { method PUT } !inside
    http-request set-var(txn.b) str(second) if { req.hdr(x-two,1) -m str one } { url_param(q) -m found } !{ var(txn.b) -m found }
    http-request set-var(txn.b) str(third),concat(_,txn.none,x),regsub(x,y,g) if { req.fhdr_cnt(x-secret) gt 0 }
    http-request return status 418 if { rand(100) lt 5 }
    http-request redirect location https://%[req.fhdr(host),field(1,:)]/new%[pathq] code 308 unless { path -m reg -i ^/(FIRST|x) } or inside { query -m found }
    use_backend %[var(txn.b)] if { var(txn.b) -m found }

frontend tls from main
    mode tcp
    bind 127.0.0.1:443
    tcp-request inspect-delay 5s
    tcp-request content set-var(sess.sni) req.ssl_sni,lower
    tcp-request content set-var(sess.b) var(sess.sni),map_str(maps/sni.map)
    use_backend %[var(sess.b)] if { var(sess.b) -m found }
    default_backend inner

backend inner
    mode tcp
    server here abns@inner send-proxy-v2

backend passed
    mode tcp
    server there 192.0.2.9:443

frontend https from main
    bind abns@inner accept-proxy ssl crt-list files/list
    default_backend second

backend first from main
    http-request auth realm x unless { http_auth(users) }
    http-request deny deny_status 429 if { sc2_http_req_rate gt 5 }
    balance leastconn
    server a 192.0.2.1:80

backend second from main
    http-request deny if { src 203.0.113.0/24 }
    server a 192.0.2.1:80
    server b 192.0.2.1:80 disabled
`

var small = []snapshots.File{
	{Path: "files/list", Content: []byte("certs/a.pem !*\ncerts/b.pem [verify none] *.example.com !not.example.com\ncerts/c.pem shop.example.com\n")},
	{Path: "haproxy.cfg", Content: []byte(configuration)},
	{Path: "maps/sni.map", Content: []byte("# SNI\npassed.example.com passed\n")},
}

func TestLed(t *testing.T) {
	t.Parallel()
	servers := Servers(small[1].Content)
	for name, c := range map[string]struct {
		request                        Request
		backend, location, certificate string
		status, unsure                 int
		passed                         bool
	}{
		"a path":                       {request: Request{Port: 80, Target: "/first"}, backend: "first", unsure: 3},
		"either of two":                {request: Request{Port: 80, Method: "PUT", Target: "/x"}, backend: "first", unsure: 3},
		"and not the acl":              {request: Request{Port: 80, Method: "PUT", Target: "/x", Client: netip.MustParseAddr("192.168.1.1")}, status: 503, unsure: 1},
		"an element and a parameter":   {request: Request{Port: 80, Target: "/x?q=1"}, backend: "second", unsure: 1},
		"a redirect":                   {request: Request{Port: 80, Target: "/y?z=1"}, status: 308, location: "https://shop.example.com/new/y?z=1", unsure: 1},
		"inside with a query":          {request: Request{Port: 80, Target: "/y?q", Client: netip.MustParseAddr("10.9.9.9")}, status: 503, unsure: 1},
		"a header that was removed":    {request: Request{Port: 80, Target: "/x", Headers: map[string][]string{"X-Secret-Key": {"1"}, "X-Secret": {"1"}}}, status: 503, unsure: 1},
		"denied by the backend":        {request: Request{Port: 80, Target: "/x?q=1", Client: netip.MustParseAddr("203.0.113.5")}, backend: "second", status: 403, unsure: 1},
		"TLS for an exact name":        {request: Request{Port: 443, TLS: true, Host: "shop.example.com:443", Target: "/"}, backend: "second", certificate: "certs/c.pem"},
		"TLS for a wildcard":           {request: Request{Port: 443, TLS: true, Host: "A.Example.com", Target: "/"}, backend: "second", certificate: "certs/b.pem"},
		"TLS but for an exception":     {request: Request{Port: 443, TLS: true, Host: "not.example.com", Target: "/"}, backend: "second", certificate: "certs/a.pem"},
		"TLS without a name":           {request: Request{Port: 443, TLS: true, Host: "192.0.2.1", Target: "/"}, backend: "second", certificate: "certs/a.pem"},
		"a connection that passes":     {request: Request{Port: 443, TLS: true, Host: "passed.example.com", Target: "/"}, backend: "passed", passed: true},
		"a wildcard of one label only": {request: Request{Port: 443, TLS: true, Host: "b.a.example.com", Target: "/"}, backend: "second", certificate: "certs/a.pem"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.request.Host == "" {
				c.request.Host = "shop.example.com:80"
			}
			got, err := Led(small, c.request, func(backend string) int { return servers[backend] })
			if err != nil {
				t.Fatal(err)
			}
			certificate := ""
			if got.Certificate != nil {
				certificate = got.Certificate.File
			}
			if got.Backend != c.backend || got.Status != c.status || got.Location != c.location || certificate != c.certificate ||
				got.PassedOn != c.passed || len(got.Unsure) != c.unsure {
				t.Errorf("got %+v", got)
			}
		})
	}
	if _, err := Led(small, Request{Port: 81}, nil); !errors.Is(err, ErrNoListener) {
		t.Errorf("a port without a listener: %v", err)
	}
}

// If HAProxy chooses at random, the answer names the possible backends, and invents no answer of HAProxy's own.
func TestLotsAreDrawn(t *testing.T) {
	t.Parallel()
	const config = `frontend http
    mode http
    bind *:80
    http-request set-var(txn.b) str(%1)
    http-request set-var(txn.r) rand,mod(4)
    http-request set-var(txn.b) str(%1:1),map_str(maps/choices.map) if { var(txn.r) lt 1 }
    http-request set-var(txn.b) str(%1:2),map_str(maps/choices.map) if { var(txn.b) -m beg % }
    http-request return status 404 if !{ var(txn.b) -m found }
    use_backend %[var(txn.b)] if { var(txn.b) -m found }
backend a
backend b
`
	files := []snapshots.File{{Path: "haproxy.cfg", Content: []byte(config)}, {Path: "maps/choices.map", Content: []byte("%1:1 a\n%1:2 b\n")}}
	got, err := Led(files, Request{Port: 80, Host: "a", Target: "/"}, nil)
	if err != nil || strings.Join(got.Among, " ") != "a b" || got.Status != 0 || got.Backend != "" || got.Who(nil) != "one of the backends a, b" {
		t.Errorf("%+v, %v", got, err)
	}
}

// One reader handles any number of requests at the same time, each as if it were the only one.
func TestReaderOfManyRequests(t *testing.T) {
	t.Parallel()
	from := Read(small)
	var all sync.WaitGroup
	for n := range 50 {
		target := []string{"/first", "/x?q=1", "/y?z=1"}[n%3]
		all.Go(func() {
			got, err := from.Led(Request{Port: 80, Host: "shop.example.com", Target: target}, nil)
			want, _ := Led(small, Request{Port: 80, Host: "shop.example.com", Target: target}, nil)
			if err != nil || got.Backend != want.Backend || got.Location != want.Location {
				t.Errorf("%s: %+v, %v", target, got, err)
			}
		})
	}
	all.Wait()
}

// A URL without a port means the first listener for its scheme, also if connections reach it only by an entry
// of a map. If there is none, the error lists the existing ports.
func TestPort(t *testing.T) {
	t.Parallel()
	const byMap = `frontend gateway from main
    mode tcp
    bind *:5432
    default_backend database

frontend tls from main
    mode tcp
    bind *:443
    tcp-request content set-var(sess.b) var(sess.sni),map_str(maps/sni.map)
    use_backend %[var(sess.b)] if { var(sess.b) -m found }

backend receiver
    mode tcp
    server requests abns@inner/443 send-proxy-v2

backend database
    mode tcp

frontend https from main
    bind abns@inner/443 accept-proxy`
	config := func(text, sni string) []snapshots.File {
		return []snapshots.File{{Path: "haproxy.cfg", Content: []byte(text)}, {Path: "maps/sni.map", Content: []byte(sni)}}
	}
	for name, c := range map[string]struct {
		files  []snapshots.File
		secure bool
		want   int
		hint   string
	}{
		"http":                         {files: small, want: 80},
		"by a default backend":         {files: small, secure: true, want: 443},
		"by an entry of a map":         {files: config(strings.ReplaceAll(byMap, ":443", ":8443")+" ssl\n", "passed.example database\nshop.example receiver\n"), secure: true, want: 8443},
		"all of 443 is passed on":      {files: config(byMap+"\n", "passed.example database\n"), secure: true, want: 443},
		"none, and no map leads to it": {files: config(strings.ReplaceAll(byMap, ":443", ":8443")+" ssl\n", "passed.example database\n"), secure: true, hint: "there are 5432, 8443"},
		"none for http":                {files: config(byMap+" ssl\n", ""), hint: "there are 443, 5432"},
		"none at all":                  {files: config("", "")},
	} {
		got, err := Port(c.files, c.secure)
		if got != c.want || (err == nil) != (c.want != 0) {
			t.Errorf("%s: %d, %v", name, got, err)
		}
		if hint := process.Hint(err); !strings.HasSuffix(hint, c.hint) {
			t.Errorf("%s: hint %q", name, hint)
		}
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	r, err := Parse("post", "https://Shop.Example.com:8443/a%2Fb//c?d=1#e", []string{"X-A=1", "x-b=2=3", "Host=other"}, "2001:db8::1")
	if err != nil || r.String() != "POST https://other/a%2Fb//c?d=1" || r.Port != 8443 || r.Headers["x-b"][0] != "2=3" || !r.Client.Is6() {
		t.Errorf("got %+v, %v", r, err)
	}
	if r, err := Parse("", "http://a?b", nil, ""); err != nil || r.Target != "/?b" {
		t.Errorf("got %+v, %v", r, err)
	}
	for _, c := range [][4]string{
		{"", "a/b", "", ""}, {"", "ftp://a/", "", ""}, {"", "http:///x", "", ""}, {"GE T", "http://a/", "", ""}, {"", "http://a/b c", "", ""},
		{"", "http://a:70000/", "", ""}, {"", "http://a/", "X", ""}, {"", "http://a/", "X: 1=2", ""}, {"", "http://a/", "X=1\r\nY: 2", ""}, {"", "http://a/", "", "here"},
	} {
		var headers []string
		if c[2] != "" {
			headers = []string{c[2]}
		}
		if r, err := Parse(c[0], c[1], headers, c[3]); err == nil {
			t.Errorf("Parse(%q) = %+v; want an error", c, r)
		}
	}
}

// No configuration makes the reader hang or panic: neither a circle of frontends nor text that no HAProxy
// accepts.
func TestOddConfigurations(t *testing.T) {
	t.Parallel()
	ask := func(config string) (Answer, error) {
		return Led([]snapshots.File{{Path: snapshots.ConfigFile, Content: []byte(config)}}, Request{Port: 80, Host: "a.example.com", Target: "/"}, nil)
	}
	if a, err := ask("frontend a\n    mode tcp\n    bind *:80\n    default_backend b\nbackend b\n    server x 127.0.0.1:81\nfrontend c\n    mode tcp\n    bind 127.0.0.1:81\n    default_backend d\nbackend d\n    server x *:80\n"); !errors.Is(err, ErrCircle) {
		t.Errorf("a circle: %+v, %v", a, err)
	}
	for _, rule := range []string{"if { }", "if ! { }", "if { path,bytes(-1,2) -m found }", "if { path,bytes(0,-1) -m found }", "if { path,bytes(9223372036854775807,9223372036854775807) -m str x }", "if { path,field(0,/) -m found }"} {
		a, err := ask("frontend a\n    mode http\n    bind *:80\n    http-request set-var(txn.x) str(y) " + rule + "\n    http-request deny " + rule + "\n    default_backend b\nbackend b\n    server x 192.0.2.1:80\n")
		if err != nil || a.Backend == "" && a.Rule == nil {
			t.Errorf("%s: %+v, %v", rule, a, err)
		}
	}
}
