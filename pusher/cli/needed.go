package cli

import (
	"fmt"
	"maps"
	"slices"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/hapsnap/hapsnap/internal/events"
	"github.com/hapsnap/hapsnap/internal/rbac"
	"github.com/hapsnap/hapsnap/pusher"
	"github.com/hapsnap/hapsnap/pusher/cluster"
	"github.com/hapsnap/hapsnap/snapshots"
)

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

// namespaces are those of the Secrets, on which Events are written.
func (n *needed) namespaces() []string {
	var out []string
	for _, s := range n.Secrets {
		out = append(out, s.Namespace)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// runnable returns the newest snapshots, as many as are asked for, and those that the
// channel names.
func runnable(view snapshots.View, newest int) []snapshots.ID {
	out := slices.Clone(view.IDs[max(0, len(view.IDs)-newest):])
	for id := range snapshots.Named(view, time.Now()) {
		if slices.Contains(view.IDs, id) {
			out = append(out, id)
		}
	}
	slices.SortFunc(out, snapshots.ID.Compare)
	return slices.Compact(out)
}

// told returns rules by namespace as grants, with Events in some of the namespaces.
func told(rules map[string][]rbacv1.PolicyRule, namespaces []string) []rbac.Grant {
	var out []rbac.Grant
	for _, namespace := range slices.Sorted(maps.Keys(rules)) {
		out = append(out, rbac.Grant{Namespace: namespace, Rules: rules[namespace]})
	}
	for _, namespace := range namespaces {
		out = append(out, rbac.Grant{Namespace: namespace, Rules: events.Rules()})
	}
	return out
}
