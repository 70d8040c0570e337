package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/gitstore/signature"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

func signCommand() *cobra.Command {
	var f storeFlags
	var output process.OutputFlag
	cmd := &cobra.Command{
		Use:   "sign --store STORE --signing-key FILE",
		Short: "Sign the channel of a store in ConfigMaps as it is",
		Long: `Sign the channel of a store in ConfigMaps as it is: one that was written before
signatures were asked for, by hand, or by somebody whose key is not accepted any more.
Look at what it says before, for nobody has vouched for it. Verbs that change the channel,
such as pin, sign it anyway where they are given a key.`,
		Args: process.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case f.store != "" && !stores.InCluster(f.store):
				return process.WithHint(process.Usage("store %s: only a channel in ConfigMaps is signed as it is", f.store), "in git, sign a commit: git commit --amend -S")
			case !f.opening.Key.Enabled():
				return process.WithHint(process.Usage("there is no key for signatures"), "use --signing-key FILE")
			}
			f.opening.Allowed = signature.Allowed{} // it is not signed by any of them
			return f.with(cmd.Context(), func(store stores.Store) error {
				unchanged := func(*snapshots.Channel) error { return nil }
				if err := store.UpdateChannel(cmd.Context(), "sign", time.Now(), unchanged); err != nil {
					return err
				}
				done := struct {
					Store  string `json:"store"`
					Signed bool   `json:"signed"`
				}{store.String(), true}
				return output.Write(cmd.OutOrStdout(), done, func(w io.Writer) error {
					_, err := fmt.Fprintln(w, "the channel is signed as it is")
					return err
				})
			})
		},
	}
	f.add(cmd)
	output.AddTo(cmd)
	return cmd
}
