package testscripts

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// service is a Service with its EndpointSlice, as in a cluster.
const service = `apiVersion: v1
kind: Service
metadata: {namespace: %[1]s, name: %[2]s, annotations: {%[6]s}}
spec:
  selector: {app: %[2]s}
  ports: [{name: http, port: 80, targetPort: %[3]d, appProtocol: %[5]s}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  namespace: %[1]s
  name: %[2]s-1
  labels: {kubernetes.io/service-name: %[2]s}
addressType: IPv4
ports: [{name: http, port: %[3]d}]
endpoints:%[4]s
`

func writeService(w *world, ts *testscript.TestScript, args []string) error {
	app, tcp := "http", ""
	flags := map[string]*string{"-app": &app, "-tcp": &tcp}
	for len(args) > 1 && flags[args[0]] != nil {
		*flags[args[0]], args = args[1], args[2:]
	}
	if len(args) < 2 {
		return errUsage
	}
	annotations := ""
	if tcp != "" {
		annotations = fmt.Sprintf("hapsnap.dev/tcp-port: %q", tcp)
	}
	namespace, name, ok := strings.Cut(args[1], "/")
	if !ok {
		return errUsage
	}
	endpoints := " []"
	for n, podName := range podNames(args[2:]) {
		p, err := w.pod(podName)
		if err != nil {
			return err
		}
		if n == 0 {
			endpoints = ""
		}
		endpoints += "\n- addresses: [" + p.address + "]"
	}
	return replaceFile(ts.MkAbs(args[0]), fmt.Appendf(nil, service, namespace, name, w.network.Port, endpoints, app, annotations))
}

// podNames expands web-8..11 to web-8, web-9, web-10 and web-11.
func podNames(args []string) []string {
	var out []string
	for _, arg := range args {
		first, last, found := strings.Cut(arg, "..")
		name, from, _ := strings.Cut(first, "-")
		begin, err := strconv.Atoi(from)
		end, endErr := strconv.Atoi(last)
		if !found || err != nil || endErr != nil {
			out = append(out, arg)
			continue
		}
		for n := begin; n <= end; n++ {
			out = append(out, fmt.Sprintf("%s-%d", name, n))
		}
	}
	return out
}

func writeSecret(w *world, ts *testscript.TestScript, args []string) error {
	mismatched := len(args) > 0 && args[0] == "-mismatched"
	if mismatched {
		args = args[1:]
	}
	if len(args) < 3 {
		return errUsage
	}
	namespace, name, ok := strings.Cut(args[1], "/")
	if !ok {
		return errUsage
	}
	made, err := newKeyPair(args[2:])
	if err != nil {
		return err
	}
	if mismatched {
		other, err := newKeyPair(args[2:])
		if err != nil {
			return err
		}
		made.key = other.key
	} else {
		w.certificates[args[1]] = made.certificate
	}
	manifest, err := secretManifest(namespace, name, made)
	if err != nil {
		return err
	}
	return replaceFile(ts.MkAbs(args[0]), manifest)
}

// secretManifest is a Secret with a certificate and its key.
func secretManifest(namespace, name string, made keyPair) ([]byte, error) {
	return yaml.Marshal(corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Type:       corev1.SecretTypeTLS,
		Data: map[string][]byte{
			corev1.TLSCertKey:       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: made.certificate.Raw}),
			corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: made.key}),
		},
	})
}

// keyPair is a self-signed certificate and its key, also in PKCS #8.
type keyPair struct {
	certificate *x509.Certificate
	private     *ecdsa.PrivateKey
	key         []byte
}

func newKeyPair(hosts []string) (keyPair, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return keyPair{}, err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return keyPair{}, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: hosts[0]}, DNSNames: hosts,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if ip := net.ParseIP(hosts[0]); ip != nil {
		template.DNSNames, template.IPAddresses = nil, []net.IP{ip}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return keyPair{}, err
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return keyPair{}, err
	}
	key, err := x509.MarshalPKCS8PrivateKey(private)
	return keyPair{certificate, private, key}, err
}

var blank = regexp.MustCompile(`@[A-Z_]+@`)

func fillFiles(_ *world, ts *testscript.TestScript, args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	for _, name := range args {
		content, err := os.ReadFile(ts.MkAbs(name))
		if err != nil {
			return err
		}
		filled := blank.ReplaceAllFunc(content, func(b []byte) []byte {
			return []byte(ts.Getenv(strings.Trim(string(b), "@")))
		})
		if err := replaceFile(ts.MkAbs(name), filled); err != nil {
			return err
		}
	}
	return nil
}
