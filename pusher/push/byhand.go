package push

import (
	"fmt"
	"slices"

	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// Hand is a server that somebody else took out of traffic: a person drains it, or
// puts it into maintenance. It is left so until that hand makes it ready again, or
// its endpoint leaves.
type Hand struct {
	Backend string         `json:"backend"`
	Server  string         `json:"server"`
	Address string         `json:"address"`
	Port    int            `json:"port"`
	State   bind.SlotState `json:"state"`
}

// String returns "backend/server (address:port) is state".
func (h Hand) String() string {
	return fmt.Sprintf("%s/%s (%s:%d) is %s", h.Backend, h.Server, h.Address, h.Port, h.State)
}

func (h Hand) holds(s bind.Server) bool {
	return h.Backend == s.Backend && h.Server == s.Name && h.Address == s.Address && h.Port == s.Port
}

// respect returns the servers as they should be while the hands keep some of them
// from traffic, and the hands that still have something to say.
func respect(want []bind.Server, hands []Hand) ([]bind.Server, []Hand) {
	if len(hands) == 0 {
		return want, nil
	}
	out := slices.Clone(want)
	var kept []Hand
	for n, s := range out {
		i := slices.IndexFunc(hands, func(h Hand) bool { return h.holds(s) })
		if i >= 0 && s.State == bind.SlotReady {
			out[n].State = hands[i].State
			kept = append(kept, hands[i])
		}
	}
	return out, kept
}

// notice returns the hands after servers that were known are found as they are now,
// in the same order.
// A server that was ready, at the same address, and was not changed by us, was taken out
// by somebody else; one that was so and is ready again was given back.
func notice(hands []Hand, known, found []bind.Server, ours []change) []Hand {
	changed := make(map[serverKey]bool, len(ours))
	for _, c := range ours {
		changed[serverKey{c.to.Backend, c.to.Name}] = true
	}
	out := slices.Clone(hands)
	for n, was := range known {
		is := found[n]
		if was.State == is.State || was.Address != is.Address || was.Port != is.Port || changed[serverKey{is.Backend, is.Name}] {
			continue
		}
		held := slices.ContainsFunc(out, func(h Hand) bool { return h.holds(is) })
		out = slices.DeleteFunc(out, func(h Hand) bool { return h.holds(is) })
		if is.State != bind.SlotReady && (was.State == bind.SlotReady || held) {
			out = append(out, Hand{is.Backend, is.Name, is.Address, is.Port, is.State})
		}
	}
	return out
}
