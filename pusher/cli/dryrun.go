package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/difference"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

// takes is what it takes to bring the fleet to what would run.
type takes struct {
	From snapshots.ID `json:"from"`
	To   snapshots.ID `json:"to"`
	// Verdict is nothing, runtime or reload, and Because the line that decides.
	Verdict string `json:"verdict"`
	Because string `json:"because,omitempty"`
}

// classify compares what runs with what would run. It is nil where one of them is not known.
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

// takes returns what an act would take: an abort takes the fleet back.
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

// runsNow returns what the fleet runs, or is on its way to: by its pusher, where one is named, or
// else what should run.
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

// writeDry says what would be done, what would follow, and what that takes.
func (c channelChange) writeDry(w io.Writer) error {
	lines := append([]string{"dry run: nothing is written", c.Done, c.Message}, c.Tidied...)
	switch t := c.Takes; {
	case t == nil:
		lines = append(lines, "what that takes is not known: nothing says what runs, or what would run")
	case t.From == t.To:
		lines = append(lines, fmt.Sprintf("takes nothing: %s runs", t.From))
	default:
		lines = append(lines, strings.TrimSuffix(fmt.Sprintf("takes %s, from %s to %s: %s", verdicts[t.Verdict], t.From, t.To, t.Because), ": "))
	}
	_, err := fmt.Fprintln(w, strings.Join(lines, "\n"))
	return err
}
