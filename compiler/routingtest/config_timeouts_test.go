package routingtest

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/compiler/config"
)

// dial connects in the clear and writes.
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

// Each timeout ends what it is for. All others are far beyond the test's
// deadline.
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

// HAProxy says of itself how many threads and connections it may have.
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
