package push

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// These are the outcomes of a push that its caller distinguishes.
const (
	applied = "applied"
	refused = "refused"
	trouble = "trouble"
	faulty  = "faulty"
)

// one runs before each of the pushTests, and two is pushed.
var (
	one = bound(1, nil)
	two = bound(2, nil, bind.File{Kind: bind.MapFile, Name: "host-aa.map", Path: "/maps/host-aa.map", Content: []byte("a b\n")})

	lost = classed{dataplane.ErrUnknownOutcome}
)

// These are the calls that change something.
const (
	post1   = "post r000001-0000000001_aaaaaaaa, no reload"
	post2   = "post r000002-0000000002_aaaaaaaa, no reload"
	reload1 = "post r000001-0000000001_aaaaaaaa, reload"
	reload2 = "post r000002-0000000002_aaaaaaaa, reload"
	upload  = "create host-aa.map"
	tidy    = "delete transaction 1"

	validate1 = "validate r000001-0000000001_aaaaaaaa"
)

// pushTests change an instance that runs one, and push two to it.
var pushTests = map[string]struct {
	edit  func(f *fake)
	want  string
	calls []string
	runs  string // "one" by default; disk and memory must agree with it
}{
	"all goes well": {
		edit: func(*fake) {}, want: applied, calls: []string{upload, reload2}, runs: "two",
	},
	"it runs already": {
		edit: func(f *fake) { f.put(two); f.load() }, want: applied, runs: "two",
	},
	"it runs already, under another revision": {
		edit: func(f *fake) { f.put(renamed(two, 9)); f.load() }, want: applied, runs: "unknown",
	},
	"it runs, but an older file is on disk": {
		edit: func(f *fake) { f.put(two); f.load(); f.put(one) }, want: applied, calls: []string{post2}, runs: "two",
	},
	"it runs, but the file was cut short": {
		edit: func(f *fake) { f.put(two); f.load(); f.disk = f.disk[:len(f.disk)-20] }, want: applied, calls: []string{post2}, runs: "two",
	},
	"it runs, but the memory holds something else": {
		edit: func(f *fake) { f.put(two); f.load(); f.memory++ }, want: applied, calls: []string{post2}, runs: "two",
	},
	"its reload is under way": {
		edit: func(f *fake) {
			f.put(two)
			f.info = after(3, f.load, f.info)
		}, want: applied, runs: "two",
	},
	"its reload was lost with the API": {
		edit: func(f *fake) { f.put(two) }, want: applied, calls: []string{upload, reload2}, runs: "two",
	},
	"the file is there already": {
		edit: func(f *fake) { f.files["maps/host-aa.map"] = "a b\n" }, want: applied, calls: []string{reload2}, runs: "two",
	},
	"the file is there, with other content": {
		edit: func(f *fake) { f.files["maps/host-aa.map"] = "x y\n" }, want: applied,
		calls: []string{"replace host-aa.map", reload2}, runs: "two",
	},
	"the upload says that the file exists": {
		edit: func(f *fake) {
			f.create = func(dataplane.Storage, string) error { return classed{dataplane.ErrConflict} }
		},
		want: applied, calls: []string{upload, "replace host-aa.map", reload2}, runs: "two",
	},
	"the file is rejected": {
		edit: func(f *fake) {
			f.create = func(dataplane.Storage, string) error { return classed{dataplane.ErrRejected} }
		},
		want: refused, calls: []string{upload},
	},
	"a conflict": {
		edit: func(f *fake) { f.failPosts(1, classed{dataplane.ErrConflict}) }, want: applied,
		calls: []string{upload, reload2, tidy, reload2}, runs: "two",
	},
	"one conflict after the other": {
		edit: func(f *fake) { f.failPosts(9, classed{dataplane.ErrConflict}) }, want: trouble,
		calls: []string{upload, reload2, tidy, reload2, tidy, reload2, tidy},
	},
	"HAProxy refuses it": {
		edit: func(f *fake) { f.failPosts(1, classed{dataplane.ErrValidation}) }, want: refused, calls: []string{upload, reload2, tidy, validate1},
	},
	"HAProxy refuses what runs, too": {
		edit: func(f *fake) {
			f.valid = classed{dataplane.ErrValidation}
			f.failPosts(1, classed{dataplane.ErrValidation})
		}, want: faulty, calls: []string{upload, reload2, tidy, validate1},
	},
	"HAProxy does not find a file": {
		edit: func(f *fake) {
			f.postOnce(func(string, dataplane.PostOptions) (dataplane.Posted, error) {
				return dataplane.Posted{}, saying{classed{dataplane.ErrValidation}, `msg="config parsing [h.cfg:9] : failed to open pattern file </etc/haproxy/maps/host.map>."`}
			})
		}, want: faulty, calls: []string{upload, reload2, tidy},
	},
	"the reload fails for want of descriptors": {
		edit: func(f *fake) {
			f.postOnce(func(text string, o dataplane.PostOptions) (dataplane.Posted, error) {
				_, err := f.failReload(text, o)
				return dataplane.Posted{}, saying{err, "[ALERT]    (14) : [/usr/sbin/haproxy.main()] Cannot raise FD limit to 30232, limit is 20000."}
			})
		}, want: faulty, calls: []string{upload, reload2, post1},
	},
	"the API keeps files elsewhere": {
		edit: func(f *fake) { f.dirs = "/srv/files" }, want: faulty, calls: []string{upload},
	},
	"and has had them there": {
		edit: func(f *fake) { f.dirs, f.files["maps/old.map"] = "/srv/files", "a b\n" }, want: faulty,
	},
	"no right to post": {
		edit: func(f *fake) { f.failPosts(1, classed{dataplane.ErrUnauthorized}) }, want: trouble, calls: []string{upload, reload2},
	},
	"too many requests": {
		edit: func(f *fake) { f.failPosts(1, classed{dataplane.ErrTooMany}) }, want: trouble, calls: []string{upload, reload2},
	},
	"the API is away for a moment after its reload": {
		edit: func(f *fake) {
			f.postOnce(func(text string, o dataplane.PostOptions) (dataplane.Posted, error) {
				asked, info := 0, f.info
				f.info = func() (dataplane.RuntimeInfo, error) {
					if asked++; asked < 3 {
						return dataplane.RuntimeInfo{}, classed{dataplane.ErrUnreachable}
					}
					return info()
				}
				return f.commit(text, o)
			})
		}, want: applied, calls: []string{upload, reload2}, runs: "two",
	},
	"the reload fails": {
		edit: func(f *fake) { f.postOnce(f.failReload) }, want: refused, calls: []string{upload, reload2, post1},
	},
	"the reload fails, and so does the first try to restore": {
		edit: func(f *fake) {
			f.postOnce(f.failReload, func(string, dataplane.PostOptions) (dataplane.Posted, error) {
				return dataplane.Posted{}, classed{dataplane.ErrUnavailable}
			})
		}, want: refused, calls: []string{upload, reload2, post1, post1},
	},
	"HAProxy cannot be asked to reload": {
		edit: func(f *fake) {
			f.postOnce(func(text string, o dataplane.PostOptions) (dataplane.Posted, error) {
				f.info = func() (dataplane.RuntimeInfo, error) { return dataplane.RuntimeInfo{}, classed{dataplane.ErrRuntime} }
				return f.failReload(text, o)
			})
		}, want: trouble, calls: []string{upload, reload2}, runs: "unknown",
	},
	"the answer is lost after the reload": {
		edit: func(f *fake) {
			f.postOnce(func(text string, o dataplane.PostOptions) (dataplane.Posted, error) {
				_, _ = f.commit(text, o)
				return dataplane.Posted{}, lost
			})
		}, want: applied, calls: []string{upload, reload2}, runs: "two",
	},
	"the answer is lost after the reload, at the last try": {
		edit: func(f *fake) {
			conflict := func(string, dataplane.PostOptions) (dataplane.Posted, error) {
				return dataplane.Posted{}, classed{dataplane.ErrConflict}
			}
			f.postOnce(conflict, conflict, func(text string, o dataplane.PostOptions) (dataplane.Posted, error) {
				_, _ = f.commit(text, o)
				return dataplane.Posted{}, lost
			})
		}, want: applied, calls: []string{upload, reload2, tidy, reload2, tidy, reload2}, runs: "two",
	},
	"the answer is lost while the reload is under way": {
		edit: func(f *fake) {
			f.postOnce(func(text string, o dataplane.PostOptions) (dataplane.Posted, error) {
				f.put(two)
				f.info = after(3, f.load, f.info)
				return dataplane.Posted{}, lost
			})
		}, want: applied, calls: []string{upload, reload2}, runs: "two",
	},
	"the answer is lost, and the reload failed": {
		edit: func(f *fake) {
			f.postOnce(func(text string, o dataplane.PostOptions) (dataplane.Posted, error) {
				_, _ = f.failReload(text, o)
				return dataplane.Posted{}, lost
			})
		}, want: refused, calls: []string{upload, reload2, post1},
	},
	"the request was lost": {
		edit: func(f *fake) { f.failPosts(1, lost) }, want: applied, calls: []string{upload, reload2, reload2}, runs: "two",
	},
	"the API loses a section": {
		edit: func(f *fake) {
			f.postOnce(func(text string, o dataplane.PostOptions) (dataplane.Posted, error) {
				return f.commit(strings.Replace(text, "backend web\n", "", 1), o)
			})
		}, want: refused, calls: []string{upload, reload2, reload1},
	},
	"no worker ever names it": {
		edit: func(f *fake) {
			f.post = func(text string, o dataplane.PostOptions) (dataplane.Posted, error) {
				o.ForceReload = false
				return f.commit(text, o)
			}
		}, want: trouble, calls: []string{upload, reload2, reload2, reload2}, runs: "unknown",
	},
	"out of reach": {
		edit: func(f *fake) {
			f.info = func() (dataplane.RuntimeInfo, error) {
				return dataplane.RuntimeInfo{}, classed{dataplane.ErrUnreachable}
			}
		}, want: trouble, runs: "unknown",
	},
}

func TestPush(t *testing.T) {
	for name, test := range pushTests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.put(one)
			f.load()
			test.edit(f)
			i := Instance{API: f, ReloadTimeout: 40 * time.Millisecond, Poll: time.Millisecond, Layout: bind.Layout{Maps: "/etc/haproxy/maps", Certificates: "/c", General: "/g"}}
			done, err := i.Push(t.Context(), two, &one, CertificateHashes{})
			if got := outcomeOf(err); got != test.want {
				t.Errorf("it was %s: %v; want %s", got, err, test.want)
			}
			if err == nil && done.Info.PID != f.pid {
				t.Errorf("it was applied by worker %d, and %d runs", done.Info.PID, f.pid)
			}
			if diff := cmp.Diff(test.calls, f.calls); diff != "" {
				t.Errorf("called otherwise (-want +got):\n%s", diff)
			}
			f.checkRuns(test.runs)
		})
	}
}

// renamed returns the same content with another revision.
func renamed(b bind.Bound, revision uint64) bind.Bound {
	id := snapshots.ID{Revision: revision, Short: b.ID.Short}
	b.Config = bytes.ReplaceAll(b.Config, []byte(b.ID.String()), []byte(id.String()))
	b.Node = strings.Replace(b.Node, b.ID.String(), id.String(), 1)
	b.ID = id
	return b
}

// checkRuns checks that worker, disk and memory agree.
func (f *fake) checkRuns(which string) {
	want := one
	switch which {
	case "unknown":
		return
	case "two":
		want = two
	}
	if disk := readText([]byte(f.disk)); f.node != want.Node || !disk.holds(want) || disk.version != f.memory {
		f.t.Errorf("the worker runs %s, the memory is at version %d, and on disk is\n%s", f.node, f.memory, f.disk)
	}
}

func outcomeOf(err error) string {
	switch {
	case err == nil:
		return applied
	case errors.Is(err, ErrInstance) || errors.Is(err, ErrDirectory):
		return faulty
	case errors.Is(err, ErrRefused):
		return refused
	}
	return trouble
}

// put writes a bound configuration to disk and memory.
func (f *fake) put(b bind.Bound) {
	if _, err := f.commit(string(b.Config), dataplane.PostOptions{Version: f.memory}); err != nil {
		f.t.Fatal(err)
	}
}

// failPosts makes the next n posts fail without an effect.
func (f *fake) failPosts(n int, err error) {
	next := f.post
	f.post = func(text string, o dataplane.PostOptions) (dataplane.Posted, error) {
		if n--; n >= 0 {
			return dataplane.Posted{}, err
		}
		return next(text, o)
	}
}

type poster = func(text string, o dataplane.PostOptions) (dataplane.Posted, error)

// postOnce replaces the next posts, one function for each.
func (f *fake) postOnce(steps ...poster) {
	next := f.post
	f.post = func(text string, o dataplane.PostOptions) (dataplane.Posted, error) {
		if len(steps) == 0 {
			return next(text, o)
		}
		step := steps[0]
		steps = slices.Delete(steps, 0, 1)
		return step(text, o)
	}
}

// after makes something happen at the nth call.
func after(n int, happen func(), next func() (dataplane.RuntimeInfo, error)) func() (dataplane.RuntimeInfo, error) {
	return func() (dataplane.RuntimeInfo, error) {
		if n--; n == 0 {
			happen()
		}
		return next()
	}
}

// The first push of all has no last good snapshot. If it fails, the former file on disk is restored.
func TestFirstPushThatFailsRestoresWhatWasThere(t *testing.T) {
	f := newFake(t)
	before := f.disk
	f.postOnce(f.failReload)
	i := Instance{API: f, ReloadTimeout: 40 * time.Millisecond, Poll: time.Millisecond}
	_, err := i.Push(t.Context(), bound(1, nil), nil, CertificateHashes{})
	if outcomeOf(err) != refused || !strings.Contains(f.disk, "node bootstrap") || f.memory != readText([]byte(f.disk)).version {
		t.Errorf("it was %v; memory is at version %d, and on disk is\n%s\nwhere there was\n%s", err, f.memory, f.disk, before)
	}
}

func TestPushRefusesWhatTheAPIWouldDamage(t *testing.T) {
	f := newFake(t)
	b := bound(1, nil)
	b.Config = append([]byte("# "+strings.Repeat("x", maxLine)+"\n"), b.Config...)
	_, err := Instance{API: f, ReloadTimeout: time.Second}.Push(t.Context(), b, nil, CertificateHashes{})
	if outcomeOf(err) != refused || len(f.calls) > 0 {
		t.Errorf("it was %v, after %q", err, f.calls)
	}
}

func TestReadText(t *testing.T) {
	got := readText([]byte("# _md5hash=abc\n# _version=12\n\nglobal\n  node \"n1\"\n\nbackend a b\n\tserver s1 10.0.0.1:80 check weight 7\n" +
		"  server s2 [2001:db8::1]:80 disabled\n  server s3 name.example:80\n  # hapsnap end n1\n"))
	if got.version != 12 || got.node != "n1" || got.end != "n1" || got.sections != 2 || len(got.servers()) != 2 {
		t.Errorf("read %+v", got)
	}
	if s := got.servers()[serverKey{"a", "s1"}]; s.weight != 7 || s.disabled || s.address.String() != "10.0.0.1:80" {
		t.Errorf("s1 is %+v", s)
	}
	if s := got.servers()[serverKey{"a", "s2"}]; s.weight != -1 || !s.disabled {
		t.Errorf("s2 is %+v", s)
	}
	// Templates may use quotes and any indentation, also for the first word of a section.
	got = readText([]byte("  'global' # one\n\"node\" n2 # as bound\n  backend \"a\"\nserver 's1' 10.0.0.1:80 \"disabled\" # weight 3\nserver s2 10.0.0.1:81 # disabled\n# hapsnap end n2\n"))
	if got.node != "n2" || got.end != "n2" || got.sections != 2 || len(got.servers()) != 2 {
		t.Errorf("read %+v", got)
	}
	if s := got.servers()[serverKey{"a", "s1"}]; s.weight != -1 || !s.disabled {
		t.Errorf("s1 is %+v", s)
	}
	if s := got.servers()[serverKey{"a", "s2"}]; s.disabled {
		t.Errorf("s2 is %+v", s)
	}
	if empty := readText(nil); empty.version != -1 {
		t.Errorf("nothing has version %d", empty.version)
	}
}
