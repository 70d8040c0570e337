package pusher

import (
	"context"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/pusher/preflight"
)

// firstLookTime bounds a first look, which is told of or not.
const firstLookTime = 30 * time.Second

// lookFirst looks at an instance that answers for the first time, or again, for what would
// keep a push from working, as the verb check does. It writes nothing and nothing waits for
// it: it says in the log and in the status what is wrong and how to mend it.
func (e *engine) lookFirst(ctx context.Context, i *instance) {
	switch {
	case !i.reachable():
		i.lookedAt = false
		return
	case i.lookedAt:
		return
	}
	i.lookedAt = true
	spec, client := i.Instance, i.client
	e.startOn(ctx, i, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, firstLookTime)
		defer cancel()
		facts := preflight.Gather(ctx, client, spec, false)
		if ctx.Err() != nil || facts.Reached != nil {
			return // that it is out of reach is seen elsewhere
		}
		found := preflight.Judge(facts)
		e.send(ctx, func(time.Time) { e.noteFindings(i, found) })
	})
}

// noteFindings keeps what is wrong with an instance, and logs what is new. Warnings are for
// the verb check: what works may stay as it is.
func (e *engine) noteFindings(i *instance, found []preflight.Finding) {
	found = slices.DeleteFunc(found, func(f preflight.Finding) bool { return f.Warning })
	for _, f := range found {
		if !slices.Contains(i.findings, f) {
			e.logger(i.Name).Warn("instance is not set up well", "check", f.Check, "err", f.Message, "hint", f.Hint)
		}
	}
	i.findings = found
}
