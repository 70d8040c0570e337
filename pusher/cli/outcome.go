package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/difference"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

// act is what a verb does to a channel.
type act struct {
	verb     channel.Verb
	snapshot snapshots.ID // that it is about, if any
	subject  string       // of the commit, such as "pin r12: it is slow"
	done     string       // for people, such as "r12 pinned"
	follows  string       // what follows, if that is not about what should run
}

// unchanged says why a channel stays as it is without an error: it already says so.
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

// follows says what should run after an act, compared with before it. Of is the snapshot that the act
// was about.
func follows(before, after channel.Decision, of snapshots.ID) string {
	why := ": it is " + strings.TrimPrefix(after.Message, after.ID.String()+" is ")
	if after.ID == of && (after.Because == channel.BecausePin || after.Because == channel.BecauseOverride) {
		why = "" // that was just said
	}
	switch {
	case after.Because == channel.BecausePause:
		return after.Message + "; until somebody resumes, every instance keeps what it runs"
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

// ownFlags are flags that a command does not pass to the next command that it prints.
var ownFlags = []string{"by", "reason", "author", "output", "to", "full", "for", "end", "fleet", "wait", "timeout", "address", "dry-run"}

// nextCommand returns a command line to copy: another verb of the program, with the same store and the
// same access to it.
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

// takes says what has to change to bring the fleet to what would run.
type takes struct {
	From snapshots.ID `json:"from"`
	To   snapshots.ID `json:"to"`
	// Verdict is nothing, runtime or reload, and Because the line that decides.
	Verdict string `json:"verdict"`
	Because string `json:"because,omitempty"`
}

// classify compares what runs with what would run. It returns nil if one of them is not known.
func classify(ctx context.Context, store stores.Reader, from, to snapshots.ID) (*takes, error) {
	if from.IsZero() || to.IsZero() {
		return nil, nil
	}
	out := &takes{From: from, To: to, Verdict: string(difference.Nothing)}
	if from == to {
		return out, nil
	}
	a, err := storedSide(ctx, store, from.String())
	if err != nil {
		return nil, err
	}
	b, err := storedSide(ctx, store, to.String())
	if err != nil {
		return nil, err
	}
	d, err := difference.Compare(a, b)
	if err != nil {
		return nil, err
	}
	r := d.Report(a.Name, b.Name)
	out.Verdict, out.Because = r.Verdict, r.Why
	if line := r.Decides; line != nil {
		sign := "+"
		if line.Side == "a" {
			sign = "-"
		}
		out.Because = fmt.Sprintf("%s:%d: %s%s", line.File, line.Line, sign, line.Text)
	}
	return out, nil
}

// takes returns what an act would change: an abort brings the fleet back.
func (f *channelFlags) takes(cmd *cobra.Command, store stores.Reader, done channelChange) (*takes, error) {
	state := ""
	if flag := cmd.Flags().Lookup("state"); flag != nil {
		state = flag.Value.String()
	}
	from, err := f.runsNow(cmd.Context(), state, done.before)
	if err != nil {
		return nil, err
	}
	to := done.follows.ID
	if done.follows.Because == channel.BecausePause {
		to = from
	}
	if done.does.verb == channel.VerbAbort {
		from, to = done.does.snapshot, from
		if state == "" {
			return nil, nil
		}
	}
	return classify(cmd.Context(), store, from, to)
}

// runsNow returns what the fleet runs or is being brought to, as its pusher says. If no pusher is named,
// it returns what should run.
func (f *channelFlags) runsNow(ctx context.Context, state string, before channel.Decision) (snapshots.ID, error) {
	if state == "" {
		return before.ID, nil
	}
	s, err := f.readStatus(ctx, state)
	if err != nil {
		return snapshots.ID{}, err
	}
	if s.Good.IsZero() {
		return before.ID, nil
	}
	return s.Good, nil
}

// verdicts are those of a difference, for people.
var verdicts = map[string]string{
	string(difference.Nothing): "nothing", string(difference.Runtime): "a change at run time and no reload", string(difference.Reload): "a reload",
}
