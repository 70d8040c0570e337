package push

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// Loaded returns the servers as a worker has them right after it loaded the bound
// configuration. A configuration cannot say that a slot is drained. Such a slot has its
// address, but is in maintenance.
func Loaded(servers []bind.Server) []bind.Server {
	if !slices.ContainsFunc(servers, func(s bind.Server) bool { return s.State == bind.SlotDrain }) {
		return servers // lists are not changed, and one takes megabytes
	}
	out := slices.Clone(servers)
	for i := range out {
		if out[i].State == bind.SlotDrain {
			out[i].State = bind.SlotSpare
		}
	}
	return out
}

// Large reports whether a configuration with these servers takes long to post.
func Large(servers []bind.Server) bool { return len(servers) > quickPost }

// WithFile returns what is known about a worker, with what another value knows about the file on disk. want are the servers
// that the file should have.
func (r Running) WithFile(of Running, want []bind.Server) Running {
	r.Written, r.Disk, r.postTook = of.Written, of.Disk, of.postTook
	r.Persisted = of.Persisted && r.Wrote(want)
	return r
}

// Wrote reports whether the file on disk is known to have lines that put these servers into their states.
func (r Running) Wrote(want []bind.Server) bool {
	same := func(a, b bind.Server) bool { return a == b || lineOf(a) == lineOf(b) }
	return r.Written != nil && slices.EqualFunc(r.Written, want, same)
}

// change turns one server into another.
type change struct {
	from, to bind.Server
	at       int // its index among all servers
}

// moves reports whether the server gets another address.
func (c change) moves() bool { return c.from.Address != c.to.Address || c.from.Port != c.to.Port }

// gone reports whether the worker has no such server: somebody deleted it there.
func (c change) gone() bool { return isGone(c.from) }

func isGone(s bind.Server) bool { return s.State == "" && s.Address == "" }

// splitGone returns the changes of servers that the worker has, and those of servers that somebody deleted there.
func splitGone(list []change) (there, gone []change) {
	for _, c := range list {
		if c.gone() {
			gone = append(gone, c)
		} else {
			there = append(there, c)
		}
	}
	return there, gone
}

// onDisk reports whether the change alters haproxy.cfg.
func (c change) onDisk() bool { return lineOf(c.from) != lineOf(c.to) }

// changes returns the changes from the known servers to the wanted ones, in their order.
// Both lists hold the same servers, since all bindings of one shape do.
func changes(known, want []bind.Server) []change {
	var out []change
	for n, s := range want {
		if known[n] != s {
			out = append(out, change{known[n], s, n})
		}
	}
	return out
}

// aligned reports whether two lists hold the same servers in the same order.
func aligned(a, b []bind.Server) bool {
	return slices.EqualFunc(a, b, func(x, y bind.Server) bool { return x.Name == y.Name && x.Backend == y.Backend })
}

// span is the range of one backend's servers, which follow each other in the list.
type span struct{ from, to int }

func (s span) of(servers []bind.Server) []bind.Server {
	return servers[s.from:s.to]
}

// spans returns the ranges of all backends.
func spans(servers []bind.Server) []span {
	var out []span
	for n, s := range servers {
		if n == 0 || servers[n-1].Backend != s.Backend {
			out = append(out, span{from: n})
		}
		out[len(out)-1].to = n + 1
	}
	return out
}

// spansOf returns the ranges of the backends in which servers change. It only looks at
// these backends. The changes must be in the order of the servers.
func spansOf(servers []bind.Server, list []change) []span {
	var out []span
	for _, c := range list {
		if len(out) > 0 && c.at < out[len(out)-1].to {
			continue
		}
		s := span{c.at, c.at + 1}
		for s.from > 0 && servers[s.from-1].Backend == c.to.Backend {
			s.from--
		}
		for s.to < len(servers) && servers[s.to].Backend == c.to.Backend {
			s.to++
		}
		out = append(out, s)
	}
	return out
}

// replaced returns a copy of the servers in which the servers of some backends are
// replaced.
func replaced(servers []bind.Server, backends []span, by [][]bind.Server) []bind.Server {
	out := slices.Clone(servers)
	for n, at := range backends {
		copy(at.of(out), by[n])
	}
	return out
}

// undone is the error of a change if the server does not have what was set.
func (c change) undone() error {
	if c.gone() {
		return notAsSetError(fmt.Sprintf("somebody deleted server %s/%s from the worker, which only a reload makes again", c.to.Backend, c.to.Name))
	}
	return notAsSetError(fmt.Sprintf("server %s/%s is %s at %s:%d, not %s at %s:%d as it was set",
		c.to.Backend, c.to.Name, c.from.State, c.from.Address, c.from.Port, c.to.State, c.to.Address, c.to.Port))
}

// notAsSetError is the error of a server that does not have what was set.
type notAsSetError string

func (e notAsSetError) Error() string { return string(e) }

// readyFirst returns the changes in the order in which to make them. Servers that start to
// take traffic come before those that stop. Otherwise a backend would have no server for a
// moment if all of its endpoints are replaced.
func readyFirst(list []change) []change {
	stops := func(c change) bool { return c.to.State != bind.SlotReady }
	begin := slices.DeleteFunc(slices.Clone(list), stops)
	return append(begin, slices.DeleteFunc(slices.Clone(list), func(c change) bool { return !stops(c) })...)
}

// actions returns the runtime actions that make the changes. A slot stops taking traffic
// before its address changes, and gets the new address before it takes traffic again.
//
// A slot gets its address while it is in maintenance. While a slot is drained, HAProxy
// keeps checking the address, which no endpoint has any more. If the checks found the slot
// down, the new endpoint would have to pass several checks before it is served. A server
// that leaves maintenance is up until a check fails.
func actions(list []change) []dataplane.RuntimeAction {
	var out []dataplane.RuntimeAction
	for _, c := range readyFirst(list) {
		s := c.to
		set := func(state bind.SlotState) {
			out = append(out, dataplane.SetServerState(s.Backend, s.Name, string(state)))
		}
		switch ready := s.State == bind.SlotReady; {
		case c.from.State == s.State && (ready || !c.moves()):
		case !ready:
			set(s.State)
		case c.moves():
			set(bind.SlotSpare)
		}
		if c.moves() {
			out = append(out, dataplane.SetServerAddr(s.Backend, s.Name, s.Address, s.Port))
		}
		if c.from.Weight != s.Weight {
			out = append(out, dataplane.SetServerWeight(s.Backend, s.Name, s.Weight))
		}
		if s.State == bind.SlotReady && c.from.State != s.State {
			set(s.State)
		}
	}
	return out
}

// calls returns the calls that make a change, in the same order, for APIs that set
// addresses at once. The API does not put a server into maintenance that it already reports
// to be there. That report may be wrong, since such a server may be drained (see [read]).
// So the call that makes a server ready also sets its health to up, until its checks say
// otherwise. HAProxy applies the health first.
func (c change) calls() []dataplane.ServerChange {
	state := dataplane.ServerChange{AdminState: string(c.to.State)}
	address := dataplane.ServerChange{Address: c.to.Address, Port: c.to.Port}
	switch {
	case !c.moves():
		return []dataplane.ServerChange{state}
	case c.to.State != bind.SlotReady:
		return []dataplane.ServerChange{state, address}
	case c.from.State == c.to.State:
		return []dataplane.ServerChange{address}
	}
	state.Up = true
	return []dataplane.ServerChange{address, state}
}

// reweighs reports whether a weight changes. The API has no call for that.
func reweighs(list []change) bool {
	return slices.ContainsFunc(list, func(c change) bool { return c.from.Weight != c.to.Weight })
}

// readdresses reports whether an address changes.
func readdresses(list []change) bool { return slices.ContainsFunc(list, change.moves) }

// answers are servers as the worker had them after the calls that changed them, by name.
type answers map[serverKey]dataplane.Server

// to reports whether each of the changed servers has an answer.
func (a answers) to(list []change) bool {
	return !slices.ContainsFunc(list, func(c change) bool { return a[serverKey{c.to.Backend, c.to.Name}].Name != c.to.Name })
}

// update returns a copy of the servers, updated with the answers.
func (a answers) update(servers []bind.Server) []bind.Server {
	out := slices.Clone(servers)
	for n, s := range out {
		if told, ok := a[serverKey{s.Backend, s.Name}]; ok {
			out[n] = read(s, told)
		}
	}
	return out
}

// read updates what is known about one server with what the API reports.
//
// The API reads the admin state as a hexadecimal number, but HAProxy prints it in decimal.
// So if a drained server was disabled in the configuration, the API reports it as in
// maintenance. That concerns every slot that was spare when the worker started. A server
// that is up is not in maintenance, except if it has no endpoint's address: the API cannot
// put such a server into maintenance, and without health checks it stays up. read keeps the
// known weight. The API reports weights only from 3.4 on, and then also those that come
// from a default-server line and are not ours.
func read(s bind.Server, found dataplane.Server) bind.Server {
	s.Address, s.Port, s.State = found.Address, found.Port, bind.SlotState(found.AdminState)
	nobody := s.Address == bind.SpareAddress && s.Port == bind.SparePort
	if s.State == bind.SlotSpare && found.OperationalState == "up" && !nobody {
		s.State = bind.SlotDrain
	}
	return s
}

// believe assumes that servers have what was set, as far as the API does not report it.
// That concerns the weight, and whether a server that is down is drained or in maintenance.
func believe(servers, want []bind.Server) {
	for n, s := range want {
		servers[n].Weight = s.Weight
		if s.State == bind.SlotDrain && servers[n].State == bind.SlotSpare {
			servers[n].State = bind.SlotDrain
		}
	}
}

// HAProxy 3.0 and later confirm a new address before the server has it. A task of the
// worker sets the address a moment later, or much later on a busy machine. If the server is
// made ready in between, it sends requests to the address of a spare slot, or of a pod that
// is gone. A request that tries several such servers fails. So a server is made ready only
// after the worker has reported its address.
const (
	addressPatience = 2 * time.Second
	addressPoll     = 2 * time.Millisecond
)

// stages divides changes into two stages. In the first stage, servers that take no traffic
// get their addresses. The second stage begins when the worker has these addresses: first
// the servers that should take traffic start to, then others stop.
func stages(list []change) (first, then []change) {
	for _, c := range list {
		between := c.between()
		if c.from != between {
			first = append(first, change{c.from, between, c.at})
		}
		if between != c.to {
			then = append(then, change{between, c.to, c.at})
		}
	}
	return first, then
}

// between returns the server as it is after the first stage of its change.
func (c change) between() bind.Server {
	serves, served := c.to.State == bind.SlotReady, c.from.State == bind.SlotReady
	between := c.to
	switch {
	case served && !serves:
		return c.from
	case serves && !served && c.moves():
		between.State = bind.SlotSpare
	case serves && !served:
		between.State = c.from.State
	}
	return between
}

// place gives a server its address, and waits until the worker reports that address, or
// until patience ends. It returns the server as the worker reports it then.
func (i runtime) place(ctx context.Context, s bind.Server, call dataplane.ServerChange, patience time.Duration) (dataplane.Server, error) {
	var server dataplane.Server
	there, err := i.patiently(ctx, patience, func() (bool, error) {
		var err error
		if server, err = i.setServer(ctx, s, call); err != nil {
			return false, err
		}
		if server.Name == "" {
			server, err = i.find(ctx, s)
		}
		return server.Address == s.Address && server.Port == s.Port, err
	})
	if err == nil && !there {
		err = change{from: read(s, server), to: s}.undone()
	}
	return server, err
}

// find reads a server from the worker. It returns the zero value if there is none.
func (i runtime) find(ctx context.Context, s bind.Server) (dataplane.Server, error) {
	list, err := i.API.Servers(ctx, s.Backend)
	if at := slices.IndexFunc(list, func(found dataplane.Server) bool { return found.Name == s.Name }); at >= 0 && err == nil {
		return list[at], nil
	}
	return dataplane.Server{}, err
}

// placed waits until the worker has the addresses that were set, since it confirms some of
// them too early. It returns the changes whose addresses the worker still does not have.
func (i runtime) placed(ctx context.Context, known []bind.Server, list []change) (unplaced []change, err error) {
	list = slices.DeleteFunc(slices.Clone(list), func(c change) bool { return !c.moves() })
	touched := spansOf(known, list)
	_, err = i.patiently(ctx, addressPatience, func() (bool, error) {
		found, err := i.readBack(ctx, known, touched)
		if err != nil {
			return false, err
		}
		now := replaced(known, touched, found)
		unplaced = nil
		for _, c := range list {
			if left := (change{from: now[c.at], to: c.to, at: c.at}); left.moves() {
				unplaced = append(unplaced, left)
			}
		}
		return len(unplaced) == 0, nil
	})
	return unplaced, err
}

// patiently calls done until it returns true or an error, or until patience ends. It calls
// done at least once.
func (i runtime) patiently(ctx context.Context, patience time.Duration, done func() (bool, error)) (bool, error) {
	if patience == 0 {
		return done()
	}
	i.ReloadTimeout, i.Poll = min(i.ReloadTimeout, patience), addressPoll
	return i.poll(ctx, done)
}

// ManualDrain is a server that somebody other than this program drained or put into
// maintenance. Updates leave the server in that state until somebody makes it ready again,
// or until its endpoint goes.
type ManualDrain struct {
	Backend string         `json:"backend"`
	Server  string         `json:"server"`
	Address string         `json:"address"`
	Port    int            `json:"port"`
	State   bind.SlotState `json:"state"`
}

// String returns "backend/server (address:port) is state".
func (d ManualDrain) String() string {
	return fmt.Sprintf("%s/%s (%s:%d) is %s", d.Backend, d.Server, d.Address, d.Port, d.State)
}

func (d ManualDrain) holds(s bind.Server) bool {
	return d.Backend == s.Backend && d.Server == s.Name && d.Address == s.Address && d.Port == s.Port
}

// toHave is keepDrained for servers of which some are changed later: these are as they are now.
func (r Running) toHave(want []bind.Server, later []change, now []bind.Server) ([]bind.Server, []ManualDrain) {
	wanted, drains := keepDrained(want, r.ManualDrains)
	if len(later) > 0 {
		wanted = slices.Clone(wanted)
	}
	for _, c := range later {
		wanted[c.at] = now[c.at]
	}
	return wanted, drains
}

// keepDrained returns the wanted servers, in which manually drained servers keep their
// state, and the drains that still apply.
func keepDrained(want []bind.Server, drains []ManualDrain) ([]bind.Server, []ManualDrain) {
	if len(drains) == 0 {
		return want, nil
	}
	out := slices.Clone(want)
	var kept []ManualDrain
	for n, s := range out {
		i := slices.IndexFunc(drains, func(d ManualDrain) bool { return d.holds(s) })
		if i >= 0 && s.State == bind.SlotReady {
			out[n].State = drains[i].State
			kept = append(kept, drains[i])
		}
	}
	return out, kept
}

// longestUnanswered is how long the API may take to carry out a call after its client has given up. A post first has
// HAProxy check the configuration, and changes servers after that.
const longestUnanswered = 10 * time.Minute

// withUnanswered notes the servers of changes if it is open what becomes of their call: the API may still take one of them
// out of traffic after another call has made it ready.
func (r Running) withUnanswered(list []change, err error) Running {
	if !errors.Is(err, dataplane.ErrUnknownOutcome) {
		return r
	}
	now := time.Now()
	noted := maps.Clone(r.unanswered)
	if noted == nil {
		noted = make(map[serverKey]time.Time, len(list))
	}
	maps.DeleteFunc(noted, func(_ serverKey, until time.Time) bool { return now.After(until) })
	for _, c := range list {
		noted[serverKey{c.to.Backend, c.to.Name}] = now.Add(longestUnanswered)
	}
	r.unanswered = noted
	return r
}

// afterAnother notes the servers that are to change when this process looks at a worker for the first time: another one may
// have been killed in the middle of a call for them.
func (r Running) afterAnother(want []bind.Server) Running {
	return r.withUnanswered(changes(r.Servers, want), dataplane.ErrUnknownOutcome)
}

// Unsure returns r with the servers that calls without an answer may change, from a push that failed.
func (r Running) Unsure(failed Running) Running {
	if failed.unanswered != nil {
		r.unanswered = failed.unanswered
	}
	return r
}

// noteDrains updates the manual drains after an inspection. known are the servers as they
// were, and found are the same servers in the same order as they are now. If a server was
// ready, has the same address and was not changed by us, somebody took it out of traffic.
// If a manually drained server is ready again, somebody put it back. A server that a call
// without an answer may have changed is ours once: it is made ready again. If somebody takes it
// out then, it stays out.
func (r Running) noteDrains(known, found []bind.Server, ours []change) Running {
	changed := make(map[serverKey]bool, len(ours))
	for _, c := range ours {
		changed[serverKey{c.to.Backend, c.to.Name}] = true
	}
	out := slices.Clone(r.ManualDrains)
	for n, was := range known {
		is := found[n]
		key := serverKey{is.Backend, is.Name}
		if was.State == is.State || was.Address != is.Address || was.Port != is.Port || changed[key] {
			continue
		}
		held := slices.ContainsFunc(out, func(d ManualDrain) bool { return d.holds(is) })
		out = slices.DeleteFunc(out, func(d ManualDrain) bool { return d.holds(is) })
		switch until, open := r.unanswered[key]; {
		case is.State == bind.SlotReady || was.State != bind.SlotReady && !held:
		case open && !held && !time.Now().After(until):
			r.unanswered = maps.Clone(r.unanswered)
			delete(r.unanswered, key)
		default:
			out = append(out, ManualDrain{is.Backend, is.Name, is.Address, is.Port, is.State})
		}
	}
	r.ManualDrains = out
	return r
}
