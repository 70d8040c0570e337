package pusher

import (
	"strings"
	"testing"
	"time"
)

// Whatever keeps an instance from being in sync has words.
func TestPendingHasWords(t *testing.T) {
	t.Parallel()
	good := instanceNeeds{Reachable: true, Bound: true, SameNode: true, SameServers: true, SameMaps: true, SameCertificates: true, Persisted: true}
	for what, spoil := range map[string]func(*instanceNeeds){
		"reload":                   func(s *instanceNeeds) { s.SameNode = false },
		"servers":                  func(s *instanceNeeds) { s.SameServers = false },
		"servers, certificates":    func(s *instanceNeeds) { s.SameServers, s.SameCertificates = false, false },
		"entries of maps":          func(s *instanceNeeds) { s.SameMaps = false },
		"written to its disk":      func(s *instanceNeeds) { s.Persisted = false },
		"files that nothing needs": func(s *instanceNeeds) { s.Garbage = true },
		"not at hand":              func(s *instanceNeeds) { s.Bound = false },
	} {
		s := good
		spoil(&s)
		if got := s.pending(classify(s, time.Time{})); !strings.Contains(got, what) {
			t.Errorf("%s: %q", what, got)
		}
	}
}
