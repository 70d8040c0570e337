package routingtest

import (
	"testing"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
)

// Lines of an Ingress hold for its requests, where they are allowed and HAProxy
// takes them. Else its routes are closed, and nobody else's.
func TestSnippet(t *testing.T) {
	t.Parallel()
	elsewhere := optioned("elsewhere", "snippet", "http-request set-header X-A b")
	elsewhere.namespace, elsewhere.rules = "other", []string{"elsewhere.example P / e"}
	yaml := serviceYAML("shop", "a", mirror(t, "a", nil)) + serviceYAML("other", "e", mirror(t, "e", nil)) + all([]ingress{
		optioned("good", "snippet", "http-request deny deny_status 429 if { path_beg /internal }\nhttp-request set-header X-Note 'a # b'", "rewrite-path", "/y"),
		optioned("refused", "snippet", "http-request teleport"),
		optioned("server", "snippet", "server evil 127.0.0.1:1"),
		optioned("plain", "balance", "leastconn"), elsewhere,
	})
	e := startWith(t, yaml, func(c *config.Config) { c.Snippets.Namespaces = config.Namespaces{"shop"} })
	for _, c := range []struct {
		host, path string
		status     int
		note       string
	}{
		{"good.example", "/internal", 429, ""},
		{"good.example", "/x", 200, "a # b"},
		{"refused.example", "/", 503, ""},
		{"server.example", "/", 503, ""},
		{"elsewhere.example", "/", 503, ""},
		{"plain.example", "/internal", 200, ""},
	} {
		got := e.get(t, c.host, c.path)
		if got.StatusCode != c.status || got.seen.Header.Get("X-Note") != c.note {
			t.Errorf("%s%s: %d, X-Note %q, want %d, %q", c.host, c.path, got.StatusCode, got.seen.Header.Get("X-Note"), c.status, c.note)
		}
	}
	for _, name := range []string{"refused", "server"} {
		reportedOn(t, e, diag.Object{Kind: "Ingress", Namespace: "shop", Name: name})
	}
	reportedOn(t, e, diag.Object{Kind: "Ingress", Namespace: "other", Name: "elsewhere"})
}
