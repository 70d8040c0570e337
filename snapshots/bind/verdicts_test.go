package bind

import (
	"errors"
	"testing"

	"github.com/hapsnap/hapsnap/snapshots/bind/pem"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem/pemtest"
)

func TestVerdictsAreRemembered(t *testing.T) {
	v := verdicts{judge: judgeKeyPair, known: map[[32]byte]verdict{}}
	good, bad := pemtest.SelfSigned(t, "a.example", pemtest.EdKey), []byte("bad")
	for range 2 {
		if got := v.verdict(good); got != (verdict{storable: false}) {
			t.Errorf("good: %v", got)
		}
		if got := v.verdict(bad); !errors.Is(got.err, pem.ErrNoCertificate) {
			t.Errorf("bad: %v", got)
		}
	}
	if len(v.known) != 2 {
		t.Errorf("remembers %d", len(v.known))
	}
}
