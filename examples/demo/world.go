package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
)

// The addresses and ports of the demo. They are fixed, so that what it prints
// can be read in docs/start/demo.md and tried by hand.
const (
	instanceNetwork = "127.0.20."
	httpPort        = 18080
	httpsPort       = 18443
	apiPort         = 18555
	partnerPort     = 18404 // taken on the canary when the story needs a failure
	pageAddress     = "127.0.20.100:18082"
	instanceCount   = 3
)

// world is everything that the demo runs, below one temporary directory.
type world struct {
	options
	dir       string
	instances []*dataplanetest.Instance
	services  []*echo
	programs  []*program
	// authorities holds the demo's own certificate, to verify it with.
	authorities *x509.CertPool
}

// newWorld lays out the directory: the manifests to edit and an empty bare git
// repository for the snapshots.
func newWorld(ctx context.Context, o options) (*world, error) {
	dir, err := os.MkdirTemp("", "hapsnap-demo-")
	if err != nil {
		return nil, fmt.Errorf("make the demo's directory: %w", err)
	}
	w := &world{options: o, dir: dir}
	steps := []func() error{
		func() error { return os.CopyFS(w.path("manifests"), os.DirFS(filepath.Join(o.shop, "manifests"))) },
		func() error { return os.Mkdir(w.path("templates"), 0o755) },
		func() error {
			return command(ctx, "git", "init", "--quiet", "--bare", "--initial-branch=edge", w.path("edge.git")).Run()
		},
		w.writeSecret,
		w.writeFleet,
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, errors.Join(err, w.close())
		}
	}
	return w, nil
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

func (w *world) storeURL() string { return "git+file://" + w.path("edge.git") + "?branch=edge" }

// instanceName returns the name of instance i, counted from 1.
func instanceName(i int) string { return fmt.Sprintf("edge-%d", i) }

// instanceAddress returns the loopback address that instance i binds to.
func instanceAddress(i int) string { return fmt.Sprintf("%s%d", instanceNetwork, i) }

// startInstances starts the HAProxy processes and their Dataplane APIs.
func (w *world) startInstances() error {
	for i := 1; i <= instanceCount; i++ {
		instance, err := dataplanetest.New(dataplanetest.Options{
			HAProxy: w.haproxy, API: dataplanetest.V32, Program: w.dataplaneAPI, Dir: w.path(instanceName(i)),
			Addr:     fmt.Sprintf("%s:%d", instanceAddress(i), apiPort),
			Env:      []string{"BIND_ADDRESS=" + instanceAddress(i)},
			Username: apiUser, Password: apiPassword,
		})
		if err != nil {
			return fmt.Errorf("start %s: %w", instanceName(i), err)
		}
		w.instances = append(w.instances, instance)
	}
	return nil
}

// startServices starts the echo servers that the manifests name.
func (w *world) startServices(ctx context.Context) error {
	for _, s := range []struct{ name, address string }{
		{"web-1", "127.0.10.11"}, {"web-2", "127.0.10.12"}, {"web-3", "127.0.10.13"},
		{"cart-1", "127.0.10.21"}, {"checkout-1", "127.0.10.31"}, {"blog-1", "127.0.10.41"},
		{"sale-1", "127.0.10.51"}, {"welcome-1", "127.0.10.61"},
	} {
		service, err := startEcho(ctx, s.name, fmt.Sprintf("%s:%d", s.address, httpPort))
		if err != nil {
			return err
		}
		w.services = append(w.services, service)
	}
	return nil
}

// copyIn copies a file of examples/shop into the world, as a user would edit
// the manifests: whole, by a rename.
func (w *world) copyIn(from, to string) error {
	content, err := os.ReadFile(filepath.Join(w.shop, from))
	if err != nil {
		return err
	}
	return writeFile(w.path(to), content)
}

// edit replaces a text in a file of the world, which must hold it.
func (w *world) edit(name, old, replacement string) error {
	content, err := os.ReadFile(w.path(name))
	if err != nil {
		return err
	}
	if !strings.Contains(string(content), old) {
		return fmt.Errorf("%s does not hold %q", name, old)
	}
	return writeFile(w.path(name), []byte(strings.ReplaceAll(string(content), old, replacement)))
}

// writeFile writes a file whole or not at all.
func writeFile(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	temp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
	if err := os.WriteFile(temp, content, 0o600); err != nil {
		return err
	}
	return os.Rename(temp, path)
}

// lastLogs returns the end of each program's log, to explain a failure.
func (w *world) lastLogs() string {
	var b strings.Builder
	for _, p := range w.programs {
		lines := strings.Split(strings.TrimSpace(p.log()), "\n")
		fmt.Fprintf(&b, "--- the last lines of %s\n%s\n", p.name, strings.Join(lines[max(0, len(lines)-12):], "\n"))
	}
	return b.String()
}

// close stops everything, the last first, and removes the directory.
func (w *world) close() error {
	var errs []error
	for _, p := range w.programs {
		errs = append(errs, p.stop())
	}
	for _, instance := range w.instances {
		instance.Close()
	}
	for _, s := range w.services {
		s.close()
	}
	err := os.RemoveAll(w.dir)
	if !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// command returns a command that ends with this process, whatever ends it.
func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = dieWithParent()
	return cmd
}

// The credentials of the demo's Dataplane APIs.
const (
	apiUser     = "admin"
	apiPassword = "on-loopback-only"
)

// writeFleet writes the file that tells the pusher its instances.
func (w *world) writeFleet() error {
	var b strings.Builder
	b.WriteString("apiVersion: hapsnap.dev/v1alpha1\nkind: Fleet\nmetadata:\n  name: edge\nspec:\n")
	b.WriteString("  rollout:\n    waves: [\"1\", \"100%\"]\n    soak: 1s\n  instances:\n")
	for i := 1; i <= instanceCount; i++ {
		dir := w.path(instanceName(i))
		fmt.Fprintf(&b, "  - name: %s\n    url: http://%s:%d\n    username: %s\n    passwordFile: password\n",
			instanceName(i), instanceAddress(i), apiPort, apiUser)
		fmt.Fprintf(&b, "    directories:\n      maps: %s\n      certificates: %s\n      general: %s\n",
			filepath.Join(dir, "maps"), filepath.Join(dir, "ssl"), filepath.Join(dir, "general"))
	}
	if err := writeFile(w.path("password"), []byte(apiPassword+"\n")); err != nil {
		return err
	}
	return writeFile(w.path("fleet.yaml"), []byte(b.String()))
}

// tlsHost is the host that the demo serves over TLS.
const tlsHost = "shop.example.com"

// writeSecret writes the Secret shop/web-tls with a new self-signed
// certificate. It is made at each run, so that no key is in the repository.
func (w *world) writeSecret() error {
	certificate, key, err := newKeyPair()
	if err != nil {
		return fmt.Errorf("make the key pair of %s: %w", tlsHost, err)
	}
	manifest, err := yaml.Marshal(corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-tls"},
		Type:       corev1.SecretTypeTLS,
		Data:       map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key},
	})
	if err != nil {
		return err
	}
	w.authorities = x509.NewCertPool()
	w.authorities.AppendCertsFromPEM(certificate)
	return writeFile(w.path("manifests/web-tls.yaml"), manifest)
}

func newKeyPair() (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: tlsHost},
		DNSNames:     []string{tlsHost},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return nil, nil, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return certificate, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), nil
}
