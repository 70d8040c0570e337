package dataplane

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
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
