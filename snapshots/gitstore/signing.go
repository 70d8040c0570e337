package gitstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/gitstore/signature"
)

// sign returns the signature of a commit. Where signatures are verified, it refuses to make one that
// would not be accepted.
func (s *Store) sign(c *object.Commit) (string, error) {
	if !s.options.Key.Enabled() && !s.options.Allowed.Enabled() {
		return "", nil
	}
	if !s.options.Key.Enabled() {
		return "", process.WithHint(fmt.Errorf("write to %s: %w: there is no key for signatures, and they are asked for", s, snapshots.ErrUntrusted),
			"name the file of a private key with --signing-key")
	}
	payload, err := text(c)
	if err != nil {
		return "", err
	}
	armored, err := s.options.Key.Sign(payload, c.Committer.When)
	if err != nil || !s.options.Allowed.Enabled() {
		return armored, err
	}
	signed := *c
	signed.PGPSignature = armored
	if payload, err = text(&signed); err != nil {
		return "", err
	}
	_, err = s.options.Allowed.Verify(payload, c.Committer.When)
	if _, refused := errors.AsType[signature.RefusedError](err); refused {
		return "", fmt.Errorf("write to %s: it would be %w: %w", s, snapshots.ErrUntrusted, err)
	}
	return armored, err
}

// lacksSignature reports whether an unchanged channel has to be signed: there is a key, no list of signers, and the
// commit, which was fetched, is not signed with that key. With a list of signers, a channel without a good signature
// cannot be read in the first place.
func (s *Store) lacksSignature(channel plumbing.Hash) (bool, error) {
	if channel.IsZero() || !s.options.Key.Enabled() || s.options.Allowed.Enabled() {
		return false, nil
	}
	r, err := newReader(s.cache.storage, channel)
	if err != nil {
		return false, s.blameCache(err)
	}
	unsigned := *r.commit
	unsigned.PGPSignature = ""
	payload, err := text(&unsigned)
	if err != nil {
		return false, err
	}
	armored, err := s.options.Key.Sign(payload, r.commit.Committer.When)
	return strings.TrimSpace(armored) != strings.TrimSpace(r.commit.PGPSignature), err
}

// text returns a commit as git stores it.
func text(c *object.Commit) ([]byte, error) {
	o := &plumbing.MemoryObject{}
	if err := c.Encode(o); err != nil {
		return nil, fmt.Errorf("encode commit: %w", err)
	}
	return content(o)
}

func content(o plumbing.EncodedObject) ([]byte, error) {
	in, err := o.Reader()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return io.ReadAll(in)
}

// vouch returns an error if signatures are verified, and the commit has no accepted one.
func (s *Store) vouch(r reader) error {
	if !s.options.Allowed.Enabled() {
		return nil
	}
	stored, err := r.text()
	if err != nil {
		return err
	}
	_, err = s.options.Allowed.Verify(stored, r.commit.Committer.When)
	if _, refused := errors.AsType[signature.RefusedError](err); refused {
		return fmt.Errorf("commit %.12s of %s is %w: %w", r.commit.Hash, who(r.commit), snapshots.ErrUntrusted, err)
	}
	return err
}

// who returns the author of a commit, as one line.
func who(c *object.Commit) string {
	return printable(fmt.Sprintf("%s <%s>", c.Author.Name, c.Author.Email))
}

// text returns the commit as git stores it.
func (r reader) text() ([]byte, error) {
	o, err := r.from.EncodedObject(plumbing.CommitObject, r.commit.Hash)
	if err != nil {
		return nil, fmt.Errorf("read commit %s: %w", r.commit.Hash, err)
	}
	return content(o)
}

// Signature returns who signed a snapshot. A missing or refused signature is a result, and no error.
func (s *Store) Signature(ctx context.Context, id snapshots.ID) (found signature.Finding, err error) {
	err = s.find(ctx, id, func(commit plumbing.Hash) error {
		r, err := s.openAny(ctx, commit)
		if err != nil {
			return err
		}
		stored, err := r.text()
		if err != nil {
			return s.blameCache(err)
		}
		found = s.judge(stored, r.commit)
		return nil
	})
	if err != nil {
		return signature.Finding{}, fmt.Errorf("read signature of %s: %w", id, err)
	}
	return found, nil
}

func (s *Store) judge(stored []byte, c *object.Commit) signature.Finding {
	found := signature.Finding{Commit: c.Hash.String(), State: signature.StateNone}
	if by, signed := signature.Claim(stored); signed {
		found.State, found.Signer = signature.StateUnverified, by
	}
	if !s.options.Allowed.Enabled() {
		return found
	}
	by, err := s.options.Allowed.Verify(stored, c.Committer.When)
	if err != nil {
		found.State, found.Error = signature.StateRefused, err.Error()
		return found
	}
	found.State, found.Signer = signature.StateAllowed, by
	return found
}
