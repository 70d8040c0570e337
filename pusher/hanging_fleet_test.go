package pusher

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hapsnap/hapsnap/pusher/binding"

	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
)

// Three of ten instances hang, in the middle of the waves: they take
// connections and answer nothing. The others come to their ends within their waves, and
// neither goroutines nor memory grow with the time that it lasts. When they answer again,
// they get what the fleet runs.
//
// It is not parallel: goroutines and bytes are counted of the whole process.
func TestManyInstancesHang(t *testing.T) {
	const all, everyThird = 30, 3 // with 1,000 it is the same, and takes eight minutes
	w := &settling{dir: t.TempDir(), instances: map[string]*fakeInstance{}, unkilled: true}
	soak := 30 * time.Second
	w.options = Options{Soak: &soak, PollInterval: 30 * time.Second, InspectInterval: time.Hour}
	synctest.Test(t, func(t *testing.T) {
		w.live = liveWith(binding.Objects{Slices: 1}, "10.0.0.1")
		w.live.Certificates = map[snapshots.SecretName][]byte{webTLS: newPEM(t)}
		hanging := w.largeFleet(t, all, everyThird)
		p := &play{settling: w, t: t}
		p.begin(filepath.Join(w.dir, "pusher"))
		first := p.publish("1")
		p.runs("all run the first", first, all)
		before := goroutines()

		second := p.publish("2")
		for n := 0; p.count(second) == 0; n++ {
			if pass(look); n > 1000 {
				t.Fatal("no canary")
			}
		}
		for _, i := range hanging {
			i.hangs.Store(true)
		}
		began := time.Now()
		p.runs("the others run the second", second, all-len(hanging))
		took := time.Since(began)
		most, settled := goroutines(), heap()
		for range 10 { // they go on hanging
			pass(time.Minute)
			most = max(most, goroutines())
		}
		grown := heap()
		t.Logf("%d of %d hang: the others took %s; %d goroutines before, %d at most; heap %d and %d MB",
			len(hanging), all, took, before, most, settled>>20, grown>>20)
		// Of each wave the instances that hang may use up the deadline, and no more.
		if limit := 2*w.deadline() + 10*time.Minute; took > limit {
			t.Errorf("it took %s, want no more than %s", took, limit)
		}
		// One asks, one may have a job, and each has a request under way with some of its own.
		if most > before+8*len(hanging) {
			t.Errorf("%d goroutines, and %d before", most, before)
		}
		if grown > settled+settled/4+(8<<20) {
			t.Errorf("the heap grows from %d to %d bytes", settled, grown)
		}
		if s := p.life.seen(); len(s.Rejected) > 0 || s.Good != second {
			t.Errorf("good is %s, rejected %+v", s.Good, s.Rejected)
		}
		for _, i := range hanging {
			i.hangs.Store(false)
		}
		p.runs("all run the second", second, all)
		p.life.end()
	})
}

// largeFleet makes instances, and returns every so many of them.
func (s *settling) largeFleet(t *testing.T, n, every int) (some []*fakeInstance) {
	t.Helper()
	var file strings.Builder
	file.WriteString("apiVersion: hapsnap.dev/v1alpha1\nkind: Fleet\nmetadata: {name: edge}\nspec:\n  rollout: {waves: ['1', 25%, 100%]}\n  instances:\n")
	for i := range n {
		name := fmt.Sprintf("edge-%04d", i)
		s.instances[name] = newFakeInstance(name, "v3.4.2")
		if i%every == 1 && len(some) < 3*n/10 {
			some = append(some, s.instances[name])
		}
		fmt.Fprintf(&file, "  - {name: %s, url: 'http://%s.test', username: u, password: p, "+
			"directories: {maps: /etc/haproxy/maps, certificates: /etc/haproxy/ssl, general: /etc/haproxy/general}}\n", name, name)
	}
	for _, folder := range []string{"store", "pusher"} {
		if err := os.MkdirAll(filepath.Join(s.dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(s.dir, "fleet.yaml"), []byte(file.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return some
}

// deadline is that of a wave.
func (s *settling) deadline() time.Duration { return rollout.DefaultPolicy().Deadline }

// count returns how many workers name a snapshot.
func (p *play) count(id snapshots.ID) (n int) {
	for _, i := range p.instances {
		i.mu.Lock()
		if strings.HasPrefix(i.worker.node, id.String()) {
			n++
		}
		i.mu.Unlock()
	}
	return n
}

// runs waits until so many instances run a snapshot, and the rollout is over.
func (p *play) runs(what string, id snapshots.ID, want int) {
	p.t.Helper()
	for began := time.Now(); p.count(id) < want || p.life.seen().Rollout != nil || p.life.seen().Good != id; pass(look) {
		if time.Since(began) > 2*time.Hour {
			s := p.life.seen()
			p.t.Fatalf("%s: %d do, want %d; the rollout is %+v, good is %s, rejected %+v, troubles %+v", what, p.count(id), want, s.Rollout, s.Good, s.Rejected, s.Troubles)
		}
	}
}

func goroutines() int { return runtime.NumGoroutine() }

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
