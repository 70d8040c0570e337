package runtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hapsnap/hapsnap/charts/charttest"
	"github.com/hapsnap/hapsnap/internal/testing/eventually"
	"github.com/hapsnap/hapsnap/internal/testing/podtest"
)

// rollOut upgrades to another compiler, which makes another snapshot of the same objects. The snapshot goes to
// one instance first, then to the other. No request fails.
func (r *release) rollOut(t *testing.T, host string) {
	t.Helper()
	fleet := r.names(t, "haproxy")
	begun := time.Now()
	load := r.load(t, host)
	load.Await(t, 200)
	r.values = append(r.values, "--set", "compiler.image.tag=another,compiler.config.maxconn=6000")
	r.apply(t)
	eventually.Holds(t, "the new snapshot is everywhere", func() bool {
		waves := r.waves(t, begun)
		return len(waves) > 0 && waves[len(waves)-1].Message == "rollout done"
	})
	eventually.Holds(t, "the compilers are replaced", func() bool { return r.compilersHave(t, "another") })
	load.Await(t, 200)
	unharmed(t, load)
	var had []string
	for _, w := range r.waves(t, begun) {
		if w.Phase != "pushing" {
			continue
		}
		if w.Wave != len(had)+1 || len(w.Members) != 1 {
			t.Errorf("wave %d goes to %v, after %v", w.Wave, w.Members, had)
		}
		had = append(had, w.Members...)
	}
	slices.Sort(had)
	if len(had) != len(fleet) || !slices.Equal(slices.Compact(had), had) {
		t.Errorf("the waves went to %v, want each of %v once", had, fleet)
	}
	if now := r.names(t, "haproxy"); !slices.Equal(now, fleet) {
		t.Errorf("the fleet was restarted: %v, before %v", now, fleet)
	}
}

// wave is a line of a pusher's log.
type wave struct {
	Time    time.Time
	Message string `json:"msg"`
	Phase   string
	Wave    int
	Members []string
}

// waves returns what the pushers have done since a time.
func (r *release) waves(t *testing.T, since time.Time) (out []wave) {
	t.Helper()
	for _, p := range r.pods(t, "pusher") {
		for line := range strings.Lines(r.kubelet.Log(p, "pusher")) {
			var w wave
			if err := json.Unmarshal([]byte(line), &w); err == nil && w.Time.After(since) && (w.Message == "rollout goes on" || w.Message == "rollout done") {
				out = append(out, w)
			}
		}
	}
	slices.SortFunc(out, func(a, b wave) int { return a.Time.Compare(b.Time) })
	return out
}

// compilersHave reports whether the two remaining pods of the compiler have an image.
func (r *release) compilersHave(t *testing.T, tag string) bool {
	t.Helper()
	pods := r.pods(t, "compiler")
	for _, p := range pods {
		if !strings.HasSuffix(p.Spec.Containers[0].Image, ":"+tag) || !slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}) {
			return false
		}
	}
	return len(pods) == 2 && len(r.names(t, "compiler")) == 2
}

// misconfigure upgrades to another compiler with a value that the chart accepts and the compiler refuses. The
// new pod ends and says why, and the present pods continue to publish. The next upgrade succeeds.
func (r *release) misconfigure(t *testing.T, port string) {
	t.Helper()
	before := r.names(t, "compiler")
	r.apply(t, "--set", "compiler.image.tag=misconfigured,compiler.config.closeSpreadTime=soon")
	said := ""
	eventually.Holds(t, "the new compiler ends with 3 and says why", func() bool {
		for name, p := range r.pods(t, "compiler") {
			for _, c := range p.Status.ContainerStatuses {
				if last := c.LastTerminationState.Terminated; last != nil && !slices.Contains(before, name) && last.ExitCode == 3 {
					r.misconfigured, said = name, last.Message
					return true
				}
			}
		}
		return false
	})
	if !strings.Contains(said, `spec.closeSpreadTime: \"soon\" is not a time`) && !strings.Contains(said, `spec.closeSpreadTime: "soon" is not a time`) {
		t.Errorf("the pod says %q", said)
	}
	for name, p := range r.pods(t, "compiler") {
		if slices.Contains(before, name) && !strings.Contains(r.kubelet.Log(p, "compiler"), "closeSpreadTime") {
			t.Errorf("%s says nothing of the configuration that it does not take", name)
		}
	}
	r.server.Apply(t, tenant("meanwhile", port))
	r.served(t, "meanwhile.example")
	if now := r.names(t, "compiler"); len(now) != len(before)+1 || len(slices.DeleteFunc(now, func(n string) bool { return !slices.Contains(before, n) })) != len(before) {
		t.Errorf("compilers that worked were ended: %v, before %v", now, before)
	}
	r.apply(t, "--set", "compiler.image.tag=corrected")
	eventually.Holds(t, "the compilers are replaced", func() bool { return r.compilersHave(t, "corrected") })
}

// secondRelease is the namespace of another release in the same cluster.
const secondRelease = "second"

// second installs another release with a class of its own. Its fleet is a StatefulSet and then a DaemonSet.
// Neither release serves objects of the other.
func (r *release) second(t *testing.T, port string) {
	t.Helper()
	s := &release{server: r.server, kubelet: r.kubelet, namespace: secondRelease}
	s.values = []string{"--values", charttest.Chart(t) + "/ci/second-release-values.yaml", "--set", "certManager.enabled=false,haproxy.dataplane.existingSecret=,compiler.replicas=1,pusher.replicas=1,nameOverride=,haproxy.minReadySeconds=0,haproxy.kind=StatefulSet"}
	r.server.Apply(t, fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {pod-security.kubernetes.io/enforce: restricted}}}", secondRelease))
	s.apply(t)
	r.server.Apply(t, strings.Replace(tenant("internal", port), "ingressClassName: hapsnap", "ingressClassName: internal", 1))
	s.served(t, "internal.example")
	for _, a := range s.addresses(traffic, "http") {
		if got := status(t, a, "shop.example", "/"); got != http.StatusNotFound {
			t.Errorf("the second release answers %d for the first one's host", got)
		}
	}
	for _, a := range r.addresses(traffic, "http") {
		if got := status(t, a, "internal.example", "/"); got != http.StatusNotFound {
			t.Errorf("the first release answers %d for the second one's host", got)
		}
	}
	if names := s.names(t, "haproxy"); !slices.Equal(names, []string{traffic + "-0", traffic + "-1"}) {
		t.Errorf("the pods of the StatefulSet are %v", names)
	}
	t.Run("the pods of a StatefulSet are replaced", func(t *testing.T) {
		before := s.pods(t, "haproxy")
		load := s.load(t, "internal.example")
		load.Await(t, 100)
		s.apply(t, "--set", "haproxy.podAnnotations.restarted=now")
		eventually.Holds(t, "both pods are new and ready", func() bool {
			now := s.pods(t, "haproxy")
			for name, p := range before {
				if now[name].UID == "" || now[name].UID == p.UID {
					return false
				}
			}
			return len(s.addresses(traffic, "http")) == 2
		})
		load.Await(t, 100)
		unharmed(t, load)
	})
	t.Run("a DaemonSet in its place", func(t *testing.T) {
		load := s.load(t, "internal.example")
		load.Await(t, 100)
		s.apply(t, "--set", "haproxy.kind=DaemonSet")
		eventually.Holds(t, "the pod of the node is ready", func() bool { return len(s.addresses(traffic, "http")) == 3 })
		// Helm and the garbage collector would do this.
		set := &appsv1.StatefulSet{}
		set.Namespace, set.Name = secondRelease, traffic
		if err := s.server.Client().Delete(t.Context(), set); err != nil {
			t.Fatal(err)
		}
		var pods corev1.PodList
		if err := s.server.Client().List(t.Context(), &pods, client.InNamespace(secondRelease), client.MatchingLabels{"app.kubernetes.io/component": "haproxy"}); err != nil {
			t.Fatal(err)
		}
		for _, p := range pods.Items {
			if strings.HasPrefix(p.OwnerReferences[0].Kind, "StatefulSet") {
				s.delete(t, p)
			}
		}
		eventually.Holds(t, "only the pod of the node is left", func() bool {
			return len(s.names(t, "haproxy")) == 1 && len(s.addresses(traffic, "http")) == 1
		})
		load.Await(t, 100)
		unharmed(t, load)
	})
	t.Run("the ports and the network of the node", func(t *testing.T) { s.onNode(t, "internal.example") })
}

// onNode puts the fleet on ports of the node, which two pods cannot share: behind a NodePort, with a port of
// the pod on the node, from a DaemonSet and from a Deployment without a surplus pod, and in the node's network.
// A new pod comes when the old one has gone.
func (r *release) onNode(t *testing.T, host string) {
	t.Helper()
	r.server.Apply(t, fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {pod-security.kubernetes.io/enforce: privileged}}}", r.namespace))
	// Here the end of a pod is short.
	drain := []string{"--set", "haproxy.drain.seconds=5,haproxy.drain.propagationSeconds=1"}
	serves := func(port string) bool {
		return status(t, podtest.Gateway+":"+port, host, "/") == http.StatusOK
	}
	r.apply(t, "--set", "haproxy.kind=DaemonSet,haproxy.service.type=NodePort,haproxy.service.http.nodePort=30080")
	eventually.Holds(t, "a NodePort leads to the fleet", func() bool { return serves("30080") })

	daemons := "haproxy.kind=DaemonSet,"
	single := "haproxy.kind=Deployment,haproxy.replicas=1,"
	for _, c := range []struct{ what, set, port string }{
		{"a DaemonSet", daemons + "haproxy.hostPorts.http=8181", "8181"},
		{"a Deployment", single + "haproxy.hostPorts.http=8181", "8181"},
		{"a Deployment that is restarted", single + "haproxy.hostPorts.http=8181,haproxy.podAnnotations.restarted=again", "8181"},
		{"the network of the node", daemons + "haproxy.hostNetwork=true,compiler.config.http.port=8182,compiler.config.https.port=8183", "8182"},
	} {
		before := r.names(t, "haproxy")
		r.apply(t, append(slices.Clone(drain), "--set", c.set)...)
		r.prune(t, strings.HasPrefix(c.set, daemons))
		eventually.Holds(t, c.what+": another pod serves on port "+c.port+" of the node", func() bool {
			now := r.names(t, "haproxy")
			return len(now) == 1 && !slices.Contains(before, now[0]) && serves(c.port) && len(r.addresses(traffic, "http")) == 1
		})
	}
}

// prune deletes the fleet of the other kind with its pods, as Helm and the garbage collector would.
func (r *release) prune(t *testing.T, daemons bool) {
	t.Helper()
	var other client.Object = &appsv1.DaemonSet{}
	kind := "DaemonSet"
	if daemons {
		other, kind = &appsv1.Deployment{}, "Deployment"
	}
	other.SetNamespace(r.namespace)
	other.SetName(traffic)
	if err := client.IgnoreNotFound(r.server.Client().Delete(t.Context(), other)); err != nil {
		t.Fatal(err)
	}
	for _, p := range r.pods(t, "haproxy") {
		if p.OwnerReferences[0].Kind == kind {
			r.delete(t, p)
		}
	}
}
