package signature

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"github.com/hapsnap/hapsnap/internal/process"
)

// The same commit has the same signature, so it has the same ID on every machine and at every attempt. It is
// accepted if the signer is allowed.
func TestSignaturesAreReproducible(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"ed25519", "rsa", "ecdsa"} {
		private, public := newSSH(t, kind, "")
		reproducible(t, Key{File: file(t, "key", private)}, Allowed{SignersFile: file(t, "signers", []byte("ann "+public+"\n"))})
	}
	for _, algorithm := range []packet.PublicKeyAlgorithm{packet.PubKeyAlgoEdDSA, packet.PubKeyAlgoRSA} {
		private, public := newGPG(t, algorithm, "")
		reproducible(t, Key{File: file(t, "key", private)}, Allowed{KeyringFile: file(t, "ring", public)})
	}
}

func reproducible(t *testing.T, key Key, allowed Allowed) {
	t.Helper()
	first := signed(t, key, noon)
	if again := signed(t, key, noon); !bytes.Equal(first, again) {
		t.Errorf("signed twice:\n%s\n%s", first, again)
	}
	by, err := allowed.Verify(first, noon)
	if err != nil || !strings.HasPrefix(strings.ToLower(by.Name), "ann") || by.Key == "" {
		t.Errorf("signed by %+v, %v", by, err)
	}
	if claim, ok := Claim(first); !ok || claim.Key != by.Key {
		t.Errorf("claimed by %+v, %v, and signed by %+v", claim, ok, by)
	}
	// One byte of the commit is changed.
	for _, at := range []int{5, 60, 110, len(commit) - 2} {
		forged := bytes.Clone(first)
		forged[bytes.Index(first, []byte(commit)[at-5:at+1])+5] ^= 1
		if by, err := allowed.Verify(forged, noon); err == nil {
			t.Errorf("byte %d is another, and it is still by %s", at, by)
		}
	}
}

func TestKeysWithPassphrases(t *testing.T) {
	t.Parallel()
	sshKey, _ := newSSH(t, "ed25519", "open sesame")
	gpgKey, _ := newGPG(t, packet.PubKeyAlgoEdDSA, "open sesame")
	right, wrong := file(t, "right", []byte("open sesame\n")), file(t, "wrong", []byte("open sezame\n"))
	for name, data := range map[string][]byte{"ssh": sshKey, "gpg": gpgKey} {
		path := file(t, name, data)
		if _, err := (Key{File: path, PassphraseFile: right}).Sign([]byte(commit), noon); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for passphrase, hint := range map[string]string{"": "--signing-passphrase-file", wrong: "", path + "-missing": ""} {
			_, err := Key{File: path, PassphraseFile: passphrase}.Sign([]byte(commit), noon)
			if !errors.Is(err, ErrNoKey) || !strings.Contains(process.Hint(err), hint) {
				t.Errorf("%s with the passphrase of %q: %v, hint %q", name, passphrase, err, process.Hint(err))
			}
			if err != nil && strings.Contains(err.Error(), "sesame") {
				t.Errorf("%s: the passphrase is in the error: %v", name, err)
			}
		}
	}
}

// A key that cannot be used is an error of its own kind.
func TestKeysThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	private, public := newSSH(t, "ed25519", "")
	gpgPrivate, gpgPublic := newGPG(t, packet.PubKeyAlgoEdDSA, "")
	for name, test := range map[string]struct {
		data []byte
		want string
	}{
		"nothing":         {nil, "it holds no private key"},
		"a note":          {[]byte("rotate me\n"), "it holds no private key"},
		"a public key":    {[]byte(public), "it is a public key"},
		"of gpg":          {gpgPublic, "it is a public key"},
		"half of a key":   {private[:len(private)/2], "no key found"},
		"half of gpg's":   {gpgPrivate[:len(gpgPrivate)/2], ""},
		"two keys of gpg": {twoKeys(t), "it holds 2 keys"},
		"a damaged key":   {bytes.Replace(private, []byte("AAAA"), []byte("AAAB"), 1), ""},
	} {
		_, err := Key{File: file(t, "key", test.data)}.Sign([]byte(commit), noon)
		if !errors.Is(err, ErrNoKey) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := (Key{File: filepath.Join(t.TempDir(), "none")}).Sign([]byte(commit), noon); !errors.Is(err, ErrNoKey) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	// gpg would not accept a signature from before the OpenPGP key was made.
	if _, err := (Key{File: file(t, "key", gpgPrivate)}).Sign([]byte(commit), noon.AddDate(-1, 0, 0)); !errors.Is(err, ErrNoKey) {
		t.Errorf("before the key was made: %v", err)
	}
}

// twoKeys is a block with two keys, which is ambiguous.
func twoKeys(t *testing.T) []byte {
	t.Helper()
	one, two := newEntity(t, packet.PubKeyAlgoEdDSA), newEntity(t, packet.PubKeyAlgoEdDSA)
	return armored(t, "PGP PRIVATE KEY BLOCK", func(w io.Writer) error {
		return errors.Join(one.SerializePrivateWithoutSigning(w, nil), two.SerializePrivateWithoutSigning(w, nil))
	})
}

// The file is read for each signature.
func TestKeysRotate(t *testing.T) {
	t.Parallel()
	old, oldPublic := newSSH(t, "ed25519", "")
	next, nextPublic := newSSH(t, "ed25519", "")
	path := file(t, "key", old)
	first := signed(t, Key{File: path}, noon)
	if err := os.WriteFile(path, next, 0o600); err != nil {
		t.Fatal(err)
	}
	second := signed(t, Key{File: path}, noon)
	list := file(t, "signers", []byte("old "+oldPublic+"\nnext "+nextPublic+"\n"))
	for want, made := range map[string][]byte{"old": first, "next": second} {
		if by, err := (Allowed{SignersFile: list}).Verify(made, noon); err != nil || by.Name != want {
			t.Errorf("by %s, want %s: %v", by, want, err)
		}
	}
	// The old key is removed from the list, and its signatures are no longer accepted.
	if err := os.WriteFile(list, []byte("next "+nextPublic+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Allowed{SignersFile: list}.Verify(first, noon)
	if _, refused := errors.AsType[RefusedError](err); !refused {
		t.Errorf("what the old key signed: %v", err)
	}
}
