package push

import (
	"slices"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots"
)

// Loaded returns the servers as a worker has them right after it loaded the
// bound configuration: that has no word for a slot that is drained, so such a
// one is in maintenance, at its address.
func Loaded(servers []snapshots.BoundServer) []snapshots.BoundServer {
	out := slices.Clone(servers)
	for i := range out {
		if out[i].State == snapshots.SlotDrain {
			out[i].State = snapshots.SlotSpare
		}
	}
	return out
}

// change is a server that is to become another one. From is the zero value if
// nothing is known of it.
type change struct {
	from, to snapshots.BoundServer
}

// moves reports whether the server gets another address.
func (c change) moves() bool { return c.from.Address != c.to.Address || c.from.Port != c.to.Port }

// onDisk reports whether the change shows in haproxy.cfg.
func (c change) onDisk() bool { return lineOf(c.from) != lineOf(c.to) }

// changes returns what to do for the worker that has the known servers to have
// the wanted ones.
func changes(known, want []snapshots.BoundServer) []change {
	if aligned(known, want) {
		return aligneds(known, want)
	}
	have := make(map[serverKey]snapshots.BoundServer, len(known))
	for _, s := range known {
		have[serverKey{s.Backend, s.Name}] = s
	}
	var out []change
	for _, s := range want {
		if from := have[serverKey{s.Backend, s.Name}]; from != s {
			out = append(out, change{from, s})
		}
	}
	return out
}

// aligned reports whether two lists hold the same servers in the same places,
// which is so for two bindings of one shape.
func aligned(a, b []snapshots.BoundServer) bool {
	return slices.EqualFunc(a, b, func(x, y snapshots.BoundServer) bool { return x.Name == y.Name && x.Backend == y.Backend })
}

func aligneds(known, want []snapshots.BoundServer) []change {
	var out []change
	for i, s := range want {
		if known[i] != s {
			out = append(out, change{known[i], s})
		}
	}
	return out
}

// readyFirst returns the changes in the order in which to make them. Servers that
// are to take traffic come before those that are to stop, or a backend all of whose
// endpoints are replaced would have no server in between.
func readyFirst(list []change) []change {
	stops := func(c change) bool { return c.to.State != snapshots.SlotReady }
	begin := slices.DeleteFunc(slices.Clone(list), stops)
	return append(begin, slices.DeleteFunc(slices.Clone(list), func(c change) bool { return !stops(c) })...)
}

// actions returns the runtime actions of the changes. A slot gets its address
// before it takes traffic, and stops taking traffic before it loses it.
func actions(list []change) []dataplane.RuntimeAction {
	var out []dataplane.RuntimeAction
	for _, c := range readyFirst(list) {
		s := c.to
		state := dataplane.SetServerState(s.Backend, s.Name, string(s.State))
		if s.State != snapshots.SlotReady && c.from.State != s.State {
			out = append(out, state)
		}
		if c.moves() {
			out = append(out, dataplane.SetServerAddr(s.Backend, s.Name, s.Address, s.Port))
		}
		if c.from.Weight != s.Weight {
			out = append(out, dataplane.SetServerWeight(s.Backend, s.Name, s.Weight))
		}
		if s.State == snapshots.SlotReady && c.from.State != s.State {
			out = append(out, state)
		}
	}
	return out
}

// reweighs reports whether a change is one of weight, which has no call of its
// own in the API.
func reweighs(list []change) bool {
	return slices.ContainsFunc(list, func(c change) bool { return c.from.Weight != c.to.Weight })
}

// readdresses reports whether a change is one of address.
func readdresses(list []change) bool { return slices.ContainsFunc(list, change.moves) }

// backendsOf returns the backends of the changes, in order.
func backendsOf(list []change) []string {
	var out []string
	for _, c := range list {
		if !slices.Contains(out[max(0, len(out)-1):], c.to.Backend) {
			out = append(out, c.to.Backend)
		}
	}
	return out
}

// read brings one server up to date with what the worker says of it.
//
// The API takes the admin state, which HAProxy prints in decimal, for hexadecimal.
// So a server that is drained and was disabled in the configuration, as any slot
// that was spare when the worker started, is in maintenance by its words. What is
// up is not. The weight stays as it was known: the API tells it from 3.4 on, and
// then also where it comes from a default-server line and is not ours.
func read(s snapshots.BoundServer, found dataplane.Server) snapshots.BoundServer {
	s.Address, s.Port, s.State = found.Address, found.Port, snapshots.SlotState(found.AdminState)
	if s.State == snapshots.SlotSpare && found.OperationalState == "up" {
		s.State = snapshots.SlotDrain
	}
	return s
}

// believed takes the servers for what they were set to, where the API does not
// tell: the weight, and whether one that is down is drained or in maintenance.
func believed(servers, want []snapshots.BoundServer) []snapshots.BoundServer {
	if !aligned(servers, want) {
		return servers
	}
	for n, s := range want {
		servers[n].Weight = s.Weight
		if s.State == snapshots.SlotDrain && servers[n].State == snapshots.SlotSpare {
			servers[n].State = snapshots.SlotDrain
		}
	}
	return servers
}
