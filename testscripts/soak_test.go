package testscripts

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/dirstore"
)

// The size of a soak test, and how long a round may take to settle. A call that hangs is given up after 90
// seconds.
const (
	soakInstances = 3
	soakPods      = 16
	soakPatience  = 4 * time.Minute
	soakPause     = 400 * time.Millisecond // at most, between two actions
)

// soak is a fleet under load with random actions. In each round, a few overlap. Then the faults end, and
// everything has to be as it should be.
type soak struct {
	t      *testing.T
	w      *world
	random *rand.Rand
	store  *dirstore.Store
	load   *soakLoad
	pods   []*soakPod
	// endpoints are the pods of each Service, by their numbers.
	endpoints map[string][]int
	version   int            // of the manifests
	ran       []snapshots.ID // all instances have run them
	story     []string
	done      map[string]int
}

// TestSoak is a short soak test with a fixed seed. `make soak` runs longer ones with any seed. At the end of
// each round, every instance runs what the channel says, with today's servers and certificate. Requests may
// fail only on an instance that is being restarted.
func TestSoak(t *testing.T) {
	t.Parallel()
	duration, seed := soakSize(t)
	t.Logf("SEED=%d DURATION=%s", seed, duration)
	s := newSoak(t, seed)
	end := time.Now().Add(duration)
	rounds := 0
	for ; rounds == 0 || time.Now().Before(end); rounds++ {
		s.round(rounds + 1)
	}
	s.persist()
	good, excused := s.load.stop()
	t.Logf("%d rounds, %d requests, of which %d failed on instances being restarted; %v", rounds, good+excused, excused, s.done)
}

// soakSize returns the duration and the seed. The same seed gives the same actions, but not the same timing.
func soakSize(t *testing.T) (time.Duration, uint64) {
	t.Helper()
	long, text := os.Getenv("DURATION") != "", os.Getenv("SEED")
	duration, err := time.ParseDuration(cmp.Or(os.Getenv("DURATION"), "2s"))
	if err != nil {
		t.Fatal(err)
	}
	if text == "" && long {
		return duration, rand.Uint64N(1_000_000)
	}
	seed, err := strconv.ParseUint(cmp.Or(text, "1"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return duration, seed
}

func newSoak(t *testing.T, seed uint64) *soak {
	t.Helper()
	w, err := newWorld(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := &soak{
		t: t, w: w, random: rand.New(rand.NewPCG(seed, 0)), endpoints: map[string][]int{}, done: map[string]int{},
		store: dirstore.Open(filepath.Join(w.dir, "store"), dirstore.Options{}),
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("what happened, SEED=%d:\n%s%s", seed, strings.Join(s.story, "\n"), w.logs())
		}
		w.close()
	})
	for n := range soakInstances {
		api := []dataplanetest.API{dataplanetest.V34, dataplanetest.V32}[n%2]
		s.check(w.startInstance(n+1, fleetOptions{api: string(api)}))
	}
	s.check(w.writeFleet(fleetOptions{waves: "1,100%", soak: "0s"}))
	s.limitNothing()
	for n := range soakPods {
		s.pods = append(s.pods, &soakPod{name: fmt.Sprintf("pod-%d", n), address: fmt.Sprintf("%s:%d", w.network.podIP(1+n), w.network.Port)})
	}
	t.Cleanup(s.endPods)
	s.serve("web", 0, 1)
	s.serve("api", 2)
	s.publish()
	s.renew()
	s.start("compiler")
	s.start("pusher")
	s.settle()
	s.load = startSoakLoad(w)
	t.Cleanup(func() { s.load.stop() })
	return s
}

// limitNothing removes the budget of reloads, since the test would otherwise mostly wait for it.
func (s *soak) limitNothing() {
	file := filepath.Join(s.w.dir, "fleet.yaml")
	text, err := os.ReadFile(file)
	s.check(err)
	s.check(replaceFile(file, []byte(strings.Replace(string(text), "  rollout:\n", "  rollout:\n    budget: {perMinute: 0, perInstance: 0, oldWorkers: 0}\n", 1))))
}

func (s *soak) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// tell adds a line to the story.
func (s *soak) tell(format string, args ...any) {
	s.story = append(s.story, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// round runs a few actions, and waits until everything has settled.
func (s *soak) round(n int) {
	s.t.Helper()
	s.tell("round %d", n)
	actions := soakActions()
	names := slices.Sorted(maps.Keys(actions))
	for range 1 + s.random.IntN(5) {
		name := names[s.random.IntN(len(names))]
		s.done[name]++
		s.tell("  %s: %s", name, actions[name](s))
		// The next action may come at any point of the programs' reaction.
		<-time.After(time.Duration(s.random.Int64N(int64(soakPause))))
	}
	for _, i := range s.w.instances {
		i.ClearFaults()
	}
	s.settle()
	for _, failure := range s.load.failures() {
		s.t.Errorf("round %d: %s", n, failure)
	}
	if s.t.Failed() {
		s.t.FailNow()
	}
	s.retire()
}

// settle waits until everything is as it should be.
func (s *soak) settle() {
	s.t.Helper()
	for name, p := range s.w.programs {
		select {
		case <-p.ended:
			s.t.Fatalf("%s ended by itself: %s", name, p.cmd.ProcessState)
		default:
		}
	}
	if err := poll(soakPatience, s.settled); err != nil {
		s.t.Fatalf("waited %s in vain: %v", soakPatience, err)
	}
}

// persist waits until the files on disk have exactly today's servers.
func (s *soak) persist() {
	s.t.Helper()
	if err := poll(soakPatience, func() error {
		for n, p := range s.pods {
			wanted := slices.Contains(s.endpoints["web"], n) || slices.Contains(s.endpoints["api"], n)
			for _, i := range s.w.instances {
				if onDisk(i, p.address) != wanted {
					return fmt.Errorf("%s has %s on disk: %v", i.name, p.name, !wanted)
				}
			}
		}
		return nil
	}); err != nil {
		s.t.Fatalf("waited %s in vain: %v", soakPatience, err)
	}
}

// start starts one of the programs.
func (s *soak) start(name string) {
	s.t.Helper()
	args := map[string][]string{
		"compiler": {"run", "-f", "manifests", "--config", "config.yaml", "--store", "dir:store"},
		"pusher": {
			"run", "--store", "dir:store", "--instances", "fleet.yaml", "--live", "manifests", "--state", "pusher.json",
			"--poll-interval", "100ms", "--drain-time", "500ms", "--inspect-interval", "3s", "--reload-timeout", "20s",
		},
	}[name]
	s.w.programs[name] = s.command(name, args...)
	s.w.programs[name].cmd.Path = thatRunsOn(s.w.programs[name].cmd.Path)
	s.check(s.w.programs[name].launch())
}

func (s *soak) command(name string, args ...string) *program {
	p := &program{cmd: exec.Command(filepath.Join(binaries, name), args...)}
	p.cmd.Dir = s.w.dir
	p.cmd.Env = []string{"HOME=" + s.w.dir, "PATH=" + binaries + ":" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir(), "GORACE=" + raceOptions}
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	return p
}

// say runs a verb of the pusher that changes the channel, and returns its output.
func (s *soak) say(args ...string) string {
	p := s.command("pusher", append(args, "--store", "dir:store")...)
	s.check(p.finish())
	return strings.TrimSpace(p.output.String())
}
