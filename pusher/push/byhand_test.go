package push

import (
	"slices"
	"testing"

	"github.com/hapsnap/hapsnap/snapshots"
)

func TestNotice(t *testing.T) {
	ready := server("s1", "10.0.0.1", snapshots.SlotReady)
	drained := server("s1", "10.0.0.1", snapshots.SlotDrain)
	maintained := server("s1", "10.0.0.1", snapshots.SlotSpare)
	elsewhere := server("s1", "10.0.0.2", snapshots.SlotDrain)
	hand := Hand{ready.Backend, "s1", "10.0.0.1", ready.Port, snapshots.SlotDrain}
	other := hand
	other.State = snapshots.SlotSpare
	tests := map[string]struct {
		hands   []Hand
		was, is snapshots.BoundServer
		want    []Hand
		list    []change
	}{
		"nothing happened":            {was: ready, is: ready},
		"taken out":                   {was: ready, is: drained, want: []Hand{hand}},
		"moved, and out":              {was: ready, is: elsewhere},
		"taken out by us":             {was: ready, is: drained, list: []change{{from: ready, to: drained}}},
		"still out":                   {hands: []Hand{hand}, was: drained, is: drained, want: []Hand{hand}},
		"given back":                  {hands: []Hand{hand}, was: drained, is: ready},
		"from drain to maintenance":   {hands: []Hand{hand}, was: drained, is: maintained, want: []Hand{other}},
		"a spare one that is drained": {was: maintained, is: drained},
		"remembered, not yet set":     {hands: []Hand{hand}, was: ready, is: ready, want: []Hand{hand}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := notice(test.hands, []snapshots.BoundServer{test.was}, []snapshots.BoundServer{test.is}, test.list)
			if !slices.Equal(got, test.want) {
				t.Errorf("hands are %v, want %v", got, test.want)
			}
		})
	}
}

func TestRespect(t *testing.T) {
	ready := server("s1", "10.0.0.1", snapshots.SlotReady)
	hand := Hand{ready.Backend, "s1", "10.0.0.1", ready.Port, snapshots.SlotSpare}
	for name, test := range map[string]struct {
		want  snapshots.BoundServer
		state snapshots.SlotState
		hands int
	}{
		"its endpoint is there":         {ready, snapshots.SlotSpare, 1},
		"its endpoint is leaving":       {server("s1", "10.0.0.1", snapshots.SlotDrain), snapshots.SlotDrain, 0},
		"another endpoint has the slot": {server("s1", "10.0.0.2", snapshots.SlotReady), snapshots.SlotReady, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, hands := respect([]snapshots.BoundServer{test.want}, []Hand{hand})
			if got[0].State != test.state || len(hands) != test.hands {
				t.Errorf("state %s, hands %v", got[0].State, hands)
			}
		})
	}
}
