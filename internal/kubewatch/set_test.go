package kubewatch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/hapsnap/hapsnap/internal/kubeconfig"
	"github.com/hapsnap/hapsnap/internal/testing/kubetest"
)

// client-go has one rate limit for all errors of a process, which does not work in bubbles.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = nil //nolint:reassign // There is no other way.
	os.Exit(kubetest.Main(m))
}

var (
	shop  = Query{APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop"}
	later = Query{APIVersion: "example.com/v1", Kind: "Later", Namespace: "shop", Optional: true}

	errForbidden   = apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", errors.New("no"))
	errUnwatchable = apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", errors.New("cannot watch"))
	errNotFound    = apierrors.NewNotFound(schema.GroupResource{Resource: "laters"}, "")
)

// server stands in for an API server with objects of one kind, whose content is x.
type server struct {
	mu               sync.Mutex
	objects          map[string]string
	absent           bool  // the kind is not known
	away             bool  // nothing answers
	foreign          bool  // something else answers, which counts the requests
	listing, watched error // why that is not possible
	asked            int
	expired          bool // the next watch cannot go on from where the last one ended
	streams          []*watch.RaceFreeFakeWatcher
}

// refused is the error of a client whose server does not answer; the text differs each time.
func (s *server) refused() error {
	s.asked++
	if s.foreign {
		return fmt.Errorf("%w: request %d", kubeconfig.ErrForeign, s.asked)
	}
	return &url.Error{Op: "Get", URL: fmt.Sprintf("https://api/?try=%d", s.asked), Err: syscall.ECONNREFUSED}
}

func (s *server) open(context.Context, Query) (Resource, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return nil, false, s.refused()
	}
	return Typed(s), !s.absent, nil
}

func (s *server) List(context.Context, metav1.ListOptions) (*corev1.ConfigMapList, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return nil, s.refused()
	}
	out := &corev1.ConfigMapList{}
	for name, x := range s.objects {
		out.Items = append(out.Items, configMap(name, x))
	}
	return out, s.listing
}

func (s *server) Watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.away:
		return nil, s.refused()
	case s.watched != nil:
		return nil, s.watched
	case o.SendInitialEvents != nil:
		return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil)
	case s.expired:
		s.expired = false
		return nil, apierrors.NewResourceExpired("too old")
	}
	stream := watch.NewRaceFreeFake()
	s.streams = append(s.streams, stream)
	return stream, nil
}

// change changes the content of the server, and ends all watches. No watch can continue.
func (s *server) change(edit func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	edit()
	s.expired = true
	for _, stream := range s.streams {
		stream.Stop()
	}
	s.streams = nil
}

func configMap(name, x string) corev1.ConfigMap {
	return corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, ResourceVersion: "1"}, Data: map[string]string{"x": x}}
}

// stand is a Set that watches a server.
type stand struct {
	*server
	*Set
	t      *testing.T
	events []string
	log    bytes.Buffer
	end    context.CancelFunc
}

// begin watches queries of a server with the objects a and b. An object with x=bad cannot be used. Call it in a
// bubble.
func begin(t *testing.T, handle bool, edit func(*server), queries ...Query) *stand {
	t.Helper()
	s := &stand{server: &server{objects: map[string]string{"a": "1", "b": "1"}}, t: t}
	if edit != nil {
		edit(s.server)
	}
	if len(queries) == 0 {
		queries = []Query{shop}
	}
	o := Options{
		Open: s.open,
		Convert: func(Query) func(any) (any, error) {
			return func(o any) (any, error) {
				if c, ok := o.(*corev1.ConfigMap); ok && c.Data["x"] == "bad" {
					return nil, errors.New("bad")
				}
				return o, nil
			}
		},
	}
	if handle {
		o.Handle = func(e Event) {
			word := "+" + e.Name.Name
			if e.Object == nil {
				word = "-" + e.Name.Name
			}
			if e.Missing {
				word += " missing"
			}
			if e.At.IsZero() {
				word += " as ever"
			}
			s.events = append(s.events, word)
		}
	}
	s.Set = New(o)
	s.Plan(queries)
	s.run()
	return s
}

func (s *stand) run() {
	var ctx context.Context
	ctx, s.end = context.WithCancel(s.t.Context())
	go s.Run(ctx, slog.New(slog.NewTextHandler(&s.log, nil)))
}

// expect lets time pass until all tries were made, and compares the states of the queries.
func (s *stand) expect(what, want string) {
	s.t.Helper()
	<-time.After(time.Minute)
	synctest.Wait()
	var got []string
	s.Read(func(list []QueryState) {
		for _, q := range list {
			var words []string
			for name, o := range q.Objects {
				if c, ok := o.(*corev1.ConfigMap); ok {
					words = append(words, name.Name+"="+c.Data["x"])
				}
			}
			slices.Sort(words)
			for word, is := range map[string]bool{"unknown": !q.Synced, "absent": q.Absent, "forbidden": q.Forbidden(), "trouble: " + fmt.Sprint(q.Trouble()): q.Trouble() != nil && !q.Forbidden()} {
				if is {
					words = append(words, word)
				}
			}
			slices.Sort(words)
			got = append(got, strings.Join(words, " "))
		}
	})
	if strings.Join(got, "; ") != want {
		s.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func (s *stand) expectEvents(what string, want ...string) {
	s.t.Helper()
	<-time.After(time.Minute)
	synctest.Wait()
	s.Read(func([]QueryState) {
		slices.Sort(s.events)
		if !slices.Equal(s.events, want) {
			s.t.Errorf("%s: %q, want %q", what, s.events, want)
		}
		s.events = nil
	})
}

func (s *stand) expectLogged(text string, times int) {
	s.t.Helper()
	s.Read(func([]QueryState) {
		if n := strings.Count(s.log.String(), text); n != times {
			s.t.Errorf("%q was logged %d times, want %d:\n%s", text, n, times, &s.log)
		}
	})
}

// What answers in place of the API server may name each request. It is reported once.
func TestSomethingElseAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, false, func(s *server) { s.foreign, s.away = true, true })
		defer s.end()
		s.expect("away", "trouble: this is no answer of a Kubernetes API server: request 1 unknown")
		s.expectLogged("watch interrupted, keeping the objects known so far", 1)
		s.change(func() { s.away = false })
		s.expect("there", "a=1 b=1")
	})
}

// What the Set holds and reports while something is in the way.
func TestWhatIsInTheWay(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		queries []Query
		begin   func(*server)
		steps   func(*stand)
	}{
		"the API server is away, and back with less": {steps: func(s *stand) {
			s.expect("at first", "a=1 b=1")
			s.change(func() { s.away = true })
			s.expect("away", "a=1 b=1 trouble: connection refused")
			s.expectLogged("watch interrupted, keeping the objects known so far", 1)
			s.change(func() { s.away = false; delete(s.objects, "a"); s.objects["c"] = "1" })
			s.expect("back", "b=1 c=1")
			s.expectLogged("watch resumed", 1)
		}},
		"it is away from the beginning": {begin: func(s *server) { s.away = true }, steps: func(s *stand) {
			s.expect("away", "trouble: connection refused unknown")
			s.change(func() { s.away = false })
			s.expect("there", "a=1 b=1")
		}},
		"a permission is not given": {begin: func(s *server) { s.listing, s.watched = errForbidden, errForbidden }, steps: func(s *stand) {
			s.expect("forbidden", "forbidden unknown")
			s.change(func() { s.listing, s.watched = nil, nil })
			s.expect("given", "a=1 b=1")
		}},
		"a permission is withdrawn": {steps: func(s *stand) {
			s.expect("at first", "a=1 b=1")
			s.change(func() { s.listing, s.watched = errForbidden, errUnwatchable })
			s.expect("forbidden", "a=1 b=1 forbidden")
			<-time.After(time.Minute) // some tries later
			s.expectLogged("watch interrupted", 1)
			s.change(func() { s.listing, s.watched, s.objects["a"] = nil, nil, "2" })
			s.expect("given back", "a=2 b=1")
		}},
		"objects may be listed and not watched": {begin: func(s *server) { s.watched = errForbidden }, steps: func(s *stand) {
			s.expect("listed", "a=1 b=1 forbidden")
			s.change(func() { s.objects["a"] = "2" })
			s.expect("listed again", "a=2 b=1 forbidden")
			s.expectLogged("watch resumed", 0)
			s.expectLogged("watch interrupted", 1)
		}},
		"an optional kind comes later": {queries: []Query{later}, begin: func(s *server) { s.absent = true }, steps: func(s *stand) {
			s.expect("not there", "absent unknown")
			s.expectLogged("the cluster does not know an optional kind", 1)
			s.change(func() { s.away = true })
			s.expect("nobody can say", "absent trouble: connection refused unknown")
			s.change(func() { s.away, s.absent = false, false })
			s.expect("there", "a=1 b=1")
		}},
		"a kind is missing": {queries: []Query{with(later, func(q *Query) { q.Optional = false })}, begin: func(s *server) { s.absent = true }, steps: func(s *stand) {
			s.expect("not there", "absent trouble: the cluster does not know Later of example.com/v1 unknown")
		}},
		"a definition goes": {queries: []Query{later}, steps: func(s *stand) {
			s.expect("at first", "a=1 b=1")
			s.change(func() { s.listing, s.watched, s.absent = errNotFound, errNotFound, true })
			s.expect("gone", "a=1 absent b=1 trouble: the cluster does not know Later of example.com/v1")
			s.expectLogged("watch interrupted, keeping the objects known so far", 2)
			s.expectLogged("optional kind", 0)
			s.change(func() { s.listing, s.watched, s.absent = nil, nil, false; delete(s.objects, "a") })
			s.expect("back", "b=1")
		}},
		"an object cannot be used": {begin: func(s *server) { s.objects["a"] = "bad" }, steps: func(s *stand) {
			s.expect("from the beginning", "b=1")
			s.change(func() { s.objects["a"] = "1" })
			s.expect("mended", "a=1 b=1")
			s.change(func() { s.objects["a"] = "bad"; s.objects["b"] = "2" })
			s.expect("held as it was", "a=1 b=2")
			s.expectLogged(`object="ConfigMap shop/a" err=bad`, 2)
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := begin(t, false, test.begin, test.queries...)
				test.steps(s)
				s.end()
				<-time.After(time.Minute) // the time of the next attempt
			})
		})
	}
}

func with(q Query, edit func(*Query)) Query { edit(&q); return q }

// Handle learns which objects were deleted, which were missing in a list, and which no query wants any more.
func TestEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, true, nil)
		s.expectEvents("the first list", "+a as ever", "+b as ever")
		gone, changed := configMap("a", ""), configMap("b", "2")
		s.server.mu.Lock()
		s.streams[0].Modify(&changed)
		delete(s.objects, "a")
		s.streams[0].Delete(&gone)
		s.server.mu.Unlock()
		s.expectEvents("watched", "+b", "-a")
		s.change(func() { s.away = true })
		s.expectEvents("away")
		s.change(func() { s.away = false; s.objects = map[string]string{"c": "1"} })
		s.expectEvents("a list without b", "+c", "-b missing")
		s.Plan(nil)
		s.expectEvents("nobody wants it", "-c as ever")
		s.Plan([]Query{shop})
		s.expectEvents("somebody does", "+c as ever")
		s.end()
		s.expect("ended", "")
		s.expectEvents("ended")
		s.Plan([]Query{shop})
		s.run()
		s.expectEvents("it runs again", "+c as ever")
		s.end()
		<-time.After(time.Minute)
	})
}

// Plan reports whether the plan has anything that is not watched yet.
func TestPlanAdds(t *testing.T) {
	t.Parallel()
	s := New(Options{})
	for _, step := range []struct {
		plan []Query
		want bool
	}{{nil, false}, {[]Query{shop}, true}, {[]Query{shop, shop}, false}, {[]Query{later, shop}, true}, {[]Query{later}, false}} {
		if added := s.Plan(step.plan); added != step.want {
			t.Errorf("%v adds: %v", step.plan, added)
		}
	}
}

func TestQueriesAreNamed(t *testing.T) {
	t.Parallel()
	for want, q := range map[string]Query{
		"Secret shop/tls":                           {Kind: "Secret", Namespace: "shop", Name: "tls"},
		"IngressClass edge":                         {Kind: "IngressClass", Name: "edge"},
		"Ingresses in shop":                         {Kind: "Ingress", Namespace: "shop"},
		"EndpointSlices":                            {Kind: "EndpointSlice"},
		"NetworkPolicies in shop with a=b with c=d": {Kind: "NetworkPolicy", Namespace: "shop", Labels: "a=b", Fields: "c=d"},
		"Gateways":                                  {Kind: "Gateway"},
		"Boxes":                                     {Kind: "Box"},
	} {
		if got := q.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// With many watches, few try at the same time when an API server is back.
func TestPatience(t *testing.T) {
	t.Parallel()
	for watches, want := range map[int]time.Duration{1: 5 * time.Second, 500: 10 * time.Second, 10_000: 30 * time.Second} {
		if got := patience(watches); got != want {
			t.Errorf("%d watches: %s, want %s", watches, got, want)
		}
	}
}
