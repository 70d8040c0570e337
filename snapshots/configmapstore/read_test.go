package configmapstore

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/hapsnap/hapsnap/internal/testing/kubetest"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/storetest"
)

// followed has a store followed until the test ends; a value comes after a change.
func followed(t *testing.T, s *Store) <-chan struct{} {
	t.Helper()
	changes, ended := make(chan struct{}, 1), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(ended)
		s.Follow(ctx, func() {
			select {
			case changes <- struct{}{}:
			default:
			}
		})
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return changes
}

// hears waits for changes until something is true.
func hears(t *testing.T, changes <-chan struct{}, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		select {
		case <-changes:
			if ok() {
				return
			}
		case <-deadline:
			t.Fatalf("nothing was heard of %s", what)
		}
	}
}

func always() bool { return true }

// What is published, deleted and said in the channel is heard of, and nothing of
// other stores.
func TestFollow(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	s := p.as("reader", Reading(p.namespace))
	changes := followed(t, s)
	hears(t, changes, "the beginning", always)
	writer := p.open()
	first := publish(t, writer, storetest.Draft("a"))
	second := publish(t, writer, storetest.Draft("b"))
	ids := func() []snapshots.ID {
		ids, err := s.IDs(t.Context())
		if err != nil {
			t.Error(err)
		}
		return ids
	}
	hears(t, changes, "snapshots", func() bool { return len(ids()) == 2 })
	pause := func(c *channel.Channel) error { *c = c.Paused(channel.Pause{By: "ops"}); return nil }
	if err := writer.UpdateChannel(t.Context(), "pause", noon, pause); err != nil {
		t.Fatal(err)
	}
	hears(t, changes, "a pause", func() bool {
		v, err := s.View(t.Context())
		return err == nil && v.Channel.Spec.Pause != nil
	})
	if err := writer.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	hears(t, changes, "a deletion", func() bool { got := ids(); return len(got) == 1 && got[0] == second })
}

// While the API server is away it is asked now and then, and when it is back, what
// came meanwhile is heard of.
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
	changes := followed(t, open(true))
	hears(t, changes, "the beginning", always)
	server.Stop(t)
	asked.Store(0)
	away := time.Now()
	server.Resume(t)
	// Two, three requests in the first second, and then one in ten seconds or so.
	if n, most := asked.Load(), 8+int32(time.Since(away)/time.Second); n > most {
		t.Errorf("within %s, an API server that was away was asked %d times", time.Since(away), n)
	}
	hears(t, changes, "its return", always)
	select {
	case <-changes:
	default:
	}
	publish(t, open(false), storetest.Draft("a"))
	hears(t, changes, "a snapshot", always)
}

func openAs(t *testing.T, config *rest.Config, namespace string) *Store {
	t.Helper()
	s, err := Open(Options{Config: config, Namespace: namespace, Name: "edge"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}
