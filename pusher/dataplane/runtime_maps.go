package dataplane

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"path"
)

// MapEntry is an entry of a map of the running worker.
type MapEntry struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// RuntimeMaps returns the base names of the maps that the worker has loaded from the
// API's folder of maps.
func (c *Client) RuntimeMaps(ctx context.Context) ([]string, error) {
	var bodies []struct{ File string }
	if _, err := c.getJSON(ctx, "list runtime maps", runtimePath+"maps", &bodies); err != nil {
		return nil, err
	}
	names := make([]string, 0, len(bodies))
	for _, b := range bodies {
		names = append(names, path.Base(b.File))
	}
	return names, nil
}

// MapEntries returns the entries of a map of the worker, in its order. Of a value with
// blanks the API tells the first word.
func (c *Client) MapEntries(ctx context.Context, name string) ([]MapEntry, error) {
	var entries []MapEntry
	_, err := c.getJSON(ctx, "list map entries", mapPath(name)+"/entries", &entries)
	return entries, err
}

// AddMapEntries adds entries to a map of the worker, also where there are some with
// these keys. All of them go to HAProxy in one command. Of more than 8192 bytes, as lines,
// the API makes a new version of the map, without the entries that it had.
func (c *Client) AddMapEntries(ctx context.Context, name string, entries []MapEntry) error {
	body, err := json.Marshal(entries)
	if err != nil {
		return err
	}
	return c.changeMap(ctx, call{op: "add map entries", method: http.MethodPut, path: mapPath(name), body: body})
}

// SetMapEntry gives an entry of a map of the worker another value. ErrNotFound says
// that there is none with this key.
func (c *Client) SetMapEntry(ctx context.Context, name, key, value string) error {
	body, err := json.Marshal(struct {
		Value string `json:"value"`
	}{value})
	if err != nil {
		return err
	}
	return c.changeMap(ctx, call{op: "set map entry", method: http.MethodPut, path: entryPath(name, key), body: body})
}

// DeleteMapEntry takes an entry out of a map of the worker. ErrNotFound says that there
// is none with this key.
func (c *Client) DeleteMapEntry(ctx context.Context, name, key string) error {
	return c.changeMap(ctx, call{op: "delete map entry", method: http.MethodDelete, path: entryPath(name, key)})
}

func (c *Client) changeMap(ctx context.Context, k call) error {
	if k.body != nil {
		k.contentType = "application/json"
	}
	k.ok = []int{http.StatusOK, http.StatusCreated, http.StatusNoContent}
	_, err := c.do(ctx, k)
	return err
}

func mapPath(name string) string { return runtimePath + "maps/" + url.PathEscape(name) }

func entryPath(name, key string) string { return mapPath(name) + "/entries/" + url.PathEscape(key) }
