package push

import (
	"cmp"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots/bind"
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

// A different term in the file is no drift.
func TestTheTermIsNoDrift(t *testing.T) {
	a := dataplane.Split([]byte("# _md5hash=1\n# _version=3\n# hapsnap term 7\nglobal\n"))
	b := dataplane.Split([]byte("# _md5hash=2\n# _version=9\n# hapsnap term 12\nglobal\n"))
	if digestOf(a) != digestOf(b) || digestOf(a) != digestOf(dataplane.Split([]byte("global\n"))) {
		t.Error("digests differ")
	}
	if got := withoutHeader(a); got.String() != "global\n" {
		t.Errorf("without its header it is %q", got)
	}
}

// Each way of writing haproxy.cfg writes the term.
func TestPushesWriteTheTerm(t *testing.T) {
	f := newFake(t)
	fence := NewFence(3, leading)
	i := Instance{API: fence.Around(f, nil), ReloadTimeout: time.Second}
	want := bound(1, []bind.Server{server("s1", "10.0.0.1", bind.SlotReady)})
	done, err := i.Push(t.Context(), want, nil, CertificateHashes{})
	if err != nil || termOf([]byte(f.disk)) != 3 {
		t.Fatalf("pushed, on disk is term %d: %v", termOf([]byte(f.disk)), err)
	}
	fence.Raise(5)
	disk, err := i.WriteText(t.Context(), want)
	if err != nil || termOf([]byte(f.disk)) != 5 || strings.Count(f.disk, termMark) != 1 {
		t.Errorf("persisted as %q: %v", f.disk, err)
	}
	if disk != done.Disk || disk != digestOf(dataplane.Split(want.Config)) {
		t.Error("the digests differ by the term")
	}
}

// A former leader that continues is refused: by the version if it looked at the instance before, and by the
// term if it looks now.
func TestAnOldTermWritesNothing(t *testing.T) {
	f := newFake(t)
	old := NewFence(3, leading).Around(f, nil)
	want := bound(1, []bind.Server{server("s1", "10.0.0.1", bind.SlotReady)})
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
	if _, err := i.Push(t.Context(), want, nil, CertificateHashes{}); !errors.Is(err, outranked) || errors.Is(err, ErrRefused) {
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
		term  int64 // the term in the file afterwards
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
		"of one that no pusher reached": {
			disk: "# _version=7\n# hapsnap term 9223372036854775807\n" + text, term: 3,
			calls: []string{"post bootstrap, no reload"},
		},
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
			if diff := gocmp.Diff(test.calls, f.calls); diff != "" {
				t.Errorf("called otherwise (-want +got):\n%s", diff)
			}
			if f.pid != 100 || withoutHeader(dataplane.Split([]byte(f.disk))).String() != text {
				t.Errorf("the worker is %d, and on disk is %q", f.pid, f.disk)
			}
		})
	}
}

// edited makes the API report that somebody else edited the file.
func (f *fake) edited() {
	read := f.raw
	f.raw = func() (dataplane.Raw, error) {
		raw, err := read()
		raw.Checksum = "00"
		return raw, err
	}
}

// readers are the methods of the API that change nothing.
var readers = map[string]bool{
	"Raw": true, "Info": true, "RuntimeInfo": true, "Reload": true, "Servers": true, "Files": true, "ReadFile": true,
	"Certificate": true, "RuntimeCertificate": true, "RuntimeCertificates": true, "RuntimeMaps": true, "MapEntries": true, "MapEntry": true, "Transactions": true, "Process": true,
	"FrontendStatistics": true,
}

// A pusher changes nothing if it does not lead, if another pusher leads the instance, or if it does not know
// yet which one does. That holds for each method.
func TestWithoutTheLeadNothingIsChanged(t *testing.T) {
	notLeading := errors.New("not leading")
	unread := NewRecord(Remembered{})
	for name, test := range map[string]struct {
		leads  func() error
		record *Record
		want   error
	}{
		"it does not lead":         {func() error { return notLeading }, nil, notLeading},
		"nobody knows who leads":   {leading, unread, errNotRead},
		"another pusher leads one": {leading, ledByAnother(t), LedByOtherError{By: Pusher{State: "other", Place: "elsewhere"}}},
	} {
		f := newFake(t)
		fence := NewFence(3, test.leads)
		fence.Sign(Pusher{State: "own", Place: "here"}, false)
		api := reflect.ValueOf(fence.Around(f, test.record))
		methods := reflect.TypeFor[API]()
		for n := range methods.NumMethod() {
			m := methods.Method(n)
			if readers[m.Name] {
				continue
			}
			in := []reflect.Value{reflect.ValueOf(t.Context())}
			for a := 1; a < m.Type.NumIn(); a++ {
				in = append(in, reflect.Zero(m.Type.In(a)))
			}
			out := api.MethodByName(m.Name).Call(in)
			err, _ := out[len(out)-1].Interface().(error)
			if !errors.Is(err, test.want) {
				t.Errorf("%s: %s returns %v", name, m.Name, err)
			}
		}
		if len(f.calls) > 0 {
			t.Errorf("%s: called %q", name, f.calls)
		}
	}
}

// ledByAnother returns the record of an instance that has the mark of another pusher.
func ledByAnother(t *testing.T) *Record {
	t.Helper()
	f := newFake(t)
	another := NewFence(3, leading)
	another.Sign(Pusher{State: "other", Place: "elsewhere"}, false)
	if err := another.Claim(t.Context(), f, NewRecord(Remembered{})); err != nil {
		t.Fatal(err)
	}
	record, own := NewRecord(Remembered{}), NewFence(3, leading)
	own.Sign(Pusher{State: "own", Place: "here"}, false)
	if _, err := own.Around(f, record).Raw(t.Context()); err == nil {
		t.Fatalf("nobody leads the instance with %q", f.disk)
	}
	return record
}

// A pusher that finds an instance led by another one reads when and where that one wrote. An older pusher,
// which knows only marks, reads the same mark, and removes that line with the header.
func TestWhenAnotherWrote(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	another := NewFence(3, leading)
	another.Sign(Pusher{State: "other", Place: "elsewhere"}, false)
	another.On("pod b")
	begin := time.Now().UTC().Truncate(time.Second)
	record, own := NewRecord(Remembered{}), NewFence(3, leading)
	own.Sign(Pusher{State: "own", Place: "here"}, false)
	var first string
	for n := range 2 {
		if _, err := another.Around(f, NewRecord(Remembered{})).Raw(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := another.Claim(t.Context(), f, NewRecord(Remembered{})); err != nil {
			t.Fatal(err)
		}
		if _, err := own.Around(f, record).Raw(t.Context()); err == nil {
			t.Fatal("nobody leads the instance")
		}
		who := record.View().LeaderText()
		at, ok := strings.CutPrefix(strings.TrimSuffix(who, " on pod_b"), "elsewhere (state other), which wrote it at ")
		wrote, err := time.Parse(time.RFC3339, at)
		if !ok || err != nil || wrote.Before(begin) || wrote.After(time.Now()) {
			t.Errorf("look %d: %s (%v)", n, who, err)
		}
		if first = cmp.Or(first, who); who != first {
			t.Errorf("%q became %q", first, who)
		}
		later := strings.Replace(f.disk, at, "2040-01-01T00:00:00Z", 1)
		if later == f.disk && n == 0 {
			t.Fatalf("no time in %q", f.disk)
		}
		f.disk = later
		another.Raise(4) // so that it writes again
		own.Raise(4)
	}
	m, found := markOf([]byte(f.disk))
	if !found || m.State != "other" || strings.Contains(withoutHeader(dataplane.Split([]byte(f.disk))).String(), "wrote this") {
		t.Errorf("the mark is %+v in %q", m, f.disk)
	}
}

// The state keeps marks, so one that is longer than any place is none.
func TestMarkOfSomebodyElse(t *testing.T) {
	t.Parallel()
	for length, want := range map[int]bool{4000: true, longestMark: false} {
		if m, found := markOf([]byte(mark{Pusher{"state", strings.Repeat("p", length)}, 7}.line())); found != want {
			t.Errorf("a place of %d bytes: %v, it has %d", length, found, len(m.Place))
		}
	}
}

// A line of somebody else is shown only if it has the form of ours.
func TestWhatIsNoTimeOfWriting(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		wroteLine(time.Unix(0, 0), "a"): "1970-01-01T00:00:00Z on a", wroteMark + "soon on a\n": "", wroteMark + "1970-01-01T00:00:00Z on\n": "",
		wroteMark + "1970-01-01T00:00:00Z on " + strings.Repeat("a", 300) + "\n": "", "global\n" + wroteLine(time.Unix(0, 0), "a"): "",
		wroteMark + "1970-01-01T00:00:00Z on \x1b[31mred\n": "1970-01-01T00:00:00Z on _[31mred", "": "",
	} {
		if got := wroteOf([]byte(line)); got != want {
			t.Errorf("%q: %q", line, got)
		}
	}
}

// While a push was long, the worker may have said more to it than to the probes. It counts as judged all the same, and
// is not asked again and again until the next probe.
func TestJudgedByALaterReport(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	heard := ProcessOf(dataplane.RuntimeInfo{PID: 7, Node: "a", Uptime: 2 * time.Minute}, at)
	record := RecordView{Remembered: Remembered{Worker: heard}}
	for name, test := range map[string]struct {
		info   dataplane.RuntimeInfo
		asked  time.Duration // after the last report
		judged bool
	}{
		"the same later":                  {dataplane.RuntimeInfo{PID: 7, Node: "a", Uptime: 140 * time.Second}, 20 * time.Second, true},
		"the same earlier":                {dataplane.RuntimeInfo{PID: 7, Node: "a", Uptime: 100 * time.Second}, -20 * time.Second, true},
		"another earlier":                 {dataplane.RuntimeInfo{PID: 6, Node: "a", Uptime: 100 * time.Second}, -20 * time.Second, false},
		"another later":                   {dataplane.RuntimeInfo{PID: 8, Node: "a"}, time.Second, false},
		"started again, with the same id": {dataplane.RuntimeInfo{PID: 7, Node: "a", Uptime: 2 * time.Second}, 20 * time.Second, false},
		"the same, and the clock of the former pusher was ahead": {dataplane.RuntimeInfo{PID: 7, Node: "a", Uptime: 130 * time.Second}, -50 * time.Second, true},
	} {
		if got := record.Judged(test.info, at.Add(test.asked)); got != test.judged {
			t.Errorf("%s: judged is %t", name, got)
		}
	}
}
