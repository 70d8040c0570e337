package rollout

import (
	"fmt"
	"slices"
	"time"
)

// judged reports whether statistics count in this rollout. Without a soak time they do not,
// since nobody wants to wait for them.
func (t *turn) judged() bool { return !t.Gate.Off && t.Soak > 0 }

// count notes where counting begins for each instance. For a worker that got the snapshot
// in this wave it begins at 0. For one that was changed at run time it begins when it is
// first asked after that; for the others when they are first asked in this wave.
func (t *turn) count() {
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
			base.Past = b.Past // keep what came before a pause, which is what the comparison is about
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
		if !t.has(seen.Name) {
			base.By = nil // it is only compared with
		}
		if r.Counted == nil {
			r.Counted = map[string]Base{}
		}
		r.Counted[seen.Name] = base
	}
}

// knowDown notes backends that have no server up before anything is pushed in a wave. The
// rollout did not cause those.
func (t *turn) knowDown() {
	r := t.Rollout
	for _, seen := range t.o.Instances {
		if t.has(seen.Name) {
			continue
		}
		for _, backend := range seen.Sample.Down {
			if _, good := t.o.Backends[backend]; !good && t.o.Backends != nil {
				continue
			}
			if i, known := slices.BinarySearch(r.Down, backend); !known {
				r.Down = slices.Insert(r.Down, i, backend)
			}
		}
	}
}

// others returns the instances to compare with: those without the target, or, if all have
// it, those that have held well with it for a wave.
func (t *turn) others() []Seen {
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

// traffic adds up what instances counted in this wave.
func (t *turn) traffic(list []Seen) (all window) {
	for _, seen := range list {
		base := t.Rollout.Counted[seen.Name]
		if now, ok := seen.Sample.since(base); ok && seen.Reachable {
			all = all.with(now, base.Past)
		}
	}
	return all
}

// finding is the result of the gate, in words.
type finding struct {
	verdict
	reason string
	// counted is what counts against the target, if it is 5xx.
	counted Counters
}

// statistics judges each instance that has the target, and the wave as a whole, since each
// alone may have too few requests.
func (t *turn) statistics(soaked bool) finding {
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

// judge judges some instances that have the target by their statistics.
func (t *turn) judge(list, others []Seen, soaked bool) finding {
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

// pass is the gate at the end of the soak time, and on the way to it. It returns false if
// the rollout may not go on yet, or was stopped.
func (t *turn) pass(soaked bool) bool {
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

// doubt starts the count again, for all, after statistics spoke against the target. A
// change in traffic shows in some instances' counters before others, and the counts may
// also have different lengths.
func (t *turn) doubt(f finding) bool {
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
	case f.verdict == unsure && waited: // and the others get none either
		r.Doubt, r.Doubted, r.Suspected = "", Counters{}, time.Time{}
	default:
		t.wait(Wait{For: "statistics once more, for " + r.Doubt, Until: r.Suspected.Add(t.Soak)})
	}
	return false
}

// fewer is the turn with a gate that needs only a quarter of the requests. If all are slow,
// some may have had fewer than others, and too few only to blame the snapshot.
func (t *turn) fewer() *turn {
	out := *t
	out.Gate.Requests = max(1, t.Gate.Requests/4)
	return &out
}

// othersCounted reports whether the others had enough requests to compare with, or there
// are none.
func (t *turn) othersCounted() bool {
	others := t.others()
	return len(others) == 0 || t.traffic(others).Requests >= t.Gate.Requests
}

// recount starts the count again for all, and keeps what was before.
func (t *turn) recount() {
	r := t.Rollout
	r.From = t.now
	for name, b := range r.Counted {
		r.Counted[name] = Base{Past: b.Past}
	}
}

// mayProceed reports whether the rollout goes on although the traffic was too little to
// judge. It does if a person ordered it, and for the first snapshot of all, since there was
// no traffic before it.
func (t *turn) mayProceed(reason string) bool {
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

// pauseAtLeast is the least time that a rollout pauses, also without a soak time.
const pauseAtLeast = time.Second

// pause stops the rollout where it is, for a reason outside of it. It goes on once all were
// healthy for a soak time.
func (t *turn) pause(reason string) {
	r := t.Rollout
	if r.Paused != "" && t.now.Sub(r.Since) < max(t.Soak/2, pauseAtLeast) {
		return // noted a moment ago
	}
	r.Paused, r.Since, r.Held = reason, t.now, time.Time{}
	r.Doubt, r.Doubted, r.Suspected, r.Suspects, r.Deaths = "", Counters{}, time.Time{}, nil, nil
	t.recount()
}

// paused reports whether the rollout is paused, and ends a pause that was long enough.
func (t *turn) paused() bool {
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
func (t *turn) othersFail() (string, bool) {
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

// reloaded reports whether the pusher itself replaced the instance's worker since the wave
// began.
func (t *turn) reloaded(name string) bool {
	return slices.ContainsFunc(t.Reloads[name], func(r Reload) bool { return !r.At.Before(t.Rollout.From) })
}
