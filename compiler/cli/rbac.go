package cli

import (
	"slices"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/announce"
	"github.com/hapsnap/hapsnap/compiler/cluster"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/config/kinds"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/internal/election"
	"github.com/hapsnap/hapsnap/internal/kubewatch"
	"github.com/hapsnap/hapsnap/internal/objectname"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/internal/rbac"
	"github.com/hapsnap/hapsnap/snapshots/configmapstore"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

// rbacFlags are those of the verb rbac.
type rbacFlags struct {
	sourceFlags
	leader        election.Flags
	name, account string
	store         string
}

func rbacCommand() *cobra.Command {
	var f rbacFlags
	cmd := &cobra.Command{
		Use:   "rbac [-f DIR | --kubeconfig FILE]",
		Short: "Print the roles that the compiler needs in a cluster",
		Long: `Print the roles by which a service account may do what "compiler run" does with
this configuration, and nothing else: watch what is compiled, hold the Lease, and
write Events and, if the configuration asks for it, the status of Ingresses.

Roles cannot say "what Ingresses name". Where the configuration has Secrets or
ConfigMaps read by name, every one of their namespaces is granted, unless manifests
or a cluster say which there are: then it is just these, and the roles are to be
printed again when there are others.`,
		Args: process.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.leader.Lease, "lease", "", "as for run")
	flags.StringVar(&f.store, "store", "", "as for run; one in a cluster needs roles too")
	flags.StringVar(&f.name, "name", "hapsnap-compiler", "name of the roles and their bindings")
	flags.StringVar(&f.account, "service-account", "hapsnap/hapsnap-compiler", "service account, as namespace/name, that they are for")
	return cmd
}

func (f *rbacFlags) run(cmd *cobra.Command) error {
	account, err := objectname.Parse(f.account)
	if err != nil {
		return process.Usage("--service-account: %w", err)
	}
	c, err := f.configuration(cmd.Context(), cmd.Flags(), cmd.ErrOrStderr(), warnings(cmd.ErrOrStderr()))
	if err != nil {
		return err
	}
	var connection cluster.Connection
	if f.manifests == "" && f.cluster.wanted() {
		if connection, err = f.cluster.connect("", warnings(cmd.ErrOrStderr())); err != nil {
			return err
		}
	}
	plan, err := f.plan(cmd, c)
	if err != nil {
		return err
	}
	if f.cluster.setting != nil {
		name, _ := objectname.Parse(f.cluster.configMap) // which was read under it
		plan = append(plan, cluster.SettingQuery(name))
	}
	grants, err := f.grants(c, kubewatch.Rules(plan, connection.Resource))
	if err != nil {
		return err
	}
	roles, err := rbac.Roles(grants, "compiler", f.name, account)
	if err != nil {
		return err
	}
	_, err = cmd.OutOrStdout().Write(roles)
	return err
}

// plan returns what is watched. Where nothing says which names there are, what is
// read by name is read whole.
func (f *rbacFlags) plan(cmd *cobra.Command, c config.Config) ([]kubewatch.Query, error) {
	if f.manifests == "" && !f.cluster.wanted() {
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

// grants adds what is written to what is read.
func (f *rbacFlags) grants(c config.Config, reading []rbac.Grant) ([]rbac.Grant, error) {
	lease, err := leaseName(f.leader)
	if err != nil {
		return nil, err
	}
	told := c.Namespaces
	if len(told) == 0 {
		told = []string{""}
	}
	more := []rbac.Grant{{Namespace: lease.Namespace, Rules: election.Rules(lease.Name)}}
	for _, namespace := range told {
		more = append(more, rbac.Grant{Namespace: namespace, Rules: announce.Rules(c.IngressStatus.Service != "" || len(c.IngressStatus.Addresses) > 0)})
	}
	if stores.InCluster(f.store) {
		store, err := configmapstore.Parse(f.store)
		if err != nil {
			return nil, process.Usage("--store: %w", err)
		}
		more = append(more, rbac.Grant{Namespace: store.Namespace, Rules: configmapstore.Writing(store.Namespace)})
		if c.Certificates.Mode == config.CompanionCertificates {
			more = append(more, rbac.Grant{Namespace: store.Namespace, Rules: configmapstore.WritingCompanions()})
		}
	}
	if len(c.Namespaces) > 0 && !slices.Contains(c.Namespaces, metav1.NamespaceDefault) {
		// Events on what is in no namespace are there.
		more = append(more, rbac.Grant{Namespace: metav1.NamespaceDefault, Rules: announce.Rules(false)})
	}
	return rbac.Join(reading, more...), nil
}
