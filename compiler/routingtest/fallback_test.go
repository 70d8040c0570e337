package routingtest

import (
	"fmt"
	"strings"
	"testing"
)

// A route whose Service has no endpoint is served by the fallback Service. Everything else about the route,
// such as its protection, stays the same.
func TestFallbackService(t *testing.T) {
	t.Parallel()
	services := common(t) + serviceYAML("shop", "m", mirror(t, "m", nil)) + serviceYAML("shop", "m2", mirror(t, "m2", nil)) +
		strings.Replace(serviceYAML("shop", "tls", mirror(t, "tls", nil)), "name: tls}\nspec", "name: tls, annotations: {hapsnap.dev/backend-protocol: h1-tls}}\nspec", 1)
	to := func(name, service string, options ...string) ingress {
		i := optioned(name, options...)
		i.rules = []string{name + ".example P / " + service, name + ".example E /exact " + service}
		return i
	}
	e := start(t, services+all([]ingress{
		to("used", "empty", "fallback-service", "m"),
		to("port", "empty", "fallback-service", "m:80"),
		to("missing", "gone", "fallback-service", "m"),
		to("idle", "m2", "fallback-service", "m"),
		to("rewritten", "empty", "fallback-service", "m", "rewrite-path", "/new", "response-headers", "set X-From edge"),
		to("denied", "empty", "fallback-service", "m", "deny-list", "127.0.0.0/8"),
		to("closed", "empty", "fallback-service", "m", "allow-list", "nowhere"),
		to("nobody", "empty", "fallback-service", "gone"),
		to("noport", "empty", "fallback-service", "m:81"),
		to("unlike", "empty", "fallback-service", "tls"),
		to("both", "empty", "fallback-service", "empty2"),
		to("shared", "empty", "fallback-service", "m"),
		{name: "shared-c", age: 1, annotations: annotated("canary", "true", "canary-weight", "0", "canary-by-header", "X-Canary"), rules: []string{"shared.example P / b"}},
		to("split", "empty", "fallback-service", "m"),
		{name: "split-c", age: 1, annotations: annotated("canary", "true", "canary-weight", "50"), rules: []string{"split.example P / empty"}},
	}))
	want := map[string]string{"missing.example/x": "m", "nobody.example/": "503", "noport.example/": "503", "unlike.example/": "503", "both.example/": "503", "closed.example/": "503", "denied.example/": "403"}
	for _, name := range []string{"used", "port"} {
		want[name+".example/"], want[name+".example/exact"] = "m", "m"
	}
	want["idle.example/"], want["shared.example/"], want["split.example/"] = "m2", "m", "m"
	for target, service := range want {
		host, path, _ := strings.Cut(target, "/")
		got := e.get(t, host, "/"+path)
		answer := got.seen.Name
		if answer == "" && got.StatusCode != 200 {
			answer = fmt.Sprint(got.StatusCode)
		} else if answer == "" {
			answer = got.body
		}
		if answer != service {
			t.Errorf("%s: %s, want %s", target, answer, service)
		}
	}
	if got := raw(t, e.http, "GET / HTTP/1.1\r\nHost: shared.example\r\nX-Canary: always\r\nConnection: close\r\n\r\n"); got != "b" {
		t.Errorf("the canary of a route with a fallback: %s", got)
	}
	if got := e.get(t, "rewritten.example", "/x"); got.seen.Target != "/new/x" || got.Header.Get("X-From") != "edge" {
		t.Errorf("options of the route: %+v", got.seen)
	}
}

// The statuses in the option are replaced by error pages, and no others are.
func TestInterceptErrors(t *testing.T) {
	t.Parallel()
	_, port := startAuth(t) // answers with the status in X-Want
	e := startWith(t, pagesYAML(map[string]string{"404": `"none here 100% %[src]"`})+serviceYAML("shop", "a", port)+all([]ingress{
		optioned("some", "intercept-errors", "404, 503, 418, 404", "response-headers", "set X-From edge"), optioned("none"),
	}), withPages)
	clean(t, e)
	for _, c := range []struct{ host, status, body, cookie string }{
		{"some", "404", "none here 100% %[src]", ""}, {"some", "503", "error 503", ""}, {"some", "418", "error 418", ""},
		{"some", "500", "", "one=1"}, {"some", "200", "", "one=1"}, {"none", "404", "", "one=1"},
	} {
		got := e.get(t, c.host+".example", "/", "X-Want: "+c.status)
		if fmt.Sprint(got.StatusCode) != c.status || got.body != c.body || got.Header.Get("Set-Cookie") != c.cookie || (got.Header.Get("X-From") == "edge") != (c.host == "some") {
			t.Errorf("%s, %s: %d %q %v", c.host, c.status, got.StatusCode, got.body, got.Header)
		}
	}
}

// Headers are copied from the original values. If the source is empty, the header is missing.
func TestCopiedHeaders(t *testing.T) {
	t.Parallel()
	const lines = "copy X-Host host\ncopy X-Raw header Host\ncopy X-URI uri\ncopy X-Query query\ncopy X-Method method\ncopy X-Scheme scheme\ncopy X-Address client-address\ncopy X-Id request-id\ncopy X-Of header X-From"
	e := start(t, serviceYAML("shop", "a", mirror(t, "a", nil))+optioned("copied", "request-headers", lines, "response-headers", lines+"\ncopy X-Port client-port", "rewrite-path", "^.* /new", "rewrite-host", "inner.example").yaml())
	clean(t, e)
	want := map[string]string{
		"X-Host": "copied.example", "X-Raw": "COPIED.example:80", "X-URI": "/old?a=%0d%0ab", "X-Query": "a=%0d%0ab", "X-Method": "GET", "X-Scheme": "http", "X-Address": "127.0.0.1", "X-Id": "7",
		"X-Of": `%[src] "x"`,
	}
	got := e.get(t, "COPIED.example:80", "/old?a=%0d%0ab", "X-Request-ID: 7", `X-From: %[src] "x"`, "X-Host: forged")
	for name, value := range want {
		if in, out := got.seen.Header.Get(name), got.Header.Get(name); in != value || out != value {
			t.Errorf("%s: the endpoint got %q, the client %q, want %q", name, in, out, value)
		}
	}
	if got.Header.Get("X-Port") == "" {
		t.Error("no port of the client")
	}
	got = e.get(t, "copied.example", "/", "X-Of: forged", "X-Query: forged")
	for _, name := range []string{"X-Of", "X-Query"} {
		if got.seen.Header.Get(name) != "" || got.Header.Get(name) != "" {
			t.Errorf("%s was not there, and is: %q, %q", name, got.seen.Header.Get(name), got.Header.Get(name))
		}
	}
}
