package gateway_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/gateway"
)

// Retries follow the rule exactly, or the rule is not served. HAProxy cannot wait before a retry or limit the
// time of all retries together, and it knows only certain codes.
func TestRetries(t *testing.T) {
	t.Parallel()
	for rule, want := range map[string]string{
		`retry: {}`: "3 conn-failure empty-response response-timeout",
		`retry: {codes: [503, 500, 503], attempts: 1}`: "1 conn-failure empty-response response-timeout 500 503",
		`retry: {attempts: 100, backoff: 0s}`:          "100 conn-failure empty-response response-timeout",
		`retry: {codes: [429]}`:                        "spec.rules[0].retry.codes[0]: the code 429 is not supported",
		`retry: {codes: [500, 599]}`:                   "spec.rules[0].retry.codes[1]: the code 599 is not supported",
		`retry: {attempts: 0}`:                         "spec.rules[0].retry.attempts: 0 attempts are not between 1 and 100",
		`retry: {attempts: 101}`:                       "spec.rules[0].retry.attempts: 101 attempts are not",
		`retry: {backoff: 100ms}`:                      "spec.rules[0].retry.backoff: a backoff is not supported",
		`retry: {backoff: soon}`:                       "spec.rules[0].retry.backoff: a backoff is not supported",
		// All attempts together may take as long as the rule says.
		`retry: {attempts: 2}, timeouts: {request: 3s, backendRequest: 1s}`:     "2 conn-failure empty-response response-timeout",
		`retry: {attempts: 2}, timeouts: {request: 3s, backendRequest: 1001ms}`: "spec.rules[0].retry.attempts: a request with its retries may take longer than timeouts.request: timeouts.backendRequest has to fit into it 3 times",
		`retry: {attempts: 2}, timeouts: {request: 3s}`:                         "spec.rules[0].retry.attempts: a request with its retries",
		`retry: {attempts: 2}, timeouts: {request: 3s, backendRequest: 0s}`:     "spec.rules[0].retry.attempts: a request with its retries",
		`retry: {attempts: 2}, timeouts: {request: 0s, backendRequest: 9s}`:     "2 conn-failure empty-response response-timeout",
		`retry: {attempts: 2}, timeouts: {backendRequest: 9s}`:                  "2 conn-failure empty-response response-timeout",
	} {
		m, _, v := gateway.Translate(gathered(t, class+service("web")+object("Gateway", "one", `{gatewayClassName: hapsnap, listeners: [{name: a, port: 80, protocol: HTTP}]}`)+
			object("HTTPRoute", "web", `{parentRefs: [{name: one}], rules: [{backendRefs: [{name: web, port: 80}], `+rule+`}]}`)), usual)
		accepted := gateway.Condition(v.Routes[0].Parents[0].Conditions, "Accepted")
		if accepted.Status == "False" {
			if accepted.Reason != "UnsupportedValue" || !strings.Contains(accepted.Message, want) || len(m.Backends) > 0 {
				t.Errorf("%s: %s %q, want %q", rule, accepted.Reason, accepted.Message, want)
			}
			continue
		}
		if u := m.Backends[0].Upstream; u == nil || u.Retries == nil || want != strings.Join(append([]string{strconv.Itoa(u.RetryCount())}, u.RetryWords()...), " ") {
			t.Errorf("%s: %+v, want %s", rule, u, want)
		}
	}
}

// Rules with different retries have different backends.
func TestRetriesTellBackendsApart(t *testing.T) {
	t.Parallel()
	rule := func(path, retry string) string {
		return `{matches: [{path: {value: ` + path + `}}], backendRefs: [{name: web, port: 80}]` + retry + `}`
	}
	m, _, _ := gateway.Translate(gathered(t, class+service("web")+object("Gateway", "one", `{gatewayClassName: hapsnap, listeners: [{name: a, port: 80, protocol: HTTP}]}`)+
		object("HTTPRoute", "web", `{parentRefs: [{name: one}], rules: [`+strings.Join([]string{
			rule("/a", ""), rule("/b", ", retry: {attempts: 1}"), rule("/c", ", retry: {attempts: 2}"), rule("/d", ", retry: {attempts: 2, codes: [500]}"), rule("/e", ", retry: {attempts: 2, codes: [500]}"),
		}, ", ")+`]}`)), usual)
	if len(m.Backends) != 4 {
		t.Errorf("%d backends, want 4: %v", len(m.Backends), m.Backends)
	}
}
