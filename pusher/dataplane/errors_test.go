package dataplane

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func allClasses() []error {
	return []error{
		ErrConflict, ErrNotFound, ErrUnauthorized, ErrValidation, ErrReload, ErrTooMany, ErrRejected,
		ErrUnavailable, ErrUnknownOutcome, ErrUnreachable, ErrRuntime, ErrUnsupported,
	}
}

// checkClass wants err to be of one class and of no other.
func checkClass(t *testing.T, err, want error) {
	t.Helper()
	for _, class := range allClasses() {
		if errors.Is(err, class) != (class == want) {
			t.Errorf("errors.Is(%v, %q) = %v, want the class %q alone", err, class, class != want, want)
		}
	}
}

func TestRefusalsAreClassified(t *testing.T) {
	tests := []struct {
		name   string
		status int
		body   string
		want   error
		code   int
	}{
		{"bad password", 401, `{"code":401,"message":"unauthorized"}`, ErrUnauthorized, 401},
		{"forbidden by a proxy", 403, `<html>no</html>`, ErrUnauthorized, 403},
		{"unknown backend", 404, `{"code":404,"message":"no data for be1: not found"}`, ErrNotFound, 404},
		{"stale version", 409, `{"code":409,"message":"version mismatch: version in configuration file is 3, given version is 1"}`, ErrConflict, 409},
		{"limit", 429, `{"code":429,"message":"cannot start a new transaction"}`, ErrTooMany, 429},
		{"refused configuration", 400, `{"code":400,"message":"validation error: exit status 1: …"}`, ErrValidation, 400},
		{"failed reload", 400, `{"code":400,"message":"Reload failed: failed to reload configuration, …"}`, ErrReload, 400},
		{"no newline", 400, `{"code":400,"message":"invalid configuration: no newline character found"}`, ErrRejected, 400},
		{"schema, 3.2", 422, `{"code":602,"message":"data in body is required"}`, ErrRejected, 602},
		{"schema, 3.4", 400, `{"code":400,"message":"value is required but missing"}`, ErrRejected, 400},
		{"content type", 415, `{"code":415,"message":"unsupported media type"}`, ErrRejected, 415},
		{"certificate without key", 500, `{"code":500,"message":"file should contain both certificate and private key"}`, ErrRejected, 500},
		{"disk full", 500, `{"code":500,"message":"write: no space left on device"}`, ErrUnavailable, 500},
		{"bare 503", 503, ``, ErrUnavailable, 503},
		{"redirect", 302, ``, ErrUnavailable, 302},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := clientOf(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/plain")
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			})
			_, err := c.PostRaw(t.Context(), []byte("global\n"), PostOptions{Version: 1})
			checkClass(t, err, tt.want)
			var e *Error
			if !errors.As(err, &e) || e.Status != tt.status || e.Code != tt.code || e.Op != "post configuration" {
				t.Errorf("error is %#v, want status %d and code %d", e, tt.status, tt.code)
			}
		})
	}
}

func TestLostAnswersAreClassified(t *testing.T) {
	cut := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	half := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, "global")
		panic(http.ErrAbortHandler)
	}
	for name, handler := range map[string]http.HandlerFunc{"cut": cut, "half": half} {
		t.Run(name, func(t *testing.T) {
			_, err := clientOf(t, handler).PostRaw(t.Context(), []byte("global\n"), PostOptions{Version: 1})
			checkClass(t, err, ErrUnknownOutcome)
		})
	}
	t.Run("no answer until the client leaves", func(t *testing.T) {
		ctx, leave := context.WithCancel(t.Context())
		_, err := clientOf(t, func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // only then does the server see the client leave
			leave()
			<-r.Context().Done()
		}).PostRaw(ctx, []byte("global\n"), PostOptions{Version: 1})
		checkClass(t, err, ErrUnknownOutcome)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v does not name the context's end", err)
		}
	})
	t.Run("a read changes nothing", func(t *testing.T) {
		_, err := clientOf(t, cut).Version(t.Context())
		checkClass(t, err, ErrUnavailable)
	})
	t.Run("nobody listens", func(t *testing.T) {
		c := newClient(t, "http://"+closedPort(t))
		checkClass(t, c.CreateFile(t.Context(), Maps, "a.map", nil), ErrUnreachable)
	})
	t.Run("ended before it began", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := clientOf(t, cut).PostRaw(ctx, []byte("global\n"), PostOptions{})
		checkClass(t, err, ErrUnreachable)
	})
}

func TestUnreadableSuccessIsNoSuccess(t *testing.T) {
	c := clientOf(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>welcome</html>") })
	_, err := c.Version(t.Context())
	checkClass(t, err, ErrUnavailable)
	_, err = c.RuntimeInfo(t.Context())
	checkClass(t, err, ErrUnavailable)
}

func TestErrorsByHandAreClassifiedToo(t *testing.T) {
	checkClass(t, &Error{Status: 409}, ErrConflict)
	checkClass(t, &Error{Status: 400, Message: "validation error: x"}, ErrValidation)
}

func TestErrorText(t *testing.T) {
	long := refused("get info", 502, []byte("<p>\n"+strings.Repeat("word ", 100)))
	if got := long.Error(); got != "get info: Bad Gateway, by something else than the API (status 502)" {
		t.Errorf("a foreign page became %q", got)
	}
	if got := refused("get info", 503, nil).Error(); got != "get info: Service Unavailable (status 503)" {
		t.Errorf("an empty page became %q", got)
	}
}

func clientOf(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return newClient(t, s.URL)
}

func newClient(t *testing.T, url string) *Client {
	t.Helper()
	c, err := New(Options{URL: url, Username: "admin", Password: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
