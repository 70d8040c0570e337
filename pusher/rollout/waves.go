package rollout

import (
	"slices"
	"strings"
)

// candidate is an instance as the choice of a wave sees it.
type candidate struct {
	name, zone string
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

// pick chooses the members of a wave after which goal instances have the
// snapshot; at least one, if any is ready. Where there are several zones it
// never takes a whole one: what it has to leave comes in a wave of its own. A
// zone of a single instance cannot be spared, so a wave takes one such at most.
func pick(all []candidate, goal int) []string {
	zones, done := make(map[string]int), 0
	for _, c := range all {
		zones[c.zone]++
		if c.done {
			done++
		}
	}
	count := max(goal-done, 1)
	taken := make(map[string]int)
	whole := false
	var members []string
	for _, c := range order(all) {
		if c.done || !c.ready || len(members) == count {
			continue
		}
		if len(zones) > 1 && taken[c.zone]+1 == zones[c.zone] {
			if zones[c.zone] > 1 || whole {
				continue
			}
			whole = true
		}
		taken[c.zone]++
		members = append(members, c.name)
	}
	return members
}
