package push

import (
	"context"
	"errors"
	"time"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// Configuration is the part of the Dataplane API that keeps haproxy.cfg.
type Configuration interface {
	Raw(ctx context.Context) (dataplane.Raw, error)
	PostRaw(ctx context.Context, config []byte, o dataplane.PostOptions) (dataplane.Posted, error)
	Reload(ctx context.Context, id string) (dataplane.Reload, error)
	Transactions(ctx context.Context) ([]dataplane.Transaction, error)
	DeleteTransaction(ctx context.Context, id string) error
}

// Worker is the part that speaks to the running worker.
type Worker interface {
	Info(ctx context.Context) (dataplane.APIInfo, error)
	RuntimeInfo(ctx context.Context) (dataplane.RuntimeInfo, error)
	Process(ctx context.Context) (dataplane.Process, error)
	Servers(ctx context.Context, backend string) ([]dataplane.Server, error)
	SetServer(ctx context.Context, backend, server string, ch dataplane.ServerChange) (dataplane.Server, error)
}

// DynamicServerAPI is the part that adds servers to the running worker.
type DynamicServerAPI interface {
	AddServer(ctx context.Context, backend string, s dataplane.DynamicServer) error
	DeleteServer(ctx context.Context, backend, server string) error
}

// Files is the part that keeps maps and other files.
type Files interface {
	Files(ctx context.Context, s dataplane.Storage) ([]dataplane.File, error)
	ReadFile(ctx context.Context, s dataplane.Storage, name string) ([]byte, error)
	CreateFile(ctx context.Context, s dataplane.Storage, name string, content []byte) error
	ReplaceFile(ctx context.Context, s dataplane.Storage, name string, content []byte) error
	DeleteFile(ctx context.Context, s dataplane.Storage, name string) error
}

// Certificates is the part that changes certificates in the running worker.
type Certificates interface {
	Certificate(ctx context.Context, name string) (dataplane.File, error)
	RotateCertificate(ctx context.Context, name string, pem []byte) (live bool, reloadID string, err error)
	RuntimeCertificate(ctx context.Context, path string) (dataplane.File, error)
	RuntimeCertificates(ctx context.Context) ([]string, error)
}

// Maps is the part that changes maps in the running worker.
type Maps interface {
	RuntimeMaps(ctx context.Context) ([]string, error)
	MapEntries(ctx context.Context, name string) ([]dataplane.MapEntry, error)
	AddMapEntries(ctx context.Context, name string, entries []dataplane.MapEntry) error
	SetMapEntry(ctx context.Context, name, key, value string) error
	DeleteMapEntry(ctx context.Context, name, key string) error
}

// Servers is the part that changes servers in the running worker.
type Servers interface {
	Worker
	DynamicServerAPI
}

// API is what this package needs of an instance. [dataplane.Client] is one.
type API interface {
	Maps
	Configuration
	Servers
	Files
	Certificates
}

// ErrRefused is the error of a snapshot that cannot run on the instance: HAProxy refused
// it, or did not start with it. Another try would end the same way. All other errors, such
// as [ErrInstance], are about the instance and say nothing about the snapshot.
var ErrRefused = errors.New("refused")

// ErrElsewhere is returned if the worker runs another configuration than the caller
// expected. Nothing was changed then.
var ErrElsewhere = errors.New("the worker runs another configuration")

// ErrForeign is returned if the worker was started from another configuration than the
// pusher wrote for it, whatever snapshot it names.
var ErrForeign = errors.New("its worker was started from another configuration")

// Instance is one instance to push to.
type Instance struct {
	API API
	// ReloadTimeout is how long a reload may take.
	ReloadTimeout time.Duration
	// Poll is the interval of looks while waiting. Zero means a quarter of a second.
	Poll time.Duration
	// Override says what the worker runs if that is not what it names. Nil means that it
	// always runs what it names.
	Override *RunningOverride
	// Record knows what the worker was started from. With nil every worker counts as ours.
	Record *Record
	// Layout is where files should be, which is compared with where the API keeps them. The
	// zero value turns the comparison off.
	Layout bind.Layout
}
