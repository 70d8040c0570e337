package gateway_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway"
	"github.com/hapsnap/hapsnap/compiler/routing"
)

// A rule whose sessions cannot be kept as it says is not served.
func TestSessionsOfRules(t *testing.T) {
	t.Parallel()
	for rule, want := range map[string]string{
		"{}":                                        "",
		"{absoluteTimeout: 1h30m}":                  "",
		"{type: Header}":                            "sessions are kept by cookies only, and not by a Header",
		`{sessionName: "a b"}`:                      `a cookie named "a b" is not supported`,
		`{sessionName: ""}`:                         `a cookie named "" is not supported`,
		"{absoluteTimeout: 0s}":                     `"0s" is no lifetime of a session`,
		"{absoluteTimeout: 500ms}":                  "is no lifetime of a session",
		"{absoluteTimeout: 9000h}":                  "is no lifetime of a session",
		"{cookieConfig: {lifetimeType: Permanent}}": "a Permanent cookie without absoluteTimeout is not supported",
		"{absoluteTimeout: 2h, cookieConfig: {lifetimeType: Permanent}}": "",
	} {
		m, found, _ := gateway.Translate(gathered(t, class+object("Gateway", "one", oneGateway)+service("web")+
			object("HTTPRoute", "r", "{parentRefs: [{name: one}], hostnames: [a.example], rules: [{sessionPersistence: "+rule+", backendRefs: [{name: web, port: 80}]}]}")), usual)
		said := slices.ContainsFunc(found, func(d diag.Diagnostic) bool {
			return d.Severity == diag.Error && strings.Contains(d.Message, want) && strings.HasSuffix(d.Message, "; the rule is not served")
		})
		kept := slices.ContainsFunc(backendsOf(m, "a.example", ""), func(b routing.Backend) bool { return b.Upstream != nil && b.Upstream.Affinity != nil })
		if kept != (want == "") || want != "" && !said || want == "" && len(found) > 0 {
			t.Errorf("%s: kept %v, said %v", rule, kept, found)
		}
	}
	several := "{parentRefs: [{name: one}], hostnames: [a.example], rules: [{sessionPersistence: {}, backendRefs: [{name: web, port: 80}, {name: web, port: 80}]}]}"
	_, found, _ := gateway.Translate(gathered(t, class+object("Gateway", "one", oneGateway)+service("web")+object("HTTPRoute", "r", several)), usual)
	if len(found) != 1 || !strings.Contains(found[0].Message, "sessions are not kept where a rule has several backends") {
		t.Error(found)
	}
}

// Copies of requests belong to no session. A mirror to a Service takes no sessions from the routes to it, whichever of
// them is first.
func TestMirrorsLeaveSessionsAlone(t *testing.T) {
	t.Parallel()
	sticky := strings.Replace(service("sticky"), "namespace: shop", "namespace: shop, annotations: {hapsnap.dev/affinity: cookie}", 1)
	mirror := "rules: [{filters: [{type: RequestMirror, requestMirror: {backendRef: {name: sticky, port: 80}}}], backendRefs: [{name: web, port: 80}]}]}"
	served := "rules: [{backendRefs: [{name: sticky, port: 80}]}]}"
	for _, routes := range [][2]string{{mirror, served}, {served, mirror}} {
		m, found, _ := gateway.Translate(gathered(t, class+object("Gateway", "one", oneGateway)+service("web")+sticky+
			object("HTTPRoute", "a", "{parentRefs: [{name: one}], hostnames: [a.example], "+routes[0])+
			object("HTTPRoute", "b", "{parentRefs: [{name: one}], hostnames: [b.example], "+routes[1])), usual)
		kept := 0
		for _, b := range m.Backends {
			if b.Upstream != nil && b.Upstream.Affinity != nil {
				kept++
			}
		}
		if len(found) > 0 || len(m.Backends) != 3 || kept != 1 {
			t.Errorf("%d of %d backends keep sessions, said %v", kept, len(m.Backends), found)
		}
	}
}
