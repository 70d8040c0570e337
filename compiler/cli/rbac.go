package cli

import (
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/admission"
	"github.com/hapsnap/hapsnap/compiler/announce"
	"github.com/hapsnap/hapsnap/compiler/cluster"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/config/kinds"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/internal/credentials"
	"github.com/hapsnap/hapsnap/internal/election"
	"github.com/hapsnap/hapsnap/internal/events"
	"github.com/hapsnap/hapsnap/internal/kubewatch"
	"github.com/hapsnap/hapsnap/internal/objectname"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/internal/rbac"
	"github.com/hapsnap/hapsnap/snapshots/configmapstore"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

// rbacFlags are the flags of the verb rbac.
type rbacFlags struct {
	sourceFlags
	leader        election.Flags
	name, account string
	store, scope  string
	fleetStatus   string
	report        string

	withoutNamespaces bool
	webhook           webhookFlags
}

func rbacCommand() *cobra.Command {
	var f rbacFlags
	cmd := &cobra.Command{
		Use:   "rbac [--scope SCOPE] [--store STORE]",
		Short: "Print the roles that the compiler needs in a cluster",
		Long: `Print all that a service account needs to do what "compiler run" does with this
configuration: the account, its namespace and that of the store, and a role with a
binding for each concern. Each role has a name of its own, so that nothing that was
applied before is replaced by something else.

The compiler watches what is compiled, holds the Lease, and writes snapshots, Events
and, if the configuration asks for it, the status of Ingresses. With --webhook-secret it
writes that Secret and the caBundle of --webhook-configuration. The Lease is where a
compiler that runs as the account looks for it: in the namespace of the account, unless
--lease names it.

With --scope cluster, which is the default, it may read Ingresses, Services, Secrets and
ConfigMaps of all namespaces, as other ingress controllers may; if the configuration
names namespaces, of those. --scope namespaces=A,B is for a configuration with these
namespaces. Roles cannot say "what Ingresses name": with --scope named, they name the
Secrets and ConfigMaps that the objects of -f or --kubeconfig name now, and are to be
printed again when there are others.

"kubectl delete" of all that is printed deletes the namespaces with all that is in them.
Leave them out with --without-namespaces.`,
		Args: process.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.leader.Lease, "lease", "", "as for run; by default hapsnap-compiler in the namespace of the service account")
	f.webhook.addMade(flags, "as for run; ")
	flags.StringVar(&f.store, "store", "", "as for run; a store in a cluster needs roles too")
	flags.StringVar(&f.fleetStatus, "fleet-status", "", "as for run; with the Gateway API, the compiler reads it")
	flags.StringVar(&f.report, "report-secret", "", "as for run")
	flags.StringVar(&f.scope, "scope", "cluster", rbac.ScopeHelp)
	flags.StringVar(&f.name, "name", "hapsnap-compiler", "beginning of the names of the roles and their bindings")
	flags.BoolVar(&f.withoutNamespaces, "without-namespaces", false, "print no namespaces")
	flags.StringVar(&f.account, "service-account", "hapsnap/hapsnap-compiler", "service account that gets the roles, as namespace/name")
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
	if _, _, err := fleetStatus(f.fleetStatus, f.store); err != nil {
		return err
	}
	c, err := f.configuration(cmd.Context(), cmd.Flags(), cmd.ErrOrStderr(), warnings(cmd.ErrOrStderr()))
	if err != nil {
		return err
	}
	if c, err = f.scoped(c, scope, warnings(cmd.ErrOrStderr())); err != nil {
		return err
	}
	var connection cluster.Connection
	if f.manifests == "" && f.cluster.wanted() {
		if connection, err = f.cluster.connect("", warnings(cmd.ErrOrStderr())); err != nil {
			return err
		}
	}
	plan, err := f.plan(cmd, c, scope)
	if err != nil {
		return err
	}
	reading := kubewatch.Rules(plan, cluster.Concern, connection.Resource)
	if f.cluster.setting != nil {
		name, _ := objectname.Parse(f.cluster.configMap) // the ConfigMap was read under this name
		query := []kubewatch.Query{cluster.ConfigMapQuery(name)}
		reading = rbac.Join(reading, kubewatch.Rules(query, func(kubewatch.Query) string { return "configuration" }, nil)...)
	}
	roles := rbac.Roles{Component: "compiler", Name: f.name, Account: account}
	if err := f.grant(&roles, c, reading); err != nil {
		return err
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

// scoped returns the configuration of a compiler that reads nothing outside the scope.
func (f *rbacFlags) scoped(c config.Config, scope rbac.Scope, log *slog.Logger) (config.Config, error) {
	if scope.Named && f.manifests == "" && !f.cluster.wanted() {
		return c, process.WithHint(process.Usage("--scope=named: nothing says what is named"), "use -f or --kubeconfig")
	}
	if !scope.Named && f.manifests != "" {
		return c, process.WithHint(process.Usage("-f is for what is named now"), "use --scope named, or leave -f out")
	}
	switch {
	case len(scope.Namespaces) == 0:
	case len(c.Namespaces) == 0:
		log.Warn("the configuration is for all namespaces, and the compiler may not read them", "hint", "set namespaces: ["+strings.Join(scope.Namespaces, ", ")+"] in the configuration")
		c.Namespaces = scope.Namespaces
	case !slices.Equal(scope.Namespaces, slices.Sorted(slices.Values(c.Namespaces))):
		return c, process.WithHint(process.Usage("--scope=%s: the configuration is for the namespaces %s", f.scope, strings.Join(c.Namespaces, ", ")), "leave --scope out, the configuration decides")
	}
	return c, nil
}

// plan returns what is watched. Objects that are read by name are watched as a whole,
// unless the names of now should count.
func (f *rbacFlags) plan(cmd *cobra.Command, c config.Config, scope rbac.Scope) ([]kubewatch.Query, error) {
	if !scope.Named {
		for _, w := range []*kinds.Watched{&c.Secrets, &c.ConfigMaps} {
			if w.Watch == kinds.WatchNamed {
				*w = kinds.Watched{Watch: kinds.WatchAll}
			}
		}
		return cluster.Plan(c, routing.Asked{}), nil
	}
	log := warnings(cmd.ErrOrStderr())
	objects, err := f.objects(cmd.Context(), log)
	if err != nil {
		return nil, err
	}
	check, err := f.checker(cmd.Context(), c, cmd.ErrOrStderr())
	if err != nil {
		return nil, err
	}
	result, err := compiler.Source{Objects: objects, Templates: f.templates, Config: c}.Once(cmd.Context(), check, time.Now(), "rbac")
	printDiagnostics(cmd.ErrOrStderr(), result.Diagnostics)
	return cluster.Plan(c, result.Named), unpublishable(err)
}

// grant adds what is read and what is written to the roles.
func (f *rbacFlags) grant(r *rbac.Roles, c config.Config, reading []rbac.Grant) error {
	lease := types.NamespacedName{Namespace: r.Account.Namespace, Name: usualLease}
	if f.leader.Lease != "" {
		var err error
		if lease, err = leaseName(f.leader); err != nil {
			return err
		}
	}
	tenants := rbac.Scope{Namespaces: c.Namespaces}
	r.Namespaces = append(r.Namespaces, lease.Namespace)
	r.Grants = rbac.Join(reading, rbac.Grant{Concern: "lease", Namespace: lease.Namespace, Rules: election.Rules(lease.Name)})
	r.Grants = rbac.Join(r.Grants, tenants.OfTenants(rbac.Grant{Concern: "events", Rules: events.Rules()})...)
	if c.GatewayAPI.Fleet == "" && (c.IngressStatus.Service != "" || len(c.IngressStatus.Addresses) > 0) {
		r.Grants = rbac.Join(r.Grants, tenants.OfTenants(rbac.Grant{Concern: "status", Rules: announce.StatusRules()})...)
	}
	if err := f.grantGateways(r, c, tenants); err != nil {
		return err
	}
	if len(c.Namespaces) > 0 {
		// Events about objects without a namespace are in this namespace.
		r.Grants = rbac.Join(r.Grants, rbac.Grant{Concern: "events", Namespace: metav1.NamespaceDefault, Rules: events.Rules()})
	}
	secret, made, err := f.webhook.checkMade()
	if err != nil {
		return err
	}
	if made {
		r.Grants = rbac.Join(r.Grants,
			rbac.Grant{Concern: "webhook", Namespace: secret.Namespace, Rules: credentials.Rules(secret.Name)},
			rbac.Grant{Concern: "webhook", Rules: admission.RegistrationRules(f.webhook.registration)})
	}
	report, reports, err := reportSecret(f.report)
	if err != nil {
		return err
	}
	if reports {
		r.Grants = rbac.Join(r.Grants, rbac.Grant{Concern: "report", Namespace: report.Namespace, Rules: configmapstore.WritingReport(report.Name)})
	}
	if !stores.InCluster(f.store) {
		return nil
	}
	store, err := configmapstore.Parse(f.store)
	if err != nil {
		return process.Usage("--store: %w", err)
	}
	r.Namespaces = append(r.Namespaces, store.Namespace)
	r.Grants = rbac.Join(r.Grants, rbac.Grant{Concern: "store", Namespace: store.Namespace, Rules: configmapstore.Writing(store.Namespace)})
	if c.Certificates.Mode == config.CompanionCertificates {
		r.Grants = rbac.Join(r.Grants, rbac.Grant{Concern: "companions", Namespace: store.Namespace, Rules: configmapstore.WritingCompanions()})
	}
	return nil
}

// grantGateways grants what is needed to write the status of objects of the Gateway API.
func (f *rbacFlags) grantGateways(r *rbac.Roles, c config.Config, tenants rbac.Scope) error {
	if !c.GatewayAPI.Enabled {
		return nil
	}
	classes, objects := announce.GatewayRules()
	if c.GatewayAPI.Fleet == "" {
		r.Grants = rbac.Join(r.Grants, rbac.Grant{Concern: "gatewaystatus", Rules: classes})
	}
	r.Grants = rbac.Join(r.Grants, tenants.OfTenants(rbac.Grant{Concern: "routestatus", Rules: objects})...)
	if c.GatewayAPI.Services.Enabled {
		r.Grants = rbac.Join(r.Grants, tenants.OfTenants(rbac.Grant{Concern: "gatewayservices", Rules: announce.ServiceRules()})...)
	}
	name, ok, err := fleetStatus(f.fleetStatus, f.store)
	if err != nil || !ok {
		return err
	}
	r.Grants = rbac.Join(r.Grants, kubewatch.Rules([]kubewatch.Query{cluster.ConfigMapQuery(name)}, func(kubewatch.Query) string { return "fleet" }, nil)...)
	return nil
}
