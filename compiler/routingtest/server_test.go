package routingtest

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// seen is what a server got.
type seen struct {
	Name, Method, Target, Host, Proto string
	Remote                            string // the client's address and port
	TLS                               bool
	SNI                               string
	Header                            http.Header
}

// mirror starts a server that answers with what it got, perhaps over TLS and
// HTTP/2, and returns its port.
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

func portOf(s *httptest.Server) int { return s.Listener.Addr().(*net.TCPAddr).Port }

// reply is an answer, and what the server got if one answered.
type reply struct {
	*http.Response
	body string
	seen seen
}

// send sends a request as it is written, "\n" standing for the end of a line,
// over TLS if secure.
func (e edge) send(t *testing.T, secure bool, request string) reply {
	t.Helper()
	var c net.Conn
	var err error
	if secure {
		c, err = (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(t.Context(), "tcp", e.https)
	} else {
		c, err = net.Dial("tcp", e.http)
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

// exchange sends a request, as send does, and reads the answer.
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

// get asks for a target of a host in the clear, with more header lines.
func (e edge) get(t *testing.T, host, target string, lines ...string) reply {
	t.Helper()
	return e.send(t, false, strings.Join(append([]string{"GET " + target + " HTTP/1.1", "Host: " + host}, lines...), "\n"))
}

// getTLS asks over TLS.
func (e edge) getTLS(t *testing.T, host, target string, lines ...string) reply {
	t.Helper()
	return e.send(t, true, strings.Join(append([]string{"GET " + target + " HTTP/1.1", "Host: " + host}, lines...), "\n"))
}

// getFrom asks in the clear, from an address of the machine.
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
