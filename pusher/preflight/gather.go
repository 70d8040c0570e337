package preflight

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/fleet"
)

// probe is how the names of uploaded files begin. A file that is left over from a
// check that was ended does no harm.
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
	f := Facts{URL: spec.URL, Username: spec.Username, Password: spec.Password, Layout: spec.Layout}
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
	f.Config = raw.Config
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
