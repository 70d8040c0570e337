package routingtest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
)

// lists is a ConfigMap. Keys and their texts are given in pairs.
func lists(namespace, name string, pairs ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: %s, name: %s}\ndata:\n", namespace, name)
	for i := 0; i < len(pairs); i += 2 {
		fmt.Fprintf(&b, "  %s: %q\n", pairs[i], pairs[i+1])
	}
	return b.String()
}

// country is a list of many networks, of both families.
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
	if n := len(e.result.Artifact.Files); n != 1+7+2+5 { // haproxy.cfg, maps, crt-list and scripts, lists
		t.Errorf("%d files", n)
	}
}

// A list that cannot be had closes what names it, and nothing else.
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
