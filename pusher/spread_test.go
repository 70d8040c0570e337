package pusher

import "testing"

// A change has arrived where the worker has it, and not where the instance is busy with
// something else, or has to write its file first.
func TestArrived(t *testing.T) {
	t.Parallel()
	has := standing{Reachable: true, Bound: true, SameNode: true, SameServers: true, SameMaps: true, SameCertificates: true, Persisted: true}
	edit := func(change func(*standing)) standing {
		s := has
		change(&s)
		return s
	}
	for name, test := range map[string]struct {
		s    standing
		want bool
	}{
		"it has all":                              {has, true},
		"not on disk yet":                         {edit(func(s *standing) { s.Persisted = false }), true},
		"busy, and has all":                       {edit(func(s *standing) { s.Busy = true }), true},
		"other servers":                           {edit(func(s *standing) { s.SameServers = false }), false},
		"other servers, and busy":                 {edit(func(s *standing) { s.SameServers, s.Busy = false, true }), false},
		"other servers, and its file comes first": {edit(func(s *standing) { s.SameServers, s.Unserved, s.Updated = false, true, true }), false},
		"other certificates":                      {edit(func(s *standing) { s.SameCertificates = false }), false},
		"other entries":                           {edit(func(s *standing) { s.SameMaps = false }), false},
		"another shape":                           {edit(func(s *standing) { s.SameNode = false }), false},
		"another shape, and busy":                 {edit(func(s *standing) { s.SameNode, s.Busy = false, true }), false},
		"out of reach":                            {edit(func(s *standing) { s.Reachable, s.SameServers = false, false }), true},
	} {
		if got := arrived(test.s); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
