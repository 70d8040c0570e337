package docs_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	compiler "github.com/hapsnap/hapsnap/compiler/cli"
	front "github.com/hapsnap/hapsnap/hapsnap/cli"
	pusher "github.com/hapsnap/hapsnap/pusher/cli"
	waf "github.com/hapsnap/hapsnap/waf/cli"
)

var update = flag.Bool("update", false, "rewrite the pages of commands and flags")

// TestReferenceIsFresh keeps the pages of commands and flags equal to the programs.
func TestReferenceIsFresh(t *testing.T) {
	t.Parallel()
	for _, program := range []*cobra.Command{compiler.NewCommand(), pusher.NewCommand(), front.NewCommand(front.Name), waf.NewCommand()} {
		file := filepath.Join("reference", "commands-"+program.Name()+".md")
		got := reference(program)
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		page, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(page), got); diff != "" {
			t.Errorf("docs/%s is stale: run make generate (-is +should be)\n%s", file, diff)
		}
	}
}

// Every verb of every program has an example.
func TestEveryVerbHasAnExample(t *testing.T) {
	t.Parallel()
	for _, program := range []*cobra.Command{compiler.NewCommand(), pusher.NewCommand(), front.NewCommand(front.Name), waf.NewCommand()} {
		for _, verb := range verbsOf(program) {
			if verb.Name() != "version" && verb.Name() != "man" && !strings.Contains(verb.Example, verb.CommandPath()) {
				t.Errorf("%s has no example", verb.CommandPath())
			}
		}
	}
}

// shared is the number of verbs from which on a flag is described once for all of them.
const shared = 4

// reference renders the page of one program.
func reference(program *cobra.Command) string {
	var b strings.Builder
	verbs := verbsOf(program)
	common := commonFlags(verbs)
	fmt.Fprintf(&b, "# Commands of %s\n\n<!-- Generated from the commands: run make generate -->\n\n%s.\n\n", program.Name(), program.Short)
	b.WriteString("| verb | what it does |\n|---|---|\n")
	for _, verb := range verbs {
		name := strings.TrimPrefix(verb.CommandPath(), program.Name()+" ")
		fmt.Fprintf(&b, "| [`%s`](#%s-%s) | %s |\n", name, program.Name(), strings.ReplaceAll(name, " ", "-"), verb.Short)
	}
	b.WriteString("\n[Output and exit codes](output.md) says what the verbs have in common")
	if slices.ContainsFunc(verbs, func(verb *cobra.Command) bool { return verb.Flag("store") != nil }) {
		b.WriteString(", and [stores](stores.md) what `--store` takes")
	}
	b.WriteString(".\n")
	for _, verb := range verbs {
		writeVerb(&b, verb, common)
	}
	var all []*pflag.Flag
	for _, verb := range verbs {
		for _, f := range flagsOf(verb) {
			same := func(other *pflag.Flag) bool { return describe(other) == describe(f) }
			if common[describe(f)] && !slices.ContainsFunc(all, same) {
				all = append(all, f)
			}
		}
	}
	if len(all) == 0 {
		return b.String()
	}
	slices.SortStableFunc(all, func(a, b *pflag.Flag) int { return strings.Compare(a.Name, b.Name) })
	b.WriteString("\n## Common flags\n\nSeveral verbs take these flags.\n\n")
	writeFlags(&b, all)
	return b.String()
}

func verbsOf(program *cobra.Command) (verbs []*cobra.Command) {
	for _, verb := range program.Commands() {
		if !verb.Hidden && verb.Name() != "help" && verb.Name() != "completion" {
			verbs = append(verbs, verb)
			if verb.Args != nil && verb.ValidateArgs([]string{"FILE:1"}) == nil { // without a verb it has a function too
				verbs = append(verbs, verbsOf(verb)...)
			}
		}
	}
	return verbs
}

// flagsOf returns the flags of a verb by name.
func flagsOf(verb *cobra.Command) (flags []*pflag.Flag) {
	verb.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && f.Name != "help" {
			flags = append(flags, f)
		}
	})
	return flags
}

// commonFlags returns the descriptions of the flags that several verbs share.
func commonFlags(verbs []*cobra.Command) map[string]bool {
	count, common := map[string]int{}, map[string]bool{}
	for _, verb := range verbs {
		for _, f := range flagsOf(verb) {
			count[describe(f)]++
			common[describe(f)] = count[describe(f)] >= shared
		}
	}
	return common
}

func writeVerb(b *strings.Builder, verb *cobra.Command, common map[string]bool) {
	fmt.Fprintf(b, "\n## %s\n\n%s.\n\n```text\n%s\n```\n", verb.CommandPath(), verb.Short, verb.UseLine())
	if verb.Long != "" {
		fmt.Fprintf(b, "\n```text\n%s\n```\n", strings.TrimSpace(verb.Long))
	}
	if verb.HasExample() {
		fmt.Fprintf(b, "\nFor example:\n\n```sh cluster\n%s\n```\n", strings.ReplaceAll(strings.TrimSpace(verb.Example), "\n  ", "\n"))
	}
	var own []*pflag.Flag
	var others []string
	for _, f := range flagsOf(verb) {
		if common[describe(f)] {
			others = append(others, "`--"+f.Name+"`")
		} else {
			own = append(own, f)
		}
	}
	if len(own) > 0 {
		b.WriteString("\n")
		writeFlags(b, own)
	}
	if len(others) > 0 {
		fmt.Fprintf(b, "\n[Common flags](#common-flags): %s.\n", strings.Join(others, ", "))
	}
}

func writeFlags(b *strings.Builder, flags []*pflag.Flag) {
	b.WriteString("| flag | default | what it says |\n|---|---|---|\n")
	for _, f := range flags {
		kind, usage := pflag.UnquoteUsage(f)
		name := "`--" + f.Name
		if f.Shorthand != "" {
			name = "`-" + f.Shorthand + "`, " + name
		}
		fmt.Fprintf(b, "| %s` | %s | %s |\n", strings.TrimRight(name+" "+kind, " "), defaultOf(f), escape(usage))
	}
}

// defaultOf returns the default of a flag, if it is worth showing.
func defaultOf(f *pflag.Flag) string {
	switch {
	case f.Name == "by":
		return "your user name"
	case f.DefValue == "" || f.DefValue == "[]" || f.Value.Type() == "bool" && f.DefValue == "false":
		return ""
	}
	return "`" + escape(f.DefValue) + "`"
}

func escape(s string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "<", `\<`).Replace(s)
}

// describe identifies a flag by its description.
func describe(f *pflag.Flag) string { return f.Name + " " + f.Usage + " " + f.DefValue }
