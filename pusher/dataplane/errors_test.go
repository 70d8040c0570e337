package dataplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// checkClass checks that err belongs to one class and to no other.
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
			_, _ = io.Copy(io.Discard, r.Body) // only then does the server notice that the client leaves
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

// If an API's message repeats what it was sent, no error has it.
func TestErrorsHoldNoCredentials(t *testing.T) {
	echoes := map[string]func(r *http.Request) string{
		"the header": func(r *http.Request) string { return "bad header Authorization: " + r.Header.Get("Authorization") },
		"the token": func(r *http.Request) string {
			return "no " + strings.TrimPrefix(r.Header.Get("Authorization"), "Basic ") + " here"
		},
		"the password":  func(*http.Request) string { return "object already exists: hunter2-of-mine" },
		"a URL":         func(*http.Request) string { return "path http://admin:hunter2-of-mine@edge-1/v3 was not found" },
		"another's URL": func(*http.Request) string { return "dial tcp http://joe:pass@proxy: connection refused" },
		"a key": func(*http.Request) string {
			return "failed to parse certificate: -----BEGIN PRIVATE KEY-----\nMIIhunter2-of-mine"
		},
		"a setting":         func(*http.Request) string { return "invalid configuration: password: hunter2-of-mine" },
		"whatever it likes": func(*http.Request) string { return "hunter2-of-mine, was it?" },
		"beside HAProxy": func(r *http.Request) string {
			return "validation error: exit status 1: " + r.Header.Get("Authorization") + "\nmsg=\"config parsing [/etc/haproxy.cfg:5] unknown keyword\""
		},
		"within HAProxy": func(r *http.Request) string { return "validation error: msg=\"" + r.Header.Get("Authorization") + "\"" },
		"beside a reload": func(*http.Request) string {
			return "Reload failed: failed to reload configuration, hunter2-of-mine\n[ALERT]    (14067) : Starting frontend web: cannot bind socket"
		},
		"a key within a line": func(*http.Request) string {
			return "Reload failed: [ALERT] (1) : -----BEGIN RSA PRIVATE KEY----- hunter2-of-mine"
		},
		"the body of the post": func(*http.Request) string {
			return "validation error: userlist u\n user joe insecure-password hunter2-of-mine"
		},
	}
	calls := map[string]func(c *Client) error{
		"read":  func(c *Client) error { _, err := c.Raw(t.Context()); return err },
		"write": func(c *Client) error { _, err := c.PostRaw(t.Context(), []byte("global\n"), PostOptions{}); return err },
		"info":  func(c *Client) error { _, err := c.RuntimeInfo(t.Context()); return err },
	}
	for what, echo := range echoes {
		for _, form := range []string{"json", "text", "success"} {
			for call, do := range calls {
				if form == "success" && call != "info" {
					continue
				}
				t.Run(what+"/"+form+"/"+call, func(t *testing.T) {
					c := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
						body, _ := json.Marshal(map[string]any{"code": 400, "message": echo(r)})
						switch form {
						case "json":
							w.WriteHeader(http.StatusBadRequest)
						case "text":
							w.WriteHeader(http.StatusBadRequest)
							body = []byte(echo(r))
						case "success":
							body, _ = json.Marshal(map[string]any{"error": echo(r)})
						}
						_, _ = w.Write(body)
					})
					if err := c.Renew(Options{Username: "admin", Password: "hunter2-of-mine"}); err != nil {
						t.Fatal(err)
					}
					err := do(c)
					if err == nil {
						t.Fatal("it is no error")
					}
					for _, secret := range []string{"hunter2", "YWRtaW46aHVudGVyMi1vZi1taW5l", "BEGIN", "joe"} {
						if text := fmt.Sprintf("%v %+v", err, err); strings.Contains(text, secret) {
							t.Errorf("%s is in %q", secret, text)
						}
					}
				})
			}
		}
	}
}

// Known phrases are shown.
func TestShown(t *testing.T) {
	for message, want := range map[string]string{
		"":             withheld,
		"unauthorized": "unauthorized",
		"version mismatch: version in configuration file is 3, given version is 1":                       "",
		"version mismatch: version mismatch, transaction version: 82, configured version: 83":            "",
		"version or transaction not specified: version or transaction not specified, specify only one":   "",
		"object already exists: file /etc/haproxy/maps/a.map already exists":                             "",
		"missing object: file a.map doesn't exist in dir: /etc/haproxy/maps":                             "",
		"missing object: backup file for version 555 does not exist":                                     "",
		"no data for shop_web: not found":                                                                "",
		"Reload with ID 2026-11-21-99 does not exist":                                                    "",
		"path /v2/info was not found":                                                                    "",
		"general error":                                                                                  "",
		"dial unix /run/haproxy-master.sock: connect: no such file or directory":                         "",
		"open /etc/haproxy/maps/a.map: no space left on device":                                          "",
		"cannot start a new transaction, reached the maximum amount of 20 active transactions available": "",
		"transaction 3f5e0d21-7b1a-4a52-8f3e-0f6a2c3f1b11 is outdated and cannot be committed":           "",
		"something new that nobody knows":                                                                withheld,
		"validation error: exit status 1: err transactionId=7 \nmsg=\"config parsing [/t/haproxy.cfg:5] unknown keyword 'x' in 'global' section\"\nmsg=\"config Fatal errors found in configuration.\"": "validation error: msg=\"config parsing [/t/haproxy.cfg:5] unknown keyword 'x' in 'global' section\"\nmsg=\"config Fatal errors found in configuration.\"",
		"validation error: failed to open /etc/haproxy/maps/a.map":                                                   "validation error: failed to open /etc/haproxy/maps/a.map",
		"Reload failed: failed to reload configuration, [NOTICE] (1) : New worker\n[ALERT] (1) : cannot bind socket": "Reload failed: [NOTICE] (1) : New worker\n[ALERT] (1) : cannot bind socket\nfailed to reload configuration",
		"Reload failed: cannot reload: dial unix /run/m.sock: connect: no such file or directory, ":                  "Reload failed: cannot reload: dial unix /run/m.sock: connect: no such file or directory",
	} {
		if want == "" {
			want = message
		}
		if got := repeatable(message); got != want {
			t.Errorf("%q is shown as\n%q, want\n%q", message, got, want)
		}
	}
}
