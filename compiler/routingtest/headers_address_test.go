package routingtest

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/config"
)

// told returns a Service whose endpoint gets the PROXY protocol, and an Ingress for its whole host with an
// allow-list.
func told(t *testing.T, port int, allowed string) string {
	t.Helper()
	service := strings.Replace(serviceYAML("shop", "a", port), "metadata: {namespace: shop, name: a}",
		`metadata: {namespace: shop, name: a, annotations: {hapsnap.dev/send-proxy-protocol: v1}}`, 1)
	i := optioned("shop", "allow-list", allowed)
	return service + i.yaml()
}

// If HAProxy listens at ::, clients with IPv4 still have IPv4 addresses in headers, in the PROXY protocol, in
// logs and in lists of networks.
func TestBothFamilies(t *testing.T) {
	t.Parallel()
	if c, err := net.Listen("tcp", "[::1]:0"); err != nil {
		t.Skip("no IPv6 here")
	} else {
		c.Close()
	}
	log := syslogServer(t)
	tcp := lineServer(t, "line", proxied)
	var open int
	e := startEdited(t, func(c *config.Config) string {
		open = freePort(t, "127.0.0.1")
		c.Bind.Addresses = []string{"::"}
		c.Log.Target = log.LocalAddr().String()
		c.TCPServices = []config.TCPService{{Port: open, Service: "shop/line:80", SendProxyProtocol: 1}}
		return told(t, bare(t), "127.0.7.7, ::1") + serviceYAML("shop", "line", tcp)
	})
	clean(t, e)
	_, port, err := net.SplitHostPort(e.http)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ from, to, family string }{{"127.0.7.7", e.http, "TCP4"}, {"::1", "[::1]:" + port, "TCP6"}} {
		status, head, err := send11(dial(t, c.from, c.to, ""), "shop.example", []field{{"X-Request-ID", "7"}})
		if err != nil || status != "200" {
			t.Fatal(c.from, status, err)
		}
		if got := valuesOf(head, "X-Forwarded-For") + " " + valuesOf(head, "X-Real-IP"); got != c.from+" "+c.from {
			t.Errorf("from %s: the endpoint got %s", c.from, got)
		}
		if !strings.HasPrefix(head, "PROXY "+c.family+" "+c.from+" ") {
			t.Errorf("from %s: the endpoint got %q", c.from, head)
		}
		if line := logged(t, log, "shop_a_80"); !strings.Contains(line, " "+c.from+":") {
			t.Errorf("from %s: logged %q", c.from, line)
		}
	}
	if status, _, err := send11(dial(t, "127.0.8.8", e.http, ""), "shop.example", nil); status != "403" || err != nil {
		t.Errorf("from elsewhere: %s, %v", status, err)
	}
	if got := lines(dialFrom(t, "127.0.7.7", fmt.Sprint("127.0.0.1:", open)), 2); got != "v1 127.0.7.7 line" {
		t.Errorf("TCP service: %s", got)
	}
}

// It makes no difference if a proxy writes IPv4 addresses as IPv6 ones.
func TestMappedAddresses(t *testing.T) {
	t.Parallel()
	log := syslogServer(t)
	tcp := lineServer(t, "line", proxied)
	var open int
	e := startEdited(t, func(c *config.Config) string {
		open = freePort(t, c.Bind.Addresses[0])
		c.ProxyProtocol.Trusted = []string{"127.0.9.9"}
		c.Forwarded.Policy, c.Forwarded.Trusted = config.AppendForwarded, []string{"203.0.113.0/24"}
		c.Log.Target = log.LocalAddr().String()
		c.TCPServices = []config.TCPService{{
			Port: open, Service: "shop/line:80", SendProxyProtocol: 1, ProxyProtocol: config.ProxyProtocol{Trusted: []string{"127.0.9.9"}},
		}}
		return told(t, bare(t), "203.0.113.7") + serviceYAML("shop", "line", tcp)
	})
	clean(t, e)
	const header = "PROXY TCP6 ::ffff:203.0.113.7 ::ffff:192.0.2.1 4000 80\r\n"
	for _, protocol := range []string{"", "http/1.1"} {
		address := e.http
		if protocol != "" {
			address = e.https
		}
		c := dial(t, "127.0.9.9", address, "")
		if _, err := io.WriteString(c, header); err != nil {
			t.Fatal(err)
		}
		if protocol != "" {
			c = overTLS11(c)
		}
		status, head, err := send11(c, "shop.example", []field{{"X-Forwarded-For", "198.51.100.7"}})
		if err != nil || status != "200" {
			t.Fatal(status, err)
		}
		if got := valuesOf(head, "X-Forwarded-For") + " " + valuesOf(head, "X-Real-IP"); got != "198.51.100.7, 203.0.113.7 198.51.100.7" {
			t.Errorf("the endpoint got %s", got)
		}
		if !strings.HasPrefix(head, "PROXY TCP4 203.0.113.7 ") {
			t.Errorf("the endpoint got %q", head)
		}
		if line := logged(t, log, "shop_a_80"); !strings.Contains(line, " 203.0.113.7:4000 ") {
			t.Errorf("logged %q", line)
		}
	}
	c := dialFrom(t, "127.0.9.9", strings.Split(e.http, ":")[0]+fmt.Sprint(":", open))
	if _, err := io.WriteString(c, header); err != nil {
		t.Fatal(err)
	}
	if got := lines(c, 2); got != "v1 203.0.113.7 line" {
		t.Errorf("TCP service: %s", got)
	}
}

// The client's address comes from the header of a trusted proxy, for lists of networks, logs and endpoints. It
// applies only to the request with the header.
func TestClientAddressInHeader(t *testing.T) {
	t.Parallel()
	log := syslogServer(t)
	e := startWith(t, told(t, bare(t), "198.51.100.0/24"), func(c *config.Config) {
		c.Forwarded = config.Forwarded{Policy: config.AppendForwarded, Trusted: []string{"127.0.9.0/24"}, ClientAddress: config.AddressInHeader}
		c.Log.Target = log.LocalAddr().String()
	})
	clean(t, e)
	trusted, other := dial(t, trustedProxy, e.http, ""), dial(t, "127.0.8.8", e.http, "")
	for _, c := range []struct {
		from   net.Conn
		header string
		want   string // the status, and the addresses that the endpoint got
	}{
		{trusted, "198.51.100.7", "200 198.51.100.7, " + trustedProxy + " | 198.51.100.7"},
		{trusted, "198.51.100.7, 203.0.113.7", "403  | "}, // the client sent the first address
		{trusted, "203.0.113.7, 198.51.100.8", "200 203.0.113.7, 198.51.100.8, " + trustedProxy + " | 198.51.100.8"},
		{trusted, "198.51.100.7, 127.0.9.1, 127.0.9.2", "200 198.51.100.7, 127.0.9.1, 127.0.9.2, " + trustedProxy + " | 198.51.100.7"},
		{trusted, "198.51.100.7:80, 127.0.9.1:80", "200 198.51.100.7:80, 127.0.9.1:80, " + trustedProxy + " | 198.51.100.7"},
		{trusted, "198.51.100.7, evil", "403  | "},
		{trusted, "", "403  | "},
		{trusted, "198.51.100.7", "200 198.51.100.7, " + trustedProxy + " | 198.51.100.7"},
		{other, "198.51.100.7", "403  | "},
	} {
		var send []field
		if c.header != "" {
			send = []field{{"X-Forwarded-For", c.header}}
		}
		status, head, err := send11(c.from, "shop.example", send)
		got := fmt.Sprintf("%s %s | %s", status, valuesOf(head, "X-Forwarded-For"), valuesOf(head, "X-Real-IP"))
		if err != nil || got != c.want {
			t.Errorf("%q: %s, %v, want %s", c.header, got, err, c.want)
		}
		line := logged(t, log, "shop_a_80")
		if address := valuesOf(head, "X-Real-IP"); status == "200" && (!strings.Contains(line, " "+address+":") || strings.HasPrefix(head, "PROXY") != strings.HasPrefix(head, "PROXY TCP4 "+address+" ")) {
			t.Errorf("%q: logged %q, the endpoint got %q", c.header, line, head)
		}
	}
}

// A request that a trusted proxy received over TLS is not redirected to HTTPS again. It has no client
// certificate here.
func TestSecureAtTheProxy(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "clients")
	closed := optioned("closed", "ssl-redirect", "true", "client-ca-secret", "client-ca")
	e := startWith(t, serviceYAML("shop", "a", bare(t))+authoritySecret("client-ca", ca.pem)+
		all([]ingress{optioned("open", "ssl-redirect", "true", "hsts", "300"), closed}), func(c *config.Config) {
		c.Forwarded.Policy, c.Forwarded.Trusted = config.AppendForwarded, []string{"127.0.9.0/24"}
	})
	clean(t, e)
	for _, c := range []struct{ from, host, proto, want string }{
		{trustedProxy, "open.example", "https", "200"},
		{trustedProxy, "open.example", "http", "308"},
		{trustedProxy, "open.example", "", "308"},
		{"127.0.8.8", "open.example", "https", "308"},
		{trustedProxy, "closed.example", "https", "403"},
		{trustedProxy, "closed.example", "http", "308"},
		{"127.0.8.8", "closed.example", "https", "308"},
	} {
		var send []field
		if c.proto != "" {
			send = []field{{"X-Forwarded-Proto", c.proto}}
		}
		if status, head, err := send11(dial(t, c.from, e.http, ""), c.host, send); status != c.want || err != nil {
			t.Errorf("%+v: %s %q %v", c, status, head, err)
		}
	}
}

// ownAddress returns a loopback address for one HAProxy. Two HAProxies may listen at the same address and port,
// and then either of them would answer.
func ownAddress() string {
	return fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
}

// given has the ports that freePort returned.
var given sync.Map

// freePort returns an unused port of an address. No earlier call returned it, and the kernel does not give it
// to clients.
func freePort(tb testing.TB, ip string) int {
	tb.Helper()
	var last error
	for range 1000 {
		port := 10000 + rand.IntN(20000)
		if _, taken := given.LoadOrStore(port, true); taken {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprint(ip, ":", port))
		if err != nil {
			last = err
			continue
		}
		l.Close()
		return port
	}
	tb.Fatalf("no port of %s is free: %v", ip, last)
	return 0
}
