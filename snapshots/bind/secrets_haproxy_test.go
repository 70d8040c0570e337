package bind

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	stdpem "encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind/htpasswd"
	"github.com/hapsnap/hapsnap/snapshots/bind/htpasswd/htpasswdtest"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem/pemtest"
)

// HAProxy accepts what Bind makes of Secrets without a warning, whichever of them exist.
func TestHAProxyAcceptsSecrets(t *testing.T) {
	t.Parallel()
	const base = `-- haproxy.cfg --
global
    maxconn 100
defaults
    mode http
    timeout client 1s
    timeout connect 1s
    timeout server 1s
userlist auth
    #hapsnap users shop/auth
    #hapsnap users shop/more
frontend web
    bind 127.0.0.1:1 ssl crt certs/fallback.pem crt-list files/https.crtlist
    bind 127.0.0.1:2 ssl crt certs/fallback.pem ca-file certs/ca_shop_a.pem verify required
    http-request auth unless { http_auth(auth) }
    http-request set-header x hapsnap:secret/shop/keys/header
    http-request deny unless { req.hdr(x) -m str hapsnap:secret/shop/keys/header }
    default_backend shop
backend shop
    cookie x insert indirect nocache dynamic
    dynamic-cookie-key hapsnap:secret/shop/keys/cookie
    #hapsnap servers shop/web -- ssl verify required ca-file certs/ca_shop_a.pem crt certs/client.pem
-- files/https.crtlist --
certs/fallback.pem !*
certs/client.pem [alpn h2 ca-file certs/ca_shop_a.pem verify required] a.example
certs/client.pem [ca-file certs/ca_shop_b.pem verify optional] b.example
-- certificates --
certs/fallback.pem
certs/client.pem shop/client
certs/ca_shop_a.pem shop/a CA
certs/ca_shop_b.pem shop/b CA
`
	hashes := "-- users --\n"
	for kind, hash := range htpasswdtest.Hashes {
		hashes += "shop/auth " + strings.ReplaceAll(kind, " ", "-") + ":" + hash + "\n"
	}
	for name, liveData := range map[string]string{
		"nothing live": "",
		"all live": hashes + "shop/more m@more:" + htpasswdtest.Hashes["DES"] + "\n-- authorities --\nshop/a ed25519\nshop/b ed25519\n-- secrets --\nshop/client ecdsa\n" +
			"-- values --\nshop/keys/cookie it's \"a\" #1 $HOME \\n {x}\nshop/keys/header ünïcode/+=~\n",
		"broken": "-- users --\nshop/auth a:plain\n-- authorities --\nshop/a broken\n-- secrets --\nshop/client broken\n-- values --\nshop/keys/cookie -f\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			bound := must(readBindCase(t, txtar.Parse([]byte(base+liveData))).bind(layoutIn(dir)))(t)
			if complete := name == "all live"; complete != (len(bound.Missing) == 0) {
				t.Errorf("missing are %v", bound.Missing)
			}
			config := install(t, bound, dir)
			out, err := exec.Command(haproxyBinary(), "-c", "-f", config).CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			// HAProxy 3.4 warns of passwords whose hashes are slow. People have to change those, not we.
			for line := range strings.Lines(string(out)) {
				if strings.HasPrefix(line, "[WARNING]") && !strings.Contains(line, "the hash algorithm used for this password takes") {
					t.Error(line)
				}
			}
		})
	}
}

// ParseAuthorities and HAProxy agree on what can be loaded.
func TestHAProxyLoadsParsedAuthorities(t *testing.T) {
	t.Parallel()
	ca := pemtest.Certify(t, "ca", pemtest.ECKey(), nil)
	for name, data := range map[string][]byte{
		"one":           ca,
		"two":           append(bytes.Clone(ca), pemtest.Certify(t, "other", pemtest.RSAKey(), nil)...),
		"twice":         append(bytes.Clone(ca), ca...),
		"weak":          pemtest.Certify(t, "weak", pemtest.WeakKey(), nil),
		"with its key":  pemtest.SelfSigned(t, "ca", pemtest.ECKey()),
		"with text":     []byte("# my CA\n" + string(ca) + "\nend"),
		"fallback":      pemtest.SelfSigned(t, "fallback", pemtest.EdKey),
		"only a key":    pemtest.KeyPEM(t, pemtest.ECKey()),
		"malformed":     append(bytes.Clone(ca), pemtest.Block("CERTIFICATE", "junk")...),
		"nothing":       nil,
		"a broken line": ca[:len(ca)/2],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			parsed, want := pem.ParseAuthorities(data)
			if bytes.Contains(parsed, []byte("PRIVATE")) {
				t.Error("a key is among the authorities")
			}
			if want != nil {
				parsed = data
			} else if err := new(Binder).checkAuthorities(parsed); err != nil {
				t.Errorf("what was parsed is refused: %v", err)
			}
			files := map[string]string{
				"a.pem": string(pemtest.SelfSigned(t, "a.example", pemtest.ECKey())), "ca.pem": string(parsed),
				"haproxy.cfg": fmt.Sprintf("defaults\n timeout client 1s\n timeout connect 1s\n timeout server 1s\nlisten l\n bind 127.0.0.1:1 ssl crt %[1]s/a.pem ca-file %[1]s/ca.pem verify required\n", dir),
			}
			for file, content := range files {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			out, err := exec.Command(haproxyBinary(), "-c", "-f", dir+"/haproxy.cfg").CombinedOutput()
			// HAProxy loads the certificates before a malformed one. So it would trust a part of a list that
			// was meant as a whole.
			if (err == nil) != (want == nil) && name != "malformed" {
				t.Errorf("ParseAuthorities says %v, but HAProxy %v\n%s", want, err, out)
			}
		})
	}
}

// Each kind of hash that Parse accepts admits its user, with the right password only. An empty list admits
// nobody. A host that a missing value protects stays closed.
func TestUsersAndValuesProtect(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := fmt.Sprintf(`global
    stats socket %[1]s/stats level admin
defaults
    mode http
    timeout client 10s
    timeout connect 10s
    timeout server 10s
userlist auth
    #hapsnap users shop/auth
userlist gone
    #hapsnap users shop/gone
frontend shop
    bind %[1]s/http
    http-request auth if { path /auth } !{ http_auth(auth) }
    http-request auth if { path /gone } !{ http_auth(gone) }
    http-request deny if { path /value } !{ req.hdr(x-token) -m str hapsnap:secret/shop/keys/token }
    http-request deny if { path /novalue } !{ req.hdr(x-token) -m str hapsnap:secret/shop/keys/gone }
    http-request return status 200
`, dir)
	const token = `it's "x" #1 $HOME \n`
	live := Live{
		Fallback: pemtest.SelfSigned(t, "fallback", pemtest.EdKey), Users: map[snapshots.SecretName][]htpasswd.User{},
		Values: map[SecretKey]string{{snapshots.SecretName{Namespace: "shop", Name: "keys"}, "token"}: token},
	}
	auth := snapshots.SecretName{Namespace: "shop", Name: "auth"}
	for kind, hash := range htpasswdtest.Hashes {
		live.Users[auth] = append(live.Users[auth], htpasswd.User{Name: userOf(kind), Hash: hash})
	}
	w := startWorker(t, draftOf(config), Inputs{Live: live, Layout: layoutIn(dir)}, dir)

	for kind := range htpasswdtest.Hashes {
		if got := w.ask("/auth", userOf(kind), "correct horse", ""); got != http.StatusOK {
			t.Errorf("%s: the right password gets %d", kind, got)
		}
		if got := w.ask("/auth", userOf(kind), "wrong horse", ""); got != http.StatusUnauthorized {
			t.Errorf("%s: a wrong password gets %d", kind, got)
		}
	}
	for _, c := range []struct {
		path, user, password, token string
		want                        int
	}{
		{"/gone", userOf("DES"), "correct horse", "", http.StatusUnauthorized},
		{"/gone", "", "", "", http.StatusUnauthorized},
		{"/auth", "nobody", "correct horse", "", http.StatusUnauthorized},
		{"/value", "", "", token, http.StatusOK},
		{"/value", "", "", "it's", http.StatusForbidden},
		{"/novalue", "", "", "", http.StatusForbidden},
		{"/novalue", "", "", token, http.StatusForbidden},
		{"/novalue", "", "", standInValue(SecretKey{snapshots.SecretName{Namespace: "shop", Name: "keys"}, "gone"}, nil), http.StatusForbidden},
	} {
		if got := w.ask(c.path, c.user, c.password, c.token); got != c.want {
			t.Errorf("%+v gets %d", c, got)
		}
	}
}

func userOf(kind string) string { return strings.ReplaceAll(kind, " ", "-") }

// ask returns the status of a request through HAProxy.
func (w worker) ask(path, user, password, token string) int {
	dial := func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", w.dir+"/http") }
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial}, Timeout: time.Minute}
	request, _ := http.NewRequest(http.MethodGet, "http://shop.example"+path, nil)
	if user != "" {
		request.SetBasicAuth(user, password)
	}
	if token != "" {
		request.Header.Set("X-Token", token)
	}
	resp, err := client.Do(request)
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// A host that asks for client certificates keeps asking if its own certificate is missing. If the authorities
// are missing, it admits nobody.
func TestClientCertificatesStayAskedFor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	base := fmt.Sprintf(`-- haproxy.cfg --
global
    stats socket %[1]s/stats level admin
defaults
    mode http
    timeout client 10s
    timeout connect 10s
    timeout server 10s
frontend shop
    bind %[1]s/http ssl crt certs/fallback.pem crt-list files/https.crtlist
    http-request return status 200
-- files/https.crtlist --
certs/gone.pem [ca-file certs/ca_shop_a.pem verify required] gone.example
certs/web.pem [ca-file certs/ca_shop_a.pem verify required] web.example
certs/web.pem [ca-file certs/ca_shop_gone.pem verify required] closed.example
certs/gone.pem open.example
-- certificates --
certs/fallback.pem
certs/gone.pem shop/gone
certs/web.pem shop/web
certs/ca_shop_a.pem shop/a CA
certs/ca_shop_gone.pem shop/gone CA
-- secrets --
shop/web ecdsa
`, dir)
	c := readBindCase(t, txtar.Parse([]byte(base)))
	authority, client := clientCertificate(t)
	c.live.Authorities = map[snapshots.SecretName][]byte{{Namespace: "shop", Name: "a"}: authority}
	w := startWorker(t, c.snapshot, Inputs{Live: c.live, Layout: layoutIn(dir)}, dir)
	stranger := must(tls.X509KeyPair(selfSignedPair(t)))(t)
	for _, test := range []struct {
		host        string
		certificate *tls.Certificate
		want        bool
	}{
		{"web.example", &client, true},
		{"web.example", nil, false},
		{"web.example", &stranger, false},
		{"gone.example", &client, true},
		{"gone.example", nil, false},
		{"gone.example", &stranger, false},
		{"closed.example", &client, false},
		{"closed.example", nil, false},
		{"closed.example", &stranger, false},
		{"open.example", nil, true},
	} {
		if got := w.admits(test.host, test.certificate); got != test.want {
			t.Errorf("%s, with a certificate %v: %v, want %v", test.host, test.certificate != nil, got, test.want)
		}
	}
}

// admits reports whether a request over TLS is answered.
func (w worker) admits(host string, certificate *tls.Certificate) bool {
	raw, err := net.Dial("unix", w.dir+"/http")
	if err != nil {
		return false
	}
	defer raw.Close()
	_ = raw.SetDeadline(time.Now().Add(time.Minute))
	config := &tls.Config{ServerName: host, InsecureSkipVerify: true}
	if certificate != nil {
		// This holds whatever authorities the server names.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certificate, nil }
	}
	conn := tls.Client(raw, config)
	fmt.Fprintf(conn, "GET / HTTP/1.0\r\nHost: %s\r\n\r\n", host)
	answer, _ := io.ReadAll(conn)
	return bytes.HasPrefix(answer, []byte("HTTP/1.1 200 ")) || bytes.HasPrefix(answer, []byte("HTTP/1.0 200 "))
}

// clientCertificate returns an authority and a client certificate that it signed.
func clientCertificate(t *testing.T) (authority []byte, client tls.Certificate) {
	t.Helper()
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "clients"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "alice"},
		NotBefore: ca.NotBefore, NotAfter: ca.NotAfter, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	sign := func(template, parent *x509.Certificate, key, issuer crypto.Signer) []byte {
		der := must(x509.CreateCertificate(rand.Reader, template, parent, key.Public(), issuer))(t)
		return stdpem.EncodeToMemory(&stdpem.Block{Type: "CERTIFICATE", Bytes: der})
	}
	authority = sign(ca, ca, pemtest.ECKey(), pemtest.ECKey())
	client = must(tls.X509KeyPair(sign(leaf, ca, pemtest.ECKey2(), pemtest.ECKey()), pemtest.KeyPEM(t, pemtest.ECKey2())))(t)
	return authority, client
}

func selfSignedPair(t *testing.T) (certificate, key []byte) {
	t.Helper()
	return pemtest.Certify(t, "stranger", pemtest.ECKey2(), nil), pemtest.KeyPEM(t, pemtest.ECKey2())
}
