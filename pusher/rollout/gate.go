package rollout

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/internal/printable"
)

// judged reports whether the gate looks at statistics. Without a soak time it does not, since nothing would
// wait for them.
func (t *step) judged() bool { return !t.Gate.Off && t.Soak > 0 }

// count records where counting begins for each instance. For a worker that got the snapshot in this wave, it
// begins at 0. For a worker that was changed at run time, it begins with its first answer after the change. For
// the others, it begins with their first answer in this wave.
func (t *step) count() {
	r := t.Rollout
	if !t.judged() {
		return
	}
	for _, seen := range t.o.Instances {
		s := seen.Sample
		b, known := r.Counted[seen.Name]
		h := t.touch(seen.Name)
		got := h != nil && h.Applied && h.PID == s.PID && !h.Found && !h.At.Before(r.From)
		changed := got && h.PID == h.Was
		known = known && b.PID == s.PID && s.Requests >= b.Requests && !(changed && b.At.Before(h.At))
		if s.At.IsZero() || !seen.Reachable || known || (changed && s.At.Before(h.At)) {
			continue
		}
		base := Base{Counters: s.Counters, At: s.At, PID: s.PID, Past: s.Past, By: s.By}
		if b.Past.For > 0 {
			base.Past = b.Past // traffic from before a pause is still what the comparison needs
		}
		switch {
		case changed:
			base.Past = h.Before
		case got:
			base = Base{At: h.At, PID: h.PID, Past: h.Before}
		case s.At.Before(r.From):
			continue
		case h != nil && h.Before.For > 0:
			base.Past = h.Before
		}
		base.By = t.known(base.By)
		if !t.has(seen.Name) {
			base.By = nil // the others are compared without their backends
		}
		if r.Counted == nil {
			r.Counted = map[string]Base{}
		}
		r.Counted[seen.Name] = base
	}
}

// knowDown records the backends that have no server up before the wave, on any instance without the target. The
// rollout did not cause those.
func (t *step) knowDown() {
	r := t.Rollout
	for _, seen := range t.o.Instances {
		if !t.has(seen.Name) {
			r.Down = slices.Concat(r.Down, slices.DeleteFunc(slices.Clone(seen.Sample.Down), t.unknown))
		}
	}
	slices.Sort(r.Down)
	r.Down = slices.Compact(r.Down)
}

// unknown reports whether a backend is none of the last good snapshot, so that nothing depends on it. Instances may say
// whatever they like, and the state should only have what is of use.
func (t *step) unknown(backend string) bool {
	_, known := t.o.Backends[backend]
	return t.o.Backends != nil && !known || t.Good.IsZero()
}

// known returns the counts without those of backends that are unknown.
func (t *step) known(by map[string]int64) map[string]int64 {
	var out map[string]int64
	for backend, n := range by {
		if t.unknown(backend) {
			continue
		}
		if out == nil {
			out = make(map[string]int64, min(len(by), max(len(t.o.Backends), 1)))
		}
		out[backend] = n
	}
	return out
}

// others returns the instances to compare with: those that were not touched, or, if all were, those that have
// had the target since an earlier wave.
func (t *step) others() []Seen {
	var untouched, earlier []Seen
	for _, seen := range t.o.Instances {
		switch h := t.touch(seen.Name); {
		case h == nil:
			untouched = append(untouched, seen)
		case t.has(seen.Name) && !slices.Contains(t.Rollout.Members, seen.Name):
			earlier = append(earlier, seen)
		}
	}
	if len(untouched) > 0 {
		return untouched
	}
	return earlier
}

// traffic adds up what instances have counted in this wave.
func (t *step) traffic(list []Seen) (all window) {
	for _, seen := range list {
		base := t.Rollout.Counted[seen.Name]
		if now, ok := seen.Sample.since(base); ok && seen.Reachable {
			all = all.with(now, base.Past)
		}
	}
	return all
}

// finding is the result of the gate, with its reason.
type finding struct {
	verdict
	reason string
	// counted is what the verdict is based on, if it is about 5xx.
	counted Counters
}

// statistics judges each instance that has the target, and also the wave as a whole: each instance alone may
// have too few requests.
func (t *step) statistics(soaked bool) finding {
	var having, wave []Seen
	for _, seen := range t.o.Instances {
		if t.has(seen.Name) {
			having = append(having, seen)
		}
		if t.has(seen.Name) && slices.Contains(t.Rollout.Members, seen.Name) {
			wave = append(wave, seen)
		}
	}
	others := t.others()
	out := t.judge(wave, others, soaked)
	for _, seen := range having {
		if f := t.judge([]Seen{seen}, others, soaked); f.verdict > unsure && f.verdict > out.verdict {
			out = f
		}
	}
	return out
}

// judge judges instances that have the target by their statistics, taken together.
func (t *step) judge(list, others []Seen, soaked bool) finding {
	now, them := t.traffic(list), t.traffic(slices.DeleteFunc(slices.Clone(others), func(o Seen) bool {
		return slices.ContainsFunc(list, func(s Seen) bool { return s.Name == o.Name })
	}))
	var before Counters
	for _, seen := range list {
		before = before.plus(t.Rollout.Counted[seen.Name].Past.Counters)
	}
	name := "the wave"
	if len(list) == 1 {
		name = list[0].Name
	}
	out := finding{verdict: t.Gate.errors(now.Counters, before, them.Counters)}
	switch {
	case out.verdict == unsure:
		out.reason = fmt.Sprintf("requests to judge by, of which there were %d of %d", max(now.Requests, 0), t.Gate.Requests)
	case out.verdict > unsure:
		out.counted = now.Counters
		out.verdict = t.blame(out.verdict, list, now.Counters, before, them.Counters, them.Requests < max(t.Gate.Requests, 1))
		out.reason = fmt.Sprintf("%s: %.1f%% of %d requests were answered with 5xx, %.1f%% before, %.1f%% by the others",
			name, 100*now.share(), now.Requests, 100*before.share(), 100*them.share())
	}
	if !soaked || out.verdict > unsure {
		return out
	}
	if v := t.Gate.connections(now, them); v > unsure {
		return finding{verdict: v, reason: fmt.Sprintf("%s: %d connections came, where %.0f were to be expected", name, now.connected, now.expected)}
	}
	return out
}

// pass is the gate, during the soak time and at its end. It returns false if the rollout may not continue yet,
// or was stopped.
func (t *step) pass(soaked bool) bool {
	r := t.Rollout
	if !t.judged() {
		return true
	}
	f := t.statistics(soaked)
	if f.verdict == alike || f.verdict == apart {
		t.pause(f.reason + innocent(f.verdict))
		return false
	}
	if f.verdict == sick || r.Doubt != "" {
		return t.doubt(f)
	}
	if soaked && !t.backends() {
		return false
	}
	return f.verdict != unsure || !soaked || t.vouched() || t.mayProceed(f.reason)
}

// doubt handles statistics against the target: it starts the count again for all instances before it decides. A
// change in traffic shows in the counters of some instances before others, and the counts may have different
// lengths.
func (t *step) doubt(f finding) bool {
	r := t.Rollout
	if r.Doubt == "" {
		r.Doubt, r.Doubted = f.reason, f.counted
		t.recount()
		r.Suspected = t.now
	}
	waited := t.now.Sub(r.Suspected) >= max(t.Soak, pauseAtLeast)
	if few := t.fewer().statistics(false); waited && (few.verdict == alike || few.verdict == apart) {
		t.pause(few.reason + innocent(few.verdict))
		return false
	}
	switch {
	case f.verdict == well:
		r.Doubt, r.Doubted, r.Suspected = "", Counters{}, time.Time{}
		return false
	case f.verdict == sick && t.checking():
		t.wait(Wait{For: "checks of the backends that answered, for " + r.Doubt})
	case f.verdict == sick && (waited || t.othersCounted()):
		t.fail(f.reason)
	case f.verdict == unsure && waited && t.othersCounted(): // this instance gets no requests any more
		if t.Gate.errors(r.Doubted, Counters{}, t.traffic(t.others()).Counters) == alike {
			t.pause(r.Doubt + "; the others fail as well by now" + innocent(alike))
			return false
		}
		t.fail(r.Doubt)
	case f.verdict == unsure && waited: // and neither do the others
		r.Doubt, r.Doubted, r.Suspected = "", Counters{}, time.Time{}
	default:
		t.wait(Wait{For: "statistics once more, for " + r.Doubt, Until: r.Suspected.Add(t.Soak)})
	}
	return false
}

// fewer is the step with a gate that needs only a quarter of the requests. If traffic is low everywhere, the
// others may have too few requests for the full gate, and the snapshot must not be blamed for that.
func (t *step) fewer() *step {
	out := *t
	out.Gate.Requests = max(1, t.Gate.Requests/4)
	return &out
}

// othersCounted reports whether the others had enough requests to compare with, or there
// are none.
func (t *step) othersCounted() bool {
	others := t.others()
	return len(others) == 0 || t.traffic(others).Requests >= t.Gate.Requests
}

// recount starts the count again for all instances. It keeps the traffic from before the wave.
func (t *step) recount() {
	r := t.Rollout
	r.From = t.now
	for name, b := range r.Counted {
		r.Counted[name] = Base{Past: b.Past}
	}
}

// mayProceed reports whether the rollout continues although there were too few requests to judge. It does if a
// person ordered it, and for the very first snapshot, which has no traffic before it to protect.
func (t *step) mayProceed(reason string) bool {
	r, answer := t.Rollout, t.Gate.CannotTell
	switch {
	case t.Good.IsZero():
	case answer == HoldOn && t.o.MayWait:
		t.wait(Wait{For: reason})
		return false
	case answer == Extend && t.now.Sub(r.Since) < t.Soak+t.Gate.Extend:
		t.wait(Wait{For: reason, Until: r.Since.Add(t.Soak + t.Gate.Extend)})
		return false
	}
	return true
}

// pauseAtLeast is the least length of a pause, also without a soak time.
const pauseAtLeast = time.Second

// pause stops the rollout where it is, for a reason that the snapshot did not cause. It continues when all
// instances were healthy for a soak time.
func (t *step) pause(reason string) {
	r := t.Rollout
	if r.Paused != "" && t.now.Sub(r.Since) < max(t.Soak/2, pauseAtLeast) {
		return // a pause for such a reason began just before
	}
	r.Paused, r.Since, r.Held = reason, t.now, time.Time{}
	r.Doubt, r.Doubted, r.Suspected, r.Suspects, r.Deaths = "", Counters{}, time.Time{}, nil, nil
	t.recount()
}

// paused reports whether the rollout is paused. It ends a pause that was long enough.
func (t *step) paused() bool {
	r := t.Rollout
	if r.Paused == "" {
		return false
	}
	if until := r.Since.Add(max(t.Soak, pauseAtLeast)); t.now.Before(until) {
		t.wait(Wait{For: "the end of the pause, if all is well", Until: until})
		return true
	}
	r.Paused = ""
	return false
}

// othersFail reports whether at least half of the instances that were not touched are out
// of reach, or lost their worker since the wave began.
func (t *step) othersFail() (string, bool) {
	all, failing := 0, 0
	for _, seen := range t.o.Instances {
		if t.touch(seen.Name) != nil {
			continue
		}
		all++
		if !seen.Reachable || (seen.Started.After(t.Rollout.From.Add(startSlack)) && !t.reloaded(seen.Name)) {
			failing++
		}
	}
	return fmt.Sprintf("%d of the %d instances that were not touched fail as well", failing, all), all > 0 && 2*failing >= all
}

// reloaded reports whether the pusher itself replaced the instance's worker since the wave began.
func (t *step) reloaded(name string) bool {
	return slices.ContainsFunc(t.Reloads[name], func(r Reload) bool { return !r.At.Before(t.Rollout.From) })
}

// A backend without a server up counts against a snapshot only if all of this is true: it
// had a server up before, as reported by a worker that was old enough to know; its
// endpoints did not change since, and it did not flap anywhere; the instances without the
// snapshot still have a server for it; and the snapshot changed the section of that
// backend. Tenants come, go and fail at any time, so everything else is only noted, unless
// all backends are affected at once.

// emptied is the suspect that means all backends of an instance.
const emptied = "*"

// longestCheck limits how long the pusher waits for health checks on other instances, if all backends are down.
const longestCheck = 30 * time.Second

// backends judges which backends have no server up at the end of a soak. It returns false
// if the rollout may not go on yet, or was stopped.
func (t *step) backends() bool {
	r := t.Rollout
	if t.o.Backends == nil {
		return true // not known
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
				t.fail(fmt.Sprintf("%s: no server is up of %s, which had some before", seen.Name, printable.Few(lost.blamed, mostNamed)))
				return false
			case over:
				t.note(fmt.Sprintf("%s: no server is up of %s, and others were not asked in time", seen.Name, backend))
				delete(suspects, backend)
			}
		}
		if len(lost.noted) > 0 && lost.all == "" {
			t.note(fmt.Sprintf("%s: no server is up of %s, which does not speak against the snapshot", seen.Name, printable.Few(lost.noted, mostNamed)))
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
	all           string   // the message if all backends are down; "" otherwise
	apart         bool     // set if the cause of all may be outside of the snapshot
}

// lost finds the backends that had a server up before and have none with the target.
func (t *step) lost(h *Touch, seen Seen) loss {
	var out loss
	if !slices.ContainsFunc(seen.Sample.Down, func(name string) bool {
		_, good := t.o.Backends[name]
		_, known := slices.BinarySearch(h.Down, name)
		_, before := slices.BinarySearch(t.Rollout.Down, name)
		return good && !known && !before
	}) {
		return out // nearly always the case, and there may be thousands of backends
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
		out.all = fmt.Sprintf("%s: no server is up of any of the %d backends that had some before: %s", seen.Name, judged, printable.Few(down, mostNamed))
		out.apart = upElsewhere == 0 && changed == 0
	}
	return out
}

// knows reports whether a worker has the backends of the last good snapshot.
func (t *step) knows(o Seen) bool { return o.Running == t.Good || o.Running == t.Rollout.Target }

// hadBefore reports whether a backend had a server up on an instance before the instance got the target.
func (t *step) hadBefore(h *Touch, name string, b Backend) bool {
	_, down := slices.BinarySearch(h.Down, name)
	return !h.Asked.IsZero() && h.Age >= b.Check && !down
}

// stable reports whether the state of a backend means anything: the backend was not down before the wave, its
// endpoints have not changed since the instance was last asked, and it does not flap on any instance.
func (t *step) stable(name string, h *Touch, b Backend) bool {
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

// confirmed reports whether a suspicion still holds after all instances were asked, later than a health check
// takes. over is set if they were not asked in time.
func (t *step) confirmed(backend string, since time.Time) (confirmed, over bool) {
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

// blame returns a verdict that leaves out responses which the snapshot cannot have caused: those of backends
// with a problem of their own. It also leaves out the 5xx of backends whose section and requests the snapshot
// did not change: of the one backend with the most if there are other instances to compare with, and of all
// such backends otherwise.
func (t *step) blame(v verdict, list []Seen, now, before, others Counters, alone bool) verdict {
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

// checking reports whether backends that the snapshot changed answered with 5xx, and whether health checks may
// still find those backends down for reasons of their own.
func (t *step) checking() bool {
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

// comesAndGoes reports whether a backend has a problem of its own: its endpoints have changed since the rollout
// began, it flapped on an instance, or it is down where the snapshot cannot be the cause.
func (t *step) comesAndGoes(name string, b Backend) bool {
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

// mostNamed is how many backends a message names.
const mostNamed = 3

// isDown reports whether a backend had no server up.
func (s Sample) isDown(name string) bool {
	_, down := slices.BinarySearch(s.Down, name)
	return down
}
