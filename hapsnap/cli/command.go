package cli

import (
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	compiler "github.com/hapsnap/hapsnap/compiler/cli"
	"github.com/hapsnap/hapsnap/internal/process"
	pusher "github.com/hapsnap/hapsnap/pusher/cli"
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
that people type.

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
		Args:        process.Args(cobra.NoArgs),
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
	root.AddCommand(contextCommand(finds.contexts, name), schemaCommand(name), manCommand(name), process.VersionCommand())
	process.GroupHelp(root)
	return root
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

// flagsOf adds flags of commands to a flag set, those of the first where several have one.
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
