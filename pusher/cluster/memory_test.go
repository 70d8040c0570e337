package cluster

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/internal/kubewatch"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// scripted is a cluster whose changes a test sets.
type scripted struct{ next []Change }

func (s *scripted) Run(context.Context)      {}
func (s *scripted) Want(Wanted)              {}
func (s *scripted) Changes() <-chan struct{} { return nil }

func (s *scripted) Take() (c Change) {
	if len(s.next) > 0 {
		c, s.next = s.next[0], s.next[1:]
	}
	return c
}

var auth = snapshots.SecretName{Namespace: "shop", Name: "auth"}

// is returns the Secret shop/auth with users, as it was read.
func is(users string) map[snapshots.SecretName]*corev1.Secret {
	return map[snapshots.SecretName]*corev1.Secret{auth: {
		ObjectMeta: metav1.ObjectMeta{Namespace: auth.Namespace, Name: auth.Name},
		Data:       map[string][]byte{bind.UsersKey: []byte(users), corev1.TLSPrivateKeyKey: []byte("PRIVATE")},
	}}
}

func gone() map[snapshots.SecretName]*corev1.Secret {
	return map[snapshots.SecretName]*corev1.Secret{auth: nil}
}

// settled is a status in which the Secret was read, or may not be read.
func settled(denied bool) *Status {
	s := &Status{secrets: map[snapshots.SecretName]bool{auth: true}, denied: map[kubewatch.Query]bool{}}
	if denied {
		s.denied[secret(auth)] = true
	}
	return s
}

// While a Secret may not be read, its last content stands in for it: from the start of a pusher until the
// Secret is read or known to be gone.
func TestMemory(t *testing.T) {
	t.Parallel()
	usersIn := func(c Change) string {
		switch s, told := c.Secrets[auth]; {
		case !told:
			return "nothing"
		case s == nil && c.Missing[auth]:
			return "missing"
		case s == nil:
			return "gone"
		default:
			return string(s.Data[bind.UsersKey])
		}
	}
	for name, test := range map[string]struct {
		before []Change // changes of the pusher before
		now    []Change
		want   string // after each change
	}{
		"denied":                        {[]Change{{Secrets: is("alice")}}, []Change{{Status: settled(true)}, {Status: settled(true)}}, "alice, nothing"},
		"never read":                    {nil, []Change{{Status: settled(true)}}, "nothing"},
		"read":                          {[]Change{{Secrets: is("alice")}}, []Change{{Status: settled(false), Secrets: is("bob")}}, "bob"},
		"read, then denied":             {[]Change{{Secrets: is("alice")}}, []Change{{Status: settled(false), Secrets: is("bob")}, {Status: settled(true)}}, "bob, nothing"},
		"gone before":                   {[]Change{{Secrets: is("alice")}, {Secrets: gone()}}, []Change{{Status: settled(true)}}, "nothing"},
		"denied, then read":             {[]Change{{Secrets: is("alice")}}, []Change{{Status: settled(true)}, {Status: settled(false), Secrets: is("bob")}, {Status: settled(true)}}, "alice, bob, nothing"},
		"denied, then there is none":    {[]Change{{Secrets: is("alice")}}, []Change{{Status: settled(true)}, {Status: settled(false)}, {Status: settled(true)}}, "alice, missing, nothing"},
		"denied, and again by the next": {[]Change{{Secrets: is("alice")}, {Status: settled(true)}}, []Change{{Status: settled(true)}}, "alice"},
		"there is none":                 {[]Change{{Secrets: is("alice")}}, []Change{{Status: settled(false)}, {Status: settled(true)}}, "nothing, nothing"},
	} {
		now := time.Now()
		begin := func(changes []Change, kept []byte) *Memory {
			m := Remember(&scripted{changes}, kept, nil, slog.New(slog.DiscardHandler), now)
			m.Want(Wanted{Keys: []bind.SecretKey{{Secret: auth, Key: bind.UsersKey}}})
			return m
		}
		m := begin(test.before, nil)
		for range test.before {
			m.Take()
		}
		kept, err := m.encoded(now)
		if err != nil || strings.Contains(string(kept), corev1.TLSPrivateKeyKey) {
			t.Fatalf("%s: keeps %s: %v", name, kept, err)
		}
		m = begin(test.now, kept)
		var got []string
		for range test.now {
			got = append(got, usersIn(m.Take()))
		}
		if got := strings.Join(got, ", "); got != test.want {
			t.Errorf("%s: it says %q, want %q", name, got, test.want)
		}
	}
}

// The memory is bounded, whatever tenants have in their Secrets. It forgets what no snapshot needs after a
// time, but not while a pusher starts.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var log strings.Builder
	m := Remember(&scripted{[]Change{{Secrets: is("alice")}}}, nil, nil, slog.New(slog.NewTextHandler(&log, nil)), now)
	wanted := Wanted{Keys: []bind.SecretKey{{Secret: auth, Key: bind.UsersKey}}}
	m.Take()
	for _, name := range []string{"b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q"} {
		of := snapshots.SecretName{Namespace: "evil", Name: name}
		m.read[of] = &corev1.Secret{Data: map[string][]byte{bind.UsersKey: make([]byte, largestKept)}}
		wanted.Keys = append(wanted.Keys, bind.SecretKey{Secret: of, Key: bind.UsersKey})
	}
	m.read[snapshots.SecretName{Namespace: "evil", Name: "q"}].Data[bind.UsersKey] = make([]byte, 1<<20)
	m.Want(wanted)
	kept, err := m.encoded(now)
	if err != nil || len(kept) > 900<<10 || !strings.Contains(string(kept), `"namespace":"shop"`) {
		t.Errorf("%d bytes are kept: %v", len(kept), err)
	}
	if again, _ := m.encoded(now); string(again) != string(kept) || strings.Count(log.String(), "more in Secrets than can be remembered") != 1 {
		t.Errorf("another time: %d bytes, the log says %s", len(again), log.String())
	}

	next := Remember(&scripted{}, kept, nil, slog.New(slog.NewTextHandler(&log, nil)), now)
	next.Want(Wanted{Keys: []bind.SecretKey{{Secret: snapshots.SecretName{Namespace: "shop", Name: "other"}, Key: "token"}}})
	if soon, _ := next.encoded(now.Add(time.Minute)); string(soon) != string(kept) {
		t.Error("a pusher that starts forgets what it was not asked for yet")
	}
	if later, _ := next.encoded(now.Add(2 * keptUnwanted)); strings.Contains(string(later), "auth") {
		t.Errorf("nobody needs it, and it is kept: %s", later)
	}
	for _, damaged := range []string{"", "{", `{"kind":"Another"}`} {
		if m := Remember(&scripted{}, []byte(damaged), nil, slog.New(slog.DiscardHandler), now); len(m.before) != 0 {
			t.Errorf("%q is remembered", damaged)
		}
	}
}

// Keep repeats a failed save, saves nothing twice, and stops when another pusher leads.
func TestMemoryIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		faults := []error{errors.New("no connection"), errors.New("no connection"), nil, ErrReplaced}
		var calls int
		var log strings.Builder
		source := &scripted{[]Change{{Secrets: is("alice")}, {}, {Secrets: is("alice")}, {Secrets: is("bob")}}}
		m := Remember(source, nil, func(context.Context, []byte) error {
			calls++
			return faults[calls-1]
		}, slog.New(slog.NewTextHandler(&log, nil)), time.Now())
		m.Want(Wanted{Keys: []bind.SecretKey{{Secret: auth, Key: bind.UsersKey}}})
		ended := make(chan struct{})
		go func() { m.Keep(t.Context()); close(ended) }()
		m.Take()
		<-time.After(time.Minute)
		synctest.Wait()
		if calls != 3 || strings.Count(log.String(), "trying again") != 1 {
			t.Errorf("%d attempts, the log says %s", calls, log.String())
		}
		m.Take()
		m.Take()
		<-time.After(time.Minute)
		synctest.Wait()
		if calls != 3 {
			t.Errorf("nothing changed, and it is kept again: %d", calls)
		}
		m.Take()
		<-ended
	})
}
