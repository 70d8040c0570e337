package gitstore

import (
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// The journal of acts is the history of the channel's branch, which also has what people did by hand.
// Turns of rollouts are in a file of a branch of their own (<branch>-journal): on the channel's branch, a
// pusher without a key that signs would leave a tip that nobody trusts.
const journalFile = "journal.jsonl"

// journalDepth is how many commits of the channel are read for the journal.
const journalDepth = channel.MaxEntries

// acts returns what the commits of a channel say, as far as they are in the cache, the oldest first.
func acts(name string, in storer.EncodedObjectStorer, commit plumbing.Hash) []channel.Entry {
	var out []channel.Entry
	for len(out) < journalDepth {
		c, err := object.GetCommit(in, commit)
		if err != nil {
			break // the rest was not fetched
		}
		out = append(out, actOf(name, c))
		if len(c.ParentHashes) == 0 {
			break
		}
		commit = c.ParentHashes[0]
	}
	slices.Reverse(out)
	return out
}

// actOf returns what a commit of the channel says. One that somebody made by hand has no trailers.
func actOf(name string, c *object.Commit) channel.Entry {
	subject, rest, _ := strings.Cut(c.Message, "\n")
	act := channel.Act{Author: channel.Person{Name: c.Author.Name, Email: c.Author.Email}}
	for line := range strings.Lines(rest) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok {
			continue
		}
		switch key {
		case "Hapsnap-Act":
			act.Verb = channel.Verb(value)
		case "Hapsnap-Snapshot":
			act.Snapshot, _ = snapshots.ParseID(value) // a trailer by hand may be anything
		case "Hapsnap-By":
			act.By = value
		case "Hapsnap-Reason":
			act.Reason = value
		case "Hapsnap-From":
			act.From = value
		}
	}
	if act.By == "" {
		act.By = c.Author.Name
	}
	return act.Entry(strings.TrimPrefix(subject, name+" channel: "), c.Author.When)
}
