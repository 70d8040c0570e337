package pusher

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/internal/testing/eventually"
	"github.com/hapsnap/hapsnap/snapshots"
)

var webTLS = snapshots.SecretName{Namespace: "shop", Name: "web-tls"}

func newPEM(t *testing.T) []byte {
	t.Helper()
	crt, key, _ := newCertificate(t, time.Now().AddDate(1, 0, 0))
	return slices.Concat(crt, key)
}

// tlsConfig serves TLS with the fallback certificate and the one of shop/web-tls.
const tlsConfig = `
frontend secure
    bind "${WEB}.tls" ssl crt certs/fallback.pem crt-list files/https.crtlist
    default_backend shop_web
`

var tlsCertificates = []snapshots.CertificateRef{
	{File: "certs/fallback.pem"},
	{File: "certs/shop_web-tls.pem", Secret: snapshots.SecretName{Namespace: "shop", Name: "web-tls"}},
}

// draftTLS is a snapshot that serves TLS.
func draftTLS(revision string) snapshots.Draft {
	return snapshots.Draft{
		Files: []snapshots.File{
			{Path: snapshots.ConfigFile, Content: []byte(config(revision, tlsConfig))},
			{Path: "maps/host.map", Content: []byte("# none\n")},
			{Path: "files/https.crtlist", Content: []byte("certs/shop_web-tls.pem shop.example.com\n")},
		},
		Certificates: tlsCertificates, Time: time.Now(),
	}
}

// publishTLS publishes a snapshot that serves TLS.
func (s *site) publishTLS(revision string) snapshots.ID {
	s.t.Helper()
	id, _, err := s.store.Publish(s.t.Context(), draftTLS(revision))
	if err != nil {
		s.t.Fatal(err)
	}
	return id
}

// secret writes the Secret shop/web-tls with a new certificate, and returns its
// serial number.
func (s *site) secret(edit func(crt, key []byte) ([]byte, []byte)) string {
	s.t.Helper()
	return s.secretUntil(time.Now().Add(time.Hour), edit)
}

// secretUntil is secret with a certificate that expires at a time.
func (s *site) secretUntil(end time.Time, edit func(crt, key []byte) ([]byte, []byte)) string {
	s.t.Helper()
	crt, key, serial := newCertificate(s.t, end)
	if edit != nil {
		crt, key = edit(crt, key)
	}
	s.write("live/secret.yaml", fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: web-tls, namespace: shop}\ntype: kubernetes.io/tls\ndata:\n  tls.crt: %s\n  tls.key: %s\n",
		base64.StdEncoding.EncodeToString(crt), base64.StdEncoding.EncodeToString(key)))
	return serial
}

// newCertificate makes a certificate for shop.example.com that expires at a time, and
// its key, both as PEM.
func newCertificate(t *testing.T, end time.Time) (crt, key []byte, serial string) {
	t.Helper()
	pair, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	number, _ := rand.Int(rand.Reader, big.NewInt(1<<62))
	template := &x509.Certificate{
		SerialNumber: number, Subject: pkix.Name{CommonName: "shop.example.com"}, DNSNames: []string{"shop.example.com"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: end,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, pair.Public(), pair)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(pair)
	if err != nil {
		t.Fatal(err)
	}
	crt = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return crt, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), number.String()
}

// served returns the serial number of the certificate that an instance serves.
func (r *rig) served(name, host string) string {
	raw, err := net.Dial("unix", r.binds[name]+".tls")
	if err != nil {
		return err.Error()
	}
	defer raw.Close()
	conn := tls.Client(raw, &tls.Config{ServerName: host, InsecureSkipVerify: true})
	_ = conn.SetDeadline(time.Now().Add(patience))
	if err := conn.Handshake(); err != nil {
		return err.Error()
	}
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
}

// If the worker refuses a rotation, the API reloads. That counts neither as a crash nor as a
// failure of a rollout.
func TestCertificateThatNeedsAReload(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V32, "a")
	r.endpoints(echo(t, "one"))
	r.secret(nil)
	id := r.publishTLS("1")
	r.allRunAfter(id)
	pids := r.workers()
	r.instances["a"].Inject(dataplanetest.CertificateReload().On("PUT", "/storage/ssl_certificates").Times(1))
	second := r.secret(nil)
	eventually.Holds(t, "a serves the new certificate", func() bool { return r.served("a", "shop.example.com") == second })
	r.allRun(id)
	if slices.Equal(r.workers(), pids) {
		t.Error("nothing was reloaded, so nothing was shown")
	}
	if !r.answersOnly("a", "one") {
		t.Error("a does not answer from its endpoint")
	}
}

// The API accepts a certificate, and schedules the reload that should load it. Then the reload
// fails.
func TestFailureReloadForACertificateAfterA202(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V32, "a")
	r.endpoints(echo(t, "one"))
	r.secret(nil)
	id := r.publishTLS("1")
	r.allRunAfter(id)
	r.instances["a"].Inject(dataplanetest.CertificateReloadFails("[ALERT] no").On(http.MethodPut, "/storage/ssl_certificates").Times(1))
	second := r.secret(nil)
	eventually.Holds(t, "it is said", func() bool { return strings.Contains(r.logged(), "reload failed: [ALERT] no") })
	eventually.Holds(t, "a serves the new certificate", func() bool { return r.served("a", "shop.example.com") == second })
	r.allRun(id)
	if rejected := r.seen().Rejected; len(rejected) > 0 {
		t.Errorf("the snapshot was blamed for it: %+v", rejected)
	}
}
