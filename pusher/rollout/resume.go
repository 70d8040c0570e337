package rollout

import "time"

// Resume returns the state for a process that has just started, at a time by its clock: no
// push is under way any more, and how those of the old process ended is for the observation
// to say. Saved is when the old one was last known to live, by the clock of that time; zero
// is now.
//
// What a rollout waits for is to be watched. So the time in which no pusher ran does not
// count, for its soak and its deadlines; and neither does a clock that was set meanwhile,
// or that of another machine. All times of the rollout are moved by what is between the
// two, so that its workers are no younger than they were. Waits of instances and of the
// budget go on while nobody runs; only where the clock was set back are they moved as well,
// for nobody is to wait until it is that late again.
//
// A clock that is set while the process runs changes none of these times.
func (s State) Resume(saved, now time.Time) State {
	s = s.clone()
	gap := time.Duration(0)
	if !saved.IsZero() {
		gap = now.Sub(saved)
	}
	move := func(t *time.Time, by time.Duration) {
		if !t.IsZero() {
			*t = now.Add(t.Add(by).Sub(now)) // by the clock of now, which nobody sets
		}
	}
	back := min(gap, 0)
	for name, i := range s.Instances {
		i.Push = nil
		move(&i.NotBefore, back)
		move(&i.ErrorAt, back)
		s.Instances[name] = i
	}
	for n := range s.Failed {
		move(&s.Failed[n].At, back)
	}
	for name, r := range s.Repairs {
		r.At = append([]time.Time(nil), r.At...)
		for n := range r.At {
			move(&r.At[n], back)
		}
		move(&r.Stopped, back)
		s.Repairs[name] = r
	}
	for _, reloads := range s.Reloads {
		for n, r := range reloads {
			by := back
			if s.Rollout != nil && !r.At.Before(s.Rollout.From) {
				by = gap // it is one of this wave, and stays one
			}
			move(&reloads[n].At, by)
			move(&reloads[n].Gone, by)
		}
	}
	move(&s.Full, back)
	if s.Rollout != nil {
		s.Rollout.move(func(t *time.Time) { move(t, gap) })
	}
	return s
}

// move moves all times of a rollout.
func (r *Rollout) move(by func(*time.Time)) {
	for _, t := range []*time.Time{&r.Started, &r.Since, &r.Held, &r.From, &r.Suspected} {
		by(t)
	}
	for n := range r.Touched {
		h := &r.Touched[n]
		by(&h.At)
		by(&h.Asked)
		by(&h.Lost)
	}
	for name, b := range r.Counted {
		by(&b.At)
		r.Counted[name] = b
	}
	for name, t := range r.Suspects {
		by(&t)
		r.Suspects[name] = t
	}
}
