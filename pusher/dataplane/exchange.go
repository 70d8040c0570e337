package dataplane

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// call is a request before it is sent.
type call struct {
	op          string
	method      string
	path        string // below /v3, escaped
	query       url.Values
	head        string // before the body
	body        []byte
	contentType string
	header      http.Header
	ok          []int
	small       bool        // set if the answer is small, see [LargestSmallAnswer]
	text        *textReader // takes the body of a success, nil for the answer
}

// write reports whether the call can change something.
func (k call) write() bool { return k.method != http.MethodGet }

// answer is a whole and successful reply.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// readTimeout is how long an answer to a read may take. The slowest one is the state of a reload, which waits
// for a running reload.
const readTimeout = 20 * time.Second

// do makes a call. If the credentials were refused and have been renewed since, it makes the call once more:
// the refused one changed nothing.
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
	if access.unknown != "" {
		return answer{}, &Error{Op: k.op, Message: "its credentials are not known: " + access.unknown, kind: ErrUnreachable}
	}
	var connected atomic.Bool
	// If the API had closed a kept connection, Go tries again with a new one, provided that nothing was
	// written or the method is safe. So the last attempt decides whether there was a connection.
	trace := &httptrace.ClientTrace{
		GetConn: func(string) { connected.Store(false) },
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	}
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
	whole := func() (io.ReadCloser, error) {
		return io.NopCloser(io.MultiReader(strings.NewReader(k.head), bytes.NewReader(k.body))), nil
	}
	var body io.Reader
	switch {
	case !k.write() || k.contentType == "":
	case k.head == "":
		body = bytes.NewReader(k.body)
	default:
		body, _ = whole()
	}
	req, err := http.NewRequestWithContext(ctx, k.method, target, body)
	if err != nil {
		return nil, err
	}
	if k.head != "" {
		req.ContentLength, req.GetBody = int64(len(k.head)+len(k.body)), whole
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

// lost classifies an exchange without a whole answer. A request that was not sent did not happen. A request
// that was sent may have happened.
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

// refused reads the API's error. It ignores the content type: API 3.2 sends JSON as text/plain, and a proxy
// may send anything.
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

// fault returns the part of an error message within a success that is safe to show.
func fault(text, fallback string) string {
	if strings.TrimSpace(text) == "" {
		return fallback
	}
	return repeatable(text)
}

func (c *Client) getJSON(ctx context.Context, op, path string, into any) (answer, error) {
	return c.getDecoded(ctx, call{op: op, method: http.MethodGet, path: path, ok: []int{http.StatusOK}}, into)
}

// getSmall is getJSON for calls with a small answer.
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

// decode reads the body of a success. If it cannot be read, the answer is not from this API, whatever its
// status.
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

// These bound how many bytes of an answer are read. A longer one is not from the API, and the rest is not
// read.
const (
	// LargestAnswer bounds a haproxy.cfg, a file, a list or statistics.
	LargestAnswer = 64 << 20
	// LargestSmallAnswer bounds answers that are short by nature. Such calls go to every address that may be
	// an instance, whatever program answers there.
	LargestSmallAnswer = 1 << 20
	// LargestError bounds an error message. A longer one is cut.
	LargestError = 64 << 10
	// largestHeader bounds the header of an answer.
	largestHeader = 256 << 10
)

// These bound the memory that an answer takes when it is decoded. A list of 64 MiB such as "[{},{},..." has
// 22 million objects, and each takes a hundred bytes or more.
const (
	largestList = 1 << 20 // elements of all lists of an answer together
	deepest     = 100     // depth of nesting
)

// read returns the body of an answer. A success that is too long is an error. An error message is cut.
func (k call) read(body io.Reader, success bool) (data []byte, cut bool, err error) {
	limit := int64(LargestAnswer)
	switch {
	case !success:
		limit = LargestError
	case k.small:
		limit = LargestSmallAnswer
	}
	var length int64
	if body = io.LimitReader(body, limit+1); success && k.text != nil {
		length, err = io.Copy(k.text, body)
	} else {
		data, err = io.ReadAll(body)
		length = int64(len(data))
	}
	if length <= limit {
		return data, false, err
	}
	if success {
		return nil, false, fmt.Errorf("the answer has more than %d KiB, which no answer of this API to this has", limit>>10)
	}
	return data[:limit], true, nil
}

// unfolds returns an error for JSON that would take far more memory when it is decoded.
func unfolds(data []byte) error {
	elements, quoted, escaped := 0, false, false
	lists := make([]bool, 0, deepest) // for each open bracket, whether it is a list
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

// complete closes the JSON of an error that was cut within its message.
func complete(data []byte) []byte {
	// The cut may be within an escape, which has six bytes at most.
	if at := bytes.LastIndexByte(data, '\\'); at >= len(data)-6 {
		if whole := append(bytes.Clone(data), `"}`...); json.Valid(whole) {
			return whole
		}
		data = data[:at]
	}
	return append(bytes.Clone(data), `"}`...)
}

// These are the classes of failure. An [*Error] matches exactly one of them with errors.Is. If its context
// ended, it also matches the error of the context.
var (
	// ErrConflict: the given version is not the current one, or the object to create exists, or the object to
	// delete is in use (409).
	ErrConflict = errors.New("conflict")
	// ErrNotFound: there is no such object (404).
	ErrNotFound = errors.New("not found")
	// ErrUnauthorized: the credentials were refused (401, 403).
	ErrUnauthorized = errors.New("unauthorized")
	// ErrValidation: HAProxy refused the configuration. It will refuse the same text with the same files
	// again.
	ErrValidation = errors.New("validation error")
	// ErrReload: the configuration was committed, and its reload failed. The API restored the file, but not
	// its memory. See [PostOptions.ForceReload].
	ErrReload = errors.New("reload failed")
	// ErrTooMany: a limit of the API was reached (429).
	ErrTooMany = errors.New("too many requests")
	// ErrRejected: the request itself can never be accepted, such as a certificate
	// without its key or an empty map (any other 4xx, and some 500s).
	ErrRejected = errors.New("request rejected")
	// ErrUnavailable: the API failed (other 5xx), or the answer is not from the API or could not be read. A
	// write may have happened.
	ErrUnavailable = errors.New("api unavailable")
	// ErrUnknownOutcome: a write was sent, and its answer did not come or was incomplete. It may have
	// happened. Reads never have this error.
	ErrUnknownOutcome = errors.New("unknown outcome")
	// ErrUnreachable: no connection was made, so nothing was written.
	ErrUnreachable = errors.New("unreachable")
	// ErrRuntime: the API works, but it cannot reach HAProxy.
	ErrRuntime = errors.New("haproxy does not answer the api")
	// ErrUnsupported: the API has no such call.
	ErrUnsupported = errors.New("not supported by the api")
)

// Error is a failed call.
type Error struct {
	// Op is the operation, such as "post configuration".
	Op string
	// Status is the HTTP status, 0 without a whole answer.
	Status int
	// Code is the code in the body. It differs from Status for the schema errors of API 3.2 (422 with 6xx).
	Code int
	// Message is the API's message, or the cause.
	Message string

	kind  error
	cause error
}

// Error implements error.
func (e *Error) Error() string {
	if e.Status == 0 {
		return fmt.Sprintf("%s: %v: %s", e.Op, e.class(), e.Message)
	}
	return fmt.Sprintf("%s: %s (status %d)", e.Op, e.Message, e.Status)
}

// Is reports whether target is the class of the error.
func (e *Error) Is(target error) bool { return target == e.class() }

// Unwrap returns the cause on this side, such as the end of the context.
func (e *Error) Unwrap() error { return e.cause }

func (e *Error) class() error {
	if e.kind != nil {
		return e.kind
	}
	return classify(e.Status, e.Message)
}

// classify returns the class of an answer that is not a success.
func classify(status int, message string) error {
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return ErrUnauthorized
	case status == http.StatusNotFound:
		return ErrNotFound
	case status == http.StatusConflict:
		return ErrConflict
	case status == http.StatusTooManyRequests:
		return ErrTooMany
	case status == http.StatusBadRequest && strings.HasPrefix(message, "validation error"):
		return ErrValidation
	case status == http.StatusBadRequest && strings.HasPrefix(message, "Reload failed"):
		return ErrReload
	case status >= 400 && status < 500, unusableCertificate(message):
		return ErrRejected
	default:
		return ErrUnavailable
	}
}

// unusableCertificate matches the two faults of a PEM for which the API answers 500 although a retry is
// useless.
func unusableCertificate(message string) bool {
	return strings.Contains(message, "file should contain both certificate and private key") ||
		strings.Contains(message, "failed to parse certificate")
}

// withheld replaces a message that may not be shown.
const withheld = "its words are not shown, since they may hold what it was sent"

// When an API or a proxy refuses something, its message may quote what it was sent: credentials, keys, the
// configuration. Errors get into logs, the status, Events and the channel. So the program repeats only
// phrases that are known to be the API's own, or HAProxy's about a configuration.
const (
	word     = `[\w./-]{1,255}`
	plain    = `[\w ./'-]{1,300}`
	osReason = `(no space left on device|permission denied|no such file or directory|connection refused|read-only file system|file exists|input/output error|too many open files|is a directory|i/o timeout|operation not permitted|device or resource busy|disk quota exceeded)`
)

// lazily returns a function that compiles an expression at its first use. To compile all of them at the start
// would delay every command by 20 ms.
func lazily(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}

var known = lazily(`^(` + strings.Join([]string{
	`version mismatch: [\w ,:-]{1,200}`,
	`version (or|and) transaction (not )?specified:[\w ,]{0,100}`,
	`unauthorized|unauthenticated for invalid credentials|missing or invalid authorization`,
	`(object already exists|missing object|transaction does not exist): ` + plain + `(: ` + word + `)?`,
	`no data for ` + word + `: not found`,
	`Reload with ID ` + word + ` does not exist`,
	`path ` + word + ` was not found`,
	`(` + word + ` ){0,2}(general error|not found|already exists)`,
	`invalid configuration: no newline character found`,
	`cannot start a new transaction, reached the maximum amount of \d+ active transactions available`,
	`transaction ` + word + ` is (outdated|failed) and cannot be committed`,
	`runtime error: index out of range[\w \[\]-]{0,60}`,
	`(` + word + `:? )?(file should contain both certificate and private key|failed to parse certificate)[\w .,'/-]{0,100}`,
	`unsupported media type "[\w /;=.-]{0,60}", only \[[\w/-]{1,40}\] are allowed`,
	`data in body is required|value is required but missing`,
	`(cannot [\w ]{1,40}: )?(` + word + ` )?((open|write|rename|renameio|mkdir|remove|stat|read|create|link|chmod|dial unix|dial tcp) ` + word + `(:\d+)?( ` + word + `)?: )?(connect: |write: )?` + osReason,
}, `|`) + `)$`)

var (
	// finding is HAProxy's message about a configuration, as the API quotes it. It may be cut.
	finding = lazily(`msg="(?:[^"\\]|\\.)*(?:"|$)`)
	// startup is a line that HAProxy writes when it starts.
	startup = lazily(`\[(?:ALERT|WARNING|NOTICE)\][^\n]*`)
	// opening is a fault of a file that HAProxy reports outside of such a line.
	opening = lazily(`failed to open ` + word)
	inUse   = lazily(`^rejecting attempt to delete file ` + word + ` referenced in haproxy conf at line \d+`)
	private = lazily(`(?i)-----BEGIN|authorization|\bbasic [a-z0-9+/=]{8,}|\bbearer [\w.~+/=-]{8,}|://[^/\s:@]*:[^@\s]+@|(password|passwd|secret|token|api[_-]?key)["']?\s*[=:]\s*\S`)
)

// repeatable returns the part of an API's message that is safe to show.
func repeatable(message string) string {
	message = strings.TrimSpace(message)
	for kind, parts := range map[string][]func() *regexp.Regexp{
		"validation error": {finding, startup, opening},
		"Reload failed":    {startup, reloadFault},
	} {
		if !strings.HasPrefix(message, kind) {
			continue
		}
		said := []string{}
		for _, part := range parts {
			said = append(said, part().FindAllString(message, -1)...)
		}
		if len(said) == 0 {
			return kind
		}
		return withoutPrivate(kind + ": " + strings.Join(said, "\n"))
	}
	if inUse := inUse().FindString(message); inUse != "" {
		return inUse // without the line of the configuration that follows
	}
	if !known().MatchString(message) {
		return withheld
	}
	return withoutPrivate(message)
}

// reloadFault is what the API itself says about a failed reload.
var reloadFault = lazily(`failed to reload configuration|cannot reload: (dial unix ` + word + `: connect: )?` + osReason)

// repeatableStartup returns the part of HAProxy's output at its start that is safe to show.
func repeatableStartup(response string) string {
	return withoutPrivate(strings.Join(startup().FindAllString(response, -1), "\n"))
}

func withoutPrivate(text string) string {
	if private().MatchString(text) {
		return withheld
	}
	return text
}

// without removes the credentials of a request from a text.
func (a *access) without(text string) string {
	if a.password == "" {
		return text
	}
	if strings.Contains(text, base64.StdEncoding.EncodeToString([]byte(a.username+":"+a.password))) {
		return withheld
	}
	return strings.ReplaceAll(text, a.password, "***")
}
