package cli

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

// stored reads a snapshot: the one that is named, the one that ran at a time, or the newest.
func (f *requestFlags) stored(cmd *cobra.Command, now time.Time) (explained, error) {
	ctx := cmd.Context()
	out := explained{past: f.at != ""}
	var err error
	out.snapshot, out.name, err = storedSnapshot(ctx, f.store, f.storeOptions(), func(store stores.Store, ids []snapshots.ID) (id snapshots.ID, err error) {
		switch {
		case f.at != "":
			id, out.chosen, err = f.ranThen(ctx, store, ids, now)
		case f.snapshot != "":
			if id, err = findID(store, ids, f.snapshot); err == nil {
				out.past = !isCurrent(ctx, store, ids, id, now)
			}
		default:
			id, out.chosen = newestOf(ctx, store, ids, now)
		}
		return id, err
	})
	if err != nil {
		return explained{}, err
	}
	if out.check, err = validate.Find(ctx, f.haproxy); err != nil {
		out.unasked = err.Error()
	}
	return out, nil
}

func (f *requestFlags) storeOptions() stores.Options {
	return f.cluster.store(f.opening, slog.New(slog.DiscardHandler))
}

// completeSnapshot completes the snapshots of the store.
func (f *requestFlags) completeSnapshot(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	if f.store == "" {
		return nil, directive
	}
	store, err := stores.Open(cmd.Context(), f.store, f.storeOptions())
	if err != nil {
		return nil, directive
	}
	defer store.Close()
	ids, err := store.IDs(cmd.Context())
	if err != nil {
		return nil, directive
	}
	return append(stores.Described(cmd.Context(), store, ids), cobra.CompletionWithDesc(snapshots.Newest, "the newest")), directive
}

// ranThen returns the snapshot that ran at a time, and says how that is known.
func (f *requestFlags) ranThen(ctx context.Context, store stores.Store, ids []snapshots.ID, now time.Time) (snapshots.ID, string, error) {
	at, err := process.ParseTime(f.at, now)
	if err != nil {
		return snapshots.ID{}, "", process.Usage("--at: %w", err)
	}
	unknown := "the journal has no rollout from before then, so nothing says what ran"
	journal, err := store.Journal(ctx)
	if err != nil {
		unknown = "the journal cannot be read, so nothing says what ran: " + err.Error()
	}
	fleet, ran, err := f.fleetOf(channel.RunningAt(journal, at))
	if err != nil {
		return snapshots.ID{}, "", err
	}
	if ran.Snapshot.IsZero() {
		id, err := newestAt(ctx, store, ids, at)
		return id, "the newest that was published by then; " + unknown, err
	}
	if !slices.Contains(ids, ran.Snapshot) {
		return snapshots.ID{}, "", process.WithHint(process.Usage("fleet %s ran %s then, and %s does not hold it any more", fleet, ran.Snapshot, store),
			"name another one with --snapshot; its oldest one is "+ids[0].String())
	}
	chosen := fmt.Sprintf("which ran in fleet %s then, since %s", fleet, ran.Since.UTC().Format(time.RFC3339))
	if !ran.Next.IsZero() {
		chosen += fmt.Sprintf("; a rollout of %s was under way, so some instances ran that", ran.Next)
	}
	return ran.Snapshot, chosen, nil
}

// fleetOf returns what ran in the fleet that is meant. Fleets that ran the same snapshot count as
// one.
func (f *requestFlags) fleetOf(running map[string]channel.Running) (string, channel.Running, error) {
	if f.fleet != "" {
		ran, ok := running[f.fleet]
		if !ok && len(running) > 0 {
			return "", ran, process.WithHint(process.Usage("the journal has no rollout of fleet %q from before then", f.fleet),
				"it has some of "+strings.Join(slices.Sorted(maps.Keys(running)), ", "))
		}
		return f.fleet, ran, nil
	}
	name, first := "", channel.Running{}
	var all []string
	differ := false
	for _, fleet := range slices.Sorted(maps.Keys(running)) {
		ran := running[fleet]
		if ran.Snapshot.IsZero() { // the first rollout of the fleet was under way
			continue
		}
		if len(all) == 0 {
			name, first = fleet, ran
		}
		differ = differ || ran.Snapshot != first.Snapshot
		all = append(all, fleet+" "+ran.Snapshot.String())
	}
	if differ {
		return "", first, process.WithHint(process.Usage("fleets ran different snapshots then: %s", strings.Join(all, ", ")), "choose one with --fleet")
	}
	return name, first, nil
}

// newestAt returns the snapshot that was the newest at a time.
func newestAt(ctx context.Context, store stores.Store, ids []snapshots.ID, at time.Time) (snapshots.ID, error) {
	for i := len(ids) - 1; i >= 0; i-- {
		manifest, err := store.Manifest(ctx, ids[i])
		if err != nil {
			return snapshots.ID{}, err
		}
		if !manifest.Provenance.Time.After(at) {
			return ids[i], nil
		}
	}
	return snapshots.ID{}, process.WithHint(process.Usage("%s holds no snapshot from before %s", store, at.Format(time.RFC3339)), "its oldest one is "+ids[0].String())
}

// isCurrent reports whether a snapshot is the newest one, or the one that should run.
func isCurrent(ctx context.Context, store stores.Store, ids []snapshots.ID, id snapshots.ID, now time.Time) bool {
	if id == ids[len(ids)-1] {
		return true
	}
	view, err := store.View(ctx)
	return err == nil && channel.Want(view, now).ID == id
}

// newestOf returns the newest snapshot. If another one should run, it says so.
func newestOf(ctx context.Context, store stores.Store, ids []snapshots.ID, now time.Time) (snapshots.ID, string) {
	newest := ids[len(ids)-1]
	view, err := store.View(ctx)
	if err != nil {
		return newest, "the newest; what should run is not known: " + err.Error()
	}
	switch want := channel.Want(view, now); {
	case want.ID == newest:
		return newest, ""
	case want.ID.IsZero():
		return newest, "the newest, which may not be what runs: " + want.Message
	default:
		return newest, fmt.Sprintf("the newest, and NOT what should run: %s; use --snapshot r%d", want.Message, want.ID.Revision)
	}
}
