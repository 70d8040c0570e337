package gateway_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway"
)

const onPort = "listeners: [{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}], allowedListeners: {namespaces: {from: All}}"

// fleets has Gateways of several fleets, and of the one without a name. All have the same port and a route.
func fleets() string {
	of := func(kind, name string) string {
		return fmt.Sprintf("{gatewayClassName: hapsnap, infrastructure: {parametersRef: {group: hapsnap.dev, kind: %s, name: %s}}, %s}", kind, name, onPort)
	}
	return class + object("Gateway", "shared", "{gatewayClassName: hapsnap, "+onPort+"}") +
		object("Gateway", "payments", of("Fleet", "payments")) + object("Gateway", "parameters", of("Proxy", "payments")) +
		strings.Replace(object("Gateway", "payments", of("Fleet", "payments")), "namespace: shop", "namespace: guest", 1) +
		object("ListenerSet", "more", "{parentRef: {name: payments}, listeners: [{name: more, port: 81, protocol: HTTP}]}") + service("web") +
		object("HTTPRoute", "web", "{parentRefs: [{name: shared}, {name: payments}, {name: payments, namespace: guest}, {kind: ListenerSet, name: more}], rules: [{backendRefs: [{name: web, port: 80}]}]}")
}

// Each Gateway is compiled for one fleet: the one in its own namespace that it names, or the one without a
// name.
func TestGatewaysOfFleets(t *testing.T) {
	t.Parallel()
	in := gathered(t, fleets())
	spoken := map[string]int{}
	for fleet, want := range map[string]struct{ binds, refused, parents string }{
		"":               {"shop/shared:80", "shop/parameters", "shared"},
		"shop/payments":  {"shop/payments:80 shop/payments:81", "", "payments more"},
		"guest/payments": {"guest/payments:80", "", "payments"},
		"shop/other":     {},
	} {
		cfg := usual
		cfg.Fleet = fleet
		model, _, v := gateway.Translate(in, cfg)
		var binds, refused, parents []string
		for _, b := range model.Binds {
			binds = append(binds, b.Name)
		}
		for _, g := range v.Gateways {
			spoken[g.Ref.String()]++
			if c := gateway.Condition(g.Status.Conditions, "Accepted"); c.Reason == "InvalidParameters" {
				refused = append(refused, g.Ref.Namespace+"/"+g.Ref.Name)
			}
		}
		for _, r := range v.Routes {
			for _, p := range r.Parents {
				parents = append(parents, string(p.ParentRef.Name))
			}
		}
		slices.Sort(binds)
		if got := strings.Join(binds, " "); got != want.binds {
			t.Errorf("%s: binds %q, want %q", fleet, got, want.binds)
		}
		if got := strings.Join(refused, " "); got != want.refused {
			t.Errorf("%s: refused %q, want %q", fleet, got, want.refused)
		}
		if got := strings.Join(parents, " "); got != want.parents {
			t.Errorf("%s: parents %q, want %q", fleet, got, want.parents)
		}
		if (len(v.Classes) > 0) != (fleet == "") {
			t.Errorf("%s: the class is spoken of: %v", fleet, v.Classes)
		}
	}
	for g, n := range spoken {
		if n != 1 {
			t.Errorf("%d compilers speak of %s", n, g)
		}
	}
	if len(spoken) != 4 {
		t.Errorf("compilers speak of %v", spoken)
	}
}

// Each entry of a status belongs to one compiler, so that no two remove each other's entries. The compiler
// without a fleet removes entries about a Gateway that is gone.
func TestElsewhere(t *testing.T) {
	t.Parallel()
	in := gathered(t, fleets())
	of := func(kind, name string) diag.Object { return diag.Object{Kind: kind, Namespace: "shop", Name: name} }
	for about, there := range map[diag.Object]bool{of("Gateway", "payments"): true, of("ListenerSet", "more"): true, of("Gateway", "gone"): false, of("ListenerSet", "gone"): false} {
		for _, writer := range []string{"", "shop/payments", "guest/payments"} {
			message := "some words"
			if writer != "" {
				message += " (fleet " + writer + ")"
			}
			for _, fleet := range []string{"", "shop/payments", "guest/payments", "shop/other"} {
				e := gateway.Elsewhere{Fleet: fleet, In: in.Gateway, Reads: func(string) bool { return true }}
				if got, want := e.Has(about, message), fleet != writer && (there || fleet != ""); got != want {
					t.Errorf("%s, written by %q, for %q: elsewhere %v", about, writer, fleet, got)
				}
				e.Reads = func(string) bool { return false }
				if got, want := e.Has(about, message), fleet != writer; got != want {
					t.Errorf("%s, written by %q, for %q that cannot see it: elsewhere %v", about, writer, fleet, got)
				}
			}
		}
	}
	cfg := usual
	cfg.Fleet = "shop/payments"
	_, _, v := gateway.Translate(in, cfg)
	for _, p := range v.Routes[0].Parents {
		if m := gateway.Condition(p.Conditions, "Accepted").Message; m != "(fleet shop/payments)" {
			t.Errorf("the word of a fleet's compiler is %q", m)
		}
	}
}
