package credentials

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// Annotation holds, on a Secret, the digest of the data that a [Maker] wrote.
	Annotation = "hapsnap.dev/made"
	// RenewAnnotation asks a Maker to renew what it wrote, whatever the value of the annotation. The Maker
	// removes it afterwards.
	RenewAnnotation = "hapsnap.dev/renew"
)

// Password is a user name and a password, under these keys. The keys with [Next] before them are for the user
// that comes next, whom servers accept too.
type Password struct{ UsernameKey, PasswordKey string }

// Next begins the keys of the next user name and password.
const Next = "next-"

// sinceKey is the key of the time since when there is a next user.
const sinceKey = Next + "since"

// random returns bytes that nobody can guess, in hexadecimal digits.
func random(bytes int) []byte {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // it returns no error
	return []byte(hex.EncodeToString(b))
}

// put puts a new user into the data of a Secret. The prefix begins its keys.
func (p Password) put(data map[string][]byte, prefix string) map[string][]byte {
	data[prefix+p.UsernameKey], data[prefix+p.PasswordKey] = append([]byte("hapsnap-"), random(4)...), random(32)
	return data
}

// renew returns the new data for a Secret of ours, or nil if the data stays, and why. With asked, people want
// another password.
func (p Password) renew(data map[string][]byte, now time.Time, asked bool) (next map[string][]byte, why string) {
	if p.usable(data) != nil {
		return p.put(map[string][]byte{}, ""), "there was no password"
	}
	since, err := time.Parse(time.RFC3339, string(data[sinceKey]))
	begun := err == nil && !since.After(now.Add(backdated)) // the clock may have been wrong
	switch {
	case !begun && (asked || len(data[sinceKey]) > 0):
		next = p.put(maps.Clone(data), Next)
		next[sinceKey] = []byte(now.UTC().Format(time.RFC3339))
		return next, "another password was asked for: it is taken from now on"
	case begun && !now.Before(since.Add(propagation)):
		return map[string][]byte{p.UsernameKey: data[Next+p.UsernameKey], p.PasswordKey: data[Next+p.PasswordKey]}, "the next password is used from now on"
	}
	return nil, ""
}

// usable returns an error that says what is missing.
func (p Password) usable(data map[string][]byte) error {
	for _, key := range []string{p.UsernameKey, p.PasswordKey} {
		if len(data[key]) == 0 {
			return fmt.Errorf("it has no %s", key)
		}
	}
	return nil
}

// Wanted is what a Secret should hold: a password or a certificate.
type Wanted struct {
	Secret      string // its name
	Password    *Password
	Certificate *Certificate
}

// A decision says what happens to a Secret.
type decision struct {
	data    map[string][]byte // nil: the data stays
	why     string
	over    bool  // what people asked for has been done
	problem error // what keeps people from using the data, or soon will
}

var errNotOurs = errors.New("somebody has edited it, and it is left alone; remove its data to have it made anew")

// decide decides what happens to a Secret.
func (w Wanted) decide(s *corev1.Secret, now time.Time, trusted bool) (d decision, err error) {
	if !isOurs(s) {
		if w.Password != nil {
			d.problem = w.Password.usable(s.Data)
		} else {
			d.problem = w.Certificate.foreign(s.Data, now)
		}
		if d.problem != nil {
			d.problem = fmt.Errorf("%w: %w", d.problem, errNotOurs)
		}
		return d, nil
	}
	_, asked := s.Annotations[RenewAnnotation]
	if w.Certificate != nil {
		d.data, d.why, err = w.Certificate.renew(s.Data, now, asked, trusted)
		d.over = len(d.data[nextCertKey]) == 0
	} else {
		d.data, d.why = w.Password.renew(s.Data, now, asked)
		d.over = len(d.data[sinceKey]) == 0
	}
	return d, err
}

// isOurs reports whether only a Maker wrote the data of a Secret, if it has any.
func isOurs(s *corev1.Secret) bool {
	return len(s.Data) == 0 || s.Annotations[Annotation] == digest(s.Data)
}

// filled returns the Secret with the decision carried out.
func filled(s *corev1.Secret, d decision) *corev1.Secret {
	out := s.DeepCopy()
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	out.Data, out.Annotations[Annotation] = d.data, digest(d.data)
	if d.over {
		delete(out.Annotations, RenewAnnotation)
	}
	return out
}

// digest identifies the data of a Secret. It does not help to guess a password of ours.
func digest(data map[string][]byte) string {
	h := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(data)) {
		for _, part := range []string{key, string(data[key])} {
			fmt.Fprintf(h, "%d:", len(part))
			_, _ = io.WriteString(h, part) // a hash takes everything
		}
	}
	return "sha256-" + hex.EncodeToString(h.Sum(nil))
}

// expiry is when the certificate of a Secret expires; zero for none.
func expiry(s *corev1.Secret) time.Time {
	if all := parseAll(s.Data[corev1.TLSCertKey]); len(all) > 0 {
		return all[0].NotAfter
	}
	return time.Time{}
}

// The keys of a Secret with a certificate, beside those of the type kubernetes.io/tls. Servers do not mount the
// certificate that is served next.
const (
	CAKey       = "ca.crt"
	nextCertKey = "next.crt"
	nextKeyKey  = "next.key"
)

const (
	// Lifetime is how long a certificate is valid. The next one is made after two thirds of it.
	Lifetime = 90 * 24 * time.Hour
	// propagation is how long the next certificate is trusted before it is served.
	propagation = time.Hour
	// backdated is how long before its making a certificate becomes valid, since the clocks of others may be
	// late.
	backdated = time.Hour
	// warning is how long before its expiry a certificate that is not renewed is reported.
	warning = 7 * 24 * time.Hour
	// mostTrusted bounds the certificates in ca.crt, whatever a clock does.
	mostTrusted = 8
)

// Certificate describes a certificate to be made.
type Certificate struct {
	// DNSNames are the names by which clients verify the server.
	DNSNames []string
}

// SelfSigned returns a certificate that is signed with its own new key, and that key, both in PEM. The template
// needs no serial number and no usages.
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

// renew returns the new data for a Secret of ours, or nil if the data stays, and why. With asked, people want
// another certificate. With trusted, the verifying programs have the Secret's present ca.crt.
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

// with returns the data of a Secret with a certificate, and perhaps the next one. It keeps trusted certificates
// that can still be used.
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

// Trusted returns what a program has to trust that cannot read the Secret: the authorities of the Secret and, for an hour
// after its newest certificate was made, those that the program trusted before. If somebody deleted the Secret, ca.crt
// lacks the authority of the former certificate, which servers serve until their copy of the Secret is refreshed.
func Trusted(authorities, before []byte, now time.Time) []byte {
	all := parseAll(authorities)
	if !slices.ContainsFunc(all, func(c *x509.Certificate) bool { return now.Before(c.NotBefore.Add(backdated + propagation)) }) {
		return authorities
	}
	out := append(bytes.TrimSpace(bytes.Clone(authorities)), '\n')
	for _, c := range parseAll(before) {
		if now.Before(c.NotAfter) && len(all) < mostTrusted && !slices.ContainsFunc(all, c.Equal) {
			all = append(all, c)
			out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
		}
	}
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

// usable returns the leaf of a certificate that can be served now, or says why it cannot.
func (c Certificate) usable(certificate, key []byte, now time.Time) (*x509.Certificate, error) {
	if len(certificate) == 0 && len(key) == 0 {
		return nil, errNoCertificate
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, err //nolint:wrapcheck // the error says what is wrong, and nothing of the key
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

// foreign returns what is wrong with a certificate that we did not make.
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
