package pusher

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/snapshots"
)

// InUse returns the snapshots that a pusher may need of its store, and what for,
// from its state file: it need not run. [ErrNoState] is returned for a file that
// is not there.
func InUse(file string) (map[snapshots.ID]string, error) {
	data, err := readFile(file)
	if err != nil {
		return nil, err
	}
	return ParseInUse(data, file)
}

// ParseInUse is InUse of a state that was read from a place.
func ParseInUse(data []byte, place string) (map[snapshots.ID]string, error) {
	s, err := parseState(data, place)
	if err != nil {
		return nil, err
	}
	return s.inUse(), nil
}

// inUse is InUse of a state. An instance that a rollout or a push was begun on may
// run that snapshot by now, whatever is known of it.
func (s state) inUse() map[snapshots.ID]string {
	reasons := map[snapshots.ID][]string{}
	add := func(id snapshots.ID, reason string, args ...any) {
		reason = fmt.Sprintf(reason, args...)
		if !id.IsZero() && !slices.Contains(reasons[id], reason) {
			reasons[id] = append(reasons[id], reason)
		}
	}
	add(s.Rollout.Good, "last good")
	add(s.Status.Channel.Wanted, "wanted")
	for _, i := range s.Status.Instances {
		add(i.Running, "running on %s", i.Name)
	}
	if r := s.Rollout.Rollout; r != nil {
		add(r.Target, "target of the rollout")
		for _, t := range r.Touched {
			add(t.Snapshot, "pushed to %s", t.Instance)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Rollout.Instances)) {
		if p := s.Rollout.Instances[name].Push; p != nil {
			add(p.Snapshot, "pushed to %s", name)
		}
	}
	out := map[snapshots.ID]string{}
	for id, list := range reasons {
		out[id] = strings.Join(list, ", ")
	}
	return out
}
