package pusher

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
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

// rememberer is a store that finds out when it went back, if it is told what was seen of it.
type rememberer interface {
	Remember(seen channel.Seen)
}

// remember gives a store what was seen of it before a restart, or by the pusher that led
// before. A pusher without a state believes what it finds.
func remember(s Store, seen channel.Seen) {
	if s, ok := s.(rememberer); ok {
		s.Remember(seen)
	}
}

// ReadSeen returns what a pusher has seen of its store, from its state file: it need not
// run. [ErrNoState] is returned for a file that is not there.
func ReadSeen(file string) (channel.Seen, error) {
	data, err := readFile(file)
	if err != nil {
		return channel.Seen{}, err
	}
	return ParseSeen(data, file)
}

// ParseSeen is ReadSeen of a state that was read from a place.
func ParseSeen(data []byte, place string) (channel.Seen, error) {
	s, err := parseState(data, place)
	return s.Seen, err
}
