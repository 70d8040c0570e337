package rollout

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// advance moves the rollout on.
func (t *step) advance() {
	if t.Rollout == nil {
		return
	}
	if t.Rollout.Phase != Undoing {
		reached, _ := t.reach()
		t.Rollout.Reached = max(t.Rollout.Reached, reached)
		// Instances that run the target although nothing was pushed to them take part, so that they are watched and
		// undone with the others.
		for _, i := range t.o.Instances {
			if i.Reachable && i.Running == t.Rollout.Target && t.touch(i.Name) == nil {
				t.Rollout.Touched = append(t.Rollout.Touched,
					Touch{Instance: i.Name, Snapshot: i.Running, Applied: true, PID: i.PID, At: t.now, Found: true})
			}
		}
		t.watch()
	}
	if t.Rollout.Phase != Undoing {
		t.count()
	}
	switch t.Rollout.Phase {
	case Pushing:
		t.pushWave()
	case Soaking:
		t.soak()
	case Undoing:
		t.undoTouched()
	}
}

// watch is the gate: every instance that has the target must keep naming it, with the same worker. An instance
// with a push under way is skipped, as it is about to change. What the caller changes in a running worker may replace
// it, so that nothing is held against an instance meanwhile. But the soak waits if it does not answer: a worker that
// hangs also holds up the work on it.
func (t *step) watch() {
	r := t.Rollout
	for i := range r.Touched {
		h := &r.Touched[i]
		seen := t.seen[h.Instance]
		if h.Snapshot != r.Target || t.Instances[h.Instance].Push != nil {
			continue
		}
		if seen.Busy {
			if h.Applied && !seen.Reachable {
				t.lose(h)
			}
			continue
		}
		if !h.Applied {
			if seen.Reachable && seen.Running == r.Target && seen.Foreign == "" {
				t.backAlive(h, seen)
				h.Applied, h.PID, h.At = true, seen.PID, t.now
			}
			continue
		}
		reason := t.unhealthy(h, seen)
		if reason == "" {
			continue
		}
		if others, fail := t.othersFail(); fail {
			t.pause(h.Instance + ": " + reason + "; " + others)
			if seen.Reachable && seen.Running == r.Target {
				h.PID, h.At = seen.PID, t.now
			}
			if !seen.Reachable {
				h.Lost = t.now // its grace begins when the others are back
			}
			continue
		}
		t.died(h, seen, reason)
		return
	}
}

// startSlack is the possible error of a worker's start: its age is reported in whole seconds, and the answer
// takes time.
const startSlack = 3 * time.Second

// unhealthy returns what is wrong with an instance that has the target, "" if nothing is.
func (t *step) unhealthy(h *Touch, seen Seen) string {
	if !seen.Reachable {
		t.lose(h)
		if gone := t.now.Sub(h.Lost); gone > t.Grace {
			return fmt.Sprintf("out of reach for %s after it got %s", gone.Round(time.Second), h.Snapshot)
		}
		return ""
	}
	h.Lost = time.Time{}
	switch {
	case seen.Running.IsZero():
		return fmt.Sprintf("runs another configuration than %s, which it had", h.Snapshot)
	case seen.Running != h.Snapshot:
		return fmt.Sprintf("runs %s instead of %s, which it had", seen.Running, h.Snapshot)
	case seen.Foreign != "":
		return fmt.Sprintf("it names %s, which it had, but %s", h.Snapshot, seen.Foreign)
	case seen.PID != h.PID:
		return fmt.Sprintf("its worker %d was replaced by %d while it should have been stable", h.PID, seen.PID)
	case seen.Started.After(h.At.Add(startSlack)):
		return fmt.Sprintf("its worker %d was replaced by another of that number while it should have been stable", h.PID)
	}
	return ""
}

// lose notes since when an instance with the target is out of reach.
func (t *step) lose(h *Touch) {
	if h.Lost.IsZero() {
		h.Lost = t.now
		h.Lapses++
	}
}

// held reports whether the rollout stays where it is, however long an instance has soaked.
func (t *step) held() bool {
	if t.o.Hold {
		t.wait(Wait{For: "the hold to end, no further instance gets it meanwhile"})
	}
	return t.o.Hold
}

// pushWave begins the pushes of the wave, and ends it when every member has the snapshot or
// is not worth waiting for. If no member took the snapshot, nothing was learned, and other
// members are chosen.
func (t *step) pushWave() {
	r := t.Rollout
	if t.held() || t.paused() {
		t.stopClock(true)
		return
	}
	if len(r.Members) == 0 && !t.nextMembers() {
		return
	}
	// If the wave is late, the rollout may fail in this step, so nothing more is pushed.
	late := r.Held.IsZero() && t.now.Sub(r.Since) > t.Deadline
	waiting, held := false, false
	for _, name := range r.Members {
		if t.has(name) || !t.patient(name, r.Target) {
			continue
		}
		waiting = true
		held = !late && !t.pushMember(name) || held
	}
	t.stopClock(held)
	switch {
	case waiting && late && (t.provenGood() || t.onlyOneLate()):
		t.setAside()
	case waiting && late:
		t.fail(fmt.Sprintf("%s did not take %s within %s", t.late(), r.Target, t.Deadline))
	case waiting:
	case slices.ContainsFunc(r.Members, t.has):
		r.Phase, r.Since = Soaking, t.now
	default:
		r.Members = nil
	}
}

// stopClock stops the time of the wave while a hold, a blackout or the budget keeps it from
// continuing.
func (t *step) stopClock(held bool) {
	r := t.Rollout
	switch {
	case held && r.Held.IsZero():
		r.Held = t.now
	case !held && !r.Held.IsZero():
		r.Since, r.Held = r.Since.Add(t.now.Sub(r.Held)), time.Time{}
	}
}

// nextMembers chooses the next wave. It returns false if there is none: all instances that
// can be reached have the snapshot, or none can be reached.
func (t *step) nextMembers() bool {
	r := t.Rollout
	all, missing := t.candidates()
	if len(all) > 0 && missing == 0 && !slices.ContainsFunc(r.Touched, func(h Touch) bool { return !h.Found }) {
		t.finish() // nothing was changed, so nothing has to soak
		return false
	}
	if t.darkForWave(r.Wave) {
		return false
	}
	r.Members = pick(all, t.nextSize())
	if len(r.Members) == 0 && !t.taken() {
		t.stopClock(false)
		return false // the wave begins when an instance can be chosen
	}
	r.Since, r.Held = t.now, time.Time{}
	r.From, r.Counted, r.Suspects = t.now, nil, nil
	r.Doubt, r.Doubted, r.Suspected = "", Counters{}, time.Time{}
	t.knowDown()
	if len(r.Members) == 0 {
		r.Phase = Soaking
	}
	return len(r.Members) > 0
}

// taken reports whether an instance has the target.
func (t *step) taken() bool {
	return slices.ContainsFunc(t.Rollout.Touched, func(h Touch) bool { return h.Applied && h.Snapshot == t.Rollout.Target })
}

// candidates describes the fleet for the choice of a wave, and counts the instances without
// the target.
func (t *step) candidates() (all []candidate, missing int) {
	for _, i := range t.o.Instances {
		c := candidate{
			name: i.Name, zone: i.Zone, up: i.Reachable, done: t.has(i.Name),
			ready: t.patient(i.Name, t.Rollout.Target) && !t.Instances[i.Name].holds(t.Rollout.Target, t.now) && !t.hangs(i.Name) && !t.spared(i.Name) && !t.wasLate(i.Name),
			first: t.touch(i.Name) != nil,
		}
		if !c.done {
			missing++
		}
		all = append(all, c)
	}
	return all, missing
}

// wasLate reports whether the instance did not take the target within the time of an earlier wave.
func (t *step) wasLate(name string) bool {
	h := t.touch(name)
	return h != nil && h.Late && h.Snapshot == t.Rollout.Target
}

// has reports whether the instance has the target.
func (t *step) has(name string) bool {
	h := t.touch(name)
	return h != nil && h.Snapshot == t.Rollout.Target && h.Applied
}

// pushMember begins the push to a member, which counts as touched from then on. It returns false if the budget
// or a blackout forbids the push. A push that has begun may end in a blackout.
func (t *step) pushMember(name string) bool {
	r, before := t.Rollout, len(t.pushes)
	h := t.touch(name)
	known := h != nil && h.Snapshot == r.Target
	if !known && t.darkForWave(r.Wave) {
		return false
	}
	if may := t.push(name, r.Target, Wave); known || len(t.pushes) == before {
		t.waitForPush(name)
		return may
	}
	t.waitForPush(name)
	r.Touched = slices.DeleteFunc(r.Touched, func(h Touch) bool { return h.Instance == name })
	r.Touched = append(r.Touched, t.before(t.seen[name]))
	return true
}

// waitForPush notes that a push is under way, or will be tried again.
func (t *step) waitForPush(name string) {
	switch i := t.Instances[name]; {
	case i.Push != nil:
		t.wait(Wait{For: "its push", Instance: name})
	case t.now.Before(i.NotBefore):
		t.wait(Wait{For: "another try", Instance: name, Until: i.NotBefore})
	}
}

// late returns the instances that did not take the target in time: those that delay the wave, and those that the rollout
// went on without.
func (t *step) late() []string {
	var out []string
	for _, i := range t.o.Instances {
		member := slices.Contains(t.Rollout.Members, i.Name) && t.patient(i.Name, t.Rollout.Target)
		if !t.has(i.Name) && (member || t.wasLate(i.Name)) {
			out = append(out, i.Name)
		}
	}
	return out
}

// onlyOneLate reports whether a single instance has not taken the target in time, and another one has it or can be
// tried. A push that neither ends well nor is refused more likely says something about the instance. If that happens
// on a second one, it is the snapshot in doubt.
func (t *step) onlyOneLate() bool {
	members := t.Rollout.Members
	all, _ := t.candidates()
	return len(t.late()) == 1 && (slices.ContainsFunc(members, t.has) || slices.ContainsFunc(all, func(c candidate) bool {
		return c.up && c.ready && !c.done && !slices.Contains(members, c.name)
	}))
}

// setAside takes the members from the wave that delay it. The rollout goes on without them, and they catch up when it
// has ended.
func (t *step) setAside() {
	r := t.Rollout
	r.Members = slices.DeleteFunc(r.Members, func(name string) bool {
		if t.has(name) {
			return false
		}
		t.note(fmt.Sprintf("%s did not take it within %s, and the rollout goes on without it", name, t.Deadline))
		if h := t.touch(name); h != nil && h.Snapshot == r.Target {
			h.Late = true
		}
		return true
	})
}

// soak waits until all instances with the snapshot were healthy for long enough, and then
// begins the next wave or finishes.
func (t *step) soak() {
	r := t.Rollout
	if !t.taken() && !t.vouched() {
		// All that had the snapshot have left the fleet. Nothing was learned, and the wave takes others.
		r.Phase, r.Members = Pushing, nil
		t.pushWave()
		return
	}
	if t.takeAnother() {
		r.Phase, r.Members = Pushing, nil
		t.pushWave()
		return
	}
	unsteady, steady := t.unsteady()
	reloading := "" // an instance that is reloaded, which does not begin the soak anew
	for _, h := range r.Touched {
		push := t.Instances[h.Instance].Push
		pushing := push != nil && !t.hangs(h.Instance)
		if pushing && h.Snapshot == r.Target && push.Purpose == Reshape && r.Reshapes > mostReshapes {
			pushing, reloading = false, h.Instance
		}
		lost := h.Applied && !h.Lost.IsZero() && !(h.comesAndGoes() && steady >= len(unsteady))
		if h.Snapshot == r.Target && (lost || pushing) {
			if r.Interrupted.IsZero() {
				r.Since, r.Interrupted = t.now, t.now
			}
			t.wait(Wait{For: "it to be back", Instance: h.Instance})
			return
		}
	}
	if !r.Interrupted.IsZero() {
		r.Since, r.Interrupted = t.now, time.Time{}
	}
	soaked := t.vouched() || t.now.Sub(r.Since) >= t.Soak
	if !t.pass(soaked) || t.paused() || t.held() {
		return
	}
	if !soaked {
		t.wait(Wait{For: "soak", Until: r.Since.Add(t.Soak)})
		return
	}
	if reloading != "" { // nobody can say yet whether its new worker lives
		t.wait(Wait{For: "its push", Instance: reloading})
		return
	}
	all, _ := t.candidates()
	if !slices.ContainsFunc(all, func(c candidate) bool { return !c.done && c.ready }) {
		if t.lostMost() && !t.vouched() {
			t.wait(Wait{For: "most of the instances, which are out of reach"})
			return
		}
		t.finish()
		return
	}
	if t.darkForWave(r.Wave + 1) {
		return
	}
	r.Phase, r.Since, r.Members = Pushing, t.now, nil
	r.Wave++
	r.Deaths = nil
	t.pushWave()
}

// mostReshapes is how often reloads for live data may begin the soak of a rollout anew. Otherwise a certificate that comes
// and goes all the time, of whichever tenant, would keep the snapshot from all others.
const mostReshapes = 3

// mostLapses is how often an instance with the target may go out of reach before a soak no longer waits for it.
// Otherwise one instance that comes and goes would keep the snapshot from all others.
const mostLapses = 3

// comesAndGoes reports whether the instance has gone out of reach too often since it got the target.
func (h Touch) comesAndGoes() bool { return h.Lapses > mostLapses }

// unsteady returns the instances with the target that come and go, and counts the others that have it. If there
// are at least as many others, the soak does not wait for those that come and go. If not, the target may be the
// cause, and the soak waits until they stay.
func (t *step) unsteady() (names []string, steady int) {
	for _, h := range t.Rollout.Touched {
		switch {
		case !t.has(h.Instance):
		case h.comesAndGoes():
			names = append(names, h.Instance)
		default:
			steady++
		}
	}
	return names, steady
}

// takeAnother reports whether the only instance with the target comes and goes, and another one can get it.
func (t *step) takeAnother() bool {
	names, steady := t.unsteady()
	if len(names) != 1 || steady > 0 || t.vouched() || t.o.Hold || t.paused() {
		return false
	}
	all, _ := t.candidates()
	if !slices.ContainsFunc(all, func(c candidate) bool { return !c.done && c.ready }) {
		return false
	}
	t.note(names[0] + ": goes out of reach again and again, so another instance is tried")
	return true
}

// awayFor is how long an instance that went out of reach before a rollout began may be expected back.
const awayFor = time.Hour

// lostMost reports whether more instances are expected back than can be reached. Were the rollout to end now, all of them would get the
// target at once when they are back, after a few had it. An instance is expected back if it went out of reach during the rollout, or
// less than an hour ago. Before any snapshot was good, the others may never have been there.
func (t *step) lostMost() bool {
	reached, away := t.reach()
	expected := min(away, t.Rollout.Reached-reached)
	if !t.Good.IsZero() {
		recent := 0
		for _, i := range t.o.Instances {
			if !i.Reachable && !i.Away.IsZero() && t.now.Sub(i.Away) < awayFor {
				recent++
			}
		}
		expected = max(expected, recent)
	}
	return expected > reached
}

// reach counts the instances that can be reached, and those that cannot.
func (t *step) reach() (reached, away int) {
	for _, i := range t.o.Instances {
		if i.Reachable {
			reached++
		} else {
			away++
		}
	}
	return reached, away
}

// finish makes the target the good snapshot. Instances that were away get it when they
// return.
func (t *step) finish() {
	t.Good, t.Rollout = t.Rollout.Target, nil
	t.prove(t.Good)
}

// undoTouched brings the touched instances back, the last touched first, and ends the
// rollout when all that can be reached are back.
func (t *step) undoTouched() {
	r := t.Rollout
	waiting := false
	for i := len(r.Touched) - 1; i >= 0 && !t.Good.IsZero(); i-- {
		h := r.Touched[i]
		if h.Undone || !t.patient(h.Instance, t.Good) {
			continue
		}
		waiting = true
		t.push(h.Instance, t.Good, Undo)
		t.waitForPush(h.Instance)
	}
	if !waiting {
		t.Rollout = nil
	}
}

// candidate is an instance for the choice of a wave.
type candidate struct {
	name, zone string
	up         bool // reachable
	done       bool // has the target
	ready      bool // can be pushed to now
	first      bool // was touched by a rollout that this one replaced
}

// order puts the touched instances first, since they run neither the good snapshot nor the
// wanted one, and takes the others from the zones in turn.
func order(all []candidate) []candidate {
	out := slices.Clone(all)
	turn := make(map[string]int, len(all)) // by name: its place within its zone
	seen := make(map[string]int)
	slices.SortFunc(out, func(a, b candidate) int { return strings.Compare(a.name, b.name) })
	for _, c := range out {
		turn[c.name] = seen[c.zone]
		seen[c.zone]++
	}
	slices.SortStableFunc(out, func(a, b candidate) int {
		if a.first != b.first {
			return before(a.first)
		}
		if d := turn[a.name] - turn[b.name]; d != 0 {
			return d
		}
		return strings.Compare(a.zone, b.zone)
	})
	return out
}

func before(first bool) int {
	if first {
		return -1
	}
	return 1
}

// pick chooses the members of a wave of a size, at least one if any is ready. If there are
// several zones it never takes all that is left of one zone: the rest comes in a wave of
// its own. A zone with one instance can leave nothing, so a wave takes at most one such
// zone.
func pick(all []candidate, size Size) []string {
	zones, up, done := make(map[string]bool), make(map[string]int), 0
	for _, c := range all {
		zones[c.zone] = true
		if c.up {
			up[c.zone]++
		}
		if c.done {
			done++
		}
	}
	only, within := onlyZone(all, size)
	count := max(size.of(len(all))-done, 1)
	taken := make(map[string]int)
	whole := false
	var members []string
	for _, c := range order(all) {
		if c.done || !c.ready || len(members) == count || (within && c.zone != only) {
			continue
		}
		if len(zones) > 1 && taken[c.zone]+1 >= up[c.zone] {
			if up[c.zone] > 1 || whole {
				continue
			}
			whole = true
		}
		taken[c.zone]++
		members = append(members, c.name)
	}
	return members
}

// onlyZone returns the zone that the wave is limited to, if it is limited to one: the zone
// with most touched instances, so that what was begun is finished first.
func onlyZone(all []candidate, size Size) (zone string, within bool) {
	if !size.Zone {
		return "", false
	}
	begun := make(map[string]int)
	for _, c := range all {
		if c.done || c.first {
			begun[c.zone]++
		}
	}
	for _, c := range order(all) {
		if !c.done && c.ready && (!within || begun[c.zone] > begun[zone]) {
			zone, within = c.zone, true
		}
	}
	return zone, within
}
