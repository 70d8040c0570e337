package rollout

import (
	"slices"
	"strings"
)

// candidate is an instance as the choice of a wave sees it.
type candidate struct {
	name, zone string
	up         bool // is within reach
	done       bool // has the snapshot
	ready      bool // can be pushed to now
	first      bool // was touched by a rollout that this one replaced
}

// order puts the touched instances first, for they run neither the good
// snapshot nor the wanted one, and takes the rest from the zones in turn.
func order(all []candidate) []candidate {
	out := slices.Clone(all)
	turn := make(map[string]int, len(all)) // by name: its place within its zone
	seen := make(map[string]int)
	slices.SortFunc(out, func(a, b candidate) int { return strings.Compare(a.name, b.name) })
	for _, c := range out {
		turn[c.name] = seen[c.zone]
		seen[c.zone]++
	}
	slices.SortStableFunc(out, func(a, b candidate) int {
		if a.first != b.first {
			return before(a.first)
		}
		if d := turn[a.name] - turn[b.name]; d != 0 {
			return d
		}
		return strings.Compare(a.zone, b.zone)
	})
	return out
}

func before(first bool) int {
	if first {
		return -1
	}
	return 1
}

// pick chooses the members of a wave of a size; at least one, if any is ready.
// Where there are several zones it never takes all that is left of one: what it has
// to leave comes in a wave of its own. A zone of a single instance cannot be spared,
// so a wave takes one such at most.
func pick(all []candidate, size Size) []string {
	zones, up, done := make(map[string]bool), make(map[string]int), 0
	for _, c := range all {
		zones[c.zone] = true
		if c.up {
			up[c.zone]++
		}
		if c.done {
			done++
		}
	}
	only, within := onlyZone(all, size)
	count := max(size.of(len(all))-done, 1)
	taken := make(map[string]int)
	whole := false
	var members []string
	for _, c := range order(all) {
		if c.done || !c.ready || len(members) == count || (within && c.zone != only) {
			continue
		}
		if len(zones) > 1 && taken[c.zone]+1 >= up[c.zone] {
			if up[c.zone] > 1 || whole {
				continue
			}
			whole = true
		}
		taken[c.zone]++
		members = append(members, c.name)
	}
	return members
}

// onlyZone returns the zone that the wave keeps to, if it keeps to one: that of
// which most has been touched, for what was begun is finished first.
func onlyZone(all []candidate, size Size) (zone string, within bool) {
	if !size.Zone {
		return "", false
	}
	begun := make(map[string]int)
	for _, c := range all {
		if c.done || c.first {
			begun[c.zone]++
		}
	}
	for _, c := range order(all) {
		if !c.done && c.ready && (!within || begun[c.zone] > begun[zone]) {
			zone, within = c.zone, true
		}
	}
	return zone, within
}
