package channel

import (
	"fmt"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
)

// Previous returns the snapshot that a rollback without an argument goes to: from is
// what should run, once nothing is paused, and the decision is for the last good
// snapshot before it that has another content. Good are those that the whole fleet ran,
// oldest first: the last of them that is older and not rejected counts; else what would
// have run had the newer ones not been published. If what should run is not known, or
// nothing else is before it, it holds.
func Previous(v View, good []snapshots.ID, now time.Time) (from snapshots.ID, to Decision) {
	v.Channel = v.Channel.Resumed()
	want := Want(v, now)
	if want.Hold {
		return snapshots.ID{}, want
	}
	older := v.IDs[:slices.Index(v.IDs, want.ID)]
	v.IDs = slices.DeleteFunc(slices.Clone(older), func(id snapshots.ID) bool { return id.Short == want.ID.Short })
	for _, id := range slices.Backward(good) {
		if _, rejected := v.rejection(id); slices.Contains(v.IDs, id) && !rejected {
			return want.ID, Decision{ID: id, Because: BecauseNewest, Message: fmt.Sprintf("%s is the last that the whole fleet ran", id)}
		}
	}
	if v.HeadOnly {
		return want.ID, hold(BecauseNone, "which snapshot was merged before %s is not known", want.ID)
	}
	v.Channel = v.Channel.NotOverridden().Unpinned().walked()
	to = Want(v, now)
	switch {
	case to.Because == BecauseEmpty && len(older) > 0:
		to.Message = fmt.Sprintf("all that the store holds and is older than %s is of the same content", want.ID)
	case to.Because == BecauseEmpty:
		to.Message = fmt.Sprintf("the store holds nothing older than %s", want.ID)
	}
	return want.ID, to
}

// walked returns the channel in which a failure does not keep older snapshots from
// running: a person asks for one.
func (c Channel) walked() Channel {
	c.Spec.Rejected = slices.Clone(c.Spec.Rejected)
	for i := range c.Spec.Rejected {
		c.Spec.Rejected[i].Failed = false
	}
	return c
}
