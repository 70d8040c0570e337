package signature

import (
	"bytes"
	"crypto"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"

	"github.com/hapsnap/hapsnap/internal/process"
)

// ErrNoKey means that there is no usable key to sign with. Another attempt is useless until a file changes.
var ErrNoKey = errors.New("the key for signatures cannot be used")

// Key names the files with a private key, of SSH or, with armor, of OpenPGP. They
// are read for each signature: what is mounted from a Secret may change at any
// time. Without a file, nothing is signed.
type Key struct {
	File           string
	PassphraseFile string // for a key with a passphrase
}

// Enabled reports whether commits are to be signed.
func (k Key) Enabled() bool { return k.File != "" }

// Sign returns the signature of what a commit says, made at this time. The error
// wraps [ErrNoKey].
func (k Key) Sign(payload []byte, at time.Time) (armored string, err error) {
	return k.sign(payload, at, forGit)
}

// SignText returns the signature of a text that is not a commit, in the [Namespace]. The error wraps
// [ErrNoKey].
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
	text := string(data) // none of it is in an error
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

// purpose is what a signature is for: an SSH signature says so itself, and is good for
// nothing else.
type purpose struct {
	namespace string // among what an SSH key may sign
	signed    string // what is signed, in words
}

var (
	// forGit is for git commits.
	forGit = purpose{"git", "commit"}
	// forStores is for stores without git.
	forStores = purpose{Namespace, "signature"}
)

// Namespace is the namespace of SSH signatures of texts, as in ssh-keygen -Y sign -n.
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

// fingerprint names a key like ssh-keygen. A certificate has the name of its key.
func fingerprint(key ssh.PublicKey) string {
	if certificate, ok := key.(*ssh.Certificate); ok {
		key = certificate.Key
	}
	return ssh.FingerprintSHA256(key)
}

// What OpenPGP's armor begins with.
const (
	gpgBegin       = "-----BEGIN PGP SIGNATURE-----"
	gpgPublicBegin = "-----BEGIN PGP PUBLIC KEY BLOCK-----"
)

// gpgSigner signs with a key of OpenPGP.
type gpgSigner struct{ key *openpgp.Entity }

func parseGPGKey(data, passphrase []byte) (signer, error) {
	keys, err := openpgp.ReadArmoredKeyRing(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	if len(keys) != 1 {
		return nil, fmt.Errorf("it holds %d keys, and one is wanted", len(keys))
	}
	key := keys[0]
	if locked(key) && len(passphrase) == 0 {
		return nil, errPassphrase
	}
	if err := key.DecryptPrivateKeys(passphrase); err != nil {
		return nil, err
	}
	return gpgSigner{key}, nil
}

// locked reports whether a key, or a part of it, has a passphrase.
func locked(key *openpgp.Entity) bool {
	encrypted := func(k *packet.PrivateKey) bool { return k != nil && !k.Dummy() && k.Encrypted }
	return encrypted(key.PrivateKey) || slices.ContainsFunc(key.Subkeys, func(s openpgp.Subkey) bool { return encrypted(s.PrivateKey) })
}

// sign makes the signature at the time of the commit, and without salt.
func (s gpgSigner) sign(payload []byte, at time.Time, _ purpose) (string, error) {
	var out bytes.Buffer
	salted := false
	err := openpgp.ArmoredDetachSign(&out, s.key, bytes.NewReader(payload), &packet.Config{
		DefaultHash:                           crypto.SHA512,
		Time:                                  func() time.Time { return at },
		NonDeterministicSignaturesViaNotation: &salted,
	})
	if err != nil {
		return "", err
	}
	return out.String() + "\n", nil
}

// parseKeyring reads public keys of OpenPGP, from one or more blocks with armor, or without armor. An
// unreadable key is an error, since the person who added it relies on it.
func parseKeyring(data []byte) (openpgp.EntityList, error) {
	if !bytes.Contains(data, []byte("-----BEGIN PGP")) {
		return parseKeys(bytes.NewReader(data))
	}
	var all openpgp.EntityList
	_, text, _ := strings.Cut(string(data), gpgPublicBegin)
	for block := range strings.SplitSeq(text, gpgPublicBegin) {
		decoded, err := armor.Decode(strings.NewReader(gpgPublicBegin + block))
		if err != nil {
			return nil, fmt.Errorf("read armor: %w", err)
		}
		keys, err := parseKeys(decoded.Body)
		if err != nil {
			return nil, err
		}
		all = append(all, keys...)
	}
	return all, nil
}

func parseKeys(from io.Reader) (openpgp.EntityList, error) {
	var all openpgp.EntityList
	packets := packet.NewReader(from)
	for {
		key, err := openpgp.ReadEntity(packets)
		switch {
		case errors.Is(err, io.EOF) && len(all) == 0:
			return nil, errors.New("it holds no key")
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("read key %d: %w", len(all)+1, err)
		case key.PrivateKey != nil:
			return nil, fmt.Errorf("key %X is a private key, and public ones are wanted", key.PrimaryKey.Fingerprint)
		}
		all = append(all, key)
	}
}

// strong are the hashes that a signature may be made with.
var strong = []crypto.Hash{crypto.SHA256, crypto.SHA384, crypto.SHA512, crypto.SHA3_256, crypto.SHA3_512}

// verifyGPG returns which of the keys signed the payload.
func verifyGPG(keys openpgp.EntityList, payload []byte, armored string, at time.Time) (Signer, error) {
	block, err := armor.Decode(strings.NewReader(armored))
	if err != nil || block.Type != openpgp.SignatureType {
		return Signer{}, errors.New("its signature cannot be read")
	}
	made, key, err := openpgp.VerifyDetachedSignature(keys, bytes.NewReader(payload), block.Body, &packet.Config{Time: func() time.Time { return at }})
	if errors.Is(err, pgperrors.ErrUnknownIssuer) {
		return gpgClaim(armored), fmt.Errorf("the key %s is not among those of the key ring", gpgClaim(armored).Key)
	}
	if key == nil {
		return gpgClaim(armored), fmt.Errorf("it is not what was signed: %w", err)
	}
	public, gone := part(key, made)
	by := Signer{Format: "gpg", Name: name(key), Key: fmt.Sprintf("%X", public.Fingerprint)}
	switch {
	case gone:
		return by, fmt.Errorf("the key %s of %s is revoked", by.Key, by.Name)
	case err != nil:
		return by, fmt.Errorf("the key %s of %s: %w", by.Key, by.Name, err)
	case !slices.Contains(strong, made.Hash):
		return by, fmt.Errorf("its signature is made with %s, which is too weak", made.Hash)
	}
	return by, nil
}

// part returns which part of a key made a signature, and whether that is revoked.
// When and why is all the same: the times of commits are whatever their authors
// say.
func part(key *openpgp.Entity, made *packet.Signature) (public *packet.PublicKey, revoked bool) {
	for _, sub := range key.Subkeys {
		if made.CheckKeyIdOrFingerprint(sub.PublicKey) {
			return sub.PublicKey, len(sub.Revocations) > 0 || len(key.Revocations) > 0
		}
	}
	return key.PrimaryKey, len(key.Revocations) > 0
}

// name is the primary identity of a key.
func name(key *openpgp.Entity) string {
	if _, identity := key.PrimarySelfSignature(); identity != nil {
		return identity.Name
	}
	return ""
}

// gpgClaim returns by what key a signature says that it is.
func gpgClaim(armored string) Signer {
	by := Signer{Format: "gpg"}
	block, err := armor.Decode(strings.NewReader(armored))
	if err != nil {
		return by
	}
	p, err := packet.NewReader(block.Body).Next()
	if made, ok := p.(*packet.Signature); err == nil && ok {
		switch {
		case len(made.IssuerFingerprint) > 0:
			by.Key = fmt.Sprintf("%X", made.IssuerFingerprint)
		case made.IssuerKeyId != nil:
			by.Key = fmt.Sprintf("%X", *made.IssuerKeyId)
		}
	}
	return by
}
