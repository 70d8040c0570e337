package routingtest

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/compiler/diag"
)

// seen is what a server saw of a request.
type seen struct {
	Name, Method, Target, Host, Proto string
	Remote                            string // the client's address and port
	TLS                               bool
	SNI                               string
	Header                            http.Header
}

// mirror starts a server that answers with what it saw, and returns its port. configure can add TLS and HTTP/2.
func mirror(t *testing.T, name string, configure func(*httptest.Server)) int {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := seen{Name: name, Method: r.Method, Target: r.RequestURI, Host: r.Host, Proto: r.Proto, Remote: r.RemoteAddr, Header: r.Header}
		if r.TLS != nil {
			got.TLS, got.SNI = true, r.TLS.ServerName
		}
		w.Header().Set("Server", "mirror")
		w.Header().Set("X-From", "server")
		if err := json.NewEncoder(w).Encode(got); err != nil {
			t.Error(err)
		}
	}))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	if configure != nil {
		configure(s)
	}
	if s.TLS == nil {
		s.Start()
	} else {
		s.StartTLS()
	}
	t.Cleanup(s.Close)
	return portOf(s)
}

// rawServer starts a server that calls answer with each connection, and returns its port. answer closes the
// connection.
func rawServer(t *testing.T, answer func(net.Conn)) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // the listener is closed
			}
			go answer(c)
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

func portOf(s *httptest.Server) int { return s.Listener.Addr().(*net.TCPAddr).Port }

// reply is an answer, with what the server saw.
type reply struct {
	*http.Response
	body string
	seen seen
}

// send sends a literal request, in which "\n" ends a line, over TLS if secure.
func (e edge) send(t *testing.T, secure bool, request string) reply {
	t.Helper()
	if secure {
		return sendTo(t, e.https, &tls.Config{InsecureSkipVerify: true}, request)
	}
	return sendTo(t, e.http, nil, request)
}

// sendTo sends a literal request on a new connection, over TLS unless the configuration is nil.
func sendTo(t *testing.T, address string, over *tls.Config, request string) reply {
	t.Helper()
	var c net.Conn
	var err error
	if over != nil {
		c, err = (&tls.Dialer{Config: over}).DialContext(t.Context(), "tcp", address)
	} else {
		c, err = net.Dial("tcp", address)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r, err := exchange(c, request)
	if err != nil {
		t.Fatalf("%q: %v", request, err)
	}
	return r
}

// exchange sends a request like send, and reads the answer.
func exchange(c net.Conn, request string) (reply, error) {
	if err := c.SetDeadline(time.Now().Add(deadline)); err != nil {
		return reply{}, err
	}
	head, body, _ := strings.Cut(request, "\n\n")
	if _, err := io.WriteString(c, strings.ReplaceAll(head, "\n", "\r\n")+"\r\nConnection: close\r\n\r\n"+body); err != nil {
		return reply{}, err
	}
	method, _, _ := strings.Cut(request, " ")
	response, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		return reply{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	r := reply{Response: response, body: string(text)}
	if err == nil && strings.HasPrefix(r.body, "{") {
		err = json.Unmarshal(text, &r.seen)
	}
	return r, err
}

// get sends a GET request without TLS, with more header lines.
func (e edge) get(t *testing.T, host, target string, lines ...string) reply {
	t.Helper()
	return e.send(t, false, strings.Join(append([]string{"GET " + target + " HTTP/1.1", "Host: " + host}, lines...), "\n"))
}

// getTLS is get over TLS.
func (e edge) getTLS(t *testing.T, host, target string, lines ...string) reply {
	t.Helper()
	return e.send(t, true, strings.Join(append([]string{"GET " + target + " HTTP/1.1", "Host: " + host}, lines...), "\n"))
}

// getFrom is get from an address of the machine.
func (e edge) getFrom(t *testing.T, from, host, target string) reply {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := dialer.DialContext(t.Context(), "tcp", e.http)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r, err := exchange(c, "GET "+target+" HTTP/1.1\nHost: "+host)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// vouched makes a mirror use TLS with a certificate of an authority. It asks for client certificates according
// to ask, and returns their common name in a header.
func vouched(t *testing.T, a authority, ask tls.ClientAuthType, names ...string) func(*httptest.Server) {
	t.Helper()
	certificate, key := a.issue(t, "", time.Now().Add(time.Hour), names[0], names...)
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	return func(s *httptest.Server) {
		s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: ask, ClientCAs: a.roots()}
		s.EnableHTTP2 = true
		s.Config.Protocols.SetHTTP2(true)
		next := s.Config.Handler
		s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for _, c := range r.TLS.PeerCertificates {
				w.Header().Add("X-Client", c.Subject.CommonName)
			}
			next.ServeHTTP(w, r)
		})
	}
}

// An endpoint is accepted only with a certificate of the Secret's authorities for its name. If something is
// missing, the routes are closed.
func TestBackendAuthorities(t *testing.T) {
	t.Parallel()
	ours, theirs := newAuthority(t, "ours"), newAuthority(t, "theirs")
	port := []int{mirror(t, "web", vouched(t, ours, tls.NoClientCert, "web.internal", "byhost.example", "h2.internal"))}
	with := func(name, secret, sni, protocol string) string {
		return served(t, name, port, "backend-protocol", protocol, "backend-ca-secret", secret, "backend-sni", sni)
	}
	e := start(t, authoritySecret("ours", ours.pem)+authoritySecret("theirs", theirs.pem)+authoritySecret("garbage", []byte("no PEM"))+
		with("good", "ours", "web.internal", "h1-tls")+with("h2", "ours", "web.internal", "h2-tls")+with("byhost", "ours", "request-host", "h1-tls")+
		with("other", "theirs", "web.internal", "h1-tls")+with("name", "ours", "other.internal", "h1-tls")+with("nohost", "ours", "request-host", "h1-tls")+
		with("gone", "nowhere", "web.internal", "h1-tls")+with("bad", "garbage", "web.internal", "h1-tls")+
		served(t, "both", port, "backend-protocol", "h1-tls", "backend-ca-secret", "ours", "backend-verify", "system", "backend-sni", "web.internal")+
		served(t, "none", port, "backend-protocol", "h1-tls", "backend-ca-secret", "ours", "backend-verify", "none", "backend-sni", "web.internal")+
		served(t, "nameless", port, "backend-protocol", "h1-tls", "backend-ca-secret", "ours")+
		served(t, "clear", port, "backend-ca-secret", "ours"))
	for name, want := range map[string]int{
		"good": 200, "h2": 200, "byhost": 200, "both": 200,
		"other": 503, "name": 503, "nohost": 503, "gone": 503, "bad": 503, "none": 503, "nameless": 503, "clear": 503,
	} {
		if got := e.get(t, name+".example", "/"); got.StatusCode != want {
			t.Errorf("%s: %d, want %d", name, got.StatusCode, want)
		}
	}
	reported := map[diag.Object]diag.Severity{}
	for _, d := range e.result.Diagnostics {
		reported[d.Object] = d.Severity
	}
	for _, want := range []struct {
		kind, name string
		severity   diag.Severity
	}{
		{"Secret", "garbage", diag.Error}, {"Service", "gone", diag.Warning},
		{"Service", "none", diag.Error}, {"Service", "nameless", diag.Error}, {"Service", "clear", diag.Error},
	} {
		object := diag.Object{Kind: want.kind, Namespace: "shop", Name: want.name}
		if got, ok := reported[object]; !ok || got != want.severity {
			t.Errorf("%s: reported %v as %v, want %v", object, ok, got, want.severity)
		}
		delete(reported, object)
	}
	if len(reported) > 0 {
		t.Errorf("unexpected: %v", e.result.Diagnostics)
	}
}

// An endpoint that asks for a client certificate gets the one of the Secret. Without a Secret it gets none.
func TestBackendClientCertificate(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t, "ours")
	strict := []int{mirror(t, "strict", vouched(t, ours, tls.RequireAndVerifyClientCert, "web.internal"))}
	curious := []int{mirror(t, "curious", vouched(t, ours, tls.RequestClientCert, "web.internal"))}
	with := func(name string, ports []int, options ...string) string {
		return served(t, name, ports, append([]string{"backend-protocol", "h1-tls"}, options...)...)
	}
	e := start(t, ours.secret(t, "", "edge", "edge")+secretOf(t, "selfmade")+
		with("shown", strict, "backend-client-secret", "edge")+with("unshown", strict)+
		with("wrong", strict, "backend-client-secret", "selfmade")+with("gone", strict, "backend-client-secret", "nowhere")+
		with("asked", curious, "backend-client-secret", "edge")+with("silent", curious)+
		served(t, "clear", curious, "backend-client-secret", "edge"))
	for name, want := range map[string]string{"shown": "200 edge", "asked": "200 edge", "silent": "200 ", "clear": "503 "} {
		r := e.get(t, name+".example", "/")
		if got := fmt.Sprint(r.StatusCode, " ", r.Header.Get("X-Client")); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	for _, name := range []string{"unshown", "wrong", "gone"} { // the endpoint refuses during the handshake or after it
		if r := e.get(t, name+".example", "/"); r.StatusCode != 502 && r.StatusCode != 503 {
			t.Errorf("%s: %d, want that the endpoint refuses", name, r.StatusCode)
		}
	}
	reportedOn(t, e, diag.Object{Kind: "Service", Namespace: "shop", Name: "gone"})
	reportedOn(t, e, diag.Object{Kind: "Service", Namespace: "shop", Name: "clear"})
	if strings.Contains(configOf(e), "PRIVATE KEY") {
		t.Error("a key is in the snapshot")
	}
}

// Checks verify certificates like requests do. An endpoint that is not accepted is down, and one that is
// accepted stays up.
func TestBackendTLSChecks(t *testing.T) {
	t.Parallel()
	ours, theirs := newAuthority(t, "ours"), newAuthority(t, "theirs")
	var checks atomic.Int32
	speak := vouched(t, ours, tls.RequireAndVerifyClientCert, "web.internal")
	port := mirror(t, "web", func(s *httptest.Server) {
		speak(s)
		next := s.Config.Handler
		s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/healthz" && r.TLS.ServerName == "web.internal" {
				checks.Add(1)
			}
			next.ServeHTTP(w, r)
		})
	})
	with := func(name, secret string, protocol string) string {
		return served(t, name, []int{port}, "backend-protocol", protocol, "backend-ca-secret", secret, "backend-client-secret", "edge", "backend-sni", "web.internal",
			// The interval limits the handshakes of checks too.
			"health-check-path", "/healthz", "health-check-interval", checkInterval, "health-check-timeout", "10s", "health-check-fall", "2")
	}
	e := start(t, authoritySecret("ours", ours.pem)+authoritySecret("theirs", theirs.pem)+ours.secret(t, "", "edge", "edge")+
		with("good", "ours", "h1-tls")+with("bad", "theirs", "h1-tls"))
	clean(t, e)
	await(t, func() error {
		if n := checks.Load(); n < 5 {
			return fmt.Errorf("%d checks came", n)
		}
		return nil
	})
	answers(t, e, map[string]string{"good.example/": "200", "bad.example/": "503"})
}

// HAProxy connects to endpoints only with the TLS versions and ciphers of the options. A mistake in the options
// closes the routes.
func TestBackendTLSLimits(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t, "ours")
	// Each case has a server of its own, since health checks send a ClientHello too.
	said := map[string]*atomic.Pointer[tls.ClientHelloInfo]{}
	with := func(name string, options ...string) string {
		hello := new(atomic.Pointer[tls.ClientHelloInfo])
		said[name] = hello
		port := mirror(t, name, func(s *httptest.Server) {
			vouched(t, ours, tls.NoClientCert, "web.internal")(s)
			s.TLS.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
				hello.Store(h)
				return nil, nil
			}
		})
		return served(t, name, []int{port}, options...)
	}
	overTLS := func(name string, options ...string) string {
		return with(name, append([]string{"backend-protocol", "h1-tls"}, options...)...)
	}
	e := start(t, overTLS("any")+overTLS("old", "backend-tls-versions", "1.2")+overTLS("new", "backend-tls-versions", "1.3")+
		overTLS("chosen", "backend-tls-versions", "1.2-1.2", "backend-tls-ciphers", "ECDHE-ECDSA-AES256-GCM-SHA384:!ECDHE-RSA-AES256-GCM-SHA384")+
		overTLS("odd", "backend-tls-versions", "1.3-1.2")+overTLS("level", "backend-tls-ciphers", "ALL:@SECLEVEL=0")+
		with("clear", "backend-tls-versions", "1.2"))
	for host, want := range map[string]struct {
		status          int
		version, cipher uint16
	}{
		"any": {200, tls.VersionTLS13, 0}, "old": {200, tls.VersionTLS12, 0}, "new": {200, tls.VersionTLS13, 0},
		"chosen": {200, tls.VersionTLS12, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384}, "odd": {status: 503}, "level": {status: 503}, "clear": {status: 503},
	} {
		got, hello := e.get(t, host+".example", "/"), said[host].Load()
		if got.StatusCode != want.status {
			t.Errorf("%s: %d", host, got.StatusCode)
		}
		if want.version != 0 && (hello == nil || slices.Max(hello.SupportedVersions) != want.version || want.cipher != 0 && hello.CipherSuites[0] != want.cipher) {
			t.Errorf("%s: the client says %+v", host, hello)
		}
	}
}
