package credentials

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The keys of a Secret with a certificate, beside those of the type kubernetes.io/tls. What
// is served next is not mounted by servers.
const (
	CAKey       = "ca.crt"
	nextCertKey = "next.crt"
	nextKeyKey  = "next.key"
)

const (
	// Lifetime is how long a certificate is valid. The next one is made when two thirds of
	// it are over.
	Lifetime = 90 * 24 * time.Hour
	// propagation is how long the next certificate is trusted before it is served.
	propagation = time.Hour
	// backdated is how much earlier than it is made a certificate becomes valid: the
	// clocks of others may be late.
	backdated = time.Hour
	// warning is how long before it expires a certificate that is not renewed is reported.
	warning = 7 * 24 * time.Hour
	// mostTrusted bounds ca.crt, whatever a clock does.
	mostTrusted = 8
)

// Certificate is what a certificate is for.
type Certificate struct {
	// DNSNames are those by which clients verify the server.
	DNSNames []string
}

// SelfSigned returns a certificate that is signed with its own key, and that key, a new one,
// in PEM. The template needs no serial number and no usages.
func SelfSigned(template x509.Certificate) (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return nil, nil, err
	}
	template.KeyUsage, template.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, private.Public(), private)
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), nil
}

// issue makes a certificate.
func (c Certificate) issue(now time.Time) (certificate, key []byte, err error) {
	certificate, key, err = SelfSigned(x509.Certificate{
		Subject: pkix.Name{CommonName: "hapsnap"}, DNSNames: c.DNSNames, BasicConstraintsValid: true,
		NotBefore: now.Add(-backdated), NotAfter: now.Add(Lifetime),
	})
	if err != nil {
		return nil, nil, fmt.Errorf("make a certificate: %w", err)
	}
	return certificate, key, nil
}

// renew returns the data that a Secret of ours is to have, nil for what it has, and why. With
// asked, people want another certificate. With trusted, what verifies the certificate has the Secret's present ca.crt.
func (c Certificate) renew(data map[string][]byte, now time.Time, asked, trusted bool) (next map[string][]byte, why string, err error) {
	leaf, problem := c.usable(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey], now)
	if problem != nil {
		certificate, key, err := c.issue(now)
		if err != nil {
			return nil, "", err
		}
		return with(certificate, key, nil, nil, data[CAKey], now), fmt.Sprintf("none could be used: %v", problem), nil
	}
	begun := len(data[nextCertKey]) > 0
	if now.Before(leaf.NotBefore.Add(backdated+Lifetime*2/3)) && !asked && !begun {
		return nil, "", nil
	}
	coming, problem := c.usable(data[nextCertKey], data[nextKeyKey], now)
	if problem != nil {
		certificate, key, err := c.issue(now)
		if err != nil {
			return nil, "", err
		}
		return with(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey], certificate, key, data[CAKey], now), "two thirds of its life are over, or another one was asked for: the next one is trusted from now on", nil
	}
	if !trusted || now.Before(coming.NotBefore.Add(backdated+propagation)) {
		return nil, "", nil
	}
	return with(data[nextCertKey], data[nextKeyKey], nil, nil, data[CAKey], now), "the next one is served from now on", nil
}

// with returns the data of a Secret with a certificate, and perhaps the next one. Others that
// were trusted and can be used still are.
func with(certificate, key, next, nextKey, trusted []byte, now time.Time) map[string][]byte {
	out := map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key}
	if next != nil {
		out[nextCertKey], out[nextKeyKey] = next, nextKey
	}
	var all []*x509.Certificate
	for _, c := range parseAll(slices.Concat(certificate, next, trusted)) {
		if now.Before(c.NotAfter) && len(all) < mostTrusted && !slices.ContainsFunc(all, c.Equal) {
			all = append(all, c)
		}
	}
	var ca bytes.Buffer
	for _, c := range all {
		ca.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}))
	}
	out[CAKey] = ca.Bytes()
	return out
}

func parseAll(data []byte) (out []*x509.Certificate) {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			out = append(out, c)
		}
	}
	return out
}

var errNoCertificate = errors.New("there is none")

// usable returns the leaf of a certificate that can be served now, or why it cannot.
func (c Certificate) usable(certificate, key []byte, now time.Time) (*x509.Certificate, error) {
	if len(certificate) == 0 && len(key) == 0 {
		return nil, errNoCertificate
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what is wrong, and nothing of the key
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return nil, err
	}
	switch {
	case now.Before(leaf.NotBefore):
		return nil, fmt.Errorf("it is not valid before %s, by the clock here", leaf.NotBefore.UTC().Format(time.RFC3339))
	case !now.Before(leaf.NotAfter):
		return nil, fmt.Errorf("it expired at %s", leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	for _, name := range c.DNSNames {
		if err := leaf.VerifyHostname(name); err != nil {
			return nil, err
		}
	}
	return leaf, nil
}

// foreign returns what is wrong with a certificate that is not ours.
func (c Certificate) foreign(data map[string][]byte, now time.Time) error {
	leaf, err := c.usable(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey], now)
	if err != nil {
		return fmt.Errorf("its certificate cannot be used: %w", err)
	}
	if len(parseAll(data[CAKey])) == 0 {
		return fmt.Errorf("it has no authority under %s", CAKey)
	}
	if leaf.NotAfter.Sub(now) < warning {
		return fmt.Errorf("its certificate expires at %s and is not renewed", leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return nil
}
