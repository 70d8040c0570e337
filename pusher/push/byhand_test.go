package push

import (
	"slices"
	"testing"

	"github.com/hapsnap/hapsnap/snapshots/bind"
)

func TestNotice(t *testing.T) {
	ready := server("s1", "10.0.0.1", bind.SlotReady)
	drained := server("s1", "10.0.0.1", bind.SlotDrain)
	maintained := server("s1", "10.0.0.1", bind.SlotSpare)
	elsewhere := server("s1", "10.0.0.2", bind.SlotDrain)
	hand := Hand{ready.Backend, "s1", "10.0.0.1", ready.Port, bind.SlotDrain}
	other := hand
	other.State = bind.SlotSpare
	tests := map[string]struct {
		hands   []Hand
		was, is bind.Server
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
			got := notice(test.hands, []bind.Server{test.was}, []bind.Server{test.is}, test.list)
			if !slices.Equal(got, test.want) {
				t.Errorf("hands are %v, want %v", got, test.want)
			}
		})
	}
}

func TestRespect(t *testing.T) {
	ready := server("s1", "10.0.0.1", bind.SlotReady)
	hand := Hand{ready.Backend, "s1", "10.0.0.1", ready.Port, bind.SlotSpare}
	for name, test := range map[string]struct {
		want  bind.Server
		state bind.SlotState
		hands int
	}{
		"its endpoint is there":         {ready, bind.SlotSpare, 1},
		"its endpoint is leaving":       {server("s1", "10.0.0.1", bind.SlotDrain), bind.SlotDrain, 0},
		"another endpoint has the slot": {server("s1", "10.0.0.2", bind.SlotReady), bind.SlotReady, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, hands := respect([]bind.Server{test.want}, []Hand{hand})
			if got[0].State != test.state || len(hands) != test.hands {
				t.Errorf("state %s, hands %v", got[0].State, hands)
			}
		})
	}
}
