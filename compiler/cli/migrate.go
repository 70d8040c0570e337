package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/migrate"
	"github.com/hapsnap/hapsnap/internal/process"
)

// migrateFlags are those of the verb migrate.
type migrateFlags struct {
	migrate.Options
	manifests, output string
	to                string
	gateway           gatewayFlags
}

func migrateCommand() *cobra.Command {
	var f migrateFlags
	cmd := &cobra.Command{
		Use:   "migrate -f DIR [-o DIR]",
		Short: "Rewrite the annotations of other ingress controllers",
		Long: `Rewrite the annotations of ingress-nginx, haproxy.org and haproxy-ingress.github.io on
Ingresses and Services to those of hapsnap, where there is an equivalent. The command lists
the other annotations by object, with what to do about them, and then exits with 3.
docs/reference/migration.md has the equivalents.

The old annotations stay beside the new ones until --class moves the Ingress, or --remove
deletes them.

Without -o the command writes nothing. With -o it writes the changed files below that
directory, which may be the one that it reads.

With --to gateway the command turns Ingresses into a Gateway with HTTPRoutes, and with TLSRoutes
and ReferenceGrants where they are needed. It prints these manifests, or writes them to
gateway.yaml below the directory of -o, and lists what differs and what cannot be moved; with
the latter it exits with 3. A route whose protection cannot be moved is closed: it answers 500.`,
		Args: process.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.manifests, "filename", "f", "", "directory of manifests, or one file (required)")
	flags.StringVarP(&f.output, "output", "o", "", "directory for the files that change")
	flags.StringVar(&f.Class, "class", "", "ingressClassName for Ingresses that could be translated completely; their old annotations are deleted")
	flags.BoolVar(&f.Remove, "remove", false, "delete translated annotations even if the class stays")
	flags.StringVar(&f.to, "to", "", "gateway: turn Ingresses into a Gateway with routes")
	f.gateway.add(flags)
	return cmd
}

func (f *migrateFlags) run(cmd *cobra.Command) error {
	switch {
	case f.manifests == "":
		return process.WithHint(process.Usage("no manifests are named"), "use -f DIR")
	case f.to != "" && f.to != "gateway":
		return process.WithHint(process.Usage("--to %s is not known", f.to), "use --to gateway")
	case f.to == "gateway" && (f.Class != "" || f.Remove):
		return process.WithHint(process.Usage("--class and --remove are about Ingresses that stay"), "leave them out with --to gateway")
	case f.to == "gateway":
		return f.toGateway(cmd)
	}
	if given := f.gateway.given(cmd.Flags()); given != "" {
		return process.WithHint(process.Usage("--%s is for --to gateway", given), "use --to gateway")
	}
	result, err := migrate.Directory(f.manifests, f.Options)
	if err != nil {
		return err
	}
	printDiagnostics(cmd.ErrOrStderr(), result.Findings)
	verb := "would be rewritten"
	if f.output != "" {
		if err := result.Write(f.output); err != nil {
			return err
		}
		verb = "rewritten"
	}
	for _, file := range result.Files {
		fmt.Fprintln(cmd.OutOrStdout(), file.Path)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%d objects %s in %d files\n", result.Objects, verb, len(result.Files))
	if result.Objects == 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: nothing to rewrite: no Ingress in %s has an annotation of the controllers that migrate knows\n\thint: name the directory with the manifests of the Ingresses; those that have none need no more than ingressClassName\n", f.manifests)
	}
	if diag.HasErrors(result.Findings) {
		return process.Invalid(nil)
	}
	return nil
}
