package configmapstore

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/hapsnap/hapsnap/snapshots/storetest"
)

// The number of calls for a publish is the same in a store of 30 snapshots as in one of three.
func TestPublishMakesAsManyCallsAtAnyLength(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	var lock sync.Mutex
	var calls []string
	p.config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport(func(r *http.Request) (*http.Response, error) {
			lock.Lock()
			defer lock.Unlock()
			calls = append(calls, r.Method+" "+r.URL.Path)
			return next.RoundTrip(r)
		})
	})
	s := p.open()
	var counts []int
	for n := range 30 {
		lock.Lock()
		calls = nil
		lock.Unlock()
		if _, _, err := s.Publish(t.Context(), storetest.Draft(fmt.Sprint("web", n))); err != nil {
			t.Fatal(err)
		}
		lock.Lock()
		counts = append(counts, len(calls))
		lock.Unlock()
	}
	if counts[2] == 0 || counts[29] > counts[2] || counts[29] > 12 {
		t.Errorf("calls of each publish: %v; of the last: %v", counts, calls)
	}
}
