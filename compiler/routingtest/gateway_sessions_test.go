package routingtest

import (
	"net/http"
	"strings"
	"testing"
)

// Rules of routes keep sessions by a cookie, for as long as they say, and routes follow the affinity of a Service.
func TestGatewaySessions(t *testing.T) {
	t.Parallel()
	ports := []int{mirror(t, "one", nil), mirror(t, "two", nil), mirror(t, "three", nil)}
	rule := func(name, service, sessions string) string {
		return routeYAML("shop", name, name+".example", "  rules: [{"+sessions+"backendRefs: [{name: "+service+", port: 80}]}]\n")
	}
	e, _ := startGateway(t, served(t, "plain", ports, "timeout-server", "9s")+served(t, "sticky", ports, "affinity", "cookie", "affinity-cookie-name", "of-service")+
		rule("session", "plain", "sessionPersistence: {sessionName: mine}, ")+rule("named", "plain", "sessionPersistence: {type: Cookie}, ")+
		rule("ends", "plain", "sessionPersistence: {absoluteTimeout: 1h}, ")+rule("permanent", "plain", "sessionPersistence: {absoluteTimeout: 1h, cookieConfig: {lifetimeType: Permanent}}, ")+
		rule("service", "sticky", "")+rule("both", "sticky", "sessionPersistence: {sessionName: of-rule}, timeouts: {request: 5s}, ")+
		rule("none", "plain", "")+
		routeYAML("shop", "weights", "weights.example", "  rules: [{sessionPersistence: {}, backendRefs: [{name: plain, port: 80, weight: 0}, {name: sticky, port: 80, weight: 3}]}]\n"))
	clean(t, e)
	for host, want := range map[string]http.Cookie{
		"session": {Name: "mine"}, "named": {Name: "hapsnap-"}, "ends": {Name: "hapsnap-"}, "permanent": {Name: "hapsnap-", MaxAge: 3600},
		"service": {Name: "of-service"}, "both": {Name: "of-rule"}, "weights": {Name: "hapsnap-"},
	} {
		for _, s := range enterAll(t, e, host+".example", 3) {
			s.stays(t, e, host+".example")
		}
		got := e.get(t, host+".example", "/").Cookies()[0]
		if !strings.HasPrefix(got.Name, want.Name) || got.MaxAge != want.MaxAge || !got.HttpOnly || got.Secure {
			t.Errorf("%s: %v", host, got)
		}
	}
	if got := e.get(t, "none.example", "/").Cookies(); len(got) > 0 {
		t.Errorf("a rule without sessions sets %v", got)
	}
	// The cookie says when the session began: one that began long ago is over.
	s := enter(t, e, "ends.example")
	value, began, dated := strings.Cut(s.cookie, "|")
	if !dated || len(began) < 5 {
		t.Fatalf("the cookie %s says nothing of its time", s.cookie)
	}
	old := value + "|" + began[:len(began)-5] + "AAAAA"
	if got := e.get(t, "ends.example", "/", "Cookie: "+old); len(got.Cookies()) != 1 {
		t.Errorf("a session of long ago goes on: %v", got.Cookies())
	}
}
