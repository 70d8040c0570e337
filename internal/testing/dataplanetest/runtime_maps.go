package dataplanetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
)

type mapEntry struct {
	ID    string `json:"id,omitempty"`
	Key   string `json:"key"`
	Value string `json:"value"`
}

// mapPath returns the worker's name for a map: its absolute path in the maps folder. A map that haproxy.cfg
// names differently cannot be reached.
func (a runtimeAPI) mapPath(name string) string {
	name = dataplane.SanitizeFilename(name)
	if filepath.Ext(name) != ".map" {
		name += ".map"
	}
	return filepath.Join(a.paths.Maps, name)
}

// onMap sends a command about maps and gives a refusal the API's status.
func (a runtimeAPI) onMap(ctx context.Context, status int, command string) (string, error) {
	if faultOf(ctx).kind == mapChangeLost && !strings.HasPrefix(command, "show ") {
		return "", nil
	}
	out, err := a.haproxy.worker(ctx, command)
	if isRefusal(err) {
		return "", failf(status, "%s %s %s", a.haproxy.socket, err, map[int]string{404: "not found", 400: "general error"}[status])
	}
	return out, err
}

func (a runtimeAPI) getRuntimeMaps(w http.ResponseWriter, r *http.Request) error {
	out, err := a.onMap(r.Context(), http.StatusNotFound, "show map")
	if err != nil {
		return err
	}
	maps := []map[string]string{}
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[0] == "#" {
			continue
		}
		if file := strings.Trim(fields[1], "()"); strings.HasPrefix(file, a.paths.Maps) {
			maps = append(maps, map[string]string{
				"id": fields[0], "file": file, "storage_name": filepath.Base(file), "description": strings.Join(fields[2:], " "),
			})
		}
	}
	writeBody(w, http.StatusOK, maps)
	return nil
}

func (a runtimeAPI) mapEntries(ctx context.Context, name string) ([]mapEntry, error) {
	out, err := a.onMap(ctx, http.StatusNotFound, "show map "+a.mapPath(name))
	if err != nil {
		return nil, err
	}
	entries := []mapEntry{}
	for line := range strings.Lines(out) {
		switch fields := strings.Fields(line); {
		case len(fields) < 2 || fields[0] == "#":
		case len(fields) == 2: // where the API panics
			return nil, failf(http.StatusInternalServerError, "runtime error: index out of range [2] with length 2")
		default:
			entries = append(entries, mapEntry{fields[0], fields[1], fields[2]})
		}
	}
	return entries, nil
}

func (a runtimeAPI) getMapEntries(w http.ResponseWriter, r *http.Request) error {
	entries, err := a.mapEntries(r.Context(), r.PathValue("map"))
	if err != nil {
		return err
	}
	writeBody(w, http.StatusOK, entries)
	return nil
}

// findMapEntry looks a key up as the API does: it takes the last key and value of the worker's answer, which has a line
// for each kind of look-up that uses the map, and reads them up to a comma or an equals sign.
func (a runtimeAPI) findMapEntry(ctx context.Context, name, key string) (mapEntry, error) {
	out, err := a.onMap(ctx, http.StatusNotFound, fmt.Sprintf("get map %s %s", a.mapPath(name), key))
	if err != nil {
		return mapEntry{}, err
	}
	var e mapEntry
	for part := range strings.SplitSeq(out, ",") {
		switch name, value, _ := strings.Cut(part, "="); strings.TrimSpace(name) {
		case "key":
			value, _, _ = strings.Cut(value, "=")
			e.Key = strings.Trim(value, `"`)
		case "value":
			value, _, _ = strings.Cut(value, "=")
			e.Value = strings.Trim(value, `"`)
		}
	}
	if e.Key != key || e.Value == "" {
		return mapEntry{}, failf(http.StatusNotFound, "%s %s not found", a.haproxy.socket, key)
	}
	return e, nil
}

func (a runtimeAPI) getMapEntry(w http.ResponseWriter, r *http.Request) error {
	e, err := a.findMapEntry(r.Context(), r.PathValue("map"), r.PathValue("key"))
	if err != nil {
		return err
	}
	writeBody(w, http.StatusOK, e)
	return nil
}

func (a runtimeAPI) postMapEntry(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("map")
	var e mapEntry
	if err := a.readJSON(r, &e); err != nil {
		return err
	}
	if err := a.checkCommands(e); err != nil {
		return err
	}
	if _, err := a.findMapEntry(r.Context(), name, e.Key); err == nil {
		return failf(http.StatusConflict, "%s already exists", a.haproxy.socket)
	}
	if _, err := a.onMap(r.Context(), http.StatusBadRequest, fmt.Sprintf("add map %s %s %s", a.mapPath(name), e.Key, e.Value)); err != nil {
		return err
	}
	if err := a.syncMap(r, name); err != nil {
		return err
	}
	writeBody(w, http.StatusCreated, e)
	return nil
}

// putMap adds entries, see addEntries.
func (a runtimeAPI) putMap(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("map")
	var entries []mapEntry
	if err := a.readJSON(r, &entries); err != nil {
		return err
	}
	if len(entries) == 0 {
		return failf(http.StatusInternalServerError, "runtime error: index out of range [0] with length 0")
	}
	if err := a.checkCommands(entries...); err != nil {
		return err
	}
	if err := a.addEntries(r.Context(), a.mapPath(name), entries); err != nil {
		return err
	}
	if err := a.syncMap(r, name); err != nil {
		return err
	}
	writeBody(w, http.StatusCreated, entries)
	return nil
}

func (a runtimeAPI) putMapEntry(w http.ResponseWriter, r *http.Request) error {
	name, key := r.PathValue("map"), r.PathValue("key")
	var e mapEntry
	if err := a.readJSON(r, &e); err != nil {
		return err
	}
	if err := errors.Join(a.checkKey(key), a.checkCommands(e)); err != nil {
		return err
	}
	if _, err := a.onMap(r.Context(), http.StatusNotFound, fmt.Sprintf("set map %s %s %s", a.mapPath(name), key, e.Value)); err != nil {
		return err
	}
	if strings.ContainsAny(key, ",=") { // set, but not found where the API reads it back
		w.WriteHeader(http.StatusNotFound)
		return nil
	}
	if err := a.syncMap(r, name); err != nil {
		return err
	}
	writeBody(w, http.StatusOK, mapEntry{Key: key, Value: e.Value})
	return nil
}

func (a runtimeAPI) deleteMapEntry(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("map")
	if err := a.checkKey(r.PathValue("key")); err != nil {
		return err
	}
	if _, err := a.onMap(r.Context(), http.StatusNotFound, fmt.Sprintf("del map %s %s", a.mapPath(name), r.PathValue("key"))); err != nil {
		return err
	}
	if err := a.syncMap(r, name); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a runtimeAPI) clearMap(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("map")
	if _, err := a.onMap(r.Context(), http.StatusNotFound, "clear map "+a.mapPath(name)); err != nil {
		return err
	}
	if err := a.syncMap(r, name); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// syncMap writes a map's entries to its file, sorted, if the request asks for it with force_sync.
func (a runtimeAPI) syncMap(r *http.Request, name string) error {
	if !flag(r, "force_sync") {
		return nil
	}
	entries, err := a.mapEntries(r.Context(), name)
	if err != nil {
		return err
	}
	slices.SortStableFunc(entries, func(x, y mapEntry) int { return cmp.Compare(x.Key, y.Key) })
	var text strings.Builder
	for _, e := range entries {
		fmt.Fprintf(&text, "%s %s\n", e.Key, e.Value)
	}
	return os.WriteFile(a.mapPath(name), []byte(text.String()), 0o644)
}

// maxPayload is how many bytes of entries the API adds to a map with one command.
const maxPayload = 8192

// addEntries adds entries to a map of the worker as the API does: with one command, or, if they are too long
// for that, as a new version of the map. That has only these entries, so all others are gone.
func (a runtimeAPI) addEntries(ctx context.Context, path string, entries []mapEntry) error {
	parts, long := payloads(entries)
	if !long {
		return a.addPayload(ctx, path, parts[0])
	}
	out, err := a.onMap(ctx, http.StatusBadRequest, "prepare map "+path)
	if err != nil {
		return err
	}
	_, version, _ := strings.Cut(out, ": ")
	at := "@" + strings.TrimSpace(version) + " " + path
	for _, part := range parts {
		if err := a.addPayload(ctx, at, part); err != nil {
			return err
		}
	}
	_, err = a.onMap(ctx, http.StatusBadRequest, "commit map "+at)
	return err
}

func (a runtimeAPI) addPayload(ctx context.Context, where, payload string) error {
	_, err := a.onMap(ctx, http.StatusBadRequest, fmt.Sprintf("add map %s <<\n%s", where, strings.TrimSuffix(payload, "\n")))
	return err
}

// payloads distributes entries over commands, and reports whether there are too many for one. The entry that
// does not fit begins the next payload, if another one follows it; the very last one is lost.
func payloads(entries []mapEntry) (parts []string, long bool) {
	var part, over string
	for _, e := range entries {
		line := e.Key + " " + e.Value + "\n"
		if next := part + over + line; len(next) <= maxPayload {
			part, over = next, ""
			continue
		}
		if part == "" {
			part = line
		}
		parts, long = append(parts, part), true
		part, over = "", line
	}
	if part != "" {
		parts = append(parts, part)
	}
	return parts, long
}

// keyInPath matches keys of entries that may be in a path, since 3.4.
var keyInPath = regexp.MustCompile(`^[^\r\n<>*;$#&{}"]+$`)

// checkKey refuses the key in the path of a request as 3.4 does.
func (a runtimeAPI) checkKey(key string) error {
	if a.version == V34 && !keyInPath.MatchString(key) {
		return failf(http.StatusBadRequest, "id in path: string doesn't match the regular expression %q", keyInPath)
	}
	return nil
}

// checkCommands refuses entries from which the API makes no command since 3.4, if they could contain another
// command.
func (a runtimeAPI) checkCommands(entries ...mapEntry) error {
	for _, e := range entries {
		if a.version == V34 && strings.Contains(e.Key+e.Value, ";") {
			return failf(http.StatusBadRequest, "%s invalid character found in runtime command general error", a.haproxy.socket)
		}
	}
	return nil
}
