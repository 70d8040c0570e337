package cluster_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hapsnap/hapsnap/compiler/cluster"
	"github.com/hapsnap/hapsnap/compiler/config/kinds"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/internal/testing/kubetest"
)

// While the API server is gone, the known objects are held. When it is back, the changes of that time are
// known.
func TestServerGoneAndBack(t *testing.T) {
	t.Parallel()
	server := kubetest.Start(t)
	server.Apply(t, service("default", "a")+service("default", "b")+secret("default", "s", "1"))
	f := follow(t, server.Kubeconfig(), in("default"))
	f.await(t, "start", func(_ inputs.Inputs, err error) bool { return err == nil })
	f.Complete(named("default", "s"))
	known := holds("Secret s", "Service a", "Service b", "Service kubernetes")
	f.await(t, "all", known)
	server.Stop(t)
	f.awaitTrouble(t, "Services in default")
	if g, err := f.Read(t.Context(), f.config); !known(g.Objects, err) {
		t.Errorf("while the API server is gone: %v, %v", refs(g.Objects), err)
	}
	server.Resume(t)
	server.Delete(t, service("default", "b"))
	server.Apply(t, service("default", "c")+secret("default", "s", "2"))
	f.await(t, "back", func(in inputs.Inputs, err error) bool {
		return holds("Secret s", "Service a", "Service c", "Service kubernetes")(in, err) && string(in.Secrets[0].Value.Data["key"]) == "2"
	})
	f.awaitNoTrouble(t)
}

// awaitTrouble waits until it is known that a watch has failed.
func (f *followed) awaitTrouble(t *testing.T, query string) cluster.Trouble {
	t.Helper()
	var out cluster.Trouble
	f.poll(t, "trouble with "+query, func() bool {
		for _, trouble := range f.Troubles() {
			if trouble.Query.String() == query {
				out = trouble
				return true
			}
		}
		return false
	})
	return out
}

func (f *followed) awaitNoTrouble(t *testing.T) {
	t.Helper()
	f.poll(t, "no trouble", func() bool { return len(f.Troubles()) == 0 })
}

// poll waits for a condition that no change signals.
func (f *followed) poll(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	end := time.After(patience)
	for !is() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("%s: %v", what, f.Troubles())
		}
	}
}

// A watch that cannot continue (410) begins anew. No change in between is missed, and nothing looks deleted
// meanwhile.
func TestWatchExpired(t *testing.T) {
	t.Parallel()
	server := kubetest.Start(t)
	server.Apply(t, service("default", "a")+service("default", "b"))
	f := follow(t, server.Kubeconfig(), in("default"))
	f.await(t, "start", holds("Service a", "Service b", "Service kubernetes"))
	server.Expire(t)
	// In this order there are never fewer than three objects, whenever the list is made.
	server.Apply(t, service("default", "c"))
	server.Delete(t, service("default", "a"))
	f.await(t, "expired", func(in inputs.Inputs, err error) bool {
		if err != nil || len(in.Services) < 3 {
			t.Errorf("meanwhile: %v, %v", refs(in), err)
		}
		return holds("Service b", "Service c", "Service kubernetes")(in, err)
	})
}

const widgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]s.test.example}
spec:
  group: test.example
  scope: Namespaced
  names: {kind: %[2]s, plural: %[1]s}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

func widget(kind, namespace, name, host string) string {
	return fmt.Sprintf("---\napiVersion: test.example/v1\nkind: %s\nmetadata: {name: %s, namespace: %s}\nspec: {host: %s, notes: long}\n", kind, name, namespace, host)
}

// Nothing waits for an optional kind. It is read once it is defined. For other kinds, everything waits.
func TestKindThatComesLater(t *testing.T) {
	t.Parallel()
	server := shared.Server(t)
	namespace := server.Namespace(t)
	server.Apply(t, service(namespace, "web"))
	c := in(namespace)
	c.Kinds = []kinds.Kind{{APIVersion: "test.example/v1", Kind: "Later", Namespaces: []string{namespace}, Drop: []string{"spec.notes"}}}
	required := follow(t, server.Kubeconfig(), c)
	required.await(t, "the kind is said to be missing", func(_ inputs.Inputs, err error) bool {
		return err != nil && strings.Contains(err.Error(), "does not know Later of test.example/v1")
	})
	c.Kinds = []kinds.Kind{c.Kinds[0]}
	c.Kinds[0].Optional = true
	optional := follow(t, server.Kubeconfig(), c)
	optional.await(t, "without the kind", holds("Service web"))
	server.Apply(t, fmt.Sprintf(widgets, "laters", "Later"))
	server.Apply(t, widget("Later", namespace, "w", "a.example"))
	for _, f := range []*followed{required, optional} {
		got := f.await(t, "with the kind", holds("Later w", "Service web"))
		content := got.Others[0].Value
		if host, _, _ := unstructured.NestedString(content.Object, "spec", "host"); host != "a.example" {
			t.Errorf("read %v", content.Object)
		}
		if _, kept, _ := unstructured.NestedString(content.Object, "spec", "notes"); kept || content.GetManagedFields() != nil {
			t.Errorf("what is to be dropped is kept: %v", content.Object)
		}
	}
}

// While another configuration is prepared, what the present one asks for is read, and nothing else. Once all is known, it is
// read at once.
func TestPrepare(t *testing.T) {
	t.Parallel()
	server := shared.Server(t)
	namespace, added := server.Namespace(t), server.Namespace(t)
	server.Apply(t, service(namespace, "web")+service(added, "more")+secret(namespace, "used", "a"))
	f := follow(t, server.Kubeconfig(), in(namespace))
	f.await(t, "start", holds("Service web"))
	f.Complete(named(namespace, "used"))
	next := in(namespace)
	next.Namespaces = append(next.Namespaces, added)
	next.Kinds = []kinds.Kind{{APIVersion: "test.example/v1", Kind: "Prepared", Namespaces: []string{namespace}}}
	prepared := func(wanted func(error) bool) func(inputs.Inputs, error) bool {
		return func(in inputs.Inputs, err error) bool {
			if err != nil && !strings.Contains(err.Error(), "Secret") || len(in.Services) > 1 {
				t.Errorf("meanwhile %v, %v", refs(in), err)
			}
			return wanted(f.Prepare(&next)) && holds("Secret used", "Service web")(f.read(t))
		}
	}
	f.await(t, "the kind is said to be missing", prepared(func(err error) bool {
		return errors.Is(err, inputs.ErrIncomplete) && strings.Contains(err.Error(), "does not know Prepared of test.example/v1") && !strings.Contains(err.Error(), ",")
	}))
	if !f.Complete(named(namespace, "used")) {
		t.Error("a compile is not complete")
	}
	server.Apply(t, fmt.Sprintf(widgets, "prepareds", "Prepared"))
	server.Apply(t, widget("Prepared", namespace, "w", "a.example"))
	f.await(t, "with the kind", prepared(func(err error) bool { return err == nil }))
	f.config = next
	if got, err := f.read(t); err != nil || len(got.Services) != 2 {
		t.Errorf("once it is prepared, it has %v, %v", refs(got), err)
	}
	f.await(t, "the object", holds("Prepared w", "Secret used", "Service more", "Service web"))
	// What was prepared and is not wanted any more is not watched.
	other := in(namespace)
	other.Kinds = []kinds.Kind{{APIVersion: "test.example/v1", Kind: "Never"}}
	if err := f.Prepare(&other); !errors.Is(err, inputs.ErrIncomplete) {
		t.Errorf("it is prepared: %v", err)
	}
	if err := f.Prepare(nil); err != nil || strings.Contains(fmt.Sprint(f.Troubles()), "Never") {
		t.Errorf("%v, %v", err, f.Troubles())
	}
}

// When a definition is deleted, its objects go one by one, as the API server reports it. Nothing else is lost,
// and the kind is read again when it is back.
func TestDefinitionDeleted(t *testing.T) {
	t.Parallel()
	server := shared.Server(t)
	namespace := server.Namespace(t)
	definition := fmt.Sprintf(widgets, "goners", "Goner")
	server.Apply(t, definition)
	server.Apply(t, service(namespace, "web")+widget("Goner", namespace, "w", "a.example"))
	c := in(namespace)
	c.Kinds = []kinds.Kind{{APIVersion: "test.example/v1", Kind: "Goner", Namespaces: []string{namespace}}}
	f := follow(t, server.Kubeconfig(), c)
	f.await(t, "start", holds("Goner w", "Service web"))
	server.Delete(t, definition)
	f.await(t, "deleted", holds("Service web"))
	f.awaitTrouble(t, "Goners in "+namespace)
	server.Apply(t, service(namespace, "new"))
	f.await(t, "the others go on", holds("Service new", "Service web"))
	server.Apply(t, definition)
	server.Apply(t, widget("Goner", namespace, "back", "b.example"))
	f.await(t, "back", holds("Goner back", "Service new", "Service web"))
	f.awaitNoTrouble(t)
}

// access lets a service account read Services, IngressClasses and Ingresses.
const access = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: %[1]s}
rules:
- {apiGroups: [""], resources: [services], verbs: [get, list, watch]}
- {apiGroups: [networking.k8s.io], resources: [ingresses, ingressclasses], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %[1]s}
subjects: [{kind: ServiceAccount, name: compiler, namespace: %[1]s}]
`

// A single Secret that may not be read delays nothing. If none may be read, everything waits.
func TestForbidden(t *testing.T) {
	t.Parallel()
	server := shared.Server(t)
	namespace := server.Namespace(t)
	server.Apply(t, fmt.Sprintf(access, namespace)+service(namespace, "web")+ingress(namespace, "web"))
	f := follow(t, server.ServiceAccount(t, namespace, "compiler"), in(namespace))
	f.await(t, "start", holds("Ingress web", "Service web"))
	f.Complete(named(namespace, "forbidden"))
	f.await(t, "a Secret that may not be read", holds("Ingress web", "Service web"))
	trouble := f.awaitTrouble(t, "Secret "+namespace+"/forbidden")
	if !strings.Contains(trouble.Err.Error(), "forbidden") {
		t.Errorf("the trouble is %v", trouble.Err)
	}
	f.await(t, "that it is not known whether it exists", func(in inputs.Inputs, err error) bool {
		return err == nil && slices.Equal(in.Unread, []diag.Object{{Kind: "Secret", Namespace: namespace, Name: "forbidden"}})
	})
	f.config.Secrets = kinds.Watched{Watch: kinds.WatchAll}
	f.await(t, "all Secrets", func(_ inputs.Inputs, err error) bool {
		return err != nil && strings.Contains(err.Error(), "Secrets in "+namespace) && strings.Contains(err.Error(), "forbidden")
	})
}
