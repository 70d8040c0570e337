package push

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// many has entries enough that one of them is read alone.
func many(more string) string {
	var out strings.Builder
	for n := range 3 * perEntryRead {
		fmt.Fprintf(&out, "h%d=x ", n)
	}
	return out.String() + more
}

// A large map of which it is known what the worker has is not read: neither before the change nor after it. Where the
// worker does not show that it made the change, the map is read, and what is missing is set once more.
func TestLargeMapsAreReadInDoubtOnly(t *testing.T) {
	t.Parallel()
	from, to := mapped(1, many("a=1 b=2"), "/=w"), mapped(2, many("a=9 c=3"), "/=w")
	grown := mapped(2, many("a=1 b=2 c=3"), "/=w")
	shrunk := mapped(2, many("a=1"), "/=w")
	moved := mapped(2, many("a=1 c=3"), "/=w")
	for name, test := range map[string]struct {
		to       bind.Bound
		edit     func(f *fake)
		unknown  bool
		all, one int // how many times all entries of a map were read, and one
		lost     int
	}{
		"one of each":                    {to: to, one: 2},
		"a new one":                      {to: grown, one: 1},
		"a new one, and one goes":        {to: moved, one: 1},
		"one goes, and a lost addition":  {to: moved, edit: func(f *fake) { f.lose = 1 }, all: 2, lost: 1},
		"a new one, and a lost deletion": {to: moved, edit: func(f *fake) { f.loseAt = 2 }, all: 2, lost: 1},
		"one goes":                       {to: shrunk},
		"nothing":                        {to: from},
		"it is not known":                {to: to, unknown: true, all: 2, one: 2},
		"a lost addition":                {to: to, edit: func(f *fake) { f.lose = 1 }, all: 2, lost: 1},
		"a lost deletion":                {to: shrunk, edit: func(f *fake) { f.lose = 1 }, all: 1, lost: 1},
		"a lost value":                   {to: to, edit: func(f *fake) { f.loseAt = 2 }, all: 1, one: 3, lost: 1},
		"somebody's entry":               {to: to, edit: func(f *fake) { f.maps["host-11111111.map"] = append(f.maps["host-11111111.map"], inWorker("z=1")...) }, all: 1},
		"somebody's deletion": {
			to: to, edit: func(f *fake) {
				f.maps["host-11111111.map"] = f.maps["host-11111111.map"][:len(f.maps["host-11111111.map"])-1]
			}, all: 1,
		},
		"HAProxy counts each entry twice": {to: to, edit: func(f *fake) { f.countedTimes = 2 }, all: 1},
		"the API does not find keys":      {to: to, edit: func(f *fake) { f.unfound = true }, all: 1, one: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.put(from)
			f.load()
			f.maps = map[string][]dataplane.MapEntry{"host-11111111.map": inWorker(many("a=1 b=2")), "path-22222222.map": inWorker("/=w")}
			if test.edit != nil {
				test.edit(f)
			}
			i := Instance{API: f, ReloadTimeout: time.Minute, Poll: time.Millisecond, Override: &RunningOverride{}}
			have := Running{Maps: from.Entries, Info: dataplane.RuntimeInfo{PID: 101}}
			if test.unknown {
				have = Running{}
			}
			done, err := i.ApplyAtRuntime(t.Context(), test.to, from, have, CertificateHashes{})
			if err != nil || done.Running.Maps != test.to.Entries {
				t.Fatalf("%+v, %v", done, err)
			}
			if f.mapsRead != test.all || f.entriesRead != test.one || done.Lost != test.lost {
				t.Errorf("maps were read %d times, entries %d times, and %d were lost, want %d, %d and %d", f.mapsRead, f.entriesRead, done.Lost, test.all, test.one, test.lost)
			}
			for n, m := range test.to.Maps {
				if c := changeMap(m, f.maps[[]string{"host-11111111.map", "path-22222222.map"}[n]]); c.count() > 0 {
					t.Error(c)
				}
			}
		})
	}
}

// readsCounted counts how many times all entries of a map are read.
type readsCounted struct {
	API
	all *int
}

func (r readsCounted) MapEntries(ctx context.Context, name string) ([]dataplane.MapEntry, error) {
	*r.all++
	return r.API.MapEntries(ctx, name)
}

// A real HAProxy counts and shows its entries in such a way that large maps are not read.
func TestHAProxyShowsChangesOfLargeMaps(t *testing.T) {
	t.Parallel()
	s := newSubject(t)
	defer s.Close()
	all := 0
	s.push.API = readsCounted{s.push.API, &all}
	fallback := makeCertificates(t)()
	for _, lookup := range []string{"str", "beg"} {
		first := side{balance: "roundrobin", lookup: lookup, entries: entriesOf(strings.ReplaceAll(many("/a|/x/=1 /b|=2"), "h", "/h"))}
		next := first
		next.entries = append(slices.Clone(first.entries[1:]), bind.MapEntry{Key: "/c|/y/", Value: "3"})
		next.entries[len(next.entries)-2].Value = "9"
		ways := s.ways(t, map[string]side{"m": first}, map[string]side{"m": next}, fallback)
		s.load(t, ways[0])
		for n, bound := range ways[1:] {
			all = 0
			s.applyAtRuntime(t, ways[n], bound)
			if all > 0 {
				t.Errorf("%s: the map was read %d times", lookup, all)
			}
			for _, e := range bound.Maps[0].Entries {
				if !slices.Contains(s.state(t, bound), "m.map "+e.Key+" "+e.Value) {
					t.Errorf("%s: the worker lacks %v", lookup, e)
				}
			}
		}
	}
}
