package preflight

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"path/filepath"
	"time"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/fleet"
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

// Facts are what was found out about an instance. An error says why a question was not answered. A fact
// with its zero value is not known.
type Facts struct {
	URL, Username, Password string
	Layout                  bind.Layout

	// Unknown says why the credentials are not known, and is "" if they are. The API is not asked without them.
	Unknown string

	// Reached is nil if the API answered. Otherwise nothing else is known.
	Reached    error
	Supported  error
	APIVersion string
	// Skew is how far the clock of its host is ahead of this host's.
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
	// Warning is set for something that works now and may cause trouble later.
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

// probe is the prefix of the names of uploaded files. A file that an interrupted check leaves behind
// does no harm.
const probe = "hapsnap-preflight"

// probeName is that of one instance's files, for instances may share their directories.
func probeName(url string) string {
	sum := sha256.Sum256([]byte(url))
	return probe + "-" + hex.EncodeToString(sum[:4])
}

var storages = []dataplane.Storage{dataplane.Maps, dataplane.Certificates, dataplane.General}

// nouns are what the storages keep, and settings where the API is told their directories.
var (
	nouns = map[dataplane.Storage]string{
		dataplane.Maps: "maps", dataplane.Certificates: "certificates", dataplane.General: "general files",
	}
	settings = map[dataplane.Storage]string{
		dataplane.Maps: "maps_dir", dataplane.Certificates: "ssl_certs_dir", dataplane.General: "general_storage_dir",
	}
)

// Gather asks an instance. With write it also tries what a push will do, and leaves
// nothing behind.
func Gather(ctx context.Context, api API, spec fleet.Instance, write bool) Facts {
	f := Facts{URL: spec.URL, Username: spec.Username, Password: spec.Password, Layout: spec.Layout, Unknown: spec.Unknown}
	info, err := api.Info(ctx)
	if f.Reached = err; err != nil && !errors.Is(err, dataplane.ErrNotFound) {
		return f
	}
	f.Reached, f.APIVersion = nil, info.Version
	if f.Supported = api.Supported(ctx); f.Supported != nil {
		return f
	}
	before := time.Now()
	if clock, err := api.Clock(ctx); err == nil && !clock.IsZero() {
		f.Skew = skew(clock, before, time.Now())
	}
	f.Process, f.ProcessErr = api.Process(ctx)
	var raw dataplane.Raw
	raw, f.ConfigErr = api.Raw(ctx)
	f.Config = raw.Config.Bytes()
	f.Reloads, _ = api.Reloads(ctx)           // what is not told is not judged
	f.Transactions, _ = api.Transactions(ctx) // nor is this
	_, f.Statistics = api.FrontendStatistics(ctx)
	f.Storages = map[dataplane.Storage]StorageFacts{}
	if write {
		f.tryWriting(ctx, api, raw.Version)
		return f
	}
	for _, s := range storages {
		listed, err := api.Files(ctx, s)
		f.Storages[s] = StorageFacts{Listed: listed, List: err}
	}
	return f
}

// skew returns how far a clock that was read to the second is ahead, at least.
func skew(clock, before, after time.Time) time.Duration {
	switch {
	case clock.After(after):
		return clock.Sub(after)
	case clock.Add(time.Second).Before(before):
		return clock.Add(time.Second).Sub(before)
	}
	return 0
}

// tryWriting uploads a file to each storage, has HAProxy look at them where the Fleet
// says that they are, and deletes them.
func (f *Facts) tryWriting(ctx context.Context, api API, version int64) {
	f.Wrote = true
	certificate, err := probeCertificate()
	if err != nil {
		f.Validated = err
		return
	}
	name := probeName(f.URL)
	contents := map[dataplane.Storage]struct {
		extension string
		content   []byte
	}{
		dataplane.Maps:         {".map", []byte("/hapsnap preflight\n")},
		dataplane.Certificates: {".pem", certificate},
		dataplane.General:      {".lst", []byte("192.0.2.1\n")},
	}
	for _, s := range storages {
		facts := StorageFacts{Upload: api.CreateFile(ctx, s, name+contents[s].extension, contents[s].content)}
		if errors.Is(facts.Upload, dataplane.ErrConflict) {
			facts.Upload = nil // one was left over
		}
		facts.Listed, facts.List = api.Files(ctx, s)
		f.Storages[s] = facts
	}
	paths := [...]any{
		filepath.Join(f.Layout.Certificates, name+".pem"), filepath.Join(f.Layout.Maps, name+".map"), filepath.Join(f.Layout.General, name+".lst"),
	}
	f.Validated = validate(ctx, api, fmt.Sprintf(probeConfig, paths[:]...))
	f.Exporter = validate(ctx, api, exporterConfig)
	// What was begun is cleaned up, also when the check is ended meanwhile.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTime)
	defer cancel()
	for _, s := range storages {
		facts := f.Storages[s]
		if facts.Upload == nil {
			if err := api.DeleteFile(ctx, s, name+contents[s].extension); !errors.Is(err, dataplane.ErrNotFound) {
				facts.Delete = err
			}
		}
		f.Storages[s] = facts
	}
	t, err := api.OpenTransaction(ctx, version)
	if errors.Is(err, dataplane.ErrConflict) {
		return // another post came in between, and was taken
	}
	if f.Transaction = err; err == nil {
		f.Transaction = api.DeleteTransaction(ctx, t.ID)
	}
}

// cleanUpTime bounds what is done after a check was ended.
const cleanUpTime = 10 * time.Second

func validate(ctx context.Context, api API, config string) error {
	_, err := api.PostRaw(ctx, []byte(config), dataplane.PostOptions{OnlyValidate: true, Version: 1})
	return err
}

const baseConfig = `defaults
  mode http
  timeout connect 1s
  timeout client 1s
  timeout server 1s

frontend hapsnap_preflight
`

// probeConfig names a certificate, a map and a list. It is never run.
const probeConfig = baseConfig + `  bind 127.0.0.1:1 ssl crt %s
  use_backend %%[path,map(%s)] if { src -f %s }
`

const exporterConfig = baseConfig + `  bind 127.0.0.1:1
  http-request use-service prometheus-exporter if { path /metrics }
`

// probeCertificate returns a certificate with its key, which the API asks of each file
// in its storage of certificates. Nobody is to believe it, and it is served to nobody.
func probeCertificate() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make certificate: %w", err)
	}
	now := time.Now()
	template := x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: probe + ".invalid"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make certificate: %w", err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("make certificate: %w", err)
	}
	return append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...), nil
}
