package routingtest

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/config/logs"
)

// syslogServer starts a server for syslog messages over UDP.
func syslogServer(t *testing.T) net.PacketConn {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// logged returns the first message that contains a text.
func logged(t *testing.T, c net.PacketConn, text string) string {
	t.Helper()
	messages := loggedUntil(t, c, text)
	return messages[len(messages)-1]
}

// loggedUntil returns the messages up to the first one that contains a text.
func loggedUntil(t *testing.T, c net.PacketConn, text string) (messages []string) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(deadline)); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 65536)
	for {
		n, _, err := c.ReadFrom(buffer)
		if err != nil {
			t.Fatalf("no message with %q: %v", text, err)
		}
		messages = append(messages, string(buffer[:n]))
		if strings.Contains(messages[len(messages)-1], text) {
			return messages
		}
	}
}

// Requests are logged with level info. With a higher level, only messages about servers are logged.
func TestLogLevel(t *testing.T) {
	t.Parallel()
	for level, requests := range map[string]bool{"info": true, "notice": false} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			server := syslogServer(t)
			a := startArranged(t, common(t)+ingress{rules: []string{"shop.example P / a"}}.yaml(), asTheyAre, func(c *config.Config) {
				c.Log.Target, c.Log.Level = server.LocalAddr().String(), logs.Level(level)
			})
			clean(t, a.edge)
			a.get(t, "shop.example", "/marked")
			if requests {
				logged(t, server, "/marked")
			}
			a.runtime(t, fmt.Sprintf("disable server %s/%s", a.servers[0].Backend, a.servers[0].Name))
			messages := loggedUntil(t, server, "going DOWN for maintenance")
			if strings.Contains(strings.Join(messages, "\n"), "/marked") {
				t.Errorf("the request was logged at another time, or level: %q", messages)
			}
		})
	}
}

func TestLogGoesToSyslog(t *testing.T) {
	t.Parallel()
	i := ingress{rules: []string{"shop.example P / a"}}
	for name, c := range map[string]struct {
		edit       func(*logs.Log)
		find, want string // what the message that contains find has to contain
	}{
		"as it is": {func(*logs.Log) {}, "/marked", "<134>1 "},
		"facility": {func(l *logs.Log) { l.Facility = "daemon" }, "/marked", "<30>1 "},
		"rfc3164":  {func(l *logs.Log) { l.Syslog = logs.RFC3164 }, "/marked", "<134>" + time.Now().UTC().Format("Jan")},
		"format":   {func(l *logs.Log) { l.Format = `it's %ST "%HM" %HP` }, "/marked", `it's 200 "GET" /marked`},
		"cut":      {func(l *logs.Log) { l.MaxLength, l.Format = 200, "%HP" }, "/marked", "/marked"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := syslogServer(t)
			e := startWith(t, common(t)+i.yaml(), func(cfg *config.Config) {
				cfg.Log.Target = server.LocalAddr().String()
				c.edit(&cfg.Log)
			})
			clean(t, e)
			e.get(t, "shop.example", "/marked"+strings.Repeat("x", 300))
			got := logged(t, server, c.find)
			if !strings.Contains(got, c.want) || strings.HasPrefix(c.want, "<") && !strings.HasPrefix(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if name == "cut" && len(strings.TrimSpace(got)) > 200 {
				t.Errorf("a message of %d bytes was not cut", len(got))
			}
		})
	}
}

// Every line is a JSON object, whatever a client sends.
func TestLogInJSON(t *testing.T) {
	t.Parallel()
	server := syslogServer(t)
	i := ingress{rules: []string{"shop.example P / a"}}
	e := startWith(t, common(t)+i.yaml(), func(cfg *config.Config) { cfg.Log.Target, cfg.Log.Format = server.LocalAddr().String(), logs.JSON })
	clean(t, e)
	long := strings.Repeat(`"`, 4000)
	for _, c := range []struct {
		request string
		want    map[string]any
	}{
		{"GET /one?x=1 HTTP/1.1\nHost: Shop.example", map[string]any{"uri": "/one?x=1", "host": "shop.example", "method": "GET", "status": 200.0, "backend": "shop_a_80", "frontend": "http", "version": "HTTP/1.1"}},
		{`GET /"\two\"}{ HTTP/1.1` + "\nHost: x\"}.example", map[string]any{"uri": `/"\two\"}{`, "status": 404.0, "host": `x"}.example`, "server": "<NOSRV>"}},
		{"GET /" + long + " HTTP/1.1\nHost: shop.example", map[string]any{"uri": ("GET /" + long)[4:1023], "status": 200.0}},
		{"not HTTP at all", map[string]any{"status": 400.0, "termination": "PR"}},
	} {
		e.send(t, false, c.request)
		message := logged(t, server, "{")
		got := object(t, message)
		for key, want := range c.want {
			if got[key] != want {
				t.Errorf("%s: %.1100q, want %.1100q, in %.99s", key, got[key], want, message)
			}
		}
		if age := time.Since(time.UnixMilli(int64(got["time"].(float64) * 1000))); age < -time.Second || age > deadline {
			t.Errorf("time %v is %s ago", got["time"], age)
		}
	}
}

// The lines about TCP connections and about failed handshakes are JSON objects too.
func TestLogOfConnectionsInJSON(t *testing.T) {
	t.Parallel()
	server := syslogServer(t)
	var port int
	e := startWith(t, serviceYAML("shop", "a", echo(t, "a")), func(cfg *config.Config) {
		cfg.Log.Target, cfg.Log.Format = server.LocalAddr().String(), logs.JSON
		port = freePort(t, cfg.Bind.Addresses[0])
		cfg.TCPServices = []config.TCPService{{Port: port, Service: "shop/a:80"}}
	})
	clean(t, e)
	host, _, err := net.SplitHostPort(e.http)
	if err != nil {
		t.Fatal(err)
	}
	raw(t, net.JoinHostPort(host, strconv.Itoa(port)), "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	got := object(t, logged(t, server, `"time_total"`))
	if got["host"] != "-" || got["backend"] == "" || got["server"] != "s1" || got["bytes_sent"].(float64) < 17 {
		t.Errorf("a connection is logged as %v", got)
	}
	if _, err := e.handshake(t, only(tls.VersionTLS11)); err == nil {
		t.Fatal("TLS 1.1 was accepted")
	}
	got = object(t, logged(t, server, `"error"`))
	if got["error"] != "SSL handshake failure" || got["frontend"] != "https" || !strings.Contains(got["tls_error"].(string), "unsupported protocol") {
		t.Errorf("a failed handshake is logged as %v", got)
	}
	if got["status"].(float64) > 0 {
		t.Errorf("a failed handshake has a status: %v", got)
	}
}

// object decodes the JSON object at the end of a message.
func object(t *testing.T, message string) map[string]any {
	t.Helper()
	var got map[string]any
	if err := json.Unmarshal([]byte(message[strings.IndexByte(message, '{'):]), &got); err != nil {
		t.Fatalf("%v: %s", err, message)
	}
	return got
}

// Without a log, the configuration has no lines about logs of which HAProxy would warn.
func TestLogNowhere(t *testing.T) {
	t.Parallel()
	cfg := config.Default()
	cfg.Log.Target = logs.Nowhere
	cfg.TCPServices = []config.TCPService{{Port: 5432, Service: "shop/a:80"}, {Port: 5433, Service: "shop/b:80", SNI: []string{"b.example"}}}
	i := optioned("a", "backend-protocol", "fcgi", "fcgi-root", "/srv")
	result, _ := compile(t, common(t)+i.yaml(), cfg)
	if len(result.Diagnostics) > 0 {
		t.Error(result.Diagnostics)
	}
}
