package dataplane

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
)

// The classes of failure. An [*Error] matches exactly one of them with errors.Is,
// besides the context's own error where a call ended with its context.
var (
	// ErrConflict: the version given is not the current one, or what is to be
	// created exists, or what is to be deleted is in use (409).
	ErrConflict = errors.New("conflict")
	// ErrNotFound: there is no such object (404).
	ErrNotFound = errors.New("not found")
	// ErrUnauthorized: the credentials were refused (401, 403).
	ErrUnauthorized = errors.New("unauthorized")
	// ErrValidation: HAProxy refused the configuration. Permanent for this text
	// and the files it names.
	ErrValidation = errors.New("validation error")
	// ErrReload: the configuration was committed, its reload failed, and the file
	// was put back; the API's memory was not. See [PostOptions.ForceReload].
	ErrReload = errors.New("reload failed")
	// ErrTooMany: a limit of the API was reached (429).
	ErrTooMany = errors.New("too many requests")
	// ErrRejected: the request itself can never be accepted, such as a certificate
	// without its key or an empty map (any other 4xx, and some 500s).
	ErrRejected = errors.New("request rejected")
	// ErrUnavailable: the API failed (other 5xx), sent an answer that is none of
	// its own, or could not be read from. For a write it may have happened.
	ErrUnavailable = errors.New("api unavailable")
	// ErrUnknownOutcome: a write was sent and its answer never came, or came in
	// part. It may have happened. Reads never end so.
	ErrUnknownOutcome = errors.New("unknown outcome")
	// ErrUnreachable: no connection was made, so nothing was written.
	ErrUnreachable = errors.New("unreachable")
	// ErrRuntime: the API is well and cannot reach HAProxy.
	ErrRuntime = errors.New("haproxy does not answer the api")
	// ErrUnsupported: the API has no such call.
	ErrUnsupported = errors.New("not supported by the api")
)

// Error is a call that failed.
type Error struct {
	// Op is what was asked for, such as "post configuration".
	Op string
	// Status is the HTTP status, 0 where there was no whole answer.
	Status int
	// Code is the code in the body. It differs from Status for the schema errors
	// of 3.2 (422 with 6xx).
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

// Unwrap returns what caused the error on this side, such as the context's end.
func (e *Error) Unwrap() error { return e.cause }

func (e *Error) class() error {
	if e.kind != nil {
		return e.kind
	}
	return classify(e.Status, e.Message)
}

// classify names the class of an answer that is not a success.
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

// unusableCertificate knows the two faults of a PEM that the API answers with
// 500 although no second try can succeed.
func unusableCertificate(message string) bool {
	return strings.Contains(message, "file should contain both certificate and private key") ||
		strings.Contains(message, "failed to parse certificate")
}

// withheld stands for what is not repeated of an answer.
const withheld = "its words are not shown, since they may hold what it was sent"

// What an API, or a proxy before it, says when it refuses something may hold what it was
// sent: credentials, keys, the configuration. Errors get into logs, the status, Events and
// the channel. So only what is known to be said by the API, or by HAProxy when it reads a
// configuration, is repeated.
const (
	word     = `[\w./-]{1,255}`
	plain    = `[\w ./'-]{1,300}`
	osReason = `(no space left on device|permission denied|no such file or directory|connection refused|read-only file system|file exists|input/output error|too many open files|is a directory|i/o timeout|operation not permitted|device or resource busy|disk quota exceeded)`
)

// lazily returns what compiles an expression when it is first needed. Every command would take 20 ms longer if all
// were compiled when it starts.
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
	// finding is what HAProxy said of a configuration, as the API quotes it; it may be cut.
	finding = lazily(`msg="(?:[^"\\]|\\.)*(?:"|$)`)
	// startup is a line of HAProxy when it starts.
	startup = lazily(`\[(?:ALERT|WARNING|NOTICE)\][^\n]*`)
	// opening is a fault of a file that HAProxy names outside of that.
	opening = lazily(`failed to open ` + word)
	inUse   = lazily(`^rejecting attempt to delete file ` + word + ` referenced in haproxy conf at line \d+`)
	private = lazily(`(?i)-----BEGIN|authorization|\bbasic [a-z0-9+/=]{8,}|\bbearer [\w.~+/=-]{8,}|://[^/\s:@]*:[^@\s]+@|(password|passwd|secret|token|api[_-]?key)["']?\s*[=:]\s*\S`)
)

// repeatable returns what may be repeated of the words of an API.
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
		return inUse // and not the line that follows
	}
	if !known().MatchString(message) {
		return withheld
	}
	return withoutPrivate(message)
}

// reloadFault is what the API itself says of a reload that failed.
var reloadFault = lazily(`failed to reload configuration|cannot reload: (dial unix ` + word + `: connect: )?` + osReason)

// repeatableStartup returns what may be repeated of what HAProxy wrote when it started.
func repeatableStartup(response string) string {
	return withoutPrivate(strings.Join(startup().FindAllString(response, -1), "\n"))
}

func withoutPrivate(text string) string {
	if private().MatchString(text) {
		return withheld
	}
	return text
}

// without returns a text in which nobody finds the credentials that a request was made
// with.
func (a *access) without(text string) string {
	if a.password == "" {
		return text
	}
	if strings.Contains(text, base64.StdEncoding.EncodeToString([]byte(a.username+":"+a.password))) {
		return withheld
	}
	return strings.ReplaceAll(text, a.password, "***")
}
