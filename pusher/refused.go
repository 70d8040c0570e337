package pusher

import (
	"fmt"
	"time"

	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// aboutSigned is what the trouble with snapshots is called that nobody who may has signed.
const aboutSigned = "signatures"

// runs returns the newest snapshot that the fleet was brought to, or is being.
func runs(s rollout.State) snapshots.ID {
	if s.Rollout != nil && s.Rollout.Target.Compare(s.Good) > 0 {
		return s.Rollout.Target
	}
	return s.Good
}

// troubleWithSignatures tells of snapshots that are newer than all that are accepted, and
// not signed by who may: somebody put them there, or a key was forgotten. Older ones are
// from before signatures were asked for.
func (e *engine) troubleWithSignatures(now time.Time) {
	newer := refusedAbove(e.view)
	if len(newer) == 0 {
		e.trouble(aboutSigned, nil, now)
		return
	}
	more := ""
	if n := len(newer) - 1; n > 0 {
		more = fmt.Sprintf("; and %d more", n)
	}
	newest := newer[len(newer)-1]
	e.trouble(aboutSigned, fmt.Errorf("%s is not run: %s%s", newest.ID, newest.Reason, more), now)
}

// refusedAbove returns the refused snapshots that are newer than the newest.
func refusedAbove(v channel.View) []channel.Refused {
	var out []channel.Refused
	for _, r := range v.Refused {
		if r.ID.Revision >= v.Head().Revision {
			out = append(out, r)
		}
	}
	return out
}
