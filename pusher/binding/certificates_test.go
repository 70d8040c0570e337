package binding

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// validFrom returns a certificate that is valid between two times.
func validFrom(t *testing.T, from, to time.Time) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: from, NotAfter: to}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// A certificate that is not valid yet does not replace one that is. It does so when it becomes valid, or when
// the other one expires, without another change of the Secret.
func TestRenewalsWaitUntilTheyAreValid(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	hours := func(n int) time.Time { return now.Add(time.Duration(n) * time.Hour) }
	web := snapshots.SecretName{Namespace: "shop", Name: "web"}
	good := validFrom(t, hours(-9), hours(9))
	for name, test := range map[string]struct {
		before, renewed []byte
		kept            bool
		takenAt         time.Time // zero: at once, or never
		fault           string
	}{
		"valid":                            {good, validFrom(t, hours(-1), hours(20)), false, time.Time{}, ""},
		"not yet":                          {good, validFrom(t, hours(2), hours(20)), true, hours(2), "not valid before 2026-11-21 14:00 UTC, and the one before it is served until then"},
		"not before the other one expires": {good, validFrom(t, hours(12), hours(20)), true, hours(9).Add(time.Second), "not valid before 2026-11-22 00:00 UTC"},
		"expired":                          {good, validFrom(t, hours(-9), hours(-1)), true, hours(9).Add(time.Second), "expired on 2026-11-21 11:00 UTC, and the one before it is served"},
		"not yet, after an expired one":    {validFrom(t, hours(-9), hours(-1)), validFrom(t, hours(2), hours(20)), false, time.Time{}, "it is not valid before 2026-11-21 14:00 UTC, and clients refuse it"},
		"not yet, and the first":           {nil, validFrom(t, hours(2), hours(20)), false, time.Time{}, "it is not valid before"},
		"unreadable":                       {good, []byte("x"), false, time.Time{}, ""},
	} {
		b := New(nil, FromCluster, Refusals{})
		set := func(data []byte) {
			b.setLive(bind.Live{Certificates: map[snapshots.SecretName][]byte{web: data}}, now)
		}
		if test.before != nil {
			set(test.before)
		}
		set(test.renewed)
		serves := func(data []byte) bool { return string(b.live.Certificates[web]) == string(data) }
		if serves(test.renewed) == test.kept || test.kept && !serves(test.before) {
			t.Errorf("%s: kept %v", name, test.kept)
		}
		faults := b.withExpiry(bind.Need{Use: snapshots.UseCertificate, Secret: web}, nil, b.expiredVersions(), now)
		if text := fmt.Sprint(faults); !strings.Contains(text, test.fault) || test.fault == "" && len(faults) > 0 {
			t.Errorf("%s: it says %q", name, text)
		}
		set(test.renewed) // another Secret changed
		if serves(test.renewed) == test.kept {
			t.Errorf("%s: the second time it is another one", name)
		}
		if test.takenAt.IsZero() {
			continue
		}
		for hour := range 30 { // in each turn of the pusher
			at := hours(0).Add(time.Duration(hour) * 30 * time.Minute).Add(time.Second)
			b.Expire(at)
			if serves(test.renewed) == at.Before(test.takenAt) {
				t.Errorf("%s: at %s", name, at)
			}
		}
	}
}

// When a certificate expires, the bound configuration changes at that time and not before.
func TestExpiryIsNoticedByTime(t *testing.T) {
	t.Parallel()
	start := time.Now().Truncate(time.Second)
	certificates := map[snapshots.SecretName][]byte{}
	for name, after := range map[string]time.Duration{"soon": time.Minute, "later": time.Hour} {
		certificates[snapshots.SecretName{Namespace: "shop", Name: name}] = validFrom(t, start, start.Add(after))
	}
	certificates[snapshots.SecretName{Namespace: "shop", Name: "broken"}] = []byte("lots")
	b := New(nil, FromDirectory, Refusals{})
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
		b.Expire(start.Add(step.after))
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
