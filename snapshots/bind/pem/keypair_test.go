package pem

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/snapshots/bind/pem/pemtest"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func TestCheckKeyPair(t *testing.T) {
	ec := pemtest.Certify(t, "a.example", pemtest.ECKey(), nil)
	for _, tt := range []struct {
		name string
		pem  []byte
		want error
	}{
		{"ECDSA", pemtest.SelfSigned(t, "a.example", pemtest.ECKey()), nil},
		{"RSA", pemtest.SelfSigned(t, "a.example", pemtest.RSAKey()), nil},
		{"Ed25519", pemtest.SelfSigned(t, "a.example", pemtest.EdKey), nil},
		{"the key before the certificate", append(pemtest.KeyPEM(t, pemtest.ECKey()), ec...), nil},
		{"with a chain", bytes.Join([][]byte{pemtest.Certify(t, "a.example", pemtest.ECKey(), pemtest.ECKey2()), pemtest.Certify(t, "issuer", pemtest.ECKey2(), nil), pemtest.KeyPEM(t, pemtest.ECKey())}, nil), nil},
		{"empty", nil, ErrNoCertificate},
		{"not PEM", []byte("hello"), ErrNoCertificate},
		{"only a key", pemtest.KeyPEM(t, pemtest.ECKey()), ErrNoCertificate},
		{"only a certificate", ec, ErrNoKey},
		{"the key of another", append(bytes.Clone(ec), pemtest.KeyPEM(t, pemtest.ECKey2())...), ErrKeyMismatch},
		{"a key of another kind", append(bytes.Clone(ec), pemtest.KeyPEM(t, pemtest.EdKey)...), ErrKeyMismatch},
		{"a malformed leaf", append(pemtest.Block("CERTIFICATE", "junk"), pemtest.KeyPEM(t, pemtest.ECKey())...), ErrBadCertificate},
		{"a malformed chain", bytes.Join([][]byte{ec, pemtest.Block("CERTIFICATE", "junk"), pemtest.KeyPEM(t, pemtest.ECKey())}, nil), ErrBadCertificate},
		{"a malformed key", append(bytes.Clone(ec), pemtest.Block("PRIVATE KEY", "junk")...), ErrBadKey},
		{"an encrypted key", append(bytes.Clone(ec), pemtest.Block("ENCRYPTED PRIVATE KEY", "junk")...), ErrEncryptedKey},
		{"a key encrypted as of old", append(bytes.Clone(ec), "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nAAAA\n-----END RSA PRIVATE KEY-----\n"...), ErrEncryptedKey},
		{"a chain that no client takes", append(bytes.Join([][]byte{ec, pemtest.Block("CERTIFICATE", strings.Repeat("x", maxChainBytes))}, nil), pemtest.KeyPEM(t, pemtest.ECKey())...), ErrLongChain},
		{"the longest chain, without its key", bytes.Repeat(ec, maxChain), ErrNoKey},
		{"a longer chain", append(bytes.Repeat(ec, maxChain+1), pemtest.KeyPEM(t, pemtest.ECKey())...), ErrLongChain},
		{"a short RSA key", pemtest.SelfSigned(t, "a.example", pemtest.WeakKey()), ErrWeak},
		{"the longest RSA key, of another", append(bytes.Clone(ec), rsaKeyOf(t, 8192)...), ErrKeyMismatch},
		{"a longer RSA key", append(bytes.Clone(ec), rsaKeyOf(t, 8194)...), ErrLongKey},
		{"a key that would take long to read", append(bytes.Clone(ec), pemtest.Block("RSA PRIVATE KEY", strings.Repeat("x", 16385))...), ErrLongKey},
		{"a chain with a short RSA key", bytes.Join([][]byte{ec, pemtest.Certify(t, "issuer", pemtest.WeakKey(), nil), pemtest.KeyPEM(t, pemtest.ECKey())}, nil), ErrWeak},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := CheckKeyPair(tt.pem); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

// rsaKeyOf returns an RSA key of this many bits, whose primes are none: it would take long to find some.
func rsaKeyOf(t *testing.T, bits uint) []byte {
	t.Helper()
	one, e := big.NewInt(1), big.NewInt(65537)
	limit := new(big.Int).Lsh(one, bits/2)
	for below := int64(1); ; below += 2 {
		p := new(big.Int).Sub(limit, big.NewInt(below))
		q := new(big.Int).Sub(p, new(big.Int).Rsh(limit, 2))
		p1, q1 := new(big.Int).Sub(p, one), new(big.Int).Sub(q, one)
		d := new(big.Int).ModInverse(e, new(big.Int).Mul(p1, q1))
		if d == nil {
			continue
		}
		der, err := asn1.Marshal(struct {
			Version               int
			N                     *big.Int
			E                     int
			D, P, Q, Dp, Dq, Qinv *big.Int
		}{0, new(big.Int).Mul(p, q), 65537, d, p, q, new(big.Int).Mod(d, p1), new(big.Int).Mod(d, q1), new(big.Int).ModInverse(q, p)})
		if err != nil {
			t.Fatal(err)
		}
		return pemtest.Block("RSA PRIVATE KEY", string(der))
	}
}

func TestWeakSignatures(t *testing.T) {
	sign := func(key, by crypto.Signer, edit func(*x509.Certificate)) *x509.Certificate {
		template := &x509.Certificate{SerialNumber: big.NewInt(7777), Subject: pkix.Name{CommonName: "root"}, SubjectKeyId: []byte{1, 2}}
		edit(template)
		der, err := x509.CreateCertificate(rand.Reader, template, &x509.Certificate{Subject: pkix.Name{CommonName: "root"}}, key.Public(), by)
		if err != nil {
			t.Fatal(err)
		}
		c, err := parseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	issuer := func(parts ...asn1.RawValue) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			for i := range parts {
				parts[i].Class = asn1.ClassContextSpecific
			}
			value, _ := asn1.Marshal(parts)
			c.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 35}, Value: value}}
		}
	}
	name := func(common string) asn1.RawValue {
		der, _ := asn1.Marshal(pkix.Name{CommonName: common}.ToRDNSequence())
		general, _ := asn1.Marshal(asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 4, IsCompound: true, Bytes: der})
		return asn1.RawValue{Tag: 1, IsCompound: true, Bytes: general}
	}
	of := func(name string) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.Subject.CommonName = name }
	}
	rsaKey, ecKey := pemtest.RSAKey(), pemtest.ECKey()
	for _, tt := range []struct {
		name string
		c    *x509.Certificate
		by   x509.SignatureAlgorithm
		want string
	}{
		{"of another", sign(rsaKey, rsaKey, of("a")), x509.SHA1WithRSA, "SHA1-RSA"},
		{"of a root", sign(rsaKey, rsaKey, of("root")), x509.SHA1WithRSA, ""},
		{"of a root by ECDSA", sign(ecKey, ecKey, of("root")), x509.ECDSAWithSHA1, ""},
		{"of a root that says so", sign(rsaKey, rsaKey, issuer(asn1.RawValue{Bytes: []byte{1, 2}}, name("root"), asn1.RawValue{Tag: 2, Bytes: []byte{0x1e, 0x61}})), x509.SHA1WithRSA, ""},
		{"of one with another key", sign(rsaKey, rsaKey, issuer(asn1.RawValue{Bytes: []byte{1, 3}})), x509.SHA1WithRSA, "SHA1-RSA"},
		{"of one with another issuer", sign(rsaKey, rsaKey, issuer(name("other"))), x509.SHA1WithRSA, "SHA1-RSA"},
		{"of one with another number", sign(rsaKey, rsaKey, issuer(asn1.RawValue{Tag: 2, Bytes: []byte{7}})), x509.SHA1WithRSA, "SHA1-RSA"},
		{"by another kind of key", sign(rsaKey, ecKey, of("root")), x509.ECDSAWithSHA1, "ECDSA-SHA1"},
		{"that nobody knows", sign(rsaKey, rsaKey, of("root")), x509.UnknownSignatureAlgorithm, "not known"},
	} {
		tt.c.SignatureAlgorithm = tt.by
		if err := checkStrength(tt.c); (err == nil) != (tt.want == "") || err != nil && (!errors.Is(err, ErrWeak) || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("a signature %s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

// grown returns DER with one more element in one of its sequences, which Go ignores: in the outermost one, or in its
// element with the given index, and so on.
func grown(t *testing.T, der []byte, at ...int) []byte {
	t.Helper()
	var outer asn1.RawValue
	if _, err := asn1.Unmarshal(der, &outer); err != nil {
		t.Fatal(err)
	}
	if len(at) == 0 {
		outer.Bytes = append(bytes.Clone(outer.Bytes), asn1.TagNull, 0)
	} else {
		var elements []asn1.RawValue
		for rest := outer.Bytes; len(rest) > 0; {
			var e asn1.RawValue
			var err error
			if rest, err = asn1.Unmarshal(rest, &e); err != nil {
				t.Fatal(err)
			}
			elements = append(elements, e)
		}
		outer.Bytes = nil
		for i, e := range elements {
			if i == at[0] {
				e.FullBytes = grown(t, e.FullBytes, at[1:]...)
			}
			outer.Bytes = append(outer.Bytes, e.FullBytes...)
		}
	}
	outer.FullBytes = nil
	out, err := asn1.Marshal(outer)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// derOf returns the content of the first block of PEM data, in which an identifier is another one.
func derOf(text []byte, from, to asn1.ObjectIdentifier) []byte {
	block, _ := pem.Decode(text)
	if from == nil {
		return block.Bytes
	}
	was, _ := asn1.Marshal(from)
	is, _ := asn1.Marshal(to)
	return bytes.ReplaceAll(block.Bytes, was, is)
}

// Go reads what OpenSSL does not, with which HAProxy would not start.
func TestWhatOpenSSLRefuses(t *testing.T) {
	ecdsaKey, ecdsaSHA256 := asn1.ObjectIdentifier{1, 2, 840, 10045, 2, 1}, asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 3, 2}
	leaf, key := pemtest.Certify(t, "a.example", pemtest.ECKey(), pemtest.ECKey2()), pemtest.KeyPEM(t, pemtest.ECKey())
	certificate := func(der []byte) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	}
	plain := derOf(leaf, nil, nil)
	unknownKey := certificate(derOf(leaf, ecdsaKey, asn1.ObjectIdentifier{1, 2, 840, 10045, 2, 9}))
	for name, tt := range map[string]struct {
		certificates []byte
		want         error
	}{
		"more in the signature's algorithm": {certificate(grown(t, plain, 1)), ErrBadCertificate},
		"more in the validity":              {certificate(grown(t, plain, 0, 4)), ErrBadCertificate},
		"more in an extension":              {certificate(grown(t, plain, 0, 7, 0, 0)), ErrBadCertificate},
		"more in the chain":                 {append(bytes.Clone(leaf), certificate(grown(t, plain, 0, 4))...), ErrBadCertificate},
		"an unknown signature":              {certificate(derOf(leaf, ecdsaSHA256, asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 3, 9})), ErrWeak},
		"an unknown key in the chain":       {append(bytes.Clone(leaf), unknownKey...), ErrWeak},
	} {
		if _, err := JoinKeyPair(tt.certificates, key); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
	if _, err := ParseAuthorities(certificate(grown(t, plain, 0, 4))); !errors.Is(err, ErrBadCertificate) {
		t.Errorf("an authority: %v", err)
	}
	if _, err := ParseAuthorities(unknownKey); err != nil {
		t.Errorf("an authority, whose key is not loaded: %v", err)
	}
	// The parameters of an algorithm that Go does not know may be anything for Go.
	curve, _ := asn1.Marshal(asn1.ObjectIdentifier{1, 2, 840, 10045, 3, 1, 7})
	for tag, want := range map[int]error{asn1.TagOID: nil, asn1.TagBoolean: ErrBadCertificate, asn1.TagNull: ErrBadCertificate, 0: ErrBadCertificate, asn1.TagInteger: ErrBadCertificate, asn1.TagSequence: ErrBadCertificate} {
		odd := bytes.Clone(curve)
		odd[0] = byte(tag)
		authority := certificate(bytes.ReplaceAll(derOf(leaf, ecdsaKey, asn1.ObjectIdentifier{1, 2, 840, 10045, 2, 9}), curve, odd))
		if _, err := ParseAuthorities(authority); !errors.Is(err, want) {
			t.Errorf("an authority whose key has parameters of tag %d: %v, want %v", tag, err, want)
		}
	}
}

// What else stands in a key does not reach HAProxy.
func TestKeysAreWrittenAnew(t *testing.T) {
	ec, certificate := pemtest.ECKey().(*ecdsa.PrivateKey), pemtest.Certify(t, "a.example", pemtest.ECKey(), nil)
	sec1, err := x509.MarshalECPrivateKey(ec)
	if err != nil {
		t.Fatal(err)
	}
	mine, _ := ec.PublicKey.Bytes()
	other, _ := pemtest.ECKey2().(*ecdsa.PrivateKey).PublicKey.Bytes()
	for name, tt := range map[string]struct{ kind, der, want string }{
		"PKCS #8":             {"PRIVATE KEY", string(grown(t, derOf(pemtest.KeyPEM(t, ec), nil, nil))), string(derOf(pemtest.KeyPEM(t, ec), nil, nil))},
		"SEC 1":               {"EC PRIVATE KEY", string(grown(t, sec1)), string(sec1)},
		"another public half": {"EC PRIVATE KEY", string(bytes.ReplaceAll(sec1, mine, other)), string(sec1)},
	} {
		joined, err := JoinKeyPair(certificate, pem.EncodeToMemory(&pem.Block{Type: tt.kind, Bytes: []byte(tt.der)}))
		want := append(bytes.Clone(certificate), pem.EncodeToMemory(&pem.Block{Type: tt.kind, Bytes: []byte(tt.want)})...)
		if tt.der == tt.want || err != nil || !bytes.Equal(joined, want) {
			t.Errorf("%s: %v, %s", name, err, joined)
		}
	}
}

// Clients refuse a certificate whose chain has expired, although it is valid itself. They do not take a root from a
// server.
func TestExpiredChain(t *testing.T) {
	root := pemtest.NewAuthority(t)
	middle := root.Authority(t, "middle")
	certificate, key := pemtest.PEMOf(t, middle.Sign(t, "a.example", func(c *x509.Certificate) { c.NotAfter = c.NotAfter.AddDate(1, 0, 0) }))
	expires := middle.Certificate.NotAfter
	want := `has a chain with the authority "CN=middle", which expired on ` + expires.UTC().Format(time.DateOnly)
	for chain, says := range map[string][]string{middle.PEM + root.PEM: {want}, root.PEM: nil, "": nil} {
		s := ServingOf([]byte(certificate + chain + key))
		if got := s.Faults(expires.Add(time.Minute)); !slices.Equal(got, says) {
			t.Errorf("it says %q, want %q", got, says)
		}
		if got := append(s.Faults(expires.Add(-time.Minute)), s.Faults(time.Time{})...); len(got) > 0 {
			t.Errorf("before, it says %q", got)
		}
	}
}

func TestLeaf(t *testing.T) {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ignored.example"},
		DNSNames: []string{"b.example", "a.example", "a.example"}, IPAddresses: []net.IP{net.IPv6loopback},
		NotBefore: noon, NotAfter: noon.Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, pemtest.EdKey.Public(), pemtest.EdKey)
	if err != nil {
		t.Fatal(err)
	}
	got, err := CheckKeyPair(append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pemtest.KeyPEM(t, pemtest.EdKey)...))
	want := Leaf{Fingerprint: got.Fingerprint, Names: []string{"::1", "a.example", "b.example"}, NotAfter: noon.Add(time.Hour), Version: got.Version}
	if diff := cmp.Diff(want, got); diff != "" || err != nil || len(got.Fingerprint) != 64 {
		t.Errorf("%v, fingerprint %q (-want +got):\n%s", err, got.Fingerprint, diff)
	}
}

// The joined PEM is canonical: HAProxy, which refuses some of what Go accepts, gets no text around the blocks,
// no other blocks, and no wrong name of the key's form.
func TestJoinKeyPair(t *testing.T) {
	leaf, issuer := pemtest.Certify(t, "a.example", pemtest.RSAKey(), pemtest.ECKey2()), pemtest.Certify(t, "issuer", pemtest.ECKey2(), nil)
	pkcs1 := x509.MarshalPKCS1PrivateKey(pemtest.RSAKey().(*rsa.PrivateKey))
	certificates := bytes.Join([][]byte{[]byte("subject=a.example\n"), leaf, pemtest.KeyPEM(t, pemtest.ECKey2()), pemtest.Block("DH PARAMETERS", "weak"), issuer}, nil)
	key := append([]byte("Bag Attributes\n"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs1})...)
	got, err := JoinKeyPair(certificates, key)
	if err != nil {
		t.Fatal(err)
	}
	want := bytes.Join([][]byte{leaf, issuer, pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: pkcs1})}, nil)
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("joined (-want +got):\n%s", diff)
	}
	if _, err := JoinKeyPair(certificates, nil); !errors.Is(err, ErrNoKey) {
		t.Errorf("without a key: %v", err)
	}
}

// Authorities that are longer than those of all browsers are refused. Each counts once.
func TestLongAuthorities(t *testing.T) {
	t.Parallel()
	authority := pemtest.Certify(t, "authority", pemtest.ECKey(), nil)
	if got, err := ParseAuthorities(bytes.Repeat(authority, 2000)); err != nil || !bytes.Equal(got, authority) {
		t.Errorf("one authority that is repeated: %d bytes, %v", len(got), err)
	}
	long := pemtest.Certify(t, strings.Repeat("a", maxAuthorityBytes), pemtest.ECKey(), nil)
	if _, err := ParseAuthorities(long); !errors.Is(err, ErrAuthorities) {
		t.Errorf("long authorities: %v", err)
	}
}
