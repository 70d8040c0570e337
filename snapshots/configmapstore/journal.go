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

	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// JournalKey is the key, in binaryData of the ConfigMap of a channel, of the journal: a line of JSON for
// each entry. An act is written with the channel in one update, so that none is without the other, and
// whoever may change the channel needs no more to write it. No signature covers it: nothing is decided by
// it, and a pusher without a key writes the turns of its rollouts there.
const JournalKey = "journal.jsonl"

// JournalledAnnotation is the digest of the channel that the last entry of the journal found or left
// there. A channel of another digest was changed by other means than our programs.
const JournalledAnnotation = "hapsnap.dev/journalled"

// addEntries adds entries to the journal in the ConfigMap of a channel, after one about what somebody
// changed there by hand. Change then makes the change that the entries are about, nil for none. It returns
// what it added.
func addEntries(o *corev1.ConfigMap, now time.Time, change func(), entries ...channel.Entry) ([]channel.Entry, error) {
	if last := o.Annotations[JournalledAnnotation]; last != "" && last != journalled(o) {
		entries = append([]channel.Entry{edited(o, now)}, entries...)
	}
	if change != nil {
		change()
	}
	if o.Annotations == nil {
		o.Annotations = map[string]string{}
	}
	o.Annotations[JournalledAnnotation] = journalled(o)
	journal, err := channel.AppendEntries(o.BinaryData[JournalKey], entries...)
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
	o.BinaryData[JournalKey] = journal
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
