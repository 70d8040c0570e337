package pusher

import (
	"fmt"
	"time"

	"github.com/hapsnap/hapsnap/pusher/notify"
)

// tellAfter is how long a trouble lasts before anybody is notified of it: most are
// over by then.
const tellAfter = time.Minute

// notifyOfTroubles tells of those that have lasted for a while.
func (e *engine) notifyOfTroubles(now time.Time) {
	for about, t := range e.troubles {
		if !e.told[about] && now.Sub(t.Since) >= tellAfter {
			e.told[about] = true
			e.tell(happening{event: notify.Trouble, text: fmt.Sprintf("%s: %s", about, firstLine(t.Error, longestMessage))}, now)
		}
	}
	for about := range e.told {
		if _, still := e.troubles[about]; !still {
			delete(e.told, about)
			e.tell(happening{event: notify.TroubleOver, text: about + ": the trouble is over"}, now)
		}
	}
}
