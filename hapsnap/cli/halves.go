package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	compiler "github.com/hapsnap/hapsnap/compiler/cli"
	"github.com/hapsnap/hapsnap/internal/process"
	pusher "github.com/hapsnap/hapsnap/pusher/cli"
	"github.com/hapsnap/hapsnap/pusher/ui"
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
// has too, and with arguments, which are flags where they look like it. What it prints goes to out.
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
	flags := slices.IndexFunc(args, func(arg string) bool { return !strings.HasPrefix(arg, "--") })
	if flags < 0 {
		flags = len(args)
	}
	half.SetArgs(slices.Concat(line, args[:flags], []string{"--"}, args[flags:]))
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
		RunE: func(cmd *cobra.Command, args []string) error {
			// The pusher compares two snapshots of the store, and the compiler everything else.
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
		},
	}
	stored := verbOf(pusher.NewCommand(), "diff")
	addFlagsOf(cmd, verbOf(compiler.NewCommand(), "diff"), stored)
	cmd.ValidArgsFunction = stored.ValidArgsFunction
	return cmd
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
	cmd := &cobra.Command{
		Use:   "status [-w]",
		Short: "Show what should run, what runs, what was left out, and what is wrong",
		Long: `Show what the fleet should run, how far a rollout is, what each instance runs, and what is
wrong. Then show the newest snapshot, what it holds, and which objects the compiler left out,
and why.

The part about the fleet comes from the status that the pusher writes into a ConfigMap, for
which no Secret is read, or from the state of the pusher (--state). The part about what was
compiled comes from the newest snapshot of the store (--store). With --address the command asks
running programs, at the addresses of their --metrics-address: a pusher, a compiler, or both.

A status that is old is shown as old. With -w the command follows the fleet until you stop it.
-o json prints an object with the fields fleet and compiled, as pusher status and compiler
status print them. With --exit-code the command exits with 4 if the newest snapshot failed and
was undone, with 3 if objects were left out or have errors, or a loss waits for approval, and
with 1 if the fleet or the compiler is not Ready otherwise.`,
		Args: process.Args(cobra.NoArgs),
	}
	cmd.Flags().StringSlice("address", nil, "addresses of a running pusher and a running compiler, such as localhost:8081")
	addFlagsOf(cmd, verbOf(compiler.NewCommand(), "status"), verbOf(pusher.NewCommand(), "status"))
	cmd.Flags().Lookup("store").Usage = "store with the snapshots; if it is configmap:NAMESPACE/NAME, the status of the fleet is beside them"
	cmd.Flags().Lookup("exit-code").Usage = "exit with 4, 3 or 1 if something is wrong"
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return status(cmd) }
	return cmd
}

// part is the status of one half, and where it is asked for.
type part struct {
	half  *cobra.Command
	flags []string // instead of those that are excepted
	field *json.RawMessage
}

// parts says which halves a status asks, the fleet's first.
func (w *whole) parts(cmd *cobra.Command) ([]part, error) {
	value := func(name string) string { return cmd.Flags().Lookup(name).Value.String() }
	store, state := value("store"), value("state")
	addresses, err := cmd.Flags().GetStringSlice("address")
	if err != nil {
		return nil, err
	}
	fleet, compiled := part{pusher.NewCommand(), nil, &w.Fleet}, part{compiler.NewCommand(), nil, &w.Compiled}
	if len(addresses) == 0 {
		var out []part
		if state != "" {
			fleet.flags = []string{"--state=" + state}
			out = append(out, fleet)
		} else if stores.InCluster(store) {
			fleet.flags = []string{"--store=" + store}
			out = append(out, fleet)
		}
		if store != "" {
			compiled.flags = []string{"--store=" + store}
			out = append(out, compiled)
		}
		return out, nil
	}
	var out []part
	for _, address := range addresses {
		if err := pusher.CheckAddress("address", address); err != nil {
			return nil, err
		}
		var said map[string]json.RawMessage
		if _, err := process.AskStatus(cmd.Context(), address, discoverTimeout, &said); err != nil {
			return nil, fmt.Errorf("ask for the status: %w", err)
		}
		switch to := []string{"--address=" + address}; {
		case said["compiler"] != nil:
			compiled.flags = to
			out = append(out, compiled)
		case said["channel"] != nil:
			fleet.flags = to
			out = append([]part{fleet}, out...)
		default:
			return nil, fmt.Errorf("ask for the status: what answers at %s is neither a pusher nor a compiler", address)
		}
	}
	return out, nil
}

func status(cmd *cobra.Command) error {
	var both whole
	parts, err := both.parts(cmd)
	if err != nil {
		return err
	}
	if len(parts) == 0 {
		return process.WithHint(process.Usage("neither a state, a store nor a program is named"), "use --state, --store or --address, or add a context: hapsnap context add NAME --store STORE")
	}
	output, ok := cmd.Flags().Lookup("output").Value.(*process.OutputFlag)
	if !ok {
		return errors.New("-o is another flag here")
	}
	except := []string{"store", "state", "address"}
	if watch, _ := cmd.Flags().GetBool("watch"); watch { // the flag is there
		if parts[0].field != &both.Fleet {
			return process.WithHint(process.Usage("there is no fleet to follow"), "use --state, or the --address of a pusher")
		}
		return run(cmd, parts[0].half, cmd.OutOrStdout(), "status", except, parts[0].flags...)
	}
	var code error // the exit code alone
	for i, p := range parts {
		out := cmd.OutOrStdout()
		if output.Structured() {
			out = (*rawWriter)(p.field)
			p.flags = append(p.flags, "--output=json")
		} else if i > 0 {
			fmt.Fprintln(out)
		}
		err := run(cmd, p.half, out, "status", append(except, "output"), p.flags...)
		if e, ok := errors.AsType[*process.ExitError](err); ok && e.Err == nil {
			if before, ok := errors.AsType[*process.ExitError](code); !ok || e.Code > before.Code {
				code = err
			}
			continue
		}
		if err != nil {
			return err
		}
	}
	if output.Structured() {
		if err := output.Write(cmd.OutOrStdout(), both, nil); err != nil {
			return err
		}
	}
	return code
}

// rawWriter keeps what a half prints.
type rawWriter json.RawMessage

func (w *rawWriter) Write(data []byte) (int, error) {
	*w = append(*w, data...)
	return len(data), nil
}

// speech has texts of the halves name this program.
type speech struct {
	name string // of this program, as people type it
	own  *regexp.Regexp
}

func newSpeech(root *cobra.Command, name string) speech {
	var verbs []string
	for _, verb := range root.Commands() {
		verbs = append(verbs, regexp.QuoteMeta(verb.Name()))
	}
	return speech{name, regexp.MustCompile(`\b(?:pusher|compiler) (` + strings.Join(verbs, "|") + `)\b`)}
}

// text returns a text in which verbs are those of this program.
func (s speech) text(text string) string { return s.own.ReplaceAllString(text, s.name+" $1") }

// found are the flags that this program finds by itself, alone or in a choice that it need not make.
var found = regexp.MustCompile(` \{[^}]*--(store|state) [^}]*\}| \[?--(store|state) [A-Z]+\]?`)

// rename has a verb, and its errors, speak of this program.
func (s speech) rename(verb *cobra.Command) {
	verb.Use = found.ReplaceAllString(verb.Use, "")
	verb.Short, verb.Long = s.text(verb.Short), s.text(verb.Long)
	verb.Flags().VisitAll(func(f *pflag.Flag) {
		f.Usage = s.text(f.Usage)
		if f.Name == "store" || f.Name == "state" {
			f.Usage = strings.TrimSuffix(f.Usage, " (required)")
		}
	})
	run := verb.RunE
	verb.RunE = func(cmd *cobra.Command, args []string) error { return s.error(run(cmd, args)) }
}

// said is an error in other words.
type said struct {
	error
	text string
}

func (e said) Error() string { return e.text }
func (e said) Unwrap() error { return e.error }

// error returns an error that speaks of this program, and leaves those alone of which
// everything was said.
func (s speech) error(err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*process.ExitError](err); ok && e.Err == nil {
		return err
	}
	hint := process.Hint(err)
	if text := err.Error(); text != s.text(text) {
		err = said{err, s.text(text)}
	}
	if hint == "" {
		return err
	}
	return process.WithHint(err, s.text(hint))
}

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
