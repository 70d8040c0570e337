package core

import (
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// The bounds of files on an instance that no snapshot in use needs. Those that are over
// them are removed whatever their age, the oldest first.
const (
	// keptGenerations is how many generations of them stay. A generation is what became
	// unneeded together: going back to one of the last snapshots uploads nothing.
	keptGenerations = 4
	// keptUnneeded is how many of them stay.
	keptUnneeded = 256
	// forgottenUnneeded is how many are remembered at most that an instance does not
	// remove: they stay on its disk, and are somebody else's to remove.
	forgottenUnneeded = 2 * keptUnneeded
)

// The times of removing files.
const (
	collectRetry    = time.Minute      // after one that failed
	collectPatience = 10 * time.Second // with an instance that always has something else to do
	reviewInterval  = time.Minute      // where nothing else is in use than before
	reviewPace      = time.Second
	// uploadsOfAbsent is how long it is remembered what was uploaded to an instance that is
	// not in the fleet.
	uploadsOfAbsent = 24 * time.Hour
)

// Upload is a file on an instance. Unneeded is since when no snapshot in use
// needs it, zero while one does.
type Upload struct {
	push.Stored
	Unneeded time.Time `json:"unneeded,omitzero"`
}

// uploaded returns the list of uploads with those of a push, none of which is
// unneeded any more.
func uploaded(list []Upload, files []push.Stored) []Upload {
	out := slices.Clone(list)
	for _, f := range files {
		i := slices.IndexFunc(out, func(u Upload) bool { return u.Stored == f })
		if i < 0 {
			out = append(out, Upload{Stored: f})
		} else {
			out[i].Unneeded = time.Time{}
		}
	}
	return out
}

// splitUploads returns the certificates among uploads apart from the rest.
func splitUploads(all map[string][]Upload) (files, certificates map[string][]Upload) {
	files, certificates = map[string][]Upload{}, map[string][]Upload{}
	for name, list := range all {
		for _, u := range list {
			if u.Kind == bind.CertificateFile {
				certificates[name] = append(certificates[name], u)
			} else {
				files[name] = append(files[name], u)
			}
		}
	}
	return files, certificates
}

// uploads knows what is on the disks of instances, and since when nothing needs it.
type uploads struct {
	*world
	reviewed time.Time
}

// mostCertificates is how many certificates a push notes at most: a snapshot may have
// thousands, and the state of a fleet is to stay small. What is beyond stays on the disk.
const mostCertificates = 2 * keptUnneeded

// certificatesLeft returns the certificates that an instance has of what it runs, and that
// a snapshot does not need. The pusher wrote them: the worker was started from its file.
func (u *uploads) certificatesLeft(i *instanceState, next snapshots.ID) []push.Stored {
	running, known := u.bindings.Of(i.snapshot())
	if !known || i.foreign() != "" {
		return nil
	}
	pushed, _ := u.bindings.Of(next)
	return notIn(running.Certificates, pushed.Certificates)
}

// notIn returns the first of the certificates that are not among others.
func notIn(list, others []push.Stored) (out []push.Stored) {
	among := make(map[push.Stored]bool, len(others))
	for _, c := range others {
		among[c] = true
	}
	for _, c := range list {
		if !among[c] && len(out) < mostCertificates {
			out = append(out, c)
		}
	}
	return out
}

// noteCertificates notes the certificates that a push wrote, whatever became of it, and
// that the last good snapshot does not need. That the pusher wrote them is known: what
// somebody else put there is left alone.
func (u *uploads) noteCertificates(i *instanceState, pushed snapshots.ID, written []push.Stored) {
	good, known := u.bindings.Of(u.state.Rollout.Good)
	if !known || pushed == u.state.Rollout.Good {
		return
	}
	if written = notIn(written, good.Certificates); len(written) > 0 {
		u.state.Uploads[i.Name], u.dirty = uploaded(u.state.Uploads[i.Name], written), true
		i.reviewed = review{}
	}
}

// review is when the files of an instance were looked at, and what was in use then.
type review struct {
	at   time.Time
	used []snapshots.ID
}

// reviewFiles notes since when uploads are unneeded, and returns those that are to be
// removed: they are unneeded for long enough, or there are too many of them.
func reviewFiles(list []Upload, needed map[push.Stored]bool, now time.Time, after time.Duration) (next []Upload, garbage []push.Stored) {
	next = slices.Clone(list)
	var unneeded []Upload
	for i, u := range next {
		switch {
		case needed[u.Stored]:
			next[i].Unneeded = time.Time{}
			continue
		case u.Unneeded.IsZero():
			next[i].Unneeded = now.UTC().Truncate(time.Second)
		}
		unneeded = append(unneeded, next[i])
	}
	slices.SortStableFunc(unneeded, func(a, b Upload) int { return b.Unneeded.Compare(a.Unneeded) }) // the newest first
	generations := 0
	for i, u := range unneeded {
		if i == 0 || !u.Unneeded.Equal(unneeded[i-1].Unneeded) {
			generations++
		}
		if now.Sub(u.Unneeded) >= after || generations > keptGenerations || i >= keptUnneeded {
			garbage = append(garbage, u.Stored)
		}
	}
	slices.Reverse(garbage)
	return next, garbage
}

// forgetStuck drops the oldest of the unneeded files where there are too many that were
// to be removed before a time, and are there still.
func forgetStuck(list []Upload, before time.Time) []Upload {
	var stuck []time.Time
	for _, u := range list {
		if !u.Unneeded.IsZero() && u.Unneeded.Before(before) {
			stuck = append(stuck, u.Unneeded)
		}
	}
	excess := len(stuck) - forgottenUnneeded
	if excess <= 0 {
		return list
	}
	slices.SortFunc(stuck, time.Time.Compare)
	last := stuck[excess-1]
	return slices.DeleteFunc(slices.Clone(list), func(u Upload) bool {
		drop := excess > 0 && !u.Unneeded.IsZero() && !u.Unneeded.After(last)
		if drop {
			excess--
		}
		return drop
	})
}

// noteUploads notes what the pushes are about to upload.
func (u *uploads) noteUploads(pushes []rollout.Push) {
	for _, p := range pushes {
		i := u.instances[p.Instance]
		if n, ok := u.bindings.Node(p.Snapshot, i.Layout); ok {
			u.state.Uploads[i.Name] = uploaded(u.state.Uploads[i.Name], slices.Concat(n.Files, u.certificatesLeft(i, p.Snapshot)))
			i.garbage, i.reviewed = nil, review{}
		}
	}
}

// reviewUploads finds out which files the instances no longer need, whenever other
// snapshots are in use, and now and then. It does so between waves too: snapshots may
// follow on one another for hours.
func (u *uploads) reviewUploads(now time.Time) {
	if now.Sub(u.reviewed) < reviewPace {
		return
	}
	u.reviewed = now
	// What was pushed last to an instance may have arrived, whatever became of the push.
	may := make(map[string][]snapshots.ID, len(u.instances))
	for name, i := range u.instances {
		if id := i.snapshot(); slices.Contains(u.view.IDs, id) {
			may[name] = append(may[name], id)
		}
		for _, s := range u.rollouts() {
			if p := s.Instances[name].Push; p != nil {
				may[name] = append(may[name], p.Snapshot)
			}
		}
	}
	if r := u.state.Rollout.Rollout; r != nil {
		for _, h := range r.Touched {
			may[h.Instance] = append(may[h.Instance], h.Snapshot)
		}
	}
	for name, i := range u.instances {
		used := u.usedOn(may[name])
		if len(u.state.Uploads[name]) == 0 ||
			(slices.Equal(used, i.reviewed.used) && now.Sub(i.reviewed.at) < min(u.CollectAfter/4, reviewInterval)) {
			continue
		}
		needed, ok := u.neededFiles(i, used, may[name])
		if !ok {
			continue // until what it runs can be bound
		}
		i.reviewed = review{now, used}
		next, garbage := reviewFiles(u.state.Uploads[name], needed, now, u.CollectAfter)
		if next = forgetStuck(next, i.collected); !slices.Equal(next, u.state.Uploads[name]) {
			u.state.Uploads[name], u.dirty = next, true
		}
		if i.busy == workCollect {
			continue // what is being removed is no longer needed, and the rest is found again
		}
		if i.garbage = garbage; len(garbage) == 0 {
			i.garbageSince = time.Time{}
		} else if i.garbageSince.IsZero() {
			i.garbageSince = now
		}
	}
	u.forgetAbsent(now)
}

// neededFiles returns the files that snapshots have on an instance. It is not known while
// one that the instance may have cannot be bound, or one is still being read.
func (u *uploads) neededFiles(i *instanceState, used, may []snapshots.ID) (needed map[push.Stored]bool, ok bool) {
	needed = map[push.Stored]bool{}
	for _, id := range used {
		n, bound := u.bindings.Node(id, i.Layout)
		if !bound || n.Err != nil {
			if slices.Contains(may, id) || !(u.snapshotCache.Unreadable(id) || n.Err != nil) {
				return nil, false
			}
		}
		p, _ := u.bindings.Of(id)
		for _, f := range slices.Concat(n.Files, p.Certificates) {
			needed[f] = true
		}
	}
	for _, name := range i.override().Maps { // by which the worker knows them
		needed[push.Stored{Kind: bind.MapFile, Name: name}] = true
	}
	return needed, true
}

// forgetAbsent forgets what was uploaded to instances that left the fleet long ago.
func (u *uploads) forgetAbsent(now time.Time) {
	for name, list := range u.state.Uploads {
		if _, there := u.instances[name]; there || !u.known() {
			continue
		}
		list, _ = reviewFiles(list, nil, now, uploadsOfAbsent)
		if slices.ContainsFunc(list, func(u Upload) bool { return now.Sub(u.Unneeded) < uploadsOfAbsent }) {
			if !slices.Equal(list, u.state.Uploads[name]) {
				u.state.Uploads[name], u.dirty = list, true
			}
			continue
		}
		delete(u.state.Uploads, name)
		u.dirty = true
	}
}
