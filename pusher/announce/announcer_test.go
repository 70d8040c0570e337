package announce_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/hapsnap/hapsnap/internal/events"
	"github.com/hapsnap/hapsnap/internal/testing/kubetest"
	"github.com/hapsnap/hapsnap/pusher/announce"
)

var cluster kubetest.Shared

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m, &cluster)) }

type world struct {
	*testing.T
	namespace string
	client    kubernetes.Interface
	server    *kubetest.Server
}

func newWorld(t *testing.T) world {
	t.Helper()
	server := cluster.Server(t)
	client, err := kubernetes.NewForConfig(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	return world{T: t, namespace: server.Namespace(t), server: server, client: client}
}

// start runs an announcer until the test ends.
func (w world) start(channel string) *announce.Announcer {
	w.Helper()
	a := announce.New(announce.Options{
		Client: w.client, Namespace: w.namespace, Channel: channel, Instance: "pusher-0",
		Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
	})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); a.Run(ctx) }()
	w.Cleanup(func() { stop(); <-ended })
	return a
}

// awaitEvents waits until there are n Events, and returns them as text.
func (w world) awaitEvents(n int) []string {
	w.Helper()
	deadline, look := time.After(time.Minute), time.NewTicker(10*time.Millisecond)
	defer look.Stop()
	for {
		list, err := w.client.EventsV1().Events(w.namespace).List(w.Context(), metav1.ListOptions{})
		if err != nil {
			w.Fatal(err)
		}
		if len(list.Items) >= n {
			var out []string
			for _, e := range list.Items {
				out = append(out, fmt.Sprintf("%s %s %s %s %v: %s", e.ReportingController, e.Reason, e.Regarding.Kind, e.Regarding.Name, e.Regarding.UID != "", e.Note))
			}
			slices.Sort(out)
			return out
		}
		select {
		case <-deadline:
			w.Fatalf("there are %d Events, not %d", len(list.Items), n)
		case <-look.C:
		}
	}
}

func (w world) channel() {
	w.Helper()
	w.server.Apply(w, fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {namespace: %s, name: shop-channel}}", w.namespace))
}

func about(regarding corev1.ObjectReference, reason, note string) events.Event {
	return events.Event{Regarding: regarding, Action: "Test", Type: corev1.EventTypeNormal, Reason: reason, Note: note}
}

// Events about the fleet are on its channel. They name the channel's object as soon as it exists.
func TestTheFleetIsItsChannel(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.start("shop-channel")
	a.Say(nil, []events.Event{about(corev1.ObjectReference{}, "RolloutBegins", "nobody has said anything in the channel")})
	want := []string{"hapsnap.dev/pusher RolloutBegins ConfigMap shop-channel false: nobody has said anything in the channel"}
	if diff := cmp.Diff(want, w.awaitEvents(1)); diff != "" {
		t.Error(diff)
	}
	w.channel()
	pod := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: w.namespace, Name: "edge-0", UID: "u1"}
	a.Say([]events.Event{about(pod, "InstanceRefused", "too old")}, []events.Event{about(corev1.ObjectReference{}, "RolloutDone", "it runs")})
	want = []string{
		"hapsnap.dev/pusher InstanceRefused Pod edge-0 true: too old", want[0],
		"hapsnap.dev/pusher RolloutDone ConfigMap shop-channel true: it runs",
	}
	if diff := cmp.Diff(want, w.awaitEvents(3)); diff != "" {
		t.Error(diff)
	}
}

// Without a channel object, there are no Events about the fleet. Other Events are written.
func TestWithoutAChannel(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pod := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: w.namespace, Name: "edge-0", UID: "u1"}
	w.start("").Say(nil, []events.Event{about(corev1.ObjectReference{}, "RolloutDone", "it runs"), about(pod, "RepairsStop", "somebody else")})
	want := []string{"hapsnap.dev/pusher RepairsStop Pod edge-0 true: somebody else"}
	if diff := cmp.Diff(want, w.awaitEvents(1)); diff != "" {
		t.Error(diff)
	}
}
