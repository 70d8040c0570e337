package signature

import (
	"bytes"
	"crypto"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

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

// parseKeyring reads public keys of OpenPGP: one or more blocks with armor, or
// none of it. A key that cannot be read is an error, since the person who put it there
// counts on it.
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

// verifyGPG returns who among the keys signed the payload.
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
