package pusher

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/internal/testing/eventually"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem/pemtest"
)

// Hashes of "one" and "two".
const (
	hashOfOne = "$1$abcdefgh$7.lm.6ee9.UHlcakym0SR."
	hashOfTwo = "$1$abcdefgh$aEJ4hNqGU4ecGV.KYkiwP1"
)

// guarded requires a password, a token, and over TLS a client certificate.
const guarded = `
userlist shop_auth
    #hapsnap users shop/auth

frontend guarded
    bind "${WEB}.auth"
    http-request auth unless { http_auth(shop_auth) }
    http-request deny if { path /token } !{ req.hdr(x-token) -m str hapsnap:secret/shop/keys/token }
    default_backend shop_web

frontend secure
    bind "${WEB}.tls" ssl crt certs/fallback.pem ca-file certs/ca_shop_clients.pem verify required
    default_backend shop_web
`

var guardedCertificates = []snapshots.CertificateRef{
	{File: "certs/ca_shop_clients.pem", Secret: snapshots.SecretName{Namespace: "shop", Name: "clients"}, Use: snapshots.UseCA},
	{File: "certs/fallback.pem"},
}

// opaque writes a Secret of shop with one key.
func (s *site) opaque(name, key, value string) {
	s.t.Helper()
	text := fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: %s, namespace: shop}\nstringData:\n  %s: |\n", name, key)
	for line := range strings.Lines(value) {
		text += "    " + strings.TrimSuffix(line, "\n") + "\n"
	}
	s.write("live/"+name+".yaml", text)
}

// pass returns the status of the response to a request with a password and a token.
func (r *rig) pass(path, password, token string) int {
	client := http.Client{Timeout: patience, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", r.binds["a"]+".auth")
		},
	}}
	request, _ := http.NewRequest(http.MethodGet, "http://shop.example.com"+path, nil)
	request.SetBasicAuth("alice", password)
	request.Header.Set("X-Token", token)
	response, err := client.Do(request)
	if err != nil {
		return 0
	}
	response.Body.Close()
	return response.StatusCode
}

// admits reports whether a client's certificate is accepted; it may be empty.
func (r *rig) admits(client tls.Certificate) bool {
	raw, err := net.Dial("unix", r.binds["a"]+".tls")
	if err != nil {
		return false
	}
	defer raw.Close()
	_ = raw.SetDeadline(time.Now().Add(patience))
	conn := tls.Client(raw, &tls.Config{ServerName: "shop.example.com", InsecureSkipVerify: true, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return &client, nil
	}})
	fmt.Fprint(conn, "GET / HTTP/1.0\r\nHost: shop.example.com\r\n\r\n")
	answer := make([]byte, 16)
	n, _ := conn.Read(answer) // with TLS 1.3, the server refuses only after the handshake
	return strings.HasPrefix(string(answer[:n]), "HTTP/1.")
}

// quiet reports whether no trouble shows the content of a Secret.
func quiet(s report.Status) bool {
	text := fmt.Sprintf("%+v", s)
	return !slices.ContainsFunc([]string{hashOfOne, hashOfTwo, "s3cret", "PRIVATE"}, func(secret string) bool { return strings.Contains(text, secret) })
}

func TestSecretsReachTheWorker(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V32, "a")
	r.endpoints(echo(t, "one"))
	first, second := pemtest.NewAuthority(t), pemtest.NewAuthority(t)
	r.opaque("auth", "auth", "alice:"+hashOfOne)
	r.opaque("keys", "token", "s3cret it's")
	r.opaque("clients", "ca.crt", first.PEM)
	id := r.publish(config("1", guarded), guardedCertificates...)
	r.run()
	if s := r.allRun(id); len(s.Troubles) > 0 {
		t.Errorf("in trouble: %+v", s.Troubles)
	}
	old, next := first.Client(t, "alice"), second.Client(t, "alice")
	if got := r.pass("/", "one", ""); got != http.StatusOK {
		t.Errorf("the password gets %d", got)
	}
	if got := r.pass("/", "two", ""); got != http.StatusUnauthorized {
		t.Errorf("the next password gets %d", got)
	}
	if got := r.pass("/token", "one", "s3cret it's"); got != http.StatusOK {
		t.Errorf("the token gets %d", got)
	}
	if !r.admits(old) || r.admits(next) {
		t.Errorf("certificates are admitted: old %v, next %v", r.admits(old), r.admits(next))
	}

	r.opaque("auth", "auth", "alice:"+hashOfTwo)
	eventually.Holds(t, "the next password gets in", func() bool { return r.pass("/", "two", "") == http.StatusOK })
	if got := r.pass("/", "one", ""); got != http.StatusUnauthorized {
		t.Errorf("the old password gets %d", got)
	}
	r.opaque("keys", "token", "another")
	eventually.Holds(t, "the next token gets in", func() bool { return r.pass("/token", "two", "another") == http.StatusOK })
	if got := r.pass("/token", "two", "s3cret it's"); got != http.StatusForbidden {
		t.Errorf("the old token gets %d", got)
	}
	r.opaque("clients", "ca.crt", second.PEM)
	eventually.Holds(t, "the next certificate gets in", func() bool { return r.admits(next) })
	if r.admits(old) {
		t.Error("the old certificate gets in")
	}
	r.allRun(id)
}

// If a Secret is missing or gone, nobody is let in, and the status says why. The status shows no
// content of Secrets.
func TestMissingSecretsKeepEverybodyOut(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V32, "a")
	r.endpoints(echo(t, "one"))
	clients := pemtest.NewAuthority(t)
	r.opaque("auth", "auth", "alice:"+hashOfOne+"\nbob:s3cret")
	id := r.publish(config("1", guarded), guardedCertificates...)
	r.allRunAfter(id)
	told := func(s report.Status) string {
		for _, trouble := range s.Troubles {
			if trouble.About == "secrets" {
				return trouble.Error
			}
		}
		return ""
	}
	s := r.until("it is told", func(s report.Status) bool { return told(s) != "" })
	for _, want := range []string{
		"no certificate is trusted: Secret shop/clients has no usable authorities under ca.crt",
		"a value that nobody knows is used: Secret shop/keys has none under token",
		"users of Secret shop/auth: line 2: user bob has no hash that HAProxy can check",
	} {
		if !strings.Contains(told(s), want) {
			t.Errorf("%q is not told: %s", want, told(s))
		}
	}
	if got := r.pass("/token", "one", ""); got != http.StatusForbidden {
		t.Errorf("a request without a token gets %d", got)
	}
	if got := r.pass("/", "one", ""); got != http.StatusOK {
		t.Errorf("the good user gets %d", got)
	}
	client := clients.Client(t, "alice")
	if r.admits(client) {
		t.Error("a certificate of nobody's gets in")
	}
	r.opaque("auth", "auth", "alice:s3cret")
	eventually.Holds(t, "nobody gets in", func() bool { return r.pass("/", "one", "") == http.StatusUnauthorized })
	s = r.until("it is told", func(s report.Status) bool {
		return strings.Contains(told(s), "nobody is let in: Secret shop/auth has no usable users under auth: line 1: user alice has no hash that HAProxy can check")
	})
	r.opaque("clients", "ca.crt", clients.PEM)
	eventually.Holds(t, "the certificate gets in", func() bool { return r.admits(client) })
	r.mu.Lock()
	defer r.mu.Unlock()
	if log := r.log.String(); !quiet(s) || strings.Contains(log, "s3cret") || strings.Contains(log, hashOfOne) {
		t.Error("the status or the log tells a secret")
	}
}

// A host that requires client certificates does so while its own certificate is missing. It still
// does when that certificate arrives, without a reload.
func TestClientCertificatesAreAskedForBeforeAndAfter(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V32, "a")
	r.endpoints(echo(t, "one"))
	clients := pemtest.NewAuthority(t)
	client, nobody := clients.Client(t, "alice"), tls.Certificate{}
	r.opaque("clients", "ca.crt", clients.PEM)
	id, _, err := r.store.Publish(t.Context(), snapshots.Draft{
		Files: []snapshots.File{
			{Path: snapshots.ConfigFile, Content: []byte(config("1", tlsConfig))},
			{Path: "maps/host.map", Content: []byte("# none\n")},
			{Path: "files/https.crtlist", Content: []byte("certs/shop_web-tls.pem [ca-file certs/ca_shop_clients.pem verify required] shop.example.com\n")},
		},
		Certificates: append(slices.Clone(tlsCertificates), guardedCertificates[0]), Time: time.Now(),
	})
	if err != nil {
		t.Fatal(err)
	}
	r.allRunAfter(id)
	pids := r.workers()
	if !r.admits(client) || r.admits(nobody) {
		t.Errorf("without its own certificate: admits the client %v, others %v", r.admits(client), r.admits(nobody))
	}
	serial := r.secret(nil)
	eventually.Holds(t, "the certificate is served", func() bool { return r.servedTo(client) == serial })
	if !r.admits(client) || r.admits(nobody) {
		t.Errorf("with its own certificate: admits the client %v, others %v", r.admits(client), r.admits(nobody))
	}
	if now := r.workers(); !slices.Equal(now, pids) {
		t.Errorf("reloaded: workers %v, then %v", pids, now)
	}
}

// servedTo returns the serial number of the certificate that a client gets.
func (r *rig) servedTo(client tls.Certificate) string {
	raw, err := net.Dial("unix", r.binds["a"]+".tls")
	if err != nil {
		return ""
	}
	defer raw.Close()
	_ = raw.SetDeadline(time.Now().Add(patience))
	conn := tls.Client(raw, &tls.Config{ServerName: "shop.example.com", InsecureSkipVerify: true, Certificates: []tls.Certificate{client}})
	if conn.Handshake() != nil {
		return ""
	}
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
}
