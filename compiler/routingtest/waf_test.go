package routingtest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/config/agents"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/internal/testing/spoptest"
	wafpolicy "github.com/hapsnap/hapsnap/waf/policy"
)

// newAgent starts an agent at a Unix socket for the time of the test.
func newAgent(t *testing.T, answers func(spoptest.Message) map[string]any) *spoptest.Agent {
	t.Helper()
	a := &spoptest.Agent{Network: "unix", Address: filepath.Join(t.TempDir(), "spop.sock"), Answers: answers}
	startAgent(t, a)
	return a
}

func startAgent(t *testing.T, a *spoptest.Agent) {
	t.Helper()
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Stop)
}

// wafPolicy returns a ConfigMap with a policy. spec has its fields.
func wafPolicy(namespace, name, spec string) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: %s, name: %s}\ndata:\n  policy: |\n    apiVersion: hapsnap.dev/v1alpha1\n    kind: WAFPolicy\n    spec: {%s}\n", namespace, name, spec)
}

// sizeReader starts a server that reads bodies and returns their size in a header. It returns the port.
func sizeReader(t *testing.T) int {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("X-Size", strconv.FormatInt(n, 10))
	}))
	t.Cleanup(s.Close)
	return portOf(s)
}

// post returns a request with a body in chunks of size piece, or with a length if piece is 0.
func post(host, target, body string, piece int, lines ...string) string {
	head := "POST " + target + " HTTP/1.1\nHost: " + host + ".example\n"
	for _, line := range lines {
		head += line + "\n"
	}
	if piece == 0 {
		return head + "Content-Length: " + strconv.Itoa(len(body)) + "\n\n" + body
	}
	var b strings.Builder
	b.WriteString(head + "Transfer-Encoding: chunked\n\n")
	for len(body) > 0 {
		n := min(piece, len(body))
		fmt.Fprintf(&b, "%x\r\n%s\r\n", n, body[:n])
		body = body[n:]
	}
	return b.String() + "0\r\n\r\n"
}

// wafCases returns requests to the hosts of TestWAF. long is a body longer than a buffer.
func wafCases(long string) map[string]wafCase {
	return map[string]wafCase{
		"good":                      {"GET /a?b=c HTTP/1.1\nHost: block.example", 200},
		"query":                     {"GET /?q=attack HTTP/1.1\nHost: block.example", 403},
		"path":                      {"GET /attack HTTP/1.1\nHost: block.example", 403},
		"header":                    {"GET / HTTP/1.1\nHost: block.example\nX-A: attack", 403},
		"body":                      {post("block", "/", "an attack", 0), 403},
		"good body":                 {post("block", "/", strings.Repeat("x", 30<<10), 0), 200},
		"at the end of a body":      {post("block", "/", strings.Repeat("x", 30<<10)+"attack", 0), 403},
		"chunked":                   {post("block", "/", "an attack", 3), 403},
		"chunked, good":             {post("block", "/", strings.Repeat("x", 20<<10), 1000), 200},
		"chunked, at the end":       {post("block", "/", strings.Repeat("x", 20<<10)+"attack", 1000), 403},
		"long body":                 {post("block", "/", long, 0), 413},
		"long body, chunked":        {post("block", "/", long, 5000), 413},
		"long body, in pieces":      {post("block", "/", long, 7), 413},
		"too large to be told":      {post("long", "/", strings.Repeat("x", 35<<10), 0), 413},
		"not too large for that":    {post("long", "/", strings.Repeat("x", 30<<10), 0), 200},
		"h2c":                       {"GET /?q=attack HTTP/1.1\nHost: block.example\nConnection: Upgrade\nUpgrade: h2c\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA", 403},
		"another upgrade":           {"GET / HTTP/1.1\nHost: block.example\nConnection: Upgrade\nUpgrade: other", 400},
		"detect":                    {"GET /?q=attack HTTP/1.1\nHost: detect.example", 200},
		"partial, good":             {post("partial", "/", long, 0), 200},
		"partial, chunked":          {post("partial", "/", long, 5000), 200},
		"partial, attack":           {post("partial", "/", "attack"+long, 0), 403},
		"partial, behind the limit": {post("partial", "/", strings.Repeat("x", 2000)+"attack", 0), 200},
		"partial, large header":     {"GET /?q=attack HTTP/1.1\nHost: partial.example\nX-A: " + strings.Repeat("x", 20<<10), 403},
		"within the limit":          {post("small", "/", strings.Repeat("x", 1000), 0), 200},
		"over the limit":            {post("small", "/", strings.Repeat("x", 1001), 0), 413},
		"over the limit, chunked":   {post("small", "/", strings.Repeat("x", 1001), 100), 413},
		"shared":                    {"GET /?q=attack HTTP/1.1\nHost: shared.example", 403},
		"not protected":             {"GET /?q=attack HTTP/1.1\nHost: bare.example", 200},
		"refused anyway":            {"GET / HTTP/1.1\nHost: user.example", 403},
		"max-body-size too":         {post("limited", "/", strings.Repeat("x", 3000), 0), 413},
		"max-body-size, chunked":    {post("limited", "/", strings.Repeat("x", 3000), 100), 413},
	}
}

// With waf, an attack in any part of a request is refused or reported, as the policy says. What was not
// inspected is not served. While the agent is down, requests are refused or served, as the policy says.
func TestWAF(t *testing.T) {
	t.Parallel()
	a := newAgent(t, spoptest.LooksForAttacks)
	var keys []string
	for i := range 60 {
		keys = append(keys, fmt.Sprintf("'ARGS:%050d'", i))
	}
	e := startWith(t, serviceYAML("shop", "a", sizeReader(t))+
		wafPolicy("shop", "block", "engine: block")+wafPolicy("shop", "detect", "")+wafPolicy("shop", "open", "engine: block, failure: open")+
		wafPolicy("shop", "partial", "engine: block, uninspected: allow, bodyLimit: 1000")+wafPolicy("shop", "long", "exclude: [{rules: ['942100'], targets: ["+strings.Join(keys, ", ")+"]}]")+wafPolicy("shop", "small", "engine: block, bodyLimit: 1000")+
		wafPolicy("edge", "shared", "engine: block, exclude: [{rules: ['942100'], targets: ['ARGS:ctl00$Main']}]")+
		all([]ingress{
			optioned("block", "waf", "block"), optioned("detect", "waf", "detect"), optioned("open", "waf", "open"), optioned("partial", "waf", "partial"),
			optioned("small", "waf", "small"), optioned("long", "waf", "long"), optioned("shared", "waf", "edge/shared"), optioned("bare"),
			optioned("user", "waf", "block", "deny-list", "127.0.0.0/8"), optioned("limited", "waf", "block", "max-body-size", "2k"),
		}), func(c *config.Config) {
		c.WAF.Socket, c.Shared.WAFPolicies = a.Address, []string{"edge/shared"}
		c.Timeouts.HTTPRequest = "1s"
	})
	clean(t, e)
	long := strings.Repeat("x", 60<<10)
	for name, c := range wafCases(long) {
		if got := e.send(t, false, c.request); got.StatusCode != c.want {
			t.Errorf("%s: %d, want %d", name, got.StatusCode, c.want)
		}
	}
	a.Messages()
	e.get(t, "user.example", "/")
	if got := a.Messages(); len(got) > 0 {
		t.Errorf("the agent was asked about a request that is refused anyway: %v", got)
	}
	e.get(t, "block.example", "/a%20b?c=%20d", "X-A: b")
	got := a.Messages()
	want := map[string]string{
		"policy": `{"engine":"block"}`, "rules": wafpolicy.RulesVersion, "method": "GET", "path": "/a%20b", "query": "c=%20d", "version": "1.1",
		"host": "block.example", "body": "", "body-size": "0", "route": "shop_a_80.block",
	}
	if len(got) != 1 || got[0].Name != "request" {
		t.Fatalf("the agent was told %v", got)
	}
	for name, value := range want {
		if got[0].Text(name) != value {
			t.Errorf("argument %s: %q, want %q", name, got[0].Text(name), value)
		}
	}
	if !strings.Contains(strings.ToLower(got[0].Text("headers")), "x-a: b\r\n") || got[0].Text("src") == "" || got[0].Text("src-port") == "" {
		t.Errorf("the agent was told %v", got[0])
	}

	a.Stop()
	wafAway(t, e, a, long)
}

// wafAway checks the answers while the agent is down, and when it is back.
func wafAway(t *testing.T, e edge, a *spoptest.Agent, long string) {
	t.Helper()
	for _, host := range []string{"block", "detect", "partial", "shared"} {
		if got := e.get(t, host+".example", "/"); got.StatusCode != 503 {
			t.Errorf("without an agent, %s: %d", host, got.StatusCode)
		}
	}
	if got := e.get(t, "open.example", "/?q=attack"); got.StatusCode != 200 {
		t.Errorf("without an agent, open: %d", got.StatusCode)
	}
	if got := e.send(t, false, post("open", "/", long, 0)); got.StatusCode != 413 {
		t.Errorf("without an agent, open, a long body: %d", got.StatusCode)
	}
	await(t, func() error { // once the check has found the agent down, no request waits for it
		began := time.Now()
		if got := e.get(t, "block.example", "/"); got.StatusCode != 503 || time.Since(began) > 500*time.Millisecond {
			return fmt.Errorf("without an agent, later: %d after %v", got.StatusCode, time.Since(began))
		}
		return nil
	})
	startAgent(t, a)
	await(t, func() error {
		if got := e.get(t, "block.example", "/"); got.StatusCode != 200 {
			return fmt.Errorf("with the agent again: %d", got.StatusCode)
		}
		return nil
	})
}

// An agent that does not answer, an agent without the rules, and a body that does not arrive delay a request
// only up to a timeout.
func TestWAFAnswersInTime(t *testing.T) {
	t.Parallel()
	a := newAgent(t, func(m spoptest.Message) map[string]any {
		switch m.Text("path") {
		case "/silent":
			return nil
		case "/error":
			return map[string]any{"action": "error"}
		case "/odd":
			return map[string]any{"action": "whatever"}
		}
		return spoptest.LooksForAttacks(m)
	})
	e := startWith(t, serviceYAML("shop", "a", sizeReader(t))+wafPolicy("shop", "block", "engine: block")+wafPolicy("shop", "open", "failure: open")+
		all([]ingress{optioned("block", "waf", "block"), optioned("open", "waf", "open")}), func(c *config.Config) {
		c.WAF.Socket, c.WAF.Timeouts.Processing, c.Timeouts.HTTPRequest = a.Address, "200ms", "1s"
	})
	clean(t, e)
	for _, path := range []string{"/silent", "/error", "/odd"} {
		if got := e.get(t, "block.example", path); got.StatusCode != 503 {
			t.Errorf("closed, %s: %d", path, got.StatusCode)
		}
		if got := e.get(t, "open.example", path); got.StatusCode != 200 {
			t.Errorf("open, %s: %d", path, got.StatusCode)
		}
	}
	if got := e.send(t, false, "POST / HTTP/1.1\nHost: block.example\nContent-Length: 10\n\nx"); got.StatusCode != 408 {
		t.Errorf("a body that does not come: %d", got.StatusCode)
	}
	if got := e.get(t, "block.example", "/"); got.StatusCode != 200 {
		t.Errorf("after that: %d", got.StatusCode)
	}
}

// A policy that cannot be read closes its routes. The compiler reports the line.
func TestWAFFailsClosed(t *testing.T) {
	t.Parallel()
	a := newAgent(t, spoptest.LooksForAttacks)
	yaml := serviceYAML("shop", "a", sizeReader(t)) + wafPolicy("shop", "good", "") + wafPolicy("shop", "unknown", "engin: block") + wafPolicy("shop", "range", "paranoia: 5") +
		wafPolicy("shop", "rule", "exclude: [{rules: ['123']}]") + wafPolicy("shop", "kind", "}\n    kind: Other\n    metadata: {") + wafPolicy("edge", "other", "") +
		"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: shop, name: empty}\ndata: {}\n" +
		all([]ingress{
			optioned("unknown", "waf", "unknown"), optioned("range", "waf", "range"), optioned("rule", "waf", "rule"), optioned("kind", "waf", "kind"),
			optioned("other", "waf", "edge/other"), optioned("empty", "waf", "empty"), optioned("gone", "waf", "gone"), optioned("malformed", "waf", "../x"), optioned("good", "waf", "good"),
		})
	e := startWith(t, yaml, func(c *config.Config) { c.WAF.Socket = a.Address })
	for host, want := range map[string]int{"unknown": 503, "range": 503, "rule": 503, "kind": 503, "other": 503, "empty": 503, "gone": 503, "malformed": 503, "good": 200} {
		if got := e.get(t, host+".example", "/"); got.StatusCode != want {
			t.Errorf("%s: %d, want %d", host, got.StatusCode, want)
		}
	}
	for _, want := range []string{
		"ConfigMap shop/unknown: key policy, line 3: spec.", "ConfigMap shop/range: key policy, line 3: spec.paranoia", "ConfigMap shop/rule: key policy, line 3: spec.exclude[0].rules[0]",
		"Ingress shop/gone: annotation hapsnap.dev/waf: policy shop/gone cannot be read: ConfigMap shop/gone does not exist",
		"Ingress shop/other: annotation hapsnap.dev/waf: policy edge/other is of another namespace", "Ingress shop/empty: annotation hapsnap.dev/waf: policy shop/empty cannot be read: ConfigMap shop/empty has no key policy",
	} {
		if !strings.Contains(fmt.Sprint(e.result.Diagnostics), want) {
			t.Errorf("not said: %s\n%v", want, e.result.Diagnostics)
		}
	}
	none := start(t, serviceYAML("shop", "a", sizeReader(t))+wafPolicy("shop", "good", "")+all([]ingress{optioned("good", "waf", "good"), optioned("bare")}))
	if got := none.get(t, "good.example", "/"); got.StatusCode != 503 {
		t.Errorf("without an agent in the configuration: %d", got.StatusCode)
	}
	if got := none.get(t, "bare.example", "/"); got.StatusCode != 200 {
		t.Errorf("another route then: %d", got.StatusCode)
	}
}

// Routes of Gateways have the options too. The options of their Gateway apply in addition.
func TestWAFOfGateways(t *testing.T) {
	t.Parallel()
	a := newAgent(t, func(m spoptest.Message) map[string]any {
		if m.Name == "words" {
			return map[string]any{"rule": strings.Contains(m.Text("query"), "attack")}
		}
		return spoptest.LooksForAttacks(m)
	})
	for name, c := range map[string]struct {
		gateway []string
		want    map[string][2]int // for each host: of a good request and of an attack
	}{
		"of routes":    {nil, map[string][2]int{"block": {200, 403}, "detect": {200, 200}, "gone": {503, 503}, "bare": {200, 200}, "asked": {200, 403}, "nobody": {503, 503}}},
		"of a Gateway": {[]string{"waf", "block"}, map[string][2]int{"block": {200, 403}, "detect": {200, 403}, "gone": {503, 503}, "bare": {200, 403}, "asked": {200, 403}, "nobody": {503, 503}}},
	} {
		t.Run(name, func(t *testing.T) {
			address := ""
			e := startEdited(t, func(cfg *config.Config) string {
				cfg.GatewayAPI.Enabled, cfg.WAF.Socket = true, a.Address
				cfg.Agents = []agents.Agent{{
					Name: "words", Socket: a.Address, Namespaces: []string{"shop"}, Variables: []string{"rule"}, RefuseIf: "rule",
					Messages: []agents.Message{{Name: "words", Arguments: []agents.Argument{{Name: "policy", Value: agents.Header, Of: "X-Policy"}, {Name: "query", Value: agents.Query}}}},
				}}
				port := freePort(t, cfg.Bind.Addresses[0])
				address = fmt.Sprint(cfg.Bind.Addresses[0], ":", port)
				return gatewayClass + asksFor(gatewayYAML("shop", "web", port, ""), c.gateway...) + serviceYAML("shop", "a", mirror(t, "a", nil)) +
					wafPolicy("shop", "block", "engine: block") + wafPolicy("shop", "detect", "") +
					optionedRoute("block", "waf", "block") + optionedRoute("detect", "waf", "detect") + optionedRoute("gone", "waf", "gone") + optionedRoute("bare") +
					optionedRoute("asked", "agents", "words") + optionedRoute("nobody", "agents", "nobody")
			})
			await(t, func() error { return reachable(t, address) })
			e.http = address
			for host, want := range c.want {
				for i, target := range []string{"/", "/?q=attack"} {
					if got := e.get(t, host+".example", target); got.StatusCode != want[i] {
						t.Errorf("%s%s: %d, want %d", host, target, got.StatusCode, want[i])
					}
				}
			}
		})
	}
}

// botAgents returns an agent behind a Service with onError closed, and one at a socket with onError open.
func botAgents(socket string) []agents.Agent {
	messages := []agents.Message{
		{Name: "check", Arguments: []agents.Argument{
			{Name: "ua", Value: agents.Header, Of: "User-Agent"}, {Name: "ip", Value: agents.ClientAddress}, {Name: "sid", Value: agents.Cookie, Of: "sid"}, {Name: "body", Value: agents.Body},
			{Name: "p", Value: agents.Parameter, Of: "p"}, {Name: "route", Value: agents.Route}, {Name: "tls", Value: agents.TLS}, {Name: "host", Value: agents.Host},
		}},
		{Name: "after", On: agents.Response, Arguments: []agents.Argument{{Name: "status", Value: agents.ResponseStatus}, {Name: "from", Value: agents.ResponseHeader, Of: "X-From"}}},
	}
	bots := agents.Agent{
		Name: "bots", Service: "edge/bots:spop", Namespaces: []string{"shop"}, Messages: messages, Variables: []string{"bad", "score"}, RefuseIf: "bad",
		Timeouts: agents.Timeouts{Processing: "200ms"},
	}
	lax := bots
	lax.Name, lax.Service, lax.Socket, lax.OnError, lax.Namespaces = "lax-bots", "", socket, agents.Open, []string{"*"}
	return []agents.Agent{bots, lax}
}

// An agent of the configuration gets the arguments that the configuration lists, can refuse requests, and is
// asked only for namespaces that the administrator allows.
func TestAgents(t *testing.T) {
	t.Parallel()
	answers := func(m spoptest.Message) map[string]any {
		switch {
		case m.Text("ua") == "silent":
			return nil
		case m.Text("ua") == "bot":
			return map[string]any{"bad": true, "score": 7}
		case m.Text("ua") == "word":
			return map[string]any{"bad": "yes"}
		}
		return map[string]any{"bad": false}
	}
	a := &spoptest.Agent{Network: "tcp", Address: "127.0.0.1:0", Answers: answers}
	startAgent(t, a)
	port := int(netip.MustParseAddrPort(a.Address).Port())
	second := newAgent(t, answers)
	service := strings.ReplaceAll(strings.ReplaceAll(serviceYAML("edge", "bots", port), "{port: 80}", "{name: spop, port: 80}"), `name: ""`, "name: spop")
	e := startWith(t, service+serviceYAML("shop", "a", mirror(t, "a", nil))+serviceYAML("other", "a", mirror(t, "a", nil))+all([]ingress{
		optioned("closed", "agents", "bots"), optioned("open", "agents", "lax-bots"), optioned("both", "agents", "bots, lax-bots"), optioned("bare"),
		optioned("unknown", "agents", "nobody"), {name: "other", namespace: "other", annotations: annotated("agents", "bots"), rules: []string{"other.example P / a"}},
	}), func(c *config.Config) {
		c.Agents = botAgents(second.Address)
		if found := c.Check(); len(found) > 0 {
			t.Error(found)
		}
	})
	said := map[string]bool{}
	for _, d := range e.result.Diagnostics {
		said[d.Object.Name] = d.Severity == diag.Error
	}
	if len(said) != 2 || !said["unknown"] || !said["other"] {
		t.Errorf("reported: %v", e.result.Diagnostics)
	}
	await(t, func() error { // TCP servers may be down until their first check
		if got := e.get(t, "closed.example", "/"); got.StatusCode != 200 {
			return fmt.Errorf("closed: %d", got.StatusCode)
		}
		return nil
	})
	for _, c := range []struct {
		host, agent string
		want        int
	}{
		{"closed", "browser", 200}, {"closed", "bot", 403}, {"closed", "word", 403}, {"closed", "silent", 503},
		{"open", "browser", 200}, {"open", "bot", 403}, {"open", "silent", 200}, {"both", "browser", 200}, {"both", "bot", 403},
		{"bare", "bot", 200}, {"unknown", "browser", 503}, {"other", "browser", 503},
	} {
		if got := e.get(t, c.host+".example", "/", "User-Agent: "+c.agent); got.StatusCode != c.want {
			t.Errorf("%s, %s: %d, want %d", c.host, c.agent, got.StatusCode, c.want)
		}
	}
	a.Messages()
	if got := e.send(t, false, post("closed", "/?p=1", "hello", 0, "User-Agent: browser", "Cookie: sid=7")); got.StatusCode != 200 {
		t.Errorf("with a body: %d", got.StatusCode)
	}
	var names []string
	for _, m := range a.Messages() {
		names = append(names, m.Name)
		text, _ := json.Marshal(m.Arguments)
		want := map[string]string{"ua": "browser", "sid": "7", "body": "hello", "p": "1", "route": "shop_a_80.closed", "tls": "false", "host": "closed.example"}
		if m.Name == "after" {
			want = map[string]string{"status": "200", "from": "server"}
		}
		for name, value := range want {
			if m.Text(name) != value {
				t.Errorf("%s: argument %s is %q of %s", m.Name, name, m.Text(name), text)
			}
		}
	}
	if fmt.Sprint(names) != "[check after]" {
		t.Errorf("the agent was told %v", names)
	}
	a.Stop()
	second.Stop()
	for host, want := range map[string]int{"closed": 503, "both": 503, "open": 200} {
		if got := e.get(t, host+".example", "/"); got.StatusCode != want {
			t.Errorf("without agents, %s: %d, want %d", host, got.StatusCode, want)
		}
	}
}
