package dataplane

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// What an API says that echoes what it was sent gets into no error.
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

// What is known to be said is shown.
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
		if got := shown(message); got != want {
			t.Errorf("%q is shown as\n%q, want\n%q", message, got, want)
		}
	}
}
