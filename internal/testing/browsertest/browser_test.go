package browsertest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
)

const wrong = `<!doctype html><html><head><title>wrong</title></head><body><p id="a">a</p><img src="/x.png"><script>document.getElementById("a").textContent = "b"</script></body></html>`

// Every problem that should fail a test is found on a page that has all of them.
func TestComplaints(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/wrong":
			w.Header().Set("Content-Security-Policy", "default-src 'self'")
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, wrong)
		case "/right":
			fmt.Fprint(w, `<!doctype html><html lang="en"><head><title>right</title><link rel="icon" href="data:,"></head><body><main><h1 id="a">a</h1></main><script>document.getElementById("a").textContent = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"</script></body></html>`)
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	b := Start(t)
	p := b.Page(t, Options{})
	p.Open(server.URL + "/wrong")
	p.Eval("console.error('oh'), setTimeout(() => { throw new Error('thrown') }), true", nil)
	all := ""
	p.Wait("document.readyState === 'complete'")
	for _, want := range []string{"Content Security Policy", "console: \"oh\"", "thrown", "/x.png"} {
		for !strings.Contains(all, want) {
			p.Wait("new Promise((done) => setTimeout(() => done(true), 20))")
			all += strings.Join(p.Complaints(), "\n")
		}
	}
	if p.Text("#a") != "a" {
		t.Error("the script ran that the policy forbids")
	}
	recorder := &recording{TB: t}
	p.t = recorder
	p.Accessible()
	p.t = t
	for _, want := range []string{"image-alt", "html-has-lang"} {
		if !strings.Contains(recorder.text, want) {
			t.Errorf("%s is not found: %s", want, recorder.text)
		}
	}
	p.Complaints()
	for o, want := range map[Options]string{{}: "light", {Dark: true}: "dark", {WithoutScript: true}: "a"} {
		p := b.Page(t, o)
		p.Open(server.URL + "/right")
		if got := p.Text("#a"); got != want {
			t.Errorf("%+v: %q", o, got)
		}
		p.Accessible()
	}
}

// recording takes the errors of a test.
type recording struct {
	testing.TB
	text string
}

func (r *recording) Errorf(format string, args ...any) { r.text += fmt.Sprintf(format, args...) }

// If a page is left for another one while it is asked, the caller gets the answer of the next one.
func TestPagesThatAreLeft(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.Atoi(r.URL.Query().Get("n"))
		if err != nil {
			http.NotFound(w, r)
			return
		}
		next := fmt.Sprintf(`<form><input id="n" name="n" value="%d"></form>`, n-1)
		if n > 1 {
			next += `<script>setTimeout(() => document.forms[0].submit(), 60)</script>`
		}
		fmt.Fprintf(w, `<!doctype html><html lang="en"><head><title>%d</title><link rel="icon" href="data:,"></head><body>%s</body></html>`, n, next)
	}))
	defer server.Close()
	p := Start(t).Page(t, Options{})
	p.Open(server.URL + "/?n=9")
	p.Wait("new Promise((done) => setTimeout(() => done(document.title === '1'), 100))") // longer than a page is open
	p.Type("#n", "\r")
	p.Wait("document.title === '0'")
	if got := p.Text("title"); got != "0" {
		t.Errorf("at %q", got)
	}
}
