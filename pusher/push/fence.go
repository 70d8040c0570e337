package push

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
	"github.com/hapsnap/hapsnap/pusher/dataplane"
)

// termMark begins the line in which a haproxy.cfg names the term in which it was written.
const termMark = "# hapsnap term "

// MaxTerm is more than the terms of all pushers ever add up to. A file with a greater one was written by somebody else: it
// names no term, and a pusher writes its own.
const MaxTerm = 1 << 53

// OutrankedError is the error of a change by a pusher whose term is over, because the
// instance already has a later term.
type OutrankedError struct{ Term, By int64 }

func (e OutrankedError) Error() string {
	return fmt.Sprintf("its haproxy.cfg was written by a pusher of term %d, and this one is of term %d", e.By, e.Term)
}

// Fence keeps a pusher that was replaced by another from changing instances. Each pusher
// that takes over has a higher term than the one before, and writes it into every
// haproxy.cfg. A post has to name the version of the API's configuration that it follows,
// and the fence reads that version together with the term. Once a later term was written,
// the version that was read before is out of date, and the API refuses a post that names
// it.
//
// The API protects only haproxy.cfg in that way. Files, and the certificates, servers and
// maps of the running worker, are protected only by leads, which is called before each
// change.
// Each haproxy.cfg also says which pusher wrote it. A pusher does not change an instance
// that another pusher leads, see [LedByOtherError].
type Fence struct {
	term     atomic.Int64 // 0 if there are no terms
	leads    func() error
	pusher   Pusher
	host     string // the host of this pusher, for people; "" writes none
	takeOver bool
}

// NewFence returns the fence of a term. The term is 0 for a pusher whose state has no
// terms. leads returns why this pusher may not act at the moment, or nil.
func NewFence(term int64, leads func() error) *Fence {
	f := &Fence{leads: leads}
	f.term.Store(term)
	return f
}

// Sign makes the fence write the pusher's mark together with the term. With takeOver, that
// mark replaces the mark of any other pusher that leads the instances.
func (f *Fence) Sign(p Pusher, takeOver bool) { f.pusher, f.takeOver = p, takeOver }

// On adds a line to each haproxy.cfg that says when it was written, and on which host. It
// is for people who find that another pusher leads an instance.
func (f *Fence) On(host string) { f.host = host }

// Raise sets a later term.
func (f *Fence) Raise(term int64) { f.term.Store(term) }

// Around returns the API of an instance behind the fence, which keeps the record up to
// date.
func (f *Fence) Around(api API, record *Record) API { return fenced{api, f, record} }

// Claim writes the term into an instance's haproxy.cfg if it is not there. The worker does
// not notice. After that, a former leader can no longer post.
//
// Claim does not write to a file that somebody else edited. [Instance.Mend] repairs such a
// file. If Claim wrote to it, the API would give the file a new checksum, and the edit
// would no longer be visible.
func (f *Fence) Claim(ctx context.Context, api API, record *Record) error {
	api = f.Around(api, record)
	var err error
	for range maxTries {
		var raw dataplane.Raw
		if raw, err = api.Raw(ctx); err != nil {
			return err
		}
		edited := raw.Checksum != "" && raw.Checksum != raw.Config.Checksum()
		if edited || f.claims(raw.Config) || isChanged(raw, record) {
			return nil
		}
		text := withoutHeader(raw.Config)
		if _, err = api.PostRaw(ctx, text.Body, dataplane.PostOptions{Version: raw.Version, SkipReload: true, Head: string(text.Head)}); err == nil {
			return nil
		}
		Instance{API: api}.dropTransactions(ctx)
		if !isUncertain(err) {
			break
		}
	}
	return fmt.Errorf("claim instance: %w", err)
}

// isChanged reports whether the file differs from what a pusher wrote. What the API holds
// in memory does not matter.
func isChanged(raw dataplane.Raw, record *Record) bool {
	raw.Version = readVersion(raw.Config.Head)
	return foreignText(raw, record.Remembered().Marked) != ""
}

// claims reports whether an instance with this haproxy.cfg needs no claim. If there are no
// terms, an instance needs none either if no pusher ever wrote its file, since the first
// push will write the mark.
func (f *Fence) claims(config dataplane.Text) bool {
	term := f.term.Load()
	m, found := markOf(config.Head)
	own := f.pusher.State == "" || found && m.State == f.pusher.State && m.Place == oneWord(f.pusher.Place)
	if term == 0 && !own && readRaw(config).end == "" {
		return true
	}
	return own && termOf(config.Head) == term
}

// fenced is an API that checks the fence before every change.
type fenced struct {
	API
	fence  *Fence
	record *Record
}

// may returns why nothing may be changed at the moment, or nil.
func (f fenced) may() error {
	if err := f.fence.leads(); err != nil {
		return err
	}
	return f.record.may()
}

// Raw refuses what a later term, or another pusher, has written.
func (f fenced) Raw(ctx context.Context) (dataplane.Raw, error) {
	raw, err := f.API.Raw(ctx)
	if err != nil {
		return raw, err
	}
	if err := f.record.admit(raw, f.fence.pusher, f.fence.term.Load(), f.fence.takeOver, time.Now()); err != nil {
		return dataplane.Raw{}, err
	}
	if own, found := f.fence.term.Load(), termOf(raw.Config.Head); found > own && own > 0 {
		return dataplane.Raw{}, OutrankedError{Term: own, By: found}
	}
	return raw, nil
}

// PostRaw writes the term and the mark with the text.
func (f fenced) PostRaw(ctx context.Context, config []byte, o dataplane.PostOptions) (dataplane.Posted, error) {
	if err := f.may(); err != nil {
		return dataplane.Posted{}, err
	}
	now := time.Now()
	head := ""
	if term := f.fence.term.Load(); term > 0 {
		head = fmt.Sprintf("%s%d\n", termMark, term)
	}
	if f.fence.pusher.State != "" {
		head += mark{f.fence.pusher, o.Version}.line()
		if f.fence.host != "" {
			head += wroteLine(now, f.fence.host)
		}
	}
	o.Head = head + o.Head
	posted, err := f.API.PostRaw(ctx, config, o)
	if err == nil && !o.OnlyValidate {
		f.record.wrote(f.fence.pusher.State != "", o.ForceReload, time.Now())
	}
	return posted, err
}

// DeleteTransaction, SetServer and the other changes are called only while this pusher
// leads.
func (f fenced) DeleteTransaction(ctx context.Context, id string) error {
	if err := f.may(); err != nil {
		return err
	}
	return f.API.DeleteTransaction(ctx, id)
}

func (f fenced) SetServer(ctx context.Context, backend, server string, ch dataplane.ServerChange) (dataplane.Server, error) {
	if err := f.may(); err != nil {
		return dataplane.Server{}, err
	}
	return f.API.SetServer(ctx, backend, server, ch)
}

func (f fenced) AddServer(ctx context.Context, backend string, s dataplane.DynamicServer) error {
	if err := f.may(); err != nil {
		return err
	}
	return f.API.AddServer(ctx, backend, s)
}

func (f fenced) DeleteServer(ctx context.Context, backend, server string) error {
	if err := f.may(); err != nil {
		return err
	}
	return f.API.DeleteServer(ctx, backend, server)
}

func (f fenced) CreateFile(ctx context.Context, s dataplane.Storage, name string, content []byte) error {
	if err := f.may(); err != nil {
		return err
	}
	return f.API.CreateFile(ctx, s, name, content)
}

func (f fenced) ReplaceFile(ctx context.Context, s dataplane.Storage, name string, content []byte) error {
	if err := f.may(); err != nil {
		return err
	}
	return f.API.ReplaceFile(ctx, s, name, content)
}

func (f fenced) DeleteFile(ctx context.Context, s dataplane.Storage, name string) error {
	if err := f.may(); err != nil {
		return err
	}
	return f.API.DeleteFile(ctx, s, name)
}

func (f fenced) RotateCertificate(ctx context.Context, name string, pem []byte) (live bool, reloadID string, err error) {
	if err := f.may(); err != nil {
		return false, "", err
	}
	return f.API.RotateCertificate(ctx, name, pem)
}

func (f fenced) AddMapEntries(ctx context.Context, name string, entries []dataplane.MapEntry) error {
	if err := f.may(); err != nil {
		return err
	}
	return f.API.AddMapEntries(ctx, name, entries)
}

func (f fenced) SetMapEntry(ctx context.Context, name, key, value string) error {
	if err := f.may(); err != nil {
		return err
	}
	return f.API.SetMapEntry(ctx, name, key, value)
}

func (f fenced) DeleteMapEntry(ctx context.Context, name, key string) error {
	if err := f.may(); err != nil {
		return err
	}
	return f.API.DeleteMapEntry(ctx, name, key)
}

// termOf returns the term in which a haproxy.cfg was written, or 0 if it names none. The
// term stands before everything except the lines of the API.
func termOf(config []byte) int64 {
	for l := range haproxycfg.Lines(config) {
		line := l.Text
		if !bytes.HasPrefix(line, []byte("#")) {
			return 0
		}
		if after, ok := bytes.CutPrefix(line, []byte(termMark)); ok {
			n, err := strconv.ParseInt(string(bytes.TrimSpace(after)), 10, 64)
			if err != nil || n < 0 || n > MaxTerm {
				return 0
			}
			return n
		}
	}
	return 0
}
