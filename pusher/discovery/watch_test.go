package discovery

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// Until everything was read, there are no instances. An error says what may not be read.
func TestWhatMayNotBeReadIsSaid(t *testing.T) {
	t.Parallel()
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "dataplane", errors.New("no"))
	client := fake.NewClientset()
	client.PrependReactor("list", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, forbidden })
	client.PrependWatchReactor("secrets", func(clienttesting.Action) (bool, watch.Interface, error) { return true, nil, forbidden })
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	Watch(ctx, client, fleet.Pods{Namespace: "edge", Secret: "dataplane"}, slog.New(slog.DiscardHandler), func(found []fleet.Instance, err error) {
		switch {
		case found != nil || err == nil || !strings.HasPrefix(err.Error(), "the pods in edge were not read yet"):
			t.Errorf("reported %v, %v", found, err)
			stop()
		case strings.Contains(err.Error(), "Secret edge/dataplane (") && strings.Contains(err.Error(), "forbidden"):
			stop()
		}
	})
}

func pod(name, ip string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: name, UID: types.UID("uid-" + name)},
		Spec: corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{
			{Name: "haproxy"}, {Name: "api", Ports: []corev1.ContainerPort{{Name: "dataplane", ContainerPort: 5555}}},
		}},
		Status: corev1.PodStatus{PodIP: ip},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func secret(data map[string]string) *corev1.Secret {
	s := &corev1.Secret{Data: map[string][]byte{}}
	for key, value := range data {
		s.Data[key] = []byte(value)
	}
	return s
}

func spec() fleet.Pods {
	return fleet.Pods{
		Namespace: "edge", Scheme: "https", Port: intstr.FromString("dataplane"),
		Secret: "dataplane", UsernameKey: "username", PasswordKey: "password", ZoneLabel: fleet.DefaultZoneLabel,
		Layout: bind.Layout{Maps: "/m", Certificates: "/c", General: "/g"},
	}
}

func seen(pods ...*corev1.Pod) objects {
	return objects{pods: pods, secrets: map[string]*corev1.Secret{"dataplane": secret(map[string]string{"username": "u", "password": "p"})}}
}

func TestPodsWithAnAddressAreInstances(t *testing.T) {
	t.Parallel()
	now := metav1.NewTime(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	got, err := instances(spec(), seen(
		pod("b", "10.244.0.2", func(p *corev1.Pod) { p.Labels = map[string]string{fleet.DefaultZoneLabel: "east"} }),
		pod("a", "fd00::1"),
		pod("waits for an address", ""),
		pod("terminates", "10.244.0.3", func(p *corev1.Pod) { p.DeletionTimestamp = &now }),
		pod("has ended", "10.244.0.4", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }),
		pod("is done", "10.244.0.5", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
		pod("other", "10.244.0.6", func(p *corev1.Pod) { p.Spec.Containers = p.Spec.Containers[:1] }),
	))
	want := []fleet.Instance{
		{Name: "a", UID: "uid-a", URL: "https://[fd00::1]:5555", Username: "u", Password: "p", Layout: spec().Layout},
		{Name: "b", UID: "uid-b", URL: "https://10.244.0.2:5555", Username: "u", Password: "p", Zone: "east", Layout: spec().Layout},
		{Name: "terminates", UID: "uid-terminates", URL: "https://10.244.0.3:5555", Username: "u", Password: "p", Layout: spec().Layout, Draining: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("instances differ (-want +got):\n%s", diff)
	}
	if err == nil || err.Error() != `pod edge/other has no port "dataplane"` {
		t.Errorf("error is %v", err)
	}
}

// What else leads to a pod is known: its other address, and ports of its node.
func TestWhatElseLeadsToAPod(t *testing.T) {
	t.Parallel()
	got, err := instances(spec(), seen(pod("a", "10.244.0.1", func(p *corev1.Pod) {
		p.Status.PodIPs = []corev1.PodIP{{IP: "10.244.0.1"}, {IP: "fd00::1"}}
		p.Status.HostIP, p.Status.HostIPs = "192.0.2.1", []corev1.HostIP{{IP: "192.0.2.1"}, {IP: "2001:db8::1"}}
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, HostPort: 80}, {Name: "https", ContainerPort: 8443}}
	})))
	if want := "192.0.2.1:80 [2001:db8::1]:80 fd00::1"; err != nil || len(got) != 1 || got[0].Also != want {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestPortsAndZones(t *testing.T) {
	t.Parallel()
	s := spec()
	s.Scheme, s.Port, s.NodeZoneLabel = "http", intstr.FromInt32(5556), "rack"
	o := seen(pod("a", "10.244.0.1"), pod("b", "10.244.0.2", func(p *corev1.Pod) { p.Spec.NodeName = "unknown" }))
	o.nodes = map[string]*corev1.Node{"node-1": {ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"rack": "r7"}}}}
	got, err := instances(s, o)
	if err != nil || len(got) != 2 || got[0].URL != "http://10.244.0.1:5556" || got[0].Zone != "r7" || got[1].Zone != "" {
		t.Errorf("instances are %+v, %v", got, err)
	}
}

// A problem with a Secret changes nothing that is known.
func TestSecretsThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*fleet.Pods, objects)
		want   string
	}{
		"missing":      {func(_ *fleet.Pods, o objects) { delete(o.secrets, "dataplane") }, "there is no Secret edge/dataplane"},
		"no password":  {func(s *fleet.Pods, _ objects) { s.PasswordKey = "pin" }, "there is no pin in Secret edge/dataplane"},
		"no authority": {func(s *fleet.Pods, _ objects) { s.CASecret = "dataplane" }, "there is no ca.crt in Secret edge/dataplane"},
		"bad authority": {func(s *fleet.Pods, o objects) {
			s.CASecret, o.secrets["ca"] = "ca", secret(map[string]string{"ca.crt": "none"})
		}, "the authorities hold no certificate in PEM"},
		"bad certificate": {func(s *fleet.Pods, o objects) {
			s.ClientSecret, o.secrets["tls"] = "tls", secret(map[string]string{"tls.crt": "none", "tls.key": "none"})
		}, "the client certificate cannot be used"},
	}
	for name, test := range tests {
		s, o := spec(), seen(pod("a", "10.244.0.1"))
		test.change(&s, o)
		got, err := instances(s, o)
		if got != nil || err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, %v, want an error with %q", name, got, err, test.want)
		}
	}
}
