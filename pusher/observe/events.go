package observe

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/internal/events"
	"github.com/hapsnap/hapsnap/pusher/notify"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/live"
)

// Event is something that people may want to know. It appears in the log, in a webhook post and as
// a Kubernetes Event, each made from this value.
type Event struct {
	Bad      bool   // a person may have to act
	Log      string // the message in the log, "" for none
	Keys     []any  // for the log, besides snapshot and instance
	Notice   notify.Event
	Reason   string // the reason of the Kubernetes Event, "" for none
	Text     string // for people
	Snapshot snapshots.ID
	Instance string
}

// record logs the event and posts it to the webhook. The Kubernetes Event follows with the next view.
func (v Event) record(o *Observer, at time.Time) {
	if v.Log != "" {
		log := o.options.Log.Info
		if v.Bad {
			log = o.options.Log.Error
		}
		var keys []any
		if v.Instance != "" {
			keys = append(keys, "instance", v.Instance)
		}
		if !v.Snapshot.IsZero() {
			keys = append(keys, "snapshot", v.Snapshot)
		}
		log(v.Log, append(keys, v.Keys...)...)
	}
	if v.Notice != "" {
		n := notify.Notice{Event: v.Notice, Text: v.Text, Time: at.UTC(), Instance: v.Instance}
		if !v.Snapshot.IsZero() {
			n.Snapshot = v.Snapshot.String()
		}
		o.options.Notify(n)
	}
	if v.Reason != "" {
		o.objects.happened = append(o.objects.happened, v)
	}
}

func (v Event) String() string {
	return strings.Join(slices.DeleteFunc([]string{v.Log, v.Reason, v.Text}, func(s string) bool { return s == "" }), ": ")
}

// RolloutEvents returns the events that follow from a step of the rollout.
func RolloutEvents(old, next rollout.State) []Event {
	return slices.Concat(failures(old, next), conflicts(old, next), course(old, next), stops(old.Rollout, next.Rollout))
}

// failures returns events for snapshots that failed and are rejected.
func failures(old, next rollout.State) []Event {
	var out []Event
	for _, f := range next.Failed {
		before, known := old.Failure(f.Snapshot, f.Intent)
		if !known {
			out = append(out, Event{
				Bad: true, Log: "rollout failed", Keys: []any{"reason", f.Reason, "good", next.Good}, Notice: notify.RolloutFailed, Reason: "RolloutFailed",
				Text: fmt.Sprintf("rollout of %s failed: %s", f.Snapshot, report.FirstLine(f.Reason, report.LongestMessage)), Snapshot: f.Snapshot,
			})
		}
		if f.Recorded && !before.Recorded {
			out = append(out, Event{
				Bad: true, Reason: "SnapshotRejected", Text: fmt.Sprintf("%s is rejected, until pusher retry", f.Snapshot), Snapshot: f.Snapshot,
			})
		}
	}
	return out
}

// conflicts returns events for the beginning and the end of repair conflicts, in which somebody
// else keeps changing the snapshot that an instance runs.
func conflicts(old, next rollout.State) []Event {
	var out []Event
	for _, name := range slices.Sorted(maps.Keys(next.Repairs)) {
		if r := next.Repairs[name]; r.InConflict() && !old.Repairs[name].InConflict() {
			out = append(out, RepairsStop(name, r.Snapshot, report.ConflictOver(r).String()))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(old.Repairs)) {
		if old.Repairs[name].InConflict() && !next.Repairs[name].InConflict() {
			out = append(out, RepairsGoOn(name))
		}
	}
	return out
}

// RepairsStop returns the event for an instance whose repairs have stopped.
func RepairsStop(instance string, id snapshots.ID, why string) Event {
	return Event{
		Bad: true, Log: "repairs stop", Keys: []any{"reason", why}, Notice: notify.RepairsStop, Reason: "RepairsStop",
		Text: instance + ": " + why, Snapshot: id, Instance: instance,
	}
}

// RepairsGoOn returns the event for an instance whose repairs go on again.
func RepairsGoOn(instance string) Event {
	return Event{
		Log: "repairs go on", Notice: notify.RepairsGoOn, Reason: "RepairsGoOn", Text: instance + ": repairs go on", Instance: instance,
	}
}

// course returns events for the beginning and the end of rollouts.
func course(old, next rollout.State) []Event {
	was, is := old.Rollout, next.Rollout
	switch {
	case is == nil && was != nil && next.Good == was.Target && old.Good != next.Good:
		return []Event{{
			Log: "rollout done", Notice: notify.RolloutDone, Reason: "RolloutDone",
			Text: fmt.Sprintf("the fleet runs %s", next.Good), Snapshot: next.Good,
		}}
	case is == nil && was != nil:
		text := fmt.Sprintf("rollout of %s is undone", was.Target)
		if !next.Good.IsZero() {
			text += fmt.Sprintf(", the fleet runs %s", next.Good)
		}
		return []Event{{
			Log: "rollout undone", Keys: []any{"good", next.Good}, Notice: notify.RolloutUndone, Reason: "RolloutUndone", Text: text, Snapshot: was.Target,
		}}
	case is == nil && next.Good != old.Good:
		return []Event{{Log: "fleet runs snapshot", Snapshot: next.Good}}
	case is != nil && (was == nil || was.Target != is.Target):
		return []Event{{
			Log: "rollout begins", Keys: []any{"good", next.Good}, Notice: notify.RolloutBegins, Reason: "RolloutBegins",
			Text: fmt.Sprintf("rollout of %s begins", is.Target), Snapshot: is.Target,
		}}
	}
	return nil
}

// stops returns events for the waves, pauses and failures of a rollout.
func stops(old, is *rollout.Rollout) []Event {
	if is == nil {
		return nil
	}
	var out []Event
	was := cmp.Or(old, &rollout.Rollout{})
	switch {
	case is.Paused != "" && was.Paused == "":
		out = append(out, Event{
			Bad: true, Log: "rollout paused", Keys: []any{"reason", is.Paused}, Notice: notify.RolloutPaused, Reason: "RolloutPaused",
			Text: fmt.Sprintf("rollout of %s is paused: %s", is.Target, report.FirstLine(is.Paused, report.LongestMessage)), Snapshot: is.Target,
		})
	case is.Paused == "" && was.Paused != "" && is.Target == was.Target:
		out = append(out, Event{
			Log: "pause of rollout ends", Notice: notify.RolloutGoesOn, Reason: "RolloutGoesOn",
			Text: fmt.Sprintf("rollout of %s goes on after its pause", is.Target), Snapshot: is.Target,
		})
	}
	if is.Noted != "" && is.Noted != was.Noted {
		out = append(out, Event{Log: "rollout goes on all the same", Keys: []any{"noted", is.Noted}, Snapshot: is.Target})
	}
	if is.Phase != was.Phase || !slices.Equal(is.Members, was.Members) {
		keys := []any{"phase", string(is.Phase), "wave", is.Wave + 1}
		if len(is.Members) > 0 {
			keys = append(keys, "members", is.Members)
		}
		e := Event{Log: "rollout goes on", Keys: keys, Snapshot: is.Target}
		if is.Phase == rollout.Pushing {
			e.Reason, e.Text = "RolloutWave", fmt.Sprintf("wave %d: %s (%s)", is.Wave+1, strings.Join(is.Members, ", "), is.Target)
		}
		out = append(out, e)
	}
	return out
}

// The actions of Kubernetes Events: one for what has happened, one for a lasting state.
const (
	rollingOut = "Rollout"
	watching   = "Watch"
)

// objects collects what becomes Kubernetes Events.
type objects struct {
	happened []Event        // since the last call of Say
	holding  []events.Event // as of the last call of Say
}

// Unusable is a part of a Secret that cannot be used.
type Unusable struct {
	Secret snapshots.SecretName
	UID    types.UID // of the Secret, "" if there is no such object in the cluster
	Fault  string
}

// Refused are the refused endpoints, by port of a Service.
type Refused map[snapshots.ServicePort][]live.Refused

// say passes on Kubernetes Events for what has happened and for lasting states, if these changed.
func (o *Observer) say(v View, s report.Status) {
	happened := o.objects.happened
	o.objects.happened = nil
	if o.options.Events == nil {
		return
	}
	holding := slices.Concat(v.troubleOnInstances(s.Instances), v.troubleOnSecrets(), v.Refused.Events(), v.troubleWithNamed())
	if len(happened) == 0 && slices.Equal(holding, o.objects.holding) {
		return
	}
	o.objects.holding = holding
	once := make([]events.Event, 0, len(happened))
	for _, event := range happened {
		regarding := v.pod(event.Instance)
		kind := corev1.EventTypeNormal
		if event.Bad {
			kind = corev1.EventTypeWarning
		}
		once = append(once, events.Event{Regarding: regarding, Action: rollingOut, Type: kind, Reason: event.Reason, Note: events.Note(event.Text)})
	}
	o.options.Events.Say(slices.Clone(holding), once)
}

// pod returns the pod of an instance. If the instance is not a pod, it returns the zero value,
// which stands for the fleet.
func (v View) pod(name string) corev1.ObjectReference {
	n := slices.IndexFunc(v.Instances, func(i Instance) bool { return i.Name == name })
	if n < 0 || v.Instances[n].UID == "" || !v.Pods {
		return corev1.ObjectReference{}
	}
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: v.PodNamespace, Name: name, UID: types.UID(v.Instances[n].UID)}
}

// troubleOnInstances returns Events for instances that are refused, or that have been unreachable
// for a while. The text stays the same as long as that lasts.
func (v View) troubleOnInstances(instances []report.Instance) []events.Event {
	var out []events.Event
	for _, i := range instances {
		var reason, what string
		switch {
		case i.Refused:
			reason, what = "InstanceRefused", "nothing is pushed to it: "+i.Error
		case !i.Reachable && i.Denied && !i.Since.IsZero() && v.Now.Sub(i.Since) >= tellAfter:
			reason, what = "InstanceCredentialsWrong", "its Dataplane API refuses the username and password of the Fleet"
		case !i.Reachable && !i.Since.IsZero() && v.Now.Sub(i.Since) >= tellAfter:
			reason, what = "InstanceUnreachable", fmt.Sprintf("it has been out of reach since %s", i.Since.UTC().Format(time.RFC3339))
		default:
			continue
		}
		out = append(out, events.Event{
			Regarding: v.pod(i.Name), Action: watching, Type: corev1.EventTypeWarning, Reason: reason, Note: events.Note(i.Name + ": " + what),
		})
	}
	return out
}

// troubleOnSecrets returns Events for parts of Secrets that cannot be used. Only Secrets that exist
// get one.
func (v View) troubleOnSecrets() []events.Event {
	var out []events.Event
	for _, b := range v.Unusable {
		if b.UID == "" {
			continue
		}
		out = append(out, events.Event{
			Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Secret", Namespace: b.Secret.Namespace, Name: b.Secret.Name, UID: b.UID},
			Action:    watching, Type: corev1.EventTypeWarning, Reason: "Unusable", Note: events.Note(b.Fault),
		})
	}
	return out
}

// troubleWithNamed returns an Event on the fleet if the snapshot that people named cannot run.
func (v View) troubleWithNamed() []events.Event {
	if !v.StoreRead || !v.Decision.HoldsNamed() {
		return nil
	}
	return []events.Event{{Action: watching, Type: corev1.EventTypeWarning, Reason: "NamedSnapshotHeld", Note: events.Note(v.Decision.Message)}}
}

// Count returns how many endpoints are refused.
func (r Refused) Count() int {
	n := 0
	for _, refused := range r {
		n += len(refused)
	}
	return n
}

// mostRefusalsSaid is the largest number of Events about refused endpoints, and mostAddressesSaid
// the largest number of addresses in one of them.
const mostRefusalsSaid, mostAddressesSaid = 100, 20

// Events returns an Event for each Service with refused endpoints. The Event does not say what is
// at an address. Otherwise somebody who may write EndpointSlices could find out where HAProxy and
// its API listen.
func (r Refused) Events() []events.Event {
	var out []events.Event
	for _, port := range slices.SortedFunc(maps.Keys(r), snapshots.ServicePort.Compare) {
		if len(out) == mostRefusalsSaid {
			break
		}
		var named []string
		for _, refused := range r[port] {
			if len(named) == mostAddressesSaid {
				named = append(named, fmt.Sprintf("and %d more", len(r[port])-mostAddressesSaid))
				break
			}
			named = append(named, addressOf(refused.Endpoint))
		}
		out = append(out, events.Event{
			Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: port.Namespace, Name: port.Service},
			Action:    watching, Type: corev1.EventTypeWarning, Reason: "EndpointsRefused",
			Note: events.Note("nothing is sent to these addresses of its EndpointSlices, which no Service may have, or which are too many: " + strings.Join(named, ", ")),
		})
	}
	return out
}

func addressOf(e snapshots.Endpoint) string {
	return netip.AddrPortFrom(netip.MustParseAddr(e.Address), uint16(e.Port)).String() //nolint:gosec // ports are checked where they are read
}

// Trouble returns an error about the refused endpoints, nil if there are none.
func (r Refused) Trouble() error {
	if len(r) == 0 {
		return nil
	}
	var first []string
	for _, port := range slices.SortedFunc(maps.Keys(r), snapshots.ServicePort.Compare) {
		for _, refused := range r[port] {
			if len(first) < 4 {
				first = append(first, fmt.Sprintf("%s of %s: %s", addressOf(refused.Endpoint), port, refused.Reason))
			}
		}
	}
	if more := r.Count() - len(first); more > 0 {
		first = append(first, fmt.Sprintf("and %d more", more))
	}
	return fmt.Errorf("EndpointSlices name addresses that are refused, and nothing is sent there: %s", strings.Join(first, "; "))
}

// Line is a fact that is only logged.
type Line struct {
	level   slog.Level
	message string
	keys    []any
}

// Debug returns a line for people who look for a fault.
func Debug(message string, keys ...any) Line { return Line{slog.LevelDebug, message, keys} }

// Info returns a line about something that changed.
func Info(message string, keys ...any) Line { return Line{slog.LevelInfo, message, keys} }

// Warn returns a line about something that is tried again, or that a person may have to look at.
func Warn(message string, keys ...any) Line { return Line{slog.LevelWarn, message, keys} }

// Error returns a line about something for which a person must act.
func Error(message string, keys ...any) Line { return Line{slog.LevelError, message, keys} }

// With returns the line with more keys.
func (l Line) With(keys ...any) Line {
	l.keys = append(l.keys[:len(l.keys):len(l.keys)], keys...)
	return l
}

func (l Line) record(o *Observer, _ time.Time) {
	o.options.Log.Log(context.Background(), l.level, l.message, l.keys...) //nolint:sloglint // it is constant for each
}

func (l Line) String() string { return Describe(l.message, l.keys...) }
