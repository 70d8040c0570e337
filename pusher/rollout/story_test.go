package rollout

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
)

var update = flag.Bool("update", false, "rewrite the stories in testdata with what happens now")

// TestStories runs the stories in testdata. A line is a comment, or a command to the simulated fleet. An
// indented line is a result of the command before it: a push that was begun, or a change of the state that a
// person would see.
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories found: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := tell(t, want)
			if *update {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			} else if !bytes.Equal(got, want) {
				t.Errorf("%s went otherwise (rewrite with -update):\n%s", file, got)
			}
		})
	}
}

// tell runs the commands of a story, and returns the story with the results.
func tell(t *testing.T, script []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	s := newSim()
	lines := bufio.NewScanner(bytes.NewReader(script))
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "\t") {
			continue
		}
		fmt.Fprintln(&out, line)
		if words := strings.Fields(line); len(words) > 0 && words[0] != "#" {
			if err := s.command(words[0], words[1:]); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			for _, event := range s.settle() {
				fmt.Fprintf(&out, "\t%s\n", event)
			}
		}
	}
	return out.Bytes()
}

// command carries out one command of a story.
func (s *sim) command(verb string, args []string) error {
	switch verb {
	case "fleet": // NAME or NAME/ZONE …: the instances, which run nothing of ours
		for _, arg := range args {
			name, zone, _ := strings.Cut(arg, "/")
			s.add(name, zone)
		}
	case "waves":
		s.policy.Waves = nil
		for _, arg := range args {
			size, err := ParseSize(arg)
			if err != nil {
				return err
			}
			s.policy.Waves = append(s.policy.Waves, size)
		}
	case "gate": // proceed, extend or hold: what to do without enough requests
		s.policy.Gate.CannotTell = CannotTell(args[0])
	case "traffic": // NAME REQUESTS ERRORS …: what workers count; each request has a connection
		return s.traffic(args)
	case "changes": // BACKEND …: the backends that the wanted snapshot changes
		for _, name := range args {
			s.backends[name] = Backend{Changed: true, Check: 8 * time.Second}
		}
	case "moves": // BACKEND …: their live endpoints change
		for _, name := range args {
			s.obs.Moved[name] = s.now
		}
	case "flaps": // NAME BACKEND …: the backends that flapped on an instance
		s.sampled, s.fleet[args[0]].flapped = true, args[1:]
	case "backends": // NAME BACKEND …: the backends that have no server up on an instance
		for _, name := range args[1:] {
			if _, known := s.backends[name]; !known {
				s.backends[name] = Backend{Check: 8 * time.Second}
			}
		}
		s.sampled, s.fleet[args[0]].down = true, args[1:]
	case "budget": // LIMIT=VALUE …
		return s.budget(args)
	case "blackout": // FROM TO [DAY]: times since midnight
		return s.blackout(args)
	case "leave":
		delete(s.fleet, args[0])
	case "runs": // SNAPSHOT NAME …
		for _, name := range args[1:] {
			s.fleet[name].running = revision(args[0])
		}
	case "want": // SNAPSHOT [INTENT]
		s.obs.Want, s.obs.Intent = revision(args[0]), "newest"
		if len(args) > 1 {
			s.obs.Intent = args[1]
		}
		s.obs.MayWait = s.obs.Intent == "newest"
		if s.obs.Wishes = nil; !s.obs.MayWait {
			s.obs.Wishes = []Wish{{s.obs.Want, s.obs.Intent}}
		}
	case "hold", "release":
		s.obs.Hold = verb == "hold"
	case "channel": // the digests that the channel rejects
		s.obs.Channel, s.obs.Rejected = true, nil
		for _, arg := range args {
			s.obs.Rejected = append(s.obs.Rejected, revision(arg).Short)
		}
	case "promote", "abort": // SNAPSHOT [full]: a person's order about its rollout
		s.obs.Channel, s.orders = true, s.orders+1
		o := Order{Snapshot: revision(args[0]), Mark: strconv.Itoa(s.orders), Full: len(args) > 1, Says: " by ann"}
		if verb == "abort" {
			s.obs.Abort = o
		} else {
			s.obs.Promotion = o
		}
	case "wait":
		d, err := time.ParseDuration(args[0])
		s.now = s.now.Add(d)
		return err
	default:
		return s.event(verb, args)
	}
	return nil
}

func (s *sim) traffic(args []string) error {
	s.sampled = true
	for three := range slices.Chunk(args, 3) {
		requests, err := strconv.ParseInt(three[1], 10, 64)
		failed, err2 := strconv.ParseInt(three[2], 10, 64)
		if errors.Join(err, err2) != nil {
			return errors.Join(err, err2)
		}
		i := s.fleet[three[0]]
		i.counted = i.counted.plus(Counters{requests, failed, requests})
	}
	return nil
}

// budget sets the limits of reloads.
func (s *sim) budget(args []string) error {
	b := &s.policy.Budget
	numbers := map[string]*int{"perMinute": &b.PerMinute, "burst": &b.Burst, "perInstance": &b.Reloads, "oldWorkers": &b.OldWorkers}
	times := map[string]*time.Duration{"within": &b.Within, "hardStopAfter": &b.HardStopAfter}
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		var err error
		if to := numbers[name]; to != nil {
			*to, err = strconv.Atoi(value)
		} else {
			*times[name], err = time.ParseDuration(value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *sim) blackout(args []string) error {
	from, errFrom := time.ParseDuration(args[0])
	to, errTo := time.ParseDuration(args[1])
	b := Blackout{From: from, To: to}
	for _, day := range args[2:] {
		n, err := strconv.Atoi(day)
		if err != nil {
			return err
		}
		b.Days = append(b.Days, time.Weekday(n))
	}
	s.policy.Blackouts = append(s.policy.Blackouts, b)
	return errors.Join(errFrom, errTo)
}

// event makes something happen to instances, or to the pusher.
func (s *sim) event(verb string, args []string) error {
	switch verb {
	case "applied", "refused", "faulty", "trouble": // NAME …: how the push under way ended
		for _, name := range args {
			if err := s.end(name, Outcome(verb)); err != nil {
				return err
			}
		}
	case "notbegun": // NAME …: the push under way was not begun
		for _, name := range args {
			if err := s.end(name, NotBegun); err != nil {
				return err
			}
		}
	case "down", "up":
		for _, name := range args {
			s.fleet[name].up, s.fleet[name].away = verb == "up", s.now
		}
	case "works", "idle": // NAME …: the caller changes something in the worker, or has ended that
		for _, name := range args {
			s.fleet[name].busy = verb == "works"
		}
	case "restarts": // NAME …: a new worker with what is on disk
		for _, name := range args {
			s.fleet[name].pid += 1000
			s.fleet[name].started, s.fleet[name].died, s.fleet[name].counted = s.now, s.now, Counters{}
		}
	case "damaged": // NAME …: somebody else changes the worker such that only a reload mends it
		for _, name := range args {
			s.fleet[name].foreign = "somebody disabled its frontend"
		}
	case "recycled": // NAME …: a new worker with the PID of the old one
		for _, name := range args {
			s.fleet[name].started, s.fleet[name].died, s.fleet[name].counted = s.now, s.now, Counters{}
		}
	case "light": // SNAPSHOT NAME …: the instances that need no reload for it
		for _, name := range args[1:] {
			s.fleet[name].light = revision(args[0])
		}
	case "stale":
		for _, name := range args {
			s.fleet[name].stale = true
		}
	case "killed": // the pusher, during pushes; those of NAME … still succeed
		for _, name := range args {
			s.take(name)
		}
		clear(s.pending)
		s.state = s.state.Resume(s.now, s.now)
	case "forgotten": // the state was lost
		clear(s.pending)
		s.state = State{}
	default:
		return fmt.Errorf("unknown command")
	}
	return nil
}

// sim is a simulated fleet.
type sim struct {
	policy  Policy
	state   State
	obs     Observation
	now     time.Time
	fleet   map[string]*simInstance
	pending map[string]Push
	waits   []Wait
	said    []string
	sampled bool // statistics are used
	orders  int  // how many orders people gave

	backends map[string]Backend // of the good snapshot
}

type simInstance struct {
	zone    string
	up      bool
	busy    bool
	stale   bool
	light   snapshots.ID
	running snapshots.ID
	pid     int
	started time.Time
	died    time.Time
	away    time.Time // when it was down
	counted Counters
	by      map[string]int64
	down    []string
	flapped []string
	foreign string // what somebody else did to its worker
}

// simBegin is when stories begin. The first workers started then.
var simBegin = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func newSim() *sim {
	p := DefaultPolicy()
	return &sim{
		policy: p, now: simBegin, backends: map[string]Backend{}, obs: Observation{Moved: map[string]time.Time{}},
		fleet: map[string]*simInstance{}, pending: map[string]Push{},
	}
}

// revision reads "r3", "r4=3" for revision 4 with the content of 3, or "-".
func revision(s string) snapshots.ID {
	if s == "-" {
		return snapshots.ID{}
	}
	var n, content uint64
	if _, err := fmt.Sscanf(s, "r%d=%d", &n, &content); err != nil {
		_, _ = fmt.Sscanf(s, "r%d", &n)
		content = n
	}
	return snapshots.ID{Revision: n, Short: fmt.Sprintf("%010x", content)}
}

func (s *sim) add(name, zone string) {
	s.fleet[name] = &simInstance{zone: zone, up: true, pid: 100 * (len(s.fleet) + 1)}
}

// take makes the instance load what was pushed to it, unless it has already.
func (s *sim) take(name string) (reloaded bool) {
	i := s.fleet[name]
	reloaded = i.running != s.pending[name].Snapshot || i.stale || i.foreign != ""
	if s.pending[name].AtRuntime {
		reloaded = false
	}
	if reloaded {
		i.pid++
		i.started, i.counted = s.now, Counters{}
	}
	i.running, i.stale, i.foreign = s.pending[name].Snapshot, false, ""
	return reloaded
}

// end ends the push to an instance.
func (s *sim) end(name string, outcome Outcome) error {
	push, ok := s.pending[name]
	if !ok {
		return fmt.Errorf("no push to %s is under way", name)
	}
	r := Result{Instance: name, Snapshot: push.Snapshot, Outcome: outcome, Error: "it said no"}
	if outcome == Applied && s.fleet[name] != nil {
		r.Reloaded = s.take(name)
		r.PID, r.Error = s.fleet[name].pid, ""
	}
	delete(s.pending, name)
	s.obs.Results = append(s.obs.Results, r)
	return nil
}

// observe updates the observation from the fleet.
func (s *sim) observe() Observation {
	s.obs.Instances, s.obs.Backends, s.obs.Compared = nil, s.backends, s.obs.Want
	if r := s.state.Rollout; r != nil {
		s.obs.Compared = r.Target
	}
	for name, i := range s.fleet {
		seen := Seen{Name: name, Zone: i.zone, Reachable: i.up, Busy: i.busy}
		if i.up {
			seen.Running, seen.PID, seen.Stale, seen.Started = i.running, i.pid, i.stale, i.started
			seen.Died, seen.Foreign = i.died, i.foreign
			seen.WithoutReload = []snapshots.ID{i.light}
		}
		if !i.up {
			seen.Away = i.away
		}
		if i.up && s.sampled {
			seen.Sample = i.sample(s.now)
		}
		s.obs.Instances = append(s.obs.Instances, seen)
	}
	slices.SortFunc(s.obs.Instances, func(a, b Seen) int { return strings.Compare(a.Name, b.Name) })
	return s.obs
}

func (i *simInstance) sample(now time.Time) Sample {
	started := i.started
	if started.IsZero() {
		started = simBegin
	}
	return Sample{
		Counters: i.counted, At: now, PID: i.pid, Down: i.down, Flapped: i.flapped, By: i.by, Age: now.Sub(started),
		Past: Rate{i.counted, now.Sub(started)},
	}
}

// settle takes steps until nothing changes, and returns what happened.
func (s *sim) settle() []string {
	var events []string
	for range 10 {
		state, pushes, waits := s.policy.Step(s.state, s.observe(), s.now)
		s.state, s.waits, s.obs.Results = state, waits, nil
		for _, p := range pushes {
			s.pending[p.Instance] = p
			light := ""
			if p.AtRuntime {
				light = ", without a reload"
			}
			events = append(events, fmt.Sprintf("push %s to %s (%s%s)", short(p.Snapshot), p.Instance, p.Purpose, light))
		}
		now := s.describe()
		for _, line := range now {
			if !slices.Contains(s.said, line) {
				events = append(events, line)
			}
		}
		s.said = now
	}
	return events
}

// describe returns the state as a few lines.
func (s *sim) describe() []string {
	lines := []string{"good: " + short(s.state.Good)}
	for _, f := range s.state.Failed {
		recorded := ""
		if f.Recorded {
			recorded = " (the channel says so)"
		}
		lines = append(lines, fmt.Sprintf("rejected %s: %s%s", short(f.Snapshot), f.Reason, recorded))
	}
	switch r := s.state.Rollout; {
	case r == nil:
		lines = append(lines, "no rollout")
	case r.Phase == Undoing:
		lines = append(lines, fmt.Sprintf("rollout of %s: undoing, %s", short(r.Target), r.Reason))
	case r.Paused != "":
		lines = append(lines, fmt.Sprintf("rollout of %s: wave %d %v %s, paused: %s", short(r.Target), r.Wave+1, r.Members, r.Phase, r.Paused))
	default:
		lines = append(lines, fmt.Sprintf("rollout of %s: wave %d %v %s", short(r.Target), r.Wave+1, r.Members, r.Phase))
	}
	if r := s.state.Rollout; r != nil && r.Noted != "" {
		lines = append(lines, "noted: "+r.Noted)
	}
	for _, w := range s.waits {
		if slices.Contains([]string{"soak", "its push", "another try", "it to be back"}, w.For) {
			continue // the results show it
		}
		line := strings.TrimSpace(w.Instance + " waits for " + w.For)
		if !w.Until.IsZero() {
			line += ", until " + w.Until.Format(time.TimeOnly)
		}
		lines = append(lines, line)
	}
	return lines
}

func short(id snapshots.ID) string {
	if id.IsZero() {
		return "none"
	}
	return fmt.Sprintf("r%d", id.Revision)
}
