package cli

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/gitstore/signature"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

// historyFlags are those of the verb history.
type historyFlags struct {
	storeFlags
	output process.OutputFlag
	state  string
	limit  int
	acts   bool
	since  sinceFlag
}

// revision is one line of the history.
type revision struct {
	Snapshot snapshots.ID `json:"snapshot"`
	Time     time.Time    `json:"time,omitzero"`
	Author   string       `json:"author,omitempty"` // of the change, if known
	Subject  string       `json:"subject,omitempty"`
	// States are any of pinned, overridden, rejected, waiting (for approval),
	// wanted, running, rollout, good (where it does not run), unreadable and
	// untrusted (not signed by who may, where that is asked for).
	States    []string           `json:"states,omitempty"`
	Signature *signature.Finding `json:"signature,omitempty"` // in git and ConfigMaps
	Error     string             `json:"error,omitempty"`
	// Change is the change that brought an instance to it, if the pusher did so lately.
	Change *report.Change `json:"change,omitempty"`
}

func historyCommand() *cobra.Command {
	var f historyFlags
	cmd := &cobra.Command{
		Use:   "history --store STORE [--state STATE]",
		Short: "List the snapshots of a store, or what was done to it, the newest first",
		Long: `List the snapshots of a store, the newest first. With --acts, list what people and programs
did instead: what they pinned, approved, rejected and so on, and the entries about rollouts, with
who, when, why and from where.`,
		Args: process.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.storeFlags.add(cmd)
	f.output.AddListTo(cmd)
	cmd.Flags().StringVar(&f.state, "state", "", "state of the pusher, as for run; it says what runs")
	cmd.Flags().BoolVar(&f.acts, "acts", false, "list what was done, and the entries about rollouts, in place of snapshots")
	f.since.add(cmd)
	cmd.Flags().IntVarP(&f.limit, "limit", "n", 20, "how many to list; 0 for all")
	return cmd
}

func (f *historyFlags) run(cmd *cobra.Command) error {
	if f.limit < 0 {
		return process.Usage("--limit %d: no list has fewer than no lines; 0 is for all", f.limit)
	}
	store, err := f.open(cmd.Context(), slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer store.Close()
	if f.acts {
		list, err := acts(cmd.Context(), store, f.since, f.limit)
		if err != nil {
			return err
		}
		if len(list) == 0 {
			if _, err := allOf(cmd.Context(), store); err != nil { // the URL names another store than is meant
				return err
			}
		}
		return f.output.Write(cmd.OutOrStdout(), list, func(w io.Writer) error { return printActs(w, list, time.Now()) })
	}
	var status report.Status
	if f.state != "" {
		if status, err = f.readStatus(cmd.Context(), f.state); err != nil {
			return err
		}
	}
	now := time.Now()
	list, err := history(cmd.Context(), store, status, f.limit, now)
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(r revision) bool { return !r.Time.IsZero() && !f.since.after(r.Time) })
	return f.output.Write(cmd.OutOrStdout(), revisions(list), func(w io.Writer) error { return printHistory(w, list, now) })
}

// history reads the manifests of the newest snapshots.
func history(ctx context.Context, store stores.Reader, status report.Status, limit int, now time.Time) ([]revision, error) {
	view, err := store.View(ctx)
	if err != nil {
		return nil, err
	}
	if len(view.IDs)+len(view.Refused) == 0 {
		return nil, stores.NoSnapshots(ctx, store)
	}
	view.Fleet = status.Fleet
	want := channel.Want(view, now)
	list := []revision{}
	for _, id := range slices.Backward(withRefused(view.IDs, view.Refused)) {
		if limit > 0 && len(list) == limit {
			break
		}
		r := revision{Snapshot: id, States: states(id, view.Channel, want, status, now)}
		manifest, err := store.Manifest(ctx, id)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			r.Error, r.States = err.Error(), append(r.States, unread(err))
		}
		r.Signature, _ = signatureOf(ctx, store, id) // whatever is in the way of it was so before
		r.Time, r.Author, r.Subject = manifest.Provenance.Time, manifest.Provenance.Author, manifest.Spec.Subject
		if c, ok := status.ChangeTo(id); ok {
			r.Change = &c
		}
		list = append(list, r)
	}
	return list, nil
}

// states returns the states of a snapshot: first orders of people about it, then what happened to it.
func states(id snapshots.ID, c channel.Channel, want channel.Decision, status report.Status, now time.Time) []string {
	_, rejected := c.RejectionFor(id, status.Fleet)
	spec := c.Spec
	var out []string
	add := func(state string, is bool) {
		if is {
			out = append(out, state)
		}
	}
	add("pinned", spec.Pin != nil && spec.Pin.Snapshot == id)
	add("overridden", spec.Override != nil && spec.Override.Snapshot == id && now.Before(spec.Override.Expires))
	add("rejected", rejected)
	add("waiting", len(out) == 0 && spec.RequireApproval && !slices.Contains(spec.Approved, id))
	add("wanted", len(out) == 0 && want.ID == id)
	running := slices.ContainsFunc(status.Instances, func(i report.Instance) bool { return i.Running == id })
	add("running", running)
	add("rollout", status.Rollout != nil && status.Rollout.Target == id && status.Phase() != rollout.Undoing)
	add("good", !running && status.Good == id)
	return out
}

// unread is the state of a snapshot that cannot be read.
func unread(err error) string {
	if errors.Is(err, snapshots.ErrUntrusted) {
		return "untrusted"
	}
	return "unreadable"
}

// addresses are the email addresses of authors.
var addresses = regexp.MustCompile(` <[^<>]*>`)

// printHistory prints a table. Authors, signers and changes have a column where one is
// known.
func printHistory(w io.Writer, list []revision, now time.Time) error {
	authors := slices.ContainsFunc(list, func(r revision) bool { return r.Author != "" })
	signers := slices.ContainsFunc(list, func(r revision) bool { return signer(r.Signature) != "" })
	changes := slices.ContainsFunc(list, func(r revision) bool { return r.Change != nil })
	table := process.Table{Columns: []process.Column{
		{Title: "SNAPSHOT"}, {Title: "AGE"}, {Title: "AUTHOR", Wide: !authors, Cut: true}, {Title: "SIGNER", Wide: !signers, Cut: true},
		{Title: "STATE", Mood: stateMood}, {Title: "TOOK", Wide: !changes, Cut: true}, {Title: "SUBJECT", Cut: true},
	}}
	for _, r := range list {
		old := "-"
		if !r.Time.IsZero() {
			old = process.Age(now.Sub(r.Time))
		}
		change := took(r.Change, process.StyleOf(w))
		author := r.Author
		if style := process.StyleOf(w); style.Width > 0 && !style.Wide { // names are enough, and there is little room
			author = addresses.ReplaceAllString(author, "")
		}
		table.Add(r.Snapshot.String(), old, orDash(author), orDash(signer(r.Signature)), orDash(strings.Join(r.States, ", ")), change, orDash(cmp.Or(r.Error, r.Subject)))
	}
	return table.Write(w)
}

// stateMood says whether what is said of a snapshot is good.
func stateMood(cell string) process.Mood {
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(cell, word) })
	}
	switch {
	case has("rejected", "unreadable", "untrusted"):
		return process.Bad
	case has("running"):
		return process.Good
	case has("waiting", "rollout", "wanted"):
		return process.Waiting
	}
	return process.Plain
}

// revisions are lines of the history, which have the names of snapshots.
type revisions []revision

// Names returns the names of the snapshots.
func (l revisions) Names() []string {
	var out []string
	for _, r := range l {
		out = append(out, r.Snapshot.String())
	}
	return out
}

// longestTook is how much of a change is printed in the table, in characters; -o wide has it all.
const longestTook = 61

// narrow is the least number of columns of a terminal for the reason of a change.
const narrow = 110

// took says what a change needed, such as a reload, and why.
func took(c *report.Change, style process.Style) string {
	switch {
	case c == nil:
		return "-"
	case style.Wide:
		return c.String()
	case style.Width > 0 && style.Width < narrow:
		verdict, _, _ := strings.Cut(c.String(), ":")
		return verdict
	}
	return process.Shorten(c.String(), longestTook)
}
