package live

import (
	"crypto/x509"
	stdpem "encoding/pem"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem"
)

// Problem is a Secret whose certificate cannot be served. Err wraps one of
// the causes in package snapshots, such as [pem.ErrKeyMismatch], and never
// holds any part of the Secret's data.
//
//nolint:errname // It is found beside certificates, not returned as an error.
type Problem struct {
	Secret snapshots.SecretName
	Err    error
}

// Error returns "Secret namespace/name: what is wrong".
func (p Problem) Error() string { return fmt.Sprintf("Secret %s: %v", p.Secret, p.Err) }

// Unwrap returns the cause.
func (p Problem) Unwrap() error { return p.Err }

// Certificates returns the certificates among the Secrets as HAProxy reads
// them, the chain and then the private key in one PEM, and the Secrets that
// have one that cannot be served, sorted. A Secret has a certificate if it is of
// type kubernetes.io/tls or has the keys tls.crt and tls.key. Whether it is
// valid now is not looked at.
func Certificates(secrets []corev1.Secret) (certificates map[snapshots.SecretName][]byte, problems []Problem) {
	certificates = map[snapshots.SecretName][]byte{}
	for _, secret := range secrets {
		if !holdsCertificate(secret) {
			continue
		}
		name := snapshots.SecretName{Namespace: secret.Namespace, Name: secret.Name}
		pem, err := Certificate(secret)
		if err != nil {
			problems = append(problems, Problem{name, err})
			continue
		}
		certificates[name] = pem
	}
	slices.SortFunc(problems, func(a, b Problem) int { return a.Secret.Compare(b.Secret) })
	return certificates, problems
}

func holdsCertificate(secret corev1.Secret) bool {
	_, certificate := value(secret, corev1.TLSCertKey)
	_, key := value(secret, corev1.TLSPrivateKeyKey)
	return secret.Type == corev1.SecretTypeTLS || (certificate && key)
}

// Certificate returns the certificate of one Secret as HAProxy reads it.
func Certificate(secret corev1.Secret) ([]byte, error) {
	certificate, ok := value(secret, corev1.TLSCertKey)
	if !ok {
		return nil, fmt.Errorf("%s: %w", corev1.TLSCertKey, pem.ErrNoCertificate)
	}
	key, ok := value(secret, corev1.TLSPrivateKeyKey)
	if !ok {
		return nil, fmt.Errorf("%s: %w", corev1.TLSPrivateKeyKey, pem.ErrNoKey)
	}
	return pem.JoinKeyPair(certificate, key)
}

// ExpiresAt returns when the first certificate of PEM data expires; zero if that
// cannot be told.
func ExpiresAt(data []byte) time.Time {
	_, until := ValidBetween(data)
	return until
}

// ValidBetween returns from when to when the first certificate of PEM data is valid; zero
// if that cannot be told.
func ValidBetween(data []byte) (from, until time.Time) {
	block, _ := stdpem.Decode(data)
	if block == nil {
		return time.Time{}, time.Time{}
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}, time.Time{}
	}
	return leaf.NotBefore, leaf.NotAfter
}
