package push

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// A round makes the changes of a large configuration by calls, in parts. An update makes one part, so a change that comes
// meanwhile waits for that part only. A post of everything is no substitute: with 5,000 servers it takes a second and
// more, in which nothing else can be changed.
//
// Which changes come first is in [round.order]. If the changes of a backend fail, the backend is left out of the round for
// a while. The error is returned at the end of the round, and from time to time if the round takes long.
type round struct {
	began     time.Time
	waiting   map[string]time.Time // since when the changes of a backend wait
	failed    map[string]failure   // of backends
	told      time.Time            // when the failures were returned last, or the round began
	impatient time.Time            // when calls waited in vain for a server to have its address
	perCall   time.Duration        // how long a call took in the last part, zero before the first one
}

// failure is why the changes of a backend failed, and when.
type failure struct {
	at  time.Time
	err error
}

const (
	// partTime is how long the calls of a part take.
	partTime = 250 * time.Millisecond
	// changesInARow are those of a backend that are made before it is the next backend's turn.
	changesInARow = 16
	// failedRest is for how long a backend is left out after its changes have failed.
	failedRest = 5 * time.Second
	// tellInterval is how often a round that does not end returns why changes failed.
	tellInterval = 30 * time.Second
	// postPatience is for how long changes that take a post wait while calls for others go on.
	postPatience = 5 * time.Second
	// postedServers is how many servers a configuration has whose post takes a second. It is used until a post was made.
	postedServers = 5000
)

// setInParts makes changes of a large configuration: a part of them by calls, or all by a post. gone are servers that
// cannot be changed.
func (i runtime) setInParts(ctx context.Context, want Wanted, list, gone []change, have Running) (Running, error) {
	var direct, posted [][]change
	setsAddresses := sync.OnceValue(func() bool { return i.setsAddresses(ctx, &have) })
	for _, group := range grouped(list) {
		if !reweighs(group) && (!readdresses(group) || setsAddresses()) {
			direct = append(direct, group)
		} else {
			posted = append(posted, group)
		}
	}
	now, r := time.Now(), have.round.next(list)
	order := r.order(direct, want, now)
	posted = slices.DeleteFunc(posted, func(group []change) bool { return r.rests(group, now) })
	switch {
	case want.CallsOnly:
		if len(order) == 0 {
			have.Unfinished, have.Waits = true, true
			return have, nil
		}
	case r.postIsSooner(direct, len(want.Servers), have.postTook):
		have.round = nil
		return i.postPart(ctx, want, list, gone, have)
	case len(posted) > 0 && (len(order) == 0 || now.Sub(r.began) > postPatience):
		some := slices.Concat(posted...)
		have, err := i.postPart(ctx, want, some, slices.Concat(without(list, some), gone), have)
		if have.Servers == nil || err != nil && !isOfOne(err) {
			have.round = nil
			return have, err
		}
		r.began = time.Now()
		r.note(some, err, r.began)
		return r.end(have, len(order) > 0, r.began)
	}
	have, err := i.setPart(ctx, want, list, order, gone, r, have)
	if have.Servers == nil || err != nil {
		have.round = nil
		return have, err
	}
	return r.end(have, len(r.waiting)+len(posted) > 0, time.Now())
}

// end returns what is known after a part. If there is nothing more to do in the round, it is over.
func (r *round) end(have Running, more bool, now time.Time) (Running, error) {
	have.round, have.Unfinished = nil, more
	if more {
		have.round = r
		if now.Sub(r.told) < tellInterval {
			return have, nil
		}
		r.told = now
	}
	var errs []error
	for _, backend := range slices.Sorted(maps.Keys(r.failed)) {
		err := r.failed[backend].err
		if !slices.ContainsFunc(errs, func(e error) bool { return e.Error() == err.Error() }) { // a post fails for several backends
			errs = append(errs, err)
		}
	}
	return have, several(errs)
}

// postPart posts everything, with some of the changes for the worker.
func (i runtime) postPart(ctx context.Context, want Wanted, some, later []change, have Running) (Running, error) {
	have, err := i.setBoundByPost(ctx, want, some, have)
	return i.confirm(ctx, want, some, later, have, nil, err)
}

// setPart makes changes in this order for as long as a part takes, and notes in the round what is left and what failed. It
// returns the other errors, which concern the whole instance.
func (i runtime) setPart(ctx context.Context, want Wanted, list, order, gone []change, r *round, have Running) (Running, error) {
	later := func(some []change) []change { return slices.Concat(without(list, some), gone) }
	// A post from before this process started may have written these servers.
	have.Persisted = have.Persisted && (!slices.ContainsFunc(order, change.onDisk) || slices.Equal(have.Written, want.Servers))
	began, patience := time.Now(), addressPatience
	if began.Sub(r.impatient) < failedRest {
		patience = 0
	}
	done, err := i.setDirectly(ctx, order, began.Add(partTime), patience)
	made := err
	tried := slices.SortedFunc(slices.Values(done.tried), func(a, b change) int { return a.at - b.at })
	have = have.withUnanswered(tried, err)
	if err != nil && len(done.failed) == 0 {
		return i.confirm(ctx, want, tried, later(tried), have, nil, err)
	}
	now := time.Now()
	r.perCall = now.Sub(began) / time.Duration(max(1, done.calls))
	failed := func(c change) bool { return done.failed[c.to.Backend] != nil }
	good := slices.DeleteFunc(slices.Clone(tried), failed)
	bad := slices.DeleteFunc(slices.Clone(tried), func(c change) bool { return !failed(c) })
	r.note(good, nil, now)
	for backend, err := range done.failed {
		r.failed[backend] = failure{now, err}
		if _, ok := errors.AsType[notAsSetError](err); ok && patience > 0 {
			r.impatient = now
		}
	}
	r.putOff(tried, order, now)
	if len(good) > 0 {
		if have, err = i.confirm(ctx, want, good, later(good), have, done.told, nil); err != nil {
			if have.Servers == nil || !isOfOne(err) {
				return have, err
			}
			r.failedAmong(good, have.Servers, err, now)
			have.api = "" // the API may be an older version now
		}
	}
	if len(bad) > 0 {
		have.api = ""
		if have, err = i.confirm(ctx, want, bad, later(bad), have, nil, made); have.Servers == nil {
			return have, err
		}
	}
	return have, nil
}

// without returns the changes of a list that are not among some of them.
func without(list, some []change) []change {
	at := make(map[int]bool, len(some))
	for _, c := range some {
		at[c.at] = true
	}
	return slices.DeleteFunc(slices.Clone(list), func(c change) bool { return at[c.at] })
}

// next returns a round to go on with changes, a new one if there is none. It is a copy, since [Running] is a value.
func (r *round) next(list []change) *round {
	now := time.Now()
	if r == nil {
		return &round{began: now, told: now, failed: map[string]failure{}}
	}
	out := *r
	out.failed = make(map[string]failure, len(r.failed))
	for _, c := range list { // what failed and is no longer wanted is forgotten
		if f, ok := r.failed[c.to.Backend]; ok {
			out.failed[c.to.Backend] = f
		}
	}
	return &out
}

// note notes whether the changes of backends failed.
func (r *round) note(list []change, err error, now time.Time) {
	for _, c := range list {
		if delete(r.failed, c.to.Backend); err != nil {
			r.failed[c.to.Backend] = failure{now, err}
		}
	}
}

// rests reports whether a backend is left out, since its changes failed lately.
func (r *round) rests(group []change, now time.Time) bool {
	f, ok := r.failed[group[0].to.Backend]
	return ok && now.Sub(f.at) < failedRest
}

// postIsSooner reports whether a post makes changes much sooner than calls. It is read back, twice.
func (r *round) postIsSooner(list [][]change, servers int, postTook time.Duration) bool {
	if postTook == 0 {
		postTook = time.Second * time.Duration(servers) / postedServers
	}
	calls := 0
	for _, group := range list {
		for _, c := range group {
			calls += len(c.calls())
		}
	}
	const much = 3 // everything else waits for a post
	return r.perCall*time.Duration(calls) > much*2*(postTook+r.perCall*time.Duration(len(list)))
}

// order returns the changes of backends in the order in which they are to be made, without those that failed lately.
//
// The newest changes take turns with those that wait longest. So a storm of changes does not delay the change of another
// backend, and changes that never stop do not keep others waiting for ever. In both, the first of each namespace comes
// before the second of any, so that a namespace delays itself only. Slots that become free are not urgent: they get
// every fifth turn. A backend with many changes has them made a few at a time.
func (r *round) order(list [][]change, want Wanted, now time.Time) []change {
	var traffic, freed [][]change
	for _, group := range list {
		switch {
		case r.rests(group, now):
		case slices.ContainsFunc(group, change.ofTraffic):
			traffic = append(traffic, readyFirst(group))
		default:
			freed = append(freed, group)
		}
	}
	traffic, freed = r.inTurns(traffic, want, now), r.inTurns(freed, want, now)
	turns := make([][]change, 0, len(traffic)+len(freed))
	for len(traffic)+len(freed) > 0 {
		n, m := min(4, len(traffic)), min(1, len(freed))
		turns = append(append(turns, traffic[:n]...), freed[:m]...)
		traffic, freed = traffic[n:], freed[m:]
	}
	var out []change
	for more, at := true, 0; more; at += changesInARow {
		more = false
		for _, group := range turns {
			out = append(out, group[min(at, len(group)):min(at+changesInARow, len(group))]...)
			more = more || at+changesInARow < len(group)
		}
	}
	return out
}

// ofTraffic reports whether a server begins or stops to take traffic, or takes it elsewhere.
func (c change) ofTraffic() bool {
	return c.from.State == bind.SlotReady || c.to.State == bind.SlotReady
}

// inTurns returns the changes of backends, the newest in turns with those that wait longest.
func (r *round) inTurns(list [][]change, want Wanted, now time.Time) [][]change {
	moved := func(group []change) time.Time { return want.Moved[group[0].to.Backend] }
	waits := func(group []change) time.Time {
		if since, ok := r.waiting[group[0].to.Backend]; ok {
			return since
		}
		return now
	}
	newest := want.byTurns(list, func(a, b []change) int { return moved(b).Compare(moved(a)) })
	longest := want.byTurns(list, func(a, b []change) int { return waits(a).Compare(waits(b)) })
	out, taken := make([][]change, 0, len(list)), make(map[string]bool, len(list))
	for n := range list {
		for _, group := range [][]change{newest[n], longest[n]} {
			if backend := group[0].to.Backend; !taken[backend] {
				taken[backend] = true
				out = append(out, group)
			}
		}
	}
	return out
}

// byTurns sorts the changes of backends. The first of each namespace comes before the second of any.
func (w Wanted) byTurns(list [][]change, compare func(a, b []change) int) [][]change {
	out := slices.Clone(list)
	slices.SortStableFunc(out, compare)
	turn, turns := make(map[string]int, len(out)), map[string]int{} // the turn of a backend, and the next of a namespace
	for _, group := range out {
		backend := group[0].to.Backend
		namespace := w.Namespaces[backend]
		turn[backend] = turns[namespace]
		turns[namespace]++
	}
	slices.SortStableFunc(out, func(a, b []change) int { return turn[a[0].to.Backend] - turn[b[0].to.Backend] })
	return out
}

// putOff notes since when the backends wait of which changes were not tried. It begins anew for one of which some were.
func (r *round) putOff(tried, order []change, now time.Time) {
	began, at := make(map[string]bool, len(tried)), make(map[int]bool, len(tried))
	for _, c := range tried {
		began[c.to.Backend], at[c.at] = true, true
	}
	waiting := map[string]time.Time{}
	for _, c := range order {
		backend := c.to.Backend
		if _, failed := r.failed[backend]; failed || at[c.at] {
			continue
		}
		waiting[backend] = now
		if since, ok := r.waiting[backend]; ok && !began[backend] {
			waiting[backend] = since
		}
	}
	r.waiting = waiting
}

// failedAmong notes the backends in which the worker does not have what was set.
func (r *round) failedAmong(list []change, servers []bind.Server, err error, now time.Time) {
	noted := false
	for _, c := range list {
		if servers[c.at] != c.to {
			r.failed[c.to.Backend], noted = failure{now, err}, true
		}
	}
	if !noted { // it is another server of one of them
		r.failed[""] = failure{now, err}
	}
}
