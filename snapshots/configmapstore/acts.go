package configmapstore

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hapsnap/hapsnap/internal/events"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// sayTimeout is how long the API server may take for the Event of an act. It has just written the act
// itself, so this passes only where something else is wrong.
const sayTimeout = 5 * time.Second

// reasons are those of the Events that tell what was done to a channel.
var reasons = map[channel.Verb]string{
	channel.VerbPin: "Pinned", channel.VerbUnpin: "Unpinned", channel.VerbRollback: "RolledBack",
	channel.VerbOverride: "Overridden", channel.VerbOverrideEnd: "OverrideEnded",
	channel.VerbPause: "Paused", channel.VerbResume: "Resumed",
	channel.VerbApprove: "Approved", channel.VerbReject: "Rejected", channel.VerbRetry: "Retried",
	channel.VerbPromote: "Promoted", channel.VerbAbort: "Aborted",
	channel.VerbConfirmEndpoints: "EndpointsConfirmed", channel.VerbAcceptRewind: "RewindAccepted",
}

// Saying returns the permission to say in Events what was done to the channel. Who changes the channel
// without it does so all the same, and no Event tells of it.
func Saying() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create"}}}
}

// actEvent returns the Event about an act. The version of the ConfigMap that the act made is part of its
// name: an act that somebody repeats is another Event.
func actEvent(namespace string, written *corev1.ConfigMap, e channel.Entry) *eventsv1.Event {
	e.Verb = cmp.Or(e.Verb, channel.VerbEdit)
	sum := sha256.Sum256([]byte(string(written.UID) + "\x00" + written.ResourceVersion + "\x00" + string(e.Verb)))
	suffix := "." + hex.EncodeToString(sum[:8])
	name := written.Name[:min(len(written.Name), validation.DNS1123SubdomainMaxLength-len(suffix))]
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: strings.TrimRight(name, "-.") + suffix},
		EventTime:  metav1.NowMicro(), ReportingController: "hapsnap.dev/channel",
		ReportingInstance: events.Cut(cmp.Or(strings.ToValidUTF8(e.From, "\uFFFD"), "unknown"), 128),
		Action:            string(e.Verb), Type: corev1.EventTypeNormal, Reason: cmp.Or(reasons[e.Verb], "ChannelEdited"),
		Note:      events.Note(actNote(e)),
		Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: namespace, Name: written.Name, UID: written.UID},
	}
}

// actNote says what was done, by whom, from where and why. Who comes before why: a long reason is cut.
func actNote(e channel.Entry) string {
	what := cmp.Or(e.Text, string(e.Verb))
	if e.Reason != "" {
		what, _, _ = strings.Cut(what, ": ") // the subject ends with the reason, which may be shortened
	}
	if by := cmp.Or(e.By, e.Author); by != "" {
		what += fmt.Sprintf(", by %s", by)
	}
	if e.From != "" {
		what += fmt.Sprintf(" from %s", e.From)
	}
	if e.Reason != "" {
		what += ": " + e.Reason
	}
	return what
}
