package push

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// maxMapCalls limits how many entries are set or deleted one by one, since each takes a
// call. A reload is faster if there are more.
const maxMapCalls = 500

// errMaps is the error of maps in the worker that do not get the wanted entries. errUnseen
// is the error if the API does not know these maps, because HAProxy loaded them from
// another folder than the API uses. The API can then neither change nor read them.
var (
	errMaps   = errors.New("maps of the worker")
	errUnseen = fmt.Errorf("%w: the Dataplane API does not know", errMaps)
)

// mapUpdate gives the maps of a worker the wanted entries. It reads back what it changed.
//
// Reading a whole map is a risk where the map is large: HAProxy before 3.3 does not end one or two
// in a thousand answers of more than 200 kB (its issue 3070). The API then waits for 30 seconds,
// and every other call for that instance waits with it. So no map is read before a change if it is
// known what the worker has, and a large map of which a little changed is read back entry by entry,
// see [mapUpdate.seen].
type mapUpdate struct {
	runtime
	want []bind.Map
	// known is set if the worker is known to have the entries of the snapshot that it runs.
	// Otherwise they have to be read. changes lead from those entries to the wanted ones;
	// unable says why they cannot be made.
	known   bool
	changes []mapChange
	unable  error
	// loaded are the wanted maps as the worker names and counts them before the update. It is
	// nil until the worker was asked.
	loaded []dataplane.RuntimeMap
	// added is set if the new entries were added to the known ones.
	added bool
	// made are the last changes, if the API confirmed them.
	made []mapChange
	// lost counts the entries that the API confirmed, and that were not as confirmed.
	lost int
}

// newMapUpdate returns the update of a worker that runs the snapshot with the running maps.
func newMapUpdate(i runtime, want, running []bind.Map, known bool) *mapUpdate {
	u := &mapUpdate{runtime: i, want: want, known: known}
	for at, m := range want {
		was := slices.IndexFunc(running, func(r bind.Map) bool { return r.Source == m.Source })
		if was < 0 {
			u.unable = fmt.Errorf("%w: %s is new", errMaps, m.Source)
			return u
		}
		if c := changeMap(m, entriesOfMap(running[was])); c.count() > 0 {
			c.at = at
			u.changes = append(u.changes, c)
		}
	}
	u.unable = checkCalls(u.changes)
	return u
}

// files returns the files by which the worker names the wanted maps.
func (u *mapUpdate) files() []string {
	out := make([]string, 0, len(u.loaded))
	for _, m := range u.loaded {
		out = append(out, m.Name)
	}
	return out
}

// load asks the worker for its maps.
func (u *mapUpdate) load(ctx context.Context) (err error) {
	if u.loaded == nil && len(u.want) > 0 {
		u.loaded, err = u.loadedMaps(ctx, u.want)
	}
	return err
}

// addFirst adds the new entries of the wanted maps to those of the worker, before anything else is
// changed. It does so only if no entry gets another value: a new entry may be meant for that value,
// such as a condition for another bit of a mask. Entries that have to go stay meanwhile: the worker
// has those of both snapshots until the file is written. began is set if entries may have been added.
func (u *mapUpdate) addFirst(ctx context.Context) (began bool, err error) {
	if u.unable != nil || !slices.ContainsFunc(u.changes, mapChange.grows) || slices.ContainsFunc(u.changes, mapChange.resets) {
		return false, nil //nolint:nilerr // the changes are made later, and then fail
	}
	if err := u.load(ctx); err != nil {
		return false, err
	}
	list := slices.Clone(u.changes)
	if !u.known {
		if list, err = u.compare(ctx, placesOf(list)); err != nil {
			return false, err
		}
	}
	u.added = u.known
	for n := range list {
		list[n].set, list[n].del = nil, nil
	}
	return true, u.change(ctx, list)
}

// set gives the maps of the worker the wanted entries, and reads them back. If the API
// confirmed an entry that is missing, set sets it once more, and counts it. The error wraps
// errMaps if the only problem is that entries are missing afterwards.
func (u *mapUpdate) set(ctx context.Context) error {
	if err := u.load(ctx); err != nil {
		return err
	}
	doubtful := make([]int, 0, len(u.want)) // places of maps that have to be read
	for at := range u.want {
		doubtful = append(doubtful, at)
	}
	var trouble error // the error of the last try, after which the content of the maps is not known
	if u.known {
		if u.unable != nil {
			return u.unable
		}
		if trouble = u.changeKnown(ctx); isLasting(trouble) {
			return trouble
		}
		doubtful = u.unseen(ctx, placesOf(u.changes))
	}
	const tries = 2
	for try := 0; len(doubtful) > 0; try++ {
		list, err := u.compare(ctx, doubtful)
		if err != nil || len(list) == 0 {
			return err
		}
		u.lost += inBoth(u.made, list)
		switch {
		case try == tries && isUncertain(trouble):
			return trouble
		case try == tries:
			return fmt.Errorf("%w: %s", errMaps, list[0])
		}
		if trouble = u.change(ctx, list); isLasting(trouble) {
			return trouble
		}
		doubtful = u.unseen(ctx, placesOf(list))
	}
	return nil
}

// isLasting reports whether another try to change maps would fail the same way. If an entry is not
// found, somebody else was faster.
func isLasting(err error) bool {
	return err != nil && !isUncertain(err) && !errors.Is(err, dataplane.ErrNotFound)
}

// compare reads the wanted maps at these places, and returns the changes that bring them to the wanted
// entries.
func (u *mapUpdate) compare(ctx context.Context, places []int) (list []mapChange, err error) {
	for _, at := range places {
		have, err := u.API.MapEntries(ctx, u.loaded[at].Name)
		if err != nil {
			return nil, err
		}
		if c := changeMap(u.want[at], have); c.count() > 0 {
			c.at = at
			list = append(list, c)
		}
	}
	return list, checkCalls(list)
}

// change makes changes, and notes them if the API confirms them.
func (u *mapUpdate) change(ctx context.Context, list []mapChange) error {
	err := u.changeMaps(ctx, u.files(), list)
	u.made = nil
	if err == nil {
		u.made = list
	}
	return err
}

// changeKnown makes the changes from the known entries, except those that addFirst has made.
func (u *mapUpdate) changeKnown(ctx context.Context) error {
	rest := slices.Clone(u.changes)
	for n := range rest {
		if u.added {
			rest[n].add = nil
		}
	}
	err := u.change(ctx, rest)
	if err == nil {
		u.made = u.changes
	}
	return err
}

// unseen returns at which of the places the map is not seen to have the wanted entries.
func (u *mapUpdate) unseen(ctx context.Context, places []int) []int {
	if !slices.ContainsFunc(u.made, mapChange.isSmall) {
		return places
	}
	now, err := u.loadedMaps(ctx, u.want)
	if err != nil {
		return places
	}
	return slices.DeleteFunc(places, func(at int) bool {
		n := slices.IndexFunc(u.made, func(c mapChange) bool { return c.at == at })
		return n >= 0 && u.seen(ctx, u.made[n], now[at])
	})
}

// seen reports whether the worker is seen to have a map as a change should have left it, without
// reading the whole map. Before and now, the worker has to count as many entries as the change is from
// and to. So it has deleted what had to go: that an entry is not found is no proof, since the API says
// so as well if the worker did not answer. Each entry that was added or set is read. What somebody else
// changes in other entries is found by the next inspection.
//
// If several kinds of look-ups use a map, HAProxy counts each entry several times, so that the map
// has to be read.
func (u *mapUpdate) seen(ctx context.Context, c mapChange, now dataplane.RuntimeMap) bool {
	before := u.loaded[c.at]
	if !c.isSmall() || before.Name != now.Name || before.Entries != c.from || now.Entries != c.to {
		return false
	}
	for _, e := range slices.Concat(c.add, c.set) {
		if found, err := u.API.MapEntry(ctx, now.Name, e.Key); err != nil || found != e {
			return false // the API does not find each key, see [dataplane.Client.MapEntry]
		}
	}
	return true
}

// setMaps gives the maps of the worker the wanted entries, if it is not known what they have. See
// [mapUpdate.set].
func (i runtime) setMaps(ctx context.Context, want []bind.Map) (lost int, err error) {
	u := mapUpdate{runtime: i, want: want}
	err = u.set(ctx)
	return u.lost, err
}

// entriesOfMap returns the entries of a bound map in the form in which the API reports
// those of a worker.
func entriesOfMap(m bind.Map) []dataplane.MapEntry {
	out := make([]dataplane.MapEntry, 0, len(m.Entries))
	for _, e := range m.Entries {
		out = append(out, dataplane.MapEntry{Key: e.Key, Value: e.Value})
	}
	return out
}

// loadedMaps returns the maps as the worker has loaded them.
func (i runtime) loadedMaps(ctx context.Context, want []bind.Map) ([]dataplane.RuntimeMap, error) {
	list, err := i.API.RuntimeMaps(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]dataplane.RuntimeMap, 0, len(want))
	for _, m := range want {
		at := slices.IndexFunc(list, func(l dataplane.RuntimeMap) bool { return "maps/"+bind.LogicalMap(l.Name) == m.Source })
		if at < 0 {
			return nil, fmt.Errorf("%w %s", errUnseen, m.Source)
		}
		out = append(out, list[at])
	}
	return out, nil
}

// changeMaps adds, sets and deletes entries, in this order, so that a request always finds
// the old or the new entry. The configuration names maps in the order in which HAProxy
// looks them up. A map gets its entries before the maps that are looked up earlier and lead
// to it.
func (i runtime) changeMaps(ctx context.Context, files []string, list []mapChange) error {
	for _, c := range slices.Backward(list) {
		for _, entries := range payloads(c.add) {
			if err := i.API.AddMapEntries(ctx, files[c.at], entries); err != nil {
				return err
			}
		}
	}
	for _, c := range slices.Backward(list) {
		for _, e := range c.set {
			if err := i.API.SetMapEntry(ctx, files[c.at], e.Key, e.Value); err != nil {
				return err
			}
		}
	}
	for _, c := range list {
		for _, key := range c.del {
			if err := i.API.DeleteMapEntry(ctx, files[c.at], key); err != nil {
				return err
			}
		}
	}
	return nil
}

// mapChange gives one map of the worker the wanted entries.
type mapChange struct {
	at       int    // the place among the wanted maps
	source   string // its name in the snapshot
	add, set []dataplane.MapEntry
	del      []string
	from, to int // how many entries the map has before and after
}

func (c mapChange) count() int { return len(c.add) + len(c.set) + len(c.del) }

// calls returns how many entries have to be changed one by one.
func (c mapChange) calls() int { return len(c.set) + len(c.del) }

// grows reports whether the map gets new entries, and resets whether entries get another value.
func (c mapChange) grows() bool  { return len(c.add) > 0 }
func (c mapChange) resets() bool { return len(c.set) > 0 }

func checkCalls(list []mapChange) error {
	calls := 0
	for _, c := range list {
		calls += c.calls()
	}
	if calls > maxMapCalls {
		return fmt.Errorf("%w: %d entries to be changed one by one", errMaps, calls)
	}
	return nil
}

// perEntryRead is how many entries of a map are read in about the time in which one entry is, if the
// whole map is read.
const perEntryRead = 100

// isSmall reports whether the entries that a change adds and sets are few among those of the map. They are
// then read back sooner one by one.
func (c mapChange) isSmall() bool { return (len(c.add)+len(c.set))*perEntryRead <= c.to }

// keys returns the keys of the entries that are changed.
func (c mapChange) keys() []string {
	out := slices.Clone(c.del)
	for _, e := range slices.Concat(c.add, c.set) {
		out = append(out, e.Key)
	}
	return out
}

// placesOf returns the places of the maps that are changed.
func placesOf(list []mapChange) []int {
	out := make([]int, 0, len(list))
	for _, c := range list {
		out = append(out, c.at)
	}
	return out
}

// inBoth counts the entries that are in both of two lists of changes.
func inBoth(a, b []mapChange) (n int) {
	for _, c := range b {
		at := slices.IndexFunc(a, func(o mapChange) bool { return o.at == c.at })
		if at < 0 {
			continue
		}
		in := map[string]bool{}
		for _, key := range a[at].keys() {
			in[key] = true
		}
		for _, key := range c.keys() {
			if in[key] {
				n++
			}
		}
	}
	return n
}

// String names one of the wrong entries.
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

// changeMap returns the change from the entries that a map has to the wanted ones. A key
// may have two entries if both are wanted.
func changeMap(want bind.Map, have []dataplane.MapEntry) mapChange {
	if odd := want.OddKeys(); len(odd) > 0 { // only a reload changes these
		have = slices.DeleteFunc(slices.Clone(have), func(e dataplane.MapEntry) bool { return odd[e.Key] })
	}
	out := mapChange{source: want.Source, from: len(have), to: len(want.Entries)}
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

// payloads distributes entries over several commands.
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
