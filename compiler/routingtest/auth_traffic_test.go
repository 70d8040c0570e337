package routingtest

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/compiler/config"
)

// echoing starts a server that answers a request with its body, and after an upgrade echoes what it gets.
func echoing(t *testing.T) int {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-User", r.Header.Get("X-Auth-User"))
		if r.Header.Get("Upgrade") == "" {
			if _, err := io.Copy(w, r.Body); err != nil {
				t.Error(err)
			}
			return
		}
		c, rest, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		if _, err := io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"); err != nil {
			t.Error(err)
		}
		if _, err := io.Copy(c, rest); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Log(err)
		}
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().(*net.TCPAddr).Port
}

// guarded returns the manifests of a Service that is protected by an authentication service.
func guarded(t *testing.T) (*authServer, string) {
	t.Helper()
	auth, port := startAuth(t)
	return auth, serviceYAML("shop", "a", echoing(t)) + serviceYAML("shop", "auth", port) +
		optioned("web", "auth-url", "http://auth", "auth-response-headers", "X-Auth-User").yaml()
}

func TestExternalAuthOfBodiesAndUpgrades(t *testing.T) {
	t.Parallel()
	auth, yaml := guarded(t)
	e := start(t, yaml)
	clean(t, e)
	body := strings.Repeat("0123456789abcdef", 64<<10)
	got := e.send(t, false, fmt.Sprintf("POST /up HTTP/1.1\nHost: web.example\nContent-Type: text/plain\nContent-Length: %d\n\n%s", len(body), body))
	asked := auth.last()
	if got.StatusCode != 200 || got.body != body {
		t.Errorf("POST: %d with %d bytes", got.StatusCode, len(got.body))
	}
	if asked.Method != "GET" || asked.ContentLength != 0 || asked.Header.Get("Content-Type") != "" || asked.Header.Get("X-Original-Method") != "POST" {
		t.Errorf("asked %s with %d bytes, %v", asked.Method, asked.ContentLength, asked.Header)
	}
	long := strings.Repeat("x", 5000)
	if got := e.get(t, "web.example", "/"+long); got.StatusCode != 200 {
		t.Errorf("a long URL: %d", got.StatusCode)
	}
	c, err := net.Dial("tcp", e.http)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(deadline)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(c, "GET /ws HTTP/1.1\r\nHost: web.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	r := bufio.NewReader(c)
	answer, err := http.ReadResponse(r, nil)
	if err != nil || answer.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("upgrade: %v, %v", answer, err)
	}
	fmt.Fprint(c, "ping\n")
	if line, err := r.ReadString('\n'); line != "ping\n" {
		t.Errorf("after the upgrade: %q, %v", line, err)
	}
	if h := auth.last().Header; h.Get("Upgrade") != "" || h.Get("Sec-Websocket-Version") != "" {
		t.Errorf("the upgrade was asked of the service: %v", h)
	}
}

// With hundreds of requests at a time, over persistent connections of HTTP/1.1 and HTTP/2, the service is asked
// about each request separately.
func TestExternalAuthOfManyAtOnce(t *testing.T) {
	t.Parallel()
	_, yaml := guarded(t)
	e := startWith(t, yaml, func(c *config.Config) { c.MaxConn = 1000 })
	clean(t, e)
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 1000}
	t.Cleanup(transport.CloseIdleConnections)
	var wg sync.WaitGroup
	for i := range 300 {
		wg.Go(func() {
			url := "http://" + e.http
			if i%2 == 0 {
				url = "https://" + e.https
			}
			for n := range 10 {
				if err := askAs(transport, url, fmt.Sprintf("%d-%d", i, n), n%5 == 4); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// askAs sends a request with a body as a user, and checks that the answer belongs to it.
func askAs(transport http.RoundTripper, url, who string, refused bool) error {
	request, err := http.NewRequest("POST", url, strings.NewReader("body of "+who))
	if err != nil {
		return err
	}
	request.Host = "web.example"
	request.Header.Set("Authorization", who)
	want := 200
	if refused {
		request.Header.Set("X-Want", "401")
		want = 401
	}
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode != want || (!refused && (string(body) != "body of "+who || answer.Header.Get("X-User") != "user of "+who)) {
		return fmt.Errorf("%s: %s of %d, %q for %q", who, answer.Proto, answer.StatusCode, body, answer.Header.Get("X-User"))
	}
	return nil
}

// If the service does not answer, no request passes.
func TestExternalAuthWithoutAnswer(t *testing.T) {
	t.Parallel()
	_, port := startAuth(t)
	hang := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hang }))
	t.Cleanup(slow.Close)
	t.Cleanup(func() { close(hang) })
	closed := freePort(t, "127.0.0.1")
	yaml := serviceYAML("shop", "a", mirror(t, "a", nil)) + serviceYAML("shop", "dead", closed) +
		serviceYAML("shop", "slow", slow.Listener.Addr().(*net.TCPAddr).Port) +
		"---\napiVersion: v1\nkind: Service\nmetadata: {namespace: shop, name: empty}\nspec: {ports: [{port: 80}]}\n" +
		sliced("half", "IPv4", fmt.Sprint(closed, " {addresses: [127.0.0.1]}"), fmt.Sprint(port, " {addresses: [127.0.0.1]}"))
	e := start(t, yaml+all([]ingress{
		optioned("of-dead", "auth-url", "http://dead"), optioned("of-empty", "auth-url", "http://empty"),
		optioned("of-slow", "auth-url", "http://slow", "auth-timeout", "1s"), optioned("of-half", "auth-url", "http://half"),
	}))
	clean(t, e)
	var wg sync.WaitGroup
	for host, want := range map[string]int{"of-dead": 503, "of-empty": 503, "of-slow": 503, "of-half": 200} {
		wg.Go(func() {
			if got := e.get(t, host+".example", "/"); got.StatusCode != want {
				t.Errorf("%s: %d, want %d", host, got.StatusCode, want)
			}
		})
	}
	wg.Wait()
}

// A service can have an IPv6 address.
func TestExternalAuthOverIPv6(t *testing.T) {
	t.Parallel()
	auth := &authServer{}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp6", "[::1]:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: auth}}
	s.Start()
	t.Cleanup(s.Close)
	e := start(t, serviceYAML("shop", "a", mirror(t, "a", nil))+
		sliced("auth", "IPv6", fmt.Sprint(l.Addr().(*net.TCPAddr).Port, " {addresses: ['::1']}"))+
		optioned("web", "auth-url", "http://auth").yaml())
	clean(t, e)
	if got := e.get(t, "web.example", "/"); got.StatusCode != 200 || len(auth.got) != 1 {
		t.Errorf("%d, asked %d times", got.StatusCode, len(auth.got))
	}
}

// mostAnswered is how much of an answer without an end is sent at most.
const mostAnswered = 1 << 30

// answering starts a service that answers each request with a text, and goes on with another one for as long as somebody
// reads. The channel gets how many bytes of that it has sent then.
func answering(t *testing.T, text, more string) (port int, sent chan int) {
	t.Helper()
	sent = make(chan int, 10)
	return rawServer(t, func(c net.Conn) {
		defer c.Close()
		if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil {
			return
		}
		_, err := io.WriteString(c, text)
		total := 0
		for more != "" && err == nil && total < mostAnswered {
			var n int
			n, err = io.WriteString(c, more)
			total += n
		}
		sent <- total
	}), sent
}

// A service cannot have HAProxy keep an answer that never ends: there is memory for a part of it only.
func TestExternalAuthOfEndlessAnswers(t *testing.T) {
	t.Parallel()
	bodies, bodySent := answering(t, "HTTP/1.1 200 OK\r\nX-Auth-User: me\r\nContent-Length: 1000000000000\r\n\r\n", strings.Repeat("x", 64<<10))
	headers, headerSent := answering(t, "HTTP/1.1 200 OK\r\n", strings.Repeat("X-More: more\r\n", 5000))
	yaml := serviceYAML("shop", "a", echoing(t)) + serviceYAML("shop", "bodies", bodies) + serviceYAML("shop", "headers", headers)
	e := start(t, yaml+all([]ingress{
		optioned("body", "auth-url", "http://bodies", "auth-response-headers", "X-Auth-User"), optioned("header", "auth-url", "http://headers"),
	}))
	clean(t, e)
	if got := e.get(t, "body.example", "/"); got.StatusCode != 503 {
		t.Errorf("an endless body: %d", got.StatusCode)
	}
	if got := e.get(t, "header.example", "/"); got.StatusCode != 503 {
		t.Errorf("an endless header: %d", got.StatusCode)
	}
	for what, sent := range map[string]chan int{"body": bodySent, "header": headerSent} {
		select {
		case n := <-sent:
			if n >= mostAnswered {
				t.Errorf("%d bytes of an endless %s were read", n, what)
			}
		case <-time.After(deadline):
			t.Errorf("the connection with the endless %s stays open", what)
		}
	}
}
