package bind

import (
	"slices"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/snapshots"
)

func TestParseMap(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                  "",
		"# nothing\n\n":                     "",
		"a.example shop\nb.example|/x/ b\n": "a.example=shop b.example|/x/=b",
		"a shop":                            "not plain", // HAProxy takes it; we write no such file
		"a\n":                               "not plain",
		"a  shop\n":                         "not plain",
		" a shop\n":                         "not plain",
		"a shop floor\n":                    "not plain",
		"a shop \n":                         "not plain",
		"a\tshop\n":                         "not plain",
		"a shop\r\n":                        "not plain",
		"a 1\nb 2\na 1\n":                   "not plain",
		"a;b 1\n":                           "not plain",
		"a\\b 1\n":                          "not plain",
		"@1 1\n":                            "not plain",
		"a #1\n":                            "not plain",
		"<< 1\n":                            "not plain",
		"ä 1\n":                             "not plain",
		strings.Repeat("k", 8188) + " 12\n": strings.Repeat("k", 8188) + "=12",
		strings.Repeat("k", 8189) + " 12\n": "not plain",
	} {
		entries, plain := ParseMap([]byte(text))
		var got []string
		for _, e := range entries {
			got = append(got, e.Key+"="+e.Value)
		}
		if !plain {
			got = []string{"not plain"}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestMapsWhoseEntriesCanBeChanged(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]bool{
		"http-request set-var(txn.h) req.hdr(host),map(maps/a.map)":                                 true,
		"http-request set-var(txn.h) req.hdr(host),lower,map_str(maps/a.map,none),upper":            true,
		"use_backend %[path,map_beg(maps/a.map)] if { path,map_str_int(maps/a.map,1) -m int 1 }":    true,
		"use_backend %[path,map_beg(maps/a.map)] if { path,map_reg(maps/a.map) -m found }":          false,
		"use_backend %[path,map_dir(maps/a.map)]":                                                   false,
		"use_backend %[path,map_end(maps/a.map)]":                                                   false,
		"use_backend %[path,map_int(maps/a.map)]":                                                   false,
		"use_backend %[src,map_ip(maps/a.map)]":                                                     false,
		"http-request set-map(maps/a.map) %[src] x":                                                 false,
		"acl known path -M -f maps/a.map":                                                           false,
		"http-request set-var(txn.h) path,my_map(maps/a.map)":                                       false,
		"#hapsnap servers shop/web -- ssl sni req.hdr(host),map(maps/a.map)":                        false,
		"# maps/a.map is for somebody else":                                                         false,
		"# see maps/a.map\n    http-request set-var(txn.h) path,map_str(maps/a.map)":                true,
		"http-request set-var(txn.h) path,map_str(maps/b.map)":                                      false,
		"http-request set-var(txn.h) path,map_str(maps/b.map),map_str(maps/a.map) # a.map, b's map": true,
	} {
		files := []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte("listen l\n    " + line + "\n")}, {Path: "maps/a.map", Content: []byte("a 1\n")}, {Path: "maps/b.map", Content: []byte("a 1\na 2\n")}}
		bind := func(entry string) Bound {
			files[1].Content = []byte(entry)
			s := snapshots.Draft{Files: slices.Clone(files)}.Number(1, snapshots.ID{})
			slots := must(Placeholder(s))(t)
			return must(Bind(s, Inputs{Slots: slots, Layout: testLayout}))(t)
		}
		a, b := bind("a 1\n"), bind("a 1\nb 2\n")
		if got := len(a.Maps) == 1; got != want || (a.Shape == b.Shape) != want || a.Node == b.Node {
			t.Errorf("%s: %v, the shapes are the same: %v", line, a.Maps, a.Shape == b.Shape)
		}
		c := Classify(a, b)
		if want && c != (Classified{Verdict: Runtime, File: "maps/a.map", Line: 2, Text: "b 2"}) || !want && c.Verdict != Reload {
			t.Errorf("%s: an entry more needs %+v", line, c)
		}
		if (a.Entries == b.Entries) != (len(a.Maps) == 0) {
			t.Errorf("%s: the entries have the digests %q and %q", line, a.Entries, b.Entries)
		}
	}
}

func TestLogicalMap(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"host.map", "a-b.map", "a-12345678.map"} {
		if got := LogicalMap(hashedName(name, []byte("x"))); got != name {
			t.Errorf("%s of %s", got, hashedName(name, []byte("x")))
		}
	}
}
