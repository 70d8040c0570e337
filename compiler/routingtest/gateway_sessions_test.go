package routingtest

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// Rules keep sessions with a cookie, for the time that they set. Routes also follow the affinity of a Service.
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
	// The cookie has the beginning of the session. A session that began too long ago has ended, and gets a new
	// server.
	s := enter(t, e, "ends.example")
	if began(s.cookie) == "" {
		t.Fatalf("the cookie %s says nothing of its time", s.cookie)
	}
	goesOn := func(age time.Duration) (servers []string) {
		date := cookieDate(time.Now().Add(-age))
		for range 3 {
			got := e.get(t, "ends.example", "/", "Cookie: "+undated(s.cookie)+"|"+date+"|"+date)
			if !slices.Contains(servers, got.seen.Name) {
				servers = append(servers, got.seen.Name)
			}
		}
		return servers
	}
	if got := goesOn(30 * time.Minute); !slices.Equal(got, []string{s.server}) {
		t.Errorf("a session of half an hour ago, with %s, goes to %v", s.server, got)
	}
	if got := goesOn(2 * time.Hour); len(got) < 2 {
		t.Errorf("a session of two hours ago goes on with %v", got)
	}
}

// cookieDate returns a time as in a cookie of HAProxy: five digits of base64 that count units of four seconds
// since 1970.
func cookieDate(at time.Time) string {
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	out := make([]byte, 5)
	for i, n := len(out)-1, at.Unix()/4; i >= 0; i, n = i-1, n/64 {
		out[i] = digits[n%64]
	}
	return string(out)
}
