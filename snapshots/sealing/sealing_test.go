package sealing

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	stdpem "encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem"
)

func newIdentity(tb testing.TB) *age.X25519Identity {
	tb.Helper()
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		tb.Fatal(err)
	}
	return identity
}

// identitiesOf reads identities from a file, as age-keygen writes one.
func identitiesOf(tb testing.TB, list ...*age.X25519Identity) Identities {
	tb.Helper()
	text := "# created: today\n\n"
	for _, i := range list {
		text += "# public key: " + i.Recipient().String() + "\n" + i.String() + "\n"
	}
	file := filepath.Join(tb.TempDir(), "identity.txt")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	out, err := ReadIdentities(file)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

func recipientsOf(tb testing.TB, list ...*age.X25519Identity) Recipients {
	tb.Helper()
	var texts []string
	for _, i := range list {
		texts = append(texts, i.Recipient().String())
	}
	r, err := NewRecipients(texts)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// certificate returns a certificate with its key.
func certificate(tb testing.TB, name string) []byte {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		tb.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	return append(stdpem.EncodeToMemory(&stdpem.Block{Type: "CERTIFICATE", Bytes: der}), stdpem.EncodeToMemory(&stdpem.Block{Type: "PRIVATE KEY", Bytes: encoded})...)
}

// Each of the recipients can decrypt the data, also with a file that has old identities too.
func TestSealAndOpen(t *testing.T) {
	t.Parallel()
	alice, bob, eve := newIdentity(t), newIdentity(t), newIdentity(t)
	sealed, err := recipientsOf(t, bob, alice, bob).Seal([]byte("secret"))
	if err != nil || bytes.Contains(sealed, []byte("secret")) {
		t.Fatalf("%s, %v", sealed, err)
	}
	for name, identities := range map[string]Identities{
		"alice": identitiesOf(t, alice), "bob": identitiesOf(t, bob), "old and new": identitiesOf(t, eve, bob),
	} {
		if plain, err := identities.Open(sealed); err != nil || string(plain) != "secret" {
			t.Errorf("%s: %q, %v", name, plain, err)
		}
	}
	if _, err := identitiesOf(t, eve).Open(sealed); !errors.Is(err, ErrNotForUs) {
		t.Errorf("eve: %v", err)
	}
	if _, err := (Identities{}).Open(sealed); !errors.Is(err, ErrNotForUs) {
		t.Errorf("nobody: %v", err)
	}
	cut := bytes.Replace(sealed, []byte("\n-----END"), []byte("AAAA\n-----END"), 1)
	if _, err := identitiesOf(t, bob).Open(cut); !errors.Is(err, ErrCannot) {
		t.Errorf("something else: %v", err)
	}
}

func TestPostQuantumRecipient(t *testing.T) {
	t.Parallel()
	identity, err := age.GenerateHybridIdentity()
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewRecipients([]string{identity.Recipient().String()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewRecipients([]string{identity.Recipient().String(), newIdentity(t).Recipient().String()}); !errors.Is(err, ErrMixed) {
		t.Errorf("mixed with another: %v", err)
	}
	sealed, err := r.Seal([]byte("secret"))
	if err != nil {
		t.Fatal(err)
	}
	if plain, err := (Identities{[]age.Identity{identity}}).Open(sealed); err != nil || string(plain) != "secret" {
		t.Errorf("%q, %v", plain, err)
	}
}

// Errors do not repeat the input, which may be secret.
func TestWhatIsNoRecipientAndNoIdentity(t *testing.T) {
	t.Parallel()
	secret := newIdentity(t).String()
	for _, text := range []string{"", "alice", secret, "age1xyz", newIdentity(t).Recipient().String() + "\n" + newIdentity(t).Recipient().String()} {
		if _, err := NewRecipients([]string{text}); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := NewRecipients(nil); !errors.Is(err, ErrNoRecipient) {
		t.Errorf("nobody: %v", err)
	}
	file := filepath.Join(t.TempDir(), "identity.txt")
	for _, text := range []string{"", secret[:40], "AGE-SECRET-KEY-1\n", "# nothing\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadIdentities(file); !errors.Is(err, ErrIdentity) || (text != "" && strings.Contains(err.Error(), text)) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := ReadIdentities(file + ".gone"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is gone: %v", err)
	}
}

func TestCertificatesOfASnapshot(t *testing.T) {
	t.Parallel()
	us, them := newIdentity(t), newIdentity(t)
	plain := certificate(t, "shop.example")
	version, err := pem.Version(plain)
	if err != nil {
		t.Fatal(err)
	}
	snapshot := func(to *age.X25519Identity, content []byte) snapshots.Snapshot {
		recipients := recipientsOf(t, to)
		sealed, err := recipients.Seal(content)
		if err != nil {
			t.Fatal(err)
		}
		d := snapshots.Draft{
			Files: []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte("global\n")}, {Path: "certs/a.pem.age", Content: sealed}},
			Certificates: []snapshots.CertificateRef{
				{File: "certs/a.pem", Secret: snapshots.SecretName{Namespace: "shop", Name: "a"}, Mode: snapshots.ModeSealed, Version: version},
				{File: "certs/b.pem", Secret: snapshots.SecretName{Namespace: "shop", Name: "b"}, Mode: snapshots.ModeSealed},
			},
			Recipients: recipients.Names(),
		}
		if err := d.Check(); err != nil {
			t.Fatal(err)
		}
		return d.Number(1, snapshots.ID{})
	}
	identities := identitiesOf(t, us)
	got, err := identities.Certificates(snapshot(us, plain))
	if err != nil || len(got) != 1 || !slices.Equal(got[version], plain) {
		t.Errorf("%d certificates, %v", len(got), err)
	}
	_, err = identities.Certificates(snapshot(them, plain))
	if !errors.Is(err, ErrNotForUs) || errors.Is(err, snapshots.ErrCorrupt) || !strings.Contains(err.Error(), them.Recipient().String()) {
		t.Errorf("sealed to others: %v", err)
	}
	for name, content := range map[string][]byte{"another": certificate(t, "shop.example"), "no certificate": []byte("x")} {
		if _, err := identities.Certificates(snapshot(us, content)); !errors.Is(err, snapshots.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
