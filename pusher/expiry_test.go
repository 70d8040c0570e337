package pusher

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/pusher/observe"
)

// A certificate that expires while nothing else happens is not served any more,
// and a renewed one is at once. Neither reloads.
func TestExpiredCertificateIsReplacedByTheFallback(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V32, "a")
	r.endpoints(echo(t, "one"))
	first := r.secret(nil)
	id := r.publishTLS("1")
	r.allRunAfter(id)
	pids, fallback := r.workers(), r.served("a", "other.example.com")
	if got := r.served("a", "shop.example.com"); got != first || got == fallback {
		t.Fatalf("a serves %s", got)
	}
	r.secretUntil(time.Now().Add(3*time.Second), nil)
	eventually(t, "a serves the fallback certificate", func() bool { return r.served("a", "shop.example.com") == fallback })
	r.until("it is said", func(s observe.Status) bool {
		return slices.ContainsFunc(s.Troubles, func(t observe.Trouble) bool {
			return t.About == "secrets" && strings.Contains(t.Error, "Secret shop/web-tls has no usable certificate: it expired on ")
		})
	})
	renewed := r.secret(nil)
	eventually(t, "a serves the renewed certificate", func() bool { return r.served("a", "shop.example.com") == renewed })
	r.allRun(id)
	if got := r.workers(); !slices.Equal(got, pids) {
		t.Errorf("the workers are %v, were %v", got, pids)
	}
}
