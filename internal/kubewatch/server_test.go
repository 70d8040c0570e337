package kubewatch_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hapsnap/hapsnap/internal/kubewatch"
	"github.com/hapsnap/hapsnap/internal/testing/kubetest"
)

// access gives a service account the permissions of a role of its namespace for ConfigMaps, and one Secret.
const access = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: %[1]s}
rules:
- {apiGroups: [""], resources: [%[2]s], verbs: [get, list, watch]}
- {apiGroups: [""], resources: [secrets], resourceNames: [known], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: ServiceAccount, name: reader, namespace: %[1]s}]
`

func object(kind, namespace, name string) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: %s\nmetadata: {name: %s, namespace: %s}\n", kind, name, namespace)
}

// watched holds the watches of a test.
type watched struct {
	*kubewatch.Set
	t *testing.T
}

// await waits until the queries have these states, in the order of the plan: the names of the objects except
// that of the cluster's authority, and the error.
func (w watched) await(what, want string) {
	w.t.Helper()
	tick, end := time.NewTicker(20*time.Millisecond), time.After(2*time.Minute)
	defer tick.Stop()
	for {
		got := w.String()
		if got == want {
			return
		}
		select {
		case <-tick.C:
		case <-end:
			w.t.Fatalf("%s: %q, want %q", what, got, want)
		}
	}
}

func (w watched) String() string {
	var out []string
	w.Read(func(list []kubewatch.QueryState) {
		for _, s := range list {
			var words []string
			for name := range maps.Keys(s.Objects) {
				if name.Name != "kube-root-ca.crt" {
					words = append(words, name.Name)
				}
			}
			slices.Sort(words)
			switch {
			case s.Forbidden():
				words = append(words, "forbidden")
			case s.Err != nil:
				words = append(words, "trouble")
			}
			if !s.Synced {
				words = append(words, "unknown")
			}
			out = append(out, strings.Join(words, " "))
		}
	})
	return strings.Join(out, "; ")
}

// With a real API server, for a namespace and for a single object: objects are held that may not be read, are
// out of reach, or whose watch cannot continue.
func TestHeldWithAnAPIServer(t *testing.T) {
	t.Parallel()
	server := kubetest.Start(t)
	const shop = "default"
	server.Apply(t, fmt.Sprintf(access, shop, "configmaps")+object("ConfigMap", shop, "a")+object("ConfigMap", shop, "b")+object("Secret", shop, "known")+object("Secret", shop, "hidden"))
	config, err := clientcmd.BuildConfigFromFlags("", server.ServiceAccount(t, shop, "reader"))
	if err != nil {
		t.Fatal(err)
	}
	client := kubernetes.NewForConfigOrDie(config).CoreV1()
	w := watched{kubewatch.New(kubewatch.Options{Open: func(_ context.Context, q kubewatch.Query) (kubewatch.Resource, bool, error) {
		if q.Kind == "Secret" {
			return kubewatch.Typed(client.Secrets(q.Namespace)), true, nil
		}
		return kubewatch.Typed(client.ConfigMaps(q.Namespace)), true, nil
	}}), t}
	w.Plan([]kubewatch.Query{
		{APIVersion: "v1", Kind: "ConfigMap", Namespace: shop}, {APIVersion: "v1", Kind: "Secret", Namespace: shop, Name: "hidden"},
		{APIVersion: "v1", Kind: "Secret", Namespace: shop, Name: "known"}, {APIVersion: "v1", Kind: "Secret", Namespace: shop, Name: "none"},
	})
	done := make(chan struct{})
	go func() { w.Run(t.Context(), slog.New(slog.NewTextHandler(t.Output(), nil))); close(done) }()
	t.Cleanup(func() { <-done })
	w.await("at first", "a b; forbidden unknown; known; forbidden unknown")

	server.Apply(t, fmt.Sprintf(access, shop, "services"))
	server.Stop(t) // otherwise a watch would last for minutes
	w.await("the API server is away", "a b trouble; trouble unknown; known trouble; trouble unknown")
	server.Resume(t)
	w.await("ConfigMaps may not be read any more", "a b forbidden; forbidden unknown; known; forbidden unknown")

	server.Delete(t, object("ConfigMap", shop, "a"))
	server.Apply(t, fmt.Sprintf(access, shop, "configmaps")+object("ConfigMap", shop, "c"))
	w.await("they may be read again", "b c; forbidden unknown; known; forbidden unknown")

	server.Expire(t)
	server.Delete(t, object("Secret", shop, "known")+object("ConfigMap", shop, "b"))
	w.await("watches cannot go on", "c; forbidden unknown; ; forbidden unknown")
}
