package pusher

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/pusher/notify"
)

// retrying is when to try again what failed. Each failure in a row doubles the wait.
type retrying struct {
	at   time.Time // zero: at once
	wait time.Duration
}

// The waits after a state that could not be saved, as on a disk that is full.
const (
	firstSaveRetry = saveInterval
	lastSaveRetry  = 10 * time.Second
)

// after returns what follows from the end of a try.
func (r retrying) after(err error, now time.Time) retrying {
	if err == nil {
		return retrying{}
	}
	r.wait = min(max(2*r.wait, firstSaveRetry), lastSaveRetry)
	return retrying{at: now.Add(r.wait), wait: r.wait}
}

// troubleRepeats is how often at most a trouble that is there is logged once more, because
// its reason is another one.
const troubleRepeats = time.Minute

// troubleMessages say for the log what the pusher cannot do, and what it does meanwhile.
var troubleMessages = map[string]string{
	"cache":        "cannot keep snapshots on this machine, trying again",
	"certificates": "cannot open the certificates of a snapshot, it is not rolled out",
	"channel":      "cannot write the channel, trying again",
	"cluster":      "cannot watch the cluster, the endpoints and Secrets known so far stay in use",
	"endpoints":    "endpoints are refused, their Services go without them",
	"fleet":        "cannot use the file of the fleet, the fleet known so far stays",
	"live":         "cannot read endpoints and Secrets, those known so far stay in use",
	"live objects": "some endpoints or Secrets cannot be used",
	"pods":         "cannot read the pods, the instances known so far stay",
	"pusher":       "another pusher leads instances, nothing is written to them",
	"secrets":      "some Secrets that snapshots name cannot be used",
	"snapshots":    "cannot read a snapshot, it is not rolled out",
	"state":        "cannot save the state, nothing new is pushed until it is saved",
	"store":        "cannot read the store, instances keep what they run",
	aboutKept:      "many endpoints are gone, those known so far stay in use",
	aboutNeeds:     "a snapshot needs what the pusher may not read, its rollout waits",
	aboutSigned:    "the newest snapshot is not signed by anybody on the lists, it is not run",
}

func troubleMessage(about string) string { return cmp.Or(troubleMessages[about], "something is wrong") }

// trouble notes what keeps the pusher from its work, or that it no longer does. The log has
// a line when it begins and when it is over, and seldom one in between.
func (e *engine) trouble(about string, err error, now time.Time) {
	known, was := e.troubles[about]
	text := brief(err)
	switch {
	case err == nil && was:
		delete(e.troubles, about)
		delete(e.troubleLogged, about)
		e.Log.Info("trouble is over", "about", about, "since", known.Since)
	case err != nil && (!was || known.Error != text):
		since := now.UTC().Truncate(time.Second)
		if was {
			since = known.Since
		}
		e.troubles[about] = Trouble{About: about, Error: text, Since: since}
		if logged, ok := e.troubleLogged[about]; ok && now.Sub(logged.at) < troubleRepeats && logged.sameAs(text) {
			break
		}
		e.troubleLogged[about] = loggedTrouble{now, text}
		e.Log.Warn(troubleMessage(about), "about", about, "err", text) //nolint:sloglint // it is constant for each
	default:
		return
	}
	e.dirty = true
}

// loggedTrouble is what the log said last of a trouble.
type loggedTrouble struct {
	at   time.Time
	text string
}

// sameAs reports whether a text differs in numbers only, such as the name of a temporary
// file, or a time.
func (l loggedTrouble) sameAs(text string) bool {
	return withoutNumbers(l.text) == withoutNumbers(text)
}

func withoutNumbers(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, text)
}

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
