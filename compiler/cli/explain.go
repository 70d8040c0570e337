package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/explain"
	"github.com/hapsnap/hapsnap/internal/process"
)

// explainFlags are the flags of the verb explain.
type explainFlags struct {
	sourceFlags
	output process.OutputFlag
}

func explainCommand() *cobra.Command {
	var f explainFlags
	cmd := &cobra.Command{
		Use:   "explain FILE:LINE... [-f DIR | --kubeconfig FILE]",
		Short: "Show which template, objects and fields wrote a line",
		Long: `Compile manifests and show where a line of the result comes from: the line of the template,
and the objects with the fields that the template wrote it for. The command also lists
annotations of these objects, and fields of the kinds that the configuration names, whose
value is on the line.

The file is one of a snapshot, as render writes it, such as haproxy.cfg or maps/host.map.
The haproxy.cfg of an instance has more lines, those of the servers. The command reports
objects with errors, and leaves them out as run does.

Several lines are explained by one compile. With -o json they are an array, one line alone is
an object. A line that the result does not have is reported as missing; the command fails if the
result has none of them.

explain request says who answers a request, and why.`,
		Args: process.Args(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	f.add(cmd)
	f.output.AddTo(cmd)
	cmd.AddCommand(explainRequestCommand())
	return cmd
}

func (f *explainFlags) run(cmd *cobra.Command, args []string) error {
	var places []explain.Place
	for _, text := range args {
		place, err := explain.ParsePlace(text)
		if err != nil {
			return err
		}
		places = append(places, place)
	}
	source, err := f.source(cmd.Context(), cmd.Flags(), cmd.ErrOrStderr(), warnings(cmd.ErrOrStderr()))
	if err != nil {
		return err
	}
	check, err := f.checker(cmd.Context(), source.Config, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	explained, result, err := source.Explain(cmd.Context(), check, time.Now(), places...)
	printDiagnostics(cmd.ErrOrStderr(), result.Diagnostics)
	if err != nil {
		return unpublishable(err)
	}
	var value any = explained
	if len(places) == 1 {
		value = explained[0]
	}
	return f.output.Write(cmd.OutOrStdout(), value, func(w io.Writer) error {
		for _, e := range explained {
			if err := printExplanation(w, e); err != nil {
				return err
			}
		}
		return nil
	})
}

// maxOrigins is the largest number of origins that are printed for a line that many objects share.
const maxOrigins = 20

// printExplanation prints positions first, so that editors make links of them.
func printExplanation(w io.Writer, e explain.Explanation) error {
	fmt.Fprintln(w, strings.TrimRight(fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Text), " "))
	if e.Template != nil {
		fmt.Fprintf(w, "%s:%d: template\n", e.Template.File, e.Template.Line)
	} else {
		fmt.Fprintf(w, "\t%s\n", e.Note)
	}
	for i, o := range e.Origins {
		if i == maxOrigins {
			_, err := fmt.Fprintf(w, "\tand %d more, which -o json lists\n", len(e.Origins)-i)
			return err
		}
		fmt.Fprintln(w, originLine(o))
	}
	return nil
}

// originLine returns an origin in the form of a diagnostic.
func originLine(o explain.Origin) string {
	message := o.Field
	if o.Value != "" {
		message += ": " + o.Value
	}
	if message == "" {
		message = "the object as a whole"
	}
	return diag.Diagnostic{
		Severity: diag.Error, Message: message,
		Position: diag.Position{File: o.File, Line: o.Line, Column: o.Column},
		Object:   diag.Object{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name},
	}.String()
}
