package pem

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"time"
)

// ParseAuthorities returns the certificates among PEM data as HAProxy reads a
// ca-file, each once, without whatever else stood around them: a private key that
// is there by mistake goes nowhere. The errors are those of [CheckKeyPair].
func ParseAuthorities(data []byte) ([]byte, error) {
	var out bytes.Buffer
	seen := map[string]bool{}
	for _, block := range pemBlocks(data) {
		if block.Type != certificateBlock || seen[string(block.Bytes)] {
			continue
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return nil, ErrBadCertificate
		}
		seen[string(block.Bytes)] = true
		_ = pem.Encode(&out, &pem.Block{Type: certificateBlock, Bytes: block.Bytes}) // a Buffer does not fail
	}
	if out.Len() == 0 {
		return nil, ErrNoCertificate
	}
	return out.Bytes(), nil
}

// ServingFaults says why clients refuse a certificate, given as PEM, that is served to them
// at a time, in words for people. HAProxy serves it all the same. That it is expired, and the
// hosts that it is for, are not looked at.
func ServingFaults(data []byte, now time.Time) []string {
	block, _ := pem.Decode(data)
	if block == nil {
		return nil
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil
	}
	var out []string
	if !now.IsZero() && now.Before(leaf.NotBefore) {
		out = append(out, "is not valid before "+leaf.NotBefore.UTC().Format("2006-01-02 15:04 UTC"))
	}
	if !forServers(leaf) {
		out = append(out, "is not for servers: its extended key usage says what else it is for")
	}
	if leaf.BasicConstraintsValid && leaf.IsCA {
		out = append(out, "is that of a certificate authority")
	}
	return out
}

// forServers reports whether a certificate may be one of a server: no usage at all is any.
func forServers(leaf *x509.Certificate) bool {
	if len(leaf.ExtKeyUsage)+len(leaf.UnknownExtKeyUsage) == 0 {
		return true
	}
	return slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageServerAuth) || slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageAny)
}
