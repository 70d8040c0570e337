package bind

import (
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
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

// Servers returns the servers of the directives, in order, as [Bound].Servers does for all
// directives of a configuration. With only the directives of the backends whose endpoints
// have changed, it returns what to change at run time at the cost of those backends. All
// directives of a backend must be given together, since they share its weight.
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

// checkSlot keeps anything but an address out of the configuration, since slots are read
// from files and APIs.
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

// directiveWeights returns the weight of each directive's servers. The only directive of a
// backend shares no weight: its servers have HAProxy's default of 1.
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
			var ready int
			for _, slot := range groups[i] {
				if slot.State == SlotReady {
					ready++
				}
			}
			shares[n] = share{directives[i].Weight, ready}
		}
		for n, weight := range serverWeights(shares) {
			out[indexes[n]] = weight
		}
	}
	return out
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

// maxServerWeight is the greatest weight of a server in HAProxy.
const maxServerWeight = 256

// share is what one directive of a backend claims: a weight, for so many ready
// endpoints.
type share struct {
	weight, ready int
}

// servers returns the number of servers that share the weight. If no endpoint is ready, it
// is what one would get.
func (s share) servers() uint64 { return uint64(max(s.ready, 1)) }

// serverWeights returns the weight of each server of each share, so that the
// weights of all ready servers of a share add up to its part of the whole. A
// share of weight 0 gets 0, any other at least 1, and a share without ready
// servers leaves its part to the others. HAProxy's weights are whole numbers up
// to 256: of all scales the one with the smallest error is taken, and of equal
// ones the smallest, so that proportions that can be met exactly are.
func serverWeights(shares []share) []int {
	if !slices.ContainsFunc(shares, share.counts) {
		shares = slices.Clone(shares)
		for i := range shares {
			shares[i].ready = 1
		}
	}
	// The share whose single ready server weighs most.
	var heaviest share
	for _, s := range shares {
		if s.counts() && uint64(s.weight)*heaviest.servers() > uint64(heaviest.weight)*s.servers() {
			heaviest = s
		}
	}
	if heaviest.weight == 0 {
		return make([]int, len(shares))
	}
	best := scaled(shares, heaviest, 1)
	least := worstError(shares, best)
	for scale := 2; scale <= maxServerWeight && least.num > 0; scale++ {
		weights := scaled(shares, heaviest, scale)
		if e := worstError(shares, weights); e.less(least) {
			best, least = weights, e
		}
	}
	return best
}

// counts reports whether the share takes part in the whole.
func (s share) counts() bool { return s.weight > 0 && s.ready > 0 }

// scaled returns the weights when a server of the heaviest share weighs scale.
func scaled(shares []share, heaviest share, scale int) []int {
	out := make([]int, len(shares))
	for i, s := range shares {
		if s.weight == 0 {
			continue
		}
		num := uint64(scale) * uint64(s.weight) * heaviest.servers()
		den := s.servers() * uint64(heaviest.weight)
		out[i] = int(min(max((2*num+den)/(2*den), 1), maxServerWeight))
	}
	return out
}

// worstError returns how far the worst share is from what it claims, as a part
// of the whole; every result for the same shares is in the same unit.
func worstError(shares []share, weights []int) fraction {
	var claimed, given uint64
	for i, s := range shares {
		if s.ready > 0 {
			claimed += uint64(s.weight)
			given += uint64(s.ready) * uint64(weights[i])
		}
	}
	worst := fraction{0, max(given, 1)}
	for i, s := range shares {
		if s.ready > 0 {
			got, want := uint64(s.ready)*uint64(weights[i])*claimed, uint64(s.weight)*given
			worst.num = max(worst.num, max(got, want)-min(got, want))
		}
	}
	return worst
}

// fraction is compared exactly, so that no processor's way of rounding decides
// a weight.
type fraction struct {
	num, den uint64
}

func (f fraction) less(o fraction) bool {
	fh, fl := bits.Mul64(f.num, o.den)
	oh, ol := bits.Mul64(o.num, f.den)
	return fh < oh || (fh == oh && fl < ol)
}
