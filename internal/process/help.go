package process

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// closest returns those of the names that a typed word may stand for, as cobra finds verbs.
func closest(typed string, names []string) []string {
	of := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, name := range names {
		of.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
	}
	found := of.SuggestionsFor(typed)
	slices.Sort(found)
	return found
}

// DidYouMean returns "did you mean a or b?" for a word that is none of the names, or "".
func DidYouMean(typed string, names []string) string {
	found := closest(typed, names)
	if len(found) == 0 {
		return ""
	}
	return "did you mean " + strings.Join(found, " or ") + "?"
}

// flagError is the usage error for flags that cannot be parsed, with the flag that may be
// meant.
func flagError(cmd *cobra.Command, err error) error {
	if len(os.Args) > 1 && cmd == cmd.Root() && !strings.HasPrefix(os.Args[1], "-") { // with a verb, that is asked
		return WithHint(Usage("unknown command %q for %q", os.Args[1], cmd.CommandPath()), verbHint(cmd, os.Args[1]))
	}
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok || unknown.GetSpecifiedShortnames() != "" {
		return WithHint(Usage("%w", err), seeHelp(cmd))
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, "--"+f.Name)
		}
	})
	return WithHint(Usage("%w", err), cmp.Or(DidYouMean("--"+unknown.GetSpecifiedName(), names), seeHelp(cmd)))
}

func seeHelp(cmd *cobra.Command) string { return "see " + cmd.CommandPath() + " --help" }

// verbHint is for a verb that there is not.
func verbHint(cmd *cobra.Command, typed string) string {
	var names []string
	for _, verb := range cmd.Commands() {
		if verb.IsAvailableCommand() {
			names = append(names, verb.Name())
		}
	}
	return cmp.Or(DidYouMean(typed, names), seeHelp(cmd))
}

// flagGroup is flags that a help text lists under a title of their own.
type flagGroup struct {
	title string
	has   func(name string) bool
}

// flagGroups follow the flags of the verb itself.
var flagGroups = []flagGroup{
	{"Flags of the store", named("store", "state", "cache-dir", "signing-key", "signing-passphrase-file", "allowed-signers", "keyring")},
	{"Flags of a store in git", func(name string) bool { return strings.HasPrefix(name, "git-") }},
	{"Flags of the cluster", named("kubeconfig", "context", "namespace", "installation", "config-map")},
	{"Flags of the log", func(name string) bool { return strings.HasPrefix(name, "log-") }},
}

func named(names ...string) func(string) bool {
	return func(name string) bool { return slices.Contains(names, name) }
}

// AddExamples gives the verbs of a program what they are used for, as a help text has it: command lines by verb,
// without the name of the program.
func AddExamples(root *cobra.Command, examples map[string][]string) {
	for _, verb := range root.Commands() {
		for _, cmd := range append([]*cobra.Command{verb}, verb.Commands()...) {
			var lines []string
			for _, line := range examples[strings.TrimPrefix(cmd.CommandPath(), root.Name()+" ")] {
				lines = append(lines, "  "+root.Name()+" "+line)
			}
			cmd.Example = strings.Join(lines, "\n")
		}
	}
}

// GroupHelp has a program list its verbs by group, and the flags of each verb under a title
// for each kind.
func GroupHelp(root *cobra.Command) {
	root.SetUsageFunc(func(cmd *cobra.Command) error {
		_, err := io.WriteString(cmd.OutOrStderr(), usage(cmd))
		return err
	})
}

func usage(cmd *cobra.Command) string {
	var b strings.Builder
	b.WriteString("Usage:\n")
	if cmd.Runnable() && (cmd.HasParent() || !cmd.HasAvailableSubCommands()) {
		fmt.Fprintf(&b, "  %s\n", cmd.UseLine())
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "  %s VERB\n", cmd.CommandPath())
	}
	if cmd.HasExample() {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", cmd.Example)
	}
	for _, g := range append(slices.Clone(cmd.Groups()), &cobra.Group{Title: "Verbs:"}) {
		writeVerbs(&b, cmd, g)
	}
	writeFlags(&b, cmd)
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\n%s VERB --help says more about a verb.\n", cmd.CommandPath())
	}
	return b.String()
}

func writeVerbs(b *strings.Builder, cmd *cobra.Command, g *cobra.Group) {
	title := "\n" + g.Title + "\n"
	for _, verb := range cmd.Commands() {
		if verb.GroupID == g.ID && (verb.IsAvailableCommand() || verb.Name() == "help") {
			fmt.Fprintf(b, "%s  %-*s %s\n", title, verb.NamePadding(), verb.Name(), verb.Short)
			title = ""
		}
	}
}

func writeFlags(b *strings.Builder, cmd *cobra.Command) {
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	sets := make([]*pflag.FlagSet, len(flagGroups))
	for i := range sets {
		sets[i] = pflag.NewFlagSet("", pflag.ContinueOnError)
	}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if n := slices.IndexFunc(flagGroups, func(g flagGroup) bool { return g.has(f.Name) }); n >= 0 {
			sets[n].AddFlag(f)
			return
		}
		own.AddFlag(f)
	})
	write := func(title string, flags *pflag.FlagSet) {
		if flags.HasAvailableFlags() {
			fmt.Fprintf(b, "\n%s:\n%s", title, flags.FlagUsagesWrapped(helpWidth))
		}
	}
	write("Flags", own)
	for i, g := range flagGroups {
		write(g.title, sets[i])
	}
}

// helpWidth is how wide the help texts of flags are, in columns.
const helpWidth = 80
