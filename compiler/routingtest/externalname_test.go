package routingtest

import (
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
)

// externalService returns a Service of type ExternalName and an Ingress for NAME.example. ports is YAML, and
// port is the one in the Ingress.
func externalService(name, externalName, ports, port string, options ...string) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: Service\nmetadata: {namespace: shop, name: %s}\nspec: {type: ExternalName, externalName: %q, ports: [%s]}\n",
		name, externalName, ports) +
		ingress{name: name, annotations: annotated(options...), rules: []string{name + ".example P / " + name + ":" + port}}.yaml()
}

// twins starts two echo servers at the same port of two addresses.
func twins(t *testing.T, names [2]string) (addresses [2]string, port int) {
	t.Helper()
	var listeners [2]net.Listener
	await(t, func() (err error) {
		net3 := fmt.Sprintf("127.%d.%d.", 1+rand.IntN(254), rand.IntN(256))
		addresses = [2]string{net3 + "1", net3 + "2"}
		if listeners[0], err = net.Listen("tcp", addresses[0]+":0"); err != nil {
			return err
		}
		port = listeners[0].Addr().(*net.TCPAddr).Port
		if listeners[1], err = net.Listen("tcp", fmt.Sprint(addresses[1], ":", port)); err != nil {
			listeners[0].Close()
		}
		return err
	})
	for i, l := range listeners {
		s := &httptest.Server{Listener: l, Config: &http.Server{
			Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Echo", names[i]) }),
		}}
		s.Start()
		t.Cleanup(s.Close)
	}
	return addresses, port
}

// becomes waits until a host gets the expected answer.
func becomes(t *testing.T, e edge, host, want string) {
	t.Helper()
	await(t, func() error {
		if got := e.http11(t, "GET", host, "/"); got != want {
			return fmt.Errorf("%s: %s, want %s", host, got, want)
		}
		return nil
	})
}

// HAProxy resolves the name and follows changes of its address. The routes of a name that does not exist answer
// 503, and no others do.
func TestRow66ExternalName(t *testing.T) {
	t.Parallel()
	addresses, port := twins(t, [2]string{"one", "two"})
	dns := newNameserver(t)
	dns.set("web.partner.test", addresses[0])
	dns.set("fixed.partner.test", addresses[1])
	yaml := common(t) + ingress{name: "other", rules: []string{"other.example P / a"}}.yaml() +
		externalService("moving", "web.partner.test", "", fmt.Sprint(port)) +
		externalService("listed", "FIXED.partner.test.", fmt.Sprintf("{name: http, port: 80, targetPort: %d}", port), "http") +
		externalService("number", "fixed.partner.test", fmt.Sprintf("{name: http, port: %d}, {name: more, port: 81}", port), fmt.Sprint(port)) +
		externalService("optioned", "fixed.partner.test", "", fmt.Sprint(port), "rewrite-host", "web.partner.test") +
		externalService("gone", "gone.partner.test", "", fmt.Sprint(port))
	e := startWith(t, yaml, func(c *config.Config) {
		c.DNS.Nameservers = []string{dns.address}
		c.DNS.Refresh = "100ms"
		c.ExternalNames.Domains = []string{"*.partner.test"} // which may lead to this machine
	})
	clean(t, e)
	for host, want := range map[string]string{"moving": "one", "listed": "two", "number": "two", "optioned": "two"} {
		becomes(t, e, host+".example", want)
	}
	await(t, func() error { return dns.wasAsked("gone.partner.test") })
	answers(t, e, map[string]string{"gone.example/": "503", "other.example/": "a"})
	dns.set("web.partner.test", addresses[1])
	becomes(t, e, "moving.example", "two")
	dns.set("gone.partner.test", addresses[0])
	becomes(t, e, "gone.example", "one")
}

// A name of a tenant may lead to the machine itself or to a metadata service, whenever its name server likes. Nobody gets
// an answer from there, unless an administrator has listed the name.
func TestRow66AddressesOfTheMachine(t *testing.T) {
	t.Parallel()
	addresses, port := twins(t, [2]string{"secret", "other"})
	dns := newNameserver(t)
	dns.set("web.partner.test", addresses[0])
	yaml := externalService("web", "web.partner.test", "", fmt.Sprint(port)) +
		externalService("tunnel", "web.partner.test", "", fmt.Sprint(port), "ssl-passthrough", "true")
	for name, listed := range map[string]bool{"any name": false, "a listed name": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := startWith(t, yaml, func(c *config.Config) {
				c.DNS.Nameservers, c.DNS.Refresh = []string{dns.address}, "100ms"
				if listed {
					c.ExternalNames.Domains = []string{"*.partner.test"}
				}
			})
			clean(t, e)
			want, said := "no address of this name may be reached", "EOF"
			if listed { // the server answers the client's hello by HTTP
				want, said = "", "first record does not look like a TLS handshake"
			}
			await(t, func() error {
				if got := e.get(t, "web.example", "/"); got.body != want || (got.Header.Get("X-Echo") == "secret") != listed {
					return fmt.Errorf("%s %q, want %q", got.Status, got.body, want)
				}
				return nil
			})
			await(t, func() error {
				c := tls.Client(dial(t, "127.0.0.1", e.https, ""), &tls.Config{ServerName: "tunnel.example", InsecureSkipVerify: true})
				if err := c.HandshakeContext(t.Context()); err == nil || !strings.Contains(err.Error(), said) {
					return fmt.Errorf("%v, want %s", err, said)
				}
				return nil
			})
		})
	}
}

// Without a name server that answers, HAProxy starts as usual, and serves the rest.
func TestRow66NoNameserver(t *testing.T) {
	t.Parallel()
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	yaml := common(t) + ingress{name: "other", rules: []string{"other.example P / a"}}.yaml() + externalService("web", "web.partner.test", "", "80")
	for name, nameservers := range map[string][]string{"silent": {silent.LocalAddr().String()}, "of_the_machine": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := startWith(t, yaml, func(c *config.Config) { c.DNS.Nameservers = nameservers })
			answers(t, e, map[string]string{"web.example/": "503", "other.example/": "a"})
		})
	}
}

func TestRow66Refused(t *testing.T) {
	t.Parallel()
	yaml := common(t) + ingress{name: "other", rules: []string{"other.example P / a"}}.yaml() +
		externalService("web", "web.partner.test", "", "80") + externalService("local", "localhost", "", "80") +
		externalService("portless", "web.partner.test", "", "http")
	for name, c := range map[string]struct {
		rule    config.ExternalNames
		refused string
	}{
		"policy":   {config.ExternalNames{Policy: config.RefuseExternalNames}, "web local portless"},
		"domain":   {config.ExternalNames{Policy: config.AllowExternalNames, Domains: []string{"*.other.test"}}, "web local portless"},
		"internal": {config.ExternalNames{Policy: config.AllowExternalNames}, "local portless"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := startWith(t, yaml, func(cfg *config.Config) { cfg.ExternalNames = c.rule })
			answers(t, e, map[string]string{"web.example/": "503", "local.example/": "503", "portless.example/": "503", "other.example/": "a"})
			for name := range strings.FieldsSeq(c.refused) {
				reportedOn(t, e, diag.Object{Kind: "Ingress", Namespace: "shop", Name: name})
			}
			if got, want := len(e.result.Diagnostics), len(strings.Fields(c.refused)); got != want {
				t.Errorf("%d diagnostics, want %d: %v", got, want, e.result.Diagnostics)
			}
		})
	}
}

// nameserver is a DNS server at a loopback address. It knows IPv4 addresses, and answers every other question
// with NXDOMAIN.
type nameserver struct {
	address string

	mu    sync.Mutex
	names map[string]netip.Addr
	asked map[string]int // the number of questions for each name
}

// newNameserver starts a name server, which ends with the test.
func newNameserver(t *testing.T) *nameserver {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	n := &nameserver{address: c.LocalAddr().String(), names: map[string]netip.Addr{}, asked: map[string]int{}}
	go n.serve(c)
	return n
}

// set sets the address of a name.
func (n *nameserver) set(name, address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.names[name+"."] = netip.MustParseAddr(address)
}

// wasAsked returns an error until the server was asked for the name.
func (n *nameserver) wasAsked(name string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.asked[name+"."] == 0 {
		return fmt.Errorf("nobody asks for %s", name)
	}
	return nil
}

func (n *nameserver) serve(c net.PacketConn) {
	question := make([]byte, 4096)
	for {
		size, from, err := c.ReadFrom(question)
		if err != nil {
			return // the test is over
		}
		if answer, err := n.answer(question[:size]); err == nil {
			_, _ = c.WriteTo(answer, from) // the client repeats a question without an answer
		}
	}
}

func (n *nameserver) answer(question []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(question); err != nil || len(m.Questions) != 1 {
		return nil, fmt.Errorf("not a question: %w", err)
	}
	q := m.Questions[0]
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked[q.Name.String()]++
	reply := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: m.ID, Response: true, Authoritative: true, RecursionAvailable: true, RecursionDesired: true},
		Questions: m.Questions,
	}
	address, known := n.names[q.Name.String()]
	switch {
	case !known:
		reply.RCode = dnsmessage.RCodeNameError
	case q.Type == dnsmessage.TypeA:
		reply.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1},
			Body:   &dnsmessage.AResource{A: address.As4()},
		}}
	}
	return reply.Pack()
}
