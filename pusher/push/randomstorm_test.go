package push

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// Endpoints come, go and come back, calls fail, have no effect or get no answer, the worker is replaced, and people take servers
// out of traffic, all between the parts of updates. When an update says that it is over, the worker has what it should. When
// nothing fails any more, updates come to an end, and who was taken out of traffic by hand is out of it.
func TestRandomStorms(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		synctest.Test(t, func(t *testing.T) {
			s, r := newStormy(t), rand.New(rand.NewPCG(seed, 1))
			first := slices.Clone(s.want)
			byHand := map[int]bind.Server{}
			for n := range 40 {
				for range r.IntN(2) * r.IntN(600) {
					s.replace(r.IntN(manyBackends), fmt.Sprintf("10.1.%d.%d", n, r.IntN(250)))
				}
				s.happen(r, first, byHand)
				err := s.update()
				if err == nil && !s.have.Unfinished {
					s.check(seed)
				}
				pass(time.Duration(r.IntN(3000)) * time.Millisecond)
			}
			s.callsOnly = false
			clear(s.f.refused)
			clear(s.f.deaf)
			s.f.setting = func(string, string, dataplane.ServerChange) error { return nil }
			for tries := 0; s.finish() != nil; tries++ {
				if tries > 5 {
					t.Fatalf("seed %d: updates go on failing: %v", seed, s.update())
				}
			}
			s.check(seed)
			for at, drained := range byHand {
				held := slices.ContainsFunc(s.have.ManualDrains, func(d ManualDrain) bool { return d.holds(drained) })
				if is := s.want[at]; is == drained && !held {
					t.Errorf("seed %d: %v was drained by hand, and is not any more", seed, drained)
				}
			}
		})
	}
}

// happen has one thing happen between two parts.
func (s *stormy) happen(r *rand.Rand, first []bind.Server, byHand map[int]bind.Server) {
	s.callsOnly = r.IntN(4) == 0
	backend := r.IntN(manyBackends)
	name, from := backendName(backend), backend*slotsEach
	switch r.IntN(16) {
	case 0: // what was wanted first is wanted again
		s.want = slices.Clone(s.want)
		copy(s.want[from:from+slotsEach], first[from:])
		s.moved[name] = time.Now()
	case 1:
		s.f.refused[name] = true
	case 2:
		s.f.deaf[name] = true
	case 3:
		clear(s.f.refused)
		clear(s.f.deaf)
	case 4: // some calls have no answer
		calls := 0
		s.f.setting = func(string, string, dataplane.ServerChange) error {
			if calls++; calls == 50 {
				return classed{dataplane.ErrUnknownOutcome}
			}
			return nil
		}
	case 5, 8: // another worker, which has loaded an older file
		s.f.pid++
		for n := range 20 {
			at := (from + n*7) % len(first)
			old := first[at]
			s.f.servers[old.Backend][at%slotsEach] = asServers(old)[old.Backend][0]
		}
		for at, drained := range byHand { // the file does not say that it was
			if is := &s.f.servers[drained.Backend][at%slotsEach]; is.AdminState == dataplane.StateDrain && is.Address == drained.Address {
				is.AdminState = dataplane.StateReady
			}
		}
	case 6, 9, 10, 11, 12, 13: // somebody takes a server out of traffic, which an inspection finds
		at := from + slices.IndexFunc(s.want[from:from+slotsEach], func(s bind.Server) bool { return s.State == bind.SlotReady })
		if s.have.Servers == nil || s.have.Servers[at] != s.want[at] || s.f.servers[name][at-from].AdminState != dataplane.StateReady {
			return
		}
		s.f.servers[name][at-from].AdminState = dataplane.StateDrain
		found, err := s.i.Inspect(s.t.Context(), bound(1, s.want), s.have, backend/maxInspected)
		if err == nil {
			s.have = found.Running
			if slices.ContainsFunc(s.have.ManualDrains, func(d ManualDrain) bool { return d.holds(s.want[at]) }) {
				byHand[at] = s.want[at]
			}
		}
	case 7:
		s.want = slices.Clone(s.want)
		s.want[from].Weight = 1 + r.IntN(5)
	}
}

// check compares the worker with what it should have.
func (s *stormy) check(seed uint64) {
	s.t.Helper()
	wanted, _ := keepDrained(s.want, s.have.ManualDrains)
	for at, w := range wanted {
		is := s.f.servers[w.Backend][at%slotsEach]
		if is.Name != w.Name || is.Address != w.Address || is.Port != w.Port || is.AdminState != string(w.State) {
			s.t.Fatalf("seed %d: the worker has %+v, and not %+v", seed, is, w)
		}
	}
}
