package cluster_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hapsnap/hapsnap/internal/kubeconfig"
	"github.com/hapsnap/hapsnap/internal/kubewatch"
	"github.com/hapsnap/hapsnap/internal/testing/kubetest"
	"github.com/hapsnap/hapsnap/pusher/cluster"
	"github.com/hapsnap/hapsnap/snapshots"
)

var shared kubetest.Shared

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m, &shared)) }

// patience bounds every wait: requests that fail are repeated more and more rarely, up to once a minute.
const patience = 3 * time.Minute

// followed is a cluster of a test, with what it reported so far.
type followed struct {
	*cluster.Cluster
	endpoints map[snapshots.ServicePort][]snapshots.Endpoint
	secrets   map[snapshots.SecretName]*corev1.Secret
	status    cluster.Status
	since     []time.Time
}

func follow(t *testing.T, path string, all bool, w cluster.Wanted) *followed {
	t.Helper()
	connection, err := cluster.Connect(kubeconfig.Options{File: path, UserAgent: "test"})
	if err != nil {
		t.Fatal(err)
	}
	f := &followed{
		Cluster: cluster.New(connection, all), endpoints: map[snapshots.ServicePort][]snapshots.Endpoint{},
		secrets: map[snapshots.SecretName]*corev1.Secret{},
	}
	f.run(t)
	f.Want(w)
	return f
}

// run follows the cluster until it is stopped, or the test ends.
func (f *followed) run(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { f.Run(ctx); close(done) }()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

// take adds the changes to what is known.
func (f *followed) take() {
	change := f.Take()
	maps.Copy(f.endpoints, change.Endpoints)
	maps.DeleteFunc(f.endpoints, func(_ snapshots.ServicePort, e []snapshots.Endpoint) bool { return e == nil })
	maps.Copy(f.secrets, change.Secrets)
	maps.DeleteFunc(f.secrets, func(_ snapshots.SecretName, s *corev1.Secret) bool { return s == nil })
	if f.since = append(f.since, change.Since...); change.Status != nil {
		f.status = *change.Status
	}
}

// await takes changes until the known state is as wanted.
func (f *followed) await(t *testing.T, want string) {
	t.Helper()
	f.awaitThat(t, want, func() bool { return f.String() == want })
}

func (f *followed) awaitThat(t *testing.T, what string, is func() bool) {
	t.Helper()
	end := time.After(patience)
	for f.take(); !is(); f.take() {
		select {
		case <-f.Changes():
		case <-end:
			t.Fatalf("%s: still %q, waits for %q, trouble %v", what, f, f.status.Waits, f.status.Trouble)
		}
	}
}

// String lists the endpoints and Secrets, and counts what is still waited for.
func (f *followed) String() string {
	var out []string
	for port, endpoints := range f.endpoints {
		for _, e := range endpoints {
			out = append(out, fmt.Sprintf("%s=%s:%d", port.Service, e.Address, e.Port))
		}
	}
	for name, s := range f.secrets {
		out = append(out, name.Name+"="+string(s.Data["key"]))
	}
	slices.Sort(out)
	if len(f.status.Waits) > 0 {
		out = append(out, fmt.Sprintf("%d more", len(f.status.Waits)))
	}
	return strings.Join(out, " ")
}

func slice(namespace, service, address string) string {
	return fmt.Sprintf(`---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[2]s-x, namespace: %[1]s, labels: {kubernetes.io/service-name: %[2]s}}
addressType: IPv4
ports: [{name: http, port: 80}]
endpoints: [{addresses: ["%[3]s"]}]
`, namespace, service, address)
}

func secret(namespace, name, value string) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: Secret\nmetadata: {name: %s, namespace: %s}\nstringData: {key: %q}\n", name, namespace, value)
}

func wanted(namespace string, secrets ...string) cluster.Wanted {
	w := cluster.Wanted{Namespaces: []string{namespace}}
	for _, name := range secrets {
		w.Secrets = append(w.Secrets, snapshots.SecretName{Namespace: namespace, Name: name})
	}
	return w
}

// The cluster reports what is wanted, and then changes. It never reads other Secrets, and forgets what is no
// longer wanted. The account has only the permissions of the rules.
func TestFollow(t *testing.T) {
	t.Parallel()
	server := shared.Server(t)
	namespace := server.Namespace(t)
	server.Apply(t, slice(namespace, "web", "10.244.0.1")+secret(namespace, "tls", "1")+secret(namespace, "other", "x"))
	w := wanted(namespace, "tls", "later")
	f := follow(t, allowed(t, server, cluster.Plan(w, false)), false, w)
	f.await(t, "tls=1 web=10.244.0.1:80")
	f.awaitThat(t, "what is not there is known", func() bool { return f.status.Knows(w) })
	if f.status.Trouble != nil || len(f.since) > 0 {
		t.Errorf("status %+v, changes at %v", f.status, f.since)
	}
	begun := time.Now()
	server.Apply(t, slice(namespace, "web", "10.244.0.2"))
	f.await(t, "tls=1 web=10.244.0.2:80")
	server.Apply(t, slice(namespace, "api", "10.244.0.3")+secret(namespace, "tls", "2")+secret(namespace, "later", "3"))
	f.await(t, "api=10.244.0.3:80 later=3 tls=2 web=10.244.0.2:80")
	if len(f.since) == 0 || f.since[0].Before(begun.Add(-time.Minute)) {
		t.Errorf("changes at %v, begun at %v", f.since, begun)
	}
	// The API server reports the deletions, so they count.
	server.Delete(t, slice(namespace, "web", "")+slice(namespace, "api", "")+secret(namespace, "later", ""))
	f.await(t, "tls=2")
	f.Want(wanted(namespace))
	f.await(t, "")
	f.Want(w)
	f.await(t, "tls=2")
}

// When it runs again, nothing is known: much time may have passed.
func TestRunsAgain(t *testing.T) {
	t.Parallel()
	server := shared.Server(t)
	namespace := server.Namespace(t)
	server.Apply(t, slice(namespace, "web", "10.244.0.1")+secret(namespace, "tls", "1"))
	w := wanted(namespace, "tls")
	connection, err := cluster.Connect(kubeconfig.Options{File: server.Kubeconfig(), UserAgent: "test"})
	if err != nil {
		t.Fatal(err)
	}
	begin := func(c *cluster.Cluster) (*followed, func()) {
		f := &followed{Cluster: c, endpoints: map[snapshots.ServicePort][]snapshots.Endpoint{}, secrets: map[snapshots.SecretName]*corev1.Secret{}}
		stop := f.run(t)
		f.Want(w)
		return f, stop
	}
	f, stop := begin(cluster.New(connection, false))
	f.await(t, "tls=1 web=10.244.0.1:80")
	stop()
	if change := f.Take(); len(change.Endpoints)+len(change.Secrets) > 0 || change.Status != nil {
		t.Errorf("between the two: %+v", change)
	}
	server.Delete(t, slice(namespace, "web", "10.244.0.1"))
	server.Apply(t, slice(namespace, "api", "10.244.0.2"))
	f, _ = begin(f.Cluster)
	f.await(t, "api=10.244.0.2:80 tls=1")
}

// One watch may be for all namespaces.
func TestFollowAllNamespaces(t *testing.T) {
	t.Parallel()
	server := shared.Server(t)
	one, two := server.Namespace(t), server.Namespace(t)
	server.Apply(t, slice(one, "one", "10.244.0.1")+slice(two, "two", "10.244.0.2"))
	f := follow(t, server.Kubeconfig(), true, wanted(one))
	f.awaitThat(t, "both", func() bool {
		return strings.Contains(f.String(), "one=10.244.0.1:80") && strings.Contains(f.String(), "two=10.244.0.2:80")
	})
	if !f.status.Read(one) || !f.status.Read(two) {
		t.Errorf("status %+v", f.status)
	}
}

// allowed gives the account pusher the permissions for a plan in a namespace, and returns its kubeconfig.
func allowed(t *testing.T, server *kubetest.Server, plan []kubewatch.Query) string {
	t.Helper()
	grants := kubewatch.Rules(plan, func(kubewatch.Query) string { return "" }, nil)
	if len(grants) != 1 {
		t.Fatalf("the plan is for %d namespaces", len(grants))
	}
	return server.Grant(t, grants[0].Namespace, "pusher", grants[0].Rules)
}

// A Secret that may not be read delays nothing, unless none may be read.
func TestForbiddenSecret(t *testing.T) {
	t.Parallel()
	server := shared.Server(t)
	namespace := server.Namespace(t)
	server.Apply(t, slice(namespace, "web", "10.244.0.1")+secret(namespace, "tls", "1")+secret(namespace, "hidden", "2"))
	f := follow(t, allowed(t, server, cluster.Plan(wanted(namespace, "tls"), false)), false, wanted(namespace, "hidden"))
	f.awaitThat(t, "the only Secret is waited for", func() bool {
		return len(f.status.Waits) == 1 && strings.Contains(f.status.Waits[0], "forbidden") && len(f.endpoints) == 1
	})
	f.Want(wanted(namespace, "hidden", "tls"))
	f.await(t, "tls=1 web=10.244.0.1:80")
	f.awaitThat(t, "trouble with the other", func() bool {
		err := f.status.Trouble
		return err != nil && strings.Contains(err.Error(), "Secret "+namespace+"/hidden")
	})
}

// While the API server is gone, the known state is held. When it is back, the changes of that time are known,
// also if watches cannot continue.
func TestServerGoneAndBack(t *testing.T) {
	t.Parallel()
	server := kubetest.Start(t)
	server.Apply(t, slice("default", "web", "10.244.0.1")+slice("default", "api", "10.244.0.2")+secret("default", "tls", "1"))
	f := follow(t, server.Kubeconfig(), false, wanted("default", "tls"))
	const first = "api=10.244.0.2:80 tls=1 web=10.244.0.1:80"
	f.await(t, first)
	server.Stop(t)
	f.awaitThat(t, "trouble", func() bool { return f.status.Trouble != nil })
	if f.String() != first || !f.status.Knows(wanted("default", "tls")) {
		t.Errorf("while the API server is gone: %q", f)
	}
	server.Resume(t)
	server.Apply(t, slice("default", "web", "10.244.0.3")+secret("default", "tls", "2"))
	server.Delete(t, slice("default", "api", ""))
	f.await(t, "tls=2 web=10.244.0.3:80")
	f.awaitThat(t, "no trouble", func() bool { return f.status.Trouble == nil })

	server.Expire(t)
	server.Apply(t, slice("default", "web", "10.244.0.4"))
	f.await(t, "tls=2 web=10.244.0.4:80")
	f.awaitThat(t, "no trouble", func() bool { return f.status.Trouble == nil })
}
