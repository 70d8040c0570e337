package routingtest

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/internal/urlpath"
	"github.com/hapsnap/hapsnap/snapshots"
)

// An Ingress with only a default backend gets every host, path, method and form of request.
func TestRow31OnlyDefaultBackend(t *testing.T) {
	t.Parallel()
	e := start(t, common(t)+ingress{fallback: "a"}.yaml())
	for _, method := range []string{"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "PURGE"} {
		for _, s := range []step{{"any.example", "/", "a"}, {"other", "/x/y?z", "a"}} {
			if got := e.http11(t, method, s.host, s.target); got != s.want {
				t.Errorf("%s %s%s: %s", method, s.host, s.target, got)
			}
			if got := e.http2(t, method, s.host, s.target); got != s.want {
				t.Errorf("HTTP/2 %s %s%s: %s", method, s.host, s.target, got)
			}
		}
	}
	for _, request := range []string{
		"GET / HTTP/1.0\r\n\r\n", "GET /x HTTP/1.0\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		"GET http://x/y HTTP/1.0\r\n\r\n", "GET / HTTP/1.1\r\nHost:\r\nConnection: close\r\n\r\n",
	} {
		if got := raw(t, e.http, request); got != "a" {
			t.Errorf("%q: %s", request, got)
		}
	}
}

// Requests without a host, and in unusual forms, are for rules without a host.
func TestFormsOfRequests(t *testing.T) {
	t.Parallel()
	e := start(t, common(t)+ingress{rules: []string{"foo.bar.com P /foo a", "- P /foo b", "foo.bar.com E / c"}}.yaml())
	for name, c := range map[string]struct{ request, want string }{
		"row_30_http_1_0":               {"GET /foo HTTP/1.0\r\n\r\n", "b"},
		"row_60_absolute_form":          {"GET http://foo.bar.com/foo HTTP/1.1\r\nHost: foo.bar.com\r\nConnection: close\r\n\r\n", "a"},
		"row_60_absolute_form_port":     {"GET http://foo.bar.com:80/foo HTTP/1.1\r\nHost: FOO.bar.com\r\nConnection: close\r\n\r\n", "a"},
		"row_60_absolute_form_no_path":  {"GET http://foo.bar.com HTTP/1.1\r\nHost: foo.bar.com\r\nConnection: close\r\n\r\n", "c"},
		"row_60_absolute_form_no_match": {"GET http://foo.bar.com/x HTTP/1.1\r\nHost: foo.bar.com\r\nConnection: close\r\n\r\n", "404"},
		"two_hosts":                     {"GET /foo HTTP/1.1\r\nHost: foo.bar.com\r\nHost: x.example\r\nConnection: close\r\n\r\n", "400"},
		"row_61_authority_case":         {"GET /foo HTTP/1.1\r\nHost: Foo.BAR.com:443\r\nConnection: close\r\n\r\n", "a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := raw(t, e.http, c.request); got != c.want {
				t.Errorf("%q: %s, want %s", c.request, got, c.want)
			}
		})
	}
}

// The Ingress that loses a conflict is told which one won.
func TestRow35ConflictIsReported(t *testing.T) {
	t.Parallel()
	e := start(t, common(t)+all([]ingress{{name: "x", age: 1, rules: []string{"- P /x a"}}, {name: "y", rules: []string{"- P /x b"}}}))
	for _, d := range e.result.Diagnostics {
		if d.Object.Name == "x" && strings.Contains(d.Message, "Ingress shop/y") && d.Position.Line > 0 {
			return
		}
	}
	t.Errorf("no diagnostic on Ingress shop/x names Ingress shop/y: %v", e.result.Diagnostics)
}

// A Service's port is found by name and by number, whatever the name of the pod's port.
func TestRow39Ports(t *testing.T) {
	t.Parallel()
	manifests := fmt.Sprintf(`---
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: multi}
spec:
  ports:
  - {name: http, port: 80, targetPort: 8080}
  - {name: admin, port: 9000, targetPort: console}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: shop, name: multi-1, labels: {kubernetes.io/service-name: multi}}
addressType: IPv4
ports:
- {name: http, port: %d, protocol: TCP}
- {name: admin, port: %d, protocol: TCP}
endpoints: [{addresses: [127.0.0.1]}]
`, echo(t, "http"), echo(t, "admin"))
	i := ingress{rules: []string{"- P /name multi:http", "- P /number multi:80", "- P /named-target multi:admin", "- P /by-number multi:9000", "- P /none multi:81"}}
	e := start(t, manifests+i.yaml())
	for target, want := range map[string]string{"/name": "http", "/number": "http", "/named-target": "admin", "/by-number": "admin", "/none": "503"} {
		if got := e.http11(t, "GET", "x", target); got != want {
			t.Errorf("%s: %s, want %s", target, got, want)
		}
	}
	t.Run("row_40_two_ports_are_two_backends", func(t *testing.T) {
		cfg := string(e.result.Draft.Number(1, snapshots.ID{}).Config())
		for _, backend := range []string{"shop_multi_http", "shop_multi_admin"} {
			if strings.Count(cfg, "backend "+backend+" from") != 1 {
				t.Errorf("there is not one backend %s:\n%s", backend, cfg)
			}
		}
	})
}

// The rules of RFC 3986 as in docs/reference/paths.md, each as an expression and without regard to speed. They
// check what the compiler and HAProxy do in one pass.
var (
	aloneForm   = regexp.MustCompile(`%($|[^0-9A-Fa-f]|[0-9A-Fa-f]($|[^0-9A-Fa-f]))`)
	codeForm    = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)
	strangeForm = regexp.MustCompile(`[^-A-Za-z0-9._~!$&'()*+,=:@/;%]`)
	standsForm  = regexp.MustCompile(`^[-A-Za-z0-9._~!$&'()*+,=:@]$`)
	slashesForm = regexp.MustCompile(`//+`)
	dotForm     = regexp.MustCompile(`/\.(/|$)`)
	climbForm   = regexp.MustCompile(`^(.*?)(/[^/]*)?/\.\.(/|$)`)
)

// plainest returns the form in which a path is compared.
func plainest(path string) string {
	if path == "" || path == "-" {
		return path
	}
	for aloneForm.MatchString(path) {
		path = aloneForm.ReplaceAllString(path, "\x00$1") // no path contains this byte
	}
	var b strings.Builder
	for _, c := range []byte(path) { // bytes, since an expression would match whole characters
		switch {
		case c == 0:
			b.WriteString("%25")
		case c > 0x7f || strangeForm.MatchString(string(rune(c))):
			fmt.Fprintf(&b, "%%%02x", c)
		default:
			b.WriteByte(c)
		}
	}
	path = codeForm.ReplaceAllStringFunc(b.String(), func(code string) string {
		var c byte
		fmt.Sscanf(code[1:], "%02x", &c) //nolint:errcheck // the expression matches only codes
		if c < 0x80 && standsForm.MatchString(string(rune(c))) {
			return string(rune(c))
		}
		return strings.ToUpper(code)
	})
	path = slashesForm.ReplaceAllString(path, "/")
	for dotForm.MatchString(path) {
		path = dotForm.ReplaceAllString(path, "/")
	}
	for climbForm.MatchString(path) {
		path = climbForm.ReplaceAllString(path, "$1/")
	}
	return path
}

// strangePath returns a random path of parts with and without a special meaning.
func strangePath(r *rand.Rand) string {
	parts := []string{"/", "/", "/", ".", "..", "%", "%2", "%2f", "%2E", "%61", "%C3%A9", "%c3%a9", "%00", "%25", "%zz", "%7e", "%3B", "a", "b", "A", "x", "~", "'", "(", "|", "{", "\\", "<", "[", "@", "%40", "admin"}
	var b strings.Builder
	b.WriteByte('/')
	for range r.IntN(12) {
		b.WriteString(parts[r.IntN(len(parts))])
	}
	return b.String()
}

// The compiler normalizes paths like the simple rules do, and does not change the result again.
func TestNormalPathAgreesWithReference(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 50_000 {
		path := strangePath(r)
		got := urlpath.Normal(path, false)
		if want := plainest(path); got != want {
			t.Fatalf("%q: %q, want %q", path, got, want)
		}
		if again := urlpath.Normal(got, false); again != got {
			t.Fatalf("%q becomes %q, and that %q", path, got, again)
		}
	}
}

func FuzzNormalPath(f *testing.F) {
	for _, path := range []string{"/", "//a/../b/.", "/%61%2f%zz", "/caf\xc3\xa9", "/a;b/..;/c", "/%%%", "/.."} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		if strings.Contains(path, "\x00") || len(path) > 1000 {
			return // paths of requests and objects have no such byte; the simple rules take time that is quadratic in the length
		}
		path = "/" + path
		if got, want := urlpath.Normal(path, false), plainest(path); got != want {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
		without := regexp.MustCompile(`;[^/]*`).ReplaceAllString(path, "")
		if got, want := urlpath.Normal(path, true), plainest(without); got != want {
			t.Errorf("%q without parameters: %q, want %q", path, got, want)
		}
	})
}
