package pusher

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/internal/events"
	"github.com/hapsnap/hapsnap/pusher/notify"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
)

// happening is something that people may want to hear of: in the log, by a webhook
// and as an Event, from one source.
type happening struct {
	bad      bool   // a person may have to act
	log      string // its message in the log, "" for none
	keys     []any  // of the log, besides snapshot and instance
	event    notify.Event
	reason   string // of the Event, "" for none
	text     string // for people
	snapshot snapshots.ID
	instance string
}

// tell tells of a happening. What is said in Events is said with the next report.
func (e *engine) tell(h happening, now time.Time) {
	if h.log != "" {
		log := e.Log.Info
		if h.bad {
			log = e.Log.Error
		}
		log(h.log, h.logged()...)
	}
	if h.event != "" {
		n := notify.Notice{Event: h.event, Text: h.text, Time: now.UTC(), Instance: h.instance}
		if !h.snapshot.IsZero() {
			n.Snapshot = h.snapshot.String()
		}
		e.Notify(n)
	}
	if h.reason != "" {
		e.objects.happened = append(e.objects.happened, h)
	}
}

// logged returns the keys of the log and their values.
func (h happening) logged() []any {
	var out []any
	if h.instance != "" {
		out = append(out, "instance", h.instance)
	}
	if !h.snapshot.IsZero() {
		out = append(out, "snapshot", h.snapshot)
	}
	return append(out, h.keys...)
}

// happenings returns what a step of the rollout has to be told for.
func happenings(old, next rollout.State) []happening {
	return slices.Concat(failures(old, next), conflicts(old, next), course(old, next), stops(old.Rollout, next.Rollout))
}

// failures tells of snapshots that failed, and are rejected for it.
func failures(old, next rollout.State) []happening {
	var out []happening
	for _, f := range next.Failed {
		before, known := old.Failure(f.Snapshot, f.Intent)
		if !known {
			out = append(out, happening{
				bad: true, log: "rollout failed", keys: []any{"reason", f.Reason, "good", next.Good}, event: notify.RolloutFailed, reason: "RolloutFailed",
				text: fmt.Sprintf("rollout of %s failed: %s", f.Snapshot, firstLine(f.Reason, longestMessage)), snapshot: f.Snapshot,
			})
		}
		if f.Recorded && !before.Recorded {
			out = append(out, happening{
				bad: true, reason: "SnapshotRejected", text: fmt.Sprintf("%s is rejected, until pusher retry", f.Snapshot), snapshot: f.Snapshot,
			})
		}
	}
	return out
}

// conflicts tells of instances that somebody else keeps taking from their snapshot: when
// that begins, and when it is over.
func conflicts(old, next rollout.State) []happening {
	var out []happening
	for _, name := range slices.Sorted(maps.Keys(next.Repairs)) {
		if r := next.Repairs[name]; r.InConflict() && !old.Repairs[name].InConflict() {
			out = append(out, repairsStop(name, r.Snapshot, conflictOver(r).String()))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(old.Repairs)) {
		if old.Repairs[name].InConflict() && !next.Repairs[name].InConflict() {
			out = append(out, repairsGoOn(name))
		}
	}
	return out
}

func repairsStop(instance string, id snapshots.ID, why string) happening {
	return happening{
		bad: true, log: "repairs stop", keys: []any{"reason", why}, event: notify.RepairsStop, reason: "RepairsStop",
		text: instance + ": " + why, snapshot: id, instance: instance,
	}
}

func repairsGoOn(instance string) happening {
	return happening{
		log: "repairs go on", event: notify.RepairsGoOn, reason: "RepairsGoOn", text: instance + ": repairs go on", instance: instance,
	}
}

// course tells how rollouts begin and end.
func course(old, next rollout.State) []happening {
	was, is := old.Rollout, next.Rollout
	switch {
	case is == nil && was != nil && next.Good == was.Target && old.Good != next.Good:
		return []happening{{
			log: "rollout done", event: notify.RolloutDone, reason: "RolloutDone",
			text: fmt.Sprintf("the fleet runs %s", next.Good), snapshot: next.Good,
		}}
	case is == nil && was != nil:
		text := fmt.Sprintf("rollout of %s is undone", was.Target)
		if !next.Good.IsZero() {
			text += fmt.Sprintf(", the fleet runs %s", next.Good)
		}
		return []happening{{
			log: "rollout undone", keys: []any{"good", next.Good}, event: notify.RolloutUndone, reason: "RolloutUndone", text: text, snapshot: was.Target,
		}}
	case is == nil && next.Good != old.Good:
		return []happening{{log: "fleet runs snapshot", snapshot: next.Good}}
	case is != nil && (was == nil || was.Target != is.Target):
		return []happening{{
			log: "rollout begins", keys: []any{"good", next.Good}, event: notify.RolloutBegins, reason: "RolloutBegins",
			text: fmt.Sprintf("rollout of %s begins", is.Target), snapshot: is.Target,
		}}
	}
	return nil
}

// stops tells where a rollout stands on its way.
func stops(old, is *rollout.Rollout) []happening {
	if is == nil {
		return nil
	}
	var out []happening
	was := cmp.Or(old, &rollout.Rollout{})
	switch {
	case is.Paused != "" && was.Paused == "":
		out = append(out, happening{
			bad: true, log: "rollout paused", keys: []any{"reason", is.Paused}, event: notify.RolloutPaused, reason: "RolloutPaused",
			text: fmt.Sprintf("rollout of %s is paused: %s", is.Target, firstLine(is.Paused, longestMessage)), snapshot: is.Target,
		})
	case is.Paused == "" && was.Paused != "" && is.Target == was.Target:
		out = append(out, happening{
			log: "pause of rollout ends", event: notify.RolloutGoesOn, reason: "RolloutGoesOn",
			text: fmt.Sprintf("rollout of %s goes on after its pause", is.Target), snapshot: is.Target,
		})
	}
	if is.Noted != "" && is.Noted != was.Noted {
		out = append(out, happening{log: "rollout goes on all the same", keys: []any{"noted", is.Noted}, snapshot: is.Target})
	}
	if is.Phase != was.Phase || !slices.Equal(is.Members, was.Members) {
		out = append(out, happening{
			log: "rollout goes on", keys: []any{"phase", string(is.Phase), "wave", is.Wave + 1, "members", is.Members}, snapshot: is.Target,
		})
	}
	return out
}

// What was done when something was found out that is said in an Event: of what has
// happened, and of what holds.
const (
	rollingOut = "Rollout"
	watching   = "Watch"
)

// objects is what is said of objects of the cluster.
type objects struct {
	happened []happening    // since it was said last
	broken   []brokenSecret // what cannot be used of Secrets
	missed   []brokenSecret // what the snapshots that run take in vain from them
	holding  []events.Event // as it was said last
}

// brokenSecret is something of a Secret that cannot be used.
type brokenSecret struct {
	Secret snapshots.SecretName
	Fault  string
}

// sayObjects says in the cluster what has happened, and what holds, unless there is
// nothing new.
func (e *engine) sayObjects(instances []InstanceStatus, now time.Time) {
	happened := e.objects.happened
	e.objects.happened = nil
	if e.Events == nil {
		return
	}
	holding := slices.Concat(e.troubleOnInstances(instances, now), e.troubleOnSecrets(), e.refusedEndpoints().events())
	if len(happened) == 0 && slices.Equal(holding, e.objects.holding) {
		return
	}
	e.objects.holding = holding
	once := make([]events.Event, 0, len(happened))
	for _, h := range happened {
		once = append(once, h.said(e.pod(h.instance)))
	}
	e.Events.Say(slices.Clone(holding), once)
}

// said returns a happening as an Event on an object.
func (h happening) said(regarding corev1.ObjectReference) events.Event {
	kind := corev1.EventTypeNormal
	if h.bad {
		kind = corev1.EventTypeWarning
	}
	return events.Event{Regarding: regarding, Action: rollingOut, Type: kind, Reason: h.reason, Note: events.Note(h.text)}
}

// pod returns the pod that an instance is, or nothing, which stands for the fleet.
func (e *engine) pod(name string) corev1.ObjectReference {
	i := e.instances[name]
	if i == nil || i.UID == "" || e.pods == nil {
		return corev1.ObjectReference{}
	}
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: e.pods.Namespace, Name: name, UID: types.UID(i.UID)}
}

// troubleOnInstances says which instances are refused, or have been out of reach for
// a while. The note is the same for as long as that lasts.
func (e *engine) troubleOnInstances(instances []InstanceStatus, now time.Time) []events.Event {
	var out []events.Event
	for _, i := range instances {
		var reason, what string
		switch {
		case i.Refused:
			reason, what = "InstanceRefused", "nothing is pushed to it: "+i.Error
		case !i.Reachable && !i.Since.IsZero() && now.Sub(i.Since) >= tellAfter:
			reason, what = "InstanceUnreachable", fmt.Sprintf("it has been out of reach since %s", i.Since.UTC().Format(time.RFC3339))
		default:
			continue
		}
		out = append(out, events.Event{
			Regarding: e.pod(i.Name), Action: watching, Type: corev1.EventTypeWarning, Reason: reason, Note: events.Note(i.Name + ": " + what),
		})
	}
	return out
}

// troubleOnSecrets says what cannot be used of the Secrets that there are.
func (e *engine) troubleOnSecrets() []events.Event {
	var out []events.Event
	for _, b := range slices.Concat(e.objects.broken, e.objects.missed) {
		uid := e.secrets[b.Secret].uid
		if uid == "" {
			continue // it is not there, or no object of a cluster
		}
		out = append(out, events.Event{
			Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Secret", Namespace: b.Secret.Namespace, Name: b.Secret.Name, UID: uid},
			Action:    watching, Type: corev1.EventTypeWarning, Reason: "Unusable", Note: events.Note(b.Fault),
		})
	}
	return out
}

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
