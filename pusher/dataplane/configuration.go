package dataplane

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

const rawPath = "/services/haproxy/configuration/raw"

// Raw is the haproxy.cfg on the instance's disk.
type Raw struct {
	Config Text
	// Version is the version in the API's memory. After a failed reload, the file has another one.
	Version int64
	// Checksum is the hash in the file's first line, "" if it has none. If it differs from [Checksum],
	// somebody else edited the file.
	Checksum string
}

// PostOptions say how the API commits a configuration.
type PostOptions struct {
	// Version must be the current version. Another one is ErrConflict.
	Version int64
	// SkipReload writes the file without a reload.
	SkipReload bool
	// ForceReload reloads before the answer. The error is ErrReload if the new worker did not start. Then the
	// old worker goes on, and the file is the last good one. But the version has increased, and until the
	// next post the API's memory holds the text that failed.
	ForceReload bool
	// Head is put before the text. With it, posts of one text with several heads need no copies of the text.
	Head string
	// OnlyValidate runs haproxy -c on the text and writes nothing.
	OnlyValidate bool
	// Actions are carried out in the worker after the file was written, in order. The first failure ends the
	// list. The API accepts them only with SkipReload.
	Actions []RuntimeAction
}

// Posted is the answer to a post.
type Posted struct {
	// Config is the file after the API rewrote it. With OnlyValidate it is the current file.
	Config Text
	// Version is the version after the post.
	Version  int64
	Checksum string
	// ReloadID names the reload that will follow, for [Client.Reload]. Posts within one reload delay have the
	// same. It is "" if no reload was requested, or if it is over.
	ReloadID string
}

// Version returns the version of the configuration in the API's memory.
func (c *Client) Version(ctx context.Context) (int64, error) {
	var v int64
	_, err := c.getSmall(ctx, "get configuration version", "/services/haproxy/configuration/version", &v)
	return v, err
}

// Raw returns the configuration file.
func (c *Client) Raw(ctx context.Context) (Raw, error) {
	r := c.reader(int(c.text.Load()))
	a, err := c.do(ctx, call{op: "get configuration", method: http.MethodGet, path: rawPath, ok: []int{http.StatusOK}, text: r})
	if err != nil {
		return Raw{}, err
	}
	text := r.text()
	c.text.Store(int64(text.Len()))
	return Raw{Config: text, Version: a.version(), Checksum: a.header.Get("Configuration-Checksum")}, nil
}

// reader returns the reader of a haproxy.cfg of about so many bytes.
func (c *Client) reader(expected int) *textReader {
	return &textReader{texts: c.texts, expected: expected + expected/16}
}

// PostRaw replaces the whole configuration. The API first validates it with haproxy -c (ErrValidation), and
// sorts it into its own order. Also an unchanged text makes a new version and a reload.
func (c *Client) PostRaw(ctx context.Context, config []byte, o PostOptions) (Posted, error) {
	const op = "post configuration"
	actions, err := renderPost(o)
	if err != nil {
		return Posted{}, &Error{Op: op, Message: err.Error(), kind: ErrRejected, cause: err}
	}
	query := url.Values{"version": {strconv.FormatInt(o.Version, 10)}}
	for name, set := range map[string]bool{
		"skip_reload": o.SkipReload, "force_reload": o.ForceReload, "only_validate": o.OnlyValidate,
	} {
		if set {
			query.Set(name, "true")
		}
	}
	r := c.reader(len(config)) // the answer is that text in the API's form
	a, err := c.do(ctx, call{
		op: op, method: http.MethodPost, path: rawPath, query: query, header: actions,
		head: o.Head, body: config, contentType: "text/plain",
		ok: []int{http.StatusCreated, http.StatusAccepted}, text: r,
	})
	if err != nil {
		return Posted{}, err
	}
	text := r.text()
	c.text.Store(int64(text.Len()))
	return Posted{
		Config:   text,
		Version:  a.version(),
		Checksum: a.header.Get("Configuration-Checksum"),
		ReloadID: a.header.Get("Reload-ID"),
	}, nil
}

// renderPost refuses combinations that the API would accept and not carry out.
func renderPost(o PostOptions) (http.Header, error) {
	if o.SkipReload && o.ForceReload {
		return nil, errors.New("a reload cannot be both skipped and forced")
	}
	if len(o.Actions) == 0 {
		return nil, nil
	}
	if !o.SkipReload || o.OnlyValidate {
		return nil, errors.New("runtime actions need a post that skips the reload")
	}
	text, err := renderActions(o.Actions)
	return http.Header{"X-Runtime-Actions": {text}}, err
}

func (a answer) version() int64 {
	v, _ := strconv.ParseInt(a.header.Get("Configuration-Version"), 10, 64)
	return v
}

// Checksum returns the hash that the API writes into the first line of a file: the MD5 of everything after
// that line, in hexadecimal. It reveals edits. It is no proof of the content.
func Checksum(config []byte) string {
	_, rest, _ := bytes.Cut(config, []byte("\n"))
	sum := md5.Sum(rest)
	return hex.EncodeToString(sum[:])
}

const transactionsPath = "/services/haproxy/transactions"

// Transaction is a change that was begun. A refused post leaves one behind, failed or outdated, with a copy
// of its whole text on the instance's disk.
type Transaction struct {
	ID string `json:"id"`
	// Version is the version of the configuration that it began with.
	Version int64 `json:"_version"`
	// Status is in_progress, failed, outdated or success.
	Status string `json:"status"`
}

// Transactions lists the transactions that are open or were left behind.
func (c *Client) Transactions(ctx context.Context) ([]Transaction, error) {
	var all []Transaction
	_, err := c.getJSON(ctx, "list transactions", transactionsPath, &all)
	return all, err
}

// OpenTransaction begins a transaction. The API writes a copy of the configuration into its transaction_dir.
func (c *Client) OpenTransaction(ctx context.Context, version int64) (Transaction, error) {
	const op = "open transaction"
	a, err := c.do(ctx, call{
		op: op, method: http.MethodPost, path: transactionsPath,
		query: url.Values{"version": {strconv.FormatInt(version, 10)}}, ok: []int{http.StatusCreated},
	})
	if err != nil {
		return Transaction{}, err
	}
	var t Transaction
	return t, decode(op, a, &t)
}

// DeleteTransaction deletes a transaction and its files.
func (c *Client) DeleteTransaction(ctx context.Context, id string) error {
	_, err := c.do(ctx, call{
		op: "delete transaction", method: http.MethodDelete,
		path: transactionsPath + "/" + url.PathEscape(id), ok: []int{http.StatusNoContent},
	})
	return err
}

// The states of a reload.
const (
	ReloadInProgress = "in_progress"
	ReloadSucceeded  = "succeeded"
	ReloadFailed     = "failed"
)

// Reload is the state of one reload.
type Reload struct {
	ID     string
	Status string
	// Response is the output of HAProxy when it started, with the reason if it did not. It is "" if HAProxy
	// could not be asked.
	Response string
	// At is when the reload ended, to the second. It is zero before that.
	At time.Time
}

type reloadBody struct {
	ID        string `json:"id"`
	Status    string `json:"status"`
	Response  string `json:"response"`
	Timestamp int64  `json:"reload_timestamp"`
}

func (b reloadBody) reload() Reload {
	r := Reload{ID: b.ID, Status: b.Status, Response: repeatableStartup(b.Response)}
	if b.Timestamp != 0 {
		r.At = time.Unix(b.Timestamp, 0).UTC()
	}
	return r
}

// Reload returns the state of a reload. The error is ErrNotFound if the API does not know the ID. The API
// counts from 0 after each start, so an ID is valid only for reloads that were requested since then. Every ID
// before that of the last success is a success.
func (c *Client) Reload(ctx context.Context, id string) (Reload, error) {
	var body reloadBody
	_, err := c.getJSON(ctx, "get reload", "/services/haproxy/reloads/"+url.PathEscape(id), &body)
	if err != nil {
		return Reload{}, err
	}
	body.ID = id // the API leaves it out while the reload is in progress
	return body.reload(), nil
}

// Reloads returns the failed reloads that the API remembers, the last success and the pending one, in no
// order. It is empty after a start of the API.
func (c *Client) Reloads(ctx context.Context) ([]Reload, error) {
	var bodies []reloadBody
	if _, err := c.getJSON(ctx, "list reloads", "/services/haproxy/reloads", &bodies); err != nil {
		return nil, err
	}
	reloads := make([]Reload, 0, len(bodies))
	for _, b := range bodies {
		reloads = append(reloads, b.reload())
	}
	return reloads, nil
}
