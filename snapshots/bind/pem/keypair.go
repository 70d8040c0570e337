// Package pem reads certificates and private keys, and refuses those that HAProxy would not start with.
//
// [CheckKeyPair] and [JoinKeyPair] are for a certificate with its key, [ParseAuthorities] is for a
// ca-file, and [Serving] says why clients would refuse a certificate that HAProxy serves. Reading
// a certificate makes it canonical: nothing else that stood in the PEM reaches an instance. No error
// holds any part of a key. No function reads the clock.
//
// The package imports nothing else of this module, so that the contract can use it too.
package pem

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The reasons why a certificate cannot be served. None holds anything of the key.
var (
	ErrNoCertificate  = errors.New("there is no certificate")
	ErrBadCertificate = errors.New("a certificate is malformed")
	ErrWeak           = errors.New("OpenSSL refuses it as too weak")
	ErrNoKey          = errors.New("there is no private key")
	ErrEncryptedKey   = errors.New("the private key is encrypted")
	ErrBadKey         = errors.New("the private key is malformed, or of an unknown kind")
	ErrKeyMismatch    = errors.New("the private key does not belong to the certificate")
	ErrLongChain      = errors.New("there are more than 10 certificates in the chain, or they have more than 100 KiB, and would hold up others")
	ErrAuthorities    = errors.New("the authorities have more than 256 KiB, and would hold up others")
	ErrLongKey        = errors.New("the private key is longer than RSA of 8192 bits, and would hold up others")
)

const certificateBlock = "CERTIFICATE"

// KeyPair is a certificate with its chain and its private key, after they were read and checked to
// belong together.
type KeyPair struct {
	chain []*x509.Certificate // the leaf first; at least one
	key   *pem.Block
	// Storable says whether the Dataplane API's certificate storage takes the
	// kind of key: it knows RSA and ECDSA only.
	Storable bool
}

// CheckKeyPair checks that HAProxy can serve PEM data: a leaf certificate, its chain if any, and the
// leaf's private key, unencrypted and strong enough for OpenSSL to load. Callers check whether the
// certificate is valid now. No error holds any part of the data.
func CheckKeyPair(data []byte) (Leaf, error) {
	pair, err := ParseKeyPair(data)
	if err != nil {
		return Leaf{}, err
	}
	return pair.leaf(), nil
}

// Leaf describes the certificate of a key pair without holding it. Fingerprint is the
// SHA-256 of its DER, in hexadecimal, and Version its [Version].
type Leaf struct {
	Fingerprint string
	Names       []string
	NotAfter    time.Time
	Version     string
}

// JoinKeyPair makes the PEM that HAProxy reads from the two parts of a Secret of type
// kubernetes.io/tls: the certificates, then the private key, without other text around them. It checks
// what [CheckKeyPair] checks.
func JoinKeyPair(certificates, key []byte) ([]byte, error) {
	chain := slices.DeleteFunc(pemBlocks(certificates), isKeyBlock)
	keys := slices.DeleteFunc(pemBlocks(key), func(b *pem.Block) bool { return !isKeyBlock(b) })
	pair, err := newKeyPair(slices.Concat(chain, keys))
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for _, certificate := range pair.chain {
		_ = pem.Encode(&out, &pem.Block{Type: certificateBlock, Bytes: certificate.Raw})
	}
	_ = pem.Encode(&out, pair.key) // a Buffer does not fail, and there are no headers
	return out.Bytes(), nil
}

// ParseKeyPair reads what [CheckKeyPair] checks.
func ParseKeyPair(data []byte) (KeyPair, error) { return newKeyPair(pemBlocks(data)) }

// pemBlocks returns the blocks of PEM data, in order.
func pemBlocks(data []byte) (out []*pem.Block) {
	for {
		block, rest := pem.Decode(data)
		if block == nil {
			return out
		}
		out, data = append(out, block), rest
	}
}

// OpenSSL makes a signature with an RSA key for each handshake, on the thread that also serves others: 8 ms with
// 4096 bits, 70 ms with 8192, and half a second with 16384. TLS clients written in Go take no more than maxRSABits
// either. Reading a key takes time that grows with the square of its length, a minute for one that fills a Secret,
// so that its bytes are counted first: RSA of 8192 bits has less than 5,000.
const (
	maxRSABits  = 8192
	maxKeyBytes = 16 << 10
)

// A certificate with its chain may have maxChain certificates and maxChainBytes. OpenSSL and browsers refuse more bytes,
// and chains have four certificates or fewer. A Secret has room for two thousand, which HAProxy reads, and keeps, at each
// reload. 300 take it 40 ms, and a thousand Secrets with so many more time than a reload has.
const (
	maxChain      = 10
	maxChainBytes = 100 << 10
)

func isKeyBlock(b *pem.Block) bool { return strings.HasSuffix(b.Type, "PRIVATE KEY") }

// newKeyPair takes the certificates among the blocks and the first key, as HAProxy does.
func newKeyPair(blocks []*pem.Block) (KeyPair, error) {
	var pair KeyPair
	length := 0
	for _, block := range blocks {
		switch {
		case block.Type == certificateBlock:
			if length += len(block.Bytes); length > maxChainBytes || len(pair.chain) == maxChain {
				return KeyPair{}, ErrLongChain
			}
			certificate, err := parseCertificate(block.Bytes)
			if err != nil {
				return KeyPair{}, err
			}
			pair.chain = append(pair.chain, certificate)
		case isKeyBlock(block) && pair.key == nil:
			pair.key = block
		}
	}
	switch {
	case len(pair.chain) == 0:
		return KeyPair{}, ErrNoCertificate
	case pair.key == nil:
		return KeyPair{}, ErrNoKey
	}
	if pair.key.Type == "ENCRYPTED PRIVATE KEY" || strings.Contains(pair.key.Headers["Proc-Type"], "ENCRYPTED") {
		return KeyPair{}, ErrEncryptedKey
	}
	if len(pair.key.Bytes) > maxKeyBytes {
		return KeyPair{}, ErrLongKey
	}
	signer, key := parseKey(pair.key.Bytes)
	if signer == nil {
		return KeyPair{}, ErrBadKey
	}
	if own, ok := signer.(*rsa.PrivateKey); ok && own.N.BitLen() > maxRSABits {
		return KeyPair{}, ErrLongKey
	}
	public, ok := signer.Public().(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !public.Equal(pair.chain[0].PublicKey) {
		return KeyPair{}, ErrKeyMismatch
	}
	for _, certificate := range pair.chain {
		if err := checkStrength(certificate); err != nil {
			return KeyPair{}, err
		}
	}
	_, edwards := signer.(ed25519.PrivateKey)
	pair.key, pair.Storable = key, !edwards
	return pair, nil
}

// parseKey reads a private key in any of its forms, whatever its PEM block is called. It returns the
// key, and the key written anew in that form with the proper name of the block, or nil if it knows no such
// form. Go ignores what else stands in a key, such as a public key that does not belong to it; OpenSSL does not.
func parseKey(der []byte) (crypto.Signer, *pem.Block) {
	if key, err := x509.ParsePKCS8PrivateKey(der); err == nil {
		signer, ok := key.(crypto.Signer)
		anew, err := x509.MarshalPKCS8PrivateKey(key)
		if !ok || err != nil {
			return nil, nil
		}
		return signer, &pem.Block{Type: "PRIVATE KEY", Bytes: anew}
	}
	if key, err := x509.ParsePKCS1PrivateKey(der); err == nil {
		return key, &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
	}
	if key, err := x509.ParseECPrivateKey(der); err == nil {
		if anew, err := x509.MarshalECPrivateKey(key); err == nil {
			return key, &pem.Block{Type: "EC PRIVATE KEY", Bytes: anew}
		}
	}
	return nil, nil
}

func (p KeyPair) leaf() Leaf {
	leaf := p.chain[0]
	names := slices.Clone(leaf.DNSNames)
	for _, ip := range leaf.IPAddresses {
		names = append(names, ip.String())
	}
	if len(names) == 0 && leaf.Subject.CommonName != "" {
		names = append(names, leaf.Subject.CommonName)
	}
	slices.Sort(names)
	sum := sha256.Sum256(leaf.Raw)
	return Leaf{
		Fingerprint: hex.EncodeToString(sum[:]),
		Names:       slices.Compact(names),
		NotAfter:    leaf.NotAfter.UTC(),
		Version:     p.version(),
	}
}

// Version returns the fingerprint of a certificate with its chain: the SHA-256 of their DER, in
// hexadecimal. It covers the key, since the certificate holds its public half. The errors are those of
// [CheckKeyPair].
func Version(data []byte) (string, error) {
	pair, err := ParseKeyPair(data)
	if err != nil {
		return "", err
	}
	return pair.version(), nil
}

func (p KeyPair) version() string {
	h := sha256.New()
	for _, certificate := range p.chain {
		h.Write(certificate.Raw) // DER tells its own length
	}
	return hex.EncodeToString(h.Sum(nil))
}

// maxAuthorityBytes is how long the authorities of a ca-file may be, as DER. HAProxy reads them at each reload, and keeps
// them for each host. Those that browsers trust have about 160 KiB together.
const maxAuthorityBytes = 256 << 10

// ParseAuthorities returns the certificates among PEM data as HAProxy reads a ca-file, each once,
// without other text around them, so that a private key which is there by mistake is left out. The
// errors are those of [CheckKeyPair].
func ParseAuthorities(data []byte) ([]byte, error) {
	var out bytes.Buffer
	seen, length := map[string]bool{}, 0
	for _, block := range pemBlocks(data) {
		if block.Type != certificateBlock || seen[string(block.Bytes)] {
			continue
		}
		if length += len(block.Bytes); length > maxAuthorityBytes {
			return nil, ErrAuthorities
		}
		if _, err := parseCertificate(block.Bytes); err != nil {
			return nil, err
		}
		seen[string(block.Bytes)] = true
		_ = pem.Encode(&out, &pem.Block{Type: certificateBlock, Bytes: block.Bytes}) // a Buffer does not fail
	}
	if out.Len() == 0 {
		return nil, ErrNoCertificate
	}
	return out.Bytes(), nil
}

// WithoutRoot returns, with their subjects, those certificates whose issuers do not lead to a self-signed one
// among them. The PEM is that of [ParseAuthorities]. HAProxy trusts nothing that one of them has signed.
func WithoutRoot(authorities []byte) map[string]string {
	left, trusted := map[string]*x509.Certificate{}, map[string]bool{}
	for _, block := range pemBlocks(authorities) {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			left[string(pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: block.Bytes}))] = c
		}
	}
	for more := true; more; {
		more = false
		for text, c := range left {
			if bytes.Equal(c.RawIssuer, c.RawSubject) || trusted[string(c.RawIssuer)] {
				trusted[string(c.RawSubject)], more = true, true
				delete(left, text)
			}
		}
	}
	out := map[string]string{}
	for text, c := range left {
		out[text] = c.Subject.String()
	}
	return out
}

// Serving says why clients refuse a certificate that HAProxy serves. It does not cover expiry and the names of
// hosts.
type Serving struct {
	notBefore time.Time
	always    []string
	// issuer is the authority in the chain that expires first, except for roots, which clients do not take from
	// a server.
	issuer        string
	issuerExpires time.Time
}

// ServingOf reads the first certificate of PEM data, and its chain.
func ServingOf(data []byte) Serving {
	block, rest := pem.Decode(data)
	if block == nil {
		return Serving{}
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return Serving{}
	}
	s := Serving{notBefore: leaf.NotBefore}
	if !forServers(leaf) {
		s.always = append(s.always, "is not for servers: its extended key usage says what else it is for")
	}
	if leaf.BasicConstraintsValid && leaf.IsCA {
		s.always = append(s.always, "is that of a certificate authority")
	}
	for _, block := range pemBlocks(rest) {
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil || bytes.Equal(c.RawIssuer, c.RawSubject) {
			continue
		}
		if s.issuerExpires.IsZero() || c.NotAfter.Before(s.issuerExpires) {
			s.issuer, s.issuerExpires = c.Subject.String(), c.NotAfter
		}
	}
	return s
}

// Faults returns, in words for people, the reasons why clients refuse the certificate at a time.
func (s Serving) Faults(now time.Time) []string {
	if now.IsZero() {
		return s.always
	}
	out := slices.Clone(s.always)
	if now.Before(s.notBefore) {
		out = slices.Insert(out, 0, "is not valid before "+s.notBefore.UTC().Format("2006-01-02 15:04 UTC"))
	}
	if !s.issuerExpires.IsZero() && now.After(s.issuerExpires) {
		out = append(out, fmt.Sprintf("has a chain with the authority %q, which expired on %s", s.issuer, s.issuerExpires.UTC().Format(time.DateOnly)))
	}
	return out
}

// forServers reports whether a certificate may be used by a server. A certificate without usages may be
// used for everything.
func forServers(leaf *x509.Certificate) bool {
	if len(leaf.ExtKeyUsage)+len(leaf.UnknownExtKeyUsage) == 0 {
		return true
	}
	return slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageServerAuth) || slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageAny)
}
