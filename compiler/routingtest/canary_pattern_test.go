package routingtest

import (
	"fmt"
	"strings"
	"testing"
)

// A header goes to the canary by an expression, and nothing else in it decides.
func TestCanaryPattern(t *testing.T) {
	t.Parallel()
	e := start(t, common(t)+all([]ingress{
		{name: "main", rules: []string{"pattern.example P / a", "both.example P / a"}},
		canaryOf("c", []string{"pattern.example P / b"}, "canary-by-header", "X-Canary", "canary-by-header-pattern", "^Do[A-Z][a-z]+y$", "canary-by-cookie", "canary"),
		canaryOf("d", []string{"both.example P / b"}, "canary-by-header", "X-Canary yes", "canary-by-header-pattern", "^no"),
	}))
	clean(t, e)
	for _, c := range []struct{ host, header, cookie, want string }{
		{"pattern", "", "", "a"}, {"pattern", "DoCanary", "", "b"}, {"pattern", "docanary", "", "a"}, {"pattern", "DoCanary2", "", "a"}, {"pattern", "x DoCanary", "", "a"},
		{"pattern", "always", "", "a"}, {"pattern", "never", "always", "b"}, {"pattern", "DoCanary", "never", "b"},
		{"pattern", "Do" + strings.Repeat("x", 8000) + "y", "", "a"}, {"pattern", "DoCa" + strings.Repeat("n", 800) + "y", "", "b"},
		{"both", "yes", "", "b"}, {"both", "no", "", "a"},
	} {
		request := fmt.Sprintf("GET / HTTP/1.1\r\nHost: %s.example\r\nConnection: close\r\n", c.host)
		if c.header != "" {
			request += "X-Canary: " + c.header + "\r\n"
		}
		if c.cookie != "" {
			request += "Cookie: canary=" + c.cookie + "\r\n"
		}
		if got := raw(t, e.http, request+"\r\n"); got != c.want {
			t.Errorf("%s, header %.40q, cookie %q: %s, want %s", c.host, c.header, c.cookie, got, c.want)
		}
	}
}
