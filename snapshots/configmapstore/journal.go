package configmapstore

import (
	"bytes"
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

// journalKey is the key of the journal in binaryData of the channel's ConfigMap. The journal has a line of JSON
// for each entry. An act and its entry are written in one update, so neither can be without the other, and
// permission to change the channel is enough. The journal is not signed: no decision depends on it, and a
// pusher without a key writes the entries about its rollouts there.
const journalKey = "journal.jsonl"

// journalledAnnotation is the digest of the channel after the last entry of the journal. If the channel has
// another digest, something other than our programs changed it.
const journalledAnnotation = "hapsnap.dev/journalled"

// addEntries adds entries to the journal in a channel's ConfigMap. If the channel was changed by hand, it first
// adds an entry about that. change makes the change that the entries are about; it may be nil. It returns all
// added entries.
func addEntries(o *corev1.ConfigMap, now time.Time, change func(), entries ...channel.Entry) ([]channel.Entry, error) {
	if last := o.Annotations[journalledAnnotation]; last != "" && last != journalled(o) {
		entries = append([]channel.Entry{edited(o, now)}, entries...)
	}
	if change != nil {
		change()
	}
	if o.Annotations == nil {
		o.Annotations = map[string]string{}
	}
	o.Annotations[journalledAnnotation] = journalled(o)
	journal, err := channel.AppendEntries(o.BinaryData[journalKey], entries...)
	if err != nil {
		return nil, fmt.Errorf("write the journal: %w", err)
	}
	if o.BinaryData == nil {
		o.BinaryData = map[string][]byte{}
	}
	room := largestChannel
	for _, text := range o.Data {
		room -= len(text)
	}
	for len(journal) > max(room, 0) { // what should run comes first
		if _, rest, ok := bytes.Cut(journal[len(journal)/2:], []byte("\n")); ok && len(rest) > 0 {
			journal = rest
			continue
		}
		journal = nil
	}
	o.BinaryData[journalKey] = journal
	return entries, nil
}

// journalled returns the digest of what a channel says.
func journalled(o *corev1.ConfigMap) string {
	h := sha256.New()
	for _, key := range channelKeys {
		fmt.Fprintf(h, "%q=%q\n", key, o.Data[key])
	}
	return hex.EncodeToString(h.Sum(nil)[:12])
}

// edited returns the entry for a channel that was changed by other means than our programs: with which
// program and when, as the API server says in managedFields, and what the channel says since then.
func edited(o *corev1.ConfigMap, now time.Time) channel.Entry {
	e := channel.Entry{At: now.UTC().Truncate(time.Second), Verb: channel.VerbEdit, By: "somebody"}
	var newest time.Time
	for _, m := range o.ManagedFields {
		if m.Time == nil || m.FieldsV1 == nil || !strings.Contains(m.FieldsV1.GetRawString(), `"f:data"`) || m.Time.Time.Before(newest) {
			continue
		}
		newest, e.At, e.By = m.Time.Time, m.Time.UTC(), m.Manager
	}
	var says []string
	for _, key := range []string{pinKey, overrideKey, pauseKey, promoteKey, abortKey} {
		if first, _, _ := strings.Cut(strings.TrimSpace(o.Data[key]), "\n"); first != "" {
			says = append(says, key+" "+first)
		}
	}
	e.Text = "changed by hand, not by a command; it says: " + cmp.Or(strings.Join(says, ", "), "nothing")
	return e
}

// largestChannel is how many bytes the content of a channel's ConfigMap has with its journal: the API
// server takes 1 MiB with names, labels and annotations, among them a signature.
const largestChannel = 900 << 10

// sayTimeout is how long the API server may take for the Event of an act. It has just written the act
// itself, so this passes only where something else is wrong.
const sayTimeout = 5 * time.Second

// reasons are the reasons of the Events about acts on a channel.
var reasons = map[channel.Verb]string{
	channel.VerbPin: "Pinned", channel.VerbUnpin: "Unpinned", channel.VerbRollback: "RolledBack",
	channel.VerbOverride: "Overridden", channel.VerbOverrideEnd: "OverrideEnded",
	channel.VerbPause: "Paused", channel.VerbResume: "Resumed",
	channel.VerbApprove: "Approved", channel.VerbReject: "Rejected", channel.VerbRetry: "Retried",
	channel.VerbPromote: "Promoted", channel.VerbAbort: "Aborted",
	channel.VerbConfirmEndpoints: "EndpointsConfirmed", channel.VerbAcceptRewind: "RewindAccepted",
}

// Saying returns the permission to write Events about acts on the channel. Without it the acts still succeed,
// and have no Events.
func Saying() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create"}}}
}

// actEvent returns the Event about an act. Its name contains the version of the ConfigMap that the act made, so
// a repeated act is another Event.
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

// actNote says what was done, by whom, from where and why. The reason comes last, since it may be long and is
// cut.
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
