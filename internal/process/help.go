package process

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// DidYouMean returns "did you mean a or b?" for a word that is none of the names, or "".
func DidYouMean(typed string, names []string) string {
	// A typed word is compared with names as cobra compares it with verbs.
	of := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, name := range names {
		of.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
	}
	found := of.SuggestionsFor(typed)
	slices.Sort(found)
	if len(found) == 0 {
		return ""
	}
	return "did you mean " + strings.Join(found, " or ") + "?"
}

// flagError returns the usage error for flags that cannot be parsed. It names the flag that may be meant.
func flagError(cmd *cobra.Command, err error) error {
	if len(os.Args) > 1 && cmd == cmd.Root() && !strings.HasPrefix(os.Args[1], "-") { // with a verb, its flags are compared
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

// verbHint returns a hint for an unknown verb.
func verbHint(cmd *cobra.Command, typed string) string {
	var names []string
	for _, verb := range cmd.Commands() {
		if verb.IsAvailableCommand() {
			names = append(names, verb.Name())
		}
	}
	return cmp.Or(DidYouMean(typed, names), seeHelp(cmd))
}

// flagGroup is a group of flags that help texts list under a title of their own.
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

// AddExamples adds to the verbs of a program the examples of their help texts: command lines by verb, without
// the name of the program.
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

// GroupHelp makes a program list its verbs by group, and the flags of each verb under a title for each kind.
func GroupHelp(root *cobra.Command) {
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		text := ""
		if about := strings.TrimSpace(cmp.Or(cmd.Long, cmd.Short)); about != "" {
			text = Reflow(about, helpWidth) + "\n\n"
		}
		if cmd.Runnable() || cmd.HasSubCommands() {
			text += cmd.UsageString()
		}
		_, _ = io.WriteString(cmd.OutOrStdout(), text) // there is nobody to tell
	})
	root.SetUsageFunc(func(cmd *cobra.Command) error {
		_, err := io.WriteString(cmd.OutOrStderr(), usage(cmd))
		return err
	})
}

func usage(cmd *cobra.Command) string {
	var b strings.Builder
	b.WriteString("Usage:\n")
	if cmd.Runnable() && (cmd.HasParent() || !cmd.HasAvailableSubCommands()) {
		b.WriteString(useLine(cmd.UseLine(), helpWidth))
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "  %s VERB\n", cmd.CommandPath())
	}
	if cmd.HasExample() {
		b.WriteString("\nExamples:\n")
		for line := range strings.Lines(cmd.Example) {
			b.WriteString(commandLine(strings.TrimRight(line, "\n"), helpWidth))
		}
	}
	for _, g := range append(slices.Clone(cmd.Groups()), &cobra.Group{Title: "Verbs:"}) {
		title := "\n" + g.Title + "\n"
		for _, verb := range cmd.Commands() {
			if verb.GroupID == g.ID && (verb.IsAvailableCommand() || verb.Name() == "help") {
				name := fmt.Sprintf("  %-*s ", verb.NamePadding(), verb.Name())
				b.WriteString(title + hanging(name, strings.Repeat(" ", len(name)), verb.Short, helpWidth))
				title = ""
			}
		}
	}
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
			fmt.Fprintf(&b, "\n%s:\n%s", title, flags.FlagUsagesWrapped(helpWidth))
		}
	}
	write("Flags", own)
	for i, g := range flagGroups {
		write(g.title, sets[i])
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\n%s VERB --help says more about a verb.\n", cmd.CommandPath())
	}
	return b.String()
}

// helpWidth is how wide the help texts of flags are, in columns.
const helpWidth = 80

// hanging returns a text in lines of at most the given number of columns. One beginning is for the first line,
// and another one for the others.
func hanging(first, others, text string, most int) string {
	var out strings.Builder
	line, begun := first, false
	for word := range strings.SplitSeq(text, " ") {
		if begun && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > most {
			out.WriteString(strings.TrimRight(line, " ") + "\n")
			line, begun = others, false
		}
		if begun {
			line += " "
		}
		line, begun = line+word, true
	}
	return out.String() + line + "\n"
}

// useLine returns the usage line of a verb, and keeps what is in brackets together.
func useLine(usage string, most int) string {
	depth := 0
	together := strings.Map(func(c rune) rune {
		switch c {
		case '[', '{':
			depth++
		case ']', '}':
			depth--
		case ' ':
			if depth > 0 {
				return '\u00a0'
			}
		}
		return c
	}, usage)
	return strings.ReplaceAll(hanging("  ", "      ", together, most), "\u00a0", " ")
}

// itemMark matches the beginning of items of a list.
var itemMark = regexp.MustCompile(`^(- |[0-9]+\. )`)

// Reflow returns a text in lines of at most the given number of columns. A paragraph is wrapped as a whole.
// Lines that are indented, or begin with "- " or a number, are items. Lines with a deeper indent continue an
// item.
func Reflow(text string, most int) string {
	var out strings.Builder
	var item struct {
		text            string
		indent, hanging int
	}
	flush := func() {
		if item.text != "" {
			out.WriteString(hanging(strings.Repeat(" ", item.indent), strings.Repeat(" ", item.hanging), item.text, most))
		}
		item.text = ""
	}
	for line := range strings.SplitSeq(text, "\n") {
		words := strings.TrimLeft(line, " ")
		indent, list := len(line)-len(words), 0
		if marker := itemMark.FindString(words); marker != "" {
			list = len(marker)
		}
		switch {
		case words == "":
			flush()
			out.WriteString("\n")
		case item.text != "" && list == 0 && (indent > item.indent || indent == 0 && item.indent == 0):
			item.text += " " + words
			item.hanging = max(item.hanging, indent)
		default:
			flush()
			item.text, item.indent, item.hanging = words, indent, indent+list
			if indent > 0 && list == 0 {
				item.hanging = indent + 2
			}
		}
	}
	flush()
	return strings.TrimRight(out.String(), "\n")
}

// commandLine splits a command into lines of at most the given number of columns that a shell reads as one
// command.
func commandLine(command string, most int) string {
	indent := command[:len(command)-len(strings.TrimLeft(command, " "))]
	var lines []string
	line := indent
	for i, word := range shellWords(command[len(indent):]) {
		if i > 0 && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word)+len(` \`) > most {
			lines = append(lines, line+` \`)
			line = indent + "    " + word
			continue
		}
		if i > 0 {
			line += " "
		}
		line += word
	}
	return strings.Join(append(lines, line), "\n") + "\n"
}

// shellWords splits a command at the spaces that are not quoted.
func shellWords(command string) []string {
	var out []string
	quote, start := rune(0), 0
	for i, c := range command {
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case c == ' ':
			out = append(out, command[start:i])
			start = i + 1
		}
	}
	return append(out, command[start:])
}

// plainWord matches a word that bash, zsh and fish take as it is.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+:,./-][A-Za-z0-9_@%+:,./=-]*$`)

// ShellCommand returns a command line that people can copy into a shell: it quotes words that a shell would
// change.
func ShellCommand(words ...string) string {
	quoted := make([]string, 0, len(words))
	for _, word := range words {
		if !plainWord.MatchString(word) {
			word = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
		quoted = append(quoted, word)
	}
	return strings.Join(quoted, " ")
}
