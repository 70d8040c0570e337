package pem

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/asn1"
	"fmt"
	"math/big"
	"reflect"
)

// parseCertificate reads a certificate that OpenSSL can read as well. Go ignores what follows the known elements of a
// sequence. OpenSSL does not, and HAProxy does not start with one file that it cannot read.
func parseCertificate(der []byte) (*x509.Certificate, error) {
	c, err := x509.ParseCertificate(der)
	if err != nil || !isPlain(der) {
		return nil, ErrBadCertificate
	}
	return c, nil
}

// The elements of a certificate (RFC 5280, section 4.1), without the unique identifiers, which no authority may write.
type (
	certificateForm struct {
		TBS struct {
			Version   int `asn1:"optional,explicit,default:0,tag:0"`
			Serial    *big.Int
			Algorithm algorithmForm
			Issuer    []nameSET
			Validity  struct{ From, To asn1.RawValue }
			Subject   []nameSET
			Key       struct {
				Algorithm algorithmForm
				Bits      asn1.BitString
			}
			Extensions []asn1.RawValue `asn1:"optional,explicit,tag:3"`
		}
		Algorithm algorithmForm
		Signature asn1.BitString
	}
	algorithmForm struct {
		ID         asn1.ObjectIdentifier
		Parameters asn1.RawValue `asn1:"optional"`
	}
	nameSET []struct {
		ID    asn1.ObjectIdentifier
		Value asn1.RawValue
	}
	extensionForm struct {
		ID    asn1.ObjectIdentifier
		Value []byte
	}
	criticalForm struct {
		ID       asn1.ObjectIdentifier
		Critical bool
		Value    []byte
	}
)

// isPlain reports whether a certificate has the elements of a certificate, and no others.
func isPlain(der []byte) bool {
	var c certificateForm
	if !isWhole(der, &c) || len(c.TBS.Extensions) > 0 && c.TBS.Version != 2 { // version 3, before which Go ignores them
		return false
	}
	for _, a := range []algorithmForm{c.Algorithm, c.TBS.Algorithm, c.TBS.Key.Algorithm} {
		if !a.isReadable() {
			return false
		}
	}
	for _, e := range c.TBS.Extensions {
		if !isWhole(e.FullBytes, new(extensionForm)) && !isWhole(e.FullBytes, new(criticalForm)) {
			return false
		}
	}
	return true
}

// isReadable reports whether parameters of an algorithm are of a kind that algorithms have: none, NULL, an identifier or a
// SEQUENCE. Go reads those of algorithms that it does not know as any bytes, and OpenSSL as what their tag says.
func (a algorithmForm) isReadable() bool {
	switch p := a.Parameters; {
	case len(p.FullBytes) == 0:
		return true
	case p.Class != asn1.ClassUniversal:
		return false
	case p.Tag == asn1.TagNull:
		return !p.IsCompound && len(p.Bytes) == 0
	case p.Tag == asn1.TagOID:
		return isWhole(p.FullBytes, new(asn1.ObjectIdentifier))
	default:
		return p.Tag == asn1.TagSequence && p.IsCompound
	}
}

// isWhole reports whether the form has all that the DER has: what it does not have is missing from the DER that is
// made of it. The elements of a SET may change their order.
func isWhole(der []byte, form any) bool {
	rest, err := asn1.Unmarshal(der, form)
	if err != nil || len(rest) > 0 {
		return false
	}
	anew, err := asn1.Marshal(reflect.ValueOf(form).Elem().Interface())
	return err == nil && len(anew) == len(der)
}

// minRSABits is the least key size at OpenSSL's security level 2, which is the default of Debian:
// HAProxy does not start with a certificate of a smaller key.
const minRSABits = 2048

// checkStrength refuses certificates that OpenSSL does not load at its security level 2, as measured with
// HAProxy 2.6, 3.0 and 3.4. HAProxy does not start with one such certificate, and all other hosts would be down with
// it. OpenSSL takes algorithms that it does not know for the weakest, and those that Go does not know are refused too.
func checkStrength(c *x509.Certificate) error {
	switch key := c.PublicKey.(type) {
	case *rsa.PublicKey:
		if key.N.BitLen() < minRSABits {
			return fmt.Errorf("RSA key of %d bits: %w", key.N.BitLen(), ErrWeak)
		}
	case *ecdsa.PublicKey, ed25519.PublicKey:
	default:
		return fmt.Errorf("key of another kind than RSA, ECDSA and Ed25519: %w", ErrWeak)
	}
	if plain, err := x509.MarshalPKIXPublicKey(c.PublicKey); err != nil || !bytes.Equal(plain, c.RawSubjectPublicKeyInfo) {
		return ErrBadCertificate
	}
	switch {
	case c.SignatureAlgorithm == x509.UnknownSignatureAlgorithm:
		return fmt.Errorf("signature by an algorithm that is not known: %w", ErrWeak)
	case weakSignature[c.SignatureAlgorithm] && !signsItself(c):
		return fmt.Errorf("signature by %s: %w", c.SignatureAlgorithm, ErrWeak)
	}
	return nil
}

var weakSignature = map[x509.SignatureAlgorithm]bool{
	x509.MD2WithRSA: true, x509.MD5WithRSA: true, x509.SHA1WithRSA: true,
	x509.DSAWithSHA1: true, x509.ECDSAWithSHA1: true,
}

// signsItself reports whether OpenSSL takes a certificate for one that signs itself, on whose signature nobody relies:
// the issuer has its name, its kind of key and, as far as the certificate says more of the issuer, its identifiers.
func signsItself(c *x509.Certificate) bool {
	kind := c.PublicKeyAlgorithm == x509.ECDSA
	if c.SignatureAlgorithm != x509.ECDSAWithSHA1 {
		kind = c.PublicKeyAlgorithm == x509.RSA && c.SignatureAlgorithm != x509.DSAWithSHA1
	}
	if !kind || !bytes.Equal(c.RawIssuer, c.RawSubject) {
		return false
	}
	for _, e := range c.Extensions {
		if e.Id.Equal(asn1.ObjectIdentifier{2, 5, 29, 35}) && !isIssuer(c, e.Value) {
			return false
		}
	}
	return true
}

// isIssuer reports whether an authority key identifier (RFC 5280, section 4.2.1.1) is that of a certificate itself.
func isIssuer(c *x509.Certificate, identifier []byte) bool {
	var parts []asn1.RawValue
	if _, err := asn1.Unmarshal(identifier, &parts); err != nil {
		return false
	}
	name, _ := asn1.Marshal(asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 4, IsCompound: true, Bytes: c.RawSubject})
	serial, _ := asn1.Marshal(c.SerialNumber)
	for _, p := range parts {
		same := false
		switch p.Tag {
		case 0:
			same = len(c.SubjectKeyId) == 0 || bytes.Equal(p.Bytes, c.SubjectKeyId)
		case 1:
			same = bytes.Equal(p.Bytes, name)
		case 2:
			same = bytes.HasSuffix(serial, p.Bytes) && len(serial) == 2+len(p.Bytes) // no serial number has 128 bytes
		}
		if !same {
			return false
		}
	}
	return true
}
