package cli

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/controller"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/migrate"
	"github.com/hapsnap/hapsnap/compiler/migrate/gatewayapi"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/internal/objectname"
	"github.com/hapsnap/hapsnap/internal/process"
)

// migrateFlags are the flags of the verb migrate.
type migrateFlags struct {
	migrate.Options
	manifests, output string
	to                string
	gateway           gatewayFlags
}

func migrateCommand() *cobra.Command {
	var f migrateFlags
	cmd := &cobra.Command{
		Use:   "migrate -f DIR [-o DIR]",
		Short: "Rewrite the annotations of other ingress controllers",
		Long: `Rewrite the annotations of ingress-nginx, haproxy.org and haproxy-ingress.github.io on
Ingresses and Services to those of hapsnap, where there is an equivalent. The command lists
the other annotations by object, with what to do about them, and then exits with 3.
docs/reference/migration.md has the equivalents.

The old annotations stay beside the new ones until --class moves the Ingress, or --remove
deletes them.

Without -o the command writes nothing. With -o it writes the changed files below that
directory, which may be the one that it reads.

With --to gateway the command turns Ingresses into a Gateway with HTTPRoutes, and with TLSRoutes
and ReferenceGrants where they are needed. It prints these manifests, or writes them to
gateway.yaml below the directory of -o, and lists what differs and what cannot be moved; with
the latter it exits with 3. A route whose protection cannot be moved is closed: it answers 500.`,
		Args: process.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	addInput(cmd, &f.manifests, "directory of manifests, or one file (required)")
	flags.StringVarP(&f.output, "output", "o", "", "directory for the files that change")
	flags.StringVar(&f.Class, "class", "", "ingressClassName for Ingresses that could be translated completely; their old annotations are deleted")
	flags.BoolVar(&f.Remove, "remove", false, "delete translated annotations even if the class stays")
	flags.StringVar(&f.to, "to", "", "gateway: turn Ingresses into a Gateway with routes")
	flags.StringVar(&f.gateway.name, "gateway", "default/web", "with --to gateway: NAMESPACE/NAME of the Gateway")
	flags.StringVar(&f.gateway.class, "gateway-class", "hapsnap", "with --to gateway: name of its GatewayClass")
	flags.StringVar(&f.gateway.ingressClass, "ingress-class", "", "with --to gateway: class of the Ingresses to turn into routes, if the manifests have several")
	flags.IntVar(&f.gateway.http, "http-port", 80, "with --to gateway: port for HTTP; 0 for none")
	flags.IntVar(&f.gateway.https, "https-port", 443, "with --to gateway: port for HTTPS; 0 for none")
	flags.StringSliceVar(&f.gateway.without, "without", nil, "with --to gateway: annotations of ours that routes can do without, such as max-body-size")
	addConfig(flags, &f.gateway.config, "with --to gateway: file with the CompilerConfig under which the Ingresses are served")
	return cmd
}

func (f *migrateFlags) run(cmd *cobra.Command) error {
	switch {
	case f.manifests == "":
		return process.WithHint(process.Usage("no manifests are named"), "use -f DIR")
	case f.to != "" && f.to != "gateway":
		return process.WithHint(process.Usage("--to %s is not known", f.to), "use --to gateway")
	case f.to == "gateway" && (f.Class != "" || f.Remove):
		return process.WithHint(process.Usage("--class and --remove are about Ingresses that stay"), "leave them out with --to gateway")
	case f.to == "gateway":
		return f.toGateway(cmd)
	}
	if given := f.gateway.given(cmd.Flags()); given != "" {
		return process.WithHint(process.Usage("--%s is for --to gateway", given), "use --to gateway")
	}
	if err := checkName("class", f.Class); err != nil {
		return err
	}
	result, err := process.Interruptible(cmd.Context(), func() (migrate.Result, error) {
		return migrate.Directory(f.manifests, f.Options)
	})
	if err != nil {
		return err
	}
	printDiagnostics(cmd.ErrOrStderr(), result.Findings)
	verb := " would be rewritten in "
	if f.output != "" {
		if err := result.Write(cmd.Context(), f.output); err != nil {
			return err
		}
		verb = " rewritten in "
	}
	for _, file := range result.Files {
		fmt.Fprintln(cmd.OutOrStdout(), file.Path)
	}
	fmt.Fprintln(cmd.ErrOrStderr(), plural(result.Objects, "object")+verb+plural(len(result.Files), "file"))
	if result.Objects == 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: nothing to rewrite: no Ingress in %s has an annotation of the controllers that migrate knows\n\thint: name the directory with the manifests of the Ingresses; those that have none need no more than ingressClassName\n", f.manifests)
	}
	if diag.HasErrors(result.Findings) {
		return process.Invalid(nil)
	}
	return nil
}

// gatewayFlags are the flags of the verb migrate that go with --to gateway.
type gatewayFlags struct {
	name, class, ingressClass, config string
	http, https                       int
	without                           []string
}

// gatewayFlagNames are the names of gatewayFlags.
var gatewayFlagNames = []string{"gateway", "gateway-class", "ingress-class", "http-port", "https-port", "without", "config"}

// given returns the first of these flags that was given, or "".
func (f *gatewayFlags) given(flags *pflag.FlagSet) string {
	for _, name := range gatewayFlagNames {
		if flags.Changed(name) {
			return name
		}
	}
	return ""
}

// options returns what the flags say.
func (f *gatewayFlags) options(cmd *cobra.Command) (gatewayapi.Options, error) {
	name, err := objectname.Parse(f.name)
	if err != nil {
		return gatewayapi.Options{}, process.WithHint(process.Usage("--gateway %s: %w", f.name, err), "use --gateway NAMESPACE/NAME")
	}
	if err := cmp.Or(checkName("gateway", name.Namespace), checkName("gateway", name.Name)); err != nil {
		return gatewayapi.Options{}, err
	}
	if err := cmp.Or(checkName("gateway-class", f.class), checkName("ingress-class", f.ingressClass), checkPorts(f.http, f.https)); err != nil {
		return gatewayapi.Options{}, err
	}
	known := map[string]bool{}
	for _, o := range options.All() {
		known[o.Name] = true
	}
	for _, n := range f.without {
		if !known[strings.TrimPrefix(n, options.Prefix)] {
			return gatewayapi.Options{}, process.WithHint(process.Usage("--without %s: there is no such annotation", n), "see docs/reference/annotations.md")
		}
	}
	c := config.Default()
	if f.config != "" {
		file, data, err := controller.ConfigFile(f.config).Read(cmd.Context())
		if err != nil {
			return gatewayapi.Options{}, err
		}
		read, found := config.Parse(file, data)
		if len(found) > 0 {
			printDiagnostics(cmd.ErrOrStderr(), found)
			return gatewayapi.Options{}, process.Invalid(nil)
		}
		c = read
	}
	return gatewayapi.Options{
		Gateway: name, Class: f.class, HTTPPort: f.http, HTTPSPort: f.https, IngressClass: f.ingressClass, Without: f.without,
		Config: c, Ingresses: compiler.IngressConfig(c), Form: routing.FormOf(c.Paths),
	}, nil
}

// toGateway prints the Gateways and routes that Ingresses become.
func (f *migrateFlags) toGateway(cmd *cobra.Command) error {
	o, err := f.gateway.options(cmd)
	if err != nil {
		return err
	}
	result, err := process.Interruptible(cmd.Context(), func() (gatewayapi.Result, error) {
		return gatewayapi.Directory(f.manifests, o)
	})
	if several, is := errors.AsType[*gatewayapi.ClassesError](err); is {
		return process.WithHint(process.Usage("%w", several), "name one with --ingress-class; each gets a Gateway of its own")
	}
	if exists, is := errors.AsType[*gatewayapi.ExistsError](err); is {
		return process.WithHint(process.Usage("%w", exists), "name another one with --gateway, or take these out of the manifests")
	}
	if err != nil {
		return err
	}
	printDiagnostics(cmd.ErrOrStderr(), result.Findings)
	if result.Ingresses == 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: nothing to move: %s has no Ingress%s\n\thint: name the directory with the manifests of the Ingresses\n", f.manifests, ofClass(o.IngressClass))
	} else if err := f.writeGateway(cmd, o, result); err != nil {
		return err
	}
	if diag.HasErrors(result.Findings) {
		return process.Invalid(nil)
	}
	return nil
}

// writeGateway writes what the Ingresses became, and says how many objects there are.
func (f *migrateFlags) writeGateway(cmd *cobra.Command, o gatewayapi.Options, result gatewayapi.Result) error {
	if f.output == "" {
		_, _ = cmd.OutOrStdout().Write(result.Manifests) // the reader may be gone
	} else {
		const name = "gateway.yaml"
		if err := (migrate.Result{Files: []migrate.File{{Path: name, Content: result.Manifests}}}).Write(cmd.Context(), f.output); err != nil {
			return err
		}
		fmt.Fprintln(cmd.OutOrStdout(), name)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s moved to Gateway %s, in %s\n", ingresses(result.Ingresses), o.Gateway, plural(result.Routes, "HTTPRoute"))
	return nil
}

func ingresses(n int) string {
	if n == 1 {
		return "1 Ingress"
	}
	return fmt.Sprintf("%d Ingresses", n)
}

func ofClass(name string) string {
	if name == "" {
		return ""
	}
	return " of the class " + name
}
