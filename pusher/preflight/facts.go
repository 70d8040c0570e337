package preflight

import (
	"context"
	"time"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// API is what this package needs of an instance. [dataplane.Client] is one.
//
//nolint:interfacebloat // a preflight looks at everything
type API interface {
	Info(ctx context.Context) (dataplane.APIInfo, error)
	Supported(ctx context.Context) error
	Clock(ctx context.Context) (time.Time, error)
	Process(ctx context.Context) (dataplane.Process, error)
	Raw(ctx context.Context) (dataplane.Raw, error)
	PostRaw(ctx context.Context, config []byte, o dataplane.PostOptions) (dataplane.Posted, error)
	Reloads(ctx context.Context) ([]dataplane.Reload, error)
	Transactions(ctx context.Context) ([]dataplane.Transaction, error)
	OpenTransaction(ctx context.Context, version int64) (dataplane.Transaction, error)
	DeleteTransaction(ctx context.Context, id string) error
	FrontendStatistics(ctx context.Context) ([]dataplane.FrontendStatistics, error)
	Files(ctx context.Context, s dataplane.Storage) ([]dataplane.File, error)
	CreateFile(ctx context.Context, s dataplane.Storage, name string, content []byte) error
	DeleteFile(ctx context.Context, s dataplane.Storage, name string) error
}

// Facts are what was found out about an instance. An error is why a question was not
// answered; the zero value of a fact is that nothing is known of it.
type Facts struct {
	URL, Username, Password string
	Layout                  bind.Layout

	// Reached is nil when the API answered. Nothing else is known where it did not.
	Reached    error
	Supported  error
	APIVersion string
	// Skew is how far the clock of its machine is ahead of this one's.
	Skew time.Duration

	Process      dataplane.Process
	ProcessErr   error
	Config       []byte
	ConfigErr    error
	Reloads      []dataplane.Reload
	Transactions []dataplane.Transaction
	Statistics   error
	Storages     map[dataplane.Storage]StorageFacts

	// Wrote is set where the rest was tried.
	Wrote bool
	// Transaction is why the API could not open a transaction.
	Transaction error
	// Validated is why HAProxy refuses a text that names the uploaded files, and
	// Exporter why it refuses one with the Prometheus exporter.
	Validated, Exporter error
}

// StorageFacts are of one of the API's storages.
type StorageFacts struct {
	Listed []dataplane.File
	List   error
	// Upload is why a file could not be put there, and Delete why it is there still.
	Upload, Delete error
}

// Finding is something that is wrong with an instance.
type Finding struct {
	// Check is what was looked at, such as directories.
	Check string `json:"check"`
	// Warning is set for what works as it is, and may hurt later.
	Warning bool   `json:"warning,omitempty"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// String returns the finding in a line.
func (f Finding) String() string {
	line := f.Check + ": " + f.Message
	if f.Hint != "" {
		line += "; " + f.Hint
	}
	return line
}
