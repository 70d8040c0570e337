package pusher

import (
	"strings"
	"testing"
	"time"
)

// Whatever keeps an instance from being in sync has words.
func TestPendingHasWords(t *testing.T) {
	t.Parallel()
	good := standing{Reachable: true, Bound: true, SameNode: true, SameServers: true, SameMaps: true, SameCertificates: true, Persisted: true}
	for what, spoil := range map[string]func(*standing){
		"reload":                   func(s *standing) { s.SameNode = false },
		"servers":                  func(s *standing) { s.SameServers = false },
		"servers, certificates":    func(s *standing) { s.SameServers, s.SameCertificates = false, false },
		"entries of maps":          func(s *standing) { s.SameMaps = false },
		"written to its disk":      func(s *standing) { s.Persisted = false },
		"files that nothing needs": func(s *standing) { s.Garbage = true },
		"not at hand":              func(s *standing) { s.Bound = false },
	} {
		s := good
		spoil(&s)
		if got := s.pending(classify(s, time.Time{})); !strings.Contains(got, what) {
			t.Errorf("%s: %q", what, got)
		}
	}
}
