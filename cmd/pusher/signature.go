package main

import (
	"context"
	"fmt"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/gitstore"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

// signed is what a store is that can tell who signed its snapshots.
type signed interface {
	Signature(ctx context.Context, id snapshots.ID) (gitstore.Signature, error)
}

// signatureOf returns what there is to say of the signature of a snapshot, nil if
// the store has none of any.
func signatureOf(ctx context.Context, store stores.Reader, id snapshots.ID) (*gitstore.Signature, error) {
	in, ok := store.(signed)
	if !ok {
		return nil, nil
	}
	s, err := in.Signature(ctx, id)
	if err != nil {
		return nil, err
	}
	return &s, nil
}

// signer returns who signed, in a word or two; "" for nobody.
func signer(s *gitstore.Signature) string {
	switch {
	case s == nil || s.State == gitstore.SignatureNone:
		return ""
	case s.State == gitstore.SignatureAllowed:
		return s.Name
	case s.State == gitstore.SignatureRefused:
		return "refused"
	}
	return "not verified"
}

// describeSignature tells of a signature in a line.
func describeSignature(s *gitstore.Signature) string {
	switch {
	case s == nil:
		return ""
	case s.State == gitstore.SignatureNone:
		return "no"
	case s.State == gitstore.SignatureUnverified:
		return fmt.Sprintf("%s, not verified", s.Signer)
	}
	return s.Signer.String()
}
