package bind

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Server is one server line of a bound configuration: what the running
// worker should show for it.
type Server struct {
	Backend, Name string
	Address       string
	Port          int
	Weight        int // 1 to 256, or 0: takes no traffic
	State         SlotState
}

// Servers returns the servers of the directives, in order: what
// [Bound].Servers is for all directives of a configuration. For the directives
// of the backends whose endpoints have changed it tells at once what to change
// at run time, at the cost of those backends only. All directives of a backend
// must be given together, for they share its weight.
func Servers(directives []Directive, slots Slots) ([]Server, error) {
	groups := make([][]Slot, len(directives))
	n := 0
	for i, d := range directives {
		groups[i] = slots[d.Key()]
		n += len(groups[i])
	}
	out := make([]Server, 0, n)
	weights := directiveWeights(directives, groups)
	for i, d := range directives {
		if len(groups[i]) == 0 {
			return nil, fmt.Errorf("there are no slots for %s", d.Key())
		}
		for j, slot := range groups[i] {
			if err := checkSlot(slot); err != nil {
				return nil, fmt.Errorf("slot %d of %s: %w", j+1, d.Key(), err)
			}
			out = append(out, Server{
				Backend: d.Backend, Name: d.ServerName(j),
				Address: slot.Address, Port: slot.Port, Weight: weights[i], State: slot.State,
			})
		}
	}
	return out, nil
}

// checkSlot keeps from the configuration what is not an address: slots are
// read from files and APIs.
func checkSlot(s Slot) error {
	ip, err := netip.ParseAddr(s.Address)
	if err != nil || ip.Zone() != "" {
		return fmt.Errorf("%q is not an IP address", s.Address)
	}
	if s.Port < 1 || s.Port > 65535 {
		return fmt.Errorf("%d is not a port", s.Port)
	}
	if s.State != SlotReady && s.State != SlotDrain && s.State != SlotSpare {
		return fmt.Errorf("%q is not a state", s.State)
	}
	return nil
}

// directiveWeights returns the weight of each directive's servers. The only
// directive of a backend has none to share, and its servers weigh 1 as HAProxy
// has it.
func directiveWeights(directives []Directive, groups [][]Slot) []int {
	out := make([]int, len(directives))
	sharing := map[string][]int{} // indexes by backend, where there are several
	for i, d := range directives {
		out[i] = min(d.Weight, 1)
		if d.Index > 0 {
			sharing[d.Backend] = nil
		}
	}
	for i, d := range directives {
		if indexes, ok := sharing[d.Backend]; ok {
			sharing[d.Backend] = append(indexes, i)
		}
	}
	for _, indexes := range sharing {
		shares := make([]share, len(indexes))
		for n, i := range indexes {
			shares[n] = share{directives[i].Weight, countReady(groups[i])}
		}
		for n, weight := range serverWeights(shares) {
			out[indexes[n]] = weight
		}
	}
	return out
}

func countReady(group []Slot) (n int) {
	for _, slot := range group {
		if slot.State == SlotReady {
			n++
		}
	}
	return n
}

// appendAddress appends address and port as a server line has them.
func (s Server) appendAddress(out []byte) []byte {
	if strings.Contains(s.Address, ":") {
		out = append(append(append(out, '['), s.Address...), ']')
	} else {
		out = append(out, s.Address...)
	}
	return strconv.AppendInt(append(out, ':'), int64(s.Port), 10)
}
