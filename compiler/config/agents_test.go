package config

import (
	"strings"
	"testing"
)

// A value that could write something of its own into a file of HAProxy, or that has no meaning, is an error at
// its place.
func TestAgentsWrong(t *testing.T) {
	t.Parallel()
	const good = "  agents:\n  - name: bots\n    service: edge/bots:spop\n    variables: [bad]\n    refuseIf: bad\n    messages:\n    - {name: check, arguments: [{name: ua, value: header, of: User-Agent}]}\n"
	if _, found := Parse("c.yaml", []byte("apiVersion: hapsnap.dev/v1alpha1\nkind: CompilerConfig\nspec:\n"+good)); len(found) > 0 {
		t.Fatal(found)
	}
	for _, c := range []struct{ old, new, want string }{
		{"name: bots", "name: Bots", `spec.agents[0].name: "Bots" is not the name of an agent`},
		{"name: bots", "name: waf", "spec.agents[0].name: waf is the name of another agent"},
		{"edge/bots:spop", "bots", `spec.agents[0].service: "bots" is not namespace/name:port`},
		{"edge/bots:spop", "edge/bots:9000", `spec.agents[0].service: "edge/bots:9000" is not namespace/name:port`},
		{"service: edge/bots:spop", "socket: '/run/a b'", `spec.agents[0].socket: "/run/a b" is not the path of a socket`},
		{"service: edge/bots:spop", "socket: /run/../x", `spec.agents[0].socket: "/run/../x" is not the path of a socket`},
		{"service: edge/bots:spop", "onError: open", "spec.agents[0].service: neither a Service nor a socket is named"},
		{"service: edge/bots:spop", "service: edge/bots\n    socket: /run/x", "spec.agents[0].socket: is given besides a Service"},
		{"variables: [bad]", "variables: ['bad\\nevil']", "spec.agents[0].variables[0]"},
		{"variables: [bad]", "variables: [bad, error]", "spec.agents[0].variables[1]: error is what HAProxy itself says of the agent"},
		{"refuseIf: bad", "refuseIf: worse", `spec.agents[0].refuseIf: "worse" is none of the variables`},
		{"refuseIf: bad", "onError: maybe", `spec.agents[0].onError: "maybe" is neither closed nor open`},
		{"refuseIf: bad", "timeouts: {processing: 1d}", `spec.agents[0].timeouts.processing: "1d" is not a time`},
		{"refuseIf: bad", "timeouts: {processing: 31s}", "spec.agents[0].timeouts.processing: 31s is too long"},
		{"refuseIf: bad", "namespaces: ['a b']", `spec.agents[0].namespaces[0]: "a b" is not the name of a namespace`},
		{"name: check", "name: 'check x'", `spec.agents[0].messages[0].name: "check x" is not the name of a message`},
		{"name: check", "name: check, on: response", "spec.agents[0].messages: lists no message on request"},
		{"of: User-Agent", "of: 'A) evil'", `spec.agents[0].messages[0].arguments[0].of: "A) evil" is not the name of a header`},
		{"value: header", "value: env", `spec.agents[0].messages[0].arguments[0].value: "env" is not a value`},
		{"value: header", "value: method", "spec.agents[0].messages[0].arguments[0].of: is not for the value method"},
		{"value: header", "value: response-header", "spec.agents[0].messages[0].arguments[0].value: response-header is not known on request"},
		{"name: ua", "name: 'ua=x'", `spec.agents[0].messages[0].arguments[0].name: "ua=x" is not the name of an argument`},
	} {
		text := strings.Replace(good, c.old, c.new, 1)
		if text == good {
			t.Fatalf("%s is not there", c.old)
		}
		_, found := Parse("c.yaml", []byte("apiVersion: hapsnap.dev/v1alpha1\nkind: CompilerConfig\nspec:\n"+text))
		if len(found) == 0 || !strings.HasPrefix(found[0].Message, c.want) {
			t.Errorf("%s: %v, want %s", c.new, found, c.want)
		}
	}
	for _, yaml := range []string{"waf: {service: nowhere}", "waf: {socket: run/x}", "waf: {service: a/b, socket: /run/x}", "waf: {socket: /run/x, timeouts: {hello: 0s}}", "shared: {wafPolicies: [x]}"} {
		if _, found := Parse("c.yaml", []byte("apiVersion: hapsnap.dev/v1alpha1\nkind: CompilerConfig\nspec: {"+yaml+"}\n")); len(found) == 0 {
			t.Errorf("%s is accepted", yaml)
		}
	}
}
