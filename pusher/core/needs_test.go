package core

import (
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/pusher/binding"
)

func TestClassify(t *testing.T) {
	inSync := instanceNeeds{Reachable: true, Bound: true, SameNode: true, SameServers: true, SameMaps: true, SameCertificates: true, Persisted: true, InspectAfter: noon.Add(1)}
	tests := map[string]struct {
		edit func(*instanceNeeds)
		want work
	}{
		"in sync":                       {func(*instanceNeeds) {}, workNothing},
		"out of reach":                  {func(s *instanceNeeds) { s.Reachable, s.SameNode = false, false }, workNothing},
		"its snapshot is not at hand":   {func(s *instanceNeeds) { s.Bound, s.SameNode = false, false }, workNothing},
		"another shape":                 {func(s *instanceNeeds) { s.SameNode = false }, workReload},
		"another shape while busy":      {func(s *instanceNeeds) { s.SameNode, s.Busy = false, true }, workReload},
		"other servers":                 {func(s *instanceNeeds) { s.SameServers = false }, workUpdate},
		"other servers while busy":      {func(s *instanceNeeds) { s.SameServers, s.Busy = false, true }, workNothing},
		"other servers after a failure": {func(s *instanceNeeds) { s.SameServers, s.NotBefore = false, noon.Add(1) }, workNothing},
		"a part of other servers, and a failure": {func(s *instanceNeeds) {
			s.SameServers, s.Untried, s.NotBefore = false, true, noon.Add(1)
		}, workUpdate},
		"the same, and a backend without servers on disk": {func(s *instanceNeeds) {
			s.SameServers, s.Untried, s.NotBefore, s.Unserved, s.Updated = false, true, noon.Add(1), true, true
		}, workUpdate},
		"the same while the file is written": {func(s *instanceNeeds) {
			s.SameServers, s.Untried, s.NotBefore, s.Writing = false, true, noon.Add(1), true
		}, workUpdate},
		"a certificate that is new, after a write failed": {func(s *instanceNeeds) {
			s.SameCertificates, s.Untried, s.NotBefore, s.Unserved, s.Persisted = false, true, noon.Add(1), true, false
		}, workUpdate},
		"the same while busy": {func(s *instanceNeeds) {
			s.SameServers, s.Untried, s.NotBefore, s.Busy = false, true, noon.Add(1), true
		}, workNothing},
		"other servers while the file is written": {func(s *instanceNeeds) { s.SameServers, s.Writing = false, true }, workUpdate},
		"the same, and calls are not enough":      {func(s *instanceNeeds) { s.SameServers, s.Writing, s.Waits = false, true, true }, workNothing},
		"the same, and they have failed":          {func(s *instanceNeeds) { s.SameServers, s.Writing, s.Stuck = false, true, true }, workNothing},
		"the same, and other maps":                {func(s *instanceNeeds) { s.SameServers, s.Writing, s.SameMaps = false, true, false }, workNothing},
		"the same, and other certificates":        {func(s *instanceNeeds) { s.SameServers, s.Writing, s.SameCertificates = false, true, false }, workNothing},
		"other certificates":                      {func(s *instanceNeeds) { s.SameCertificates = false }, workUpdate},
		"not on disk":                             {func(s *instanceNeeds) { s.Persisted = false }, workPersist},
		"not on disk, but it was before":          {func(s *instanceNeeds) { s.Persisted, s.PersistAfter = false, noon.Add(1) }, workNothing},
		"garbage":                                 {func(s *instanceNeeds) { s.Garbage = true }, workCollect},
		"garbage for long, and a backend without servers on disk": {func(s *instanceNeeds) {
			s.Overdue, s.Unserved, s.Persisted, s.Updated = true, true, false, true
		}, workPersist},
		"the same, and the disk is full": {func(s *instanceNeeds) {
			s.Overdue, s.Unserved, s.Persisted, s.Updated, s.DiskFailed = true, true, false, true, true
		}, workCollect},
		"the same, and the garbage could not be removed": {func(s *instanceNeeds) {
			s.Overdue, s.Unserved, s.Persisted, s.Updated, s.DiskFailed, s.CollectAfter = true, true, false, true, true, noon.Add(1)
		}, workPersist},
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

// An instance stays in sync while it is written to or inspected, unless its worker is replaced or other servers
// are wanted meanwhile.
// However long the API takes to check a file, writes of endpoints to disk take at most a tenth of the time, unless that is
// longer than two minutes.
func TestWritesLeaveTimeForEndpoints(t *testing.T) {
	t.Parallel()
	const interval = 5 * time.Second
	for took, want := range map[time.Duration]time.Duration{
		0: interval, 100 * time.Millisecond: interval, 3 * time.Second: 27 * time.Second, time.Minute: 2 * time.Minute,
	} {
		if got := betweenWrites(took, interval); got != want {
			t.Errorf("after a write that took %s the next one waits %s, want %s", took, got, want)
		}
	}
	w, i, now := &world{Settings: Settings{PersistInterval: interval}, bindings: new(binding.Bindings)}, &instanceState{}, time.Now()
	i.persisted, i.persistTook = now, 3*time.Second
	if after := w.needsOf(i).PersistAfter.Sub(now); after != 27*time.Second {
		t.Errorf("the next write waits %s", after)
	}
}

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
		"its file is written":               {func(s *instanceNeeds) { s.Writing = true }, true},
		"the same, for which others wait":   {func(s *instanceNeeds) { s.SameServers, s.Writing, s.Waits = false, true, true }, false},
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

// A change has arrived when the worker has it. It has not while the instance is busy with something else, or
// must have its file written first.
func TestArrived(t *testing.T) {
	t.Parallel()
	has := instanceNeeds{Reachable: true, Bound: true, SameNode: true, SameServers: true, SameMaps: true, SameCertificates: true, Persisted: true}
	edit := func(change func(*instanceNeeds)) instanceNeeds {
		s := has
		change(&s)
		return s
	}
	for name, test := range map[string]struct {
		s    instanceNeeds
		want bool
	}{
		"it has all":                              {has, true},
		"not on disk yet":                         {edit(func(s *instanceNeeds) { s.Persisted = false }), true},
		"busy, and has all":                       {edit(func(s *instanceNeeds) { s.Busy = true }), true},
		"other servers":                           {edit(func(s *instanceNeeds) { s.SameServers = false }), false},
		"other servers, and busy":                 {edit(func(s *instanceNeeds) { s.SameServers, s.Busy = false, true }), false},
		"other servers, and its file comes first": {edit(func(s *instanceNeeds) { s.SameServers, s.Unserved, s.Updated = false, true, true }), false},
		"other certificates":                      {edit(func(s *instanceNeeds) { s.SameCertificates = false }), false},
		"other entries":                           {edit(func(s *instanceNeeds) { s.SameMaps = false }), false},
		"another shape":                           {edit(func(s *instanceNeeds) { s.SameNode = false }), false},
		"another shape, and busy":                 {edit(func(s *instanceNeeds) { s.SameNode, s.Busy = false, true }), false},
		"out of reach":                            {edit(func(s *instanceNeeds) { s.Reachable, s.SameServers = false, false }), true},
	} {
		if got := arrived(test.s); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Every reason why an instance is not in sync has a text.
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
		"was not read yet":         func(s *instanceNeeds) { s.Bound = false },
	} {
		s := good
		spoil(&s)
		if got := s.pending(classify(s, time.Time{})); !strings.Contains(got, what) {
			t.Errorf("%s: %q", what, got)
		}
	}
}
