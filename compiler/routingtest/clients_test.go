package routingtest

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// A client may have this many requests at a time, and another one when one has ended.
func TestRateLimitConnections(t *testing.T) {
	t.Parallel()
	arrived, leave := make(chan struct{}, 10), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			arrived <- struct{}{}
			<-leave
		}
	}))
	t.Cleanup(s.Close)
	e := start(t, serviceYAML("shop", "a", portOf(s))+all([]ingress{
		optioned("two", "rate-limit-connections", "2", "rate-limit-status", "503"),
		optioned("both", "rate-limit-connections", "1", "rate-limit", "3", "rate-limit-period", "1h", "rate-limit-key", "header X-Key"),
		optioned("exempt", "rate-limit-connections", "1", "rate-limit-exempt", "127.0.0.0/8"),
	}))
	clean(t, e)
	done := make(chan int)
	// wait sends a request until it is allowed: for HAProxy, a request ends later than for its client, and
	// until then HAProxy refuses the next one.
	wait := func(host string, lines ...string) {
		t.Helper()
		await(t, func() error {
			go func() { done <- e.get(t, host, "/wait", lines...).StatusCode }()
			select {
			case <-arrived:
				return nil
			case got := <-done:
				return fmt.Errorf("a request that is allowed gets %d", got)
			}
		})
	}
	wait("two.example")
	if got := e.get(t, "two.example", "/"); got.StatusCode != 200 {
		t.Errorf("the second at a time: %d", got.StatusCode)
	}
	wait("two.example")
	wait("both.example", "X-Key: a")
	wait("exempt.example")
	for host, want := range map[string]int{"two.example": 503, "both.example": 429, "exempt.example": 200} {
		if got := e.get(t, host, "/", "X-Key: a"); got.StatusCode != want {
			t.Errorf("one more of %s: %d, want %d", host, got.StatusCode, want)
		}
	}
	if got := e.get(t, "both.example", "/", "X-Key: b"); got.StatusCode != 200 {
		t.Errorf("another client: %d", got.StatusCode)
	}
	close(leave)
	for range 4 {
		if got := <-done; got != 200 {
			t.Errorf("one that waited: %d", got)
		}
	}
	await(t, func() error {
		if got := e.get(t, "two.example", "/"); got.StatusCode != 200 {
			return fmt.Errorf("when all have ended: %d", got.StatusCode)
		}
		return nil
	})
	e.get(t, "both.example", "/", "X-Key: a")
	if got := e.get(t, "both.example", "/", "X-Key: a"); got.StatusCode != 429 {
		t.Errorf("beyond the rate: %d", got.StatusCode)
	}
}

// named issues a certificate with these attributes as its subject, in this order.
func (a authority) named(t *testing.T, attributes ...pkix.AttributeTypeAndValue) *tls.Certificate {
	t.Helper()
	key := newKey(t, "")
	template := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{ExtraNames: attributes}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func commonName(value any) pkix.AttributeTypeAndValue {
	return pkix.AttributeTypeAndValue{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: value}
}

// The option is compared with the whole common name, and a certificate may only have one. A similar text in
// another part of the subject does not count, and no client gets in without a certificate.
func TestClientNames(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "clients")
	mutual := func(name string, options ...string) ingress {
		return optioned(name, append([]string{"client-ca-secret", "client-ca"}, options...)...)
	}
	e := start(t, common(t)+authoritySecret("client-ca", ca.pem)+all([]ingress{
		mutual("exact", "client-match-cn", "alice"), mutual("either", "client-match-cn", "alice|bob[0-9]+"),
		mutual("optional", "client-match-cn", "alice", "client-verify", "optional"),
		mutual("broken", "client-match-cn", "a)|(?:.*"),
		mutual("page", "client-error-page", "https://help.example/certificates?a=%20b"),
		mutual("both", "client-error-page", "/help", "client-match-cn", "alice"),
		optioned("alone", "client-match-cn", "alice"),
	}))
	unit := pkix.AttributeTypeAndValue{Type: asn1.ObjectIdentifier{2, 5, 4, 11}, Value: "alice"}
	forged := pkix.AttributeTypeAndValue{Type: asn1.ObjectIdentifier{2, 5, 4, 10}, Value: "x,CN=alice"}
	shown := map[string]*tls.Certificate{
		"none": nil, "alice": ca.named(t, commonName("alice")), "Alice": ca.named(t, commonName("Alice")), "alice.evil": ca.named(t, commonName("alice.evil")),
		"line": ca.named(t, commonName("alice\n")), "NUL": ca.named(t, commonName("alice\x00.evil")), "bob7": ca.named(t, commonName("bob7")), "bob": ca.named(t, commonName("bob")),
		"unit": ca.named(t, unit), "forged": ca.named(t, forged, commonName("mallory")), "two": ca.named(t, commonName("alice"), commonName("mallory")),
		"after": ca.named(t, commonName("mallory"), commonName("alice")), "slash": ca.named(t, commonName("mallory/CN=alice")),
	}
	want := map[string]map[string]string{
		"exact": {"none": "refused", "alice": "a"}, "either": {"none": "refused", "alice": "a", "bob7": "a"}, "optional": {"alice": "a"},
		"page": {"none": "302"}, "both": {"none": "302", "alice": "a"}, "broken": {}, "alone": {},
	}
	for host, served := range want {
		for name, certificate := range shown {
			expected, known := served[name]
			switch {
			case known:
			case host == "page":
				expected = "a"
			case host == "broken" || host == "alone":
				expected = "503"
			default:
				expected = "403"
			}
			if got := e.answerTo(t, asked(host+".example", certificate), name == "bob", host+".example", "/"); got != expected {
				t.Errorf("%s, as %s: %s, want %s", host, name, got, expected)
			}
		}
	}
	for host := range want {
		if got := e.get(t, host+".example", "/"); got.StatusCode == 200 {
			t.Errorf("%s is served in the clear", host)
		}
	}
}

// oneSession is the session cache of a client that resumes its last session for every server name, as an
// attacker would.
type oneSession struct{ last *tls.ClientSessionState }

func (s *oneSession) Get(string) (*tls.ClientSessionState, bool) { return s.last, s.last != nil }

func (s *oneSession) Put(_ string, state *tls.ClientSessionState) {
	if state != nil {
		s.last = state
	}
}

// resume asks for one host, and then for another one with the same session. It uses TLS 1.3: for older
// versions, Go's client resumes only with tickets, which are off.
func (e edge) resume(t *testing.T, first, then string, shows *tls.Certificate) (resumed bool, got reply) {
	t.Helper()
	session := &oneSession{}
	visit := func(host string) (bool, reply, error) {
		cfg := asked(host, shows)
		cfg.ClientSessionCache, cfg.MinVersion = session, tls.VersionTLS13
		c, err := (&tls.Dialer{Config: cfg}).DialContext(t.Context(), "tcp", e.https)
		if err != nil {
			return false, reply{}, err
		}
		defer c.Close()
		r, err := exchange(c, "GET / HTTP/1.1\nHost: "+host)
		return c.(*tls.Conn).ConnectionState().DidResume, r, err
	}
	if _, r, err := visit(first); err != nil || r.StatusCode != 200 {
		t.Fatalf("%s: %v", first, err)
	}
	resumed, got, err := visit(then)
	if err != nil {
		t.Logf("%s after %s: %v", then, first, err)
		return resumed, reply{}
	}
	return resumed, got
}

// A session that began without a certificate, or with one of another authority, does not open a host that asks
// for certificates.
func TestClientCertificatesAndResumedSessions(t *testing.T) {
	t.Parallel()
	one, two := newAuthority(t, "clients"), newAuthority(t, "clients")
	mutual := func(name, secret string, options ...string) ingress {
		return optioned(name, append([]string{"client-ca-secret", secret}, options...)...)
	}
	common := serviceYAML("shop", "a", mirror(t, "a", nil)) + authoritySecret("one", one.pem) + authoritySecret("two", two.pem) +
		all([]ingress{optioned("open"), mutual("mutual", "one"), mutual("maybe", "one", "client-verify", "optional")})
	single := start(t, common)
	several := start(t, common+mutual("other", "two").yaml()+mutual("perhaps", "two", "client-verify", "optional").yaml())
	clean(t, single)
	clean(t, several)
	alice := one.client(t, "alice")
	for _, c := range []struct {
		edge        edge
		first, then string
		shows       *tls.Certificate
		resumes     bool
		status      int // 0 if there is no answer
		verified    string
	}{
		{single, "mutual.example", "mutual.example", alice, true, 200, "SUCCESS"},
		{single, "maybe.example", "maybe.example", alice, true, 200, "SUCCESS"},
		{single, "open.example", "mutual.example", nil, true, 403, ""},
		{single, "maybe.example", "mutual.example", nil, true, 403, ""},
		{single, "open.example", "maybe.example", nil, true, 200, "NONE"},
		{several, "mutual.example", "mutual.example", alice, false, 200, "SUCCESS"},
		{several, "mutual.example", "other.example", alice, false, 0, ""},
		{several, "mutual.example", "perhaps.example", alice, false, 0, ""},
		{several, "open.example", "other.example", nil, false, 0, ""},
	} {
		name := fmt.Sprintf("%s after %s, several authorities %v", c.then, c.first, c.edge.https == several.https)
		resumed, got := c.edge.resume(t, c.first, c.then, c.shows)
		status := 0
		if got.Response != nil {
			status = got.StatusCode
		}
		if resumed != c.resumes || status != c.status || got.seen.Header.Get("X-SSL-Client-Verify") != c.verified {
			t.Errorf("%s: resumed %v, status %d, %q; want %v, %d, %q", name, resumed, status, got.seen.Header.Get("X-SSL-Client-Verify"), c.resumes, c.status, c.verified)
		}
	}
}
