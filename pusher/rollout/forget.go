package rollout

import (
	"slices"
	"time"
)

// Forgive returns the state in which an instance may be tried again at once: what its
// owner says of it is another thing now.
func (s State) Forgive(name string) State {
	s = s.clone()
	if i, known := s.Instances[name]; known {
		i.NotBefore, i.Failures = time.Time{}, 0
		s.Instances[name] = i
	}
	return s
}

// Forget returns the state without what is remembered of an instance: another one
// has its name now. Of a wave that it belongs to the new one is a member.
func (s State) Forget(name string) State {
	s = s.clone()
	delete(s.Instances, name)
	delete(s.Reloads, name)
	delete(s.Repairs, name)
	if s.Rollout != nil {
		s.Rollout.Touched = slices.DeleteFunc(s.Rollout.Touched, func(t Touch) bool { return t.Instance == name })
	}
	return s
}
