package assert

import (
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/snapshots"
)

const text = `backend a from main
    balance roundrobin
    timeout server 5s

    server s1 192.0.2.1:1 check
`

// said returns a fault as one line.
func said(f *fault) string {
	if f == nil {
		return ""
	}
	return strings.ReplaceAll(strings.TrimRight(f.message+"; "+f.detail, "; "), "\n", "|")
}

func TestContains(t *testing.T) {
	t.Parallel()
	for wanted, want := range map[string]string{
		"balance roundrobin":                               "",
		"  balance roundrobin\n\ttimeout server 5s":        "",
		"\nbalance roundrobin\n\n":                         "",
		"timeout server 5s\n\nserver s1 192.0.2.1:1 check": "",
		"balance":                                `a does not have the line "balance"; the nearest is line 2: balance roundrobin`,
		"timeout server 6s":                      `a does not have the line "timeout server 6s"; the nearest is line 3: timeout server 5s`,
		"nothing like it":                        `a does not have the line "nothing like it"`,
		"backend a from main\ntimeout server 5s": `a has these lines, but not one after the other; backend a from main|timeout server 5s`,
	} {
		if got := said(contains(text, wanted, "a")); got != want {
			t.Errorf("%q: %s\nwant %s", wanted, got, want)
		}
	}
}

func TestNotContains(t *testing.T) {
	t.Parallel()
	for unwanted, want := range map[string]string{
		"balance":                                 "",
		"balance roundrobin\nserver s1":           "",
		"timeout server 5s":                       "a has the line that it should not have, in line 3; timeout server 5s",
		" balance roundrobin\n timeout server 5s": "a has the line that it should not have, in line 2; balance roundrobin|timeout server 5s",
	} {
		if got := said(notContains(text, unwanted, "a")); got != want {
			t.Errorf("%q: %s\nwant %s", unwanted, got, want)
		}
	}
}

func TestEquals(t *testing.T) {
	t.Parallel()
	for wanted, want := range map[string]string{
		text:               "",
		text + "\n \n":     "",
		text[:len(text)-1]: "",
		strings.Replace(text, "5s", "6s  ", 1): "a differs from the expected text; --- want|+++ got|@@ -1,5 +1,5 @@| backend a from main|     balance roundrobin|" +
			"-    timeout server 6s|+    timeout server 5s| |     server s1 192.0.2.1:1 check",
		strings.ReplaceAll(text, "    b", "  b"): "a differs from the expected text; --- want|+++ got|@@ -1,5 +1,5 @@| backend a from main|" +
			"-  balance roundrobin|+    balance roundrobin|     timeout server 5s| |     server s1 192.0.2.1:1 check",
	} {
		if got := said(equals(text, wanted, "a")); got != want {
			t.Errorf("%q: %s\nwant %s", wanted, got, want)
		}
	}
}

func TestTextOf(t *testing.T) {
	t.Parallel()
	files := []snapshots.File{
		{Path: "haproxy.cfg", Content: []byte("global\n  log stdout\n\n" + text + "\n\nbackend ab\nbackend b\n  \"frontend\" 'f 1' # backend a\nbind :80\n")},
		{Path: "maps/a b.map", Content: []byte("x y\n")},
	}
	for in, want := range map[string]string{
		"":             string(files[0].Content),
		"haproxy.cfg":  string(files[0].Content),
		"maps/a b.map": "x y\n",
		"global":       "global\n  log stdout\n",
		"backend a":    text,
		"backend  ab":  "backend ab\n",
		"backend b":    "backend b\n",
		"frontend":     "  \"frontend\" 'f 1' # backend a\nbind :80\n",
		"frontend a":   "there is no section frontend a; there is frontend f 1",
		"backend c":    "there is no section backend c; there is backend a, backend ab, backend b",
		"maps/a.map":   "there is no file maps/a.map; the files are haproxy.cfg, maps/a b.map",
	} {
		got, f := textOf(files, in)
		if f != nil {
			got = said(f)
		}
		if got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
