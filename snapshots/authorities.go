package snapshots

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
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
