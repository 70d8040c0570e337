package explain

import (
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
)

func TestParsePlace(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Place{
		"haproxy.cfg:120":                  {"haproxy.cfg", 120},
		"out/maps/host.map:3":              {"out/maps/host.map", 3},
		"haproxy.cfg:120:5":                {"haproxy.cfg", 120},
		"haproxy.cfg:120:    bind :80":     {"haproxy.cfg", 120},
		"haproxy.cfg:-1":                   {"haproxy.cfg", -1},
		"haproxy.cfg":                      {},
		"haproxy.cfg:":                     {},
		"haproxy.cfg:x":                    {},
		"haproxy.cfg:1x":                   {},
		"haproxy.cfg:999999999999999999":   {"haproxy.cfg", 999999999999999999},
		"haproxy.cfg:99999999999999999999": {},
	} {
		got, err := ParsePlace(text)
		if got != want || (err == nil) != (want != Place{}) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
		if err != nil && (process.Code(t.Context(), err) != process.ExitUsage || process.Hint(err) == "") {
			t.Errorf("%s: %v has exit code %d, hint %q", text, err, process.Code(t.Context(), err), process.Hint(err))
		}
	}
}

func TestPlaceIsFound(t *testing.T) {
	t.Parallel()
	files := []snapshots.File{
		{Path: "files/a.map", Content: []byte("x\n")},
		{Path: "haproxy.cfg", Content: []byte("one\ntwo\n")},
		{Path: "maps/a.map", Content: []byte("first\nlast")},
	}
	for _, c := range []struct {
		place             Place
		path, text, wrong string
	}{
		{place: Place{"haproxy.cfg", 1}, path: "haproxy.cfg", text: "one"},
		{place: Place{"./out/haproxy.cfg", 2}, path: "haproxy.cfg", text: "two"},
		{place: Place{"out/maps/a.map", 2}, path: "maps/a.map", text: "last"},
		{place: Place{"haproxy.cfg", 3}, wrong: "haproxy.cfg has 2 lines, and no line 3"},
		{place: Place{"haproxy.cfg", 0}, wrong: "and no line 0"},
		{place: Place{"haproxy.cfg", -2}, wrong: "and no line -2"},
		{place: Place{"a.map", 1}, wrong: "a.map is not a file of the snapshot"},
		{place: Place{"xhaproxy.cfg", 1}, wrong: "xhaproxy.cfg is not a file"},
		{place: Place{"", 1}, wrong: "is not a file"},
	} {
		path, text, err := c.place.find(files)
		if path != c.path || text != c.text {
			t.Errorf("%v: %q %q", c.place, path, text)
		}
		if (err != nil) != (c.wrong != "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%v: %v, want %q", c.place, err, c.wrong)
		}
	}
}
