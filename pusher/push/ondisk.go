package push

import (
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// Unserved reports whether a HAProxy that starts from the file on disk would serve
// nothing in some backend that the wanted servers serve: no server that is ready on disk
// has the address of an endpoint that is ready now. Both lists hold the same servers in
// the same order, those of a backend together; disk is nil if nobody knows what the file
// says, which is taken for the worst.
//
// Servers of weight 0 take no traffic. A server on disk with the address of an endpoint
// that is draining does not count: the endpoint is about to go.
func Unserved(disk, want []bind.Server) bool {
	if len(disk) != len(want) {
		return len(want) > 0
	}
	for at := 0; at < len(want); {
		end := at + 1
		for end < len(want) && want[end].Backend == want[at].Backend {
			end++
		}
		if unserved(disk[at:end], want[at:end]) {
			return true
		}
		at = end
	}
	return false
}

// unserved is [Unserved] for one backend.
func unserved(disk, want []bind.Server) bool {
	needed := false
	for n, s := range want {
		if !takesTraffic(s) {
			continue
		}
		if disk[n] == s {
			return false
		}
		needed = true
	}
	if !needed {
		return false
	}
	for _, d := range disk {
		for _, s := range want {
			if takesTraffic(s) && takesTraffic(d) && d.Address == s.Address && d.Port == s.Port {
				return false
			}
		}
	}
	return true
}

func takesTraffic(s bind.Server) bool {
	return s.State == bind.SlotReady && s.Weight != 0
}

// written returns the servers as the file on disk has them, in the order of those wanted.
// A server that is not in the file is in maintenance there.
func (t text) written(want []bind.Server) []bind.Server {
	out := make([]bind.Server, len(want))
	for n, s := range want {
		l, ok := t.servers[serverKey{s.Backend, s.Name}]
		switch {
		case !ok:
			s.State = bind.SlotSpare
		case !l.same(lineOf(s)):
			s.Address, s.Port, s.State = l.address.Addr().String(), int(l.address.Port()), bind.SlotReady
			if l.weight >= 0 {
				s.Weight = l.weight
			}
			if l.disabled {
				s.State = bind.SlotSpare
			}
		}
		out[n] = s
	}
	return out
}
