package pusher

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/internal/events"
	"github.com/hapsnap/hapsnap/snapshots"
)

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
