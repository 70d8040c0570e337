package signature

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"golang.org/x/crypto/ssh"
)

// noon is the time of all signatures.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// commit is an unsigned commit as git stores it.
const commit = `tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904
author Ann <ann@example.com> 1772366400 +0000
committer Ann <ann@example.com> 1772366400 +0000

edge r1

Hapsnap-Snapshot: r000001-9f3ac01b2d
`

// file writes a file for the test, and returns its path.
func file(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// newSSH makes an SSH key: the private key as ssh-keygen writes it, and the line with the public one.
func newSSH(t *testing.T, kind, passphrase string) (private []byte, public string) {
	t.Helper()
	var key crypto.Signer
	var err error
	switch kind {
	case "ed25519":
		_, key, err = ed25519.GenerateKey(rand.Reader)
	case "rsa":
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	case "ecdsa":
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	if err != nil {
		t.Fatal(err)
	}
	var block *pem.Block
	if passphrase == "" {
		block, err = ssh.MarshalPrivateKey(key, "")
	} else {
		block, err = ssh.MarshalPrivateKeyWithPassphrase(key, "", []byte(passphrase))
	}
	if err != nil {
		t.Fatal(err)
	}
	pub, err := ssh.NewPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(block), string(bytes.TrimSpace(ssh.MarshalAuthorizedKey(pub)))
}

// newGPG makes an OpenPGP key: both halves with armor.
func newGPG(t *testing.T, algorithm packet.PublicKeyAlgorithm, passphrase string) (private, public []byte) {
	t.Helper()
	key := newEntity(t, algorithm)
	public = armored(t, openpgp.PublicKeyType, key.Serialize)
	if passphrase != "" {
		if err := key.EncryptPrivateKeys([]byte(passphrase), nil); err != nil {
			t.Fatal(err)
		}
	}
	private = armored(t, openpgp.PrivateKeyType, func(w io.Writer) error { return key.SerializePrivateWithoutSigning(w, nil) })
	return private, public
}

func newEntity(t *testing.T, algorithm packet.PublicKeyAlgorithm) *openpgp.Entity {
	t.Helper()
	key, err := openpgp.NewEntity("Ann", "", "ann@example.com", &packet.Config{
		Algorithm: algorithm, RSABits: 2048, Time: func() time.Time { return noon.Add(-24 * time.Hour) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func armored(t *testing.T, kind string, write func(io.Writer) error) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := armor.Encode(&out, kind, nil)
	if err == nil {
		err = write(w)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return append(out.Bytes(), '\n')
}

// signed returns a signed commit as git stores it.
func signed(t *testing.T, k Key, at time.Time) []byte {
	t.Helper()
	made, err := k.Sign([]byte(commit), at)
	if err != nil {
		t.Fatal(err)
	}
	return withSignature(made)
}

func withSignature(armored string) []byte {
	lines := bytes.ReplaceAll(bytes.TrimRight([]byte(armored), "\n"), []byte("\n"), []byte("\n "))
	headers, message, _ := bytes.Cut([]byte(commit), []byte("\n\n"))
	return bytes.Join([][]byte{headers, []byte("\ngpgsig "), lines, []byte("\n\n"), message}, nil)
}
