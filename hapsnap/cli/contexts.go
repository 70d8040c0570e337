package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/hapsnap/hapsnap/internal/filelock"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

// contextFile is where a user's contexts are.
type contextFile struct {
	path string
	err  error // why there is no path
}

// userContexts returns the file of the user: hapsnap/config.yaml in the folder that the
// system has for it, such as ~/.config.
func userContexts() *contextFile {
	dir, err := os.UserConfigDir()
	return &contextFile{filepath.Join(dir, Name, "config.yaml"), err}
}

// userConfig is what the file holds.
type userConfig struct {
	// Current is the context in use, "" for none.
	Current string `json:"current,omitempty"`
	// Contexts are flags by the name of the context.
	Contexts map[string]settings `json:"contexts,omitempty"`
}

// read returns what the file holds; one that is not there holds nothing.
func (f *contextFile) read() (userConfig, error) {
	var c userConfig
	if f.err != nil {
		return c, nil //nolint:nilerr // who has no home has no contexts
	}
	data, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return c, fmt.Errorf("read the contexts: %w", err)
	}
	if err := yaml.UnmarshalStrict(data, &c); err != nil {
		return c, process.WithHint(process.Invalid(fmt.Errorf("%s: %w", f.path, err)), "mend the file, or delete it and use hapsnap context add")
	}
	return c, nil
}

// change changes what the file holds. One process does so at a time, and readers see all
// of a change or nothing.
func (f *contextFile) change(ctx context.Context, edit func(*userConfig) error) error {
	if f.err != nil {
		return process.WithHint(fmt.Errorf("find the folder of the contexts: %w", f.err), "set HOME, or XDG_CONFIG_HOME")
	}
	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return fmt.Errorf("make the folder of the contexts: %w", err)
	}
	lock, err := filelock.Wait(ctx, f.path+".lock", 0o600)
	if err != nil {
		return fmt.Errorf("change the contexts: %w", err)
	}
	defer lock.Release()
	c, err := f.read()
	if err != nil {
		return err
	}
	if c.Contexts == nil {
		c.Contexts = map[string]settings{}
	}
	if err := edit(&c); err != nil {
		return err
	}
	data, err := yaml.Marshal(c)
	if err != nil {
		return fmt.Errorf("write the contexts: %w", err)
	}
	next := f.path + ".new"
	if err := errors.Join(os.WriteFile(next, data, 0o600), os.Rename(next, f.path)); err != nil {
		return fmt.Errorf("write the contexts: %w", err)
	}
	return nil
}

func contextCommand(f *contextFile, name string) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "context",
		Short:   "Name stores, and choose the one that verbs are about",
		Long:    "Name stores with what it takes to reach them, and choose the one that verbs are about. The\nnames are kept in " + displayed(f.path) + ".\n\n" + findsHelp,
		Example: "  " + name + " context add edge --store 'git+ssh://git@git.example/edge.git?branch=edge'\n  " + name + " context use edge",
		Args:    process.Args(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(addContext(f, name), useContext(f, name), listContexts(f), removeContext(f))
	return cmd
}

// displayed is a path as help texts, which are the same on every machine, name it.
func displayed(path string) string {
	return filepath.Join("~", ".config", filepath.Base(filepath.Dir(path)), filepath.Base(path)) + ", or where the system has such files"
}

func addContext(f *contextFile, name string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "add NAME",
		Short: "Add a context, or replace the one of that name, and use it if it is the first",
		Example: "  " + name + " context add edge --store 'git+ssh://git@git.example/edge.git?branch=edge' --git-ssh-key ~/.ssh/id_ed25519\n" +
			"  " + name + " context add staging --kubeconfig ~/.kube/staging --installation edge/hapsnap-client",
		Args: process.Args(cobra.ExactArgs(1)),
	}
	flags := cmd.Flags()
	flags.String("store", "", "store with the snapshots")
	flags.String("state", "", "state of the pusher: a file, or secret:NAMESPACE/NAME")
	flags.String("kubeconfig", "", "file that says how to reach the cluster")
	flags.String("context", "", "context of the kubeconfig")
	flags.StringP("namespace", "n", "", "namespace in which to look for the installation that is meant")
	flags.String("installation", "", "installation that is meant, as namespace/name of its ConfigMap")
	new(stores.Options).AddFlags(flags)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if strings.TrimSpace(args[0]) != args[0] || args[0] == "" {
			return process.Usage("%q is no name for a context", args[0])
		}
		set := settings{}
		var err error
		flags.Visit(func(flag *pflag.Flag) {
			value, failed := absolute(flag.Name, flag.Value.String())
			set[flag.Name], err = value, errors.Join(err, failed)
		})
		if err != nil {
			return err
		}
		if len(set) == 0 {
			return process.WithHint(process.Usage("the context %s would say nothing", args[0]), "use --store, or --kubeconfig and --context for an installation in a cluster")
		}
		if u, err := url.Parse(set["store"]); err == nil && u.User != nil {
			if _, ok := u.User.Password(); ok {
				return process.WithHint(process.Usage("the URL of the store holds a password"), "put it into a file, and name that with --git-token-file")
			}
		}
		said := "added"
		err = f.change(cmd.Context(), func(c *userConfig) error {
			if _, ok := c.Contexts[args[0]]; ok {
				said = "replaced"
			}
			if c.Contexts[args[0]] = set; c.Current == "" && len(c.Contexts) == 1 {
				c.Current = args[0]
			}
			if c.Current == args[0] {
				said += " and in use"
			}
			return nil
		})
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "context %s is %s\n", args[0], said)
		return err
	}
	return cmd
}

// complete completes names of contexts.
func (f *contextFile) complete(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	c, err := f.read()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []cobra.Completion
	for _, name := range slices.Sorted(maps.Keys(c.Contexts)) {
		out = append(out, cobra.CompletionWithDesc(name, summary(c.Contexts[name])))
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// summary says where a context leads.
func summary(s settings) string {
	for _, name := range []string{"store", "installation", "context", "kubeconfig", "state"} {
		if s[name] != "" {
			return s[name]
		}
	}
	return ""
}

func noContext(c userConfig, name string) error {
	names := slices.Sorted(maps.Keys(c.Contexts))
	hint := process.DidYouMean(name, names)
	if hint == "" {
		hint = "there are: " + strings.Join(names, ", ")
	}
	if len(names) == 0 {
		hint = "add one with hapsnap context add"
	}
	return process.WithHint(process.Usage("there is no context %s", name), hint)
}

func useContext(f *contextFile, name string) *cobra.Command {
	var none bool
	cmd := &cobra.Command{
		Use:               "use NAME | --none",
		Short:             "Have verbs use a context from now on",
		Example:           "  " + name + " context use edge\n  " + name + " context use --none",
		ValidArgsFunction: f.complete,
		Args:              process.Args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if none != (len(args) == 0) {
				return process.Usage("name a context, or use --none")
			}
			used := ""
			if !none {
				used = args[0]
			}
			err := f.change(cmd.Context(), func(c *userConfig) error {
				if _, ok := c.Contexts[used]; !ok && !none {
					return noContext(*c, used)
				}
				c.Current = used
				return nil
			})
			if err != nil {
				return err
			}
			if none {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), "no context is in use")
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "context %s is in use\n", used)
			return err
		},
	}
	cmd.Flags().BoolVar(&none, "none", false, "use no context")
	return cmd
}

// listed is a context as list prints it.
type listed struct {
	Name    string   `json:"name"`
	Current bool     `json:"current"`
	Flags   settings `json:"flags"`
}

func listContexts(f *contextFile) *cobra.Command {
	var output process.OutputFlag
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the contexts",
		Args:  process.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.read()
			if err != nil {
				return err
			}
			list := []listed{}
			for _, name := range slices.Sorted(maps.Keys(c.Contexts)) {
				list = append(list, listed{name, name == c.Current, c.Contexts[name]})
			}
			return output.Write(cmd.OutOrStdout(), contexts(list), func(w io.Writer) error { return printContexts(w, list) })
		},
	}
	output.AddListTo(cmd)
	return cmd
}

// contexts are a list of which there are names.
type contexts []listed

// Names returns the names of the contexts.
func (l contexts) Names() []string {
	var out []string
	for _, c := range l {
		out = append(out, c.Name)
	}
	return out
}

func printContexts(w io.Writer, list []listed) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, "there is no context")
		return err
	}
	table := process.Table{Columns: []process.Column{{Title: "CURRENT"}, {Title: "NAME"}, {Title: "LEADS TO", Cut: true}}}
	for _, c := range list {
		mark := ""
		if c.Current {
			mark = "*"
		}
		table.Add(mark, c.Name, summary(c.Flags))
	}
	return table.Write(w)
}

func removeContext(f *contextFile) *cobra.Command {
	return &cobra.Command{
		Use:               "remove NAME",
		Short:             "Remove a context; what it names stays",
		ValidArgsFunction: f.complete,
		Args:              process.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := f.change(cmd.Context(), func(c *userConfig) error {
				if _, ok := c.Contexts[args[0]]; !ok {
					return noContext(*c, args[0])
				}
				delete(c.Contexts, args[0])
				if c.Current == args[0] {
					c.Current = ""
				}
				return nil
			})
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "context %s is removed\n", args[0])
			return err
		},
	}
}
