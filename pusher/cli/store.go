package cli

import (
	"context"
	"log/slog"
	"os"
	"os/user"

	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

// storeFlags name a store.
type storeFlags struct {
	clusterFlags
	store   string
	opening stores.Options
}

func (f *storeFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.store, "store", "", "store with the snapshots, such as git+file:///PATH (required)")
	f.opening.AddFlags(cmd.Flags())
	f.clusterFlags.add(cmd)
}

func (f *storeFlags) open(ctx context.Context, log *slog.Logger) (stores.Store, error) {
	if f.store == "" {
		return nil, process.WithHint(process.Usage("no store is named"), "use --store with a URL such as dir:PATH or git+file:///PATH")
	}
	o := f.opening.WithLog(log)
	o.Cluster = f.access()
	return stores.Open(ctx, f.store, o)
}

// with opens the store for as long as it is used.
func (f *storeFlags) with(ctx context.Context, use func(stores.Store) error) error {
	store, err := f.open(ctx, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer store.Close()
	return use(store)
}

// find returns the snapshot that a person named: by its whole name, by its revision,
// such as r12, or as head, the newest.
func find(ids []snapshots.ID, name string) (snapshots.ID, error) {
	if id, ok := snapshots.FindID(ids, name); ok {
		return id, nil
	}
	return snapshots.ID{}, process.WithHint(process.Usage("the store holds no snapshot %s", name),
		"name one that pusher history lists, in full, as r12, or head")
}

// whoFlags say who does something, and why.
type whoFlags struct {
	by, reason string
}

func (f *whoFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.by, "by", whoami(), "who does this, for the others")
	cmd.Flags().StringVar(&f.reason, "reason", "", "why, for the others")
}

// because returns the reason as the end of a commit's subject.
func (f *whoFlags) because() string {
	if f.reason == "" {
		return ""
	}
	return ": " + f.reason
}

func whoami() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return os.Getenv("USER")
}
