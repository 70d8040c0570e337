package statestore

import (
	"net/http"
	"testing"

	"github.com/hapsnap/hapsnap/internal/kubeconfig"
	"github.com/hapsnap/hapsnap/internal/testing/kubetest"
)

// What a load balancer answers in place of the API server says nothing about the state: it never looks absent, and never
// saved. Afterwards the pusher goes on.
func TestForeignAnswers(t *testing.T) {
	t.Parallel()
	for name, answer := range kubetest.ForeignAnswers() {
		for part, of := range map[string]func(r *http.Request) bool{
			"everything": func(*http.Request) bool { return true },
			"reads":      func(r *http.Request) bool { return r.Method == http.MethodGet },
			"writes":     func(r *http.Request) bool { return r.Method != http.MethodGet },
		} {
			t.Run(name+" for "+part, func(t *testing.T) {
				t.Parallel()
				p := newPlace(t)
				proxy := cluster.Server(t).Before(t)
				config, err := kubeconfig.Options{File: proxy.Kubeconfig()}.Load()
				if err != nil {
					t.Fatal(err)
				}
				own := New(p.secrets(config), p.namespace, "edge", "a")
				p.take(own)
				p.save(own, "one")
				proxy.Answers(func(w http.ResponseWriter, r *http.Request) bool { return of(r) && answer(w, r) })
				if taken, err := New(p.secrets(config), p.namespace, "edge", "b").Take(t.Context(), made("other")); err == nil {
					t.Errorf("another pusher takes the state %q", taken.State)
				}
				if state, err := Read(t.Context(), p.secrets(config), p.namespace, "edge"); part != "writes" && err == nil {
					t.Errorf("the state reads %q", state)
				}
				if err := own.Save(t.Context(), []byte("two")); part != "reads" && err == nil {
					t.Error("the state is saved by nobody")
				}
				proxy.Answers(nil)
				p.save(own, "three")
				p.wantState("three")
				if taken := p.take(p.pusher("c")); string(taken.State) != "three" || string(taken.Fallback) != "fallback" {
					t.Errorf("after that there is %q, and the certificate %q", taken.State, taken.Fallback)
				}
			})
		}
	}
}
