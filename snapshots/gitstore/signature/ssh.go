package signature

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

// purpose is what a signature is for: an SSH signature says so itself, and is good for
// nothing else.
type purpose struct {
	namespace string // among what an SSH key may sign
	signed    string // what is signed, in words
}

var (
	// forGit is that of git.
	forGit = purpose{"git", "commit"}
	// forStores is that of what is kept where no git is.
	forStores = purpose{Namespace, "signature"}
)

// Namespace is that of signatures of texts among what an SSH key may sign, as in
// ssh-keygen -Y sign -n.
const Namespace = "store@hapsnap.dev"

// sshBegin begins a signature of SSH.
const sshBegin = "-----BEGIN SSH SIGNATURE-----"

// sshSigner signs with a key of SSH.
type sshSigner struct{ key ssh.Signer }

func parseSSHKey(data, passphrase []byte) (signer, error) {
	key, err := ssh.ParsePrivateKey(data)
	if _, locked := errors.AsType[*ssh.PassphraseMissingError](err); locked {
		if len(passphrase) == 0 {
			return nil, errPassphrase
		}
		key, err = ssh.ParsePrivateKeyWithPassphrase(data, passphrase)
	}
	if err != nil {
		return nil, err
	}
	if slices.Contains(weak, key.PublicKey().Type()) && key.PublicKey().Type() != ssh.KeyAlgoRSA {
		return nil, fmt.Errorf("a key of type %s is too weak", key.PublicKey().Type())
	}
	return sshSigner{key}, nil
}

// weak are algorithms of signatures with SHA-1. Keys of type ssh-rsa have others,
// those of type ssh-dss do not.
var weak = []string{ssh.KeyAlgoRSA, "ssh-dss"}

// sign makes the signature without randomness: Ed25519 and RSA need none, and
// ECDSA gets by without it as RFC 6979 says.
func (s sshSigner) sign(payload []byte, _ time.Time, what purpose) (string, error) {
	made, err := sshsig.SignWithRand(bytes.NewReader(payload), nil, s.key, sshsig.HashSHA512, what.namespace)
	if err != nil {
		return "", err
	}
	return string(sshsig.Armor(made)), nil
}

// openSSH reads a signature of SSH and checks that it is one of the payload, by
// whatever key.
func openSSH(payload []byte, armored string, what purpose) (ssh.PublicKey, error) {
	made, err := sshsig.Unarmor([]byte(armored))
	if err != nil {
		return nil, fmt.Errorf("its signature cannot be read: %w", err)
	}
	if slices.Contains(weak, made.Signature.Format) {
		return made.PublicKey, fmt.Errorf("its signature is made with %s, which is too weak", made.Signature.Format)
	}
	if made.Namespace != what.namespace {
		return made.PublicKey, fmt.Errorf("its signature is in the namespace %q, not %q", made.Namespace, what.namespace)
	}
	if err := sshsig.Verify(bytes.NewReader(payload), made, made.PublicKey, made.HashAlgorithm, what.namespace); err != nil {
		return made.PublicKey, fmt.Errorf("it is not what was signed: %w", err)
	}
	return made.PublicKey, nil
}

// fingerprint names a key as ssh-keygen does. The name of a certificate is that of
// its key.
func fingerprint(key ssh.PublicKey) string {
	if certificate, ok := key.(*ssh.Certificate); ok {
		key = certificate.Key
	}
	return ssh.FingerprintSHA256(key)
}
