package routingtest

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
)

// lineServer starts a server that greets each connection with its name, then echoes, and returns its port. wrap
// can change the connection first.
func lineServer(t *testing.T, name string, wrap func(net.Conn) net.Conn) int {
	t.Helper()
	return rawServer(t, func(c net.Conn) {
		defer c.Close()
		if wrap != nil {
			c = wrap(c)
		}
		fmt.Fprintf(c, "%s\n", name)
		_, _ = io.Copy(c, c) // until one side closes the connection
	})
}

// tlsLine starts a lineServer with TLS and a certificate for its name.
func tlsLine(t *testing.T, name string) int {
	t.Helper()
	certificate, key := keyPair(t, name)
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	cfg := &tls.Config{Certificates: []tls.Certificate{pair}}
	return lineServer(t, name, func(c net.Conn) net.Conn { return tls.Server(c, cfg) })
}

// proxied reads the header of the PROXY protocol, and first sends its version and the address in it to the
// client.
func proxied(c net.Conn) net.Conn {
	r := bufio.NewReader(c)
	if begin, err := r.Peek(5); err != nil {
		return c
	} else if string(begin) == "PROXY" {
		line, _ := r.ReadString('\n')
		fmt.Fprintf(c, "v1 %s\n", strings.Fields(line + " . .")[2])
		return &buffered{c, r}
	}
	head := make([]byte, 16)
	if _, err := io.ReadFull(r, head); err != nil {
		return c
	}
	rest := make([]byte, int(head[14])<<8|int(head[15]))
	if _, err := io.ReadFull(r, rest); err == nil && len(rest) >= 4 { // a health check has no address
		fmt.Fprintf(c, "v2 %s\n", net.IP(rest[:4]))
	}
	return &buffered{c, r}
}

// buffered is a connection with data that was read ahead.
type buffered struct {
	net.Conn
	r *bufio.Reader
}

func (b *buffered) Read(p []byte) (int, error) { return b.r.Read(p) }

// dialFrom connects from a loopback address. It repeats failed attempts, since HAProxy opens its ports one
// after the other.
func dialFrom(t *testing.T, source, address string) net.Conn {
	t.Helper()
	var c net.Conn
	await(t, func() (err error) {
		c, err = (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}).DialContext(t.Context(), "tcp", address)
		return err
	})
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(deadline)); err != nil {
		t.Fatal(err)
	}
	return c
}

// lines reads n lines of a connection, and then sends one and reads it back. "closed" is the end of the
// connection.
func lines(c net.Conn, n int) string {
	r := bufio.NewReader(c)
	var out []string
	for range n {
		line, err := r.ReadString('\n')
		if err != nil {
			return strings.Join(append(out, "closed"), " ")
		}
		out = append(out, strings.TrimSpace(line))
	}
	fmt.Fprintln(c, "ping")
	if line, err := r.ReadString('\n'); err != nil || line != "ping\n" {
		return fmt.Sprintf("%q, %v instead of ping", line, err)
	}
	return strings.Join(out, " ")
}

// askTLS begins TLS with a host as SNI. It trusts roots, or any certificate if roots is nil.
func askTLS(c net.Conn, host string, roots *x509.CertPool) net.Conn {
	return tls.Client(c, &tls.Config{ServerName: host, RootCAs: roots, InsecureSkipVerify: roots == nil})
}

// pool returns a pool that trusts these certificates.
func pool(t *testing.T, certificates ...[]byte) *x509.CertPool {
	t.Helper()
	out := x509.NewCertPool()
	for _, c := range certificates {
		if !out.AppendCertsFromPEM(c) {
			t.Fatal("no certificate")
		}
	}
	return out
}

// tcpService returns a Service with annotations and one endpoint.
func tcpService(name string, port int, options ...string) string {
	yaml := serviceYAML("shop", name, port)
	return strings.Replace(yaml, fmt.Sprintf("metadata: {namespace: shop, name: %s}\nspec", name),
		fmt.Sprintf("metadata:\n  namespace: shop\n  name: %s\n  annotations:\n    %s\nspec", name, annotated(options...)), 1)
}

// startTCP starts HAProxy with n more ports, which annotations may open too.
func startTCP(t *testing.T, n int, build func(ports []int) (yaml string, services []config.TCPService)) (e edge, addresses []string) {
	t.Helper()
	var ports []int
	ip := ""
	e = startEdited(t, func(cfg *config.Config) string {
		ip = cfg.Bind.Addresses[0]
		for range n {
			p := freePort(t, ip)
			ports = append(ports, p)
			cfg.TCPAnnotations.Ports = append(cfg.TCPAnnotations.Ports, fmt.Sprint(p))
		}
		yaml, services := build(ports)
		cfg.TCPServices = services
		return yaml
	})
	for _, p := range ports {
		addresses = append(addresses, fmt.Sprint(ip, ":", p))
	}
	return e, addresses
}

func TestTCPServices(t *testing.T) {
	t.Parallel()
	plain, behind1, behind2 := lineServer(t, "plain", nil), lineServer(t, "v1", proxied), lineServer(t, "v2", proxied)
	e, at := startTCP(t, 5, func(ports []int) (string, []config.TCPService) {
		return tcpService("plain", plain, "tcp-port", fmt.Sprint(ports[0], ", ", ports[1], ":80")) +
				tcpService("v1", behind1, "tcp-port", fmt.Sprint(ports[2]), "send-proxy-protocol", "v1", "tcp-proxy-protocol", "127.0.0.8") +
				serviceYAML("shop", "v2", behind2), []config.TCPService{
				{Port: ports[3], Service: "shop/v2:80", SendProxyProtocol: 2, ProxyProtocol: config.ProxyProtocol{Trusted: []string{"127.0.0.9"}}},
				{Port: ports[4], Service: "shop/plain:80"},
			}
	})
	clean(t, e)
	for _, c := range []struct {
		name, source, address, send string
		lines                       int
		want                        string
	}{
		{"plain", "127.0.0.7", at[0], "", 1, "plain"},
		{"second port", "127.0.0.7", at[1], "", 1, "plain"},
		{"by configuration", "127.0.0.7", at[4], "", 1, "plain"},
		{"client's address, v1", "127.0.0.7", at[2], "", 2, "v1 127.0.0.7 v1"},
		{"header of a sender that the annotation trusts", "127.0.0.8", at[2], "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n", 2, "v1 192.0.2.1 v1"},
		{"client's address, v2", "127.0.0.7", at[3], "", 2, "v2 127.0.0.7 v2"},
		{"header of a trusted sender, v1", "127.0.0.9", at[3], "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n", 2, "v2 192.0.2.1 v2"},
		{"header of a trusted sender, v2", "127.0.0.9", at[3], "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\xc0\x00\x02\x03\xc0\x00\x02\x02\x00\x01\x00\x02", 2, "v2 192.0.2.3 v2"},
		{"no header of a trusted sender", "127.0.0.9", at[3], "hello\r\n", 2, "closed"},
		{"header of another", "127.0.0.7", at[3], "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n", 2, `"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n", <nil> instead of ping`},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := dialFrom(t, c.source, c.address)
			if _, err := io.WriteString(conn, c.send); err != nil {
				t.Fatal(err)
			}
			if got := lines(conn, c.lines); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// Connections at one port go to several Services by SNI, with TLS that HAProxy terminates or passes on.
func TestTCPServicesBySNI(t *testing.T) {
	t.Parallel()
	inside, wild, ended, rest := tlsLine(t, "inside"), tlsLine(t, "wild"), lineServer(t, "ended", nil), lineServer(t, "rest", nil)
	certificate, key := hostKeyPair(t, "ended.example")
	other, otherKey := hostKeyPair(t, "rest.example")
	e, at := startTCP(t, 4, func(ports []int) (string, []config.TCPService) {
		mixed, terminated, passed, refusing := fmt.Sprint(ports[0]), fmt.Sprint(ports[1]), fmt.Sprint(ports[2]), fmt.Sprint(ports[3])
		return secretYAML("ended", certificate, key) + secretYAML("rest", other, otherKey) +
				tcpService("inside", inside, "tcp-port", mixed+","+passed, "tcp-sni", "inside.example") +
				tcpService("wild", wild, "tcp-port", mixed+","+passed, "tcp-sni", "*.wild.example") +
				tcpService("ended", ended, "tcp-port", mixed+","+terminated+","+refusing, "tcp-sni", "ended.example, a.wild.example", "tcp-tls-secret", "ended") +
				tcpService("rest", rest, "tcp-port", mixed), []config.TCPService{
				{Port: ports[1], Service: "shop/rest:80", TLS: config.TCPServiceTLS{Secret: "shop/rest"}},
			}
	})
	roots := pool(t, certificate, other)
	mixed, terminated, passed, refusing := at[0], at[1], at[2], at[3]
	for _, c := range []struct {
		name, address, host string
		verified            bool
		want                string
	}{
		{"passed on", mixed, "inside.example", false, "inside"},
		{"passed on, another case", mixed, "Inside.Example", false, "inside"},
		{"passed on by wildcard", mixed, "b.wild.example", false, "wild"},
		{"a wildcard is one label", mixed, "c.b.wild.example", false, "closed"}, // the Service for other hosts has no TLS
		{"terminated", mixed, "ended.example", true, "ended"},
		{"terminated under a wildcard", mixed, "a.wild.example", false, "ended"},
		{"terminated for one", terminated, "ended.example", true, "ended"},
		{"terminated for the rest", terminated, "rest.example", true, "rest"},
		{"terminated for any host", terminated, "x.example", false, "rest"},
		{"terminated without a host", terminated, "", false, "rest"},
		{"no route", passed, "x.example", false, "closed"},
		{"no route, no host", passed, "", false, "closed"},
		{"strict", refusing, "x.example", false, "closed"},
		{"strict, known", refusing, "ended.example", true, "ended"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var trusted *x509.CertPool
			if c.verified {
				trusted = roots
			}
			got := lines(askTLS(dialFrom(t, "127.0.0.7", c.address), c.host, trusted), 1)
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
	t.Run("no TLS", func(t *testing.T) {
		c := dialFrom(t, "127.0.0.7", mixed)
		fmt.Fprintln(c, "hello")
		if line, err := bufio.NewReader(c).ReadString('\n'); line != "rest\n" {
			t.Errorf("got %q %v, want rest", line, err)
		}
	})
	reportedOnly(t, e, "Service shop/ended: annotation hapsnap.dev/tcp-tls-secret: the certificate in Secret shop/ended is not for host a.wild.example")
}

// reportedOnly fails unless there is a finding and all of them contain the text.
func reportedOnly(t *testing.T, e edge, text string) {
	t.Helper()
	if len(e.result.Diagnostics) == 0 {
		t.Errorf("nothing was said, want %s", text)
	}
	for _, d := range e.result.Diagnostics {
		if !strings.Contains(d.String(), text) {
			t.Errorf("unexpected: %s", d)
		}
	}
}

// A mistake is reported on its object, and affects no other.
func TestTCPServicesRefused(t *testing.T) {
	t.Parallel()
	plain := lineServer(t, "plain", nil)
	e, at := startTCP(t, 8, func(ports []int) (string, []config.TCPService) {
		port := func(i int) string { return fmt.Sprint(ports[i]) }
		aged := func(name string, age int) string {
			return strings.Replace(tcpService(name, plain, "tcp-port", port(0)), "  name: "+name+"\n",
				fmt.Sprintf("  name: %s\n  creationTimestamp: \"2026-01-01T00:00:%02dZ\"\n", name, age), 1)
		}
		return aged("good", 0) + aged("a-young", 1) +
				tcpService("late", plain, "tcp-port", port(1)) +
				tcpService("mine", plain, "tcp-port", "1,443") +
				tcpService("header", plain, "tcp-port", port(2), "balance", "uri") +
				tcpService("limited", plain, "tcp-port", port(3), "rate-limit", "10") +
				tcpService("allowed", plain, "tcp-port", port(4), "allow-list", "127.0.0.7") +
				tcpService("denied", plain, "tcp-port", port(5), "deny-list", "127.0.0.8") +
				tcpService("typo", plain, "tcp-port", port(6), "tcp-sni", "not/a/host"), []config.TCPService{
				{Port: ports[1], Service: "shop/good:80"}, {Port: ports[7], Service: "shop/none:80"},
			}
	})
	for _, c := range []struct{ name, source, address, want string }{
		{"taken by the older", "127.0.0.7", at[0], "plain"},
		{"taken by the configuration", "127.0.0.7", at[1], "plain"},
		{"an option without effect", "127.0.0.7", at[2], "plain"},
		{"protection that looks at requests", "127.0.0.7", at[3], "closed"},
		{"in the allow list", "127.0.0.7", at[4], "plain"},
		{"not in the allow list", "127.0.0.8", at[4], "closed"},
		{"not in the deny list", "127.0.0.7", at[5], "plain"},
		{"in the deny list", "127.0.0.8", at[5], "closed"},
		{"no Service", "127.0.0.7", at[7], "closed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := lines(dialFrom(t, c.source, c.address), 1); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
	if c, err := net.Dial("tcp", at[6]); err == nil {
		c.Close()
		t.Error("a port was opened for a Service whose hosts could not be read")
	}
	for _, name := range []string{"a-young", "late", "mine", "header", "limited", "typo"} {
		reportedOn(t, e, diag.Object{Kind: "Service", Namespace: "shop", Name: name})
	}
}
