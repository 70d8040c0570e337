package memory

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
)

// entries is a map of a worker, in the order of its entries.
type entries []dataplane.MapEntry

// loadMaps returns the maps that a configuration names, as they are on disk.
func loadMaps(config string, files map[string]string) map[string]entries {
	out := map[string]entries{}
	for _, named := range namedFile.FindAllStringSubmatch(config, -1) {
		name, ok := strings.CutPrefix(named[1], "maps/")
		if !ok {
			continue
		}
		out[name] = nil
		for line := range strings.Lines(files[named[1]]) {
			if words := strings.Fields(line); len(words) == 2 && words[0] != "#" {
				out[name] = append(out[name], dataplane.MapEntry{Key: words[0], Value: words[1]})
			}
		}
	}
	return out
}

func (m entries) index(key string) int {
	return slices.IndexFunc(m, func(e dataplane.MapEntry) bool { return e.Key == key })
}

func (f *Instance) getMaps(w http.ResponseWriter, _ *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := []any{}
	for _, name := range slices.Sorted(maps.Keys(f.Worker.maps)) {
		list = append(list, map[string]any{"file": "/etc/haproxy/maps/" + name})
	}
	f.answer(w, http.StatusOK, list)
}

func (f *Instance) getEntries(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer(w, http.StatusOK, slices.Concat(entries{}, f.Worker.maps[r.PathValue("name")]))
}

// putMap adds entries, also where there are some with their keys.
func (f *Instance) putMap(w http.ResponseWriter, r *http.Request) {
	var entries []dataplane.MapEntry
	_ = json.NewDecoder(r.Body).Decode(&entries)
	f.mu.Lock()
	defer f.mu.Unlock()
	name := r.PathValue("name")
	for _, e := range entries {
		f.note("add to %s %s %s", name, e.Key, e.Value)
	}
	f.Worker.maps[name] = append(f.Worker.maps[name], entries...)
	f.answer(w, http.StatusCreated, entries)
}

func (f *Instance) putEntry(w http.ResponseWriter, r *http.Request) {
	var change dataplane.MapEntry
	_ = json.NewDecoder(r.Body).Decode(&change)
	f.mu.Lock()
	defer f.mu.Unlock()
	name, key := r.PathValue("name"), r.PathValue("key")
	n := f.Worker.maps[name].index(key)
	if n < 0 {
		f.fail(w, http.StatusNotFound, "not found")
		return
	}
	f.note("set in %s %s to %s", name, key, change.Value)
	f.Worker.maps[name][n].Value = change.Value
	f.answer(w, http.StatusOK, f.Worker.maps[name][n])
}

func (f *Instance) deleteEntry(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name, key := r.PathValue("name"), r.PathValue("key")
	n := f.Worker.maps[name].index(key)
	if n < 0 {
		f.fail(w, http.StatusNotFound, "not found")
		return
	}
	f.note("delete from %s %s", name, key)
	f.Worker.maps[name] = slices.Delete(f.Worker.maps[name], n, n+1)
	w.WriteHeader(http.StatusNoContent)
}
