package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/pusher"
	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

// recoverFlags are those of the verb recover.
type recoverFlags struct {
	storeFlags
	instance, fleet, state, kept string
	add                          bool
	output                       process.OutputFlag
}

// recovered is what was recovered.
type recovered struct {
	Instance string       `json:"instance"`
	Asked    bool         `json:"asked"`    // else it is what the pusher heard of it last
	Runs     snapshots.ID `json:"runs"`     // as the worker names it
	ID       snapshots.ID `json:"snapshot"` // as the store names it now
	Changed  bool         `json:"changed"`  // the store
}

func recoverCommand() *cobra.Command {
	var f recoverFlags
	cmd := &cobra.Command{
		Use:   "recover --from-instance NAME --store STORE --state STATE [--instances FILE]",
		Short: "Publish the snapshot that an instance runs to a store that lost it",
		Long: `Publish the snapshot that an instance runs to a store that lost it. The worker of the
instance says which snapshot that is. The pusher keeps a copy of it beside its state file,
or in its --snapshots-dir. The command verifies the digests of that copy and publishes it
byte for byte, so that no instance is reloaded for it. Older snapshots are not recovered.
If the state is in a Secret there are no copies beside it, so name the directory on the
pusher's disk.

The command asks the instance if --instances lists it. For any other instance, such as a
pod, it takes what the pusher saw last.

The store has to exist. It has to be empty, or hold the same content already. --add
publishes to a store that holds other snapshots, as the newest of them. If the state is lost
too, compile again: the same inputs give the same content, and no instance is reloaded for
that either. A snapshot cannot be made from the files of an instance, since the Dataplane
API rewrites them and they hold values of Secrets.`,
		Args: process.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.instance == "" {
				return process.WithHint(process.Usage("--from-instance is missing"), "name an instance that pusher status lists")
			}
			if f.state == "" {
				return process.WithHint(process.Usage("--state is missing"), "use the value of pusher run --state")
			}
			if inSecret(f.state) && f.kept == "" {
				return process.WithHint(process.Usage("--snapshots-dir is missing, a Secret holds no snapshots"), "use the directory of pusher run --snapshots-dir, on this machine")
			}
			return f.with(cmd.Context(), func(store stores.Store) error { return f.run(cmd, store) })
		},
	}
	f.storeFlags.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.instance, "from-instance", "", "instance that runs what is to be recovered (required)")
	flags.StringVar(&f.state, "state", "", "state of the pusher, as for run (required)")
	flags.StringVar(&f.kept, "snapshots-dir", "", "directory that keeps the snapshots in use, as for run; by default beside the state file")
	addFleet(flags, &f.fleet, "file that lists the instances, as for run; the command asks the instance if it is listed")
	flags.BoolVar(&f.add, "add", false, "publish to a store that holds other snapshots, as the newest of them")
	f.output.AddTo(cmd)
	_ = cmd.RegisterFlagCompletionFunc("from-instance", process.Bounded(f.complete)) // fails for unknown flags only
	return cmd
}

// complete lists the instances that the state tells of.
func (f *recoverFlags) complete(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	status, err := f.readStatus(cmd.Context(), f.state)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []cobra.Completion
	for _, i := range status.Instances {
		out = append(out, cobra.CompletionWithDesc(i.Name, "runs "+orDash(running(i))))
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

func (f *recoverFlags) run(cmd *cobra.Command, store stores.Store) error {
	ctx := cmd.Context()
	done := recovered{Instance: f.instance}
	node, err := f.node(ctx, &done)
	if err != nil {
		return err
	}
	if done.Runs, _, err = bind.ParseNode(node); err != nil {
		return fmt.Errorf("recover from %s: %w", f.instance, err)
	}
	kept, err := pusher.KeptSnapshot(cmp.Or(f.kept, pusher.KeptFolder(f.state)), done.Runs)
	if err != nil {
		return process.WithHint(fmt.Errorf("recover %s: %w", done.Runs, err), "compile again: the same inputs give the same content, and no instance is reloaded for it")
	}
	ids, err := store.IDs(ctx)
	if err != nil {
		return process.WithHint(err, "make an empty store first")
	}
	if n := slices.IndexFunc(ids, func(id snapshots.ID) bool { return id.Short == done.Runs.Short }); n >= 0 {
		done.ID = ids[n]
		return f.print(cmd, done)
	}
	if len(ids) > 0 && !f.add {
		return process.WithHint(process.Usage("the store is not lost, its newest snapshot is %s", ids[len(ids)-1]),
			"use --add to publish it as the newest of them")
	}
	if done.ID, done.Changed, err = store.Publish(ctx, draftOf(kept, time.Now())); err != nil {
		return fmt.Errorf("recover %s: %w", done.Runs, err)
	}
	return f.print(cmd, done)
}

// node returns the node that the worker of the instance runs, or ran when the pusher last asked.
func (f *recoverFlags) node(ctx context.Context, done *recovered) (string, error) {
	status, stateErr := f.readStatus(ctx, f.state)
	var known report.Instance
	if n := slices.IndexFunc(status.Instances, func(i report.Instance) bool { return i.Name == f.instance }); n >= 0 {
		known = status.Instances[n]
	}
	if f.fleet != "" {
		file, fault := fleet.ReadAgain(f.fleet, nil) // files of other instances do not matter
		if n := slices.IndexFunc(file.Instances, func(i fleet.Instance) bool { return i.Name == f.instance }); n >= 0 {
			done.Asked = true
			info, err := ask(ctx, file.Instances[n])
			return known.Names(info), err // which needs no state
		}
		if fault != nil {
			return "", fault
		}
	}
	if stateErr != nil {
		return "", stateErr
	}
	if known.Name == "" {
		return "", process.WithHint(process.Usage("there is no instance %s", f.instance), "pusher status lists them")
	}
	return known.Node, nil
}

// askTimeout is how long an instance may take to say what it runs.
const askTimeout = 10 * time.Second

// ask asks an instance for its worker.
func ask(ctx context.Context, i fleet.Instance) (dataplane.RuntimeInfo, error) {
	client, err := dataplane.New(i.Access())
	if err != nil {
		return dataplane.RuntimeInfo{}, fmt.Errorf("instance %s: %w", i.Name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	info, err := client.RuntimeInfo(ctx)
	if err != nil {
		return info, fmt.Errorf("ask instance %s: %w", i.Name, err)
	}
	return info, nil
}

// draftOf returns a draft with the content of a snapshot, to publish it again.
func draftOf(s snapshots.Snapshot, now time.Time) snapshots.Draft {
	spec := s.Manifest.Spec
	return snapshots.Draft{
		Files: s.Files, Certificates: spec.Certificates, Recipients: spec.Recipients, Quarantined: spec.Quarantined,
		Provenance: s.Manifest.Provenance, Time: now, Subject: cmp.Or(spec.Subject, "recovered") + " (recovered, was " + s.ID().String() + ")",
	}
}

func (f *recoverFlags) print(cmd *cobra.Command, done recovered) error {
	return f.output.Write(cmd.OutOrStdout(), done, func(w io.Writer) error {
		how := "the store holds it"
		if done.Changed {
			how = "published"
		}
		_, err := fmt.Fprintf(w, "%s %s: %s runs it as %s\n", done.ID, how, done.Instance, done.Runs)
		return err
	})
}
