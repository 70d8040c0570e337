// Package cli holds the commands of hapsnap, the program that people type: the verbs of the
// compiler and of the pusher, and what joins them. It is the only program that knows both
// halves. It runs in no pod, but for one verb: the provisioner, which makes fleets for Gateways and needs neither.
//
// A verb that one half has is that half's command, moved. Where both halves have a verb,
// the one here does what a person means by it: status shows the fleet and what was compiled,
// and diff takes snapshots, manifests and clusters alike. Both run the halves' own commands
// with the flags that they were given.
//
// Texts of the halves name their own program. Here they name this one.
package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	compiler "github.com/hapsnap/hapsnap/compiler/cli"
	"github.com/hapsnap/hapsnap/internal/process"
	pusher "github.com/hapsnap/hapsnap/pusher/cli"
	"github.com/hapsnap/hapsnap/schemas"
)

// Name is the program's, and Plugin what people type where it is a plugin of kubectl.
const (
	Name   = "hapsnap"
	Plugin = "kubectl hapsnap"
)

// FromArgs returns the command for the name that the program was started with, and its
// arguments. kubectl starts kubectl-hapsnap for its verb hapsnap, and
// kubectl_complete-hapsnap to complete what follows.
func FromArgs(args []string) (*cobra.Command, []string) {
	switch strings.TrimSuffix(filepath.Base(args[0]), ".exe") {
	case "kubectl-hapsnap":
		return NewCommand(Plugin), args[1:]
	case "kubectl_complete-hapsnap":
		return NewCommand(Plugin), append([]string{cobra.ShellCompRequestCmd}, args[1:]...)
	}
	return NewCommand(Name), args[1:]
}

const long = `hapsnap shows what a fleet of HAProxy instances runs, says what it should run, and compiles
ingress manifests into snapshots of configurations.

The programs compiler and pusher run in pods and do the work. This one has the verbs of both
that people type, and the provisioner, which runs in a pod and makes fleets for Gateways.

` + findsHelp

// groups are the verbs by what people do with them.
var groups = []struct {
	cobra.Group
	verbs string
}{
	{cobra.Group{ID: "look", Title: "Look:"}, "ui status wait history audit show diff explain verify check"},
	{cobra.Group{ID: "decide", Title: "Say what should run:"}, "pin unpin override rollback approve reject retry pause resume"},
	{cobra.Group{ID: "rollout", Title: "Steer a rollout:"}, "promote abort"},
	{cobra.Group{ID: "compile", Title: "Compile:"}, "render test migrate"},
	{cobra.Group{ID: "store", Title: "Keep the store:"}, "gc sign recover accept-rewind confirm-endpoints"},
}

// NewCommand returns the command with all of its verbs. Help texts call it by the name that
// people type.
func NewCommand(name string) *cobra.Command {
	root := &cobra.Command{
		Use:         Name,
		Short:       "Look at a fleet of HAProxy instances, say what it should run, and compile for it",
		Long:        long,
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: name},
		Args:        known,
		RunE:        func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	process.WithVersion(root)
	halves := halfVerbs()
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.ID, Title: g.Title})
		for _, verb := range strings.Fields(g.verbs) {
			cmd := halves[verb]
			cmd.GroupID = g.ID
			root.AddCommand(cmd)
		}
	}
	says := newSpeech(root, name)
	finds := newFinder()
	for _, verb := range root.Commands() {
		for _, cmd := range append([]*cobra.Command{verb}, verb.Commands()...) {
			says.rename(cmd)
			finds.attach(cmd)
			cmd.Example = examplesOf(strings.TrimPrefix(cmd.CommandPath(), name+" "), name)
		}
	}
	root.AddCommand(provisionerCommand(name), contextCommand(finds.contexts, name), schemaCommand(name), manCommand(name), process.VersionCommand())
	process.GroupHelp(root)
	return root
}

// ofPods are the verbs that only the programs in pods and pipelines have, with these programs.
var ofPods = map[string]string{"run": "compiler run or pusher run", "rbac": "compiler rbac or pusher rbac", "fn": "compiler fn"}

// known returns an error for a verb that there is not. The hint for those of other programs names the programs.
func known(cmd *cobra.Command, args []string) error {
	err := process.Args(cobra.NoArgs)(cmd, args)
	if err != nil && ofPods[args[0]] != "" {
		return process.WithHint(err, "use "+ofPods[args[0]]+": hapsnap has the verbs that people type, and these two programs do the work")
	}
	return err
}

// halfVerbs returns the verbs of both halves by name, free to be put below another command.
func halfVerbs() map[string]*cobra.Command {
	out := map[string]*cobra.Command{}
	for _, half := range []*cobra.Command{compiler.NewCommand(), pusher.NewCommand()} {
		for _, verb := range half.Commands() {
			half.RemoveCommand(verb)
			out[verb.Name()] = verb
		}
	}
	out["status"], out["diff"], out["ui"] = statusCommand(), diffCommand(), withOrigins(out["ui"])
	return out
}

// addFlagsOf adds flags of commands to a flag set, those of the first where several have one.
func addFlagsOf(cmd *cobra.Command, halves ...*cobra.Command) {
	for _, half := range halves {
		half.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if cmd.Flags().Lookup(f.Name) == nil && f.Name != "help" {
				cmd.Flags().AddFlag(f)
				if complete, ok := half.GetFlagCompletionFunc(f.Name); ok {
					_ = cmd.RegisterFlagCompletionFunc(f.Name, complete) // it is registered for this flag already
				}
			}
		})
	}
}

// examples are what each verb is used for, with what comes of it; the program has no name
// yet. The verbs say which store they mean by flags, here as by themselves.
var examples = map[string][]string{
	"ui":                {"ui", "ui --store dir:snapshots --state state.json --address localhost:8080"},
	"status":            {"status", "status -w", "status --store 'git+file:///srv/edge.git?branch=edge' --state state.json -o json"},
	"wait":              {"wait --for rollout", "wait --for snapshot=r12 --timeout 15m", "wait --for condition=Ready"},
	"history":           {"history", "history --acts --since 2h", "history --limit 5 -o json"},
	"audit":             {"audit --since 30d", "audit --since 2026-01-01 -o csv"},
	"show":              {"show head", "show r12 --file haproxy.cfg"},
	"diff":              {"diff r11 r12", "diff r12 manifests", "diff cluster:staging cluster:production --exit-code"},
	"explain":           {"explain haproxy.cfg:120 -f manifests", "explain maps/host.map:3"},
	"explain request":   {"explain request https://shop.example.com/cart", "explain request POST http://shop.example.com/ --header X-Canary=always --at 'yesterday 14:03'", "explain request https://shop.example.com/ -f manifests"},
	"verify":            {"verify", "verify --allowed-signers signers"},
	"check":             {"check --instances fleet.yaml"},
	"pin":               {"pin r12 --reason 'incident 4711'", "pin head"},
	"unpin":             {"unpin --reason 'mended in r15'"},
	"override":          {"override r12 --for 2h --reason 'maintenance window'", "override --end"},
	"rollback":          {"rollback --reason 'checkout answers 502' --wait", "rollback --to r12"},
	"approve":           {"approve r12"},
	"reject":            {"reject r12 --reason 'drops the header X-Request-Id'", "reject r12 --fleet edge-eu"},
	"retry":             {"retry", "retry r12"},
	"pause":             {"pause --reason 'peak hours'"},
	"resume":            {"resume"},
	"promote":           {"promote", "promote r12 --full"},
	"abort":             {"abort --reason 'error rate of edge-1'"},
	"confirm-endpoints": {"confirm-endpoints", "confirm-endpoints 3f9a2c"},
	"render":            {"render -f manifests -o out", "render -f manifests --config config.yaml -o 'git+file:///srv/edge.git?branch=edge'"},
	"test":              {"test", "test tests/checkout.yaml --run headers"},
	"migrate":           {"migrate -f manifests", "migrate -f manifests -o manifests --class hapsnap", "migrate -f manifests --to gateway --gateway infra/web -o gateway"},
	"gc":                {"gc --dry-run", "gc --keep 50 --min-age 3d"},
	"sign":              {"sign --signing-key ~/.ssh/id_ed25519"},
	"recover":           {"recover --from-instance edge-1 --instances fleet.yaml"},
	"accept-rewind":     {"accept-rewind --reason 'the repository was restored from Monday'"},
}

// examplesOf returns the examples of a verb as a help text has them.
func examplesOf(verb, name string) string {
	var lines []string
	for _, line := range examples[verb] {
		lines = append(lines, "  "+name+" "+line)
	}
	return strings.Join(lines, "\n")
}

func manCommand(name string) *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write a man page for each verb",
		Long: `Write man pages of section 1 into a directory, which the command makes if it is missing.
The pages of the same version are always the same bytes.`,
		Example: "  " + name + " man ~/.local/share/man/man1",
		Args:    process.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil { //nolint:gosec // everybody reads man pages
				return fmt.Errorf("make the directory of the man pages: %w", err)
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true
			date := time.Unix(0, 0).UTC()
			header := &doc.GenManHeader{Section: "1", Source: Name + " " + process.Version(), Manual: "hapsnap", Date: &date}
			if err := doc.GenManTree(root, header, args[0]); err != nil {
				return fmt.Errorf("write man pages: %w", err)
			}
			return nil
		},
	}
}

func schemaCommand(name string) *cobra.Command {
	names := schemas.Names()
	cmd := &cobra.Command{
		Use:   "schema " + strings.Join(names, "|"),
		Short: "Print the JSON Schema of a kind of file",
		Long: `Print the JSON Schema of a kind of file, for an editor or a pipeline. Editors that use the YAML
language server take the schema that the first line of a file names:

  # yaml-language-server: $schema=fleet.schema.json`,
		Example: "  " + name + " schema fleet",
		Args:    process.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			data, ok := schemas.Of(args[0])
			if !ok {
				hint := process.DidYouMean(args[0], names)
				if hint == "" {
					hint = "there are " + strings.Join(names, ", ")
				}
				return process.WithHint(process.Usage("there is no schema of %q", args[0]), hint)
			}
			_, err := cmd.OutOrStdout().Write(data)
			return err
		},
		ValidArgsFunction: cobra.FixedCompletions(completions(names), cobra.ShellCompDirectiveNoFileComp),
	}
	return cmd
}

// meaning says what the schemas are of.
var meaning = map[string]string{
	"channel":        "what people say should run",
	"compilerconfig": "the configuration of the compiler",
	"compilertest":   "tests of configurations and templates",
	"fleet":          "the fleet of a pusher",
	"snapshot":       "the manifest of a snapshot",
}

func completions(names []string) []cobra.Completion {
	var out []cobra.Completion
	for _, name := range names {
		out = append(out, cobra.CompletionWithDesc(name, meaning[name]))
	}
	return out
}
