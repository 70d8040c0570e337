// Package signature signs git commits, and tells who signed them: with keys of
// SSH, in the format of ssh-keygen -Y, and of OpenPGP, as git itself does with
// gpg.format=ssh and openpgp. It works on the text of commits and knows no
// repository, and it starts no program. Texts of other stores are signed in a namespace
// of their own, so that a signature of one is never taken for that of a commit.
//
// It promises that a key which cannot be used is an error and never the reason of
// a commit without a signature; that the same commit and key give the same
// signature; and that what a list of allowed signers says is held or is an error,
// but never passed over. Time is the commit's own: a person with a key can write an
// older one into a commit, so that a key which is not to be trusted any more has
// to leave the list.
package signature

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// Allowed names the files that say whose signatures are accepted. They are read
// for each commit. Without a file, nothing is asked for.
type Allowed struct {
	// SignersFile has keys of SSH, in the format of ssh-keygen(1), section
	// ALLOWED SIGNERS.
	SignersFile string
	// KeyringFile has public keys of OpenPGP, with armor or without.
	KeyringFile string
}

// Signer is who made a signature.
type Signer struct {
	Format string `json:"format,omitempty"` // ssh or gpg
	// Name is what the list calls the signer: the principals, or the identity
	// of the key. It is empty for who is not on it.
	Name string `json:"name,omitempty"`
	Key  string `json:"key,omitempty"` // fingerprint, of SSH or OpenPGP
}

// String returns the name and the key.
func (s Signer) String() string {
	if s.Name == "" {
		return s.Key
	}
	return fmt.Sprintf("%s (%s)", s.Name, s.Key)
}

// Enabled reports whether commits are to be verified.
func (a Allowed) Enabled() bool { return a != Allowed{} }

// Why a signature is not accepted, beside what is wrong with it.
var (
	errUnsigned = errors.New("it has no signature")
	errFormat   = errors.New("its signature is neither of SSH nor of OpenPGP")
)

// RefusedError says why a signature is not accepted. Any other error is about reading
// the files of who is allowed.
type RefusedError struct{ Reason error }

func (r RefusedError) Error() string { return r.Reason.Error() }

// Unwrap returns the reason.
func (r RefusedError) Unwrap() error { return r.Reason }

// Verify returns who signed a commit, given as git stores it and with the time that
// it says it was made. The error is a [RefusedError] if that is nobody who is allowed to.
func (a Allowed) Verify(commit []byte, at time.Time) (Signer, error) {
	payload, armored, err := Split(commit)
	if err != nil {
		return Signer{}, RefusedError{err}
	}
	return a.verify(payload, armored, at, forGit)
}

// VerifyText returns who signed a text in the [Namespace], which says that it was made at
// this time. The error is as that of Verify.
func (a Allowed) VerifyText(text []byte, armored string, at time.Time) (Signer, error) {
	return a.verify(text, armored, at, forStores)
}

func (a Allowed) verify(payload []byte, armored string, at time.Time, what purpose) (Signer, error) {
	switch {
	case armored == "":
		return Signer{}, RefusedError{errUnsigned}
	case strings.HasPrefix(armored, sshBegin):
		return a.verifySSH(payload, armored, at, what)
	case strings.HasPrefix(armored, gpgBegin):
		return a.verifyGPG(payload, armored, at)
	default:
		return Signer{}, RefusedError{errFormat}
	}
}

func (a Allowed) verifySSH(payload []byte, armored string, at time.Time, what purpose) (Signer, error) {
	key, err := openSSH(payload, armored, what)
	if err != nil {
		return Signer{Format: "ssh"}, RefusedError{err}
	}
	claim := Signer{Format: "ssh", Key: fingerprint(key)}
	if a.SignersFile == "" {
		return claim, RefusedError{fmt.Errorf("it is signed with the SSH key %s, and no keys of SSH are allowed", claim.Key)}
	}
	data, err := os.ReadFile(a.SignersFile)
	if err != nil {
		return claim, fmt.Errorf("read allowed signers: %w", err)
	}
	list, err := parseSigners(a.SignersFile, string(data))
	if err != nil {
		return claim, fmt.Errorf("read allowed signers: %w", err)
	}
	if claim.Name, err = list.find(key, at, what); err != nil {
		return claim, RefusedError{err}
	}
	return claim, nil
}

func (a Allowed) verifyGPG(payload []byte, armored string, at time.Time) (Signer, error) {
	claim := gpgClaim(armored)
	if a.KeyringFile == "" {
		return claim, RefusedError{fmt.Errorf("it is signed with the OpenPGP key %s, and no keys of OpenPGP are allowed", claim.Key)}
	}
	data, err := os.ReadFile(a.KeyringFile)
	if err != nil {
		return claim, fmt.Errorf("read key ring: %w", err)
	}
	keys, err := parseKeyring(data)
	if err != nil {
		return claim, fmt.Errorf("read key ring %s: %w", a.KeyringFile, err)
	}
	by, err := verifyGPG(keys, payload, armored, at)
	if err != nil {
		return by, RefusedError{err}
	}
	return by, nil
}

// Claim returns who a commit says that signed it. That nobody has verified, and
// false means that it is not signed.
func Claim(commit []byte) (Signer, bool) {
	payload, armored, err := Split(commit)
	if err != nil || armored == "" {
		return Signer{}, err != nil
	}
	return claim(payload, armored, forGit)
}

// ClaimText is Claim of a text and its signature.
func ClaimText(text []byte, armored string) (Signer, bool) {
	if armored == "" {
		return Signer{}, false
	}
	return claim(text, armored, forStores)
}

func claim(payload []byte, armored string, what purpose) (Signer, bool) {
	switch {
	case strings.HasPrefix(armored, sshBegin):
		by := Signer{Format: "ssh"}
		if key, _ := openSSH(payload, armored, what); key != nil {
			by.Key = fingerprint(key)
		}
		return by, true
	case strings.HasPrefix(armored, gpgBegin):
		return gpgClaim(armored), true
	}
	return Signer{}, true
}

// Finding is what there is to say of the signature of a snapshot.
type Finding struct {
	Commit string `json:"commit,omitempty"` // in git, that with the snapshot
	// State is none, unverified if nobody says who may sign, allowed or refused.
	State string `json:"state"`
	Signer
	Error string `json:"error,omitempty"` // why it is refused
}

// The states of a [Finding].
const (
	StateNone       = "none"
	StateUnverified = "unverified"
	StateAllowed    = "allowed"
	StateRefused    = "refused"
)

// Fingerprint tells apart what the files hold that say whose signatures are accepted, so
// that a verdict can be remembered for as long as they are the same.
func (a Allowed) Fingerprint() ([sha256.Size]byte, error) {
	hash := sha256.New()
	for _, file := range []string{a.SignersFile, a.KeyringFile} {
		var data []byte
		if file != "" {
			var err error
			if data, err = os.ReadFile(file); err != nil {
				return [sha256.Size]byte{}, fmt.Errorf("read who may sign: %w", err)
			}
		}
		fmt.Fprintf(hash, "%d\n", len(data))
		hash.Write(data)
	}
	return [sha256.Size]byte(hash.Sum(nil)), nil
}

// header begins the signature among the headers of a commit. Each further line
// of it begins with a space.
const header = "gpgsig"

// errTwice is returned for a commit of which nobody can say who signed it.
var errTwice = errors.New("it has more than one signature")

// Split takes the text of a commit apart: what is signed, and the signature, ""
// for none.
func Split(commit []byte) (payload []byte, armored string, err error) {
	var signature bytes.Buffer
	headers, message, _ := bytes.Cut(commit, []byte("\n\n"))
	inside := false
	for line := range bytes.Lines(headers) {
		name, value, _ := bytes.Cut(line, []byte(" "))
		switch {
		case inside && len(name) == 0:
			signature.Write(value)
		case bytes.HasPrefix(name, []byte(header)):
			if string(name) != header || signature.Len() > 0 {
				return nil, "", errTwice
			}
			inside = true
			signature.Write(value)
		default:
			inside = false
			payload = append(payload, line...)
		}
	}
	if end := len(payload); end > 0 && payload[end-1] != '\n' {
		payload = append(payload, '\n')
	}
	payload = append(append(payload, '\n'), message...)
	return payload, signature.String(), nil
}
