package pusher

import (
	"testing"
	"time"
)

func TestClassify(t *testing.T) {
	inSync := instanceNeeds{Reachable: true, Bound: true, SameNode: true, SameServers: true, SameMaps: true, SameCertificates: true, Persisted: true, InspectAfter: noon.Add(1)}
	tests := map[string]struct {
		edit func(*instanceNeeds)
		want work
	}{
		"in sync":                           {func(*instanceNeeds) {}, workNothing},
		"out of reach":                      {func(s *instanceNeeds) { s.Reachable, s.SameNode = false, false }, workNothing},
		"its snapshot is not at hand":       {func(s *instanceNeeds) { s.Bound, s.SameNode = false, false }, workNothing},
		"another shape":                     {func(s *instanceNeeds) { s.SameNode = false }, workReload},
		"another shape while busy":          {func(s *instanceNeeds) { s.SameNode, s.Busy = false, true }, workReload},
		"other servers":                     {func(s *instanceNeeds) { s.SameServers = false }, workUpdate},
		"other servers while busy":          {func(s *instanceNeeds) { s.SameServers, s.Busy = false, true }, workNothing},
		"other servers after a failure":     {func(s *instanceNeeds) { s.SameServers, s.NotBefore = false, noon.Add(1) }, workNothing},
		"other certificates":                {func(s *instanceNeeds) { s.SameCertificates = false }, workUpdate},
		"not on disk":                       {func(s *instanceNeeds) { s.Persisted = false }, workPersist},
		"not on disk, but it was before":    {func(s *instanceNeeds) { s.Persisted, s.PersistAfter = false, noon.Add(1) }, workNothing},
		"garbage":                           {func(s *instanceNeeds) { s.Garbage = true }, workCollect},
		"not looked at for a while":         {func(s *instanceNeeds) { s.InspectAfter = noon }, workInspect},
		"not looked at, not on disk":        {func(s *instanceNeeds) { s.InspectAfter, s.Persisted, s.PersistAfter = noon, false, noon.Add(1) }, workNothing},
		"a backend without servers on disk": {func(s *instanceNeeds) { s.Unserved, s.Persisted, s.PersistAfter = true, false, noon.Add(1) }, workPersist},
		"the same, written a moment ago": {func(s *instanceNeeds) {
			s.Unserved, s.Persisted, s.PersistAfter, s.UrgentAfter = true, false, noon.Add(1), noon.Add(1)
		}, workNothing},
		"the same, and the worker has none either":          {func(s *instanceNeeds) { s.Unserved, s.SameServers = true, false }, workUpdate},
		"the same, and the worker was changed a moment ago": {func(s *instanceNeeds) { s.Unserved, s.SameServers, s.Updated = true, false, true }, workPersist},
		"the same after a failure":                          {func(s *instanceNeeds) { s.Unserved, s.Persisted, s.NotBefore = true, false, noon.Add(1) }, workNothing},
		"garbage, not on disk":                              {func(s *instanceNeeds) { s.Garbage, s.Persisted, s.PersistAfter = true, false, noon.Add(1) }, workNothing},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := inSync
			test.edit(&s)
			if got := classify(s, noon); got != test.want {
				t.Errorf("needs %s, want %s", got, test.want)
			}
		})
	}
}

// An instance that is written to, or looked at, is in sync all the while, unless its
// worker is replaced meanwhile, or other servers are wanted.
func TestInSync(t *testing.T) {
	whole := instanceNeeds{Reachable: true, Bound: true, SameNode: true, SameServers: true, SameMaps: true, SameCertificates: true, Persisted: true, PersistAfter: noon, InspectAfter: noon}
	tests := map[string]struct {
		edit func(*instanceNeeds)
		want bool
	}{
		"in sync":                           {func(*instanceNeeds) {}, true},
		"in sync while busy":                {func(s *instanceNeeds) { s.Busy = true }, true},
		"not on disk yet":                   {func(s *instanceNeeds) { s.Persisted = false }, true},
		"on its way to disk":                {func(s *instanceNeeds) { s.Persisted, s.Busy = false, true }, true},
		"a backend without servers on disk": {func(s *instanceNeeds) { s.Persisted, s.Unserved, s.UrgentAfter = false, true, noon }, false},
		"another shape":                     {func(s *instanceNeeds) { s.SameNode = false }, false},
		"other servers":                     {func(s *instanceNeeds) { s.SameServers = false }, false},
		"other servers while busy":          {func(s *instanceNeeds) { s.SameServers, s.Busy = false, true }, false},
		"other servers after a failure":     {func(s *instanceNeeds) { s.SameServers, s.NotBefore = false, noon.Add(time.Minute) }, false},
		"other maps while busy":             {func(s *instanceNeeds) { s.SameMaps, s.Busy = false, true }, false},
		"other certificates while busy":     {func(s *instanceNeeds) { s.SameCertificates, s.Busy = false, true }, false},
	}
	for name, test := range tests {
		s := whole
		test.edit(&s)
		if got := inSync(s); got != test.want {
			t.Errorf("%s: in sync: %v, want %v", name, got, test.want)
		}
	}
}
