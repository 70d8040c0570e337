package core

import (
	"fmt"
	"testing"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// If a state is too large for its store, it is saved without the slots of the backends with the most servers.
// So steps of rollouts still happen: a tenant with many endpoints cannot block a pin.
func TestStateThatDoesNotFit(t *testing.T) {
	t.Parallel()
	slots := bind.Slots{}
	for n := range 5 {
		key := bind.SlotKey{Backend: fmt.Sprint("backend-", n), Service: snapshots.ServicePort{Namespace: "shop", Service: fmt.Sprint("s", n), Port: "http"}}
		slots[key] = make([]bind.Slot, 10*(n+1))
	}
	m := newMachine(State{Slots: slots}, noon)
	s := m.saving
	saved := func() int {
		data, err := s.encoded(noon)
		if err != nil {
			t.Fatal(err)
		}
		state, err := ParseState(data, "test")
		if err != nil {
			t.Fatal(err)
		}
		for key, group := range state.Slots {
			if len(group) > 10*len(state.Slots) {
				t.Errorf("with %d groups, %s is saved, which has %d slots", len(state.Slots), key, len(group))
			}
		}
		return len(state.Slots)
	}
	for n, want := range []int{5, 4, 3, 1, 0} {
		if got := saved(); got != want {
			t.Errorf("after %d failures %d groups are saved, want %d", n, got, want)
		}
		SaveEnded{Err: fmt.Errorf("save: %w", ErrStateTooLarge)}.apply(m, noon)
		if s.retry.at.After(noon) && n < 4 {
			t.Errorf("after %d failures the next save waits", n+1)
		}
	}
	if !s.retry.at.After(noon) {
		t.Error("without anything to leave out, it does not wait")
	}
	SaveEnded{}.apply(m, noon)
	if len(s.troubles) == 0 {
		t.Error("nobody is told")
	}
}
