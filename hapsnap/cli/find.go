package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/hapsnap/hapsnap/internal/kubeconfig"
	"github.com/hapsnap/hapsnap/internal/objectname"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/pusher/statestore"
	"github.com/hapsnap/hapsnap/snapshots/configmapstore"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

const findsHelp = `What a verb needs and no flag says comes from, in this order:

  1. the environment: HAPSNAP_STORE for --store, HAPSNAP_GIT_TOKEN_FILE for
     --git-token-file, and so on for every long flag;
  2. the context of --context, or else the one in use: see hapsnap context --help;
  3. the cluster: a ConfigMap with the label ` + clientLabel + `, which the
     chart makes, names the store and the state. The cluster is that of
     --kubeconfig, $KUBECONFIG, ~/.kube/config or the pod.

A store and a state always come from the same place, unless a flag or the
environment names them. A state that was found and cannot be read is left out
where the verb has an answer without it.`

// settings are flags by name, with their values.
type settings map[string]string

// identity are the flags that say which fleet is meant. Places that name others are not mixed.
var identity = []string{"store", "state"}

// finder fills the flags of verbs from what people have set up.
type finder struct {
	environment func(name string) (string, bool)
	contexts    *contextFile
	discover    func(ctx context.Context, at cluster) (settings, error)
	readable    func(ctx context.Context, at kubeconfig.Options, state string) error
}

func newFinder() *finder {
	return &finder{environment: os.LookupEnv, contexts: userContexts(), discover: discover, readable: readableState}
}

// attach has a verb, and the completion of its arguments and flags, find what is not given.
func (f *finder) attach(verb *cobra.Command) {
	flags := verb.Flags()
	if flags.Lookup("kubeconfig") != nil {
		freeShorthand(verb, "n")
		flags = verb.Flags()
		flags.StringP("namespace", "n", "", "namespace in which to look for the installation that is meant")
		flags.String("installation", "", "installation that is meant, as namespace/name of its ConfigMap with the label "+clientLabel)
		flags.Lookup("kubeconfig").Usage = "file that says how to reach the cluster (default: $KUBECONFIG, ~/.kube/config, or in a pod its own cluster)"
		flags.Lookup("context").Usage = "context of hapsnap, or else of the kubeconfig (default: the ones in use)"
	}
	run := verb.RunE
	verb.RunE = func(cmd *cobra.Command, args []string) error {
		if err := f.fill(cmd, args); err != nil {
			return err
		}
		return run(cmd, args)
	}
	if verb.ValidArgsFunction != nil {
		verb.ValidArgsFunction = f.filled(verb.ValidArgsFunction)
	}
	// Flags of the verb are completed with what the finder finds. A completion is that of one flag value for ever,
	// so the flags are copied.
	var all []*pflag.Flag
	completions := map[string]cobra.CompletionFunc{}
	verb.Flags().VisitAll(func(flag *pflag.Flag) {
		if complete, ok := verb.GetFlagCompletionFunc(flag.Name); ok {
			completions[flag.Name] = f.filled(complete)
		}
		same := *flag
		all = append(all, &same)
	})
	verb.ResetFlags()
	for _, flag := range all {
		verb.Flags().AddFlag(flag)
	}
	if verb.Flags().Lookup("context") != nil {
		completions["context"] = func(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return f.contexts.complete(cmd, nil, typed)
		}
	}
	for name, complete := range completions {
		_ = verb.RegisterFlagCompletionFunc(name, complete) // fails for unknown flags only
	}
}

// filled is a completion of what the finder finds.
func (f *finder) filled(complete cobra.CompletionFunc) cobra.CompletionFunc {
	return process.Bounded(func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		// Who explains a request may name no snapshot yet, and complete one of a store that the cluster names.
		explains := cmd.Name() == "request"
		_ = f.fillIf(cmd, func() bool { return lacks(cmd, args) || explains && !cmd.Flags().Changed("store") }) // who completes is told nothing
		return complete(cmd, args, typed)
	})
}

// freeShorthand takes a shorthand from the flag of a verb that has it.
func freeShorthand(verb *cobra.Command, letter string) {
	taken := verb.Flags().ShorthandLookup(letter)
	if taken == nil {
		return
	}
	var all []*pflag.Flag
	verb.Flags().VisitAll(func(f *pflag.Flag) { all = append(all, f) })
	taken.Shorthand = ""
	verb.ResetFlags()
	for _, f := range all {
		verb.Flags().AddFlag(f)
	}
}

// variable is the environment variable of a flag.
func variable(flag string) string {
	return "HAPSNAP_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// fill sets the flags that were not given.
func (f *finder) fill(cmd *cobra.Command, args []string) error {
	return f.fillIf(cmd, func() bool { return lacks(cmd, args) })
}

// fillIf is fill where the verb needs a store or a state if lacking says so.
func (f *finder) fillIf(cmd *cobra.Command, lacking func() bool) error {
	flags := cmd.Flags()
	named := choosesInstallation(flags)
	if err := f.fromEnvironment(flags, named); err != nil {
		return err
	}
	if flags.Lookup("kubeconfig") == nil {
		return nil
	}
	state := flags.Lookup("state")
	given := state == nil || state.Changed
	if err := f.fromContext(flags); err != nil {
		return err
	}
	if err := findKubeconfig(flags); err != nil {
		return err
	}
	if err := f.fromCluster(cmd, lacking); err != nil {
		if typed := flags.Lookup("namespace").Value.String(); flags.Lookup("limit") != nil && strings.Trim(typed, "0123456789") == "" && typed != "" {
			return process.WithHint(err, "-n is the namespace, as with kubectl; --limit "+typed+" says how many to list")
		}
		return err
	}
	if !given && state.Changed && !needsState(cmd) {
		// A state that nobody named and that cannot be read is taken back: it may be in a Secret that is not for
		// everybody, and the verb has an answer without it.
		err := f.readable(cmd.Context(), access(cmd.Flags()), state.Value.String())
		if err != nil {
			if wait := cmd.Flags().Lookup("wait"); wait == nil || wait.Value.String() == "true" || slices.Contains([]string{"rollback", "promote", "abort"}, cmd.Name()) {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s: going on without the state of the pusher: %v\n", Name, err)
			} // other verbs need it for --wait alone
			_ = state.Value.Set("") // a text can be anything
			state.Changed = false
		}
	}
	return nil
}

// needsWholeState reports whether the status does not do in the place of the state.
func needsWholeState(cmd *cobra.Command) bool {
	return slices.Contains([]string{"gc", "recover", "accept-rewind"}, cmd.Name())
}

// needsState reports whether a verb is nothing without a state, or the status.
func needsState(cmd *cobra.Command) bool {
	if cmd.Name() != "status" {
		return needsWholeState(cmd)
	}
	value := func(name string) string { return cmd.Flags().Lookup(name).Value.String() }
	return strings.HasPrefix(value("state"), configmapstore.Scheme) || !stores.InCluster(value("store"))
}

// readableState returns why a state cannot be read.
func readableState(ctx context.Context, at kubeconfig.Options, state string) error {
	place, isPlace := strings.CutPrefix(state, configmapstore.Scheme)
	if !isPlace && !strings.HasPrefix(state, statestore.Prefix) {
		_, err := os.Stat(state)
		return err
	}
	name, err := objectname.Parse(strings.TrimPrefix(place, statestore.Prefix))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, discoverTimeout)
	defer cancel()
	client, err := clientOf(at)
	if err != nil {
		return err
	}
	if !isPlace {
		_, err = client.CoreV1().Secrets(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
		return err
	}
	found, err := client.CoreV1().ConfigMaps(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if err == nil && found.BinaryData[configmapstore.StatusKey] == nil {
		err = fmt.Errorf("ConfigMap %s holds no status yet", name)
	}
	return err
}

// access is how the cluster of a verb is reached.
func access(flags *pflag.FlagSet) kubeconfig.Options {
	return kubeconfig.Options{File: flags.Lookup("kubeconfig").Value.String(), Context: flags.Lookup("context").Value.String(), UserAgent: "hapsnap/" + process.Version()}
}

// saysWhich are the flags that say which installation is meant. Each of them says it alone.
var saysWhich = append([]string{"installation", "namespace"}, identity...)

// choosesInstallation reports whether the user chose an installation in a cluster. Its store is meant then, and not the
// one of a place that is asked later, such as the context in use.
func choosesInstallation(flags *pflag.FlagSet) bool {
	return flags.Changed("installation") || flags.Changed("namespace")
}

// fromEnvironment sets the flags that were not given. If a flag chose an installation, no variable names another one.
func (f *finder) fromEnvironment(flags *pflag.FlagSet, chosen bool) (err error) {
	flags.VisitAll(func(flag *pflag.Flag) {
		if chosen && slices.Contains(saysWhich, flag.Name) {
			return
		}
		value, ok := f.environment(variable(flag.Name))
		if !ok || value == "" || flag.Changed || flag.Hidden || flag.Name == "help" || err != nil || flag.Name == "kubeconfig" && readsFiles(flags) {
			return
		}
		if failed := flags.Set(flag.Name, value); failed != nil {
			err = process.Usage("%s: %w", variable(flag.Name), failed)
		}
	})
	return err
}

// apply sets the flags that were not given, if what was given may come together with them.
func apply(flags *pflag.FlagSet, s settings, from string) error {
	for _, name := range identity {
		if flag := flags.Lookup(name); flag != nil && flag.Changed && s[name] != "" && !has(flag, s[name]) {
			return nil
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s)) {
		flag := flags.Lookup(name)
		if flag == nil || flag.Changed || s[name] == "" || name == "kubeconfig" && readsFiles(flags) {
			continue
		}
		if err := flags.Set(name, s[name]); err != nil {
			return process.Usage("%s: %s: %w", from, name, err)
		}
	}
	return nil
}

// has reports whether a flag has a value, or among others.
func has(flag *pflag.Flag, value string) bool {
	if list, ok := flag.Value.(pflag.SliceValue); ok {
		return slices.Contains(list.GetSlice(), value)
	}
	return flag.Value.String() == value
}

// fromContext takes what the context says. A name that is none of ours is one of the
// kubeconfig.
func (f *finder) fromContext(flags *pflag.FlagSet) error {
	file, err := f.contexts.read()
	if err != nil {
		return err
	}
	at := flags.Lookup("context")
	name := file.Current
	if at.Changed {
		name = at.Value.String()
	}
	set, ok := file.Contexts[name]
	switch {
	case name == "" || !ok && at.Changed:
		return nil
	case !ok:
		return process.WithHint(process.Usage("%s says to use the context %s, which is not there", f.contexts.path, name), "hapsnap context use NAME, or hapsnap context use --none")
	}
	if at.Changed { // the name was ours, and means nothing to the kubeconfig
		if err := at.Value.Set(set["context"]); err != nil {
			return err
		}
	}
	if choosesInstallation(flags) {
		set = maps.Clone(set)
		for _, name := range saysWhich {
			delete(set, name)
		}
	}
	return apply(flags, set, "context "+name)
}

// readsFiles reports whether a verb reads manifests from files and needs no cluster. It
// takes both for a mistake.
func readsFiles(flags *pflag.FlagSet) bool {
	files, output := flags.Lookup("filename"), flags.Lookup("output")
	return files != nil && files.Changed && (output == nil || !stores.InCluster(output.Value.String()))
}

// findKubeconfig names the kubeconfig that kubectl would take.
func findKubeconfig(flags *pflag.FlagSet) error {
	flag := flags.Lookup("kubeconfig")
	if readsFiles(flags) || flag.Changed || flag.Value.String() != "" {
		return nil
	}
	if file := kubeconfig.Usual(); file != "" {
		return flags.Set("kubeconfig", file)
	}
	return nil
}

// cluster says where to look for an installation.
type cluster struct {
	access                  kubeconfig.Options
	namespace, installation string
}

// fromCluster asks the cluster for the store, or for the state, if the verb needs one and
// nobody named it.
func (f *finder) fromCluster(cmd *cobra.Command, lacking func() bool) error {
	flags := cmd.Flags()
	value := func(name string) string {
		if flag := flags.Lookup(name); flag != nil {
			return flag.Value.String()
		}
		return ""
	}
	at := cluster{
		access: access(flags), namespace: value("namespace"), installation: value("installation"),
	}
	if !lacking() {
		return nil
	}
	named := at.namespace != "" || at.installation != ""
	if at.access.File == "" && !kubeconfig.Inside() {
		switch {
		case at.access.Context != "":
			return process.WithHint(process.Usage("there is no context %s, and no kubeconfig that could have it", at.access.Context), "hapsnap context list shows those of hapsnap; --kubeconfig names the file with others")
		case named:
			return process.WithHint(process.Usage("no cluster is named in which to look for the installation"), "use --kubeconfig")
		case cmd.Name() == "status" || cmd.Name() == "diff" || flags.Lookup("store").Changed:
			return nil // they say what else would do
		}
		return process.WithHint(process.Usage("no store is named, and there is no cluster to find it in"), hintNamed)
	}
	found, err := f.discover(cmd.Context(), at)
	if err != nil {
		return fmt.Errorf("no store is named, and none was found: %w", err)
	}
	if err := mayHaveToken(flags, at, found); err != nil {
		return err
	}
	needsState := needsWholeState(cmd)
	out := maps.Clone(found)
	delete(out, statusSetting)
	delete(out, foundIn)
	state := flags.Lookup("state")
	if place := found[statusSetting]; place != "" && !needsState && state != nil && !state.Changed {
		out["state"] = place
	}
	return apply(flags, out, "the cluster")
}

// mayHaveToken returns why a token must not be sent to the store that was found. Whoever may create ConfigMaps in
// some namespace can make the only one with the label, and name a server of their own as the store. So a token only goes to a
// store that the user chose, or that is named in a namespace that the user chose.
func mayHaveToken(flags *pflag.FlagSet, at cluster, found settings) error {
	token := flags.Lookup("git-token-file")
	if token == nil || token.Value.String() == "" || at.namespace != "" || at.installation != "" || !strings.HasPrefix(found["store"], "git+http") {
		return nil
	}
	if flag := flags.Lookup("store"); flag != nil && flag.Changed {
		return nil
	}
	return process.WithHint(process.Usage("ConfigMap %s names the store %s, and nobody chose it: the token of %s is not sent there", found[foundIn], process.Shorten(found["store"], mostOfStore), token.Value),
		"if it is the right one: --installation "+found[foundIn]+"; for good, hapsnap context add edge --installation "+found[foundIn])
}

// lacks reports whether a verb needs a store or a state that is not named.
func lacks(cmd *cobra.Command, args []string) bool {
	lacking := func(name string) bool { flag := cmd.Flags().Lookup(name); return flag != nil && !flag.Changed }
	switch cmd.Name() {
	case "status":
		return lacking("store") && lacking("state") && lacking("address")
	case "diff":
		return lacking("store") && slices.ContainsFunc(args, isSnapshot)
	case "request":
		return lacking("store") && (!lacking("snapshot") || !lacking("at"))
	case "gc", "recover", "accept-rewind":
		return lacking("store") || lacking("state")
	}
	return lacking("store")
}

// absolute returns a setting that means the same in another folder.
func absolute(name, value string) (string, error) {
	prefix, path := "", value
	switch {
	case value == "" || name == "context" || name == "namespace" || name == "installation":
		return value, nil
	case name == "store" || name == "state":
		if rest, ok := strings.CutPrefix(value, "dir:"); ok {
			prefix, path = "dir:", rest
		} else if stores.HasScheme(value) || strings.HasPrefix(value, "secret:") {
			return value, nil
		}
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("find %s: %w", value, err)
	}
	return prefix + path, nil
}

// clientLabel is on the ConfigMap that says where an installation has its store and its
// state. The chart makes one.
const clientLabel = "hapsnap.dev/client"

// discoverTimeout is how long the cluster may take to say what is installed.
const discoverTimeout = 30 * time.Second

const (
	hintNamed = "name the store with --store or HAPSNAP_STORE, or add a context: hapsnap context add NAME --store STORE"
	hintRole  = "ask for a role that lists ConfigMaps in the namespace of the installation, such as the chart's viewer, and name it with -n; or name the store with --store"
)

// discover asks the cluster which installation there is. More than one is no answer: an
// act would be about a fleet that nobody named.
func discover(ctx context.Context, at cluster) (settings, error) {
	ctx, cancel := context.WithTimeout(ctx, discoverTimeout)
	defer cancel()
	client, err := clientOf(at.access)
	if err != nil {
		return nil, process.WithHint(err, hintNamed)
	}
	all, err := installations(ctx, client, at)
	if err != nil {
		return nil, err
	}
	return chosen(all, at)
}

func clientOf(at kubeconfig.Options) (kubernetes.Interface, error) {
	config, err := at.Load()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of the cluster: %w", err)
	}
	return client, nil
}

// Anybody who may create ConfigMaps in some namespace can make some that look like installations, as many and as large
// as they like. So many are read and shown, and so many characters of their stores.
const (
	mostShown   = 20
	mostOfStore = 100
)

// chosen returns what the only one of the installations says.
func chosen(all []corev1.ConfigMap, at cluster) (settings, error) {
	switch len(all) {
	case 0:
		return nil, process.WithHint(fmt.Errorf("no ConfigMap of %s has the label %s", where(at), clientLabel), hintNamed)
	case 1:
		// What a ConfigMap may say is where things are, and no credentials, which are the user's own.
		m := all[0]
		s := settings{"store": m.Data["store"], "state": m.Data["state"], foundIn: m.Namespace + "/" + m.Name}
		if place := m.Data[statusSetting]; place != "" {
			s[statusSetting] = place
		}
		if s["store"] == "" {
			return nil, process.WithHint(fmt.Errorf("ConfigMap %s/%s names no store", m.Namespace, m.Name), hintNamed)
		}
		return s, nil
	}
	var names []string
	for _, m := range all {
		names = append(names, fmt.Sprintf("%s/%s (%s)", m.Namespace, m.Name, process.Shorten(m.Data["store"], mostOfStore)))
	}
	slices.Sort(names)
	count := fmt.Sprint(len(all))
	if len(names) > mostShown {
		count, names = fmt.Sprintf("more than %d", mostShown), append(names[:mostShown], "…")
	}
	return nil, process.WithHint(process.Usage("there are %s installations:\n\t%s", count, strings.Join(names, "\n\t")),
		"choose one with --installation NAMESPACE/NAME, or with -n if it is alone in its namespace; for good, with hapsnap context add edge --installation NAMESPACE/NAME")
}

func where(at cluster) string {
	if at.namespace != "" {
		return "namespace " + at.namespace
	}
	return "the cluster"
}

// statusSetting names the ConfigMap with the status of the fleet. Verbs that only look take it in the
// place of the state, which is in a Secret.
const statusSetting = "status"

// foundIn names the ConfigMap that the other settings come from.
const foundIn = "installation"

// installations returns the ConfigMaps of the installations that may be meant.
func installations(ctx context.Context, client kubernetes.Interface, at cluster) ([]corev1.ConfigMap, error) {
	if at.installation != "" {
		name, err := objectname.Parse(at.installation)
		if err != nil {
			return nil, process.Usage("--installation: %w", err)
		}
		m, err := client.CoreV1().ConfigMaps(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
		if err != nil {
			return nil, refused(err, "read ConfigMap "+at.installation)
		}
		return []corev1.ConfigMap{*m}, nil
	}
	list := func(namespace string) ([]corev1.ConfigMap, error) {
		var all []corev1.ConfigMap
		for page := (metav1.ListOptions{LabelSelector: clientLabel, Limit: mostShown + 1}); ; {
			found, err := client.CoreV1().ConfigMaps(namespace).List(ctx, page)
			if err != nil {
				return nil, err
			}
			if all = append(all, found.Items...); len(all) > mostShown || found.Continue == "" {
				return all, nil
			}
			page.Continue = found.Continue
		}
	}
	if at.namespace != "" {
		all, err := list(at.namespace)
		return all, refused(err, "look for ConfigMaps in namespace "+at.namespace)
	}
	all, err := list(metav1.NamespaceAll)
	if err != nil && apierrors.IsForbidden(err) {
		own := cmp.Or(at.access.Namespace(), metav1.NamespaceDefault)
		all, err = list(own)
		err = refused(err, "look for ConfigMaps in all namespaces, or in namespace "+own)
	}
	return all, refused(err, "look for ConfigMaps in all namespaces")
}

// refused says what a user may do about an error of the API server.
func refused(err error, doing string) error {
	if err == nil || process.Hint(err) != "" {
		return err
	}
	hint := hintNamed
	if apierrors.IsForbidden(err) {
		hint = hintRole
	}
	return process.WithHint(fmt.Errorf("%s: %w", doing, err), hint)
}
