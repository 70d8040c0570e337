package cli

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/compiler/function"
	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/internal/process"
)

func fnCommand() *cobra.Command {
	var haproxy string
	cmd := &cobra.Command{
		Use:   "fn",
		Short: "Compile as a KRM function of kustomize or kpt",
		Long: `Read a ResourceList, compile its items, and write it with a ConfigMap that holds
the snapshot. It is for kustomize and kpt to run, as a transformer or a generator.
The functionConfig is a CompilerFunction, which may name more manifests, templates
and a configuration.

What is wrong is among the results of the list, and is printed too; the exit code is
3 then, and the list gets no snapshot.`,
		Args: process.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			check, err := validate.Find(cmd.Context(), haproxy)
			if err != nil {
				return err
			}
			f := function.Function{In: cmd.InOrStdin(), Out: cmd.OutOrStdout(), Log: cmd.ErrOrStderr(), Check: check, Now: time.Now()}
			if err := f.Run(cmd.Context()); !errors.Is(err, function.ErrInvalid) {
				return err
			}
			return process.Invalid(nil)
		},
	}
	cmd.Flags().StringVar(&haproxy, "haproxy", "haproxy", "name or path of the haproxy that checks configurations, 2.6 or later")
	return cmd
}
