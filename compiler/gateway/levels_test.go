package gateway_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway"
	asked "github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/routing/modeltest"
)

// leveled is a Gateway with a ListenerSet, a Service, and a route to both listeners, each with annotations.
func leveled(onGateway, onSet, onService, onRoute, rules string) string {
	one := strings.Replace(oneGateway, "listeners:", "allowedListeners: {namespaces: {from: All}}, listeners:", 1)
	return class + noted(object("Gateway", "one", one), onGateway) + noted(object("ListenerSet", "more", "{parentRef: {name: one}, listeners: [{name: b, port: 81, protocol: HTTP}]}"), onSet) +
		strings.Replace(service("web"), "namespace: shop}", "namespace: shop, annotations: {"+onService+"}}", 1) +
		noted(object("HTTPRoute", "r", "{parentRefs: [{name: one}, {kind: ListenerSet, name: more}], hostnames: [a.example], rules: ["+rules+"]}"), onRoute)
}

const plainRule = "{backendRefs: [{name: web, port: 80}]}"

// at returns the backends to which a host leads on a port, also through splits.
func at(m routing.Model, port int) []routing.Backend {
	leads := map[string]bool{}
	for _, h := range m.Hosts {
		if strings.HasSuffix(h.Bind, fmt.Sprint(":", port)) {
			for _, r := range h.Routes {
				leads[r.Backend] = true
			}
		}
	}
	for _, s := range m.Splits {
		for _, share := range s.Shares {
			leads[share.Backend] = leads[share.Backend] || leads[s.Name]
		}
	}
	return slices.DeleteFunc(slices.Clone(m.Backends), func(b routing.Backend) bool { return !leads[b.Name] })
}

// An option without protection is a default. A ListenerSet's value wins over its Gateway's, a route's over
// both, and that of the Service or of a rule over all.
func TestDefaultsOfGateways(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ gateway, set, service, route, rule, by80, by81 string }{
		{"9s", "", "", "", plainRule, "9s", "9s"},
		{"9s", "8s", "", "", plainRule, "9s", "8s"},
		{"", "8s", "", "", plainRule, "", "8s"},
		{"9s", "8s", "", "7s", plainRule, "7s", "7s"},
		{"9s", "8s", "6s", "7s", plainRule, "6s", "6s"},
		{"9s", "8s", "6s", "7s", "{backendRefs: [{name: web, port: 80}], timeouts: {request: 5s}}", "5000ms", "5000ms"},
	} {
		text := func(value string) string {
			if value == "" {
				return ""
			}
			return "hapsnap.dev/timeout-server: " + value
		}
		m, found, _ := gateway.Translate(gathered(t, leveled(text(c.gateway), text(c.set), text(c.service), text(c.route), c.rule)), usual)
		if err := modeltest.Check(m); err != nil {
			t.Fatal(err)
		}
		if c.route == "" && len(found) > 0 {
			t.Error(found)
		}
		for port, want := range map[int]string{80: c.by80, 81: c.by81} {
			for _, b := range at(m, port) {
				got := ""
				if b.Upstream != nil {
					got = string(b.Upstream.Timeouts.Server)
				}
				if got != want {
					t.Errorf("%+v: by port %d %q, want %q", c, port, got, want)
				}
			}
			if len(at(m, port)) != 1 {
				t.Errorf("%+v: port %d leads to %v", c, port, at(m, port))
			}
		}
	}
}

// Limits of a route and of the levels above it all apply: the smallest counts. If they count in different ways,
// nothing is served, and the status of the route says why.
func TestLimitsOfSeveralLevels(t *testing.T) {
	t.Parallel()
	m, found, _ := gateway.Translate(gathered(t, leveled("hapsnap.dev/rate-limit: '10', hapsnap.dev/max-body-size: 5k", "hapsnap.dev/rate-limit: '20', hapsnap.dev/max-body-size: 1k", "hapsnap.dev/max-body-size: 3k", "hapsnap.dev/rate-limit: '100', hapsnap.dev/max-body-size: 1g", plainRule)), usual)
	if len(found) > 0 {
		t.Error(found)
	}
	for port, want := range map[int]int64{80: 3 << 10, 81: 1 << 10} {
		for _, b := range at(m, port) {
			if b.Protection == nil || b.Protection.Rate == nil || b.Protection.Rate.Requests != 10 || b.Protection.MaxBody != want {
				t.Errorf("by port %d: %+v", port, b.Protection)
			}
		}
	}
	m, found, _ = gateway.Translate(gathered(t, leveled("hapsnap.dev/rate-limit: '10'", "", "", "hapsnap.dev/rate-limit: '100', hapsnap.dev/rate-limit-period: 1m", plainRule)), usual)
	if !slices.ContainsFunc(found, func(d diag.Diagnostic) bool {
		return d.Object.Kind == "HTTPRoute" && strings.Contains(d.Message, "rate-limit counts in another way") && strings.Contains(d.Message, "answer 503")
	}) {
		t.Error(found)
	}
	for _, b := range at(m, 80) {
		if len(b.Targets) > 0 {
			t.Errorf("it is served: %+v", b)
		}
	}
}

// What a Gateway, a ListenerSet or a Service protects is protected in each backend that gets its requests,
// whatever the route says.
func TestLevelsProtectAtRandom(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(17, 17))
	loosen := []string{
		"", "hapsnap.dev/allow-list: '0.0.0.0/0'", "hapsnap.dev/deny-list: 192.0.2.0/24", "hapsnap.dev/satisfy: any, hapsnap.dev/allow-list: '0.0.0.0/0', hapsnap.dev/auth-basic: theirs",
		"hapsnap.dev/max-body-size: 1g", "hapsnap.dev/auth-basic: theirs", "hapsnap.dev/auth-url: 'http://web/'", "hapsnap.dev/response-headers: set X-A b", "hapsnap.dev/timeout-server: 3s", "hapsnap.dev/allow-list: nonsense",
	}
	rules := []string{
		plainRule, "{matches: [{path: {value: /b}}], filters: [{type: RequestRedirect, requestRedirect: {scheme: https}}]}", "{matches: [{path: {value: /c}}], backendRefs: [{name: web, port: 80}, {name: gone, port: 80}]}",
		"{matches: [{path: {value: /d}}], backendRefs: [{name: web, port: 80, filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: A, value: b}]}}]}, {name: web, port: 80}]}",
		"{matches: [{path: {value: /e}}], backendRefs: [{name: web, port: 80}], sessionPersistence: {type: Header}}", "{matches: [{path: {value: /f}}], backendRefs: [{name: web, port: 80}], filters: [{type: RequestMirror, requestMirror: {backendRef: {name: web, port: 80}}}]}",
		"{matches: [{path: {value: /g}}], backendRefs: [{name: web, port: 80}], timeouts: {request: 3s}}",
	}
	// Each level denies a network of its own, which identifies its protection.
	deny := func(n int) string {
		return fmt.Sprintf("hapsnap.dev/deny-list: 10.0.%d.0/24", n) + []string{"", ", hapsnap.dev/auth-basic: staff", ", hapsnap.dev/max-body-size: 1k"}[r.IntN(3)]
	}
	held, closed := 0, 0
	for range 300 {
		var on [3]string
		for i := range on {
			if r.IntN(2) == 0 {
				on[i] = deny(i)
			}
		}
		var some []string
		for range 1 + r.IntN(3) {
			some = append(some, rules[r.IntN(len(rules))])
		}
		m, _, _ := gateway.Translate(gathered(t, leveled(on[0], on[1], on[2], loosen[r.IntN(len(loosen))], strings.Join(some, ", "))), usual)
		if err := modeltest.Check(m); err != nil {
			t.Fatal(err)
		}
		for _, port := range []int{80, 81} {
			for _, b := range at(m, port) {
				redirects := slices.ContainsFunc(b.Filters, func(f asked.Filter) bool { return f.Kind() == asked.RedirectURL{}.Kind() })
				if len(b.Targets) == 0 && !redirects {
					closed++
					continue
				}
				for i, options := range on {
					if options == "" || i == 1 && port == 80 || i == 2 && len(b.Targets) == 0 {
						continue
					}
					held++
					if !denies(b, netip.MustParsePrefix(fmt.Sprintf("10.0.%d.0/24", i))) || strings.Contains(options, "auth-basic") && !slices.ContainsFunc(b.Filters, func(f asked.Filter) bool {
						basic, is := f.(asked.BasicAuth)
						return is && basic.Users == "shop_staff" && !basic.Alternative
					}) ||
						strings.Contains(options, "max-body-size") && (b.Protection == nil || b.Protection.MaxBody != 1<<10) {
						t.Fatalf("level %d with %q does not protect %+v of %q", i, options, b, some)
					}
				}
			}
		}
	}
	if held < 300 || closed == 0 {
		t.Errorf("%d times something was protected, %d times closed", held, closed)
	}
}

// denies reports whether a backend refuses a network.
func denies(b routing.Backend, network netip.Prefix) bool {
	return b.Protection != nil && slices.Contains(b.Protection.Deny.Prefixes, network) || slices.ContainsFunc(b.Filters, func(f asked.Filter) bool {
		guard, is := f.(asked.Guard)
		return is && slices.Contains(guard.Protection.Deny.Prefixes, network)
	})
}

// If a level names something that is missing, what it protects is closed. The name is looked up in the
// namespace of that level's object, and not in the route's.
func TestLevelsNameWhatIsTheirs(t *testing.T) {
	t.Parallel()
	for on, text := range map[string]string{
		"Gateway": leveled("hapsnap.dev/deny-list: '@lists/bad'", "", "", "", plainRule), "ListenerSet": leveled("", "hapsnap.dev/deny-list: '@lists/bad'", "", "", plainRule),
		"Service": leveled("", "", "hapsnap.dev/deny-list: '@lists/bad'", "", plainRule),
	} {
		m, found, _ := gateway.Translate(gathered(t, text), usual)
		if !slices.ContainsFunc(found, func(d diag.Diagnostic) bool {
			return d.Object.Kind == on && strings.Contains(d.Message, "ConfigMap shop/lists does not exist")
		}) {
			t.Errorf("%s: %v", on, found)
		}
		for _, b := range at(m, 81) {
			if len(b.Targets) > 0 {
				t.Errorf("%s: it is served: %+v", on, b)
			}
		}
	}
}

// The memory of routes depends on the options of their Gateway, ListenerSet and Service. With a Memo, a change
// of any of them has the same result as without.
func TestMemoSeesLevels(t *testing.T) {
	t.Parallel()
	memo := gateway.NewMemo()
	in := gathered(t, leveled("", "", "", "", plainRule)) // from here on, each object has one value in memory
	for i, c := range [][3]string{{}, {"10.0.0.0/24"}, {"10.0.1.0/24"}, {"10.0.1.0/24", "10.0.2.0/24"}, {"", "10.0.2.0/24"}, {"", "", "10.0.3.0/24"}, {"10.0.0.0/24", "", "10.0.3.0/24"}, {}} {
		now := in
		now.Gateway.Gateways, now.Gateway.Sets, now.Services = slices.Clone(in.Gateway.Gateways), slices.Clone(in.Gateway.Sets), slices.Clone(in.Services)
		annotations := func(list string) map[string]string {
			if list == "" {
				return nil
			}
			return map[string]string{"hapsnap.dev/deny-list": list}
		}
		one, more := in.Gateway.Gateways[0].Value.DeepCopy(), in.Gateway.Sets[0].Value.DeepCopy()
		one.Annotations, more.Annotations = annotations(c[0]), annotations(c[1])
		now.Gateway.Gateways[0].Value, now.Gateway.Sets[0].Value = one, more
		if c[2] != "" { // otherwise it is the same value, and its claims are used again
			web := in.Services[0].Value.DeepCopy()
			web.Annotations = annotations(c[2])
			now.Services[0].Value = web
		}
		want, wanted, _ := gateway.Translate(now, usual)
		got, found, _ := memo.Translate(now, usual)
		if !reflect.DeepEqual(want, got) || !slices.Equal(wanted, found) {
			t.Errorf("step %d: %+v, want %+v", i, got.Backends, want.Backends)
		}
	}
	if _, reused := memo.Counts(); reused == 0 {
		t.Error("no claims were used again: the test tests nothing")
	}
}
