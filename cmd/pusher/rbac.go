package main

import (
	"slices"

	"github.com/spf13/cobra"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/internal/rbac"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/configmapstore"
)

// rbacFlags are those of the verb rbac.
type rbacFlags struct {
	store, name, account string
	gc                   bool
}

func rbacCommand() *cobra.Command {
	var f rbacFlags
	cmd := &cobra.Command{
		Use:   "rbac --store configmap:NAMESPACE/NAME",
		Short: "Print the roles that the pusher needs in a cluster",
		Long: `Print the roles by which a service account may do with a store in a cluster what
"pusher run" does, and nothing else: read snapshots and the channel, note in the
channel what failed, and write the status of the fleet. That is also enough for
people to pin, pause and the like. It is not for publishing.

What it takes to have endpoints and certificates from a cluster is not among them:
docs/cluster.md has a role for each namespace of Services.

Creating ConfigMaps cannot be limited to names: whoever may write the channel can add
others, though not change or delete any.`,
		Args: process.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.store, "store", "", "as for run (required)")
	flags.StringVar(&f.name, "name", "hapsnap-pusher", "name of the roles and their bindings")
	flags.StringVar(&f.account, "service-account", "hapsnap/hapsnap-pusher", "service account, as namespace/name, that they are for")
	flags.BoolVar(&f.gc, "gc", false, "also what \"pusher gc\" needs: deleting")
	return cmd
}

func (f *rbacFlags) run(cmd *cobra.Command) error {
	account, err := snapshots.ParseSecretName(f.account)
	if err != nil {
		return process.Usage("--service-account: %w", err)
	}
	namespace, name, err := configmapstore.Parse(f.store)
	if err != nil {
		return process.WithHint(process.Usage("--store: %w", err), "stores elsewhere need no roles")
	}
	roles, err := rbac.Roles([]rbac.Grant{{Namespace: namespace, Rules: storeRules(namespace, name, f.gc)}}, "pusher", f.name, account)
	if err != nil {
		return err
	}
	_, err = cmd.OutOrStdout().Write(roles)
	return err
}

// storeRules returns what a pusher must be allowed to do with a store.
func storeRules(namespace, name string, gc bool) []rbacv1.PolicyRule {
	rules := slices.Concat(configmapstore.Reading(namespace), configmapstore.Channel(name), configmapstore.Status(name))
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
