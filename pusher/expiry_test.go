package pusher

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
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
	r.until("it is said", func(s Status) bool {
		return slices.ContainsFunc(s.Troubles, func(t Trouble) bool {
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

// Time alone changes what is bound, when a certificate ends and not before.
func TestExpiryIsNoticedByTime(t *testing.T) {
	r := newRig(t, dataplanetest.V32)
	start := time.Now().Truncate(time.Second)
	certificates := map[snapshots.SecretName][]byte{}
	for name, after := range map[string]time.Duration{"soon": time.Minute, "later": time.Hour} {
		r.secretUntil(start.Add(after), func(crt, key []byte) ([]byte, []byte) {
			certificates[snapshots.SecretName{Namespace: "shop", Name: name}] = slices.Concat(crt, key)
			return crt, key
		})
	}
	certificates[snapshots.SecretName{Namespace: "shop", Name: "broken"}] = []byte("lots")
	b := newBindings(nil, fromDirectory)
	b.setLive(bind.Live{Certificates: certificates}, start)
	for _, step := range []struct {
		after   time.Duration
		shapes  int
		expired []string
	}{
		{0, 1, nil},
		{time.Minute, 1, nil}, // a certificate is valid until the end of its last second
		{time.Minute + time.Second, 2, []string{"soon"}},
		{2 * time.Minute, 2, []string{"soon"}},
		{time.Hour + time.Second, 3, []string{"later", "soon"}},
		{48 * time.Hour, 3, []string{"later", "soon"}},
	} {
		b.expire(start.Add(step.after))
		b.setLive(bind.Live{Certificates: maps.Clone(certificates)}, start.Add(step.after)) // endpoints changed
		var expired []string
		for _, name := range slices.SortedFunc(maps.Keys(b.live.Expired), snapshots.SecretName.Compare) {
			expired = append(expired, name.Name)
		}
		if b.shapes != step.shapes || !slices.Equal(expired, step.expired) {
			t.Errorf("after %v: %d changes, expired %v; want %d, %v", step.after, b.shapes, expired, step.shapes, step.expired)
		}
	}
	b.setLive(bind.Live{}, start.Add(48*time.Hour))
	if len(b.live.Expired) > 0 || !b.expiry.next.IsZero() {
		t.Errorf("without certificates: %v", b.live.Expired)
	}
}
