package live

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	stdpem "encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/bind/htpasswd"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem/pemtest"
)

const someHash = "abhfCpXqd4GrI"

func TestGatherSecrets(t *testing.T) {
	t.Parallel()
	crt, key := keyPair(t, newECKey(t))
	opaque := func(name string, data map[string]string, text map[string]string) corev1.Secret {
		s := corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Data: map[string][]byte{}, StringData: text}
		for k, v := range data {
			s.Data[k] = []byte(v)
		}
		return s
	}
	got := GatherSecrets([]corev1.Secret{
		opaque("ca", map[string]string{"ca.crt": "text\n" + string(crt) + string(key)}, nil),
		opaque("no-ca", map[string]string{"ca.crt": string(key)}, nil),
		opaque("auth", map[string]string{"auth": "alice:" + someHash + "\nbob:secret\n"}, nil),
		opaque("no-auth", map[string]string{"auth": "bob:secret\n"}, nil),
		opaque("keys", map[string]string{"a": "old", "b": "two\nlines"}, map[string]string{"a": "new\n"}),
	})
	name := func(n string) snapshots.SecretName { return snapshots.SecretName{Namespace: "shop", Name: n} }
	if diff := cmp.Diff(map[snapshots.SecretName][]byte{name("ca"): crt}, got.Authorities); diff != "" {
		t.Errorf("authorities (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[snapshots.SecretName][]htpasswd.User{name("auth"): {{Name: "alice", Hash: someHash}}}, got.Users); diff != "" {
		t.Errorf("users (-want +got):\n%s", diff)
	}
	wantValues := map[bind.SecretKey]string{
		{Secret: name("keys"), Key: "a"}: "new", {Secret: name("no-auth"), Key: "auth"}: "bob:secret",
	}
	if diff := cmp.Diff(wantValues, got.Values); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
	checkFaults(t, got.Problems, map[bind.Need]string{
		{Use: snapshots.UseCA, Secret: name("no-ca")}:      "there is no certificate",
		{Use: snapshots.UseUsers, Secret: name("auth")}:    "line 2: user bob has no hash that HAProxy can check",
		{Use: snapshots.UseUsers, Secret: name("no-auth")}: "line 1: user bob has no hash that HAProxy can check",
	})
}

// HAProxy tries each hash when it loads the configuration, so that what a namespace may have is bounded.
func TestCostlyUsers(t *testing.T) {
	t.Parallel()
	name := func(text string) snapshots.SecretName {
		namespace, secret, _ := strings.Cut(text, "/")
		return snapshots.SecretName{Namespace: namespace, Name: secret}
	}
	for _, tt := range []struct {
		about string
		costs map[string]int // seconds
		want  []string
	}{
		{"within the bounds", map[string]int{"a/x": 3, "a/y": 2, "b/x": 5, "c/x": 5, "d/x": 5}, nil},
		{"too many of a namespace", map[string]int{"a/x": 3, "a/y": 3, "a/z": 2, "b/x": 5}, []string{"a/y"}},
		{"too many together", map[string]int{"a/x": 5, "b/x": 5, "c/x": 4, "c/y": 1, "d/x": 5, "e/x": 1, "f/x": 2}, []string{"d/x"}},
		{"one more than there is room for", map[string]int{"a/x": 3, "b/x": 3, "c/x": 3, "d/x": 3, "e/x": 3, "f/x": 3, "g/x": 2, "g/y": 2}, []string{"g/y"}},
	} {
		costs := map[snapshots.SecretName]time.Duration{}
		for text, seconds := range tt.costs {
			costs[name(text)] = time.Duration(seconds) * time.Second
		}
		var got []string
		for _, n := range TooCostly(costs) {
			got = append(got, n.String())
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.about, diff)
		}
	}
	auth := func(secret string) corev1.Secret {
		lines := ""
		for i := range 12 {
			lines += fmt.Sprintf("user%d:$2y$12$%s\n", i, strings.Repeat("a", 53))
		}
		return corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: secret}, StringData: map[string]string{"auth": lines}}
	}
	got := GatherSecrets([]corev1.Secret{auth("a"), auth("b")})
	need := bind.Need{Use: snapshots.UseUsers, Secret: name("shop/b")}
	if len(got.Users) != 1 || len(got.Users[name("shop/a")]) != 12 || len(got.Problems[need]) != 13 || !errors.Is(got.Problems[need][0], ErrHashes) {
		t.Errorf("%d Secrets with users, and of shop/b %v", len(got.Users), got.Problems[need])
	}
}

func checkFaults(t *testing.T, got map[bind.Need][]error, want map[bind.Need]string) {
	t.Helper()
	texts := map[bind.Need]string{}
	for need, errs := range got {
		texts[need] = errors.Join(errs...).Error()
		if strings.Contains(texts[need], "secret") || strings.Contains(texts[need], someHash) {
			t.Errorf("%s: %q tells a secret", need, texts[need])
		}
	}
	if diff := cmp.Diff(want, texts); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

func TestOneSecret(t *testing.T) {
	t.Parallel()
	crt, _ := keyPair(t, newECKey(t))
	s := corev1.Secret{StringData: map[string]string{"ca.crt": string(crt), "auth": "alice:" + someHash}}
	if got, err := Authorities(s); err != nil || string(got) != string(crt) {
		t.Errorf("authorities %s, %v", got, err)
	}
	if users, problems, ok := Users(s); !ok || len(problems) > 0 || len(users) != 1 || users[0].String() != "alice" {
		t.Errorf("users %v, %v, %v", users, problems, ok)
	}
	if _, err := Authorities(corev1.Secret{}); !errors.Is(err, pem.ErrNoCertificate) {
		t.Errorf("authorities of nothing: %v", err)
	}
	if _, _, ok := Users(corev1.Secret{}); ok {
		t.Error("users of nothing")
	}
}

// keyPair returns a certificate and its key, both in PEM.
func keyPair(t *testing.T, key crypto.Signer) (certificate, private []byte) {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "shop.example"}, DNSNames: []string{"shop.example"},
		NotAfter: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), // long ago, as the clock does not matter
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return stdpem.EncodeToMemory(&stdpem.Block{Type: "CERTIFICATE", Bytes: der}), stdpem.EncodeToMemory(&stdpem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}

func newECKey(t *testing.T) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func secret(name string, kind corev1.SecretType, data map[string][]byte) corev1.Secret {
	return corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Type: kind, Data: data}
}

func TestCertificates(t *testing.T) {
	certificate, key := keyPair(t, newECKey(t))
	_, otherKey := keyPair(t, newECKey(t))
	edCertificate, edKey := keyPair(t, ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, 32)))
	pair := func(certificate, key []byte) map[string][]byte {
		return map[string][]byte{"tls.crt": certificate, "tls.key": key}
	}
	written := secret("written", corev1.SecretTypeTLS, pair([]byte("old"), key))
	written.StringData = map[string]string{"tls.crt": string(certificate)}
	got, problems := Certificates([]corev1.Secret{
		written,
		secret("web", corev1.SecretTypeTLS, pair(certificate, key)),
		secret("opaque", corev1.SecretTypeOpaque, pair(edCertificate, edKey)),
		secret("password", corev1.SecretTypeOpaque, map[string][]byte{"password": []byte("x")}),
		secret("half", corev1.SecretTypeOpaque, map[string][]byte{"tls.crt": certificate}),
		secret("no-key", corev1.SecretTypeTLS, map[string][]byte{"tls.crt": certificate}),
		secret("no-certificate", corev1.SecretTypeTLS, map[string][]byte{"tls.key": key}),
		secret("mismatch", corev1.SecretTypeTLS, pair(certificate, otherKey)),
		secret("malformed", corev1.SecretTypeTLS, pair(certificate, bytes.Replace(key, []byte("\nM"), []byte("\nN"), 1))),
		secret("swapped", corev1.SecretTypeTLS, pair(key, certificate)),
	})
	name := func(n string) snapshots.SecretName { return snapshots.SecretName{Namespace: "shop", Name: n} }
	want := map[snapshots.SecretName][]byte{
		name("web"): append(bytes.Clone(certificate), key...), name("written"): append(bytes.Clone(certificate), key...),
		name("opaque"): append(bytes.Clone(edCertificate), edKey...),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("certificates (-want +got):\n%s", diff)
	}
	wantProblems := []struct {
		text string
		err  error
	}{
		{"Secret shop/malformed: the private key is malformed, or of an unknown kind", pem.ErrBadKey},
		{"Secret shop/mismatch: the private key does not belong to the certificate", pem.ErrKeyMismatch},
		{"Secret shop/no-certificate: tls.crt: there is no certificate", pem.ErrNoCertificate},
		{"Secret shop/no-key: tls.key: there is no private key", pem.ErrNoKey},
		{"Secret shop/swapped: there is no certificate", pem.ErrNoCertificate},
	}
	if len(problems) != len(wantProblems) {
		t.Fatalf("problems: %v", problems)
	}
	for i, want := range wantProblems {
		if p := problems[i]; p.Error() != want.text || !errors.Is(p, want.err) {
			t.Errorf("problem %q, want %q", p, want.text)
		}
	}
	for _, line := range strings.Split(string(key)+string(otherKey), "\n") {
		for _, p := range problems {
			if len(line) > 8 && !strings.HasPrefix(line, "-") && strings.Contains(p.Error(), line) {
				t.Errorf("a problem tells of a key: %q", p)
			}
		}
	}
}

// ExpiryAndIssuer returns the issuer of the leaf. PEM without a certificate has no issuer.
func TestExpiryAndIssuer(t *testing.T) {
	t.Parallel()
	certificate, key := string(pemtest.Certify(t, "shop.example.com", pemtest.ECKey(), pemtest.ECKey2())), string(pemtest.KeyPEM(t, pemtest.ECKey()))
	until, issuer := ExpiryAndIssuer([]byte(certificate + key))
	if until.IsZero() || issuer != "issuer" {
		t.Errorf("%v by %q", until, issuer)
	}
	if _, issuer := ExpiryAndIssuer(pemtest.SelfSigned(t, "alone", pemtest.ECKey())); issuer != "itself" {
		t.Errorf("by %q", issuer)
	}
	for _, none := range []string{"", key, "nonsense"} {
		if until, issuer := ExpiryAndIssuer([]byte(none)); !until.IsZero() || issuer != "" {
			t.Errorf("%v by %q", until, issuer)
		}
	}
}
