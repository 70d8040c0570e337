package pusher

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/internal/testing/eventually"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem/pemtest"
)

// signed returns a certificate for 127.0.0.1 and edge.example.com, and its key.
func signed(t *testing.T, by pemtest.Authority, name string) (certificate, key string) {
	t.Helper()
	return pemtest.PEMOf(t, by.Sign(t, name, func(c *x509.Certificate) { c.DNSNames = []string{"edge.example.com"} }))
}

// guests records the name in the client certificate that an API got last.
type guests struct {
	mu   sync.Mutex
	last string
}

func (g *guests) see(s tls.ConnectionState) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last = s.PeerCertificates[0].Subject.CommonName
	return nil
}

func (g *guests) is(name string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.last == name
}

// strictRig has one instance, whose API speaks HTTPS and requires a client certificate.
func strictRig(t *testing.T) (*rig, pemtest.Authority, *guests) {
	t.Helper()
	r, ca, seen := newRig(t, dataplanetest.V32), pemtest.NewAuthority(t), &guests{}
	certificate, key := signed(t, ca, "api")
	pair, err := tls.X509KeyPair([]byte(certificate), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	clients := x509.NewCertPool()
	clients.AddCert(ca.Certificate)
	r.addInstanceWith("a", dataplanetest.Options{TLS: &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients, VerifyConnection: seen.see,
	}})
	r.names = []string{"a"}
	r.write("ca.pem", ca.PEM)
	r.writeClient(signed(t, ca, "first"))
	r.write("password", "secret\n")
	i := r.instances["a"]
	r.write("fleet.yaml", fmt.Sprintf(`apiVersion: hapsnap.dev/v1alpha1
kind: Fleet
metadata: {name: edge}
spec:
  instances:
  - name: a
    url: %s
    username: admin
    passwordFile: password
    tls: {caFile: ca.pem, certificateFile: client.pem, keyFile: client.key, serverName: edge.example.com}
    directories: {maps: %s, certificates: %s, general: %s}
`, i.URL(), i.Dirs.Maps, i.Dirs.Certificates, i.Dirs.General))
	return r, ca, seen
}

func (r *rig) writeClient(certificate, key string) {
	r.write("client.key", key)
	r.write("client.pem", certificate)
}

func TestCredentialsAreRotatedWhileRunning(t *testing.T) {
	t.Parallel()
	r, ca, seen := strictRig(t)
	r.endpoints(echo(t, "one"))
	r.allRunAfter(r.publish(config("1", "")))
	if !seen.is("first") {
		t.Error("the API was not shown the client certificate")
	}

	// The API refuses a certificate of another authority. A good one replaces it.
	r.writeClient(signed(t, pemtest.NewAuthority(t), "stranger"))
	r.until("the API refuses", func(s report.Status) bool { return !statusOf(s, "a").Reachable })
	r.writeClient(signed(t, ca, "second"))
	eventually.Holds(t, "the second certificate is used", func() bool { return seen.is("second") })
	r.until("the instance is back", func(s report.Status) bool { return statusOf(s, "a").InSync })

	// The pusher does not talk to an API whose certificate it does not trust.
	r.write("ca.pem", pemtest.NewAuthority(t).PEM)
	r.until("the API is not believed", func(s report.Status) bool {
		return !statusOf(s, "a").Reachable && strings.Contains(statusOf(s, "a").Error, "certificate signed by unknown authority")
	})
	r.write("ca.pem", ca.PEM)
	r.until("the instance is back", func(s report.Status) bool { return statusOf(s, "a").InSync })
	if n := r.pushes("a"); n != 1 {
		t.Errorf("the instance was pushed to %d times, want once", n)
	}
}

// If a password changes during a push, the push goes on with the new one.
func TestPasswordRotatedInTheMiddleOfAPush(t *testing.T) {
	t.Parallel()
	r, _, _ := strictRig(t)
	r.endpoints(echo(t, "one"))
	r.allRunAfter(r.publish(config("1", "")))
	uploads := r.instances["a"].Count(http.MethodPost, "/storage")
	r.instances["a"].Inject(dataplanetest.Slow(time.Second).On(http.MethodPost, "/storage").Times(1))
	second := r.publish(config("2", ""))
	eventually.Holds(t, "a file is uploaded", func() bool {
		return r.instances["a"].Count(http.MethodPost, "/storage") > uploads
	})
	r.instances["a"].SetPassword("another")
	r.write("password", "another\n")
	r.allRun(second)
	if log := r.logged(); strings.Contains(log, "push failed") {
		t.Error("the push was lost")
	}
	if n := r.pushes("a"); n != 2 {
		t.Errorf("the instance was pushed to %d times, want twice", n)
	}
}
