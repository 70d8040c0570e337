package configmapstore

import (
	"bytes"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// JournalKey is the key, in binaryData of the ConfigMap of a channel, of the journal: a line of JSON for
// each entry. An act is written with the channel in one update, so that none is without the other, and
// whoever may change the channel needs no more to write it. No signature covers it: nothing is decided by
// it, and a pusher without a key writes the turns of its rollouts there.
const JournalKey = "journal.jsonl"

// addEntries adds entries to the journal in the ConfigMap of a channel.
func addEntries(o *corev1.ConfigMap, entries ...channel.Entry) error {
	journal, err := channel.AppendEntries(o.BinaryData[JournalKey], entries...)
	if err != nil {
		return fmt.Errorf("write the journal: %w", err)
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
	return nil
}

// largestChannel is how many bytes the content of a channel's ConfigMap has with its journal: the API
// server takes 1 MiB with names, labels and annotations, among them a signature.
const largestChannel = 900 << 10
