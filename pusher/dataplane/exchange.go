package dataplane

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// call is one request before it is sent.
type call struct {
	op          string
	method      string
	path        string // below /v3, escaped
	query       url.Values
	body        []byte
	contentType string
	header      http.Header
	ok          []int
	small       bool // the answer is, see [LargestSmallAnswer]
}

// write reports whether the call can change anything at the other end.
func (k call) write() bool { return k.method != http.MethodGet }

// answer is a whole and successful reply.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// readTimeout is how long an answer to a question may take. The slowest one, what
// became of a reload, waits for a reload that is under way.
const readTimeout = 20 * time.Second

// do makes a call. What was refused for credentials that were renewed meanwhile is
// asked for once more: nothing was done.
func (c *Client) do(ctx context.Context, k call) (answer, error) {
	if !k.write() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.readTimeout)
		defer cancel()
	}
	access := c.access.Load()
	a, err := c.exchange(ctx, k, access)
	if renewed := c.access.Load(); errors.Is(err, ErrUnauthorized) && renewed != access {
		return c.exchange(ctx, k, renewed)
	}
	return a, err
}

func (c *Client) exchange(ctx context.Context, k call, access *access) (answer, error) {
	var connected atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}
	req, err := c.request(httptrace.WithClientTrace(ctx, trace), k)
	if err != nil {
		return answer{}, &Error{Op: k.op, Message: err.Error(), kind: ErrRejected, cause: err}
	}
	req.SetBasicAuth(access.username, access.password)
	resp, err := access.http.Do(req)
	if err != nil {
		return answer{}, lost(k, connected.Load(), err).shownWith(access)
	}
	defer resp.Body.Close()
	success := slices.Contains(k.ok, resp.StatusCode)
	body, cut, err := k.read(resp.Body, success)
	switch {
	case err != nil:
		return answer{}, lost(k, true, err).shownWith(access)
	case cut:
		return answer{}, refused(k.op, resp.StatusCode, complete(body)).shownWith(access)
	case !success:
		return answer{}, refused(k.op, resp.StatusCode, body).shownWith(access)
	}
	return answer{status: resp.StatusCode, header: resp.Header, body: body}, nil
}

func (c *Client) request(ctx context.Context, k call) (*http.Request, error) {
	target := c.base + k.path
	if len(k.query) > 0 {
		target += "?" + k.query.Encode()
	}
	// A nil body and an empty one differ on the wire: an empty upload must still
	// say that it has no bytes.
	var body io.Reader
	if k.write() && k.contentType != "" {
		body = bytes.NewReader(k.body)
	}
	req, err := http.NewRequestWithContext(ctx, k.method, target, body)
	if err != nil {
		return nil, err
	}
	for name, values := range k.header {
		req.Header[name] = values
	}
	if k.contentType != "" {
		req.Header.Set("Content-Type", k.contentType)
	}
	req.Header.Set("User-Agent", "hapsnap")
	return req, nil
}

// lost classifies an exchange without a whole answer: what was never sent cannot
// have happened, what was sent may have.
func lost(k call, connected bool, err error) *Error {
	kind := ErrUnavailable
	switch {
	case !connected:
		kind = ErrUnreachable
	case k.write():
		kind = ErrUnknownOutcome
	}
	return &Error{Op: k.op, Message: err.Error(), kind: kind, cause: err}
}

// refused reads the API's error. The content type is no guide: 3.2 sends JSON as
// text/plain, and a proxy in between sends what it likes.
func refused(op string, status int, body []byte) *Error {
	e := &Error{Op: op, Status: status, Code: status}
	var parsed struct {
		Code    int
		Message string
	}
	if json.Unmarshal(body, &parsed) == nil && parsed.Message != "" {
		e.kind = classify(status, parsed.Message)
		e.Code, e.Message = parsed.Code, shown(parsed.Message)
		return e
	}
	e.Message = http.StatusText(status)
	if len(bytes.TrimSpace(body)) > 0 {
		e.Message += ", by something else than the API"
		e.kind = classify(status, string(body))
	}
	return e
}

// shownWith returns the error without the credentials of its request.
func (e *Error) shownWith(a *access) *Error {
	e.Message = a.without(withoutPrivate(e.Message))
	return e
}

// fault returns what may be repeated of an error that came with a success.
func fault(text, fallback string) string {
	if strings.TrimSpace(text) == "" {
		return fallback
	}
	return shown(text)
}

func (c *Client) getJSON(ctx context.Context, op, path string, into any) (answer, error) {
	return c.getDecoded(ctx, call{op: op, method: http.MethodGet, path: path, ok: []int{http.StatusOK}}, into)
}

// getSmall is getJSON of what has a short answer.
func (c *Client) getSmall(ctx context.Context, op, path string, into any) (answer, error) {
	return c.getDecoded(ctx, call{op: op, method: http.MethodGet, path: path, ok: []int{http.StatusOK}, small: true}, into)
}

func (c *Client) getDecoded(ctx context.Context, k call, into any) (answer, error) {
	a, err := c.do(ctx, k)
	if err != nil {
		return a, err
	}
	return a, decode(k.op, a, into)
}

// decode reads the body of a success. What cannot be read is no answer of this
// API, whatever its status said.
func decode(op string, a answer, into any) error {
	err := unfolds(a.body)
	if err == nil {
		err = json.Unmarshal(a.body, into)
	}
	if err != nil {
		return &Error{Op: op, Status: a.status, Message: "unreadable answer: " + err.Error(), kind: ErrUnavailable, cause: err}
	}
	return nil
}
