package admission

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/hapsnap/hapsnap/internal/testing/output"
)

// pair returns a key pair in PEM, with a self-signed certificate of a serial number.
func pair(t *testing.T, serial int64) (crt, key []byte) {
	t.Helper()
	return pairUntil(t, serial, time.Now().Add(time.Hour))
}

func pairUntil(t *testing.T, serial int64, until time.Time) (crt, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "webhook"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: until,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

func put(t *testing.T, dir, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// start starts a server that allows everything.
func start(t *testing.T, dir string, change ...func(*Options)) *Server {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	judge := fake{t: t, ingress: func(context.Context, *networkingv1.Ingress) (Verdict, error) { return Verdict{}, nil }}
	o := Options{Address: "127.0.0.1:0", CertDir: dir, Judge: judge, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)}
	for _, f := range change {
		f(&o)
	}
	s, err := Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		s.Wait()
		// A program that another test starts has a copy of the closed listener until its exec, and the kernel accepts
		// connections for it.
		await(t, "the listener is closed", func() error {
			if c, err := net.Dial("tcp", s.Address()); err == nil {
				c.Close()
				return errors.New("a connection is accepted")
			}
			return nil
		})
	})
	return s
}

// serial returns the serial number of the certificate that a new connection gets.
func serial(s *Server) (int64, error) {
	c, err := tls.Dial("tcp", s.Address(), &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // it is looked at below
	if err != nil {
		return 0, err
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0].SerialNumber.Int64(), nil
}

// await waits for a condition, and reports its last error.
func await(t *testing.T, what string, try func() error) {
	t.Helper()
	end := time.Now().Add(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for err := try(); err != nil; err = try() {
		if time.Now().After(end) {
			t.Fatalf("%s: %v", what, err)
		}
		<-tick.C
	}
}

func isShown(s *Server, want int64) func() error {
	return func() error {
		got, err := serial(s)
		if err == nil && got != want {
			err = fmt.Errorf("certificate %d is shown, not %d", got, want)
		}
		return err
	}
}

// The webhook of a cluster starts before its certificate is issued.
func TestCertificateThatComesLater(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir)
	if err := s.Ready(); err == nil || !strings.Contains(err.Error(), "tls.crt") {
		t.Errorf("ready: %v", err)
	}
	if _, err := serial(s); err == nil {
		t.Error("a connection without a certificate")
	}
	crt, key := pair(t, 1)
	put(t, dir, "tls.crt", crt)
	put(t, dir, "tls.key", key)
	await(t, "the certificate is used", isShown(s, 1))
	if err := s.Ready(); err != nil {
		t.Error(err)
	}

	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(crt)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}}
	defer client.CloseIdleConnections()
	response, err := client.Post("https://"+s.Address()+Path, "application/json", strings.NewReader(review("CREATE", "Ingress", web, "")))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK || response.ProtoMajor != 2 {
		t.Errorf("answered %s over %s", response.Status, response.Proto)
	}
	if _, err := tls.Dial("tcp", s.Address(), &tls.Config{RootCAs: roots, MaxVersion: tls.VersionTLS11}); err == nil {
		t.Error("TLS 1.1 is spoken")
	}
}

// A certificate that expired is said once, and the server is not ready until there is another.
func TestCertificateThatExpired(t *testing.T) {
	dir := t.TempDir()
	write := func(crt, key []byte) {
		put(t, dir, "tls.crt", crt)
		put(t, dir, "tls.key", key)
	}
	write(pairUntil(t, 1, time.Now().Add(-time.Minute)))
	var said bytes.Buffer
	c := &certificate{dir: dir, log: slog.New(slog.NewTextHandler(&said, nil))}
	c.reload()
	for range 2 {
		if err := c.ready(); err == nil || !strings.Contains(err.Error(), "expired at") {
			t.Errorf("ready: %v", err)
		}
	}
	if n := strings.Count(said.String(), "no API server accepts the certificate"); n != 1 {
		t.Errorf("it is said %d times: %s", n, said.String())
	}
	write(pair(t, 2))
	c.reload()
	if err := c.ready(); err != nil {
		t.Error(err)
	}
}

// What is no pair leaves the one before in use, whatever is wrong with it.
func TestCertificateThatIsNoPair(t *testing.T) {
	first, firstKey := pair(t, 1)
	other, otherKey := pair(t, 2)
	for name, files := range map[string]map[string][]byte{
		"half a certificate":      {"tls.crt": other[:len(other)/2], "tls.key": otherKey},
		"the key of another":      {"tls.crt": first, "tls.key": otherKey},
		"a certificate of before": {"tls.crt": other, "tls.key": firstKey},
		"no key":                  {"tls.crt": other},
		"nothing":                 {},
		"empty files":             {"tls.crt": nil, "tls.key": nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := &certificate{dir: t.TempDir(), log: slog.New(slog.DiscardHandler)}
			put(t, c.dir, "tls.crt", first)
			put(t, c.dir, "tls.key", firstKey)
			c.reload()
			used, err := c.get(nil)
			if err != nil {
				t.Fatal(err)
			}
			c.dir = t.TempDir()
			for name, data := range files {
				put(t, c.dir, name, data)
			}
			c.reload()
			if now, err := c.get(nil); err != nil || now != used || c.wrong == nil {
				t.Errorf("now %v is used, %v; said was %v", now, err, c.wrong)
			}
			put(t, c.dir, "tls.crt", other)
			put(t, c.dir, "tls.key", otherKey)
			c.reload()
			if now, err := c.get(nil); err != nil || now.Leaf.SerialNumber.Int64() != 2 {
				t.Errorf("the new pair is not used: %v", err)
			}
		})
	}
}

// A mounted Secret is replaced as a whole, by a link.
func TestCertificateOfMountedSecret(t *testing.T) {
	dir := t.TempDir()
	mount := func(n int64) {
		t.Helper()
		crt, key := pair(t, n)
		data := fmt.Sprintf("..%d", n)
		if err := os.Mkdir(filepath.Join(dir, data), 0o700); err != nil {
			t.Fatal(err)
		}
		put(t, dir, data+"/tls.crt", crt)
		put(t, dir, data+"/tls.key", key)
		if err := os.Symlink(data, filepath.Join(dir, "..new")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..new"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	mount(1)
	for _, name := range []string{"tls.crt", "tls.key"} {
		if err := os.Symlink("..data/"+name, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	s := start(t, dir)
	for n := int64(1); n < 5; n++ {
		await(t, "the certificate is used", isShown(s, n))
		mount(n + 1)
	}
}

// While certificates are renewed one after the other, no connection fails, and new connections get the newest.
// The files are written in place, unlike in a mounted Secret, so the server meets half-written pairs.
func TestRotationUnderLoad(t *testing.T) {
	dir := t.TempDir()
	crt, key := pair(t, 1)
	put(t, dir, "tls.crt", crt)
	put(t, dir, "tls.key", key)
	s := start(t, dir)
	var failed atomic.Pointer[error]
	var handshakes atomic.Int64
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := serial(s); err != nil {
					failed.Store(&err)
					return
				}
				handshakes.Add(1)
			}
		})
	}
	const last = 20
	for n := int64(2); n <= last; n++ {
		crt, key := pair(t, n)
		put(t, dir, "tls.crt", crt[:len(crt)/2])
		put(t, dir, "tls.crt", crt)
		put(t, dir, "tls.key", key)
		await(t, "the new certificate is used", isShown(s, n))
	}
	await(t, "clients have connected", func() error {
		if n := handshakes.Load(); failed.Load() == nil && n < last {
			return fmt.Errorf("only %d handshakes", n)
		}
		return nil
	})
	close(stop)
	clients.Wait()
	if err := failed.Load(); err != nil {
		t.Errorf("after %d handshakes one failed: %v", handshakes.Load(), *err)
	}
}

// A client that does not accept the certificate is counted, and is in the log once; other noise is not.
func TestRefusedCertificateIsSaid(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	crt, key := pair(t, 1)
	put(t, dir, "tls.crt", crt)
	put(t, dir, "tls.key", key)
	out := &output.Buffer{}
	registry := prometheus.NewRegistry()
	s := start(t, dir, func(o *Options) { o.Log, o.Metrics = slog.New(slog.NewTextHandler(out, nil)), registry })
	for range 2 {
		if c, err := tls.Dial("tcp", s.Address(), &tls.Config{RootCAs: x509.NewCertPool()}); err == nil {
			c.Close()
			t.Fatal("the certificate was accepted")
		}
	}
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Address())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(c, "GET / HTTP/1.0\r\n\r\n")
	c.Close()
	await(t, "both are counted", func() error {
		return testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP hapsnap_compiler_admission_certificate_refused_total Connections that a client, such as an API server, ended since it does not accept the certificate of the admission webhook.
# TYPE hapsnap_compiler_admission_certificate_refused_total counter
hapsnap_compiler_admission_certificate_refused_total 2
`), "hapsnap_compiler_admission_certificate_refused_total")
	})
	if n := strings.Count(out.String(), "a client does not accept the certificate"); n != 1 {
		t.Errorf("said %d times:\n%s", n, out.String())
	}
}
