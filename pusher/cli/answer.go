package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// act is what a verb does to a channel.
type act struct {
	verb     channel.Verb
	snapshot snapshots.ID // that it is about, if any
	subject  string       // of the commit, such as "pin r12: it is slow"
	done     string       // for people, such as "r12 pinned"
	follows  string       // what follows, if that is not about what should run
}

// unchanged says why a channel stays as it is, though nothing went wrong: it is so already.
type unchanged string

func (u unchanged) Error() string { return string(u) }

// meansNothing is the error for an act that has no meaning now. The exit code is 1: the command
// line is right.
func meansNothing(hint, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	if hint == "" {
		return err
	}
	return process.WithHint(err, hint)
}

// follows says what should run after an act, next to what should have run before it. Of is the
// snapshot that the act was about.
func follows(before, after channel.Decision, of snapshots.ID) string {
	why := ": it is " + strings.TrimPrefix(after.Message, after.ID.String()+" is ")
	if after.ID == of && (after.Because == channel.BecausePin || after.Because == channel.BecauseOverride) {
		why = "" // that was just said
	}
	switch {
	case after.Hold:
		return after.Message
	case before.ID == after.ID && after.Because == channel.BecauseNewest && !of.IsZero() && after.ID.Revision > of.Revision:
		return fmt.Sprintf("%s stays wanted: it is newer", after.ID)
	case before.ID == after.ID:
		return fmt.Sprintf("%s stays wanted%s", after.ID, why)
	case before.Hold:
		return fmt.Sprintf("%s is wanted now%s", after.ID, why)
	}
	return fmt.Sprintf("%s is wanted now, in place of %s%s", after.ID, before.ID, why)
}

// byWhom ends a sentence about what was done.
func (f *whoFlags) byWhom() string { return channel.Said(f.by, f.reason) }

// ownFlags are those that a command does not hand on to the next one that it prints.
var ownFlags = []string{"by", "reason", "author", "output", "to", "full", "for", "end", "fleet", "wait", "timeout", "address", "dry-run"}

// nextCommand returns a command line that can be copied: another verb of the program, about the
// same store, which is reached in the same way.
func nextCommand(cmd *cobra.Command, verb, store string) string {
	words := append(strings.Fields(cmd.Parent().CommandPath()), verb, "--store", store)
	cmd.Flags().Visit(func(given *pflag.Flag) {
		if slices.Contains(ownFlags, given.Name) || given.Name == "store" || given.Name == "state" || given.Hidden {
			return
		}
		if list, ok := given.Value.(pflag.SliceValue); ok {
			for _, value := range list.GetSlice() {
				words = append(words, "--"+given.Name, value)
			}
			return
		}
		words = append(words, "--"+given.Name, given.Value.String())
	})
	return process.ShellCommand(words...)
}
