package binding

import (
	"maps"
	"slices"
	"sort"
	"strconv"

	"github.com/hapsnap/hapsnap/internal/fair"
	"github.com/hapsnap/hapsnap/internal/haproxycfg"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/live"
)

// HAProxy keeps an open file for each server that may be checked, and its configuration says how many files it may open
// (fd-hard-limit). A worker that would need more does not start, so that nothing could be pushed. An endpoint is a server
// in each backend that its Service has, so that one namespace can ask for any number with few objects.
//
// All servers together therefore take up to three quarters of the files; the rest is for connections. If they would take
// more, the namespaces with most servers get no more of them, and endpoints that have no slot yet are left out. Whoever
// has fewer than those gets all.

// mostServers returns how many servers a haproxy.cfg may have, 0 for any number: if it has no fd-hard-limit, or checks no
// servers.
func mostServers(config []byte) int {
	limit, checks := 0, false
	for section := range haproxycfg.Sections(config) {
		for _, line := range section.Lines {
			switch {
			case section.Keyword == "global" && line.Is("fd-hard-limit"):
				if words := line.Texts(); len(words) > 1 {
					limit, _ = strconv.Atoi(words[1])
				}
			case !checks && line.Is("default-server"):
				checks = slices.Contains(line.Texts(), "check")
			}
		}
	}
	if !checks {
		return 0
	}
	return limit * 3 / 4
}

// room returns to how many slots the groups of the largest namespaces may grow, if the next table has more than the snapshot
// may have. It returns nil if all is well.
func (p *Prepared) room(table, next bind.Slots) bind.Room {
	if p.mostServers == 0 {
		return nil
	}
	wanted, total := map[string]int{}, 0
	for _, d := range p.Directives { // in one backend, a Service port has one
		n := len(next[d.Key()])
		wanted[d.Service.Namespace] += n
		total += n
	}
	if total <= p.mostServers {
		return nil
	}
	most, groups := fair.Allowance(slices.Collect(maps.Values(wanted)), p.mostServers), map[string][]growth{}
	for _, d := range p.Directives {
		if namespace := d.Service.Namespace; wanted[namespace] > most {
			groups[namespace] = append(groups[namespace], growth{len(table[d.Key()]), len(next[d.Key()])})
		}
	}
	out := bind.Room{}
	for namespace, all := range groups {
		out[namespace] = largest(all, most)
	}
	return out
}

// growth is how many slots a group has, which stay, and would have.
type growth struct{ has, wants int }

// largest returns to how many slots each group may grow, so that all together have no more than the total.
func largest(groups []growth, total int) int {
	return sort.Search(total, func(most int) bool {
		sum := 0
		for _, g := range groups {
			sum += max(g.has, min(g.wants, most+1))
		}
		return sum > total
	})
}

// noteCrowded adds the endpoints of the directives' Services that have no slot.
func noteCrowded(to RefusedEndpoints, directives []bind.Directive, slots bind.Slots, endpoints map[snapshots.ServicePort][]snapshots.Endpoint) {
	const reason = "HAProxy may not open as many files as it has servers (fd-hard-limit), and its namespace has most of them: each backend of a Service has a server for each endpoint"
	missing := map[snapshots.ServicePort]map[snapshots.Endpoint]bool{}
	for _, d := range directives {
		has := make(map[snapshots.Endpoint]bool, len(slots[d.Key()]))
		for _, slot := range slots[d.Key()] {
			has[snapshots.Endpoint{Address: slot.Address, Port: slot.Port}] = true
		}
		for _, e := range endpoints[d.Service] {
			if e.Draining || has[e] {
				continue
			}
			if missing[d.Service] == nil {
				missing[d.Service] = map[snapshots.Endpoint]bool{}
			}
			missing[d.Service][e] = true
		}
	}
	for port, lacking := range missing {
		for _, e := range slices.SortedFunc(maps.Keys(lacking), snapshots.Endpoint.Compare) {
			to[port] = append(to[port], live.Refused{Endpoint: e, Reason: reason})
		}
	}
}
