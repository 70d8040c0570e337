package pusher

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/pusher/observe"
)

// The status says which backends have no server up, by what the slots hold and by what
// HAProxy's checks say, and when that is over.
func TestStatusSaysWhichBackendsAreEmpty(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V34, "a")
	const backends = "backend shop_web\n    #hapsnap servers shop/web:http\nbackend shop_dead\n    #hapsnap servers shop/dead:http -- check inter 100ms fall 1\nbackend shop_none\n    #hapsnap servers shop/none:http\n"
	r.endpoints(echo(t, "one"))
	dead := listen(t)
	r.endpointsOf("dead", "live/dead.yaml", dead.Addr().String())
	dead.Close()
	text, _, _ := strings.Cut(config("1", ""), "\nbackend ")
	r.allRunAfter(r.publish(text + "\n" + backends))
	names := func(s observe.Status) (out []string) {
		if s.Backends == nil {
			return nil
		}
		for _, b := range s.Backends.List {
			out = append(out, fmt.Sprint(b.Backend, b.Instances))
		}
		return out
	}
	s := r.until("both are said", func(s observe.Status) bool { return slices.Equal(names(s), []string{"shop_dead[a]", "shop_none[]"}) })
	if s.Backends.All != 3 || s.Backends.Empty != 2 || s.Backends.Failing != 1 || s.Condition().Fields(time.Now())["emptyBackends"] != "2" {
		t.Errorf("%+v", s.Backends)
	}
	r.endpointsOf("none", "live/none.yaml", echo(t, "two"))
	r.until("one is over", func(s observe.Status) bool { return slices.Equal(names(s), []string{"shop_dead[a]"}) })
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
	told := r.ever(func(s observe.Status) bool {
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
	check := func(s observe.Status) {
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
	seen := r.ever(func(observe.Status) bool { return true })
	r.run()
	eventually(t, "the pusher says something again", seen)
	check(r.allRun(second))
}
