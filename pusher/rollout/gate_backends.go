package rollout

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// A backend without a server up counts against a snapshot only if all of this is true: it
// had a server up before, as reported by a worker that was old enough to know; its
// endpoints did not change since, and it did not flap anywhere; the instances without the
// snapshot still have a server for it; and the snapshot changed the section of that
// backend. Tenants come, go and fail at any time, so everything else is only noted, unless
// all backends are affected at once.

// emptied is the suspect that means all backends of an instance.
const emptied = "*"

// longestCheck limits how long the pusher waits for others to see that everything is down.
const longestCheck = 30 * time.Second

// backends judges which backends have no server up at the end of a soak. It returns false
// if the rollout may not go on yet, or was stopped.
func (t *turn) backends() bool {
	r := t.Rollout
	if t.o.Backends == nil {
		return true // it cannot be known
	}
	if t.o.Compared != r.Target {
		t.wait(Wait{For: "a comparison with what ran before"})
		return false
	}
	suspects := map[string]time.Time{}
	for _, seen := range t.o.Instances {
		h := t.touch(seen.Name)
		if !t.has(seen.Name) || !seen.Reachable || seen.Sample.PID != h.PID {
			continue
		}
		lost := t.lost(h, seen)
		if lost.all != "" && lost.apart {
			t.pause(lost.all + innocent(apart))
			return false
		}
		blamed := lost.blamed
		if lost.all != "" {
			blamed = append(slices.Clone(blamed), emptied)
		}
		for _, backend := range blamed {
			since, known := r.Suspects[backend]
			if !known {
				since = t.now
			}
			suspects[backend] = since
			switch confirmed, over := t.confirmed(backend, since); {
			case confirmed && backend == emptied:
				t.fail(lost.all)
				return false
			case confirmed:
				t.fail(fmt.Sprintf("%s: no server is up of %s, which had some before", seen.Name, some(lost.blamed)))
				return false
			case over:
				t.note(fmt.Sprintf("%s: no server is up of %s, and others were not asked in time", seen.Name, backend))
				delete(suspects, backend)
			}
		}
		if len(lost.noted) > 0 && lost.all == "" {
			t.note(fmt.Sprintf("%s: no server is up of %s, which does not speak against the snapshot", seen.Name, some(lost.noted)))
		}
	}
	if r.Suspects = suspects; len(suspects) > 0 {
		t.wait(Wait{For: "statistics once more"})
		return false
	}
	return true
}

// loss is what an instance lost with the target.
type loss struct {
	blamed, noted []string // backends
	all           string   // the message if it is every backend
	apart         bool     // which may have a cause outside of the snapshot
}

// lost finds the backends that had a server up before and have none with the target.
func (t *turn) lost(h *Touch, seen Seen) loss {
	var out loss
	if !slices.ContainsFunc(seen.Sample.Down, func(name string) bool {
		_, good := t.o.Backends[name]
		_, known := slices.BinarySearch(h.Down, name)
		_, before := slices.BinarySearch(t.Rollout.Down, name)
		return good && !known && !before
	}) {
		return out // as nearly always, and there may be thousands
	}
	others := slices.DeleteFunc(t.others(), func(o Seen) bool { return o.Name == seen.Name || o.Sample.At.IsZero() || !o.Reachable })
	judged, upElsewhere, before, changed := 0, 0, 0, 0
	var down []string
	for _, name := range slices.Sorted(maps.Keys(t.o.Backends)) {
		b := t.o.Backends[name]
		if _, known := slices.BinarySearch(h.Down, name); !known {
			before++
		}
		elsewhere := slices.ContainsFunc(others, func(o Seen) bool { return o.Sample.Age >= b.Check && t.knows(o) && !o.Sample.isDown(name) })
		if !t.stable(name, h, b) || !(t.hadBefore(h, name, b) || elsewhere) ||
			slices.ContainsFunc(others, func(o Seen) bool { return o.Sample.isDown(name) }) {
			continue
		}
		judged++
		if elsewhere {
			upElsewhere++
		}
		if b.Changed {
			changed++
		}
		switch {
		case !seen.Sample.isDown(name):
		case b.Changed && (elsewhere || len(others) == 0):
			out.blamed, down = append(out.blamed, name), append(down, name)
		default:
			out.noted, down = append(out.noted, name), append(down, name)
		}
	}
	if judged > 0 && len(down) == judged && 2*judged >= before {
		out.all = fmt.Sprintf("%s: no server is up of any of the %d backends that had some before: %s", seen.Name, judged, some(down))
		out.apart = upElsewhere == 0 && changed == 0
	}
	return out
}

// knows reports whether a worker has the backends of the last good snapshot.
func (t *turn) knows(o Seen) bool { return o.Running == t.Good || o.Running == t.Rollout.Target }

// hadBefore reports whether a backend is known to have had a server up on an instance
// before that got the target.
func (t *turn) hadBefore(h *Touch, name string, b Backend) bool {
	_, down := slices.BinarySearch(h.Down, name)
	return !h.Asked.IsZero() && h.Age >= b.Check && !down
}

// stable reports whether conclusions can be drawn from a backend: it was not down before
// the wave, its endpoints did not change since it was looked at last, and it does not come
// and go anywhere.
func (t *turn) stable(name string, h *Touch, b Backend) bool {
	_, down := slices.BinarySearch(t.Rollout.Down, name)
	since := t.Rollout.From
	if !h.Asked.IsZero() && h.Asked.Before(since) {
		since = h.Asked
	}
	if moved, ok := t.o.Moved[name]; down || (ok && moved.After(since.Add(-b.Check))) {
		return false
	}
	return !slices.ContainsFunc(t.o.Instances, func(o Seen) bool {
		_, flapped := slices.BinarySearch(o.Sample.Flapped, name)
		return flapped
	})
}

// confirmed reports whether a suspicion still holds after all instances were asked, later
// than the time that a check takes. over is set if they were not asked in time.
func (t *turn) confirmed(backend string, since time.Time) (confirmed, over bool) {
	check := t.o.Backends[backend].Check
	if backend == emptied {
		for _, b := range t.o.Backends {
			check = max(check, min(b.Check, longestCheck))
		}
	}
	at := since.Add(check)
	late := slices.ContainsFunc(t.o.Instances, func(o Seen) bool { return o.Reachable && !o.Sample.At.After(at) })
	return t.now.After(at) && !late, t.now.Sub(since) >= t.Deadline
}

// blame returns a verdict without answers that the snapshot cannot have caused. It leaves
// out those of backends that come and go. If there are others to compare with, it also
// leaves out the 5xx of the one backend that has most of them, among backends whose section
// and requests the snapshot did not change. Otherwise it leaves out those of all such
// backends.
func (t *turn) blame(v verdict, list []Seen, now, before, others Counters, alone bool) verdict {
	if v != sick || t.o.Backends == nil || t.o.Compared != t.Rollout.Target {
		return v
	}
	by, shaky := map[string]int64{}, int64(0)
	for _, seen := range list {
		base := t.Rollout.Counted[seen.Name]
		if _, ok := seen.Sample.since(base); !ok || !seen.Reachable {
			continue
		}
		for name, n := range seen.Sample.By {
			switch b, known := t.o.Backends[name]; {
			case !known:
			case t.comesAndGoes(name, b):
				shaky += max(0, n-base.By[name])
			case !b.Changed && !b.Reached:
				by[name] += max(0, n-base.By[name])
			}
		}
	}
	var most, all int64
	for _, n := range by {
		most, all = max(most, n), all+n
	}
	if alone {
		most = all
	}
	now.Errors = max(0, now.Errors-shaky)
	if rest := t.Gate.errors(now, before, others); rest == well {
		return well
	}
	now.Errors = max(0, now.Errors-most)
	if t.Gate.errors(now, before, others) == sick {
		return sick
	}
	return apart
}

// checking reports whether backends that the snapshot changed answered with 5xx, and may
// still turn out to be down for reasons of their own.
func (t *turn) checking() bool {
	var longest time.Duration
	for _, seen := range t.o.Instances {
		for name := range seen.Sample.By {
			if b := t.o.Backends[name]; t.has(seen.Name) && (b.Changed || b.Reached) {
				longest = max(longest, min(b.Check, longestCheck))
			}
		}
	}
	return t.now.Sub(t.Rollout.Suspected) < longest
}

// comesAndGoes reports whether a backend has a problem of its own: its endpoints changed
// since the rollout began, it came and went somewhere, or it is down where the snapshot
// cannot be the cause.
func (t *turn) comesAndGoes(name string, b Backend) bool {
	if moved, ok := t.o.Moved[name]; ok && moved.After(t.Rollout.Started.Add(-b.Check)) {
		return true
	}
	if slices.ContainsFunc(t.Rollout.Touched, func(h Touch) bool { return slices.Contains(h.Down, name) }) {
		return true
	}
	return slices.ContainsFunc(t.o.Instances, func(o Seen) bool {
		_, flapped := slices.BinarySearch(o.Sample.Flapped, name)
		return flapped || (o.Sample.isDown(name) && ((!b.Changed && !b.Reached) || !t.has(o.Name)))
	})
}

// innocent says why a verdict does not count against the snapshot.
func innocent(v verdict) string {
	if v == apart {
		return "; the snapshot did not change what fails"
	}
	return "; so it is not the snapshot"
}

// isDown reports whether a backend had no server up.
func (s Sample) isDown(name string) bool {
	_, down := slices.BinarySearch(s.Down, name)
	return down
}

// some names the first few of a list.
func some(list []string) string {
	more := ""
	if n := len(list); n > 3 {
		more = fmt.Sprintf(" and %d more", n-3)
	}
	return strings.Join(list[:min(len(list), 3)], ", ") + more
}
