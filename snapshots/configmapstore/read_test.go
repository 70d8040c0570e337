package configmapstore

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/hapsnap/hapsnap/internal/testing/kubetest"
	"github.com/hapsnap/hapsnap/snapshots/storetest"
)

func always() bool { return true }

func TestFollow(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	s := p.as("reader", Reading(p.namespace))
	changes := storetest.Followed(t, s)
	storetest.Hears(t, changes, "the beginning", always)
	storetest.RunFollowing(t, changes, s, p.open())
}

// While the API server is away, it is asked now and then. When it is back, changes of that time are reported.
func TestFollowThroughARestart(t *testing.T) {
	t.Parallel()
	server := kubetest.Start(t)
	namespace := server.Namespace(t)
	var asked atomic.Int32
	open := func(wrap bool) *Store {
		config := server.Config()
		if wrap {
			config.Wrap(func(next http.RoundTripper) http.RoundTripper {
				return transport(func(r *http.Request) (*http.Response, error) {
					asked.Add(1)
					return next.RoundTrip(r)
				})
			})
		}
		return openAs(t, config, namespace)
	}
	changes := storetest.Followed(t, open(true))
	storetest.Hears(t, changes, "the beginning", always)
	server.Stop(t)
	asked.Store(0)
	away := time.Now()
	server.Resume(t)
	// There are two or three requests in the first second, and later about one in ten seconds.
	if n, most := asked.Load(), 8+int32(time.Since(away)/time.Second); n > most {
		t.Errorf("within %s, an API server that was away was asked %d times", time.Since(away), n)
	}
	storetest.Hears(t, changes, "its return", always)
	select {
	case <-changes:
	default:
	}
	publish(t, open(false), storetest.Draft("a"))
	storetest.Hears(t, changes, "a snapshot", always)
}

func openAs(t *testing.T, config *rest.Config, namespace string) *Store {
	t.Helper()
	s, err := Open(Options{Config: config, Namespace: namespace, Name: "edge"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Readers are notified when a snapshot is complete, and not for each piece before. The pieces of a delivery
// arrive in any order.
func TestIsUnfinished(t *testing.T) {
	t.Parallel()
	object := func(owned bool, labels ...string) *metav1.PartialObjectMetadata {
		o := &metav1.PartialObjectMetadata{}
		o.Labels = map[string]string{partLabel: labels[0]}
		if len(labels) > 1 {
			o.Labels[stateLabel] = labels[1]
		}
		if owned {
			o.OwnerReferences = []metav1.OwnerReference{{Name: "manifest"}}
		}
		return o
	}
	for name, c := range map[string]struct {
		event watch.Event
		want  bool
	}{
		"a manifest that is staged":    {watch.Event{Type: watch.Added, Object: object(false, partManifest, stateStaged)}, true},
		"a manifest that is complete":  {watch.Event{Type: watch.Modified, Object: object(false, partManifest, stateComplete)}, false},
		"a manifest that is delivered": {watch.Event{Type: watch.Added, Object: object(false, partManifest, stateDelivered)}, false},
		"a chunk that is written":      {watch.Event{Type: watch.Added, Object: object(true, partChunk)}, true},
		"a chunk that is delivered":    {watch.Event{Type: watch.Added, Object: object(false, partChunk)}, false},
		"the channel":                  {watch.Event{Type: watch.Modified, Object: object(false, partChannel)}, false},
		"a staged manifest that goes":  {watch.Event{Type: watch.Deleted, Object: object(false, partManifest, stateStaged)}, false},
	} {
		if got := isUnfinished(c.event); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
