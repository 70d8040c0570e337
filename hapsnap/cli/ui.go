package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	compiler "github.com/hapsnap/hapsnap/compiler/cli"
	pusher "github.com/hapsnap/hapsnap/pusher/cli"
	"github.com/hapsnap/hapsnap/pusher/ui"
)

// ofRequests are the flags of explain request that say nothing of what is compiled.
var ofRequests = []string{"ask", "at", "client", "filename", "fleet", "header", "help", "output", "snapshot"}

// fromCluster is what people write for the objects of the cluster in place of manifests.
const fromCluster = "cluster"

// withOrigins has the verb ui say which objects wrote what answers a request, where it is told of the objects. The
// compiler knows, and the pusher has the page.
func withOrigins(verb *cobra.Command) *cobra.Command {
	explains := explainsRequests(compiler.NewCommand())
	explains.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if verb.Flags().Lookup(f.Name) == nil && !slices.Contains(ofRequests, f.Name) {
			verb.Flags().AddFlag(f)
		}
	})
	objects := verb.Flags().String("objects", "", "manifests that snapshots are compiled from, a directory or one file, or cluster for those of the cluster: the page then says which objects wrote what answers a request")
	run := verb.RunE
	verb.RunE = func(cmd *cobra.Command, args []string) error {
		if *objects != "" {
			cmd.SetContext(pusher.WithOrigins(cmd.Context(), pusher.Origins{
				Request: func(ctx context.Context, q ui.Question) ([]ui.Wrote, error) { return origins(ctx, cmd, *objects, q) },
				Lines: func(ctx context.Context, places []string) ([]ui.Wrote, error) {
					return originsOfLines(ctx, cmd, *objects, places)
				},
			}))
		}
		return run(cmd, args)
	}
	return verb
}

func explainsRequests(half *cobra.Command) *cobra.Command {
	return verbOf(verbOf(half, "explain"), "request")
}

// origins has the compiler explain a request.
func origins(ctx context.Context, cmd *cobra.Command, objects string, q ui.Question) ([]ui.Wrote, error) {
	half := compiler.NewCommand()
	line := []string{"explain", "request", "--ask=false"}
	for _, h := range q.Headers {
		line = append(line, "--header="+h)
	}
	if q.Client.IsValid() {
		line = append(line, "--client="+q.Client.String())
	}
	var report struct{ Wrote []ui.Wrote }
	err := explained(ctx, cmd, half, explainsRequests(half), objects, line, []string{q.Method, q.URL}, &report)
	return report.Wrote, err
}

// originsOfLines has the compiler explain lines of files.
func originsOfLines(ctx context.Context, cmd *cobra.Command, objects string, places []string) ([]ui.Wrote, error) {
	half := compiler.NewCommand()
	if len(places) == 1 {
		var one ui.Wrote
		err := explained(ctx, cmd, half, verbOf(half, "explain"), objects, []string{"explain"}, places, &one)
		return []ui.Wrote{one}, err
	}
	var wrote []ui.Wrote
	err := explained(ctx, cmd, half, verbOf(half, "explain"), objects, []string{"explain"}, places, &wrote)
	return wrote, err
}

// explained has the compiler explain something of the objects, with the flags that the page was started with.
func explained(ctx context.Context, cmd, half, verb *cobra.Command, objects string, line, args []string, into any) error {
	takes := verb.Flags()
	line = append(line, "--output=json")
	if objects != fromCluster {
		line = append(line, "--filename="+objects)
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		connects := f.Name == "kubeconfig" || f.Name == "context" || f.Name == "config-map"
		if takes.Lookup(f.Name) == nil || f.Name == "store" || connects && objects != fromCluster {
			return
		}
		value := f.Value.String()
		if list, ok := f.Value.(pflag.SliceValue); ok {
			value = strings.Join(list.GetSlice(), ",")
		}
		line = append(line, "--"+f.Name+"="+value)
	})
	var out, errs bytes.Buffer
	half.SetArgs(append(append(line, "--"), args...))
	half.SetOut(&out)
	half.SetErr(&errs)
	half.SilenceErrors, half.SilenceUsage = true, true
	if err := half.ExecuteContext(ctx); err != nil {
		return fmt.Errorf("compile the objects: %w", errors.Join(err, ctx.Err()))
	}
	if err := json.Unmarshal(out.Bytes(), into); err != nil {
		return fmt.Errorf("read the explanation: %w", err)
	}
	return nil
}
