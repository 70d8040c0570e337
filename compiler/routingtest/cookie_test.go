package routingtest

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
)

// The cookie of a session has the path, the lifetime and the security attributes of the options.
func TestAffinityCookieAttributes(t *testing.T) {
	t.Parallel()
	sticky := func(name string, options ...string) ingress {
		return optioned(name, append([]string{"affinity", "cookie", "affinity-cookie-name", "c"}, options...)...)
	}
	e := start(t, serviceYAML("shop", "a", mirror(t, "a", nil))+all([]ingress{
		sticky("plain"),
		sticky("path", "affinity-cookie-path", "/shop", "affinity-cookie-max-age", "60", "affinity-cookie-same-site", "Lax"),
		sticky("always", "affinity-cookie-secure", "true"),
		sticky("auto", "affinity-cookie-secure", "auto", "affinity-cookie-same-site", "None"),
		sticky("never", "affinity-cookie-secure", "false", "affinity-cookie-same-site", "None"),
	}))
	clean(t, e)
	for host, want := range map[string]http.Cookie{
		"plain":  {Path: "/"},
		"path":   {Path: "/shop", MaxAge: 60, SameSite: http.SameSiteLaxMode},
		"always": {Path: "/", Secure: true},
		"auto":   {Path: "/", SameSite: http.SameSiteNoneMode},
		"never":  {Path: "/", SameSite: http.SameSiteNoneMode},
	} {
		for _, over := range []bool{false, true} {
			get := e.get
			if over {
				get = e.getTLS
			}
			got := get(t, host+".example", "/").Cookies()
			secure := want.Secure || over && host == "auto"
			if len(got) != 1 || got[0].Path != want.Path || got[0].MaxAge != want.MaxAge || got[0].SameSite != want.SameSite || got[0].Secure != secure || !got[0].HttpOnly {
				t.Errorf("%s, TLS %v: %v", host, over, got)
			}
		}
	}
}

// If two Services of a host have the same cookie, the younger Ingress is reported, unless the cookies have
// different paths.
func TestSharedCookieIsReported(t *testing.T) {
	t.Parallel()
	sticky := func(name, path, service string, age int, options ...string) ingress {
		options = append([]string{"affinity", "cookie", "affinity-cookie-name", "c"}, options...)
		return ingress{name: name, age: age, annotations: annotated(options...), rules: []string{"shop.example P " + path + " " + service}}
	}
	e := start(t, common(t)+all([]ingress{
		sticky("old", "/", "a", 1), sticky("young", "/b", "b", 2), sticky("same", "/a", "a", 3), sticky("path", "/c", "c", 4, "affinity-cookie-path", "/c"),
	}))
	var found []string
	for _, d := range e.result.Diagnostics {
		found = append(found, d.Object.Name+": "+d.Message)
	}
	want := "young: the cookie c of Service b of host shop.example is that of Service a too, by Ingress shop/old: each takes the other's sessions away"
	if len(found) != 1 || found[0] != want {
		t.Errorf("%q, want %q", found, want)
	}
}

// The cookies of endpoints get another path or domain if theirs is the one in the option.
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
