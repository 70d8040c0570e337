package push

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
)

// termMark begins the line by which a haproxy.cfg says in which term it was written.
const termMark = "# hapsnap term "

// OutrankedError is the error of what a pusher may not do any more, because one of a
// later term was there.
type OutrankedError struct{ Term, By int64 }

func (e OutrankedError) Error() string {
	return fmt.Sprintf("its haproxy.cfg was written by a pusher of term %d, and this one is of term %d", e.By, e.Term)
}

// Fence keeps a pusher that another has taken the place of from changing instances. Each
// pusher that takes over has a higher term than the one before, and writes it into every
// haproxy.cfg. A post has to name the version of the API that it follows on, and that is
// asked for here together with the term: once a later one was written, what was read
// before is no version that can be posted on.
//
// The API guards nothing but haproxy.cfg in that way. Files, and certificates, servers and
// maps of the running worker are guarded by leads alone, which is asked before each change.
type Fence struct {
	term  atomic.Int64
	leads func() error
}

// NewFence returns the fence of a term, which is more than 0. Leads returns why this
// pusher may not act right now, or nil.
func NewFence(term int64, leads func() error) *Fence {
	f := &Fence{leads: leads}
	f.term.Store(term)
	return f
}

// Raise makes the term a later one.
func (f *Fence) Raise(term int64) { f.term.Store(term) }

// Around returns the API of an instance with the fence before it.
func (f *Fence) Around(api API) API { return fenced{api, f} }

// Claim writes the term into an instance's haproxy.cfg, unless it is there. The worker
// notices nothing. What a former leader read before cannot be posted on any more.
//
// A file that another hand edited is left to [Instance.Mend]: with a new checksum of the
// API nothing would show the edit.
func (f *Fence) Claim(ctx context.Context, api API) error {
	api = f.Around(api)
	var err error
	for range maxTries {
		var raw dataplane.Raw
		if raw, err = api.Raw(ctx); err != nil {
			return err
		}
		edited := raw.Checksum != "" && raw.Checksum != dataplane.Checksum(raw.Config)
		if edited || termOf(raw.Config) == f.term.Load() {
			return nil
		}
		if _, err = api.PostRaw(ctx, withoutHeader(raw.Config), dataplane.PostOptions{Version: raw.Version, SkipReload: true}); err == nil {
			return nil
		}
		Instance{API: api}.tidy(ctx)
		if !isUncertain(err) {
			break
		}
	}
	return fmt.Errorf("claim instance: %w", err)
}

// fenced is an API with a fence before whatever changes something.
type fenced struct {
	API
	fence *Fence
}

// Raw refuses what a later term has written.
func (f fenced) Raw(ctx context.Context) (dataplane.Raw, error) {
	raw, err := f.API.Raw(ctx)
	if own, found := f.fence.term.Load(), termOf(raw.Config); err == nil && found > own {
		return dataplane.Raw{}, OutrankedError{Term: own, By: found}
	}
	return raw, err
}

// PostRaw writes the term with the text.
func (f fenced) PostRaw(ctx context.Context, config []byte, o dataplane.PostOptions) (dataplane.Posted, error) {
	if err := f.fence.leads(); err != nil {
		return dataplane.Posted{}, err
	}
	return f.API.PostRaw(ctx, fmt.Appendf(nil, "%s%d\n%s", termMark, f.fence.term.Load(), config), o)
}

// DeleteTransaction, SetServer and the rest are only called while this pusher leads.
func (f fenced) DeleteTransaction(ctx context.Context, id string) error {
	if err := f.fence.leads(); err != nil {
		return err
	}
	return f.API.DeleteTransaction(ctx, id)
}

func (f fenced) SetServer(ctx context.Context, backend, server string, ch dataplane.ServerChange) (dataplane.Server, error) {
	if err := f.fence.leads(); err != nil {
		return dataplane.Server{}, err
	}
	return f.API.SetServer(ctx, backend, server, ch)
}

func (f fenced) CreateFile(ctx context.Context, s dataplane.Storage, name string, content []byte) error {
	if err := f.fence.leads(); err != nil {
		return err
	}
	return f.API.CreateFile(ctx, s, name, content)
}

func (f fenced) ReplaceFile(ctx context.Context, s dataplane.Storage, name string, content []byte) error {
	if err := f.fence.leads(); err != nil {
		return err
	}
	return f.API.ReplaceFile(ctx, s, name, content)
}

func (f fenced) DeleteFile(ctx context.Context, s dataplane.Storage, name string) error {
	if err := f.fence.leads(); err != nil {
		return err
	}
	return f.API.DeleteFile(ctx, s, name)
}

func (f fenced) RotateCertificate(ctx context.Context, name string, pem []byte) (live bool, reloadID string, err error) {
	if err := f.fence.leads(); err != nil {
		return false, "", err
	}
	return f.API.RotateCertificate(ctx, name, pem)
}

func (f fenced) AddMapEntries(ctx context.Context, name string, entries []dataplane.MapEntry) error {
	if err := f.fence.leads(); err != nil {
		return err
	}
	return f.API.AddMapEntries(ctx, name, entries)
}

func (f fenced) SetMapEntry(ctx context.Context, name, key, value string) error {
	if err := f.fence.leads(); err != nil {
		return err
	}
	return f.API.SetMapEntry(ctx, name, key, value)
}

func (f fenced) DeleteMapEntry(ctx context.Context, name, key string) error {
	if err := f.fence.leads(); err != nil {
		return err
	}
	return f.API.DeleteMapEntry(ctx, name, key)
}

// termOf returns the term in which a haproxy.cfg was written, 0 for one that does not
// say so. It stands before everything but the lines of the API.
func termOf(config []byte) int64 {
	for line := range lines(config) {
		if !bytes.HasPrefix(line, []byte("#")) {
			return 0
		}
		if after, ok := bytes.CutPrefix(line, []byte(termMark)); ok {
			n, _ := strconv.ParseInt(string(bytes.TrimSpace(after)), 10, 64) // 0 for what is no number
			return n
		}
	}
	return 0
}
