package routingtest

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// The seeds are fixed, so that a failure can be reproduced: -run 'Reference/seed_3$'.
const (
	seeds           = 12
	requestsPerSeed = 500
)

// Random rules are routed as the table says. They use few hosts and path elements, so that rules nest, shadow
// each other and conflict.
func TestRandomRulesAgreeWithReference(t *testing.T) {
	t.Parallel()
	services := randomServices(t)
	eachSeed(t, seeds, 0, func(g generator) string {
		t := g.t
		ingresses := g.ingresses()
		yaml := all(ingresses)
		compare(t, start(t, services+yaml), g, ingresses)
		return yaml
	})
}

// eachSeed runs a subtest for each of the first seeds. stream gives each test random numbers of its own. test
// returns its rules, which are shown if it fails.
func eachSeed(t *testing.T, seeds, stream uint64, test func(g generator) (rules string)) {
	t.Helper()
	for seed := range seeds {
		t.Run(fmt.Sprint("seed_", seed), func(t *testing.T) {
			t.Parallel()
			rules := test(generator{t, rand.New(rand.NewPCG(seed, stream))})
			if t.Failed() {
				t.Logf("rules:\n%s", rules)
			}
		})
	}
}

// compare sends random requests over one connection without TLS and one with it. It fails if the requests reach
// hardly anything but the default.
func compare(t *testing.T, e edge, g generator, ingresses []ingress) {
	t.Helper()
	clients := []*client{{address: e.http}, {address: e.https, secure: true}}
	reached := map[string]int{}
	for n := range requestsPerSeed {
		host, target := g.host(), g.target(ingresses)
		want := expected(ingresses, host, target)
		reached[want]++
		if got := clients[n%2].ask(t, host, target); got != want {
			t.Errorf("Host %q, target %q, TLS %v: %s, want %s", host, target, clients[n%2].secure, got, want)
		}
	}
	if len(reached) < 5 || reached["404"] > requestsPerSeed*3/4 {
		t.Errorf("the requests say little: %v", reached)
	}
}

// randomServices returns the Services from which [generator.service] chooses, except "gone".
func randomServices(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, namespace := range []string{"shop", "other"} {
		for n := range 4 {
			name := fmt.Sprint(namespace, n)
			b.WriteString(serviceYAML(namespace, name, echo(t, name)))
		}
		fmt.Fprintf(&b, "---\napiVersion: v1\nkind: Service\nmetadata: {namespace: %s, name: empty}\nspec: {ports: [{port: 80}]}\n", namespace)
	}
	return b.String()
}

type generator struct {
	t *testing.T
	*rand.Rand
}

func (g generator) pick(from ...string) string { return from[g.IntN(len(from))] }

// one is true once in n times.
func (g generator) one(n int) bool { return g.IntN(n) == 0 }

func (g generator) ingresses() []ingress {
	out := make([]ingress, 3+g.IntN(6))
	for n := range out {
		i := ingress{namespace: g.pick("shop", "other"), name: fmt.Sprint("i", n), age: g.IntN(3)}
		for range 1 + g.IntN(8) {
			i.rules = append(i.rules, g.rule(i.namespace))
		}
		if g.one(6) {
			i.fallback = g.service(i.namespace)
		}
		out[n] = i
	}
	g.Shuffle(len(out), func(a, b int) { out[a], out[b] = out[b], out[a] })
	return out
}

func (g generator) rule(namespace string) string {
	host := g.pick("-", "-", "h.example", "a.h.example", "b.a.h.example", "*.h.example", "*.a.h.example", "example", "*.example")
	if host != "-" && g.one(12) {
		return host
	}
	kind, path := g.pick("E", "P", "P", "I"), g.path()
	if kind == "I" && g.one(4) {
		path = "-"
	}
	return strings.Join([]string{host, kind, path, g.service(namespace)}, " ")
}

// service returns the name of a Service of a namespace, or in one of ten cases one without endpoints.
func (g generator) service(namespace string) string {
	if g.one(10) {
		return g.pick("empty", "gone")
	}
	return fmt.Sprint(namespace, g.IntN(4))
}

// path returns a path of up to three elements, with or without a slash at the end.
func (g generator) path() string {
	var b strings.Builder
	for range g.IntN(4) {
		b.WriteString("/" + g.pick("a", "a", "b", "ab", "A", "a.b", "a%20", "h.example", "(+|*"))
	}
	if b.Len() == 0 || g.one(3) {
		b.WriteString("/")
	}
	return b.String()
}

// host returns a host for a request, which is equal or similar to those of rules.
func (g generator) host() string {
	host := g.pick("h.example", "a.h.example", "b.a.h.example", "x.h.example", "x.a.h.example", "y.x.h.example", "example", "x.example",
		"unknown.host", "localhost", "10.0.0.1", "[::1]", "", ".h.example", "ah.example")
	switch g.IntN(6) {
	case 0:
		host = strings.ToUpper(host)
	case 1:
		host += ":8080"
	case 2:
		if strings.HasSuffix(host, "example") {
			host += "."
		}
	}
	return host
}

// target returns the target of a request: mostly the path of a rule, with a small change.
func (g generator) target(ingresses []ingress) string {
	rules := ingresses[g.IntN(len(ingresses))].rules
	path := g.path()
	if words := strings.Fields(rules[g.IntN(len(rules))]); len(words) == 4 && words[2] != "-" && !g.one(4) {
		path = words[2]
	}
	switch g.IntN(10) {
	case 0:
		return path + "/"
	case 1:
		return path + "x"
	case 2:
		return path + g.path()
	case 3:
		return strings.ToUpper(path)
	case 4:
		return "/" + path
	case 5:
		return path + "?q=" + g.path()
	case 6:
		return or(strings.TrimSuffix(path, "/"), "/")
	}
	return path
}

// client sends requests over one connection as long as the server keeps it.
type client struct {
	address string
	secure  bool
	conn    net.Conn
	reader  *bufio.Reader
}

// ask sends a request with a literal host and target, and with more header lines.
func (c *client) ask(t *testing.T, host, target string, lines ...string) string {
	t.Helper()
	if c.conn == nil {
		c.connect(t)
	}
	if _, err := fmt.Fprintf(c.conn, "GET %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", target, host, strings.Join(lines, "")); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(c.reader, &http.Request{Method: http.MethodGet})
	if err != nil {
		t.Fatalf("read the response to %s of %s: %v", target, host, err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Fatal(err)
	}
	if response.Close {
		c.conn = nil // the connection is closed when the test ends
	}
	return answer(response)
}

func (c *client) connect(t *testing.T) {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", c.address)
	if err != nil {
		t.Fatal(err)
	}
	if c.secure {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(deadline)); err != nil {
		t.Fatal(err)
	}
	c.conn, c.reader = conn, bufio.NewReader(conn)
}

// Random canaries get requests only from their own rules.
func TestRandomCanariesAgreeWithReference(t *testing.T) {
	t.Parallel()
	services := randomServices(t)
	eachSeed(t, seeds/2, 1, func(g generator) string {
		t := g.t
		ingresses := g.ingresses()
		canaries := g.canaries(ingresses)
		yaml := all(ingresses) + all(canaries)
		compareCanaries(t, start(t, services+yaml), g, ingresses, canaries)
		return yaml
	})
}

func compareCanaries(t *testing.T, e edge, g generator, ingresses, canaries []ingress) {
	t.Helper()
	c := client{address: e.http}
	shared := 0
	for range requestsPerSeed {
		host, target := g.host(), g.target(ingresses)
		said := g.pick("always", "never", "else")
		want := expectedCanary(ingresses, canaries, host, target, said)
		if want != expected(ingresses, host, target) {
			shared++
		}
		if got := c.ask(t, host, target, "X-Canary: "+said+"\r\n"); got != want {
			t.Errorf("Host %q, target %q, header %s: %s, want %s", host, target, said, got, want)
		}
	}
	if shared < 10 {
		t.Errorf("the requests say little: %d for canaries", shared)
	}
}

// canaries returns random canaries for the rules of Ingresses. Half of them get all requests whose header does
// not decide.
func (g generator) canaries(ingresses []ingress) []ingress {
	var out []ingress
	for _, i := range ingresses {
		for _, rule := range i.rules {
			words := strings.Fields(rule)
			if len(words) != 4 || g.one(3) {
				continue
			}
			options := []string{"canary-by-header", "X-Canary"}
			if g.one(2) {
				options = append(options, "canary-weight", "100")
			}
			words[3] = g.service(i.namespace)
			c := canaryOf(fmt.Sprint("c", len(out)), []string{strings.Join(words, " ")}, options...)
			c.namespace, c.age = i.namespace, g.IntN(3)
			out = append(out, c)
		}
	}
	return out
}

// expectedCanary is expected with canaries, for a request with said in its header.
func expectedCanary(ingresses, canaries []ingress, host, target, said string) string {
	main, ok := ruleFor(ingresses, host, target)
	if !ok || main.service == "gone" {
		return expected(ingresses, host, target)
	}
	for _, c := range slices.SortedFunc(slices.Values(canaries), older) {
		rule := rulesOf([]ingress{c}, main.host)
		if len(rule) == 0 || !sameRoute(rule[0], main) || rule[0].service == "gone" || rule[0].service == main.service {
			continue
		}
		switch own, weighted := rule[0].service, strings.Contains(c.annotations, "canary-weight"); {
		case said == "always" && own != "empty", said == "else" && weighted:
			return answerOf(own)
		case said == "always" && weighted: // the canary has no servers for its weight either
			return "503"
		}
		return answerOf(main.service)
	}
	return answerOf(main.service)
}

// sameRoute reports whether two rules of a host match the same requests.
func sameRoute(a, b referenceRule) bool {
	path := func(r referenceRule) string { return strings.TrimSuffix(strings.TrimPrefix(r.path, "-"), "/") }
	if a.namespace != b.namespace || (a.kind == "E") != (b.kind == "E") {
		return false
	}
	return a.path == b.path || (a.kind != "E" && path(a) == path(b))
}
