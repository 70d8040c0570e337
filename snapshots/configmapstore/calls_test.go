package configmapstore

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/storetest"
)

// calls are those that a client makes of the API server.
type calls struct {
	mu   sync.Mutex
	all  []string
	meet func(*http.Request) *http.Response // answers a call in place of the API server
}

// countCalls notes the calls of all clients that are made of a configuration from now on.
func countCalls(config *rest.Config) *calls {
	c := &calls{meet: func(*http.Request) *http.Response { return nil }}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport(func(r *http.Request) (*http.Response, error) {
			_, name, _ := strings.Cut(r.URL.Path, "/configmaps")
			what := r.Method
			switch {
			case r.URL.Query().Get("watch") != "":
				what = "WATCH"
			case r.Method == http.MethodGet && name == "":
				what = "LIST"
			}
			c.mu.Lock()
			c.all = append(c.all, what)
			answer := c.meet(r)
			c.mu.Unlock()
			if answer != nil {
				return answer, nil
			}
			return next.RoundTrip(r)
		})
	})
	return c
}

// take returns the calls since it was called last, sorted.
func (c *calls) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.all
	c.all = nil
	slices.Sort(all)
	return all
}

// The first publish of a process lists the store once. All others list nothing, whatever the length of the history.
func TestPublishMakesAsManyCallsAtAnyLength(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	c := countCalls(p.config)
	publish(t, p.open(), storetest.Draft("first"))
	c.take()
	s := p.open()
	for n := range 30 {
		publish(t, s, storetest.Draft(fmt.Sprint("web", n)))
		got, want := c.take(), []string{"PATCH", "PATCH", "POST", "POST", "WATCH"}
		if n == 0 { // it also verifies the newest
			want = []string{"GET", "GET", "LIST", "PATCH", "PATCH", "POST", "POST", "WATCH"}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("publish %d of a process: %v, want %v", n+1, got, want)
		}
		if m := s.past.memory; m == nil || len(m.open) > 6 || len(m.settled) != n+1-1 || len(m.owners) != len(m.settled) {
			t.Fatalf("after %d the memory is %+v", n+1, m)
		}
	}
	wantChain(t, s, 31)
}

// wantChain checks that there are so many snapshots, each on top of the one before.
func wantChain(t *testing.T, s *Store, n int) {
	t.Helper()
	ids, err := s.IDs(t.Context())
	if err != nil || len(ids) != n {
		t.Fatalf("there are %v, %v, want %d", ids, err, n)
	}
	for i, id := range ids[1:] {
		m, err := s.Manifest(t.Context(), id)
		if err != nil || m.Spec.Parent != ids[i] || id.Revision != ids[i].Revision+1 {
			t.Errorf("%s follows %s, and is on top of %s, %v", id, ids[i], m.Spec.Parent, err)
		}
	}
}

// others has so many other writers publish.
func others(p *place, n int) (ids []snapshots.ID) {
	p.Helper()
	for i := range n {
		ids = append(ids, publish(p.T, p.open(), storetest.Draft(fmt.Sprint("other", i))))
	}
	return ids
}

// deleteNewest deletes the third snapshot, as people do.
func deleteNewest(p *place) {
	if err := p.client.Delete(p.Context(), p.object("edge-r000003")); err != nil {
		p.Error(err)
	}
}

// What others did since a writer published last counts: no revision is given twice, and nothing is taken for published
// that no longer is.
func TestOthersWriteBetween(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		between func(p *place, ids []snapshots.ID)
		draft   string
		want    uint64
	}{
		"another writer publishes":                             {func(p *place, _ []snapshots.ID) { others(p, 1) }, "next", 5},
		"another writer publishes, and the content is old now": {func(p *place, _ []snapshots.ID) { others(p, 1) }, "web2", 5},
		"another writer publishes, and deletes its first": {func(p *place, _ []snapshots.ID) {
			ids := others(p, 3)
			if err := p.open().Delete(p.Context(), ids[:2]...); err != nil {
				p.Error(err)
			}
		}, "next", 7},
		"all but the newest are deleted": {func(p *place, ids []snapshots.ID) {
			if err := p.open().Delete(p.Context(), ids[:2]...); err != nil {
				p.Error(err)
			}
		}, "next", 4},
		"the newest is deleted by hand": {func(p *place, _ []snapshots.ID) { deleteNewest(p) }, "web2", 4},
		"the newest is deleted by hand, and another writer publishes": {func(p *place, _ []snapshots.ID) {
			deleteNewest(p)
			if id := others(p, 1)[0]; id.Revision != 4 {
				p.Errorf("the other writer gives %s", id)
			}
		}, "next", 5},
		"the status claims a revision that leaves no room": {func(p *place, _ []snapshots.ID) {
			o := p.object(statusName("edge"))
			o.Annotations[newestAnnotation] = snapshots.ID{Revision: snapshots.MaxRevision, Short: "0123456789"}.String()
			if err := p.client.Update(p.Context(), o); err != nil {
				p.Error(err)
			}
		}, "next", 4},
		"a chunk of the newest is deleted by hand": {func(p *place, _ []snapshots.ID) {
			for _, o := range p.objects(partChunk) {
				if strings.HasPrefix(o.Name, "edge-r000003-") {
					if err := p.client.Delete(p.Context(), &o); err != nil {
						p.Error(err)
					}
				}
			}
		}, "web2", 4},
		"a dead writer leaves a claim": {func(p *place, _ []snapshots.ID) {
			_, _, _ = p.doomed("before complete edge-r000004").Publish(p.Context(), storetest.Draft("dead"))
		}, "next", 4},
		"an object takes the name": {func(p *place, _ []snapshots.ID) {
			o := &corev1.ConfigMap{}
			o.Namespace, o.Name = p.namespace, "edge-r000004"
			if err := p.client.Create(p.Context(), o); err != nil {
				p.Error(err)
			}
		}, "next", 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			s := p.open()
			var ids []snapshots.ID
			for n := range 3 {
				ids = append(ids, publish(t, s, storetest.Draft(fmt.Sprint("web", n))))
			}
			test.between(p, ids)
			if id := publish(t, s, storetest.Draft(test.draft)); id.Revision != test.want {
				t.Errorf("published %s, want revision %d", id, test.want)
			}
			if id := publish(t, s, storetest.Draft("and on")); id.Revision != test.want+1 {
				t.Errorf("then published %s, want revision %d", id, test.want+1)
			}
			for _, o := range p.objects(partManifest) {
				if o.Labels[stateLabel] == stateStaged {
					t.Errorf("%s is left over", o.Name)
				}
			}
		})
	}
}

// A writer that may not watch, whose memory is older than what the API server still knows, or who hears nothing, lists the store.
func TestWithoutAWatch(t *testing.T) {
	t.Parallel()
	const forbidden = "may not watch"
	answer := func(status int, body io.Reader) func(*http.Request) *http.Response {
		return func(r *http.Request) *http.Response {
			if r.URL.Query().Get("watch") == "" {
				return nil
			}
			return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(body), Request: r}
		}
	}
	silent, _ := io.Pipe()
	const gone = `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old"}`
	for name, meet := range map[string]func(*http.Request) *http.Response{
		forbidden:                     func(*http.Request) *http.Response { return nil },
		"the memory is too old":       answer(http.StatusGone, strings.NewReader(gone)),
		"the watch is said to be old": answer(http.StatusOK, strings.NewReader(`{"type": "ERROR", "object": `+gone+"}\n")),
		"the watch ends":              answer(http.StatusOK, strings.NewReader("")),
		"nothing is heard":            answer(http.StatusOK, silent),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			publish(t, p.open(), storetest.Draft("first"))
			config := rest.CopyConfig(p.config)
			if name == forbidden {
				rules := Writing(p.namespace)
				rules[0].Verbs = slices.DeleteFunc(rules[0].Verbs, func(verb string) bool { return verb == "watch" })
				config = p.configOf("writer", rules)
			}
			c := countCalls(config)
			c.meet = meet
			var log bytes.Buffer
			s := p.open(func(o *Options) {
				o.Config, o.Log = config, slog.New(slog.NewTextHandler(io.MultiWriter(&log), nil))
			})
			s.catchUp = 100 * time.Millisecond
			for n := range 4 {
				publish(t, s, storetest.Draft(fmt.Sprint("web", n)))
				if lists := len(slices.DeleteFunc(c.take(), func(what string) bool { return what != "LIST" })); lists != 2 {
					t.Errorf("publish %d lists %d times", n+1, lists)
				}
			}
			wantChain(t, s, 5)
			if n := strings.Count(log.String(), "compiler rbac"); (n == 1) != (name == forbidden) {
				t.Errorf("the log is\n%s", log.String())
			}
		})
	}
}
