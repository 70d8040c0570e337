package signature

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/internal/process"
)

// ErrNoKey means that there is no key to sign with that can be used. Trying again
// does not help until somebody has changed a file.
var ErrNoKey = errors.New("the key for signatures cannot be used")

// Key names the files with a private key, of SSH or, with armor, of OpenPGP. They
// are read for each signature: what is mounted from a Secret may change at any
// time. Without a file, nothing is signed.
type Key struct {
	File           string
	PassphraseFile string // of a key that has a passphrase
}

// Enabled reports whether commits are to be signed.
func (k Key) Enabled() bool { return k.File != "" }

// Sign returns the signature of what a commit says, made at this time. The error
// wraps [ErrNoKey].
func (k Key) Sign(payload []byte, at time.Time) (armored string, err error) {
	return k.sign(payload, at, forGit)
}

// SignText returns the signature of a text that is no commit, in the [Namespace]. The
// error wraps [ErrNoKey].
func (k Key) SignText(text []byte, at time.Time) (armored string, err error) {
	return k.sign(text, at, forStores)
}

func (k Key) sign(payload []byte, at time.Time, what purpose) (armored string, err error) {
	signer, err := k.read()
	if err == nil {
		armored, err = signer.sign(payload, at, what)
	}
	if err != nil {
		return "", fmt.Errorf("sign with %s: %w: %w", k.File, ErrNoKey, err)
	}
	return armored, nil
}

// signer makes signatures of one format.
type signer interface {
	sign(payload []byte, at time.Time, what purpose) (armored string, err error)
}

func (k Key) read() (signer, error) {
	data, err := os.ReadFile(k.File)
	if err != nil {
		return nil, err
	}
	var passphrase []byte
	if k.PassphraseFile != "" {
		if passphrase, err = os.ReadFile(k.PassphraseFile); err != nil {
			return nil, fmt.Errorf("read passphrase: %w", err)
		}
		passphrase = bytes.TrimRight(passphrase, "\r\n")
	}
	return parseKey(data, passphrase)
}

// parseKey reads a private key. No text of the key is in an error.
func parseKey(data, passphrase []byte) (signer, error) {
	text := string(data)
	switch {
	case strings.Contains(text, "-----BEGIN PGP PRIVATE KEY BLOCK-----"):
		return parseGPGKey(data, passphrase)
	case strings.Contains(text, "PRIVATE KEY-----"):
		return parseSSHKey(data, passphrase)
	case strings.Contains(text, "-----BEGIN PGP PUBLIC KEY BLOCK-----"), strings.HasPrefix(text, "ssh-"), strings.HasPrefix(text, "ecdsa-"), strings.HasPrefix(text, "sk-"):
		return nil, process.WithHint(errors.New("it is a public key"), "name the file with the private key")
	default:
		return nil, process.WithHint(errors.New("it holds no private key"), "it may be one of SSH, as ssh-keygen writes it, or the output of gpg --armor --export-secret-keys")
	}
}

// errPassphrase asks for what opens a key.
var errPassphrase = process.WithHint(errors.New("it has a passphrase"), "name a file with it, --signing-passphrase-file, or use a key without one")
