package compiler

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/snapshots"
)

// The difference of two snapshots is the same whether all of them is compared, or only the parts that differ.
func TestDifferingPartsAreEnough(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	line := func() string {
		words := []string{
			"", "backend b%d", "  mode http", "frontend f%d", "\tserver s%d 127.0.0.1:80", "# backend b%d", "backend b%d from d", "defaults", "global", "x", "'backend' b%d", "\r",
		}
		text := words[r.IntN(len(words))]
		if strings.Contains(text, "%d") {
			return fmt.Sprintf(text, r.IntN(6))
		}
		return text
	}
	config := func() []string {
		out := make([]string, r.IntN(25))
		for i := range out {
			out[i] = line()
		}
		return out
	}
	edited := func(lines []string) []string {
		out := slices.Clone(lines)
		for range r.IntN(3) {
			switch i := r.IntN(len(out) + 1); {
			case i == len(out) || r.IntN(3) == 0:
				out = slices.Insert(out, i, line())
			case r.IntN(2) == 0:
				out[i] = line()
			default:
				out = slices.Delete(out, i, min(len(out), i+1+r.IntN(3)))
			}
		}
		return out
	}
	end := func() string { return []string{"", "\n"}[r.IntN(2)] }
	unchanged := 0
	for range 20_000 {
		var before, after []snapshots.File
		lines := config()
		was, is := strings.Join(lines, "\n")+end(), strings.Join(edited(lines), "\n")+end()
		before = append(before, snapshots.File{Path: snapshots.ConfigFile, Content: []byte(was)})
		after = append(after, snapshots.File{Path: snapshots.ConfigFile, Content: []byte(is)})
		for _, path := range []string{"maps/exact.map", hostMap, "files/other"} {
			old, changed := someEntries(r), someEntries(r)
			if r.IntN(2) == 0 {
				changed = old
			}
			if r.IntN(5) > 0 {
				before = append(before, snapshots.File{Path: path, Content: []byte(strings.Join(old, "\n") + end())})
			}
			if r.IntN(5) > 0 {
				after = append(after, snapshots.File{Path: path, Content: []byte(strings.Join(changed, "\n") + end())})
			}
		}
		whole := func(files []snapshots.File) (out []excerpt) {
			for _, f := range files {
				out = append(out, excerpt{File: f})
			}
			return out
		}
		wholeBefore, wholeAfter := outline(whole(before), nil), outline(whole(after), nil)
		partBefore, partAfter := differing(before, after)
		someBefore, someAfter := outline(partBefore, nil), outline(partAfter, nil)
		for _, kind := range []string{"backend", "route", "host", "file"} {
			want, got := compare(wholeBefore[kind], wholeAfter[kind]), compare(someBefore[kind], someAfter[kind])
			if kind == "backend" && (twins(was) || twins(is)) {
				continue // HAProxy refuses two backends with the same name
			}
			if !reflect.DeepEqual(got, want) && kind != "file" || !slices.Equal(got.names(), want.names()) {
				t.Fatalf("%s: %+v, want %+v\nbefore:\n%q\nafter:\n%q", kind, got, want, before, after)
			}
			if len(want.names()) == 0 {
				unchanged++
			}
		}
	}
	if unchanged < 20_000 {
		t.Errorf("only %d kinds were unchanged", unchanged)
	}
}

// someEntries are lines of a map.
func someEntries(r *rand.Rand) []string {
	var out []string
	for i := range 8 {
		if r.IntN(2) == 0 {
			out = append(out, fmt.Sprintf("k%d v%d", i, r.IntN(2)))
		}
	}
	return out
}

// twins reports whether two backends have the same name.
func twins(config string) bool {
	seen := map[string]bool{}
	found := false
	sections(excerpt{File: snapshots.File{Path: snapshots.ConfigFile, Content: []byte(config)}}, func(_ string, u unit) {
		found = found || seen[u.name]
		seen[u.name] = true
	})
	return found
}
