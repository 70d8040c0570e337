package snapshots

import "time"

// Named returns the snapshots that a channel makes run, now or once people take
// back what they said last, and why: they are not for retention to delete.
func Named(v View, now time.Time) map[ID]string {
	out := map[ID]string{}
	add := func(id ID, reason string) {
		if _, ok := out[id]; !ok && !id.IsZero() {
			out[id] = reason
		}
	}
	spec := v.Channel.Spec
	if spec.Pin != nil {
		add(spec.Pin.Snapshot, "pinned")
	}
	if spec.Override != nil && now.Before(spec.Override.Expires) {
		add(spec.Override.Snapshot, "overrides for a while")
	}
	add(Want(v, now).ID, "wanted")
	v.Channel = v.Channel.Resumed()
	add(Want(v, now).ID, "wanted once resumed")
	v.Channel = v.Channel.NotOverridden().Unpinned()
	add(Want(v, now).ID, "wanted once nothing is pinned")
	return out
}
