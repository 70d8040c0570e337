package push

import (
	"fmt"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// mapChange is what there is to do for a map of the worker to have the wanted entries.
type mapChange struct {
	source, name string // in the snapshot, and in the worker
	add, set     []dataplane.MapEntry
	del          []string
}

func (c mapChange) count() int { return len(c.add) + len(c.set) + len(c.del) }

// String names one of the entries that are not as they should be.
func (c mapChange) String() string {
	switch {
	case len(c.add) > 0:
		return fmt.Sprintf("%s: %s is missing", c.source, c.add[0].Key)
	case len(c.set) > 0:
		return fmt.Sprintf("%s: %s is not %s", c.source, c.set[0].Key, c.set[0].Value)
	case len(c.del) > 0:
		return fmt.Sprintf("%s: %s should not be there", c.source, c.del[0])
	}
	return ""
}

// changeMap returns what to do for a map that has some entries to have the wanted ones.
// A key that is there twice is right if both are.
func changeMap(want bind.Map, name string, have []dataplane.MapEntry) mapChange {
	out := mapChange{source: want.Source, name: name}
	found := make(map[string]string, len(have))
	wrong := map[string]bool{}
	for _, e := range have {
		if other, twice := found[e.Key]; twice && other != e.Value {
			wrong[e.Key] = true
		}
		found[e.Key] = e.Value
	}
	wanted := make(map[string]bool, len(want.Entries))
	for _, e := range want.Entries {
		wanted[e.Key] = true
		switch value, ok := found[e.Key]; {
		case !ok:
			out.add = append(out.add, dataplane.MapEntry{Key: e.Key, Value: e.Value})
		case value != e.Value || wrong[e.Key]:
			out.set = append(out.set, dataplane.MapEntry{Key: e.Key, Value: e.Value})
		}
	}
	for _, e := range have {
		if _, once := found[e.Key]; once && !wanted[e.Key] {
			out.del = append(out.del, e.Key)
			delete(found, e.Key)
		}
	}
	return out
}

// payloads shares entries out over commands.
func payloads(entries []dataplane.MapEntry) (out [][]dataplane.MapEntry) {
	size := 0
	for _, e := range entries {
		length := len(e.Key) + len(e.Value) + 2
		if len(out) == 0 || size+length > bind.MaxMapPayload {
			out, size = append(out, nil), 0
		}
		size += length
		out[len(out)-1] = append(out[len(out)-1], e)
	}
	return out
}
