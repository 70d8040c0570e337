package routing

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/live"
)

// certificate returns the certificate of a Secret, which it makes and checks
// if it is new. It is referenced even if it cannot be served as it is here: it
// is joined when a snapshot is pushed, and may be mended by then.
func (t *translation) certificate(ing ingress, name snapshots.SecretName, named Origin) *Certificate {
	file := certificateFile(name)
	if c := t.certs[file]; c != nil {
		return c
	}
	c := &Certificate{File: file, Secret: name, Origin: named}
	t.certs[file] = c
	secret, exists := t.secrets[name]
	if !exists {
		t.report(diag.Warning, ing, named.Position, fmt.Sprintf("Secret %s does not exist here", name),
			"its hosts get the default certificate until it does where snapshots are pushed")
		return c
	}
	observed, err := observe(secret.Value)
	if err != nil {
		t.reportSecret(diag.Error, secret, "holds no certificate that can be served: "+err.Error(),
			"hosts that name this Secret get the default certificate until it is mended")
		return c
	}
	c.Observed, t.kinds[file] = &observed, keyKind(secret.Value)
	if !t.cfg.Now.IsZero() && t.cfg.Now.After(observed.NotAfter) {
		t.reportSecret(diag.Warning, secret, "the certificate expired on "+observed.NotAfter.Format("2006-01-02"), "renew it")
	}
	return c
}

// observe describes the certificate in a Secret.
func observe(secret *corev1.Secret) (snapshots.ObservedCertificate, error) {
	pem, err := live.Certificate(*secret)
	if err != nil {
		return snapshots.ObservedCertificate{}, err
	}
	return snapshots.CheckKeyPair(pem)
}

// keyKind names the kind of key of the certificate in a Secret, "" if that
// cannot be told. HAProxy chooses by it among the certificates of a host.
func keyKind(secret *corev1.Secret) string {
	data, err := live.Certificate(*secret)
	if err != nil {
		return ""
	}
	block, _ := pem.Decode(data)
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return ""
	}
	return leaf.PublicKeyAlgorithm.String()
}

// reportSecret adds a finding on a Secret.
func (t *translation) reportSecret(severity diag.Severity, secret inputs.Object[corev1.Secret], message, hint string) {
	t.found = append(t.found, diag.Diagnostic{
		Severity: severity, Position: secret.Position("data", corev1.TLSCertKey), Object: secret.Ref, Message: message, Hint: hint,
	})
}

// maxFileStem leaves room in a file name for what the pusher adds.
const maxFileStem = 200

// certificateFile returns the file that stands for a Secret. A Secret's name
// holds no underscore, so that no two share a file; only one dot would survive
// the Dataplane API. A name that is too long for a file ends in its hash.
func certificateFile(secret snapshots.SecretName) string {
	stem := secret.Namespace + "_" + strings.ReplaceAll(secret.Name, ".", "_")
	if len(stem) > maxFileStem {
		sum := sha256.Sum256([]byte(stem))
		stem = stem[:maxFileStem-17] + "_" + hex.EncodeToString(sum[:8])
	}
	return "certs/" + stem + ".pem"
}
