package dataplane

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
		return answer{}, lost(k, connected.Load(), err).redactedWith(access)
	}
	defer resp.Body.Close()
	success := slices.Contains(k.ok, resp.StatusCode)
	body, cut, err := k.read(resp.Body, success)
	switch {
	case err != nil:
		return answer{}, lost(k, true, err).redactedWith(access)
	case cut:
		return answer{}, refused(k.op, resp.StatusCode, complete(body)).redactedWith(access)
	case !success:
		return answer{}, refused(k.op, resp.StatusCode, body).redactedWith(access)
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
		e.Code, e.Message = parsed.Code, repeatable(parsed.Message)
		return e
	}
	e.Message = http.StatusText(status)
	if len(bytes.TrimSpace(body)) > 0 {
		e.Message += ", by something else than the API"
		e.kind = classify(status, string(body))
	}
	return e
}

// redactedWith returns the error without the credentials of its request.
func (e *Error) redactedWith(a *access) *Error {
	e.Message = a.without(withoutPrivate(e.Message))
	return e
}

// fault returns what may be repeated of an error that came with a success.
func fault(text, fallback string) string {
	if strings.TrimSpace(text) == "" {
		return fallback
	}
	return repeatable(text)
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

// The bounds of what is read of one answer, in bytes. What is longer is no answer of the
// API, and the rest of it is not read.
const (
	// LargestAnswer is of a haproxy.cfg, a file, a list or statistics.
	LargestAnswer = 64 << 20
	// LargestSmallAnswer is of the questions that every address is asked which is said to
	// be an instance, whatever answers there: they are short.
	LargestSmallAnswer = 1 << 20
	// LargestError is of an answer that says why something failed. It is cut there.
	LargestError = 64 << 10
	// largestHeader is of the header of an answer.
	largestHeader = 256 << 10
)

// The bounds of what an answer may unfold to: of a list of 64 MiB, "[{},{},..." has 22
// million objects, and each takes a hundred bytes or more when it is decoded.
const (
	largestList = 1 << 20 // elements of all lists of an answer together
	deepest     = 100     // lists and objects in each other
)

// read returns the body of an answer: a success whole or not at all, anything else as far
// as it is read.
func (k call) read(body io.Reader, success bool) (data []byte, cut bool, err error) {
	limit := int64(LargestAnswer)
	switch {
	case !success:
		limit = LargestError
	case k.small:
		limit = LargestSmallAnswer
	}
	data, err = io.ReadAll(io.LimitReader(body, limit+1))
	if int64(len(data)) <= limit {
		return data, false, err
	}
	if success {
		return nil, false, fmt.Errorf("the answer has more than %d KiB, which no answer of this API to this has", limit>>10)
	}
	return data[:limit], true, nil
}

// unfolds returns an error for JSON that takes far more room when it is decoded than
// it has now.
func unfolds(data []byte) error {
	elements, quoted, escaped := 0, false, false
	lists := make([]bool, 0, deepest) // of what is open: whether it is a list
	for _, c := range data {
		switch {
		case escaped:
			escaped = false
		case quoted:
			escaped, quoted = c == '\\', c != '"'
		case c == '"':
			quoted = true
		case c == '[' || c == '{':
			if len(lists) == deepest {
				return fmt.Errorf("it has more than %d lists or objects in each other", deepest)
			}
			lists = append(lists, c == '[')
		case c == ']' || c == '}':
			lists = lists[:max(0, len(lists)-1)]
		case c == ',' && len(lists) > 0 && lists[len(lists)-1]:
			if elements++; elements >= largestList {
				return fmt.Errorf("it lists more than %d things", largestList)
			}
		}
	}
	return nil
}

// complete ends the JSON of an error that was cut within its message.
func complete(data []byte) []byte {
	// What is cut may be an escape, of six bytes at most.
	if at := bytes.LastIndexByte(data, '\\'); at >= len(data)-6 {
		if whole := append(bytes.Clone(data), `"}`...); json.Valid(whole) {
			return whole
		}
		data = data[:at]
	}
	return append(bytes.Clone(data), `"}`...)
}
