package core

import (
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// Limits for the files on an instance that no snapshot in use needs. Files over the limits are
// removed whatever their age, the oldest first.
const (
	// keptGenerations is how many generations of unneeded files stay. The files of one generation
	// became unneeded together. So a return to a recent snapshot uploads nothing.
	keptGenerations = 4
	// keptUnneeded is how many unneeded files stay.
	keptUnneeded = 256
	// forgottenUnneeded is how many files the pusher remembers that an instance does not remove. It
	// forgets those beyond that number, and they stay on the disk until somebody removes them.
	forgottenUnneeded = 2 * keptUnneeded
)

// When files are removed.
const (
	collectRetry    = time.Minute      // after a failure
	collectPatience = 10 * time.Second // after this time, removing files comes before other work
	reviewInterval  = time.Minute      // while the same snapshots are in use
	reviewPace      = time.Second
	// uploadsOfAbsent is how long the uploads of an instance that left the fleet are remembered.
	uploadsOfAbsent = 24 * time.Hour
)

// Upload is a file on an instance. Unneeded says since when no snapshot in use needs the file. It
// is the zero time while a snapshot needs it.
type Upload struct {
	push.Stored
	Unneeded time.Time `json:"unneeded,omitzero"`
}

// uploaded adds the files of a push to a list of uploads, and marks them as needed.
func uploaded(list []Upload, files []push.Stored) []Upload {
	out := slices.Clone(list)
	at := make(map[push.Stored]int, len(out)+len(files)) // there may be thousands of certificates
	for i, u := range out {
		at[u.Stored] = i
	}
	for _, f := range files {
		i, known := at[f]
		if !known {
			i, out = len(out), append(out, Upload{Stored: f})
			at[f] = i
		}
		out[i].Unneeded = time.Time{}
	}
	return out
}

// splitUploads separates certificates from other files.
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

// uploads tracks the files on the disks of instances, and since when nothing needs each of them.
type uploads struct {
	*world
	reviewed time.Time
}

// mostCertificates is the largest number of certificates that a push notes. A snapshot may have
// thousands, and the state should stay small. Certificates over that number stay on the disk.
const mostCertificates = 2 * keptUnneeded

// certificatesLeft returns the certificates that the instance's current snapshot needs and the next
// one does not. The pusher wrote them, because the worker was started from its file.
func (u *uploads) certificatesLeft(i *instanceState, next snapshots.ID) []push.Stored {
	running, known := u.bindings.Of(i.snapshot())
	if !known || i.foreign() != "" {
		return nil
	}
	pushed, _ := u.bindings.Of(next)
	return notIn(running.Certificates, pushed.Certificates)
}

// notIn returns those certificates of a list that are not among others, mostCertificates at most.
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

// noteCertificates notes the certificates that a push wrote and that the last good snapshot does
// not need. It does so even if the push failed. Certificates that somebody else put there are never
// noted or removed.
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

// review says when the files of an instance were reviewed, and which snapshots were in use then.
type review struct {
	at   time.Time
	used []snapshots.ID
}

// reviewFiles notes since when each upload is unneeded. As garbage it returns those that have been
// unneeded for long enough, and those over the limits.
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

// forgetStuck shortens the list if an instance does not remove its files. It drops the oldest files
// that became unneeded before the last removal began and are still there.
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

// noteUploads notes the files that pushes are about to upload.
func (u *uploads) noteUploads(pushes []rollout.Push) {
	for _, p := range pushes {
		i := u.instances[p.Instance]
		if n, ok := u.bindings.Node(p.Snapshot, i.Layout); ok {
			u.state.Uploads[i.Name] = uploaded(u.state.Uploads[i.Name], slices.Concat(n.Files, u.certificatesLeft(i, p.Snapshot)))
			i.garbage, i.reviewed = nil, review{}
		}
	}
}

// reviewUploads finds out which files the instances no longer need. It does so whenever the
// snapshots in use change, and from time to time. It also does so between waves, since one rollout
// may follow another for hours.
func (u *uploads) reviewUploads(now time.Time) {
	if now.Sub(u.reviewed) < reviewPace {
		return
	}
	u.reviewed = now
	// The instance may have files of the snapshot that was last pushed to it, even if that push
	// failed.
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
			continue // until the snapshot that the instance runs can be bound
		}
		i.reviewed = review{now, used}
		next, garbage := reviewFiles(u.state.Uploads[name], needed, now, u.CollectAfter)
		if next = forgetStuck(next, i.collected); !slices.Equal(next, u.state.Uploads[name]) {
			u.state.Uploads[name], u.dirty = next, true
		}
		if i.busy == workCollect {
			continue // the files that are being removed were unneeded; the next review finds the rest
		}
		if i.garbage = garbage; len(garbage) == 0 {
			i.garbageSince = time.Time{}
		} else if i.garbageSince.IsZero() {
			i.garbageSince = now
		}
	}
	u.forgetAbsent(now)
}

// neededFiles returns the files that the snapshots in use need on an instance. It returns false if
// a snapshot that the instance may have cannot be bound, or while a snapshot in use is being read.
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
	for _, name := range i.override().Maps { // the worker knows its maps by these names
		needed[push.Stored{Kind: bind.MapFile, Name: name}] = true
	}
	return needed, true
}

// forgetAbsent forgets the uploads of instances that left the fleet long ago.
func (u *uploads) forgetAbsent(now time.Time) {
	for name, list := range u.state.Uploads {
		if _, there := u.instances[name]; there || !u.fleetKnown() {
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
