package kubetest

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// An informer sees what Apply creates, and what Delete deletes.
func TestInformer(t *testing.T) {
	t.Parallel()
	server := cluster.Server(t)
	namespace := server.Namespace(t)
	seen := watchConfigMaps(t, server.Config(), namespace)
	configMap := `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: ` + namespace + `}}`
	server.Apply(t, configMap)
	expect(t, seen, "added a")
	server.Delete(t, configMap)
	expect(t, seen, "deleted a")
}

// After a stop, the server has the same address and content, and an informer continues. While it is stopped,
// nothing answers.
func TestStopAndResume(t *testing.T) {
	t.Parallel()
	server := Start(t)
	namespace := server.Namespace(t)
	seen := watchConfigMaps(t, server.Config(), namespace)
	server.Apply(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: before, namespace: `+namespace+`}}`)
	expect(t, seen, "added before")

	host := server.Config().Host
	server.Stop(t)
	err := server.Client().Get(t.Context(), key(namespace, "before"), &corev1.ConfigMap{})
	if opError := (*net.OpError)(nil); !errors.As(err, &opError) || opError.Op != "dial" {
		t.Errorf("a stopped server answers: %v", err)
	}
	server.Resume(t)
	if server.Config().Host != host {
		t.Errorf("the server moved from %s to %s", host, server.Config().Host)
	}
	if err := server.Client().Get(t.Context(), key(namespace, "before"), &corev1.ConfigMap{}); err != nil {
		t.Error("what was stored is gone:", err)
	}
	server.Apply(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: after, namespace: `+namespace+`}}`)
	expect(t, seen, "added after")
}

// Without Expire, a watch can continue from an earlier version. After Expire, that version is too old, and only
// a new list helps.
func TestExpire(t *testing.T) {
	t.Parallel()
	server := Start(t)
	namespace := server.Namespace(t)
	client := kubernetes.NewForConfigOrDie(server.Config())
	list, err := client.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := watchFrom(t, client, namespace, list.ResourceVersion); err != nil {
		t.Errorf("a watch from a version just seen: %v", err)
	}
	server.Expire(t)
	if err := watchFrom(t, client, namespace, list.ResourceVersion); !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.Errorf("a watch from an expired version: %v, want 410", err)
	}
	seen := watchConfigMaps(t, server.Config(), namespace)
	server.Apply(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: `+namespace+`}}`)
	expect(t, seen, "added a")
}

// A ServiceAccount has exactly the permissions of the rules.
func TestServiceAccount(t *testing.T) {
	t.Parallel()
	server := cluster.Server(t)
	namespace := server.Namespace(t)
	config, err := clientcmd.BuildConfigFromFlags("", server.ServiceAccount(t, namespace, "reader"))
	if err != nil {
		t.Fatal(err)
	}
	client := kubernetes.NewForConfigOrDie(config)
	if _, err := client.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("without a rule: %v, want forbidden", err)
	}
	server.Apply(t, `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: `+namespace+`}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader, namespace: `+namespace+`}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: ServiceAccount, name: reader, namespace: `+namespace+`}]
`)
	await(t, "the rule lets the account list", func() error {
		_, err := client.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{})
		return err
	})
}

// A kind can be used as soon as its definition was applied.
func TestCustomResourceDefinition(t *testing.T) {
	t.Parallel()
	server := cluster.Server(t)
	namespace := server.Namespace(t)
	server.Apply(t, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.kubetest.hapsnap.dev}
spec:
  group: kubetest.hapsnap.dev
  scope: Namespaced
  names: {kind: Widget, plural: widgets, singular: widget}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: kubetest.hapsnap.dev/v1
kind: Widget
metadata: {name: a, namespace: `+namespace+`}
spec: {size: 3}
`)
}

// watchConfigMaps returns what an informer sees in a namespace.
func watchConfigMaps(t *testing.T, config *rest.Config, namespace string) <-chan string {
	t.Helper()
	seen := make(chan string, 10)
	factory := informers.NewSharedInformerFactoryWithOptions(kubernetes.NewForConfigOrDie(config), 0, informers.WithNamespace(namespace))
	informer := factory.Core().V1().ConfigMaps().Informer()
	say := func(what string) func(any) {
		return func(object any) { seen <- what + " " + object.(*corev1.ConfigMap).Name }
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: say("added"), DeleteFunc: say("deleted")}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	factory.StartWithContext(ctx)
	t.Cleanup(func() { cancel(); factory.Shutdown() })
	if !cache.WaitForCacheSync(t.Context().Done(), informer.HasSynced) {
		t.Fatal("the informer did not sync")
	}
	return seen
}

// watchFrom opens a watch from a version. It returns the error that ends the watch at once, if there is one.
func watchFrom(t *testing.T, client kubernetes.Interface, namespace, version string) error {
	t.Helper()
	second := int64(1)
	watch, err := client.CoreV1().ConfigMaps(namespace).Watch(t.Context(), metav1.ListOptions{ResourceVersion: version, TimeoutSeconds: &second})
	if err != nil {
		return err
	}
	defer watch.Stop()
	for event := range watch.ResultChan() {
		if err := apierrors.FromObject(event.Object); event.Type == "ERROR" {
			return err
		}
	}
	return nil
}

// expect waits until an informer sees this.
func expect(t *testing.T, seen <-chan string, want string) {
	t.Helper()
	select {
	case got := <-seen:
		if got != want {
			t.Fatalf("saw %q, want %q", got, want)
		}
	case <-time.After(time.Minute):
		t.Fatalf("%q was not seen", want)
	}
}

// await repeats a check until it holds.
func await(t *testing.T, what string, check func() error) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("%s: %v", what, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
