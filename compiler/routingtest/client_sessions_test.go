package routingtest

import (
	"crypto/tls"
	"fmt"
	"testing"
)

// oneSession is the memory of a client that resumes the last session whatever
// the name of the server, as an attacker would.
type oneSession struct{ last *tls.ClientSessionState }

func (s *oneSession) Get(string) (*tls.ClientSessionState, bool) { return s.last, s.last != nil }

func (s *oneSession) Put(_ string, state *tls.ClientSessionState) {
	if state != nil {
		s.last = state
	}
}

// resume asks for one host, and then for another with the session that it got.
// It is one of TLS 1.3: of older ones, this client only resumes tickets, which
// are off.
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

// A session that was made without a certificate, or with one of another
// authority, opens no host that asks for certificates.
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
		status      int // 0 is no answer
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
