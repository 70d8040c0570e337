//nolint:thelper // the checks are tests: a failure has to name their own lines
package dataplane_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/pusher/dataplane"
)

// checkMapSurprises loads maps into the worker, and makes calls that do something else than they say.
func checkMapSurprises(t *testing.T, s *subject) {
	paths := map[string]string{}
	for name, content := range map[string]string{"used.map": "/first ant\n", "long.map": "/first ant\n", "bare.map": "/first ant\n/bare\n", "both.map": "/first ant\n"} {
		if err := s.CreateFile(t.Context(), dataplane.Maps, name, []byte(content)); err != nil {
			t.Fatal(err)
		}
		paths[name] = filepath.Join(s.dirs.Maps, name)
	}
	s.post(t, s.config("n1", "  use_backend %[path,map("+paths["used.map"]+")] if { path /x }",
		"  use_backend %[path,map("+paths["long.map"]+")] if { path /y }",
		"  use_backend %[path,map("+paths["bare.map"]+")] if { path /z }",
		"  use_backend %[path,map("+paths["both.map"]+")] if { path,map_beg("+paths["both.map"]+") -m found }"), dataplane.PostOptions{ForceReload: true})

	// HAProxy accepts an entry without a value, and the API cannot read it.
	s.call(t, http.MethodGet, "/runtime/maps/bare.map/entries", "", 500)
	s.call(t, http.MethodPut, "/runtime/maps/used.map", "[]", 500)
	s.checkCounts(t)
	s.checkKeys(t)
	s.checkLongPayload(t)
}

// checkCounts changes a map that two kinds of look-ups use. HAProxy counts each entry twice when it comes, and once when it
// goes.
func (s *subject) checkCounts(t *testing.T) {
	t.Helper()
	const name = "both.map"
	if n := s.countEntries(t, name); n != 2 {
		t.Errorf("HAProxy counts %d", n)
	}
	if err := s.AddMapEntries(t.Context(), name, []dataplane.MapEntry{{Key: "/b", Value: "ant"}}); err != nil {
		t.Error(err)
	}
	if e, err := s.MapEntry(t.Context(), name, "/b"); err != nil || e.Value != "ant" {
		t.Errorf("the entry is %v, %v", e, err)
	}
	if n := s.countEntries(t, name); n != 4 {
		t.Errorf("HAProxy counts %d with one more", n)
	}
	if err := s.DeleteMapEntry(t.Context(), name, "/b"); err != nil {
		t.Error(err)
	}
	if n := s.countEntries(t, name); n != 3 {
		t.Errorf("HAProxy counts %d without it", n)
	}
}

// checkKeys uses keys with characters that have a meaning for the API or for HAProxy.
func (s *subject) checkKeys(t *testing.T) {
	t.Helper()
	const at = "/runtime/maps/used.map"
	since34, refused := 0, 404
	if s.apiKind(t) == dataplanetest.V34 {
		since34, refused = 400, 400
	}
	or := func(status, otherwise int) int {
		if status != 0 {
			return status
		}
		return otherwise
	}
	s.call(t, http.MethodPut, at, `[{"key":"/a,b","value":"ant"},{"key":"/c=d","value":"ant"},{"key":"/e%20f","value":"ant"},{"key":"*.g","value":"ant"},{"key":"/h&i","value":"ant"}]`, 201)
	s.call(t, http.MethodPut, at+"/entries/%2Fa,b", `{"value":"zebra"}`, 404) // it is set all the same
	s.call(t, http.MethodPut, at+"/entries/%2Fc=d", `{"value":"zebra"}`, 404)
	s.call(t, http.MethodPut, at+"/entries/%2Fe%2520f", `{"value":"zebra"}`, 200)
	s.call(t, http.MethodPut, at+"/entries/%2A.g", `{"value":"zebra"}`, or(since34, 200))
	s.call(t, http.MethodDelete, at+"/entries/%2Fh&i", "", or(since34, 204))
	want := "/first=ant /a,b=zebra /c=d=zebra /e%20f=zebra *.g=zebra"
	if since34 != 0 {
		want = "/first=ant /a,b=zebra /c=d=zebra /e%20f=zebra *.g=ant /h&i=ant"
	}
	if got := s.mapEntries(t, "used.map"); got != want {
		t.Errorf("the map is %s, want %s", got, want)
	}
	// A semicolon ends a command of HAProxy.
	s.call(t, http.MethodPut, at, `[{"key":"/j;k","value":"ant"}]`, or(since34, 201))
	s.call(t, http.MethodPut, at+"/entries/%2Fj%3Bk", `{"value":"zebra"}`, refused)
}

// checkLongPayload adds as many entries as fit into one command, and then one byte more: these replace all
// others.
func (s *subject) checkLongPayload(t *testing.T) {
	t.Helper()
	const at = "/runtime/maps/long.map"
	s.call(t, http.MethodPut, at, entriesOf("/fit-", 8192), 201)
	if got := s.mapEntries(t, "long.map"); !strings.HasPrefix(got, "/first=ant /fit-000=") || strings.Count(got, "=") != 65 {
		t.Errorf("the map is %s", got)
	}
	s.call(t, http.MethodPut, at, entriesOf("/fat-", 8193), 201)
	if got := s.mapEntries(t, "long.map"); !strings.HasPrefix(got, "/fat-000=") || strings.Count(got, "=") != 63 {
		t.Errorf("the map is %s", got)
	}
}

// entriesOf returns 64 entries that have this size together, as lines of a map.
func entriesOf(prefix string, size int) string {
	const most = 64
	var list []string
	for n := range most {
		key := fmt.Sprintf("%s%03d", prefix, n)
		length := size / most
		if n == most-1 {
			length = size - n*length
		}
		list = append(list, jsonOf(map[string]string{"key": key, "value": strings.Repeat("v", length-len(key)-2)}))
	}
	return "[" + strings.Join(list, ",") + "]"
}
