package push

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots"
)

func leading() error { return nil }

func TestTermOf(t *testing.T) {
	for text, want := range map[string]int64{
		"":                           0,
		"global\n":                   0,
		"# hapsnap term 7\nglobal\n": 7,
		"# _md5hash=1\n# _version=3\n# hapsnap term 7\nglobal\n": 7,
		"# _version=3\n# a comment\n# hapsnap term 7\nglobal\n":  7,
		"# hapsnap term 7\n# hapsnap term 9\nglobal\n":           7,
		"global\n# hapsnap term 7\n":                             0,
		"\n# hapsnap term 7\n":                                   0,
		"# hapsnap term seven\n":                                 0,
		"# hapsnap terms 7\n":                                    0,
	} {
		if got := termOf([]byte(text)); got != want {
			t.Errorf("%q is of term %d, want %d", text, got, want)
		}
	}
}

// What is written in different terms is the same for whoever looks for drift.
func TestTheTermIsNoDrift(t *testing.T) {
	a := []byte("# _md5hash=1\n# _version=3\n# hapsnap term 7\nglobal\n")
	b := []byte("# _md5hash=2\n# _version=9\n# hapsnap term 12\nglobal\n")
	if digestOf(a) != digestOf(b) || digestOf(a) != digestOf([]byte("global\n")) {
		t.Error("digests differ")
	}
	if got := withoutHeader(a); !bytes.Equal(got, []byte("global\n")) {
		t.Errorf("without its header it is %q", got)
	}
}

// Each way of writing haproxy.cfg writes the term.
func TestPushesWriteTheTerm(t *testing.T) {
	f := newFake(t)
	fence := NewFence(3, leading)
	i := Instance{API: fence.Around(f, nil), ReloadTimeout: time.Second}
	want := bound(1, []snapshots.BoundServer{server("s1", "10.0.0.1", snapshots.SlotReady)})
	done, err := i.Push(t.Context(), want, nil, Known{})
	if err != nil || termOf([]byte(f.disk)) != 3 {
		t.Fatalf("pushed, on disk is term %d: %v", termOf([]byte(f.disk)), err)
	}
	fence.Raise(5)
	disk, err := i.Persist(t.Context(), want)
	if err != nil || termOf([]byte(f.disk)) != 5 || strings.Count(f.disk, termMark) != 1 {
		t.Errorf("persisted as %q: %v", f.disk, err)
	}
	if disk != done.Disk || disk != digestOf(want.Config) {
		t.Error("the digests differ by the term")
	}
}

// A former leader that goes on is refused, by the version where it has looked before,
// and by the term where it looks now.
func TestAnOldTermWritesNothing(t *testing.T) {
	f := newFake(t)
	old := NewFence(3, leading).Around(f, nil)
	want := bound(1, []snapshots.BoundServer{server("s1", "10.0.0.1", snapshots.SlotReady)})
	seen, err := old.Raw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := NewFence(4, leading).Claim(t.Context(), f, nil); err != nil {
		t.Fatal(err)
	}
	claimed := f.disk
	if _, err := old.PostRaw(t.Context(), want.Config, dataplane.PostOptions{Version: seen.Version, ForceReload: true}); !errors.Is(err, dataplane.ErrConflict) {
		t.Errorf("a post on what it saw before: %v", err)
	}
	i := Instance{API: old, ReloadTimeout: time.Second}
	outranked := OutrankedError{Term: 3, By: 4}
	if _, err := i.Push(t.Context(), want, nil, Known{}); !errors.Is(err, outranked) || errors.Is(err, ErrRefused) {
		t.Errorf("push: %v", err)
	}
	if _, err := i.Inspect(t.Context(), bound(1, nil), Running{Info: dataplane.RuntimeInfo{PID: 100}}, 0); !errors.Is(err, outranked) {
		t.Errorf("inspect: %v", err)
	}
	if f.disk != claimed || f.pid != 100 {
		t.Errorf("on disk is %q, and the worker is %d", f.disk, f.pid)
	}
}

func TestClaim(t *testing.T) {
	const text = "global\n  node bootstrap\n"
	edited := "# _md5hash=00\n# _version=7\n" + text
	tests := map[string]struct {
		disk  string
		edit  func(f *fake)
		term  int64 // found afterwards
		calls []string
		fails error
	}{
		"of an earlier term": {
			disk: "# _version=7\n# hapsnap term 2\n" + text, term: 3,
			calls: []string{"post bootstrap, no reload"},
		},
		"of none":        {disk: "# _version=7\n" + text, term: 3, calls: []string{"post bootstrap, no reload"}},
		"of this one":    {disk: "# _version=7\n# hapsnap term 3\n" + text, term: 3},
		"of a later one": {disk: "# _version=7\n# hapsnap term 4\n" + text, term: 4, fails: OutrankedError{Term: 3, By: 4}},
		"edited by hand": {disk: edited, edit: (*fake).edited},
		"a conflict": {
			disk: "# _version=7\n" + text, term: 3, edit: func(f *fake) { f.failPosts(1, classed{dataplane.ErrConflict}) },
			calls: []string{"post bootstrap, no reload", "delete transaction 1", "post bootstrap, no reload"},
		},
		"it does not answer": {
			disk: "# _version=7\n" + text, fails: dataplane.ErrUnavailable,
			edit:  func(f *fake) { f.failPosts(99, classed{dataplane.ErrUnavailable}) },
			calls: []string{"post bootstrap, no reload", "delete transaction 1", "post bootstrap, no reload", "delete transaction 1", "post bootstrap, no reload", "delete transaction 1"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.disk = test.disk
			if test.edit != nil {
				test.edit(f)
			}
			if err := NewFence(3, leading).Claim(t.Context(), f, nil); !errors.Is(err, test.fails) {
				t.Errorf("error is %v, want %v", err, test.fails)
			}
			if got := termOf([]byte(f.disk)); got != test.term {
				t.Errorf("on disk is term %d, want %d", got, test.term)
			}
			if diff := cmp.Diff(test.calls, f.calls); diff != "" {
				t.Errorf("called otherwise (-want +got):\n%s", diff)
			}
			if f.pid != 100 || string(withoutHeader([]byte(f.disk))) != text {
				t.Errorf("the worker is %d, and on disk is %q", f.pid, f.disk)
			}
		})
	}
}

// edited has the API say that another hand edited the file.
func (f *fake) edited() {
	read := f.raw
	f.raw = func() (dataplane.Raw, error) {
		raw, err := read()
		raw.Checksum = "00"
		return raw, err
	}
}

// Whoever does not lead changes nothing.
func TestWithoutTheLeadNothingIsChanged(t *testing.T) {
	f := newFake(t)
	notLeading := errors.New("not leading")
	api := NewFence(3, func() error { return notLeading }).Around(f, nil)
	ctx := t.Context()
	_, post := api.PostRaw(ctx, []byte("global\n"), dataplane.PostOptions{Version: 7})
	_, set := api.SetServer(ctx, "web", "s1", dataplane.ServerChange{AdminState: "maint"})
	_, _, rotate := api.RotateCertificate(ctx, "a.pem", nil)
	for name, err := range map[string]error{
		"post": post, "set server": set, "rotate": rotate, "claim": NewFence(3, func() error { return notLeading }).Claim(ctx, f, nil),
		"create": api.CreateFile(ctx, dataplane.Maps, "a.map", nil), "replace": api.ReplaceFile(ctx, dataplane.Maps, "a.map", nil),
		"delete": api.DeleteFile(ctx, dataplane.Maps, "a.map"), "delete transaction": api.DeleteTransaction(ctx, "1"),
		"add to map": api.AddMapEntries(ctx, "a.map", nil), "set in map": api.SetMapEntry(ctx, "a.map", "a", "b"),
		"delete in map": api.DeleteMapEntry(ctx, "a.map", "a"),
	} {
		if !errors.Is(err, notLeading) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(f.calls) > 0 {
		t.Errorf("called %q", f.calls)
	}
	if raw, err := api.Raw(ctx); err != nil || raw.Version != 7 {
		t.Errorf("looking: %v", err)
	}
}
