package pusher

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// bindText binds a configuration with the secret "s3cret".
func bindText(t *testing.T, revision uint64, config string) bind.Bound {
	t.Helper()
	s := snapshots.Draft{Files: []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte(config)}}}.Seal(revision, snapshots.ID{})
	secret := bind.SecretKey{Secret: snapshots.SecretName{Namespace: "shop", Name: "keys"}, Key: "token"}
	bound, err := bind.Bind(s, bind.Inputs{
		Live: bind.Live{Values: map[bind.SecretKey]string{secret: "s3cret"}}, Layout: bind.Layout{Maps: "/m", Certificates: "/c", General: "/g"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return bound
}

func TestChangeOf(t *testing.T) {
	t.Parallel()
	const (
		plain  = "backend b\n    mode http\n"
		secret = plain + "    x hapsnap:secret/shop/keys/token\n"
	)
	long := plain + "    acl " + strings.Repeat("a", 2*longestChange) + "\n"
	for name, c := range map[string]struct {
		from, to string // "" is not known
		reloaded bool
		want     string
	}{
		"nobody knows what ran":         {to: plain, reloaded: true, want: "reload: what ran before is not known"},
		"a line came":                   {from: plain, to: secret, reloaded: true, want: "reload: haproxy.cfg:3: +x (hidden)"},
		"a line went":                   {from: secret, to: plain, reloaded: true, want: "reload: haproxy.cfg:3: -x (hidden)"},
		"a section came":                {from: plain, to: plain + "\n\nbackend c\n", reloaded: true, want: `reload: haproxy.cfg:5: +backend c`},
		"a section went":                {from: secret + "\nbackend c\n", to: secret, reloaded: true, want: `reload: haproxy.cfg:5: -backend c`},
		"an empty line came":            {from: plain, to: plain + "\n", reloaded: true, want: `reload: haproxy.cfg:3: +`},
		"it was refused":                {from: plain, to: secret, want: "reload: haproxy.cfg:3: +x (hidden)"},
		"nothing":                       {from: plain, to: plain, want: "nothing"},
		"it was reloaded for no reason": {from: plain, to: plain, reloaded: true, want: "reload"},
		"a long line":                   {from: plain, to: long, reloaded: true, want: "reload: haproxy.cfg:3: +acl " + strings.Repeat("a", longestChange-len("acl ")) + "…"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var running *bind.Bound
			if c.from != "" {
				bound := bindText(t, 1, c.from)
				running = &bound
			}
			got := changeOf(running, bindText(t, 2, c.to), c.reloaded)
			if got.String() != c.want {
				t.Errorf("it is %q, want %q", got, c.want)
			}
		})
	}
}

// There is one change for each snapshot, that of the first instance; a later rollout of it
// has another. No more are kept than there is room for.
func TestWithChange(t *testing.T) {
	t.Parallel()
	change := func(to snapshots.ID, text string) Change {
		return Change{Snapshot: to, From: snapshots.ID{Revision: 9, Short: "9999999999"}, Class: bind.Reload, File: snapshots.ConfigFile, Line: 1, Text: text}
	}
	at := func(id snapshots.ID, began time.Time) *rollout.Rollout {
		return &rollout.Rollout{Target: id, Started: began}
	}
	list := withChange(nil, change(r1, "first"), at(r1, noon))
	list = withChange(list, change(r1, "second"), at(r1, noon))
	list = withChange(list, change(r2, "of another rollout"), at(r1, noon))
	list = withChange(list, change(r2, "of none"), nil)
	list = withChange(list, Change{Snapshot: r1, From: r1}, at(r1, noon.Add(time.Hour))) // it ran already
	list = withChange(list, change(r2, "third"), at(r2, noon))
	before := fmt.Sprint(list)
	again := withChange(list, change(r1, "fourth"), at(r1, noon.Add(time.Hour)))
	if got := fmt.Sprint(list); got != before {
		t.Errorf("the list that was given is another one: %s", got)
	}
	var got []string
	for _, c := range again {
		got = append(got, c.Snapshot.String()+" "+c.Text)
	}
	if diff := cmp.Diff([]string{r2.String() + " third", r1.String() + " fourth"}, got); diff != "" {
		t.Errorf("remembered otherwise (-want +got):\n%s", diff)
	}
	for n := range uint64(2 * keptChanges) {
		id := snapshots.ID{Revision: n + 10, Short: "cccccccccc"}
		again = withChange(again, change(id, ""), at(id, noon))
	}
	if len(again) != keptChanges || again[keptChanges-1].Snapshot.Revision != 2*keptChanges+9 {
		t.Errorf("%d are kept, the last is %s", len(again), again[len(again)-1].Snapshot)
	}
}

// Why a rollout reloads is said in the log, in the status while it is under way, and
// afterwards, also by a pusher that was started since.
func TestChangeIsTold(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V32, "a", "b")
	r.endpoints(echo(t, "one"))
	first := r.publish(config("1", ""))
	r.run()
	r.allRun(first)
	want := `reload: haproxy.cfg:12: +http-response set-header x-revision 2`
	told := r.ever(func(s Status) bool {
		return s.Rollout != nil && s.Rollout.Change != nil && s.Rollout.Change.String() == want
	})
	second := r.publish(config("2", ""))
	s := r.allRun(second)
	if !told() {
		t.Errorf("no status said %q while it was rolled out", want)
	}
	if log := r.logged(); !strings.Contains(log, `class=reload because="haproxy.cfg:12: +http-response set-header x-revision 2"`) {
		t.Error("the log does not say why it was reloaded")
	}
	check := func(s Status) {
		t.Helper()
		if c, ok := s.ChangeTo(second); !ok || c.String() != want || c.From != first {
			t.Errorf("the change is %+v (known: %v), want %q", c, ok, want)
		}
		if c, ok := s.ChangeTo(first); !ok || c.String() != "reload: what ran before is not known" {
			t.Errorf("the first change is %+v (known: %v)", c, ok)
		}
	}
	check(s)
	r.kill()
	seen := r.ever(func(Status) bool { return true })
	r.run()
	eventually(t, "the pusher says something again", seen)
	check(r.allRun(second))
}
