package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/gitstore/signature"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

func signCommand() *cobra.Command {
	var f storeFlags
	var output process.OutputFlag
	cmd := &cobra.Command{
		Use:   "sign --store STORE --signing-key FILE",
		Short: "Sign the current channel of a store",
		Long: `Sign the current channel of a store in git or ConfigMaps. Use this for a channel that was
written before you required signatures, with an editor, or by somebody whose key is no
longer accepted. Read the channel first, since nobody who is trusted has signed its content.
Commands that change the channel, such as pin, sign it if you give them a key.`,
		Args: process.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !f.opening.Key.Enabled() {
				return process.WithHint(process.Usage("there is no key for signatures"), "use --signing-key FILE")
			}
			f.opening.Allowed = signature.Allowed{} // it is not signed by any of them
			return f.with(cmd.Context(), func(store stores.Store) error {
				unchanged := func(*channel.Channel) error { return nil }
				if err := store.UpdateChannel(cmd.Context(), "sign", time.Now(), unchanged); err != nil {
					return err
				}
				done := struct {
					Store  string `json:"store"`
					Signed bool   `json:"signed"`
				}{store.String(), true}
				return output.Write(cmd.OutOrStdout(), done, func(w io.Writer) error {
					_, err := fmt.Fprintln(w, "the channel is signed")
					return err
				})
			})
		},
	}
	f.add(cmd)
	output.AddTo(cmd)
	return cmd
}

// verification is what was found of the snapshots of a store.
type verification struct {
	Snapshots  int       `json:"snapshots"`            // that were read
	Signatures bool      `json:"signatures,omitempty"` // were asked for
	Failed     []failure `json:"failed"`
}

// failure is a snapshot that is not what its digests say, is not signed by who
// may, or cannot be read.
type failure struct {
	Snapshot  snapshots.ID `json:"snapshot"`
	Damaged   bool         `json:"damaged"`
	Untrusted bool         `json:"untrusted,omitempty"`
	Error     string       `json:"error"`
}

func verifyCommand() *cobra.Command {
	var f storeFlags
	var output process.OutputFlag
	cmd := &cobra.Command{
		Use:   "verify --store STORE",
		Short: "Check every digest of every snapshot that the store keeps",
		Long: `Check every digest of every snapshot that the store keeps, the oldest first, and print a
line for each snapshot that fails. With --allowed-signers or --keyring the command checks
the signatures too. The exit code is 3 if a snapshot is damaged or is signed by none of
these keys, and 1 if a snapshot could not be read.`,
		Args: process.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cmp.Or(checkReadable("allowed-signers", f.opening.Allowed.SignersFile), checkReadable("keyring", f.opening.Allowed.KeyringFile)); err != nil {
				return err // nothing would be signed by an allowed signer
			}
			return f.with(cmd.Context(), func(store stores.Store) error {
				signatures := f.opening.Allowed.Enabled()
				v, err := verify(cmd.Context(), store)
				if err != nil {
					return err
				}
				v.Signatures = signatures
				if err := output.Write(cmd.OutOrStdout(), v, v.print); err != nil {
					return err
				}
				return v.exit()
			})
		},
	}
	f.add(cmd)
	output.AddTo(cmd)
	return cmd
}

// verify reads all snapshots, one after the other: no more than one is in memory.
func verify(ctx context.Context, store stores.Reader) (verification, error) {
	v := verification{Failed: []failure{}}
	ids, err := allOf(ctx, store)
	if err != nil {
		return v, err
	}
	for n, id := range ids {
		process.Doing(ctx, "verifying %s, %d of %d", id, n+1, len(ids))
		_, err := store.Get(ctx, id)
		if ctx.Err() != nil {
			return v, ctx.Err()
		}
		if gone(ctx, store, id, err) {
			continue
		}
		v.Snapshots++
		if err != nil {
			v.Failed = append(v.Failed, failure{
				Snapshot: id, Damaged: errors.Is(err, snapshots.ErrCorrupt), Untrusted: errors.Is(err, snapshots.ErrUntrusted), Error: err.Error(),
			})
		}
	}
	return v, nil
}

// gone reports whether a snapshot was deleted since it was listed, which is no
// damage.
func gone(ctx context.Context, store stores.Reader, id snapshots.ID, err error) bool {
	if !errors.Is(err, snapshots.ErrNotFound) {
		return false
	}
	ids, err := allOf(ctx, store)
	return err == nil && !slices.Contains(ids, id)
}

func (v verification) print(w io.Writer) error {
	for _, f := range v.Failed {
		fmt.Fprintln(w, firstLine(f.Error))
	}
	signed := ""
	if v.Signatures {
		signed = ", and their signatures are accepted"
	}
	_, err := fmt.Fprintf(w, "%d of %d snapshots match their digests%s\n", v.Snapshots-len(v.Failed), v.Snapshots, signed)
	return err
}

// exit returns the exit code. What could not be read says nothing of the store, and
// comes after what is surely damaged.
func (v verification) exit() error {
	switch {
	case slices.ContainsFunc(v.Failed, func(f failure) bool { return f.Damaged || f.Untrusted }):
		return process.Invalid(nil)
	case len(v.Failed) > 0:
		return &process.ExitError{Code: process.ExitFailure}
	}
	return nil
}

// damaged gives the error of a snapshot that is not what its digests say, or not
// signed by who may, its exit code.
func damaged(err error) error {
	if errors.Is(err, snapshots.ErrCorrupt) || errors.Is(err, snapshots.ErrUntrusted) {
		return process.Invalid(err)
	}
	return err
}

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
	Refused(ctx context.Context) ([]channel.Refused, error)
}

// allOf returns the names of all snapshots of a store, ascending, also of those that are
// not signed by who may. The channel, which may be what is wrong, is not read. A store without
// one is an error: another is meant.
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
	if len(ids) == 0 {
		return nil, stores.NoSnapshots(ctx, store)
	}
	return ids, nil
}

// withRefused returns both, ascending.
func withRefused(ids []snapshots.ID, refused []channel.Refused) []snapshots.ID {
	out := slices.Clone(ids)
	for _, r := range refused {
		out = append(out, r.ID)
	}
	slices.SortFunc(out, snapshots.ID.Compare)
	return slices.Compact(out)
}
