// Package signature signs git commits, and verifies who signed them: with keys of SSH, in the format of
// ssh-keygen -Y, and of OpenPGP, as git does with gpg.format=ssh and openpgp. It works on the text of commits.
// It knows no repository, and starts no program. Texts of other stores are signed in a namespace of their own,
// so that their signatures do not fit commits.
//
// It promises three things. A key that cannot be used is an error, and never leads to a commit without a
// signature. The same commit and key give the same signature. A list of allowed signers is followed in every
// detail, or it is an error. The time is the commit's own. The owner of a key can write an older time into a
// commit, so a key that is no longer trusted must be removed from the list.
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

// Signer is the maker of a signature.
type Signer struct {
	Format string `json:"format,omitempty"` // ssh or gpg
	// Name is the name in the list: the principals, or the identity of the key. It is "" for a signer that is
	// not in the list.
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

// RefusedError says why a signature is not accepted. Any other error means that the list of signers could not
// be read.
type RefusedError struct{ Reason error }

func (r RefusedError) Error() string { return r.Reason.Error() }

// Unwrap returns the reason.
func (r RefusedError) Unwrap() error { return r.Reason }

// Verify returns who signed a commit. commit is its text as git stores it, and at is the commit's own time. The
// error is a [RefusedError] if the signature is not accepted.
func (a Allowed) Verify(commit []byte, at time.Time) (Signer, error) {
	payload, armored, err := Split(commit)
	if err != nil {
		return Signer{}, RefusedError{err}
	}
	return a.verify(payload, armored, at, forGit)
}

// VerifyText returns who signed a text in the [Namespace]. at is the time of the signature by the text itself.
// Its errors are those of Verify.
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

// Claim returns the signer that a commit claims, without verifying it. It returns false for a commit without a
// signature.
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

// Finding is the result of looking at a snapshot's signature.
type Finding struct {
	Commit string `json:"commit,omitempty"` // in git, that with the snapshot
	// State is none, unverified (without a list of signers), allowed or refused.
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

// errTwice is returned for a commit with several signatures, whose signer is ambiguous.
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
