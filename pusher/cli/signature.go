package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/gitstore/signature"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

// signed is what a store is that can tell who signed its snapshots.
type signed interface {
	Signature(ctx context.Context, id snapshots.ID) (signature.Finding, error)
}

// signatureOf returns what there is to say of the signature of a snapshot, nil if
// the store has none of any.
func signatureOf(ctx context.Context, store stores.Reader, id snapshots.ID) (*signature.Finding, error) {
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
func signer(s *signature.Finding) string {
	switch {
	case s == nil || s.State == signature.StateNone:
		return ""
	case s.State == signature.StateAllowed:
		return s.Name
	case s.State == signature.StateRefused:
		return "refused"
	}
	return "not verified"
}

// describeSignature tells of a signature in a line.
func describeSignature(s *signature.Finding) string {
	switch {
	case s == nil:
		return ""
	case s.State == signature.StateNone:
		return "no"
	case s.State == signature.StateUnverified:
		return fmt.Sprintf("%s, not verified", s.Signer)
	}
	return s.Signer.String()
}

// refuser is a store that holds snapshots which are not signed by who may, beside those
// that it offers.
type refuser interface {
	Refused(ctx context.Context) ([]snapshots.Refused, error)
}

// allOf returns the names of all snapshots of a store, ascending, also of those that are
// not signed by who may. The channel, which may be what is wrong, is not read.
func allOf(ctx context.Context, store stores.Reader) ([]snapshots.ID, error) {
	ids, err := store.IDs(ctx)
	if err != nil {
		return nil, err
	}
	if in, ok := store.(refuser); ok {
		refused, err := in.Refused(ctx)
		if err != nil {
			return nil, err
		}
		ids = withRefused(ids, refused)
	}
	return ids, nil
}

// withRefused returns both, ascending.
func withRefused(ids []snapshots.ID, refused []snapshots.Refused) []snapshots.ID {
	out := slices.Clone(ids)
	for _, r := range refused {
		out = append(out, r.ID)
	}
	slices.SortFunc(out, snapshots.ID.Compare)
	return slices.Compact(out)
}
