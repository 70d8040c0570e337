package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	compiler "github.com/hapsnap/hapsnap/compiler/cli"
	"github.com/hapsnap/hapsnap/internal/process"
	pusher "github.com/hapsnap/hapsnap/pusher/cli"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

// verbOf returns the verb of a half.
func verbOf(half *cobra.Command, verb string) *cobra.Command {
	for _, c := range half.Commands() {
		if c.Name() == verb {
			return c
		}
	}
	return half
}

// run runs a verb of a half with those flags that were given to a command and that the half
// has too, and with arguments. What it prints goes to out.
func run(cmd, half *cobra.Command, out io.Writer, verb string, except []string, args ...string) error {
	line := []string{verb}
	takes := verbOf(half, verb).Flags()
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if takes.Lookup(f.Name) == nil || slices.Contains(except, f.Name) {
			return
		}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			for _, value := range list.GetSlice() {
				line = append(line, "--"+f.Name+"="+value)
			}
			return
		}
		line = append(line, "--"+f.Name+"="+f.Value.String())
	})
	half.SetArgs(append(append(line, "--"), args...))
	half.SetIn(cmd.InOrStdin())
	half.SetOut(out)
	half.SetErr(cmd.ErrOrStderr())
	half.SilenceErrors, half.SilenceUsage = true, true
	return half.ExecuteContext(cmd.Context())
}

func diffCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "diff A B",
		Short: "Compare snapshots, manifests or clusters, and say whether the change needs a reload",
		Long: `Compare two configurations, and say what brings a fleet from the first to the second:
nothing, a change at run time, or a reload, with the line that decides it.

Each of the two is a snapshot, a directory of manifests or a cluster. A snapshot is one of
the store, in full, as r12, or head for the newest, or STORE@r12 of another store. Write
cluster for the cluster of --kubeconfig, and cluster:NAME for that of one of its contexts.
Manifests and clusters are compiled, with the same flags for both. What exists as a file or
directory is manifests.

If both directories have EndpointSlices, their endpoints are compared as live data; with
--endpoints recorded they are a file. Contents of Secrets are not compared. The command
reports objects with errors, and leaves them out as compiler run does.`,
		Args: process.Args(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error { return diff(cmd, args) },
	}
	stored := verbOf(pusher.NewCommand(), "diff")
	addFlagsOf(cmd, verbOf(compiler.NewCommand(), "diff"), stored)
	cmd.ValidArgsFunction = stored.ValidArgsFunction
	return cmd
}

// diff has the pusher compare two snapshots of the store, and the compiler everything else.
func diff(cmd *cobra.Command, args []string) error {
	store, err := cmd.Flags().GetString("store")
	if err != nil {
		return err
	}
	if isSnapshot(args[0]) && isSnapshot(args[1]) {
		return run(cmd, pusher.NewCommand(), cmd.OutOrStdout(), "diff", nil, args...)
	}
	sides := slices.Clone(args)
	for i, name := range sides {
		if !isSnapshot(name) {
			continue
		}
		if store == "" {
			return process.WithHint(process.Usage("%s is a snapshot, and no store is named", name), "use --store or HAPSNAP_STORE, or name it as STORE@"+name)
		}
		sides[i] = store + "@" + name
	}
	return run(cmd, compiler.NewCommand(), cmd.OutOrStdout(), "diff", nil, sides...)
}

// isSnapshot tells a snapshot of the store from manifests.
func isSnapshot(name string) bool {
	_, err := os.Stat(name)
	return snapshots.IsName(name) && err != nil
}

// whole is the status of both halves. Parts that are not asked for are not there.
type whole struct {
	Fleet    json.RawMessage `json:"fleet,omitempty"`
	Compiled json.RawMessage `json:"compiled,omitempty"`
}

func statusCommand() *cobra.Command {
	var watch bool
	cmd := &cobra.Command{
		Use:   "status [-w]",
		Short: "Show what should run, what runs, what was left out, and what is wrong",
		Long: `Show what the fleet should run, how far a rollout is, what each instance runs, and what is
wrong. Then show the newest snapshot, what it holds, and which objects the compiler left out,
and why.

The part about the fleet comes from the state of the pusher (--state), or without one from
the summary beside the snapshots of a store in the cluster, for which no Secret is read. The
part about what was compiled comes from the newest snapshot of the store (--store), or from a
running compiler (--address), at the address of its --metrics-address.

With -w the command follows the fleet until you stop it. -o json prints an object with the
fields fleet and compiled, as pusher status and compiler status print them. With --exit-code
the command exits with 3 if objects were left out or have errors, or a loss waits for
approval.`,
		Args: process.Args(cobra.NoArgs),
	}
	fleet, compiled := verbOf(pusher.NewCommand(), "status"), verbOf(compiler.NewCommand(), "status")
	addFlagsOf(cmd, compiled, fleet)
	cmd.Flags().Lookup("store").Usage = "store with the snapshots; if it is configmap:NAMESPACE/NAME, a summary of the fleet is beside them"
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if watch, _ = cmd.Flags().GetBool("watch"); watch { // the flag is there
			return run(cmd, pusher.NewCommand(), cmd.OutOrStdout(), "status", []string{"store"})
		}
		return status(cmd)
	}
	return cmd
}

// parts says which halves a status asks, and which flags the pusher is not to get.
func parts(state, store, address string) (fleet, compiled bool, except []string) {
	fleet = state != "" || stores.InCluster(store)
	if state != "" {
		except = []string{"store"}
	}
	return fleet, store != "" || address != "", except
}

func status(cmd *cobra.Command) error {
	value := func(name string) string { return cmd.Flags().Lookup(name).Value.String() }
	asJSON := value("output") == "json"
	fleet, compiled, except := parts(value("state"), value("store"), value("address"))
	if !fleet && !compiled {
		return process.WithHint(process.Usage("neither a state, a store nor a compiler is named"), "use --state, --store or --address, or add a context: hapsnap context add NAME --store STORE")
	}
	var both whole
	part := func(half *cobra.Command, into *json.RawMessage, except []string) error {
		out := cmd.OutOrStdout()
		if asJSON {
			out = (*rawWriter)(into)
		}
		return run(cmd, half, out, "status", except)
	}
	if fleet {
		if err := part(pusher.NewCommand(), &both.Fleet, except); err != nil {
			return err
		}
	}
	if fleet && compiled && !asJSON {
		fmt.Fprintln(cmd.OutOrStdout())
	}
	var err error
	if compiled {
		except = nil
		if value("address") != "" {
			except = []string{"store"} // the compiler that runs knows more
		}
		err = part(compiler.NewCommand(), &both.Compiled, except)
	}
	if asJSON && (err == nil || both.Compiled != nil) {
		encoder := json.NewEncoder(cmd.OutOrStdout())
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		if printed := encoder.Encode(both); printed != nil {
			return printed
		}
	}
	return err // which may be the exit code alone
}

// rawWriter keeps what a half prints.
type rawWriter json.RawMessage

func (w *rawWriter) Write(data []byte) (int, error) {
	*w = append(*w, data...)
	return len(data), nil
}
