package compiler

import (
	"maps"
	"slices"
	"testing"

	"github.com/hapsnap/hapsnap/snapshots"
)

// Templates need not indent: what stands in a section is part of it all the same.
func TestOutlineOfLinesWithoutIndentation(t *testing.T) {
	t.Parallel()
	text := "global\nmaxconn 10\n\nbackend a from main\nbalance roundrobin\nserver s1 192.0.2.1:80\n  backend \"b\"\nbackend hapsnap_ready\nserver instance 192.0.2.1:1\n"
	units := outline([]snapshots.File{{Path: snapshots.ConfigFile, Content: []byte(text)}}, nil)
	if got, want := slices.Sorted(maps.Keys(units["backend"])), []string{"backend a", "backend b"}; !slices.Equal(got, want) {
		t.Errorf("backends are %q, want %q", got, want)
	}
	if got, want := slices.Sorted(maps.Keys(units["section"])), []string{"global"}; !slices.Equal(got, want) {
		t.Errorf("sections are %q, want %q", got, want)
	}
	if a := units["backend"]["backend a"]; a.first != 4 || a.last != 6 || a.content != "backend a from main\nbalance roundrobin\nserver s1 192.0.2.1:80\n" {
		t.Errorf("backend a is %+v", a)
	}
}
