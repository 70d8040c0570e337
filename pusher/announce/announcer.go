// Package announce reports to a cluster what happens to a fleet, as Events: on the pods
// that are its instances, on Secrets that cannot be used, and, if the store is in the
// cluster, on the ConfigMap of its channel, which stands for the fleet as a whole.
//
// Package observe decides what to report. The pusher never waits for this package.
package announce

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/hapsnap/hapsnap/internal/events"
)

// timeout is how long the API server may take to say which object it is.
const timeout = 10 * time.Second

// Options are those of an [Announcer].
type Options struct {
	Client kubernetes.Interface
	// Namespace and Channel name the ConfigMap that stands for the fleet. With "" Events about the fleet
	// are dropped.
	Namespace, Channel string
	Instance           string // this process
	Log                *slog.Logger
	Metrics            prometheus.Registerer
}

// Announcer makes Events on objects. Several goroutines may use it.
type Announcer struct {
	options  Options
	recorder *events.Recorder
	loop     *events.Loop

	mu            sync.Mutex
	news          bool // Say was called
	lasting, once []events.Event
	fleet         corev1.ObjectReference // complete once it has a UID
}

// New returns an announcer. It makes no Events until Run is called.
func New(o Options) *Announcer {
	a := &Announcer{options: o}
	getter := events.Options{Program: "pusher", Leader: events.Always{}, Instance: o.Instance, Log: o.Log, Metrics: o.Metrics}
	if o.Client != nil {
		getter.Events = o.Client.EventsV1()
	}
	a.recorder = events.New(getter)
	a.loop = events.NewLoop("what events are about", events.Always{}, o.Log, a.pass)
	if o.Channel != "" {
		a.fleet = corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: o.Namespace, Name: o.Channel}
	}
	return a
}

// Say replaces the lasting Events, and adds those of what has happened once. Events without an object
// are about the fleet. Say waits for nothing.
func (a *Announcer) Say(lasting, once []events.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.news, a.lasting, a.once = true, lasting, append(a.once, once...)
	a.loop.Kick()
}

// Run makes Events until ctx is done.
func (a *Announcer) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { a.recorder.Run(ctx) })
	a.loop.Run(ctx)
	running.Wait()
}

// pass hands over the Events, once the object that stands for the fleet is known.
func (a *Announcer) pass(ctx context.Context) (bool, error) {
	if err := a.identify(ctx); err != nil {
		return false, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.news {
		return false, nil
	}
	a.recorder.Say(a.about(a.lasting), a.about(a.once), time.Now())
	a.news, a.once = false, nil
	return false, nil
}

// about fills in the fleet's object. If there is none, it drops Events about the fleet.
func (a *Announcer) about(said []events.Event) []events.Event {
	var out []events.Event
	for _, e := range said {
		if e.Regarding.Name == "" {
			e.Regarding = a.fleet
		}
		if e.Regarding.Name != "" {
			out = append(out, e)
		}
	}
	return out
}

// identify finds out the UID of the fleet's object, with which Events are shown on it. A channel in
// which nobody has said anything does not exist yet, and has no UID.
func (a *Announcer) identify(ctx context.Context) error {
	a.mu.Lock()
	fleet := a.fleet
	a.mu.Unlock()
	if fleet.Name == "" || fleet.UID != "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	o, err := a.options.Client.CoreV1().ConfigMaps(fleet.Namespace).Get(ctx, fleet.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read ConfigMap %s/%s: %w", fleet.Namespace, fleet.Name, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fleet.UID = o.UID
	return nil
}
