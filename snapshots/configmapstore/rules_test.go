package configmapstore

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/storetest"
)

// as opens the store as a service account that may do what the rules say.
func (p *place) as(name string, rules []rbacv1.PolicyRule) *Store {
	p.Helper()
	meta := metav1.ObjectMeta{Namespace: p.namespace, Name: name}
	kubeconfig := cluster.Server(p.T).ServiceAccount(p.T, p.namespace, name)
	for _, err := range []error{
		p.client.Create(p.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: rules}),
		p.client.Create(p.Context(), &rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: p.namespace, Name: name}},
		}),
	} {
		if err != nil {
			p.Fatal(err)
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		p.Fatal(err)
	}
	s, err := Open(Options{Config: config, Namespace: p.namespace, Name: "edge"})
	if err != nil {
		p.Fatal(err)
	}
	return s
}

// The rules are enough, and none of them is for more than its verb.
func TestRules(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	reader := p.as("reader", Reading(p.namespace))
	writer := p.as("writer", Writing(p.namespace))
	person := p.as("person", slices.Concat(Reading(p.namespace), Channel("edge")))
	if v, err := reader.View(t.Context()); err != nil || len(v.IDs) != 0 { // also of an empty store
		t.Errorf("view: %v, %v", v, err)
	}
	first := publish(t, writer, storetest.Draft("a"))
	publish(t, writer, storetest.Draft("b"))
	if _, err := reader.Get(t.Context(), first); err != nil {
		t.Error(err)
	}
	approve := func(id snapshots.ID) error {
		return person.UpdateChannel(t.Context(), "approve", noon, func(c *snapshots.Channel) error { *c = c.Approve(id); return nil })
	}
	if err := approve(first); err != nil { // makes it
		t.Error(err)
	}
	if err := approve(snapshots.ID{Revision: 2, Short: first.Short}); err != nil { // changes it
		t.Error(err)
	}
	if err := reader.Delete(t.Context(), first); !apierrors.IsForbidden(err) {
		t.Errorf("a reader deletes: %v", err)
	}
	if err := writer.Delete(t.Context(), first); err != nil {
		t.Error(err)
	}
	if _, _, err := person.Publish(t.Context(), storetest.Draft("c")); err == nil {
		t.Error("who may change the channel can publish")
	}
}
