package routingtest

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/config"
)

// pagesYAML returns a ConfigMap of error pages, whose texts are YAML values.
func pagesYAML(pages map[string]string) string {
	var b strings.Builder
	b.WriteString("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: edge, name: pages}\ndata:\n")
	for key, text := range pages {
		b.WriteString("  \"" + key + "\": " + text + "\n")
	}
	return b.String()
}

func withPages(c *config.Config) { c.ErrorPages = "edge/pages" }

// Each error of HAProxy itself is answered with the page of the ConfigMap, and no answer of a server is
// replaced.
func TestErrorPages(t *testing.T) {
	t.Parallel()
	teapot := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }))
	t.Cleanup(teapot.Close)
	full := strings.Repeat("x", 12<<10)
	e := startWith(t, pagesYAML(map[string]string{
		"404.html": `"<p>100% %[src] ${HOME} \"ü\" #1 {{.}}</p>\n"`, "503": `'{"error": "unavailable"}'`, "503.page": "x", "403": "<p>no</p>",
		"400.txt": `"what?"`, "411.xml": "<length/>", "413.json": "'{}'", "429": full,
	})+serviceYAML("shop", "a", mirror(t, "a", nil))+serviceYAML("shop", "teapot", teapot.Listener.Addr().(*net.TCPAddr).Port)+all([]ingress{
		optioned("denied", "deny-list", "127.0.0.0/8"),
		optioned("limited", "rate-limit", "1", "rate-limit-period", "1h", "hsts", "31536000"),
		optioned("refused", "rate-limit", "1", "rate-limit-period", "1h", "rate-limit-status", "403"),
		optioned("body", "max-body-size", "1"),
		{name: "any", annotations: annotated("ssl-redirect", "true"), rules: []string{"- P /any a"}},
		{name: "teapot", rules: []string{"teapot.example P / teapot", "gone.example P / gone"}},
	}), withPages)
	for _, host := range []string{"limited.example", "refused.example"} {
		if got := e.get(t, host, "/"); got.StatusCode != 200 {
			t.Errorf("the first request to %s: %d", host, got.StatusCode)
		}
	}
	const html = "text/html; charset=utf-8"
	for request, want := range map[string]struct {
		status            int
		contentType, body string
	}{
		"GET / HTTP/1.1\nHost: a.gone.example":                                                    {404, html, `<p>100% %[src] ${HOME} "ü" #1 {{.}}</p>` + "\n"},
		"GET / HTTP/1.1\nHost: gone.example":                                                      {503, "application/json", `{"error": "unavailable"}`},
		"GET / HTTP/1.1\nHost: denied.example":                                                    {403, html, "<p>no</p>"},
		"GET / HTTP/1.1\nHost: refused.example":                                                   {403, html, "<p>no</p>"},
		"GET / HTTP/1.1\nHost: limited.example":                                                   {429, html, full},
		"GET /any HTTP/1.0\nX: without a host":                                                    {400, "text/plain; charset=utf-8", "what?"},
		"POST / HTTP/1.1\nHost: body.example\nTransfer-Encoding: chunked\n\n2\r\nab\r\n0\r\n\r\n": {413, "application/json", "{}"},
		"POST / HTTP/1.1\nHost: body.example\nContent-Length: 2\n\nxx":                            {413, "application/json", "{}"},
	} {
		got := e.send(t, false, request)
		if got.StatusCode != want.status || got.Header.Get("Content-Type") != want.contentType || got.body != want.body {
			t.Errorf("%q: %d %s %.80q", request, got.StatusCode, got.Header.Get("Content-Type"), got.body)
		}
		if got.Header.Get("Cache-Control") != "no-cache" {
			t.Errorf("%q: a cache may keep the page", request)
		}
	}
	if got := e.get(t, "limited.example", "/"); got.Header.Get("Retry-After") != "3600" {
		t.Errorf("Retry-After: %q", got.Header.Get("Retry-After"))
	}
	if got := e.get(t, "teapot.example", "/"); got.StatusCode != 404 || got.body != "" {
		t.Errorf("the server's own answer: %d %q", got.StatusCode, got.body)
	}
	if got := e.getTLS(t, "unknown.example", "/"); !strings.Contains(got.body, "100%") {
		t.Errorf("over TLS: %q", got.body)
	}
}

// A wrong page affects only itself. Without a page, HAProxy uses its own.
func TestErrorPagesThatAreWrong(t *testing.T) {
	t.Parallel()
	rules := all([]ingress{{name: "a", rules: []string{"gone.example P / gone"}}})
	for name, yaml := range map[string]string{
		"some wrong": pagesYAML(map[string]string{"404": "mine", "503": strings.Repeat("x", 12<<10+1)}),
		"empty":      pagesYAML(map[string]string{"404": "mine", "503": `" "`}),
		"no page":    pagesYAML(map[string]string{"404": "mine", "503.http": "HTTP/1.0 200 OK"}),
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			e := startWith(t, yaml+rules, withPages)
			if got := e.get(t, "none.example", "/"); got.StatusCode != 404 || got.body != "mine" {
				t.Errorf("404: %d %q", got.StatusCode, got.body)
			}
			if got := e.get(t, "gone.example", "/"); got.StatusCode != 503 || !strings.Contains(got.body, "No server is available") {
				t.Errorf("503: %d %q", got.StatusCode, got.body)
			}
		})
	}
}
