package pusher

import (
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/observe"
)

// A pod that ends is no instance any more, though it answers while it drains: discovery
// leaves it out. Nothing is written to it, no wave waits for it, and it counts for nothing.
func TestTerminatingPodIsNeitherRepairedNorCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		soak := 6 * time.Second
		world := &settling{dir: t.TempDir(), instances: map[string]*fakeInstance{}, options: Options{Soak: &soak}, unkilled: true}
		killScenario{}.prepare(t, world)
		p := &play{settling: world, t: t}
		p.begin(filepath.Join(world.dir, "pusher"))
		p.settle(p.publish("1"), nothing)

		members, err := fleet.Read(filepath.Join(world.dir, "fleet.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		name := members.Instances[0].Name // the canary of the next rollout
		members.Instances = members.Instances[1:]
		e := <-p.life.engine
		e.inbox.send(FleetRead{Fleet: members})
		pass(time.Minute)
		ends := p.instances[name]
		ends.mu.Lock()
		ends.disk, ends.worker.node = "edited by hand", "somebody-else"
		ends.mu.Unlock()
		before := ends.state()
		delete(p.instances, name)

		p.settle(p.publish("2"), nothing)
		p.life.mu.Lock()
		status := p.life.status
		p.life.mu.Unlock()
		if after := ends.state(); after.reloads != before.reloads || !slices.Equal(after.writes, before.writes) {
			t.Errorf("it was written to: %q", after.writes[len(before.writes):])
		}
		if slices.ContainsFunc(status.Instances, func(i observe.InstanceStatus) bool { return i.Name == name }) || len(status.Instances) != len(members.Instances) {
			t.Errorf("it counts: %+v", status.Instances)
		}
		if c := status.Condition(); c.Phase != observe.Healthy || c.Running != len(members.Instances) || c.Instances != len(members.Instances) {
			t.Errorf("the fleet is %+v", c)
		}
		p.life.end()
	})
}
