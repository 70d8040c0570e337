package configmapstore

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/internal/kubeconfig"
	"github.com/hapsnap/hapsnap/internal/testing/kubetest"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/storetest"
)

// What a load balancer answers in place of the API server says nothing about the store: it never looks empty, its channel
// never looks unset, and nothing looks deleted or published.
func TestForeignAnswers(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	straight := p.open()
	first := publish(t, straight, storetest.Draft("one"))
	second := publish(t, straight, storetest.Draft("two"))
	if err := straight.UpdateChannel(t.Context(), "Pin", noon, func(c *channel.Channel) error { c.Spec.Pin = &channel.Pin{Snapshot: first}; return nil }); err != nil {
		t.Fatal(err)
	}
	for name, answer := range kubetest.ForeignAnswers() {
		for part, of := range map[string]func(r *http.Request) bool{
			"everything":  func(*http.Request) bool { return true },
			"the channel": func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/configmaps/"+ChannelName("edge")) },
			"the lists": func(r *http.Request) bool {
				return strings.HasSuffix(r.URL.Path, "/configmaps") && r.Method == http.MethodGet
			},
			"a manifest": func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/configmaps/edge-r000002") },
			"writes":     func(r *http.Request) bool { return r.Method != http.MethodGet },
		} {
			if part != "the channel" && !slices.Contains([]string{"404 text", "404 no cluster", "200 JSON"}, name) {
				continue // package kubeconfig tests them all
			}
			t.Run(name+" for "+part, func(t *testing.T) {
				t.Parallel()
				proxy := p.server.Before(t)
				config, err := kubeconfig.Options{File: proxy.Kubeconfig()}.Load()
				if err != nil {
					t.Fatal(err)
				}
				s := p.open(func(o *Options) { o.Config = config })
				proxy.Answers(func(w http.ResponseWriter, r *http.Request) bool { return of(r) && answer(w, r) })
				if view, err := s.View(t.Context()); err == nil && (view.Channel.Spec.Pin == nil || view.Channel.Spec.Pin.Snapshot != first || len(view.IDs) != 2) {
					t.Errorf("the store holds %v, and its channel %+v", view.IDs, view.Channel)
				}
				if ids, err := s.IDs(t.Context()); err == nil && len(ids) != 2 {
					t.Errorf("the store holds %v", ids)
				}
				if _, err := s.Get(t.Context(), second); errors.Is(err, snapshots.ErrNotFound) || errors.Is(err, snapshots.ErrCorrupt) {
					t.Errorf("the newest snapshot: %v", err)
				}
				if entries, err := s.Journal(t.Context()); err == nil && len(entries) == 0 {
					t.Error("the journal is empty")
				}
				if id, published, err := s.Publish(t.Context(), storetest.Draft("two")); err == nil && (published || id != second) {
					t.Errorf("what was published before is %s, %v", id, published)
				}
				if part == "writes" {
					if err := s.Delete(t.Context(), first); err == nil {
						t.Errorf("%s is deleted by nobody", first)
					}
				}
			})
		}
	}
}
