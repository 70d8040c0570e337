package routingtest

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/internal/urlpath"
)

// pathTable returns the cells of the table below a heading of the document, without their quotes.
func pathTable(t *testing.T, heading string) [][]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/reference/paths.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("docs/reference/paths.md has no section %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var rows [][]string
	for line := range strings.Lines(section) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "| ") {
			cells := strings.Split(strings.Trim(line, "| "), " | ")
			for i := range cells {
				cells[i] = strings.Trim(cells[i], "`")
			}
			rows = append(rows, cells)
		}
	}
	if len(rows) < 5 {
		t.Fatalf("%q has a table of %d rows", heading, len(rows))
	}
	return rows[1:]
}

// plainServer answers every request with its name and with what was asked for, whatever that
// is: servers of libraries refuse paths that they cannot read.
func plainServer(t *testing.T, name string) int {
	t.Helper()
	return rawServer(t, func(c net.Conn) { answerPlainly(c, name) })
}

func answerPlainly(c net.Conn, name string) {
	defer c.Close()
	r := bufio.NewReader(c)
	target := ""
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		if target == "" {
			target = strings.Fields(line)[1]
		}
		if strings.TrimSpace(line) == "" {
			break
		}
	}
	fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nX-Echo: %s %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", name, target)
}

// pathServices are Services for the rules of the document.
func pathServices(t *testing.T) string {
	t.Helper()
	return serviceYAML("shop", "root", plainServer(t, "/")) + serviceYAML("shop", "admin", plainServer(t, "/admin")) + serviceYAML("shop", "cafe", plainServer(t, "/café"))
}

// pathHost is a host with the rules of the document, whose Ingress for /admin has options.
func pathHost(host string, options ...string) string {
	return all([]ingress{
		{name: host + "-open", rules: []string{host + ".example P / root", host + ".example P /café cafe"}, age: 1},
		{name: host + "-admin", rules: []string{host + ".example P /admin admin"}, annotations: annotated(options...), age: 2},
	})
}

// askPath asks for a path over HTTP/1.1 if that can carry it, and over HTTP/2.
func askPath(t *testing.T, e edge, host, path, want string) {
	t.Helper()
	if strings.HasPrefix(want, "/") {
		want += " " + path // as it came
	}
	over := map[string]func() string{
		"HTTP/1.1":      func() string { return e.http11(t, http.MethodGet, host, path) },
		"absolute form": func() string { return e.http11(t, http.MethodGet, host, "http://"+host+path) },
		"HTTP/2":        func() string { return e.http2(t, http.MethodGet, host, path) },
	}
	if strings.ContainsFunc(path, func(r rune) bool { return r > 0x7f }) {
		delete(over, "HTTP/1.1")
		delete(over, "absolute form")
	}
	for version, ask := range over {
		want := want
		if version == "absolute form" && strings.HasSuffix(want, " "+path) && !strings.HasPrefix(want, "4") {
			want = strings.TrimSuffix(want, path) + "http://" + host + path
		}
		if got := ask(); got != want {
			t.Errorf("%s %s%s: %s, want %s", version, host, path, got, want)
		}
	}
}

// The table of the document is what HAProxy does.
func TestPathsOfTheDocument(t *testing.T) {
	t.Parallel()
	e := start(t, pathServices(t)+pathHost("free")+pathHost("guarded", "allow-list", "192.0.2.0/24"))
	clean(t, e)
	for _, row := range pathTable(t, "The forms") {
		path, compared, free, guarded := row[0], row[1], row[2], row[3]
		without, _, _ := strings.Cut(path, "?")
		if got := urlpath.Normal(without, false); got != compared {
			t.Errorf("%s is compared as %s, want %s", path, got, compared)
		}
		askPath(t, e, "free.example", path, free)
		askPath(t, e, "guarded.example", path, guarded)
	}
}

// It is what HAProxy does, too, where the path that is protected is an expression, with and
// without a canary.
func TestPathsOfTheDocumentWithExpressions(t *testing.T) {
	t.Parallel()
	host := func(name string, canary bool, options ...string) string {
		ingresses := []ingress{
			{name: name + "-open", rules: []string{name + ".example P / root", name + ".example P /café cafe"}, age: 1},
			{name: name + "-admin", rules: []string{name + ".example I /admin(/.*)?$ admin"}, annotations: annotated(append([]string{"path-type-default", "Regex"}, options...)...), age: 2},
		}
		if canary {
			ingresses = append(ingresses, ingress{
				name: name + "-canary", rules: []string{name + ".example I /admin(/.*)?$ root"}, annotations: annotated("path-type-default", "Regex", "canary", "true", "canary-weight", "100"), age: 3,
			})
		}
		return all(ingresses)
	}
	e := start(t, pathServices(t)+host("free", false)+host("guarded", false, "allow-list", "192.0.2.0/24")+host("shared", true, "allow-list", "192.0.2.0/24"))
	clean(t, e)
	for _, row := range pathTable(t, "The forms") {
		path, free, guarded := row[0], row[2], row[3]
		if strings.Contains(row[1], "ADMIN") || row[1] == "/Admin" {
			continue // expressions are without regard to case
		}
		askPath(t, e, "free.example", path, free)
		askPath(t, e, "guarded.example", path, guarded)
		askPath(t, e, "shared.example", path, guarded)
	}
}

func TestPathParametersOfTheDocument(t *testing.T) {
	t.Parallel()
	hosts := []string{"match", "ignore", "reject"}
	yaml := pathServices(t)
	for _, host := range hosts {
		yaml += strings.Replace(pathHost(host, "allow-list", "192.0.2.0/24", "path-parameters", host),
			"  creationTimestamp: \"2026-01-01T00:00:01Z\"\n", "  creationTimestamp: \"2026-01-01T00:00:01Z\"\n  annotations:\n    "+annotated("path-parameters", host)+"\n", 1)
	}
	e := start(t, yaml)
	clean(t, e)
	for _, row := range pathTable(t, "Path parameters") {
		for i, host := range hosts {
			askPath(t, e, host+".example", row[0], row[i+1])
		}
	}
	byConfig := startWith(t, pathServices(t)+pathHost("ignore", "allow-list", "192.0.2.0/24"), func(c *config.Config) { c.Paths.Parameters = config.IgnoreParameters })
	for _, row := range pathTable(t, "Path parameters") {
		askPath(t, byConfig, "ignore.example", row[0], row[2])
	}
}

// HAProxy and the compiler bring paths into one form, whatever is in them.
func TestHAProxyNormalizesLikeTheCompiler(t *testing.T) {
	t.Parallel()
	e := start(t, pathServices(t)+all([]ingress{{rules: []string{"h.example P / root"}, annotations: annotated("rewrite-path", "^(.*) /=\\1")}}))
	c, err := net.Dial("tcp", e.http)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(deadline)); err != nil {
		t.Fatal(err)
	}
	answers, r := bufio.NewReader(c), rand.New(rand.NewPCG(3, 4))
	paths := []string{"/" + strings.Repeat("%c3%a9/../", 700), "/" + strings.Repeat("/.", 3500), "/" + strings.Repeat("a/", 2500) + strings.Repeat("../", 1000)}
	for range 1500 {
		paths = append(paths, strangePath(r))
	}
	for _, path := range paths {
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: h.example\r\n\r\n", path)
		response, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatalf("%q: %v", path, err)
		}
		response.Body.Close()
		if got, want := answer(response), "/ /="+urlpath.Normal(path, false); got != want {
			t.Fatalf("%q: %s %s, want %s", path, response.Status, got, want)
		}
	}
}

// What an Ingress says of its paths holds for its hosts, and what protects one namespace's
// paths does not keep another one from serving what it likes on a host of its own.
func TestPathSettings(t *testing.T) {
	t.Parallel()
	protecting := func(more ...string) string { return annotated(append(more, "allow-list", "192.0.2.0/24")...) }
	e := start(t, pathServices(t)+serviceYAML("other", "root", plainServer(t, "other"))+all([]ingress{
		{name: "sent", rules: []string{"sent.example P / root"}, age: 1, annotations: annotated("normalize-paths", "false")},
		{name: "sent-admin", rules: []string{"sent.example I /a//b admin"}, age: 2, annotations: protecting()},
		{name: "pass", rules: []string{"pass.example P / root"}, age: 1},
		{name: "pass-admin", rules: []string{"pass.example P /admin admin"}, age: 2, annotations: protecting("unsafe-paths", "pass")},
		{name: "owner", rules: []string{"shared.example P / root"}, age: 1},
		{name: "guest", namespace: "other", rules: []string{"shared.example P /open root"}, age: 2},
		{name: "guest-admin", namespace: "other", rules: []string{"shared.example P /admin root"}, age: 3, annotations: protecting()},
		{name: "limited", rules: []string{"limited.example P / root"}, annotations: annotated("max-body-size", "1m")},
		{name: "whole", rules: []string{"whole.example P / root"}, annotations: annotated("allow-list", "127.0.0.0/8, ::1")},
		{name: "alike", rules: []string{"alike.example P / root", "alike.example P /admin admin"}, annotations: annotated("allow-list", "127.0.0.0/8, ::1")},
		{name: "unlike", rules: []string{"unlike.example P / root"}, age: 1, annotations: annotated("allow-list", "127.0.0.0/8, ::1")},
		{name: "unlike-admin", rules: []string{"unlike.example P /admin admin"}, age: 2, annotations: annotated("allow-list", "127.0.0.1, ::1")},
		{name: "counted", rules: []string{"counted.example P / root", "counted.example P /admin admin"}, annotations: annotated("rate-limit", "1000")},
		{name: "closed", rules: []string{"closed.example P / root"}, age: 1},
		{name: "closed-admin", rules: []string{"closed.example P /admin admin"}, age: 2, annotations: annotated("allow-list", "nonsense")},
		{name: "hostless", rules: []string{"- P /free root", "- P /admin admin"}, annotations: protecting()},
		{name: "wild", rules: []string{"*.wild.example P / root"}, age: 1},
		{name: "wild-admin", rules: []string{"*.wild.example P /admin admin"}, age: 2, annotations: protecting()},
	}))
	for _, s := range []step{
		{"sent.example", "/a//b", "403"}, {"sent.example", "/%61//b", "/"},
		{"pass.example", "/admin%2f", "/"}, {"pass.example", "/%61dmin", "403"},
		{"shared.example", "/x%2f", "/"}, {"shared.example", "/open/..%2fadmin", "400"}, {"shared.example", "//admin", "403"},
		{"limited.example", "/x%2f", "/"},
		{"whole.example", "/x%2f", "400"}, {"whole.example", "//x", "/"},
		{"alike.example", "//admin/x", "/admin"}, {"alike.example", "//x/admin", "/"}, {"alike.example", "/admin/../x", "/"}, {"alike.example", "/admin//../x", "400"},
		{"unlike.example", "//admin/x", "400"}, {"unlike.example", "//x/admin", "400"}, {"unlike.example", "//x/y", "/"}, {"unlike.example", "/admin/../x", "400"},
		{"counted.example", "//x/admin", "400"},
		{"closed.example", "//admin", "503"}, {"closed.example", "/%2fadmin", "400"},
		{"unknown.invalid", "/x/../admin", "403"}, {"unknown.invalid", "/free/..%2fadmin", "400"}, {"unknown.invalid", "/x%2f", "400"},
		{"a.wild.example", "//admin", "403"}, {"b.wild.example", "/admin%2f", "400"},
	} {
		askPath(t, e, s.host, s.target, s.want)
	}
}

// Canaries, redirects and rewrites take paths as they are compared.
func TestNormalPathsMeetOptions(t *testing.T) {
	t.Parallel()
	e := start(t, pathServices(t)+all([]ingress{
		{name: "strip", rules: []string{"strip.example P /api root"}, annotations: annotated("rewrite-path", "/v1")},
		{name: "root", rules: []string{"root.example P / root"}, annotations: annotated("app-root", "/start")},
		{name: "main", rules: []string{"canary.example P /a root"}},
		{name: "canary", rules: []string{"canary.example P /%61 admin"}, annotations: annotated("canary", "true", "canary-by-header", "X-Canary")},
	}))
	clean(t, e)
	for _, s := range []step{
		{"strip.example", "//api/x", "/ /v1/x"}, {"strip.example", "/x/../api/%7ea?b=//%2e", "/ /v1/~a?b=//%2e"}, {"strip.example", "/api/a%2fb", "/ /v1/a%2Fb"},
		{"strip.example", "/api/x", "/ /v1/x"}, {"root.example", "//", "302"}, {"root.example", "/x/..", "302"}, {"root.example", "//x", "/ //x"},
	} {
		if got := e.http11(t, "GET", s.host, s.target); got != s.want {
			t.Errorf("%s%s: %s, want %s", s.host, s.target, got, s.want)
		}
	}
	if got := e.get(t, "canary.example", "//%61/x", "X-Canary: always").Header.Get("X-Echo"); got != "/admin //%61/x" {
		t.Errorf("a canary: %s", got)
	}
}

// Bringing a path into the form takes time in proportion to its length, so that there is a
// bound; other paths may be as long as a request may be.
func TestLongPaths(t *testing.T) {
	t.Parallel()
	e := start(t, pathServices(t)+pathHost("free")+pathHost("sent")+all([]ingress{
		{name: "sent", rules: []string{"sent.example P /sent root"}, annotations: annotated("normalize-paths", "false")},
	}))
	clean(t, e)
	const most = 8192
	long, longer := "/%2e"+strings.Repeat("a", most-4), "/%2e"+strings.Repeat("a", most-3)
	askPath(t, e, "free.example", long, "/")
	for version, got := range map[string]string{"HTTP/1.1": e.http11(t, "GET", "free.example", longer), "HTTP/2": e.http2(t, "GET", "free.example", longer)} {
		if got != "414" {
			t.Errorf("%s: %.40s, want 414", version, got)
		}
	}
	askPath(t, e, "sent.example", longer, "/")
	askPath(t, e, "free.example", "/"+strings.Repeat("a", 2*most), "/")
}

// Two rules whose paths are one are rules for one path.
func TestRulesOfOneNormalPath(t *testing.T) {
	t.Parallel()
	e := start(t, pathServices(t)+all([]ingress{
		{name: "first", rules: []string{"h.example P /café root"}, age: 1},
		{name: "second", rules: []string{"h.example P /caf%c3%a9/ admin", "h.example I //x/../caf%C3%A9 admin"}, age: 2},
	}))
	lost := 0
	for _, d := range e.result.Diagnostics {
		if d.Object.Name == "second" && strings.Contains(d.Message, "is compared as \"/caf%C3%A9\"") && strings.Contains(d.Message, "Ingress shop/first") {
			lost++
		}
	}
	if lost != 2 {
		t.Errorf("%d rules hear that their path was taken, want 2: %v", lost, e.result.Diagnostics)
	}
	askPath(t, e, "h.example", "/caf%c3%a9", "/")
}

// With everything off, paths are compared as they come, and no script is loaded.
func TestPathsAsSent(t *testing.T) {
	t.Parallel()
	e := startWith(t, pathServices(t)+pathHost("h", "allow-list", "192.0.2.0/24"), func(c *config.Config) {
		c.Paths = config.Paths{Unsafe: config.PassUnsafe, Parameters: config.MatchParameters}
	})
	askPath(t, e, "h.example", "//admin", "/")
	askPath(t, e, "h.example", "/admin%2f", "/")
	for _, f := range e.result.Draft.Files {
		if strings.HasSuffix(f.Path, ".lua") {
			t.Errorf("there is %s", f.Path)
		}
	}
}
