package push

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// maxMapCalls limits the entries that are set or deleted one by one, since each takes a
// call. Beyond that a reload is faster.
const maxMapCalls = 500

// errMaps is returned if the maps of the worker do not get the wanted entries. errUnseen is
// returned if the API does not know them, because HAProxy loaded them from a folder that is
// not the API's; then they can be neither changed nor read.
var (
	errMaps   = errors.New("maps of the worker")
	errUnseen = fmt.Errorf("%w: the Dataplane API does not know", errMaps)
)

// setMaps gives the maps of the worker the wanted entries. It reads them back: an entry
// that was acknowledged and is missing is set once more, and counted. It returns the files
// by which the worker knows its maps. The error wraps errMaps if the only problem is that
// entries do not stay.
func (i runtime) setMaps(ctx context.Context, want []bind.Map) (files []string, lost int, err error) {
	if len(want) == 0 {
		return nil, 0, nil
	}
	if files, err = i.loadedMaps(ctx, want); err != nil {
		return nil, 0, err
	}
	const tries = 2
	var trouble error // of the last try, after which the state is not known
	for try := 0; ; try++ {
		list, err := i.compareMaps(ctx, want, files)
		if err != nil || len(list) == 0 {
			return files, lost, err
		}
		if try > 0 && trouble == nil {
			for _, c := range list {
				lost += c.count()
			}
		}
		switch {
		case try == tries && isUncertain(trouble):
			return files, lost, trouble
		case try == tries:
			return files, lost, fmt.Errorf("%w: %s", errMaps, list[0])
		}
		trouble = i.changeMaps(ctx, list)
		if trouble != nil && !isUncertain(trouble) && !errors.Is(trouble, dataplane.ErrNotFound) {
			return files, lost, trouble // if something is not found, somebody else was faster
		}
	}
}

// loadedMaps returns the file that the worker has loaded for each of the maps.
func (i runtime) loadedMaps(ctx context.Context, want []bind.Map) ([]string, error) {
	names, err := i.API.RuntimeMaps(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]string, 0, len(want))
	for _, m := range want {
		at := slices.IndexFunc(names, func(name string) bool { return "maps/"+bind.LogicalMap(name) == m.Source })
		if at < 0 {
			return nil, fmt.Errorf("%w %s", errUnseen, m.Source)
		}
		out = append(out, names[at])
	}
	return out, nil
}

// compareMaps returns the changes that are needed.
func (i runtime) compareMaps(ctx context.Context, want []bind.Map, files []string) ([]mapChange, error) {
	var out []mapChange
	calls := 0
	for n, m := range want {
		have, err := i.API.MapEntries(ctx, files[n])
		if err != nil {
			return nil, err
		}
		c := changeMap(m, files[n], have)
		if c.count() > 0 {
			out = append(out, c)
		}
		calls += len(c.set) + len(c.del)
	}
	if calls > maxMapCalls {
		return nil, fmt.Errorf("%w: %d entries to be changed one by one", errMaps, calls)
	}
	return out, nil
}

// changeMaps adds, sets and deletes entries, in this order, so that a request finds the old
// or the new entry. A map that is looked up later gets its entries before one that leads to
// it: the configuration names the maps in the order of its look-ups.
func (i runtime) changeMaps(ctx context.Context, list []mapChange) error {
	for _, c := range slices.Backward(list) {
		for _, entries := range payloads(c.add) {
			if err := i.API.AddMapEntries(ctx, c.name, entries); err != nil {
				return err
			}
		}
	}
	for _, c := range slices.Backward(list) {
		for _, e := range c.set {
			if err := i.API.SetMapEntry(ctx, c.name, e.Key, e.Value); err != nil {
				return err
			}
		}
	}
	for _, c := range list {
		for _, key := range c.del {
			if err := i.API.DeleteMapEntry(ctx, c.name, key); err != nil {
				return err
			}
		}
	}
	return nil
}

// mapChange is what gives one map of the worker the wanted entries.
type mapChange struct {
	source, name string // in the snapshot, and in the worker
	add, set     []dataplane.MapEntry
	del          []string
}

func (c mapChange) count() int { return len(c.add) + len(c.set) + len(c.del) }

// String names one of the entries that are wrong.
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

// changeMap returns the change from some entries of a map to the wanted ones. A key may
// have two entries if both are wanted.
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

// payloads distributes entries over commands.
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
