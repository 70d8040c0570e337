package bind

import (
	"errors"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/hapsnap/hapsnap/snapshots/bind/pem"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem/pemtest"
)

func TestVerdictsAreRemembered(t *testing.T) {
	t.Parallel()
	var b Binder
	good, bad := pemtest.SelfSigned(t, "a.example", pemtest.EdKey), []byte("bad")
	for range 2 {
		if kind, err := b.certificateKind(good); kind != GeneralFile || err != nil {
			t.Errorf("good: %v, %v", kind, err)
		}
		if _, err := b.certificateKind(bad); !errors.Is(err, pem.ErrNoCertificate) {
			t.Errorf("bad: %v", err)
		}
	}
	judged := 0
	for range 2 {
		b.pairs.of([]byte("another"), func([]byte) verdict { judged++; return verdict{} })
	}
	if judged != 1 || len(b.pairs.known) != 3 {
		t.Errorf("judged %d times, remembers %d", judged, len(b.pairs.known))
	}
}

// A Binder that has seen other data, from several goroutines at once, binds to the same
// bytes as one that has seen nothing.
func TestBinderBindsLikeBind(t *testing.T) {
	t.Parallel()
	s, in := large(t, 20)
	want, err := Bind(s, in)
	if err != nil {
		t.Fatal(err)
	}
	var b Binder
	b.pairs.of([]byte("another"), judgeKeyPair)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			got, err := b.Bind(s, in)
			if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Bound{})); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
	wg.Wait()
}
