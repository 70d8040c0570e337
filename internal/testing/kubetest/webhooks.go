package kubetest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// WebhookClientName is the common name of the certificate that the server shows to
// admission webhooks.
const WebhookClientName = "kube-apiserver"

// WebhookClientCA is a file with the authority of that certificate.
func (s *Server) WebhookClientCA() string { return filepath.Join(s.dir, "webhooks", "ca.crt") }

// webhookClient writes what makes the server show a certificate to admission webhooks, and
// returns the file that --admission-control-config-file is for.
func (s *Server) webhookClient() (string, error) {
	dir := filepath.Dir(s.WebhookClientCA())
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	certificate, key, err := selfSigned(WebhookClientName)
	if err != nil {
		return "", err
	}
	kubeconfig, err := clientcmd.Write(api.Config{AuthInfos: map[string]*api.AuthInfo{"*": {ClientCertificateData: certificate, ClientKeyData: key}}})
	if err != nil {
		return "", err
	}
	configuration := filepath.Join(dir, "admission.yaml")
	for file, content := range map[string]string{
		s.WebhookClientCA(): string(certificate), filepath.Join(dir, "kubeconfig"): string(kubeconfig),
		configuration: `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ValidatingAdmissionWebhook
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: WebhookAdmissionConfiguration
    kubeConfigFile: ` + filepath.Join(dir, "kubeconfig") + "\n",
	} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			return "", err
		}
	}
	return configuration, nil
}

// selfSigned makes a certificate of a client, which is its own authority.
func selfSigned(name string) (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return nil, nil, err
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}), err
}
