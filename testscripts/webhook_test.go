package testscripts

import (
	"encoding/base64"
	"encoding/pem"
	"os"
	"path/filepath"

	"github.com/rogpeppe/go-internal/testscript"
	corev1 "k8s.io/api/core/v1"
)

// certifyWebhook writes the key pair of the admission webhook, in the form of a mounted Secret.
func certifyWebhook(w *world, ts *testscript.TestScript, args []string) error {
	if len(args) != 1 {
		return errUsage
	}
	made, err := newKeyPair([]string{w.network.ip(webhookHost)})
	if err != nil {
		return err
	}
	dir := ts.MkAbs(args[0])
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: made.certificate.Raw})
	ts.Setenv("CA_BUNDLE", base64.StdEncoding.EncodeToString(certificate))
	if err := replaceFile(filepath.Join(dir, corev1.TLSCertKey), certificate); err != nil {
		return err
	}
	return replaceFile(filepath.Join(dir, corev1.TLSPrivateKeyKey), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: made.key}))
}
