package snapshots

import (
	"errors"
	"testing"
)

func TestVerdictsAreRemembered(t *testing.T) {
	v := verdicts{judge: judgeKeyPair, known: map[[32]byte]verdict{}}
	good, bad := selfSigned(t, "a.example", edKey), []byte("bad")
	for range 2 {
		if got := v.verdict(good); got != (verdict{storable: false}) {
			t.Errorf("good: %v", got)
		}
		if got := v.verdict(bad); !errors.Is(got.err, ErrNoCertificate) {
			t.Errorf("bad: %v", got)
		}
	}
	if len(v.known) != 2 {
		t.Errorf("remembers %d", len(v.known))
	}
}
