package routingtest

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/compiler/config"
)

// dial connects without TLS and sends a text.
func (e edge) dial(t *testing.T, text string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", e.http)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(deadline)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	return c
}

// status reads an answer and returns its status.
func status(t *testing.T, from *bufio.Reader) int {
	t.Helper()
	response, err := http.ReadResponse(from, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode
}

// Each timeout ends what it is for. All other timeouts are much longer than the deadline of the test.
func TestTimeouts(t *testing.T) {
	t.Parallel()
	done := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-done:
		}
	}))
	t.Cleanup(silent.Close)
	t.Cleanup(func() { close(done) })
	i := ingress{rules: []string{"shop.example P / a", "shop.example P /silent silent"}}
	objects := serviceYAML("shop", "a", echo(t, "a")) + serviceYAML("shop", "silent", portOf(silent)) + i.yaml()
	with := func(t *testing.T, edit func(*config.Timeouts)) edge {
		t.Helper()
		return startWith(t, objects, func(c *config.Config) {
			c.Timeouts.HTTPRequest, c.Timeouts.HTTPKeepAlive = "1h", "1h"
			c.Timeouts.Client, c.Timeouts.Server = "1h", "1h"
			edit(&c.Timeouts)
		})
	}
	t.Run("httpRequest", func(t *testing.T) {
		t.Parallel()
		e := with(t, func(d *config.Timeouts) { d.HTTPRequest = "100ms" })
		if got := status(t, bufio.NewReader(e.dial(t, "GET / HTTP/1.1\r\nHost: shop"))); got != http.StatusRequestTimeout {
			t.Errorf("%d, want 408", got)
		}
	})
	t.Run("httpKeepAlive", func(t *testing.T) {
		t.Parallel()
		e := with(t, func(d *config.Timeouts) { d.HTTPKeepAlive = "100ms" })
		answers := bufio.NewReader(e.dial(t, "GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n"))
		if got := status(t, answers); got != http.StatusOK {
			t.Errorf("%d, want 200", got)
		}
		if _, err := answers.ReadByte(); !errors.Is(err, io.EOF) {
			t.Errorf("%v, want the end of the connection", err)
		}
	})
	t.Run("server", func(t *testing.T) {
		t.Parallel()
		e := with(t, func(d *config.Timeouts) { d.Server = "100ms" })
		if got := e.get(t, "shop.example", "/silent").StatusCode; got != http.StatusGatewayTimeout {
			t.Errorf("%d, want 504", got)
		}
	})
}

// HAProxy reports the limits of threads and connections.
func TestThreadsAndConnections(t *testing.T) {
	t.Parallel()
	a := startArranged(t, common(t), asTheyAre, func(c *config.Config) { c.NBThread, c.MaxConn = 3, 123 })
	clean(t, a.edge)
	info := a.runtime(t, "show info")
	for _, want := range []string{"\nNbthread: 3\n", "\nMaxconn: 123\n"} {
		if !strings.Contains(info, want) {
			t.Errorf("want %q in %s", want, info)
		}
	}
}

// proxyClient is the address of the client in the headers of the PROXY protocol.
const proxyClient = "203.0.113.7"

func proxyV1() string { return "PROXY TCP4 " + proxyClient + " 192.0.2.1 4000 80\r\n" }

func proxyV2() string {
	addresses := append(net.ParseIP(proxyClient).To4(), 192, 0, 2, 1)
	addresses = binary.BigEndian.AppendUint16(addresses, 4000)
	addresses = binary.BigEndian.AppendUint16(addresses, 80)
	return "\r\n\r\n\x00\r\nQUIT\n\x21\x11" + string(binary.BigEndian.AppendUint16(nil, uint16(len(addresses)))) + string(addresses)
}

// from connects from an address of this machine, and sends a header and then a request, with or without TLS. It
// returns all that it receives.
func (e edge) from(t *testing.T, source string, secure bool, header string) string {
	t.Helper()
	address := e.http
	if secure {
		address = e.https
	}
	c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(deadline)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, header); err != nil {
		t.Fatal(err)
	}
	if secure {
		c = tls.Client(c, &tls.Config{InsecureSkipVerify: true})
	}
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n"); err != nil {
		return err.Error()
	}
	text, err := io.ReadAll(c)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Connections from trusted addresses have to begin with a header of the PROXY protocol, which is believed.
// Connections from others must not. The list is longer than a line of HAProxy may be.
func TestProxyProtocol(t *testing.T) {
	t.Parallel()
	trusted := make([]string, 0, 100)
	for i := range 99 {
		trusted = append(trusted, fmt.Sprintf("10.0.%d.0/24", i))
	}
	trusted = append(trusted, "127.0.9.0/24")
	open := ingress{rules: []string{"shop.example P / mirror"}}
	e := startWith(t, serviceYAML("shop", "mirror", mirror(t, "mirror", nil))+open.yaml(), func(c *config.Config) { c.ProxyProtocol.Trusted = trusted })
	clean(t, e)
	for _, secure := range []bool{false, true} {
		for name, c := range map[string]struct {
			source, header string
			want           string // "" if there is no answer
		}{
			"version 1":            {"127.0.9.1", proxyV1(), `"X-Forwarded-For":["` + proxyClient + `"]`},
			"version 2":            {"127.0.9.1", proxyV2(), `"X-Forwarded-For":["` + proxyClient + `"]`},
			"direct":               {"127.0.8.1", "", `"X-Forwarded-For":["127.0.8.1"]`},
			"trusted, but without": {"127.0.9.1", "", ""},
			"not trusted":          {"127.0.8.1", proxyV1(), ""},
		} {
			t.Run(fmt.Sprintf("%s %v", name, secure), func(t *testing.T) {
				t.Parallel()
				got := e.from(t, c.source, secure, c.header)
				served := strings.Contains(got, "200 OK")
				if c.want == "" && served || c.want != "" && !strings.Contains(got, c.want) {
					t.Errorf("want %q, got %s", c.want, got)
				}
			})
		}
	}
}

// Lists of networks apply to the client's address, not to the proxy's.
func TestProxyProtocolAndAllowList(t *testing.T) {
	t.Parallel()
	i := optioned("a", "allow-list", proxyClient)
	i.rules = []string{"shop.example P / a"}
	e := startWith(t, common(t)+i.yaml(), func(c *config.Config) { c.ProxyProtocol.Trusted = []string{"127.0.9.1"} })
	for header, want := range map[string]string{
		proxyV1(): "HTTP/1.1 200",
		strings.Replace(proxyV1(), proxyClient, "203.0.113.8", 1): "HTTP/1.1 403",
	} {
		if got := e.from(t, "127.0.9.1", false, header); !strings.HasPrefix(got, want) {
			t.Errorf("%q: %s, want %s", header, got, want)
		}
	}
	if got := e.from(t, "127.0.8.1", false, ""); !strings.HasPrefix(got, "HTTP/1.1 403") {
		t.Errorf("direct: %s, want 403", got)
	}
}

// HAProxy accepts the example of docs/reference/configuration.md without a warning.
func TestConfigurationExample(t *testing.T) {
	t.Parallel()
	cfg, _, found, err := config.Read("../config/testdata/example.yaml")
	if err != nil || len(found) > 0 {
		t.Fatal(err, found)
	}
	i := ingress{class: cfg.IngressClass, rules: []string{"shop.example P / a"}}
	result, _ := compile(t, common(t)+i.yaml(), cfg)
	if len(result.Diagnostics) > 0 {
		t.Error(result.Diagnostics)
	}
}
