package snapshots

import (
	"fmt"
	"slices"
	"time"
)

// Previous decides what a person goes back to who names nothing: from is what
// should run, once nothing is paused, and the decision is for the last good
// snapshot before it. That is good, which the whole fleet ran last, if it is older
// and not rejected; else what would have run had the newer ones not been published.
// If what should run is not known, or there is nothing before it, it holds.
func Previous(v View, good ID, now time.Time) (from ID, to Decision) {
	v.Channel = v.Channel.Resumed()
	want := Want(v, now)
	if want.Hold {
		return ID{}, want
	}
	v.IDs = v.IDs[:slices.Index(v.IDs, want.ID)]
	if _, rejected := v.Channel.Rejection(good); slices.Contains(v.IDs, good) && !rejected {
		return want.ID, Decision{ID: good, Because: BecauseNewest, Message: fmt.Sprintf("%s is the last that the whole fleet ran", good)}
	}
	if v.HeadOnly {
		return want.ID, hold(BecauseNone, "which snapshot was merged before %s is not known", want.ID)
	}
	v.Channel = v.Channel.NotOverridden().Unpinned()
	to = Want(v, now)
	if to.Because == BecauseEmpty {
		to.Message = fmt.Sprintf("the store holds nothing older than %s", want.ID)
	}
	return want.ID, to
}
