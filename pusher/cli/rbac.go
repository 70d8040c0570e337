package cli

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/spf13/cobra"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/internal/election"
	"github.com/hapsnap/hapsnap/internal/events"
	"github.com/hapsnap/hapsnap/internal/kubeconfig"
	"github.com/hapsnap/hapsnap/internal/kubewatch"
	"github.com/hapsnap/hapsnap/internal/objectname"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/internal/rbac"
	"github.com/hapsnap/hapsnap/pusher"
	"github.com/hapsnap/hapsnap/pusher/cluster"
	"github.com/hapsnap/hapsnap/pusher/discovery"
	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/statestore"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/configmapstore"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

// rbacFlags are those of the verb rbac.
type rbacFlags struct {
	storeFlags
	name, account, fleet, live    string
	state                         string
	leader                        election.Flags
	gc, allNamespaces, companions bool
	create                        bool
	snapshots                     int
}

func rbacCommand() *cobra.Command {
	var f rbacFlags
	cmd := &cobra.Command{
		Use:   "rbac [--store STORE] [--instances FILE] [--state STATE] [--kubeconfig FILE]",
		Short: "Print the roles that the pusher needs in a cluster",
		Long: `Print the roles by which a service account may do in a cluster what "pusher run"
does, and nothing else:

- for a store in the cluster, read snapshots and the channel, note in the channel what
  failed, write the status of the fleet, and Events; that is also enough for people to
  pin, pause and the like, and not for publishing;
- unless --live is given, read the EndpointSlices and Secrets that the newest snapshots
  of the store name, and those that the channel names. A store in a cluster is read
  with --kubeconfig only. Print the roles again when other namespaces or Secrets are
  named;
- with --instances, where instances are pods, read these and the Secrets with their
  credentials;
- with --state, where that is in a Secret, keep it, and hold the Lease by which a leader
  is elected.

No ConfigMap is created: the compiler makes the channel and the status with its first
snapshot. Where snapshots are delivered, --create adds that right; whoever has it can make
ConfigMaps that look like snapshots. Creating Secrets and Leases cannot be limited to
names either: keep the state in a namespace of the pusher's own. Secrets that hold
certificates beside snapshots have no names that are known before: whoever reads those
reads all Secrets of the store's namespace.`,
		Args: process.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.storeFlags.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.name, "name", "hapsnap-pusher", "name of the roles and their bindings")
	flags.StringVar(&f.account, "service-account", "hapsnap/hapsnap-pusher", "service account, as namespace/name, that they are for")
	flags.StringVar(&f.fleet, "instances", "", "as for run")
	flags.StringVar(&f.state, "state", "", "as for run")
	flags.StringVar(&f.leader.Lease, "lease", "", "as for run")
	flags.StringVar(&f.live, "live", "", "as for run: endpoints and Secrets need no roles")
	flags.BoolVar(&f.allNamespaces, "all-namespaces", false, "as for run: EndpointSlices of all namespaces")
	flags.IntVar(&f.snapshots, "snapshots", 10, "how many of the newest snapshots it is to be able to run")
	flags.BoolVar(&f.companions, "companions", false, "also the Secrets with certificates beside snapshots, if no snapshot is read that says so")
	flags.BoolVar(&f.create, "create", false, "also create the channel and the status of the store, where no compiler did")
	flags.BoolVar(&f.gc, "gc", false, "also what \"pusher gc\" needs: deleting")
	return cmd
}

func (f *rbacFlags) run(cmd *cobra.Command) error {
	account, err := objectname.Parse(f.account)
	if err != nil {
		return process.Usage("--service-account: %w", err)
	}
	grants, err := f.grants(cmd.Context())
	if err != nil {
		return err
	}
	if f.store == "" && len(grants) == 0 {
		return process.WithHint(process.Usage("nothing is named that is in a cluster"), "use --store, --instances and --state as for pusher run")
	}
	if len(grants) == 0 {
		return process.WithHint(process.Usage("nothing is named that is in a cluster: %s is not configmap:NAMESPACE/NAME, and holds no snapshot that needs something", f.store),
			"roles are for stores, endpoints, Secrets and pods in a cluster")
	}
	roles, err := rbac.Roles(grants, "pusher", f.name, account)
	if err != nil {
		return err
	}
	_, err = cmd.OutOrStdout().Write(roles)
	return err
}

// grants returns what the pusher must be allowed to do, by namespace.
func (f *rbacFlags) grants(ctx context.Context) ([]rbac.Grant, error) {
	var out []rbac.Grant
	inCluster := stores.InCluster(f.store)
	if inCluster {
		name, err := configmapstore.Parse(f.store)
		if err != nil {
			return nil, process.Usage("--store: %w", err)
		}
		out = append(out, rbac.Grant{Namespace: name.Namespace, Rules: slices.Concat(storeRules(name, f.gc, f.create), events.Rules())})
	}
	var needs needed
	if f.store != "" && (!inCluster || f.kubeconfig != "" || kubeconfig.Inside()) {
		var err error
		if needs, err = f.needs(ctx); err != nil {
			return nil, err
		}
	}
	if inCluster && (needs.companions || f.companions) {
		out = rbac.Join(out, rbac.Grant{Namespace: out[0].Namespace, Rules: configmapstore.ReadingCompanions()})
	}
	if f.live == "" {
		out = rbac.Join(out, withEvents(cluster.Plan(needs.Wanted, f.allNamespaces), needs.namespaces())...)
	}
	if f.fleet != "" {
		file, err := fleet.Read(f.fleet)
		if err != nil {
			return nil, err
		}
		if file.Pods != nil {
			out = rbac.Join(out, withEvents(discovery.Plan(*file.Pods), []string{file.Pods.Namespace})...)
		}
	}
	kept, err := f.stateGrants()
	if err != nil {
		return nil, err
	}
	out = rbac.Join(out, kept...)
	for i := range out {
		out[i].Rules = distinct(out[i].Rules)
	}
	return out, nil
}

// stateGrants returns what it takes to keep a state in a Secret.
func (f *rbacFlags) stateGrants() ([]rbac.Grant, error) {
	if !inSecret(f.state) {
		return nil, nil
	}
	secret, err := statestore.Parse(f.state)
	if err != nil {
		return nil, process.Usage("--state: %w", err)
	}
	lease, err := leaseName(f.leader, f.state)
	return []rbac.Grant{{Namespace: secret.Namespace, Rules: statestore.Rules(secret.Name)}, {Namespace: lease.Namespace, Rules: election.Rules(lease.Name)}}, err
}

// needs returns what the snapshots need that the pusher is to be able to run.
func (f *rbacFlags) needs(ctx context.Context) (needed, error) {
	var out needed
	store, err := f.open(ctx, slog.New(slog.DiscardHandler))
	if err != nil {
		return out, err
	}
	defer store.Close()
	view, err := store.View(ctx)
	if err != nil {
		return out, err
	}
	for _, id := range runnable(view, f.snapshots) {
		s, err := store.Get(ctx, id)
		if err != nil {
			return out, damaged(err)
		}
		if err := out.add(s); err != nil {
			return out, err
		}
	}
	return out, nil
}

// storeRules returns what a pusher must be allowed to do with a store.
func storeRules(store types.NamespacedName, gc, create bool) []rbacv1.PolicyRule {
	rules := slices.Concat(configmapstore.Reading(store.Namespace), configmapstore.Channel(store.Name), configmapstore.Status(store.Name))
	if create {
		rules = append(rules, configmapstore.Creating()...)
	}
	if gc {
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"delete"}})
	}
	return distinct(rules)
}

// distinct leaves out rules that were there already.
func distinct(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	var out []rbacv1.PolicyRule
	for _, r := range rules {
		if !slices.ContainsFunc(out, func(o rbacv1.PolicyRule) bool { return o.String() == r.String() }) {
			out = append(out, r)
		}
	}
	return out
}

// needed is what snapshots need of a cluster.
type needed struct {
	cluster.Wanted
	companions bool // certificates beside them
}

// add adds what a snapshot needs.
func (n *needed) add(s snapshots.Snapshot) error {
	wants, err := pusher.Wanted(s)
	if err != nil {
		return fmt.Errorf("read what %s needs: %w", s.ID(), err)
	}
	n.Namespaces = append(n.Namespaces, wants.Namespaces...)
	n.Secrets = append(n.Secrets, wants.Secrets...)
	n.companions = n.companions || slices.ContainsFunc(s.Manifest.Spec.Certificates, func(ref snapshots.CertificateRef) bool {
		return ref.Mode == snapshots.ModeCompanion
	})
	return nil
}

// namespaces are those of the Secrets and the Services, on which Events are written.
func (n *needed) namespaces() []string {
	out := slices.Clone(n.Namespaces)
	for _, s := range n.Secrets {
		out = append(out, s.Namespace)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// runnable returns the newest snapshots, as many as are asked for, and those that the
// channel names.
func runnable(view channel.View, newest int) []snapshots.ID {
	out := slices.Clone(view.IDs[max(0, len(view.IDs)-newest):])
	for id := range channel.Named(view, time.Now()) {
		if slices.Contains(view.IDs, id) {
			out = append(out, id)
		}
	}
	slices.SortFunc(out, snapshots.ID.Compare)
	return slices.Compact(out)
}

// withEvents returns what it takes to watch what is planned, with Events in some of the
// namespaces.
func withEvents(plan []kubewatch.Query, namespaces []string) []rbac.Grant {
	out := kubewatch.Rules(plan, nil) // every cluster has these kinds
	for _, namespace := range namespaces {
		out = append(out, rbac.Grant{Namespace: namespace, Rules: events.Rules()})
	}
	return out
}
