package routingtest

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/snapshots/request"
)

// Several sets of Gateways share a HAProxy, since they are independent of each other.
const (
	gatewaySets     = 20
	requestsPerSet  = 100
	gatewayServices = 12
)

// Random Gateways and routes route as the specification says. They use few hosts and path elements, so that
// routes nest, shadow each other and share hosts.
func TestRandomGatewaysAgreeWithReference(t *testing.T) {
	t.Parallel()
	eachSeed(t, 3, 5, func(g generator) string {
		t := g.t
		var yaml strings.Builder
		yaml.WriteString("---\napiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {name: hapsnap}\nspec: {controllerName: hapsnap.dev/gateway-controller}\n")
		for n := range gatewayServices {
			name := fmt.Sprint("s", n)
			yaml.WriteString(serviceYAML("shop", name, echo(t, name)))
		}
		var sets []gatewaySet
		var ip string
		e := startEdited(t, func(cfg *config.Config) string {
			cfg.GatewayAPI.Enabled = true
			ip = cfg.Bind.Addresses[0]
			for n := range gatewaySets {
				sets = append(sets, g.gateways(n, func() int { return freePort(t, ip) }))
				yaml.WriteString(sets[n].yaml())
			}
			return yaml.String()
		})
		for _, d := range e.result.Diagnostics {
			if !strings.Contains(d.Message, "no listener takes requests for a host of the route") {
				t.Errorf("unexpected: %v", d)
			}
		}
		matched, wrong := 0, 0
		for _, s := range sets {
			m, w := compareGateways(t, e, ip, g, s)
			matched, wrong = matched+m, wrong+w
		}
		if t.Logf("%d requests, %d matched, %d wrong", gatewaySets*requestsPerSet, matched, wrong); matched < gatewaySets*requestsPerSet/4 {
			t.Error("the requests say little")
		}
		return yaml.String()
	})
}

// compareGateways sends random requests to the ports of a set. It returns how many matched a route, and how
// many got another answer than expected or explained.
func compareGateways(t *testing.T, e edge, ip string, g generator, s gatewaySet) (matched, wrong int) {
	t.Helper()
	clients := map[int]*client{}
	services, inTable := servicesOf(t, e.result.Draft.Files), listed(t, e.result.Draft.Files)
	for i := range requestsPerSet {
		r := g.gatewayRequest(s)
		if clients[r.port] == nil {
			clients[r.port] = &client{address: fmt.Sprint(ip, ":", r.port)}
		}
		want := s.expected(r)
		if want != "404" {
			matched++
		}
		if got := clients[r.port].request(t, r.String()); got != want {
			wrong++
			t.Errorf("%+v: %s, want %s", r, got, want)
		}
		if i%5 > 0 {
			continue
		}
		a, err := request.Led(e.result.Draft.Files, r.explained(), nil)
		if err != nil {
			t.Fatal(err)
		}
		inTable(a)
		if said := answererOf(a, services, func(string) int { return 1 }); said != want || len(a.Unsure) > 0 {
			wrong++
			t.Errorf("%+v: the explanation says %s, and is not sure of %v; want %s", r, said, a.Unsure, want)
		}
	}
	return matched, wrong
}

// request sends a request literally, and returns who answered.
func (c *client) request(t *testing.T, text string) string {
	t.Helper()
	if c.conn == nil {
		c.connect(t)
	}
	if _, err := io.WriteString(c.conn, text); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		t.Fatalf("read the response to %q: %v", text, err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Fatal(err)
	}
	if response.Close {
		c.conn, c.reader = net.Conn(nil), (*bufio.Reader)(nil)
	}
	return answer(response)
}

// gatewaySet is a set of Gateways with their routes. An empty host is none.
type gatewaySet struct {
	gateways []gatewayOf
	routes   []gatewayRoute
}

type gatewayOf struct {
	name      string
	listeners []gatewayListener
}

type gatewayListener struct {
	name, host string
	port       int
}

type gatewayRoute struct {
	name    string
	age     int
	parents []gatewayParent
	hosts   []string
	rules   []gatewayRule
}

type gatewayParent struct {
	gateway, section string
	port             int
}

type gatewayRule struct {
	matches []gatewayMatch
	service string
}

// gatewayMatch is a match of a route. An empty field matches everything. A value that begins with "^" is an
// expression.
type gatewayMatch struct{ kind, path, method, header, other, query string }

type gatewayRequest struct {
	port                                     int
	host, path, method, header, other, query string
}

// String returns the request as sent.
func (r gatewayRequest) String() string {
	return fmt.Sprintf("%s %s?q=%s HTTP/1.1\r\nHost: %s\r\nX-V: %s\r\nX-W: %s\r\nContent-Length: 0\r\n\r\n", r.method, r.path, r.query, r.host, r.header, r.other)
}

// explained returns the request in the form for an explanation.
func (r gatewayRequest) explained() request.Request {
	return request.Request{
		Port: r.port, Method: r.method, Host: r.host, Target: r.path + "?q=" + r.query,
		Headers: map[string][]string{"X-V": {r.header}, "X-W": {r.other}},
	}
}

func (g generator) gatewayHost() string {
	return g.pick("", "h.example", "a.h.example", "b.a.h.example", "*.h.example", "*.a.h.example", "*.example")
}

func (g generator) gateways(n int, port func() int) gatewaySet {
	var s gatewaySet
	for i := range 1 + g.IntN(2) {
		gw := gatewayOf{name: fmt.Sprintf("g%d-%d", n, i)}
		for range 1 + g.IntN(2) {
			at := port()
			used := map[string]bool{}
			for range 1 + g.IntN(4) {
				host := g.gatewayHost()
				if !used[host] {
					used[host] = true
					gw.listeners = append(gw.listeners, gatewayListener{fmt.Sprint("l", len(gw.listeners)), host, at})
				}
			}
		}
		s.gateways = append(s.gateways, gw)
	}
	for i := range 1 + g.IntN(9) {
		r := gatewayRoute{name: fmt.Sprintf("r%d-%d", n, i), age: g.IntN(3)}
		for range 1 + g.IntN(2) {
			gw := s.gateways[g.IntN(len(s.gateways))]
			p := gatewayParent{gateway: gw.name}
			l := gw.listeners[g.IntN(len(gw.listeners))]
			switch g.IntN(4) {
			case 0:
				p.section = l.name
			case 1:
				p.port = l.port
			}
			if !slices.Contains(r.parents, p) {
				r.parents = append(r.parents, p)
			}
		}
		for range g.IntN(3) {
			if host := g.gatewayHost(); host != "" && !slices.Contains(r.hosts, host) {
				r.hosts = append(r.hosts, host)
			}
		}
		for range 1 + g.IntN(3) {
			rule := gatewayRule{service: fmt.Sprint("s", g.IntN(gatewayServices))}
			for range g.IntN(3) {
				rule.matches = append(rule.matches, g.gatewayMatch())
			}
			r.rules = append(r.rules, rule)
		}
		s.routes = append(s.routes, r)
	}
	return s
}

func (g generator) gatewayMatch() gatewayMatch {
	m := gatewayMatch{kind: g.pick("PathPrefix", "PathPrefix", "PathPrefix", "Exact", "Exact", "RegularExpression")}
	switch m.kind {
	case "RegularExpression":
		m.path = g.pick("/a.*", "/./b", "/(a|b)/?", "/a/b/c")
	case "Exact":
		m.path = g.pick("/", "/a", "/a/", "/a/b", "/b")
	default:
		m.path = g.pick("/", "/", "/a", "/a/", "/a/b", "/b", "/a/b/c")
	}
	for _, field := range []*string{&m.header, &m.other, &m.query} {
		switch g.IntN(8) {
		case 0, 1:
			*field = g.pick("1", "2", "a b", "ü|#?")
		case 2:
			*field = g.pick("^[12]", "^a.b")
		}
	}
	if m.other != "" && g.one(2) {
		m.other = ""
	}
	if strings.ContainsAny(m.query, " ü") {
		m.query = "1"
	}
	if g.one(4) {
		m.method = g.pick("GET", "POST")
	}
	return m
}

func (g generator) gatewayRequest(s gatewaySet) gatewayRequest {
	gw := s.gateways[g.IntN(len(s.gateways))]
	return gatewayRequest{
		port: gw.listeners[g.IntN(len(gw.listeners))].port,
		host: g.pick("h.example", "a.h.example", "b.a.h.example", "c.b.a.h.example", "x.h.example", "X.A.h.example", "example", "x.example", "other", "h.example:8080", "h.example.", ".h.example"),
		path: g.pick("/", "/", "/a", "/a/", "/a/b", "/b", "/b/c", "/a/b/c", "/c", "/ab", "/a//b", "/%61"), method: g.pick("GET", "POST", "PUT"),
		header: g.pick("1", "2", "3", "a b", "ü|#?"), other: g.pick("1", "2", "3"), query: g.pick("1", "2", "3"),
	}
}

func (s gatewaySet) yaml() string {
	var b strings.Builder
	quoted := func(text string) string { return "'" + text + "'" }
	for _, gw := range s.gateways {
		fmt.Fprintf(&b, "---\napiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: %s, namespace: shop}\nspec:\n  gatewayClassName: hapsnap\n  listeners:\n", gw.name)
		for _, l := range gw.listeners {
			fmt.Fprintf(&b, "  - {name: %s, port: %d, protocol: HTTP", l.name, l.port)
			if l.host != "" {
				fmt.Fprintf(&b, ", hostname: %s", quoted(l.host))
			}
			b.WriteString("}\n")
		}
	}
	for _, r := range s.routes {
		fmt.Fprintf(&b, "---\napiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: %s, namespace: shop, creationTimestamp: %q}\nspec:\n  parentRefs:\n",
			r.name, time.Unix(int64(r.age)*1000, 0).UTC().Format(time.RFC3339))
		for _, p := range r.parents {
			fmt.Fprintf(&b, "  - {name: %s", p.gateway)
			if p.section != "" {
				fmt.Fprintf(&b, ", sectionName: %s", p.section)
			}
			if p.port != 0 {
				fmt.Fprintf(&b, ", port: %d", p.port)
			}
			b.WriteString("}\n")
		}
		if len(r.hosts) > 0 {
			b.WriteString("  hostnames:\n")
			for _, h := range r.hosts {
				fmt.Fprintf(&b, "  - %s\n", quoted(h))
			}
		}
		b.WriteString("  rules:\n")
		for _, rule := range r.rules {
			fmt.Fprintf(&b, "  - backendRefs: [{name: %s, port: 80}]\n", rule.service)
			if len(rule.matches) > 0 {
				b.WriteString("    matches:\n")
			}
			for _, m := range rule.matches {
				fmt.Fprintf(&b, "    - path: {type: %s, value: %s}\n", m.kind, quoted(m.path))
				if m.method != "" {
					fmt.Fprintf(&b, "      method: %s\n", m.method)
				}
				list := func(field string, pairs ...string) {
					var entries []string
					for i := 0; i < len(pairs); i += 2 {
						kind, value := "Exact", pairs[i+1]
						if strings.HasPrefix(value, "^") {
							kind, value = "RegularExpression", value[1:]
						}
						if value != "" {
							entries = append(entries, fmt.Sprintf("{type: %s, name: %s, value: %s}", kind, pairs[i], quoted(value)))
						}
					}
					if len(entries) > 0 {
						fmt.Fprintf(&b, "      %s: [%s]\n", field, strings.Join(entries, ", "))
					}
				}
				list("headers", "X-V", m.header, "x-w", m.other)
				list("queryParams", "q", m.query)
			}
		}
	}
	return b.String()
}

// expected applies the text of the specification to a request. It chooses the listener by hostname, and then
// the best match of the attached routes.
func (s gatewaySet) expected(r gatewayRequest) string {
	host := gatewayRequestHost(r.host)
	gw, l := s.listener(r.port, host)
	if l == nil {
		return "404"
	}
	type candidate struct {
		rank    []int
		route   string
		service string
	}
	var all []candidate
	for _, route := range s.routes {
		if !slices.ContainsFunc(route.parents, func(p gatewayParent) bool {
			return p.gateway == gw && (p.section == "" || p.section == l.name) && (p.port == 0 || p.port == l.port)
		}) {
			continue
		}
		specific := -1
		if len(route.hosts) == 0 {
			specific = 0
		}
		for _, h := range route.hosts {
			if gatewayTakes(h, host) {
				specific = max(specific, gatewaySpecific(h))
			}
		}
		if specific < 0 {
			continue
		}
		for n, rule := range route.rules {
			matches := rule.matches
			if len(matches) == 0 {
				matches = []gatewayMatch{{kind: "PathPrefix", path: "/"}}
			}
			for _, m := range matches {
				if m.takes(r) {
					all = append(all, candidate{append(append([]int{-specific}, m.rank()...), route.age), route.name, rule.service})
					all[len(all)-1].rank = append(all[len(all)-1].rank, n)
				}
			}
		}
	}
	if len(all) == 0 {
		return "404"
	}
	slices.SortStableFunc(all, func(a, b candidate) int {
		last := len(a.rank) - 1
		return cmp.Or(slices.Compare(a.rank[:last], b.rank[:last]), cmp.Compare(a.route, b.route), cmp.Compare(a.rank[last], b.rank[last]))
	})
	return all[0].service
}

// gatewayRequestHost returns the host as listeners see it: without port, and in lower case. A host that begins
// with a dot is not a name, and only a listener without a hostname takes it.
func gatewayRequestHost(host string) string {
	host, _, _ = strings.Cut(strings.ToLower(host), ":")
	return strings.TrimSuffix(host, ".")
}

// listener returns the listener of a port with the most specific hostname that takes a host.
func (s gatewaySet) listener(port int, host string) (gateway string, found *gatewayListener) {
	for _, gw := range s.gateways {
		for _, l := range gw.listeners {
			if l.port == port && gatewayTakes(l.host, host) && (found == nil || gatewaySpecific(l.host) > gatewaySpecific(found.host)) {
				gateway, found = gw.name, &l
			}
		}
	}
	return gateway, found
}

// gatewayTakes reports whether a hostname takes a host: "*." stands for one label or more.
func gatewayTakes(hostname, host string) bool {
	suffix, wild := strings.CutPrefix(hostname, "*")
	switch {
	case hostname == "":
		return true
	case wild:
		return strings.HasSuffix(host, suffix) && !strings.HasPrefix(host, ".")
	}
	return hostname == host
}

// gatewaySpecific returns a rank that is higher for hostnames without a wildcard, and then for longer ones.
func gatewaySpecific(hostname string) int {
	if hostname == "" || strings.HasPrefix(hostname, "*") {
		return len(hostname)
	}
	return 1000 + len(hostname)
}

func (m gatewayMatch) takes(r gatewayRequest) bool {
	path := plainest(r.path)
	switch m.kind {
	case "Exact":
		if path != m.path {
			return false
		}
	case "PathPrefix":
		if !strings.HasPrefix(path+"/", strings.TrimSuffix(m.path, "/")+"/") {
			return false
		}
	case "RegularExpression":
		if !regexp.MustCompile("^(?:" + m.path + ")$").MatchString(path) {
			return false
		}
	}
	is := func(want, got string) bool {
		if expression, ok := strings.CutPrefix(want, "^"); ok {
			return regexp.MustCompile("^(?:" + expression + ")$").MatchString(got)
		}
		return want == "" || want == got
	}
	return (m.method == "" || m.method == r.method) && is(m.header, r.header) && is(m.other, r.other) && is(m.query, r.query)
}

// rank returns the rank of a match in the order of the specification, where lower wins. The specification
// leaves the rank of expressions open: here it is between exact paths and prefixes.
func (m gatewayMatch) rank() []int {
	kind := slices.Index([]string{"Exact", "RegularExpression", "PathPrefix"}, m.kind)
	length := 0
	if m.kind == "PathPrefix" {
		length = -len(strings.TrimSuffix(m.path, "/"))
	}
	count := func(values ...string) (n int) {
		for _, v := range values {
			if v != "" {
				n--
			}
		}
		return n
	}
	return []int{kind, length, count(m.method), count(m.header, m.other), count(m.query)}
}
