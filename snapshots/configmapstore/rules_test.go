package configmapstore

import (
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
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
		return person.UpdateChannel(t.Context(), "approve", noon, func(c *channel.Channel) error { *c = c.Approve(id); return nil })
	}
	if err := approve(first); err != nil {
		t.Error(err)
	}
	pusher := p.as("pusher", slices.Concat(Reading(p.namespace), Channel("edge"), Status("edge")))
	if err := pusher.SetStatus(t.Context(), map[string]string{"phase": "Healthy"}); err != nil {
		t.Error(err)
	}
	// None of them may make ConfigMaps, so none can make what looks like a snapshot.
	for _, s := range []*Store{person, pusher} {
		if _, err := s.create(t.Context(), newChannel("other", map[string]string{noteKey: "x"})); !apierrors.IsForbidden(err) {
			t.Errorf("a ConfigMap was made: %v", err)
		}
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

// Where the channel and the status are not there, who may only change them is told.
func TestRulesWithoutChannel(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	pusher := p.as("pusher", slices.Concat(Reading(p.namespace), Channel("edge"), Status("edge")))
	edit := func(c *channel.Channel) error {
		*c = c.Approve(snapshots.ID{Revision: 1, Short: "0123456789"})
		return nil
	}
	err := pusher.UpdateChannel(t.Context(), "approve", noon, edit)
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "edge-channel is not there") || !strings.Contains(process.Hint(err), "pusher rbac --create") {
		t.Errorf("channel: %v, hint %q", err, process.Hint(err))
	}
	err = pusher.SetStatus(t.Context(), map[string]string{"phase": "Healthy"})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "edge-status is not there") {
		t.Errorf("status: %v", err)
	}
	maker := p.as("maker", slices.Concat(Reading(p.namespace), Channel("edge"), Status("edge"), Creating()))
	if err := maker.UpdateChannel(t.Context(), "approve", noon, edit); err != nil {
		t.Error(err)
	}
	if err := maker.SetStatus(t.Context(), map[string]string{"phase": "Healthy"}); err != nil {
		t.Error(err)
	}
}
