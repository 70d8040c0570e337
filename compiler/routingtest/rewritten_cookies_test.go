package routingtest

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
)

// Cookies of endpoints get another path or domain where theirs is the one that is named.
func TestRewrittenCookies(t *testing.T) {
	t.Parallel()
	sent := []string{
		"a=1; Path=/internal; HttpOnly", "b=/internal; path=/internal/x", "c=3; Path=/other", "d=4", "e=path=/internal; Domain=inner.example",
		"f=6; DOMAIN=.inner.example; Path=/", "g=7; Domain=inner.example.evil", "h=8; Domain=xinner.example;Path=/internals",
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for _, c := range sent {
			w.Header().Add("Set-Cookie", c)
		}
	}))
	t.Cleanup(s.Close)
	e := start(t, serviceYAML("shop", "a", portOf(s))+optioned("both", "rewrite-cookie-path", "/internal /app", "rewrite-cookie-domain", "inner.example shop.example").yaml()+
		optioned("root", "rewrite-cookie-path", "/ /sub/").yaml()+optioned("none").yaml())
	clean(t, e)
	for host, want := range map[string][]string{
		"none": sent,
		"both": {
			"a=1; Path=/app; HttpOnly", "b=/internal; path=/app/x", "c=3; Path=/other", "d=4", "e=path=/internal; Domain=shop.example",
			"f=6; DOMAIN=shop.example; Path=/", "g=7; Domain=inner.example.evil", "h=8; Domain=xinner.example;Path=/apps",
		},
		"root": {
			"a=1; Path=/sub/internal; HttpOnly", "b=/internal; path=/sub/internal/x", "c=3; Path=/sub/other", "d=4", "e=path=/internal; Domain=inner.example",
			"f=6; DOMAIN=.inner.example; Path=/sub/", "g=7; Domain=inner.example.evil", "h=8; Domain=xinner.example;Path=/sub/internals",
		},
	} {
		if got := e.get(t, host+".example", "/").Header.Values("Set-Cookie"); !slices.Equal(got, want) {
			t.Errorf("%s:\n%q\nwant\n%q", host, got, want)
		}
	}
}
