package pusher

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

func keeps(text string) func(observe.Status) bool {
	return func(s observe.Status) bool {
		return slices.ContainsFunc(s.Troubles, func(t observe.Trouble) bool { return t.About == observe.AboutKept && strings.Contains(t.Error, text) })
	}
}

// A pusher that starts with a source of nothing changes nothing, whether it remembers the
// endpoints or only sees that the instances run a snapshot of ours.
func TestFailureNoEndpointsAtTheStart(t *testing.T) {
	t.Parallel()
	const service = "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\nspec: {ports: [{name: http, port: 80}]}\n"
	for name, c := range map[string]struct {
		stateLost bool
		files     string // what the directory has
	}{
		"an empty directory":                {},
		"an empty directory and no state":   {stateLost: true},
		"a Service without slices":          {files: service},
		"a Service without slices no state": {files: service, stateLost: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, dataplanetest.V32, "a")
			one := echo(t, "one")
			r.endpoints(one)
			id := r.publish(config("1", ""))
			r.allRunAfter(id)
			r.kill()
			r.write("live/endpoints.yaml", c.files)
			if c.stateLost {
				if err := os.Remove(r.options.State); err != nil {
					t.Fatal(err)
				}
			}
			writes, pushes := r.writes("a"), r.pushes("a")
			r.run()
			said := keeps("not one EndpointSlice is there")
			r.until("it is said, and the fleet Degraded", func(s observe.Status) bool { return said(s) && s.Condition().Phase == observe.Degraded })
			next := r.publish(config("2", ""))
			r.until("the next snapshot is known", func(s observe.Status) bool { return s.Channel.Wanted == next })
			// A pusher with another state says on the instance that it leads; no more is written.
			if !r.answersOnly("a", "one") || r.pushes("a") != pushes || !c.stateLost && r.writes("a") != writes {
				t.Error("a was changed")
			}
			r.endpoints(one)
			r.allRun(next)
			if !r.answersOnly("a", "one") || keeps("")(r.seen()) {
				t.Errorf("after the slices came back: %+v", r.seen().Troubles)
			}
		})
	}
}

// A fleet that never had endpoints is no reason to wait.
func TestNoEndpointsAtAll(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V32, "a")
	r.allRunAfter(r.publish(config("1", "")))
	r.kill()
	r.run()
	r.allRun(r.publish(config("2", "")))
}

// What is kept is kept over restarts, until a person says that it is gone: that, and not
// what is kept at another time.
func TestFailureEndpointsGoneAndConfirmed(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V34, "a")
	r.endpoints(echo(t, "one"))
	r.endpointsOf("other", "live/other.yaml", echo(t, "other"))
	id := r.publish(config("1", ""))
	r.allRunAfter(id)
	if err := os.Remove(filepath.Join(r.dir, "live", "endpoints.yaml")); err != nil {
		t.Fatal(err)
	}
	r.until("it is kept", keeps("the endpoints of shop/web:http are gone from their source (1 in all)"))
	r.kill()
	r.run()
	s := r.until("it is still kept", func(s observe.Status) bool {
		return keeps("the endpoints of shop/web:http are gone")(s) && statusOf(s, "a").InSync
	})
	if !r.answersOnly("a", "one") || s.Kept == nil || s.Kept.Count != 1 {
		t.Fatalf("a lost its endpoint; kept is %+v", s.Kept)
	}
	confirm := func(loss string) {
		r.channel(func(c channel.Channel) channel.Channel {
			return c.Confirmed(channel.Confirmation{Loss: loss, By: "ann"})
		})
	}
	confirm("00000000")
	next := r.publish(config("2", "")) // which is seen with the channel
	r.allRun(next)
	if !r.answersOnly("a", "one") {
		t.Fatal("a lost its endpoint for what another loss was confirmed")
	}
	confirm(s.Kept.Loss)
	r.until("it is confirmed", func(s observe.Status) bool { return s.Kept == nil && !keeps("")(s) && statusOf(s, "a").InSync })
	eventually(t, "a has no endpoint", func() bool { return !r.answers("a", "one") })
}
