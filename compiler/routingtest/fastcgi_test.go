package routingtest

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/fcgi"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hapsnap/hapsnap/snapshots"
)

// fastCGI starts an application that answers with its variables and the body, and returns its port. Checks of
// /healthz fail while ill returns true.
func fastCGI(t *testing.T, ill func() bool) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" && ill != nil && ill() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		env := fcgi.ProcessEnv(r)
		body, _ := io.ReadAll(r.Body)
		env["body"], env["url"], env["host"], env["method"] = string(body), r.URL.RequestURI(), r.Host, r.Method
		_ = json.NewEncoder(w).Encode(env) // a check may close the connection early, since it only needs the status
	})
	go func() { _ = fcgi.Serve(l, handler) }() // ends when the listener is closed
	return l.Addr().(*net.TCPAddr).Port
}

func TestFastCGI(t *testing.T) {
	t.Parallel()
	port := fastCGI(t, nil)
	e := start(t, served(t, "plain", []int{port}, "backend-protocol", "fcgi")+
		served(t, "divided", []int{port}, "backend-protocol", "fcgi", "fcgi-root", "/srv/app", "fcgi-index", "app.php", "fcgi-path-info", `^(/.+\.php)(/.*)?$`)+
		served(t, "same", []int{port}, "backend-protocol", "fcgi", "fcgi-root", "/srv/app", "fcgi-index", "app.php", "fcgi-path-info", `^(/.+\.php)(/.*)?$`))
	clean(t, e)
	// Go's package removes PATH_INFO from the variables. PATH_TRANSLATED is the root followed by it.
	for _, c := range []struct {
		host, target, script, translated string
	}{
		{"plain", "/", "/var/www/html/index.php", ""},
		{"plain", "/dir/?x=y", "/var/www/html/dir/index.php", ""},
		{"plain", "/a%20b.php", "/var/www/html/a b.php", ""},
		{"divided", "/", "/srv/app/app.php", ""},
		{"divided", "/run.php/user/7?x=y", "/srv/app/run.php", "/srv/app/user/7"},
		{"same", "/run.php", "/srv/app/run.php", ""},
	} {
		env := map[string]string{}
		r := e.send(t, false, "POST "+c.target+" HTTP/1.1\nHost: "+c.host+".example\nContent-Length: 5\n\nhello")
		if err := json.Unmarshal([]byte(r.body), &env); err != nil {
			t.Fatalf("%s%s: %d %q: %v", c.host, c.target, r.StatusCode, r.body, err)
		}
		for name, want := range map[string]string{
			"SCRIPT_FILENAME": c.script, "PATH_TRANSLATED": c.translated, "body": "hello", "method": "POST", "host": c.host + ".example", "url": c.target,
		} {
			if got := env[name]; got != want {
				t.Errorf("%s%s: %s is %q, want %q", c.host, c.target, name, got, want)
			}
		}
	}
	for _, target := range []string{"/../secret.php", "/x/%2e%2e/secret.php", "/x/..", "/%2e%2e"} {
		if got := e.get(t, "plain.example", target).StatusCode; got != 400 {
			t.Errorf("%s: %d, want 400", target, got)
		}
	}
	if n := strings.Count(configOf(e), "fcgi-app hapsnap_"); n-strings.Count(configOf(e), "use-fcgi-app") != 2 {
		t.Errorf("backends that agree do not share the settings:\n%s", configOf(e))
	}
}

// Health checks use FastCGI too.
func TestFastCGIHealth(t *testing.T) {
	t.Parallel()
	var ill atomic.Bool
	e := start(t, served(t, "php", []int{fastCGI(t, ill.Load)}, "backend-protocol", "fcgi", "health-check-path", "/healthz",
		"health-check-interval", checkInterval, "health-check-timeout", "10s", "health-check-rise", "1", "health-check-fall", "1"))
	clean(t, e)
	answers := func(want int) {
		t.Helper()
		await(t, func() error {
			if got := e.get(t, "php.example", "/").StatusCode; got != want {
				return fmt.Errorf("status %d, want %d", got, want)
			}
			return nil
		})
	}
	answers(200)
	ill.Store(true)
	answers(503)
	ill.Store(false)
	answers(200)
}

// configOf returns the haproxy.cfg of the running snapshot.
func configOf(e edge) string { return string(e.result.Draft.Number(1, snapshots.ID{}).Config()) }

// An application gets the variables of the option literally, but none with which requests could configure it.
func TestFastCGIParams(t *testing.T) {
	t.Parallel()
	port := fastCGI(t, nil)
	e := start(t, served(t, "told", []int{port}, "backend-protocol", "fcgi", "fcgi-params", "APP_ENV 100% %[src] $HOME 'a'\nSCRIPT_FILENAME /srv/front.php")+
		served(t, "plain", []int{port}, "backend-protocol", "fcgi"))
	clean(t, e)
	for host, want := range map[string][2]string{"told": {"100% %[src] $HOME 'a'", "/srv/front.php"}, "plain": {"", "/var/www/html/x.php"}} {
		env := map[string]string{}
		r := e.get(t, host+".example", "/x.php", "App-Env: forged")
		if err := json.Unmarshal([]byte(r.body), &env); err != nil {
			t.Fatalf("%s: %d %q: %v", host, r.StatusCode, r.body, err)
		}
		if got := [2]string{env["APP_ENV"], env["SCRIPT_FILENAME"]}; got != want {
			t.Errorf("%s: %q, want %q", host, got, want)
		}
	}
}
