package cli

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/pusher/binding"

	"github.com/spf13/cobra"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/hapsnap/hapsnap/internal/credentials"
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
	made                          []string
	state, status, scope          string
	compiler                      string
	leader                        election.Flags
	gc, allNamespaces, companions bool
	create, withoutNamespaces     bool
	snapshots                     int
}

func rbacCommand() *cobra.Command {
	var f rbacFlags
	cmd := &cobra.Command{
		Use:   "rbac [--scope SCOPE] [--store STORE] [--instances FILE] [--state STATE]",
		Short: "Print the roles that the pusher needs in a cluster",
		Long: `Print all that a service account needs to do in a cluster what "pusher run" does: the
account, its namespace and those of the store and the state, and a role with a binding
for each concern. Each role has a name of its own, so that nothing that was applied
before is replaced by something else.

- For a store, unless --live is given, it reads EndpointSlices and Secrets, and writes
  Events. With --scope cluster, which is the default, in all namespaces, as other ingress
  controllers may. With --scope namespaces=A,B in these. With --scope named it may read
  what the newest snapshots of the store name, and those that the channel names: print
  the roles again when other namespaces or Secrets are named.
- For a store in the cluster it reads snapshots and the channel, notes in the channel what
  failed, and writes the status of the fleet, and Events.
- With --instances, where instances are pods, it reads these and the Secrets with their
  credentials. It writes those of --make-credentials.
- With --status it writes the status of the fleet into that ConfigMap, once it is there.
- With --state, where that is in a Secret, it keeps it, and holds the Lease by which a
  leader is elected.

For people there are roles without bindings, for a store in the cluster: the viewer sees
the status, the history and differences, and no Secret; the operator also pins, pauses
and promotes; the approver also approves and rejects. What they do is also said in Events,
which they may write. The API server cannot tell what the latter two write into the
channel: signatures can (--allowed-signers of pusher run).

No ConfigMap is created: the compiler makes the channel and the status with its first
snapshot. Where snapshots are delivered, --create adds that right; whoever has it can make
ConfigMaps that look like snapshots. Creating Secrets and Leases cannot be limited to
names either: keep the state in a namespace of the pusher's own. Secrets that hold
certificates beside snapshots have no names that are known before: whoever reads those
reads all Secrets of the store's namespace.

"kubectl delete" of all that is printed deletes the namespaces with all that is in them,
such as snapshots. Leave them out with --without-namespaces.`,
		Args: process.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.storeFlags.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.scope, "scope", "cluster", rbac.ScopeHelp)
	flags.StringVar(&f.name, "name", "hapsnap-pusher", "beginning of the names of the roles and their bindings")
	flags.StringVar(&f.account, "service-account", "hapsnap/hapsnap-pusher", "service account that gets the roles, as namespace/name")
	addFleet(flags, &f.fleet, "as for run")
	flags.StringSliceVar(&f.made, "make-credentials", nil, "as for run")
	flags.StringVar(&f.state, "state", "", "as for run")
	flags.StringVar(&f.status, "status", "", "as for run; people then get a role to read it")
	flags.StringVar(&f.leader.Lease, "lease", "", "as for run")
	flags.StringVar(&f.compiler, "ui-compiler", "", "as for run")
	flags.StringVar(&f.live, "live", "", "as for run; endpoints and Secrets then need no roles")
	flags.BoolVar(&f.allNamespaces, "all-namespaces", false, "as for run; the roles then cover the EndpointSlices of all namespaces")
	flags.IntVar(&f.snapshots, "snapshots", 10, "with --scope named, how many of the newest snapshots the pusher can run with the roles")
	flags.BoolVar(&f.companions, "companions", false, "include the Secrets with certificates beside snapshots, if the command reads no snapshot that has some")
	flags.BoolVar(&f.create, "create", false, "include the right to create the channel and the status of the store, where no compiler does")
	flags.BoolVar(&f.gc, "gc", false, "include the right to delete snapshots, which \"pusher gc\" needs")
	flags.BoolVar(&f.withoutNamespaces, "without-namespaces", false, "print no namespaces")
	return cmd
}

func (f *rbacFlags) run(cmd *cobra.Command) error {
	account, err := objectname.Parse(f.account)
	if err != nil {
		return process.Usage("--service-account: %w", err)
	}
	scope, err := rbac.ParseScope(f.scope)
	if err != nil {
		return err
	}
	roles := rbac.Roles{Component: "pusher", Name: f.name, Account: account}
	for _, grant := range []func() error{
		func() error { return f.grantStore(cmd.Context(), &roles) },
		func() error { return f.grantTenants(cmd.Context(), &roles, scope) },
		func() error { return f.grantInstances(&roles) },
		func() error { return f.grantState(&roles) },
		func() error { return f.grantStatus(&roles) },
		func() error { return f.grantReport(&roles) },
	} {
		if err := grant(); err != nil {
			return err
		}
	}
	if len(roles.Grants) == 0 {
		return process.WithHint(process.Usage("no store, state or instances in a cluster are named"), "use --store, --instances and --state as for pusher run")
	}
	if f.withoutNamespaces {
		roles.Namespaces = nil
	}
	text, err := roles.YAML()
	if err != nil {
		return err
	}
	_, err = cmd.OutOrStdout().Write(text)
	return err
}

// grantStore grants a pusher and people the permissions to use a store in the cluster.
func (f *rbacFlags) grantStore(ctx context.Context, r *rbac.Roles) error {
	if !stores.InCluster(f.store) {
		return nil
	}
	name, err := configmapstore.Parse(f.store)
	if err != nil {
		return process.Usage("--store: %w", err)
	}
	r.Namespaces = append(r.Namespaces, name.Namespace)
	grant := func(concern string, rules ...[]rbacv1.PolicyRule) rbac.Grant {
		return rbac.Grant{Concern: concern, Namespace: name.Namespace, Rules: slices.Concat(rules...)}
	}
	reading := configmapstore.Reading(name.Namespace)
	r.Grants = rbac.Join(r.Grants, grant("store", reading, configmapstore.Channel(name.Name), configmapstore.Status(name.Name)), grant("store-events", events.Rules()))
	if f.create {
		r.Grants = rbac.Join(r.Grants, grant("create", configmapstore.Creating()))
	}
	if f.gc {
		r.Grants = rbac.Join(r.Grants, grant("gc", configmapstore.Deleting()))
	}
	companions := f.companions
	if f.readable() {
		needs, err := f.needs(ctx)
		if err != nil {
			return err
		}
		companions = companions || needs.companions
	}
	if companions {
		r.Grants = rbac.Join(r.Grants, grant("companions", configmapstore.ReadingCompanions()))
	}
	r.People = []rbac.Grant{
		grant("viewer", reading),
		grant("operator", reading, configmapstore.ChannelByHand(name.Name), configmapstore.Saying()),
		grant("approver", reading, configmapstore.ChannelByHand(name.Name), configmapstore.Saying()),
	}
	return nil
}

// readable reports whether a store in the cluster can be read.
func (f *rbacFlags) readable() bool { return f.kubeconfig != "" || kubeconfig.Inside() }

// What the grants for what tenants have are called.
const (
	ofEndpoints = "endpoints"
	ofSecrets   = "secrets"
	ofEvents    = "events"
)

// grantTenants grants the permissions to read the endpoints and Secrets of snapshots.
func (f *rbacFlags) grantTenants(ctx context.Context, r *rbac.Roles, scope rbac.Scope) error {
	if f.store == "" || f.live != "" {
		return nil
	}
	if scope.Named {
		// What the newest snapshots name is granted, and nothing else.
		if stores.InCluster(f.store) && !f.readable() {
			return process.WithHint(process.Usage("--scope=named: the snapshots of %s cannot be read", f.store), "use --kubeconfig")
		}
		needs, err := f.needs(ctx)
		if err != nil {
			return err
		}
		concern := func(q kubewatch.Query) string {
			if q.Name != "" {
				return ofSecrets
			}
			return ofEndpoints
		}
		r.Grants = rbac.Join(r.Grants, kubewatch.Rules(cluster.Plan(needs.Wanted, f.allNamespaces), concern, nil)...) // every cluster has these kinds
		// Events are written on Secrets and Services.
		namespaces := slices.Clone(needs.Namespaces)
		for _, s := range needs.Secrets {
			namespaces = append(namespaces, s.Namespace)
		}
		slices.Sort(namespaces)
		for _, namespace := range slices.Compact(namespaces) {
			r.Grants = rbac.Join(r.Grants, rbac.Grant{Concern: ofEvents, Namespace: namespace, Rules: events.Rules()})
		}
		return nil
	}
	endpoints := scope
	if f.allNamespaces {
		endpoints = rbac.Scope{}
	}
	r.Grants = rbac.Join(r.Grants, slices.Concat(
		endpoints.OfTenants(rbac.Grant{Concern: ofEndpoints, Rules: cluster.EndpointRules()}),
		scope.OfTenants(rbac.Grant{Concern: ofSecrets, Rules: cluster.SecretRules()}),
		scope.OfTenants(rbac.Grant{Concern: ofEvents, Rules: events.Rules()}),
	)...)
	return nil
}

// grantInstances grants the permissions to find instances among pods.
func (f *rbacFlags) grantInstances(r *rbac.Roles) error {
	if f.fleet == "" {
		return nil
	}
	file, err := fleet.Read(f.fleet)
	if file.Name == "" {
		return err
	}
	if file.Pods == nil { // roles do not depend on files that instances name, which may be on another machine
		return nil
	}
	concern := func(q kubewatch.Query) string {
		if q.Namespace == "" {
			return "nodes"
		}
		return "instances"
	}
	r.Grants = rbac.Join(r.Grants, kubewatch.Rules(discovery.Plan(*file.Pods), concern, nil)...)
	if len(f.made) > 0 {
		wanted, err := pusher.WantedCredentials(*file.Pods, f.made)
		if err != nil {
			return process.Usage("--make-credentials: %w", err)
		}
		var names []string
		for _, w := range wanted {
			names = append(names, w.Secret)
		}
		r.Grants = rbac.Join(r.Grants, rbac.Grant{Concern: "credentials", Namespace: file.Pods.Namespace, Rules: credentials.Rules(names...)})
	}
	r.Grants = rbac.Join(r.Grants, rbac.Grant{Concern: "instance-events", Namespace: file.Pods.Namespace, Rules: events.Rules()})
	return nil
}

// grantState grants the permissions to keep a state in a Secret.
func (f *rbacFlags) grantState(r *rbac.Roles) error {
	if !inSecret(f.state) {
		return nil
	}
	secret, err := statestore.Parse(f.state)
	if err != nil {
		return process.Usage("--state: %w", err)
	}
	lease, err := leaseName(f.leader, f.state)
	if err != nil {
		return err
	}
	r.Namespaces = append(r.Namespaces, secret.Namespace, lease.Namespace)
	r.Grants = rbac.Join(r.Grants,
		rbac.Grant{Concern: "state", Namespace: secret.Namespace, Rules: statestore.Rules(secret.Name)},
		rbac.Grant{Concern: "lease", Namespace: lease.Namespace, Rules: election.Rules(lease.Name)})
	return nil
}

// grantReport grants the permissions to read the report of a compiler.
func (f *rbacFlags) grantReport(r *rbac.Roles) error {
	if !inSecret(f.compiler) {
		return nil
	}
	name, err := statestore.Parse(f.compiler)
	if err != nil {
		return process.Usage("--ui-compiler: %w", err)
	}
	r.Namespaces = append(r.Namespaces, name.Namespace)
	r.Grants = rbac.Join(r.Grants, rbac.Grant{Concern: "report", Namespace: name.Namespace, Rules: configmapstore.ReadingReport(name.Name)})
	return nil
}

// grantStatus grants the pusher the permissions to write the status to an existing ConfigMap, and
// people those to read it.
func (f *rbacFlags) grantStatus(r *rbac.Roles) error {
	if f.status == "" {
		return nil
	}
	name, err := parsePlace(f.status)
	if err != nil {
		return process.Usage("--status: %w", err)
	}
	r.Namespaces = append(r.Namespaces, name.Namespace)
	r.Grants = rbac.Join(r.Grants, rbac.Grant{Concern: "status", Namespace: name.Namespace, Rules: configmapstore.Patching(name.Name)})
	if f.create {
		r.Grants = rbac.Join(r.Grants, rbac.Grant{Concern: "create", Namespace: name.Namespace, Rules: configmapstore.Creating()})
	}
	if len(r.People) == 0 {
		r.People = []rbac.Grant{{Concern: "viewer", Namespace: name.Namespace, Rules: configmapstore.Reading(name.Namespace)[:1]}}
	}
	return nil
}

// needs returns what the snapshots that the pusher should be able to run need.
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
		wants, err := binding.Wanted(s)
		if err != nil {
			return out, fmt.Errorf("read what %s needs: %w", s.ID(), err)
		}
		out.Namespaces = append(out.Namespaces, wants.Namespaces...)
		out.Secrets = append(out.Secrets, wants.Secrets...)
		out.companions = out.companions || slices.ContainsFunc(s.Manifest.Spec.Certificates, func(ref snapshots.CertificateRef) bool {
			return ref.Mode == snapshots.ModeCompanion
		})
	}
	return out, nil
}

// needed is what snapshots need of a cluster.
type needed struct {
	cluster.Wanted
	companions bool // certificates beside them
}

// runnable returns a number of the newest snapshots, and those that the channel names.
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
