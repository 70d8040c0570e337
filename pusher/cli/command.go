// Package cli holds the commands of the pusher: flags into options, options into a
// run, and its results printed.
//
// [NewCommand] returns a tree of cobra commands. It may be the root of a program or
// stand below another command, and any number of trees may exist in one process. What
// a command needs of its program comes through cobra: the streams, set with SetIn,
// SetOut and SetErr, and the context, given to ExecuteContext. Commands return their
// errors, with the exit code in a [process.ExitError]; they neither print errors nor
// end the process. process.Main does both.
//
// # Decisions
//
// recover takes the snapshot from the folder beside the pusher's state. The instance only says
// which one it is. The API rewrites the haproxy.cfg on an instance, and it has values of Secrets. A
// snapshot made of it would have other content, which reloads the fleet, and might hold secrets,
// which belong in no store.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"regexp"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/config"
	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/hapsnap/hapsnap/internal/kubeconfig"
	"github.com/hapsnap/hapsnap/internal/objectname"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/internal/rbac"
	"github.com/hapsnap/hapsnap/pusher"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/statestore"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/configmapstore"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

// NewCommand returns the command "pusher" with all of its verbs.
func NewCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "pusher",
		Short: "Roll snapshots of HAProxy configurations out to a fleet of instances",
		Args:  process.Args(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	process.WithVersion(root)
	root.AddCommand(
		runCommand(), checkCommand(), statusCommand(), waitCommand(), historyCommand(), auditCommand(), showCommand(), diffCommand(), verifyCommand(), uiCommand(),
		pinCommand(), unpinCommand(), overrideCommand(), rollbackCommand(), approveCommand(), rejectCommand(), retryCommand(),
		promoteCommand(), abortCommand(), confirmEndpointsCommand(), pauseCommand(), resumeCommand(), signCommand(), recoverCommand(), acceptRewindCommand(), gcCommand(),
		rbacCommand(), process.VersionCommand(),
	)
	process.Completion{Folders: []string{"live", "cache-dir"}, Words: map[string][]string{"scope": rbac.Scopes}}.AddTo(root)
	process.AddProgress(root, firstDone)
	process.AddExamples(root, examples)
	process.GroupHelp(root)
	return root
}

// firstDone says, for people who wait, what a verb does first that may take long.
var firstDone = map[string]string{
	"check": "asking the instances", "status": "reading the status", "wait": "reading the status", "recover": "asking the instance",
	"history": "reading the store", "audit": "reading the store", "show": "reading the store", "diff": "reading the store",
	"verify": "reading the store", "gc": "reading the store",
	"pause": "reading the store", "resume": "reading the store", "sign": "reading the store", "accept-rewind": "reading the store", "confirm-endpoints": "reading the store",
	"pin": "reading the store", "unpin": "reading the store", "override": "reading the store", "rollback": "reading the store",
	"approve": "reading the store", "reject": "reading the store", "retry": "reading the store", "promote": "reading the store", "abort": "reading the store",
}

// complete completes an argument that names a snapshot with the snapshots of the store, the newest
// first, if the store is named and can be read.
func (f *storeFlags) complete(which func(channel.View) []snapshots.ID) cobra.CompletionFunc {
	return f.completeUpTo(1, which)
}

// completeUpTo is complete for several arguments.
func (f *storeFlags) completeUpTo(n int, which func(channel.View) []snapshots.ID) cobra.CompletionFunc {
	return process.Bounded(func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		const directive = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
		if len(args) >= n || f.store == "" {
			return nil, directive
		}
		var out []cobra.Completion
		_ = f.with(cmd.Context(), func(store stores.Store) error { // there is nobody to tell
			view, err := store.View(cmd.Context())
			if err == nil {
				out = stores.Described(cmd.Context(), store, which(view))
			}
			return err
		})
		return out, directive
	})
}

func allIDs(view channel.View) []snapshots.ID { return view.IDs }

// storeFlags name a store.
type storeFlags struct {
	clusterFlags
	store   string
	opening stores.Options
}

func (f *storeFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.store, "store", "", "store with the snapshots, such as git+file:///PATH (required)")
	f.opening.AddFlags(cmd.Flags())
	f.clusterFlags.add(cmd)
}

func (f *storeFlags) open(ctx context.Context, log *slog.Logger) (stores.Store, error) {
	if f.store == "" {
		return nil, process.WithHint(process.Usage("no store is named"), "use --store with a URL such as dir:PATH or git+file:///PATH")
	}
	o := f.opening.WithLog(log)
	o.Cluster = f.access()
	return stores.Open(ctx, f.store, o)
}

// with opens the store for as long as it is used.
func (f *storeFlags) with(ctx context.Context, use func(stores.Store) error) error {
	store, err := f.open(ctx, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer store.Close()
	return use(store)
}

// find returns the snapshot that a person named: by its whole name, by its revision,
// such as r12, or as head, the newest.
func find(ids []snapshots.ID, name string) (snapshots.ID, error) {
	if id, ok := snapshots.FindID(ids, name); ok {
		return id, nil
	}
	return snapshots.ID{}, process.WithHint(process.Usage("the store holds no snapshot %s", name),
		"name one that pusher history lists, in full, as r12, or head")
}

// whoFlags say who does something, and why.
type whoFlags struct {
	by, reason, author string
}

// because returns the reason as the end of a commit's subject.
func (f *whoFlags) because() string { return channel.Said("", f.reason) }

func whoami() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return os.Getenv("USER")
}

// clusterFlags say how a cluster is reached.
type clusterFlags struct {
	kubeconfig, context string
}

func (f *clusterFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.kubeconfig, "kubeconfig", "", "file that says how to reach the cluster with the store or the state; the default in a pod is the pod's own cluster")
	cmd.Flags().StringVar(&f.context, "context", "", "context of the kubeconfig (default: the current one)")
}

// access returns how the cluster is reached.
func (f *clusterFlags) access() kubeconfig.Options {
	return kubeconfig.Options{File: f.kubeconfig, Context: f.context, UserAgent: "hapsnap-pusher/" + process.Version()}
}

// client makes a client of the cluster.
func (f *clusterFlags) client() (kubernetes.Interface, error) {
	config, err := f.access().Load()
	if err != nil {
		return nil, process.WithHint(err, "name a kubeconfig file with --kubeconfig")
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of the cluster: %w", err)
	}
	return client, nil
}

// hintState is the hint for a state that does not exist.
const hintState = "use the value of pusher run --state; pusher run makes the state when it starts"

// hintNotState is the hint for a state that is damaged, or of another version.
const hintNotState = "is it what pusher run has as --state? If so, restore what was there, or delete it: a pusher without a state asks the instances what they run, " +
	"and forgets failures that the channel does not show, and what was uploaded"

// readStatus returns the last status of a pusher: from its state, which is a file or a Secret, or from
// the ConfigMap to which it writes its status.
func (f *clusterFlags) readStatus(ctx context.Context, state string) (report.Status, error) {
	if isPlace(state) {
		s, err := f.readPublished(ctx, state)
		return s.AsOf(time.Now(), report.FreshPublished), err
	}
	var s report.Status
	var err error
	if inSecret(state) {
		var data []byte
		if data, err = f.readSecret(ctx, state); err == nil {
			s, err = pusher.ParseStatus(data, state)
		}
	} else {
		s, err = pusher.ReadStatus(state)
	}
	return s.AsOf(time.Now(), report.FreshState), hinted(err)
}

// isPlace reports whether a status is in a ConfigMap.
func isPlace(state string) bool { return strings.HasPrefix(state, configmapstore.Scheme) }

// parsePlace reads the name of a ConfigMap with a status.
func parsePlace(place string) (types.NamespacedName, error) {
	name, ok := strings.CutPrefix(place, configmapstore.Scheme)
	if !ok {
		return types.NamespacedName{}, fmt.Errorf("%q is not %sNAMESPACE/NAME", place, configmapstore.Scheme)
	}
	return objectname.Parse(name)
}

// readPublished returns what a pusher wrote into a ConfigMap.
func (f *clusterFlags) readPublished(ctx context.Context, place string) (report.Status, error) {
	name, err := parsePlace(place)
	if err != nil {
		return report.Status{}, process.Usage("--state: %w", err)
	}
	found, err := f.readPlace(ctx, name)
	if err != nil {
		return report.Status{}, err
	}
	packed := found.BinaryData[configmapstore.StatusKey]
	if packed == nil {
		return report.Status{}, process.WithHint(fmt.Errorf("ConfigMap %s holds no status: no pusher has written one yet, or one of an earlier version did", name), hintPlace)
	}
	s, err := report.Unpack(packed)
	if err != nil {
		return report.Status{}, fmt.Errorf("ConfigMap %s: %w", name, err)
	}
	return s, nil
}

// hintPlace is the hint for a ConfigMap without a status.
const hintPlace = "pusher run writes it: to the ConfigMap of --status, or beside a store in the cluster"

// readPlace returns the ConfigMap that a status is in.
func (f *clusterFlags) readPlace(ctx context.Context, name types.NamespacedName) (*corev1.ConfigMap, error) {
	client, err := f.client()
	if err != nil {
		return nil, err
	}
	found, err := client.CoreV1().ConfigMaps(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, process.WithHint(fmt.Errorf("ConfigMap %s with the status is not there", name), hintPlace)
	}
	if err != nil {
		return nil, fmt.Errorf("read the status in ConfigMap %s: %w", name, err)
	}
	return found, nil
}

// readInUse returns the snapshots that a pusher uses.
func (f *clusterFlags) readInUse(ctx context.Context, state string) (map[snapshots.ID]string, error) {
	if isPlace(state) {
		return nil, process.WithHint(process.Usage("%s is the status of a pusher, and this needs its state", state), "name it with --state, as for pusher run")
	}
	if !inSecret(state) {
		used, err := pusher.InUse(state)
		return used, hinted(err)
	}
	data, err := f.readSecret(ctx, state)
	if err != nil {
		return nil, hinted(err)
	}
	used, err := pusher.ParseInUse(data, state)
	return used, hinted(err)
}

// readSecret returns a state that is in a Secret.
func (f *clusterFlags) readSecret(ctx context.Context, state string) ([]byte, error) {
	name, err := statestore.Parse(state)
	if err != nil {
		return nil, process.Usage("--state: %w", err)
	}
	client, err := f.client()
	if err != nil {
		return nil, err
	}
	return statestore.Read(ctx, client.CoreV1().Secrets(name.Namespace), name.Namespace, name.Name)
}

func hinted(err error) error {
	if errors.Is(err, pusher.ErrNotState) {
		return process.WithHint(err, hintNotState)
	}
	if errors.Is(err, pusher.ErrNoState) || errors.Is(err, statestore.ErrNone) {
		return process.WithHint(err, hintState)
	}
	return err
}

// inSecret reports whether a state is in a Secret.
func inSecret(state string) bool { return strings.HasPrefix(state, statestore.Prefix) }

// authorForm is how git writes a person.
var authorForm = regexp.MustCompile(`^([^<>\n]*[^<>\s]) <([^<>\s]+)>$`)

// authentication is a client of an API server that can say who asks it.
type authentication func() (kubernetes.Interface, error)

// kubernetesTimeout is how long an API server may take to say who somebody is.
const kubernetesTimeout = 10 * time.Second

// kubernetesUser returns the identity of this user for an API server, zero if it cannot be asked.
func kubernetesUser(ctx context.Context, ask authentication) channel.Person {
	if ask == nil {
		return channel.Person{}
	}
	client, err := ask()
	if err != nil {
		return channel.Person{}
	}
	ctx, cancel := context.WithTimeout(ctx, kubernetesTimeout)
	defer cancel()
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || review.Status.UserInfo.Username == "" {
		return channel.Person{}
	}
	name := review.Status.UserInfo.Username
	if strings.Contains(name, "@") {
		return channel.Person{Name: name, Email: name}
	}
	return channel.Person{Name: name, Email: name + "@kubernetes"}
}

// identity returns who a change is by.
func (f *channelFlags) identity(ctx context.Context) (channel.Person, error) {
	var ask authentication
	if stores.InCluster(f.store) || f.kubeconfig != "" || kubeconfig.Inside() {
		ask = f.client
	}
	return f.who.identity(ctx, ask)
}

// identity returns the author of a commit. It is the first of: the one that was named, git's identity
// for this user, their identity for the API server, and their name in the system.
func (f *whoFlags) identity(ctx context.Context, ask authentication) (channel.Person, error) {
	if f.author != "" {
		parts := authorForm.FindStringSubmatch(strings.TrimSpace(f.author))
		if parts == nil {
			return channel.Person{}, process.WithHint(process.Usage("--author %q is no person", f.author), "write it as git does: 'Ann Example <ann@example.com>'")
		}
		return channel.Person{Name: parts[1], Email: parts[2]}, nil
	}
	if p := gitIdentity(); p.Name != "" {
		return p, nil
	}
	if p := kubernetesUser(ctx, ask); p.Name != "" {
		return p, nil
	}
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	name := cmp.Or(whoami(), "unknown")
	return channel.Person{Name: name, Email: fmt.Sprintf("%s@%s", name, host)}, nil
}

// gitIdentity returns what git has for this user, in its environment or in the user's
// configuration. A configuration that cannot be read has none.
func gitIdentity() channel.Person {
	p := channel.Person{Name: os.Getenv("GIT_AUTHOR_NAME"), Email: os.Getenv("GIT_AUTHOR_EMAIL")}
	if c, err := config.LoadConfig(config.GlobalScope); err == nil {
		p.Name, p.Email = cmp.Or(p.Name, c.Author.Name, c.User.Name), cmp.Or(p.Email, c.Author.Email, c.User.Email)
	}
	if p.Name == "" || p.Email == "" {
		return channel.Person{}
	}
	return p
}

// examples has examples of each verb.
var examples = map[string][]string{
	"run":               {"run --store dir:snapshots --instances fleet.yaml --state state.json"},
	"check":             {"check --instances fleet.yaml"},
	"status":            {"status --state state.json", "status --address localhost:8081 -o json"},
	"wait":              {"wait --for rollout --store dir:snapshots --state state.json"},
	"audit":             {"audit --store dir:snapshots --since 2026-01-01 -o csv"},
	"history":           {"history --store dir:snapshots", "history --store dir:snapshots --acts --since 2h", "history --store dir:snapshots --limit 5 -o json"},
	"show":              {"show r12 --store dir:snapshots --file haproxy.cfg"},
	"diff":              {"diff r11 r12 --store dir:snapshots"},
	"ui":                {"ui --store dir:snapshots --state state.json"},
	"verify":            {"verify --store dir:snapshots"},
	"pin":               {"pin r12 --store dir:snapshots --reason 'incident 4711'"},
	"unpin":             {"unpin --store dir:snapshots --reason 'mended in r15'"},
	"override":          {"override r12 --store dir:snapshots --for 2h --reason 'maintenance window'"},
	"rollback":          {"rollback --store dir:snapshots --to r12 --reason 'checkout answers 502'"},
	"approve":           {"approve r12 --store dir:snapshots"},
	"reject":            {"reject r12 --store dir:snapshots --reason 'drops a header'"},
	"retry":             {"retry r12 --store dir:snapshots"},
	"pause":             {"pause --store dir:snapshots --reason 'peak hours'"},
	"resume":            {"resume --store dir:snapshots"},
	"promote":           {"promote r12 --store dir:snapshots"},
	"abort":             {"abort --store dir:snapshots --reason 'error rate of edge-1'"},
	"gc":                {"gc --store dir:snapshots --state state.json --dry-run"},
	"sign":              {"sign --store configmap:edge/snapshots --signing-key ~/.ssh/id_ed25519"},
	"recover":           {"recover --store dir:snapshots --state state.json --from-instance edge-1 --instances fleet.yaml"},
	"accept-rewind":     {"accept-rewind --store dir:snapshots --state state.json --reason 'the repository was restored from Monday'"},
	"confirm-endpoints": {"confirm-endpoints --store dir:snapshots"},
	"rbac":              {"rbac --store dir:snapshots"},
	"version":           {"version"},
}
