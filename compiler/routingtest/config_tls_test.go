package routingtest

import (
	"crypto/tls"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/config/transport"
	"github.com/hapsnap/hapsnap/compiler/diag"
)

// handshake returns what a client negotiates, or an error.
func (e edge) handshake(t *testing.T, client *tls.Config) (tls.ConnectionState, error) {
	t.Helper()
	client.InsecureSkipVerify = true
	c, err := (&tls.Dialer{Config: client}).DialContext(t.Context(), "tcp", e.https)
	if err != nil {
		return tls.ConnectionState{}, err
	}
	defer c.Close()
	return c.(*tls.Conn).ConnectionState(), nil
}

// only is a client with one version of TLS, and with one cipher of TLS 1.2 if given.
func only(version uint16, ciphers ...uint16) *tls.Config {
	return &tls.Config{MinVersion: version, MaxVersion: version, CipherSuites: ciphers}
}

func TestTLSPolicies(t *testing.T) {
	t.Parallel()
	const (
		good  = tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
		other = tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
		cbc   = tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA
	)
	for name, c := range map[string]struct {
		settings          transport.TLS
		accepted, refused []*tls.Config
	}{
		"intermediate": {
			transport.TLS{Policy: transport.Intermediate},
			[]*tls.Config{only(tls.VersionTLS13), only(tls.VersionTLS12), only(tls.VersionTLS12, good)},
			[]*tls.Config{only(tls.VersionTLS11), only(tls.VersionTLS12, cbc)},
		},
		"modern": {
			transport.TLS{Policy: transport.Modern},
			[]*tls.Config{only(tls.VersionTLS13)},
			[]*tls.Config{only(tls.VersionTLS12)},
		},
		"modern and 1.2": {
			transport.TLS{Policy: transport.Modern, MinVersion: transport.TLS12},
			[]*tls.Config{only(tls.VersionTLS13), only(tls.VersionTLS12)},
			[]*tls.Config{only(tls.VersionTLS11), only(tls.VersionTLS12, cbc)},
		},
		"oldest": {
			transport.TLS{Policy: transport.Intermediate, MinVersion: transport.TLS10, Ciphers: []string{"DEFAULT@SECLEVEL=0"}},
			[]*tls.Config{only(tls.VersionTLS13), only(tls.VersionTLS12, cbc), only(tls.VersionTLS10, cbc)},
			nil,
		},
		"not 1.3": {
			transport.TLS{Policy: transport.Intermediate, MaxVersion: transport.TLS12},
			[]*tls.Config{only(tls.VersionTLS12)},
			[]*tls.Config{only(tls.VersionTLS13)},
		},
		"ciphers": {
			transport.TLS{Policy: transport.Intermediate, Ciphers: []string{"ECDHE-ECDSA-AES256-GCM-SHA384"}},
			[]*tls.Config{only(tls.VersionTLS12, other), only(tls.VersionTLS13)},
			[]*tls.Config{only(tls.VersionTLS12, good)},
		},
		"curves": {
			transport.TLS{Policy: transport.Intermediate, Curves: []string{"secp384r1", "prime256v1"}},
			[]*tls.Config{{CurvePreferences: []tls.CurveID{tls.CurveP384}}, {CurvePreferences: []tls.CurveID{tls.CurveP256}}},
			[]*tls.Config{{CurvePreferences: []tls.CurveID{tls.X25519}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := startWith(t, common(t), func(cfg *config.Config) { cfg.TLS = c.settings })
			clean(t, e)
			for i, client := range c.accepted {
				if _, err := e.handshake(t, client); err != nil {
					t.Errorf("client %d: %v, want a handshake", i, err)
				}
			}
			for i, client := range c.refused {
				if state, err := e.handshake(t, client); err == nil {
					t.Errorf("client %d was accepted with %s, %s", i, tls.VersionName(state.Version), tls.CipherSuiteName(state.CipherSuite))
				}
			}
		})
	}
}

// Go's client cannot choose among the suites of TLS 1.3, so that the result is the suite that is left.
func TestTLSCipherSuites(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]uint16{
		"TLS_CHACHA20_POLY1305_SHA256": tls.TLS_CHACHA20_POLY1305_SHA256,
		"TLS_AES_256_GCM_SHA384":       tls.TLS_AES_256_GCM_SHA384,
	} {
		e := startWith(t, common(t), func(cfg *config.Config) { cfg.TLS.CipherSuites = []string{name} })
		if state, err := e.handshake(t, only(tls.VersionTLS13)); err != nil || state.CipherSuite != want {
			t.Errorf("%s: %v, negotiated %s", name, err, tls.CipherSuiteName(state.CipherSuite))
		}
	}
}

func TestHTTP2CanBeTurnedOff(t *testing.T) {
	t.Parallel()
	i := ingress{rules: []string{"shop.example P / a"}}
	for want, on := range map[string]bool{"h2": true, "http/1.1": false} {
		e := startWith(t, common(t)+i.yaml(), func(cfg *config.Config) { cfg.HTTPS.HTTP2 = on })
		state, err := e.handshake(t, &tls.Config{NextProtos: []string{"h2", "http/1.1"}})
		if err != nil || state.NegotiatedProtocol != want {
			t.Errorf("%v, negotiated %q, want %q", err, state.NegotiatedProtocol, want)
		}
		if got := e.getTLS(t, "shop.example", "/"); answer(got.Response) != "a" {
			t.Errorf("HTTP/1.1: %s", answer(got.Response))
		}
	}
}

// The default certificate serves every name without a certificate of its own, and the names in it.
func TestDefaultCertificate(t *testing.T) {
	t.Parallel()
	i := ingress{rules: []string{"- P / a"}, tls: []string{"web shop.example", "standard also.example"}}
	ca := newAuthority(t, "ca")
	objects := common(t) + ca.secret(t, "", "web", "shop.example") + ca.secret(t, "RSA", "standard", "standard.example", "also.example") + i.yaml()
	e := startWith(t, objects, func(cfg *config.Config) { cfg.HTTPS.DefaultCertificate = "shop/standard" })
	clean(t, e)
	serves(t, e, map[string]string{
		"shop.example": "web", "also.example": "standard", "x.example": "standard", "standard.example": "standard", "": "standard",
	})
}

// If the Secret of the default certificate is missing, nothing else changes.
func TestDefaultCertificateIsMissing(t *testing.T) {
	t.Parallel()
	i := ingress{rules: []string{"- P / a"}, tls: []string{"web shop.example"}}
	e := startWith(t, common(t)+secretOf(t, "web")+i.yaml(), func(cfg *config.Config) { cfg.HTTPS.DefaultCertificate = "shop/standard" })
	serves(t, e, map[string]string{"shop.example": "web", "x.example": "fallback.invalid"})
	reportedOn(t, e, diag.Object{Kind: "Secret", Namespace: "shop", Name: "standard"})
}
