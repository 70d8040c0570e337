package leak_test

import (
	"bytes"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"text/template"
	"time"

	"golang.org/x/crypto/ssh"
)

// material is what the corpus is filled with. It was never used elsewhere.
type material struct {
	pkcs8, pkcs1, sec1, openssh, certificate, publicKey, age, other string
}

func block(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func newMaterial(t *testing.T) material {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 1024) //nolint:gosec // it protects nothing
	must(err)
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	must(err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(rsaKey)
	must(err)
	otherKey, err := rsa.GenerateKey(rand.Reader, 1024) //nolint:gosec // it protects nothing
	must(err)
	other, err := x509.MarshalPKCS8PrivateKey(otherKey)
	must(err)
	sec1, err := x509.MarshalECPrivateKey(ecKey)
	must(err)
	public, err := x509.MarshalPKIXPublicKey(&rsaKey.PublicKey)
	must(err)
	openssh, err := ssh.MarshalPrivateKey(edKey, "for tests")
	must(err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Unix(4e9, 0)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &rsaKey.PublicKey, rsaKey)
	must(err)
	return material{
		pkcs8: block("PRIVATE KEY", pkcs8), pkcs1: block("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(rsaKey)),
		sec1: block("EC PRIVATE KEY", sec1), openssh: string(pem.EncodeToMemory(openssh)),
		certificate: block("CERTIFICATE", certificate), publicKey: block("PUBLIC KEY", public),
		// Nobody has the other half of this key.
		age: "AGE-SECRET-KEY-1" + strings.Repeat("QPZRY9X8GF", 6)[:58], other: block("PRIVATE KEY", other),
	}
}

var begins = regexp.MustCompile(`BEGIN [A-Z ]+-----`)

// funcs are the functions of the corpus.
func (m material) funcs() template.FuncMap {
	text := func(s string) func() string { return func() string { return s } }
	return template.FuncMap{
		"pkcs8": text(m.pkcs8), "pkcs1": text(m.pkcs1), "sec1": text(m.sec1), "openssh": text(m.openssh),
		"certificate": text(m.certificate), "publicKey": text(m.publicKey), "age": text(m.age),
		"noise": func() string {
			b := make([]byte, 10000)
			_, _ = rand.Read(b)
			return base64.StdEncoding.EncodeToString(b)
		},
		"value": text(password), "odd": text(odd),
		"encryptedDER": text("\x30\x82\x04\xfe\x30\x28\x06\x0a\x2a\x86\x48\x86\xf7\x0d\x01\x0c\x01\x03rest"),
		"pkcs12":       text("\x30\x82\x09\x00\x02\x01\x03\x30\x82\x08\xc6\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x01"),
		"jks":          text("\xfe\xed\xfe\xed\x00\x00\x00\x02\x00\x00\x00\x01"),
		"retitle":      func(title, s string) string { return begins.ReplaceAllString(s, "BEGIN "+title+"-----") },
		"crlf":         func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") },
		"indent": func(by, s string) string {
			return by + strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n"+by)
		},
		"prefix": func(by, s string) string { return by + s },
		"lines":  func(s string) int { return strings.Count(s, "\n") + 1 },
		"head":   func(n int, s string) string { return strings.Join(strings.SplitAfter(s, "\n")[:n], "") },
		"body": func(s string) string {
			lines := strings.Split(strings.TrimSpace(s), "\n")
			return strings.Join(lines[1:len(lines)-1], "\n")
		},
		"join":   func(s string) string { return strings.ReplaceAll(s, "\n", "") },
		"json":   func(s string) (string, error) { b, err := json.Marshal(s); return string(b), err },
		"blanks": strings.NewReplacer(" ", `\ `, "\n", `\n`).Replace,
		"lua":    strings.NewReplacer("\n", `\n`, "-", `\x2D`).Replace,
		"url":    url.PathEscape, "form": url.QueryEscape,
		"percents": func(s string) string { return strings.ReplaceAll(s, "%", "%%") },
		"every": func(s string) string { // byte is in hexadecimal
			out := ""
			for _, c := range []byte(s) {
				out += fmt.Sprintf("%%%02X", c)
			}
			return out
		},
		"base64":    func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
		"base64url": func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) },
		"unbase64":  func(s string) (string, error) { b, err := base64.StdEncoding.DecodeString(s); return string(b), err },
		"hex":       func(s string) string { return hex.EncodeToString([]byte(s)) },
		"wrap": func(n int, s string) string {
			return strings.TrimSpace(regexp.MustCompile(fmt.Sprintf(".{1,%d}", n)).ReplaceAllString(s, "$0\n"))
		},
		"gzip": func(s string) string {
			var b bytes.Buffer
			w := gzip.NewWriter(&b)
			_, _ = w.Write([]byte(s))
			_ = w.Close()
			return b.String()
		},
	}
}
