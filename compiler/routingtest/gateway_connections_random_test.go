package routingtest

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/gateway"
	"github.com/hapsnap/hapsnap/snapshots/request"
)

// anyServer starts a server for HTTP requests and for other connections, with or without TLS. To the latter it
// answers with its name and whether TLS was used.
func anyServer(t *testing.T, name string) int {
	t.Helper()
	certificate, key := keyPair(t, name)
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	return rawServer(t, func(c net.Conn) { answerAny(c, name, &tls.Config{Certificates: []tls.Certificate{pair}}) })
}

func answerAny(c net.Conn, name string, cfg *tls.Config) {
	defer c.Close()
	r := bufio.NewReader(c)
	first, err := r.Peek(1)
	if err != nil {
		return
	}
	how := "plain"
	if first[0] == 0x16 {
		how, c = "tls", tls.Server(&buffered{c, r}, cfg)
		r = bufio.NewReader(c)
	}
	line, err := r.ReadString('\n')
	if err != nil {
		return
	}
	if !strings.HasPrefix(line, "GET ") {
		fmt.Fprintf(c, "%s/%s\n", name, how)
		return
	}
	for line != "\r\n" && err == nil {
		line, err = r.ReadString('\n')
	}
	fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nX-Echo: %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", name)
}

// connectionSet is a random set of Gateways with listeners for connections and for requests.
type connectionSet struct {
	listeners []connectionListener
	routes    []connectionRoute
}

// connectionListener is a listener of the Gateway. Its kind is TCP, HTTPS, or the mode of TLS.
type connectionListener struct {
	name, host, kind string
	port             int
}

func (l connectionListener) routeKind() string {
	return map[string]string{"TCP": "TCPRoute", "HTTPS": "HTTPRoute", "Passthrough": "TLSRoute", "Terminate": "TLSRoute"}[l.kind]
}

type connectionRoute struct {
	name, kind string
	age        int
	section    string // of the parentRef
	port       int
	hosts      []string
	backends   []string
}

const connectionSets = 12

// Random Gateways route connections as the specification says: by SNI to listeners that pass TLS on, terminate
// it or serve HTTPS, and otherwise by the port alone.
func TestRandomConnectionsAgreeWithReference(t *testing.T) {
	t.Parallel()
	eachSeed(t, 3, 7, func(g generator) string {
		t := g.t
		var yaml strings.Builder
		yaml.WriteString(gatewayClass + secretOf(t, "certificate") + "---\napiVersion: v1\nkind: Service\nmetadata: {namespace: shop, name: empty}\nspec: {ports: [{port: 80}]}\n")
		for n := range 6 {
			name := fmt.Sprint("s", n)
			yaml.WriteString(serviceYAML("shop", name, anyServer(t, name)))
		}
		yaml.WriteString(serviceYAML("other", "foreign", anyServer(t, "foreign")))
		var sets []connectionSet
		var ip string
		e := startEdited(t, func(cfg *config.Config) string {
			cfg.GatewayAPI.Enabled = true
			ip = cfg.Bind.Addresses[0]
			for n := range connectionSets {
				sets = append(sets, g.connections(n, func() int { return freePort(t, ip) }))
				yaml.WriteString(sets[n].yaml(n))
			}
			return yaml.String()
		})
		for _, d := range e.result.Diagnostics {
			if !slices.ContainsFunc([]string{"the route is not attached to", "does not exist", "no ReferenceGrant"}, func(s string) bool { return strings.Contains(d.Message, s) }) {
				t.Errorf("unexpected: %v", d)
			}
		}
		served, services := 0, servicesOf(t, e.result.Draft.Files)
		for n, s := range sets {
			s.judge(t, e, n)
			for range 40 {
				l := s.listeners[g.IntN(len(s.listeners))]
				sni := ""
				if l.kind != "TCP" {
					sni = g.pick("", "h.example", "a.h.example", "b.a.h.example", "c.b.a.h.example", "x.h.example", "X.A.h.example", "x.example", "other")
				}
				want, https := s.expected(l.port, sni)
				if !slices.Contains(want, "closed") && !slices.Contains(want, "404") {
					served++
				}
				if got := explainedAs(t, e, services, l.port, sni, l.kind != "TCP"); len(want) == 1 && got != want[0] {
					t.Errorf("set %d, port %d, SNI %q: %s by the explanation, want %v", n, l.port, sni, got, want)
				}
				if got := connectAs(t, fmt.Sprint(ip, ":", l.port), sni, l.kind != "TCP", https); !slices.Contains(want, got) {
					t.Errorf("set %d, port %d, SNI %q: %s, want %v", n, l.port, sni, got, want)
				}
			}
		}
		if t.Logf("%d of %d connections served", served, connectionSets*40); served < connectionSets*40/5 {
			t.Error("the connections say little")
		}
		return yaml.String()
	})
}

// explainedAs returns who answers a connection according to its explanation.
func explainedAs(t *testing.T, e edge, services map[string][]string, port int, sni string, encrypted bool) string {
	t.Helper()
	usable := func(backend string) int {
		return len(slices.DeleteFunc(slices.Clone(services[backend]), func(name string) bool { return name == "empty" }))
	}
	host := sni
	if host == "" {
		host = "192.0.2.1" // no client sends an address as SNI
	}
	a, err := request.Led(e.result.Draft.Files, request.Request{TLS: encrypted, Port: port, Method: "GET", Host: host, Target: "/"}, usable)
	switch {
	case err != nil:
		t.Fatal(err)
	case a.Closed:
		return "closed"
	case a.Status != 0:
		return fmt.Sprint(a.Status)
	case len(services[a.Backend]) == 0:
		return fmt.Sprintf("%+v", a)
	}
	how := ""
	switch {
	case a.PassedOn && encrypted:
		how = "/tls"
	case strings.HasSuffix(a.Backend, ":tcp"):
		how = "/plain"
	}
	return services[a.Backend][0] + how
}

// connectAs makes a connection, with or without TLS, and returns who answers.
func connectAs(t *testing.T, address, sni string, encrypted, asks bool) string {
	t.Helper()
	c := dialFrom(t, "127.0.0.1", address)
	defer c.Close()
	if encrypted {
		secure := askTLS(c, sni, nil)
		if err := secure.(*tls.Conn).HandshakeContext(t.Context()); err != nil {
			return closedBy(err)
		}
		c = secure
	}
	r := bufio.NewReader(c)
	if asks {
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", or(sni, "none"))
		response, err := http.ReadResponse(r, nil)
		if err != nil {
			return closedBy(err)
		}
		response.Body.Close()
		return answer(response)
	}
	fmt.Fprintln(c, "ping")
	line, err := r.ReadString('\n')
	if err != nil {
		return closedBy(err)
	}
	return strings.TrimSpace(line)
}

// closedBy distinguishes a closed connection from one that times out.
func closedBy(err error) string {
	var slow net.Error
	if errors.As(err, &slow) && slow.Timeout() {
		return "no answer"
	}
	return "closed"
}

func (g generator) connections(n int, port func() int) connectionSet {
	var s connectionSet
	for range 1 + g.IntN(3) {
		at := port()
		if g.one(4) {
			s.listeners = append(s.listeners, connectionListener{fmt.Sprint("l", len(s.listeners)), "", "TCP", at})
			continue
		}
		used := map[string]bool{}
		kinds := [][]string{{"Passthrough"}, {"Terminate"}, {"Passthrough", "Terminate"}, {"Passthrough", "HTTPS"}, {"Passthrough", "Terminate", "HTTPS"}}[g.IntN(5)]
		for range 1 + g.IntN(4) {
			host := g.gatewayHost()
			if used[host] {
				continue
			}
			used[host] = true
			s.listeners = append(s.listeners, connectionListener{fmt.Sprint("l", len(s.listeners)), host, g.pick(kinds...), at})
		}
	}
	for i := range 2 + g.IntN(8) {
		l := s.listeners[g.IntN(len(s.listeners))]
		r := connectionRoute{name: fmt.Sprintf("r%d-%d", n, i), kind: l.routeKind(), age: g.IntN(3), backends: []string{fmt.Sprint("s", g.IntN(6))}}
		switch g.IntN(4) {
		case 0:
			r.section = l.name
		case 1:
			r.port = l.port
		}
		switch g.IntN(6) {
		case 0:
			r.backends = []string{g.pick("gone", "empty", "foreign", "none")}
		case 1:
			r.backends = append(r.backends, "s5", "gone")
		}
		if r.kind != "TCPRoute" {
			for len(r.hosts) == 0 || g.one(2) {
				if host := g.gatewayHost(); host != "" && !slices.Contains(r.hosts, host) {
					r.hosts = append(r.hosts, host)
				}
			}
		}
		s.routes = append(s.routes, r)
	}
	return s
}

func (s connectionSet) yaml(n int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "---\napiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: g%d, namespace: shop}\nspec:\n  gatewayClassName: hapsnap\n  listeners:\n", n)
	for _, l := range s.listeners {
		fmt.Fprintf(&b, "  - {name: %s, port: %d, hostname: '%s', ", l.name, l.port, l.host)
		switch l.kind {
		case "TCP":
			b.WriteString("protocol: TCP}\n")
		case "HTTPS":
			b.WriteString("protocol: HTTPS, tls: {certificateRefs: [{name: certificate}]}}\n")
		case "Passthrough":
			b.WriteString("protocol: TLS, tls: {mode: Passthrough}}\n")
		default:
			b.WriteString("protocol: TLS, tls: {mode: Terminate, certificateRefs: [{name: certificate}]}}\n")
		}
	}
	for _, r := range s.routes {
		fmt.Fprintf(&b, "---\napiVersion: gateway.networking.k8s.io/v1\nkind: %s\nmetadata: {name: %s, namespace: shop, creationTimestamp: %q}\nspec:\n  parentRefs: [{name: g%d",
			r.kind, r.name, time.Unix(int64(r.age)*1000, 0).UTC().Format(time.RFC3339), n)
		if r.section != "" {
			fmt.Fprintf(&b, ", sectionName: %s", r.section)
		}
		if r.port != 0 {
			fmt.Fprintf(&b, ", port: %d", r.port)
		}
		b.WriteString("}]\n")
		if len(r.hosts) > 0 {
			fmt.Fprintf(&b, "  hostnames: ['%s']\n", strings.Join(r.hosts, "', '"))
		}
		b.WriteString("  rules:\n  - backendRefs:\n")
		for _, to := range r.backends {
			switch to {
			case "foreign":
				b.WriteString("    - {name: foreign, namespace: other, port: 80}\n")
			case "none":
				b.WriteString("    - {name: s0, port: 80, weight: 0}\n")
			default:
				fmt.Fprintf(&b, "    - {name: %s, port: 80}\n", to)
			}
		}
	}
	return b.String()
}

// names reports whether the parentRef of a route names a listener whose kind of routes it is.
func (r connectionRoute) names(l connectionListener) bool {
	return (r.section == "" || r.section == l.name) && (r.port == 0 || r.port == l.port) && r.kind == l.routeKind()
}

// expected applies the text of the specification to a connection. It chooses the listener by hostname, and then
// among its routes the one with the most specific hostname, and then the oldest. It returns the possible
// answers, and whether the connection has to carry a request.
func (s connectionSet) expected(port int, sni string) (who []string, request bool) {
	sni = strings.ToLower(sni)
	var listener *connectionListener
	onlyRequests := true // then TLS ends before it is known that no listener matches
	for _, l := range s.listeners {
		onlyRequests = onlyRequests && (l.port != port || l.kind == "HTTPS")
		if l.port == port && gatewayTakes(l.host, sni) && (listener == nil || gatewaySpecific(l.host) > gatewaySpecific(listener.host)) {
			listener = &l
		}
	}
	if listener == nil && onlyRequests {
		return []string{"404"}, true
	}
	if listener == nil {
		return []string{"closed"}, false
	}
	request = listener.kind == "HTTPS"
	host := sni
	if request {
		host = or(sni, "none")
	}
	var best *connectionRoute
	specific := func(r connectionRoute) int {
		most := -1
		if r.kind == "TCPRoute" {
			most = 0
		}
		for _, h := range r.hosts {
			if gatewayTakes(h, host) {
				most = max(most, gatewaySpecific(h))
			}
		}
		return most
	}
	for _, r := range s.routes {
		if !r.names(*listener) || specific(r) < 0 {
			continue
		}
		if best == nil || specific(r) > specific(*best) || specific(r) == specific(*best) && (r.age < best.age || r.age == best.age && r.name < best.name) {
			best = &r
		}
	}
	if best == nil && request {
		return []string{"404"}, true
	}
	if best == nil {
		return []string{"closed"}, false
	}
	for _, to := range best.backends {
		how := map[string]string{"HTTPS": "", "Passthrough": "/tls", "Terminate": "/plain", "TCP": "/plain"}[listener.kind]
		switch {
		case strings.HasPrefix(to, "s"):
			who = append(who, to+how)
		case !request:
			who = append(who, "closed")
		case to == "empty":
			who = append(who, "503")
		default:
			who = append(who, "500")
		}
	}
	return who, request
}

// judge compares the status of a set with the expected one.
func (s connectionSet) judge(t *testing.T, e edge, n int) {
	t.Helper()
	attached := map[string]int32{}
	reasons := map[string]string{}
	for _, r := range s.routes {
		why := gatewayv1.RouteReasonNoMatchingParent
		for _, l := range s.listeners {
			switch {
			case r.section != "" && r.section != l.name || r.port != 0 && r.port != l.port:
			case r.kind != l.routeKind():
				if why == gatewayv1.RouteReasonNoMatchingParent {
					why = gatewayv1.RouteReasonNotAllowedByListeners
				}
			case r.kind != "TCPRoute" && !slices.ContainsFunc(r.hosts, func(h string) bool { return gatewayIntersect(l.host, h) }):
				if why != gatewayv1.RouteReasonAccepted {
					why = gatewayv1.RouteReasonNoMatchingListenerHostname
				}
			default:
				why = gatewayv1.RouteReasonAccepted
				attached[l.name]++
			}
		}
		reasons[r.name] = string(why)
	}
	for _, v := range e.result.Verdicts.Routes {
		if want, is := reasons[v.Ref.Name]; is {
			if c := gateway.Condition(v.Parents[0].Conditions, "Accepted"); c.Reason != want {
				t.Errorf("%v: %+v, want %s", v.Ref, c, want)
			}
		}
	}
	for _, v := range e.result.Verdicts.Gateways {
		for _, l := range v.Status.Listeners {
			if want := attached[string(l.Name)]; v.Ref.Name == fmt.Sprint("g", n) && l.AttachedRoutes != want {
				t.Errorf("%v, listener %s: %d routes attached, want %d", v.Ref, l.Name, l.AttachedRoutes, want)
			}
		}
	}
}

// gatewayIntersect reports whether two hostnames have a host in common.
func gatewayIntersect(a, b string) bool {
	sample := func(h string) string { return strings.Replace(h, "*", "sample", 1) }
	return a == "" || gatewayTakes(a, sample(b)) || gatewayTakes(b, sample(a))
}
