package cli

import (
	"cmp"
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

// sinceFlag is a point in the past, as people write it: how long ago, or a date.
type sinceFlag struct {
	text string
	at   time.Time // zero: there is no limit
}

func (f *sinceFlag) String() string { return f.text }

// Type is the word for the value in help texts.
func (f *sinceFlag) Type() string { return "time" }

// Set reads a time that is over in any form that people write, such as 2h, 3d, yesterday or 2026-01-02.
func (f *sinceFlag) Set(text string) error {
	at, err := process.ParseTime(text, time.Now())
	if err != nil {
		return err
	}
	f.text, f.at = text, at
	return nil
}

func (f *sinceFlag) add(cmd *cobra.Command) {
	cmd.Flags().Var(f, "since", "leave out what is older: how long ago, such as 2h or 3d, a date such as 2026-01-02, or 'yesterday 14:03'")
}

// after reports whether to show something that happened at a time.
func (f *sinceFlag) after(t time.Time) bool { return f.at.IsZero() || !t.Before(f.at) }

// hostname returns the name of this host, for the journal.
func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return name
}

// entries are lines of a journal, which have the names of snapshots.
type entries []channel.Entry

// Names returns the names of the snapshots that they are about.
func (l entries) Names() []string {
	var out []string
	for _, e := range l {
		if name := e.Snapshot.String(); name != "" && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// acts returns the newest entries of a journal, the newest first.
func acts(ctx context.Context, store stores.Journal, since sinceFlag, limit int) (entries, error) {
	all, err := store.Journal(ctx)
	if err != nil {
		return nil, err
	}
	out := entries{}
	for _, e := range slices.Backward(all) {
		if limit > 0 && len(out) == limit {
			break
		}
		if since.after(e.At) {
			out = append(out, e)
		}
	}
	return out, nil
}

func printActs(w io.Writer, list entries, now time.Time) error {
	table := process.Table{Columns: []process.Column{
		{Title: "TIME", Spare: true}, {Title: "AGE"}, {Title: "WHO", Cut: true}, {Title: "WHAT"}, {Title: "SNAPSHOT"}, {Title: "FLEET", Wide: true},
		{Title: "FROM", Wide: true, Cut: true}, {Title: "WHY", Cut: true},
	}}
	for _, e := range list {
		table.Add(e.At.UTC().Format(time.DateTime), process.Age(now.Sub(e.At)), orDash(cmp.Or(e.By, e.Author)), string(e.Verb), orDash(e.Snapshot.String()),
			orDash(e.Fleet), orDash(e.From), orDash(why(e)))
	}
	return table.Write(w)
}

// why returns the rest of an entry, without who, what and when.
func why(e channel.Entry) string {
	if e.Turn || e.Verb == channel.VerbEdit {
		return e.Text
	}
	return e.Reason
}

// tell returns an entry as a sentence.
func tell(e channel.Entry) string {
	if e.Turn {
		text := e.Text
		if e.Fleet != "" {
			text += " (fleet " + e.Fleet + ")"
		}
		return text
	}
	text := cmp.Or(string(e.Verb), e.Text) + channel.Said(cmp.Or(e.By, e.Author), e.Reason)
	if e.From != "" {
		text += ", from " + e.From
	}
	return text
}

// auditFlags are those of the verb audit.
type auditFlags struct {
	storeFlags
	output process.OutputFlag
	since  sinceFlag
}

// audited is a line of the answer to an auditor.
type audited struct {
	Time      time.Time    `json:"time,omitzero"`
	Kind      string       `json:"kind"` // snapshot, act or turn
	What      string       `json:"what"`
	Snapshot  snapshots.ID `json:"snapshot,omitzero"`
	By        string       `json:"by,omitempty"`
	Author    string       `json:"author,omitempty"`
	Reason    string       `json:"reason,omitempty"`
	From      string       `json:"from,omitempty"`
	Fleet     string       `json:"fleet,omitempty"`
	Signature string       `json:"signature,omitempty"` // of a snapshot
	Approved  *bool        `json:"approved,omitempty"`  // of a snapshot, where the channel asks for approval
	Text      string       `json:"text,omitempty"`
}

func auditCommand() *cobra.Command {
	var f auditFlags
	cmd := &cobra.Command{
		Use:   "audit --store STORE [--since TIME]",
		Short: "Tell who did what, when and why, and who signed and approved what ran",
		Long: `List the snapshots of a store with who made, signed and approved them, everything that was
done to the channel, and the entries about rollouts, in the order in which they happened.

In git the acts are the history of the channel's branch. Elsewhere the journal keeps the
newest thousand entries. What the journal does not have, the list does not have either.`,
		Args: process.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.with(cmd.Context(), func(store stores.Store) error {
				list, err := f.audit(cmd.Context(), store)
				if err != nil {
					return err
				}
				if f.output.Is("csv") {
					return writeCSV(cmd.OutOrStdout(), list)
				}
				return f.output.Write(cmd.OutOrStdout(), list, func(w io.Writer) error { return printAudit(w, list) })
			})
		},
	}
	f.storeFlags.add(cmd)
	f.output.AddWithTo(cmd, "wide", "csv")
	f.since.add(cmd)
	return cmd
}

// audit returns the lines of the answer, the oldest first.
func (f *auditFlags) audit(ctx context.Context, store stores.Store) ([]audited, error) {
	list := []audited{}
	ids, err := allOf(ctx, store)
	if err != nil {
		return nil, err
	}
	view, viewErr := store.View(ctx) // what was approved; a channel that cannot be read hides nothing else
	for _, id := range ids {
		line := audited{Kind: "snapshot", What: "published", Snapshot: id}
		manifest, err := store.Manifest(ctx, id)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			line.What, line.Text = unread(err), err.Error()
		} else {
			from := manifest.Provenance
			line.Time, line.Author, line.Text, line.By, line.Reason = from.Time.UTC(), from.Author, manifest.Spec.Subject, "compiler "+from.CompilerVersion, from.Trigger
		}
		if !f.since.after(line.Time) && err == nil {
			continue
		}
		s, err := signatureOf(ctx, store, id)
		switch line.Signature = describeSignature(s); {
		case err != nil:
			line.Signature = "cannot be read: " + err.Error()
		case s != nil && s.State == "refused":
			line.Signature = "refused: " + line.Signature
		}
		if viewErr == nil && view.Channel.Spec.RequireApproval {
			line.Approved = new(slices.Contains(view.Channel.Spec.Approved, id))
		}
		list = append(list, line)
	}
	journal, err := store.Journal(ctx)
	if err != nil {
		return nil, err
	}
	for _, e := range journal {
		if !f.since.after(e.At) {
			continue
		}
		kind := "act"
		if e.Turn {
			kind = "turn"
		}
		list = append(list, audited{Time: e.At.UTC(), Kind: kind, What: string(e.Verb), Snapshot: e.Snapshot, By: e.By, Author: e.Author, Reason: e.Reason, From: e.From, Fleet: e.Fleet, Text: e.Text})
	}
	slices.SortStableFunc(list, func(a, b audited) int { return a.Time.Compare(b.Time) })
	return list, nil
}

// auditColumns are those of a table and of CSV.
var auditColumns = []string{"time", "kind", "what", "snapshot", "by", "author", "reason", "from", "fleet", "signature", "approved", "text"}

// cells returns the cells of a line.
func (a audited) cells() []string {
	at, approved := "", ""
	if !a.Time.IsZero() {
		at = a.Time.Format(time.RFC3339)
	}
	if a.Approved != nil {
		approved = fmt.Sprint(*a.Approved)
	}
	return []string{at, a.Kind, a.What, a.Snapshot.String(), a.By, a.Author, a.Reason, a.From, a.Fleet, a.Signature, approved, a.Text}
}

// writeCSV writes lines for a spreadsheet. It escapes cells in which somebody wrote a formula.
func writeCSV(w io.Writer, list []audited) error {
	out := csv.NewWriter(w)
	if err := out.Write(auditColumns); err != nil {
		return err
	}
	for _, line := range list {
		cells := line.cells()
		for i, cell := range cells {
			if strings.HasPrefix(cell, "=") || strings.HasPrefix(cell, "+") || strings.HasPrefix(cell, "-") || strings.HasPrefix(cell, "@") {
				cells[i] = "'" + cell
			}
		}
		if err := out.Write(cells); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

func printAudit(w io.Writer, list []audited) error {
	table := process.Table{}
	for _, title := range auditColumns {
		c := process.Column{Title: strings.ToUpper(title)}
		switch title {
		case "author", "from", "fleet", "approved":
			c.Wide = true
		case "kind", "reason", "signature": // what was done says the kind, and the text the reason
			c.Cut, c.Spare = true, true
		case "what", "by", "text":
			c.Cut = true
		}
		table.Columns = append(table.Columns, c)
	}
	for _, line := range list {
		cells := line.cells()
		for i := range cells {
			cells[i] = orDash(cells[i])
		}
		table.Add(cells...)
	}
	return table.Write(w)
}
