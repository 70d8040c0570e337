package gatewayapi

import (
	"regexp"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/policy"
)

// Times have the form of the API, and the same length as before.
func TestDurations(t *testing.T) {
	accepted := regexp.MustCompile(`^([0-9]{1,5}(h|m|s|ms)){1,4}$`)
	for text, want := range map[string]string{
		"120500ms": "120s500ms", "500ms": "500ms", "30s": "30s", "1m": "60s", "2h": "2h", "30d": "720h",
		"99999s": "99999s", "100001s": "27h2801s", "100000500ms": "27h2800s500ms", "10us": "1ms", "0s": "0ms",
	} {
		if got := string(durationOf(policy.Duration(text))); got != want || !accepted.MatchString(got) {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
