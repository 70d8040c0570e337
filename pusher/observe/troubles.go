package observe

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/pusher/notify"
	"github.com/hapsnap/hapsnap/pusher/report"
)

// Troubles are those that there are, by what they are about.
type Troubles map[string]report.Trouble

// Set notes what keeps the pusher from its work, or that it no longer does. It returns what
// has changed, and whether anything has.
func (t Troubles) Set(about string, err error, now time.Time) (TroubleChanged, bool) {
	was, known := t[about]
	text := report.Brief(err)
	switch {
	case err == nil && known:
		delete(t, about)
		return TroubleChanged{About: about, Since: was.Since}, true
	case err != nil && (!known || was.Error != text):
		since := now.UTC().Truncate(time.Second)
		if known {
			since = was.Since
		}
		t[about] = report.Trouble{About: about, Error: text, Since: since}
		return TroubleChanged{About: about, Error: text, Since: since}, true
	}
	return TroubleChanged{}, false
}

// list returns them by what they are about.
func (t Troubles) list() []report.Trouble {
	var out []report.Trouble
	for _, about := range slices.Sorted(maps.Keys(t)) {
		out = append(out, t[about])
	}
	return out
}

// TroubleChanged is a trouble that has begun, has another reason now, or is over.
type TroubleChanged struct {
	About string
	Error string // "" for one that is over
	Since time.Time
}

// troubleMessages say for the log what the pusher cannot do, and what it does meanwhile.
var troubleMessages = map[string]string{
	"cache":                 "cannot keep snapshots on this machine, trying again",
	"certificates":          "cannot open the certificates of a snapshot, it is not rolled out",
	"channel":               "cannot write the channel, trying again",
	"cluster":               "cannot watch the cluster, the endpoints and Secrets known so far stay in use",
	"endpoints":             "endpoints are refused, their Services go without them",
	"fleet":                 "cannot use the file of the fleet, the fleet known so far stays",
	"live":                  "cannot read endpoints and Secrets, those known so far stay in use",
	"live objects":          "some endpoints or Secrets cannot be used",
	"pods":                  "cannot read the pods, the instances known so far stay",
	"pusher":                "another pusher leads instances, nothing is written to them",
	"secrets":               "some Secrets that snapshots name cannot be used",
	"snapshots":             "cannot read a snapshot, it is not rolled out",
	"state":                 "cannot save the state, nothing new is pushed until it is saved",
	"status":                "cannot write the status, another pusher writes its own to the same place",
	"store":                 "cannot read the store, instances keep what they run",
	report.AboutCredentials: "Secrets with credentials of instances cannot be made or used, those known so far stay in use",
	report.AboutReach:       "no instance of the fleet can be reached, nothing can be pushed",
	report.AboutKept:        "many endpoints are gone, those known so far stay in use",
	report.AboutNeeds:       "a snapshot needs what the pusher may not read, its rollout waits",
	report.AboutSigned:      "the newest snapshot is not signed by anybody on the lists, it is not run",
}

// TroubleMessage returns what the log says of a trouble.
func TroubleMessage(about string) string { return cmp.Or(troubleMessages[about], "something is wrong") }

// troubleRepeats is how often at most a trouble that is there is logged once more, because
// its reason is another one.
const troubleRepeats = time.Minute

// tell has the log say that a trouble has begun or is over, and seldom something in between.
func (t TroubleChanged) tell(o *Observer, at time.Time) {
	logged, known := o.logged[t.About]
	switch {
	case t.Error == "":
		delete(o.logged, t.About)
		o.options.Log.Info("trouble is over", "with", t.About, "since", t.Since)
	case known && at.Sub(logged.at) < troubleRepeats && logged.sameAs(t.Error):
	default:
		o.logged[t.About] = loggedTrouble{at, t.Error}
		o.options.Log.Warn(TroubleMessage(t.About), "err", t.Error) //nolint:sloglint // it is constant for each
	}
}

func (t TroubleChanged) String() string {
	if t.Error == "" {
		return "trouble is over: " + t.About
	}
	return fmt.Sprintf("trouble: %s: %s", t.About, t.Error)
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
func (o *Observer) notifyOfTroubles(all Troubles, now time.Time) {
	for _, about := range slices.Sorted(maps.Keys(all)) {
		if t := all[about]; !o.notified[about] && now.Sub(t.Since) >= tellAfter {
			o.notified[about] = true
			Event{Notice: notify.Trouble, Text: fmt.Sprintf("%s: %s", about, report.FirstLine(t.Error, report.LongestMessage))}.tell(o, now)
		}
	}
	for _, about := range slices.Sorted(maps.Keys(o.notified)) {
		if _, still := all[about]; !still {
			delete(o.notified, about)
			Event{Notice: notify.TroubleOver, Text: about + ": the trouble is over"}.tell(o, now)
		}
	}
}
