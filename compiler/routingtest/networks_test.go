package routingtest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
)

// lists returns a ConfigMap with keys and values, given in pairs.
func lists(namespace, name string, pairs ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: %s, name: %s}\ndata:\n", namespace, name)
	for i := 0; i < len(pairs); i += 2 {
		fmt.Fprintf(&b, "  %s: %q\n", pairs[i], pairs[i+1])
	}
	return b.String()
}

// country returns a long list of networks, of both families.
func country(more string) string {
	var b strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&b, "10.%d.%d.0/24\n2001:db8:%x::/48\n", i>>8, i&255, i)
	}
	return b.String() + more
}

func TestNetworkLists(t *testing.T) {
	t.Parallel()
	yaml := serviceYAML("shop", "a", mirror(t, "a", nil)) +
		lists("shop", "net.works", "here", "# of the tests\n127.0.0.0/8, ::1 # and more\n", "there", "10.0.0.0/8", "nobody", "# none\n") +
		lists("edge", "countries", "DE", country("127.0.0.0/8\n"), "FR", country(""))
	yaml += all([]ingress{
		optioned("here", "allow-list", "@net.works/here"),
		optioned("there", "allow-list", "@net.works/there"),
		optioned("both", "allow-list", "192.0.2.0/24, @net.works/there, @shop/net.works/here"),
		optioned("nobody", "allow-list", "@net.works/nobody"),
		optioned("none-denied", "deny-list", "@net.works/nobody"),
		optioned("de", "deny-list", "@edge/countries/DE"),
		optioned("fr", "deny-list", "@edge/countries/FR"),
		optioned("again", "allow-list", "@edge/countries/DE"),
		optioned("limited", "rate-limit", "1", "rate-limit-period", "1h", "rate-limit-exempt", "@net.works/there"),
		optioned("exempt", "rate-limit", "1", "rate-limit-period", "1h", "rate-limit-exempt", "@net.works/here"),
	})
	e := startWith(t, yaml, func(c *config.Config) { c.Shared.NetworkLists = []string{"edge/countries"} })
	clean(t, e)
	for host, want := range map[string]int{
		"here": 200, "there": 403, "both": 200, "nobody": 403, "none-denied": 200, "de": 403, "fr": 200, "again": 200, "limited": 429, "exempt": 200,
	} {
		e.get(t, host+".example", "/")
		if got := e.get(t, host+".example", "/"); got.StatusCode != want {
			t.Errorf("%s: %d, want %d", host, got.StatusCode, want)
		}
	}
	if n := len(e.result.Artifact.Files); n != 1+7+2+5 { // haproxy.cfg; maps; crt-list and scripts; lists
		t.Errorf("%d files", n)
	}
}

// A list that cannot be read closes the routes that name it, and no others.
func TestNetworkListsFailClosed(t *testing.T) {
	t.Parallel()
	yaml := serviceYAML("shop", "a", mirror(t, "a", nil)) + serviceYAML("shop", "s", mirror(t, "s", nil)) +
		lists("shop", "networks", "good", "127.0.0.0/8", "bad", "127.0.0.0/8\n10.0.0.1/8\nnowhere\n") + lists("edge", "secret", "good", "127.0.0.0/8")
	yaml = strings.Replace(yaml, "name: s}\nspec", "name: s, annotations: {hapsnap.dev/allow-list: '@gone/x'}}\nspec", 1)
	service := ingress{name: "service", rules: []string{"service.example P / s"}}
	e := start(t, yaml+all([]ingress{
		optioned("good", "allow-list", "@networks/good"),
		optioned("bad", "deny-list", "@networks/bad"),
		optioned("gone", "allow-list", "@gone/x"),
		optioned("key", "allow-list", "127.0.0.0/8, @networks/gone"),
		optioned("other", "allow-list", "@edge/secret/good"),
		optioned("exempt", "rate-limit", "1000", "rate-limit-exempt", "@networks/bad"),
		service,
	}))
	said := map[string]string{}
	for _, d := range e.result.Diagnostics {
		if d.Severity == diag.Error {
			said[d.Object.Kind+" "+d.Object.Name] += d.String() + "\n"
		}
	}
	for object, want := range map[string]string{
		"Ingress bad":  "annotation hapsnap.dev/deny-list: list shop/networks/bad is malformed; the routes that it protects answer 503",
		"Ingress gone": "ConfigMap shop/gone does not exist", "Ingress key": "has no key gone", "Ingress other": "does not share it",
		"Ingress exempt": "rate-limit-exempt: list shop/networks/bad is malformed", "Service s": "ConfigMap shop/gone does not exist",
		"ConfigMap networks": `key bad, line 2: "10.0.0.1/8" has bits beyond its length, and 1 more are wrong; the routes that are protected by this list answer 503`,
	} {
		if !strings.Contains(said[object], want) {
			t.Errorf("%s: want %q, got %q", object, want, said[object])
		}
	}
	for host, want := range map[string]int{"good": 200, "bad": 503, "gone": 503, "key": 503, "other": 503, "exempt": 503, "service": 503} {
		if got := e.get(t, host+".example", "/"); got.StatusCode != want {
			t.Errorf("%s: %d, want %d", host, got.StatusCode, want)
		}
	}
}

// The smallest network that contains an address decides.
const (
	countries4 = "127.0.0.0/8 FR\n127.0.1.0/24 DE\n127.0.2.0/24 US-CA\n127.0.3.0/24 US-NY\n198.51.100.0/24 DE\n203.0.113.0/24 AT\n"
	countries6 = "2001:db8::/32 IT\n2001:db8:7::/48 DE\n"
)

func withCountries(c *config.Config) {
	c.Countries = config.Countries{ConfigMaps: []string{"edge/countries"}, Header: "X-Country"}
	c.Forwarded = config.Forwarded{Policy: config.AppendForwarded, Trusted: []string{trustedProxy}, ClientAddress: config.AddressInHeader}
}

func TestCountries(t *testing.T) {
	t.Parallel()
	inside, own := ownTLS(t, "inside", "pass.example")
	plain := lineServer(t, "plain", nil)
	var port int
	main := optioned("shared", "allow-countries", "DE")
	e := startEdited(t, func(c *config.Config) string {
		withCountries(c)
		port = freePort(t, c.Bind.Addresses[0])
		c.TCPAnnotations.Ports = []string{fmt.Sprint(port)}
		service := serviceYAML("shop", "s", mirror(t, "s", nil))
		service = strings.Replace(service, "name: s}\nspec", "name: s, annotations: {hapsnap.dev/deny-countries: US}}\nspec", 1)
		return serviceYAML("shop", "a", mirror(t, "a", nil)) + serviceYAML("shop", "b", mirror(t, "b", nil)) + service + serviceYAML("shop", "inside", inside) +
			tcpService("tcp", plain, "tcp-port", fmt.Sprint(port), "allow-countries", "US", "deny-countries", "US-NY") +
			lists("edge", "countries", "v4", countries4, "v6", countries6) +
			secretYAML("users", nil, nil) + all([]ingress{
			{name: "open", rules: []string{"open.example P / a"}},
			optioned("allowed", "allow-countries", "de, US-CA"),
			optioned("denied", "deny-countries", "US"),
			optioned("both", "allow-countries", "US", "deny-countries", "US-NY"),
			optioned("unknown", "deny-countries", "ZZ"),
			optioned("known", "allow-countries", "ZZ"),
			optioned("lists", "allow-list", "127.0.1.0/25, 127.0.4.1", "allow-countries", "DE"),
			optioned("first", "deny-countries", "US", "redirect", "/elsewhere 301"),
			optioned("login", "allow-countries", "DE", "auth-basic", "users"),
			{name: "service", rules: []string{"service.example P / s"}},
			main, canaryOf("shared-c", []string{"shared.example P / b"}, "canary-by-header", "X-Canary"),
			passed("pass", "pass.example P / inside", "allow-countries", "US", "deny-countries", "US-NY"),
		})
	})
	const de, ca, ny, fr = "127.0.1.1", "127.0.2.1", "127.0.3.1", "127.0.4.1"
	for host, want := range map[string]map[string]int{
		"open":    {de: 200, ca: 200, fr: 200},
		"allowed": {de: 200, ca: 200, ny: 403, fr: 403},
		"denied":  {de: 200, ca: 403, ny: 403, fr: 200},
		"both":    {de: 403, ca: 200, ny: 403},
		"unknown": {fr: 200}, "known": {fr: 403},
		"lists":   {de: 200, "127.0.1.200": 403, fr: 403},
		"first":   {de: 301, ny: 403},
		"login":   {de: 401, fr: 403}, // a client that is not allowed is not asked for a password
		"service": {de: 200, ca: 403},
		"shared":  {de: 200, fr: 403},
	} {
		for from, status := range want {
			if got := e.getFrom(t, from, host+".example", "/"); got.StatusCode != status {
				t.Errorf("%s from %s: %d, want %d", host, from, got.StatusCode, status)
			}
		}
	}
	countriesOfHeaders(t, e)
	for source, want := range map[string]string{ca: "inside", ny: "refused", de: "refused"} {
		if got, _ := e.visit(t, source, "pass.example", pool(t, own), nil); got != want {
			t.Errorf("passed on from %s: %s, want %s", source, got, want)
		}
	}
	host, _, _ := strings.Cut(e.http, ":")
	for source, want := range map[string]string{ca: "plain", ny: "closed", de: "closed"} {
		if got := lines(dialFrom(t, source, fmt.Sprintf("%s:%d", host, port)), 1); got != want {
			t.Errorf("TCP service from %s: %s, want %s", source, got, want)
		}
	}
	for _, d := range e.result.Diagnostics {
		if strings.Contains(d.Message, "countr") {
			t.Error(d)
		}
	}
}

// countriesOfHeaders sends requests for clients whose addresses are in a proxy's header, and checks what
// endpoints get.
func countriesOfHeaders(t *testing.T, e edge) {
	t.Helper()
	const de, ca, fr = "127.0.1.1", "127.0.2.1", "127.0.4.1"
	from := func(address, host, sent string) (string, string) {
		status, head, err := send11(dial(t, address, e.http, ""), host+".example", []field{{"X-Forwarded-For", sent}, {"X-Country", "DE"}, {"x-country", "XX"}, {"X-Canary", "always"}})
		if err != nil {
			t.Fatal(err)
		}
		return status, head
	}
	for _, c := range []struct{ sent, host, want string }{
		{"198.51.100.7", "allowed", "200"}, {"203.0.113.7", "allowed", "403"}, {"192.0.2.1", "allowed", "403"}, {"192.0.2.1", "unknown", "403"}, {"192.0.2.1", "known", "200"},
		{"2001:db8:7::1", "allowed", "200"}, {"2001:db8:8::1", "allowed", "403"}, {"2001:db9::1", "known", "200"},
		{"198.51.100.7", "shared", "200"}, {"203.0.113.7", "shared", "403"}, // the same holds for the canary
	} {
		if got, _ := from(trustedProxy, c.host, c.sent); got != c.want {
			t.Errorf("%s for %s: %s, want %s", c.host, c.sent, got, c.want)
		}
	}
	if got, _ := from(fr, "allowed", "198.51.100.7"); got != "403" {
		t.Errorf("the header of a client that is no trusted proxy counts: %s", got)
	}
	for address, want := range map[string]string{de: "DE", ca: "US-CA", fr: "FR"} {
		r, err := exchange(dial(t, address, e.http, ""), "GET / HTTP/1.1\nHost: open.example\nX-Country: XX\nx-COUNTRY: XY\nX_Country: XZ")
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(r.seen.Header.Values("X-Country"), "|"); got != want || r.seen.Header.Get("X_Country") != "" {
			t.Errorf("from %s the endpoint was told %q, want %q", address, got, want)
		}
	}
}

// A list that cannot be read closes the routes that need it, and no others. Clients cannot set their country.
func TestCountriesFailClosed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ yaml, want string }{
		"missing":   {"", "ConfigMap edge/countries: does not exist"},
		"malformed": {lists("edge", "countries", "all", "127.0.0.0/8 DE\n127.0.0.1 nowhere\n"), "key all, line 2: \"nowhere\" is not the code of a country"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := startWith(t, c.yaml+serviceYAML("shop", "a", mirror(t, "a", nil))+all([]ingress{
				{name: "open", rules: []string{"open.example P / a"}},
				optioned("allowed", "allow-countries", "DE"), optioned("denied", "deny-countries", "FR"),
			}), withCountries)
			for host, want := range map[string]int{"open": 200, "allowed": 503, "denied": 503} {
				if got := e.get(t, host+".example", "/", "X-Country: DE"); got.StatusCode != want || got.seen.Header.Get("X-Country") != "" {
					t.Errorf("%s: %d, want %d; the endpoint was told %q", host, got.StatusCode, want, got.seen.Header.Get("X-Country"))
				}
			}
			var said strings.Builder
			for _, d := range e.result.Diagnostics {
				if d.Severity == diag.Error {
					said.WriteString(d.String() + "\n")
				}
			}
			if !strings.Contains(said.String(), c.want) || !strings.Contains(said.String(), "deny-countries: the list of countries cannot be used; the routes that it protects answer 503") {
				t.Error(said.String())
			}
		})
	}
}
