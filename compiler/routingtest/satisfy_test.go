package routingtest

import (
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/diag"
)

// One way in is enough with satisfy, whichever it is, and none is not; all else that protects
// holds for everybody.
func TestSatisfy(t *testing.T) {
	t.Parallel()
	auth, port := startAuth(t)
	const ours, theirs, service = "127.0.0.0/8", "10.0.0.0/8", "http://auth/check"
	e := start(t, serviceYAML("shop", "a", mirror(t, "a", nil))+serviceYAML("shop", "auth", port)+users("staff", "alice:"+horse)+all([]ingress{
		optioned("all", "allow-list", ours, "auth-basic", "staff", "satisfy", "all"),
		optioned("list-in", "allow-list", ours, "auth-basic", "staff", "satisfy", "any"),
		optioned("list-out", "allow-list", theirs, "auth-basic", "staff", "satisfy", "any", "auth-basic-realm", "Staff 100%"),
		optioned("denied", "allow-list", ours, "deny-list", "127.0.0.1", "auth-basic", "staff", "satisfy", "any"),
		optioned("service", "allow-list", theirs, "auth-url", service, "satisfy", "any", "auth-response-headers", "X-Auth-User"),
		optioned("service-in", "allow-list", ours, "auth-url", service, "satisfy", "any", "auth-response-headers", "X-Auth-User"),
		optioned("both", "auth-basic", "staff", "auth-url", service, "satisfy", "any", "auth-response-headers", "X-Auth-User"),
		optioned("signin", "auth-basic", "staff", "auth-url", service, "satisfy", "any", "auth-signin", "/login"),
		optioned("three", "allow-list", theirs, "auth-basic", "staff", "auth-url", service, "satisfy", "any"),
		optioned("limited", "allow-list", ours, "auth-basic", "staff", "satisfy", "any", "max-body-size", "1"),
	}))
	clean(t, e)
	alice, wrong := as("alice", "correct horse"), as("alice", "wrong")
	for _, c := range []struct {
		host, authorization, want string // what the service is to answer
		status                    int
	}{
		{"all", "", "", 401}, {"all", alice, "", 200},
		{"list-in", "", "", 200}, {"list-in", wrong, "", 200},
		{"list-out", "", "", 401}, {"list-out", wrong, "", 401}, {"list-out", alice, "", 200},
		{"denied", "", "", 403}, {"denied", alice, "", 403},
		{"service", "", "200", 200}, {"service", "", "401", 401}, {"service", "", "403", 403}, {"service", "", "500", 503}, {"service-in", "", "401", 200},
		{"both", alice, "401", 200}, {"both", "", "200", 200}, {"both", wrong, "200", 200}, {"both", wrong, "401", 401}, {"both", "", "403", 403}, {"both", "", "500", 503},
		{"signin", "", "401", 302}, {"signin", alice, "401", 200},
		{"three", "", "401", 401}, {"three", alice, "401", 200}, {"three", "", "200", 200},
	} {
		// Nobody is let in by naming what HAProxy keeps, nor by telling the endpoint who they are.
		lines := []string{"X-Auth-User: root", "satisfied: true", "txn.satisfied: true"}
		if c.authorization != "" {
			lines = append(lines, c.authorization)
		}
		if c.want != "" {
			lines = append(lines, "X-Want: "+c.want)
		}
		got := e.get(t, c.host+".example", "/", lines...)
		if got.StatusCode != c.status || (got.seen.Name == "a") != (c.status == 200) {
			t.Errorf("%s, %q, the service says %q: %d, want %d", c.host, c.authorization, c.want, got.StatusCode, c.status)
		}
		hears := strings.Join(got.Header.Values("Www-Authenticate"), "|")
		if offers := strings.Contains(hears, `Basic realm="`); offers != (c.status == 401 && c.host != "service") {
			t.Errorf("%s, %q: hears %q", c.host, c.authorization, hears)
		}
		if user := got.seen.Header.Get("X-Auth-User"); user == "root" && (c.host == "service" || c.host == "both" || c.host == "service-in") {
			t.Errorf("%s: the endpoint believes that the client is %s", c.host, user)
		}
	}
	before := len(auth.got)
	if e.get(t, "both.example", "/", alice); len(auth.got) != before {
		t.Error("the service was asked of who knows a password")
	}
	if got := e.send(t, false, "POST / HTTP/1.1\nHost: limited.example\nContent-Length: 2\n\nxx"); got.StatusCode != 413 {
		t.Errorf("a large body of a client of the list: %d", got.StatusCode)
	}
}

// Where a way in is missing or nobody's, the others stay what they are, and nothing opens. An
// Ingress does not weaken what protects a Service.
func TestSatisfyClosed(t *testing.T) {
	t.Parallel()
	services := serviceYAML("shop", "a", mirror(t, "a", nil)) + users("staff", "alice:"+horse) +
		strings.Replace(serviceYAML("shop", "s", mirror(t, "s", nil)), "name: s}\nspec", "name: s, annotations: {hapsnap.dev/auth-basic: staff}}\nspec", 1)
	weakened := optioned("weakened", "allow-list", "0.0.0.0/0", "satisfy", "any")
	weakened.rules = []string{"weakened.example P / s"}
	both := strings.Replace(serviceYAML("shop", "both", mirror(t, "both", nil)), "name: both}\nspec", "name: both, annotations: {hapsnap.dev/auth-basic: staff, hapsnap.dev/allow-list: 127.0.0.0/8, hapsnap.dev/satisfy: any}}\nspec", 1)
	reversed := optioned("reversed", "auth-url", "http://a/")
	reversed.rules = []string{"reversed.example P / both"}
	ofClass := optioned("of-class", "allow-list", "127.0.0.0/8", "satisfy", "any")
	ofClass.class = "staffed"
	e := start(t, services+both+classYAML("hapsnap", "", false)+classYAML("staffed", "staffed", false)+defaultsYAML("staffed", "auth-basic", "staff")+all([]ingress{
		weakened, reversed, ofClass,
		{name: "service", rules: []string{"service.example P / both"}},
		optioned("list-gone", "allow-list", "@gone/key", "auth-basic", "staff", "satisfy", "any"),
		optioned("list-wrong", "allow-list", "127.0.0.0/33", "auth-basic", "staff", "satisfy", "any"),
		optioned("users-gone", "allow-list", "10.0.0.0/8", "auth-basic", "gone", "satisfy", "any"),
		optioned("service-gone", "allow-list", "10.0.0.0/8", "auth-url", "http://gone/", "satisfy", "any"),
		optioned("misspelt", "allow-list", "127.0.0.0/8", "auth-basic", "staff", "satisfy", "one"),
		optioned("one-way", "auth-basic", "staff", "satisfy", "any"),
	}))
	alice := as("alice", "correct horse")
	for host, want := range map[string][2]int{ // without a password, and with
		"weakened": {503, 503}, "reversed": {503, 503}, "service": {200, 200}, "list-gone": {503, 503}, "list-wrong": {503, 503},
		"users-gone": {401, 401}, "service-gone": {503, 503}, "misspelt": {503, 503}, "one-way": {401, 200}, "of-class": {503, 503},
	} {
		if got := [2]int{e.get(t, host+".example", "/").StatusCode, e.get(t, host+".example", "/", alice).StatusCode}; got != want {
			t.Errorf("%s: %v, want %v", host, got, want)
		}
	}
	said := 0
	for _, d := range e.result.Diagnostics {
		if strings.Contains(d.Message, "satisfy") && (d.Severity == diag.Error || strings.Contains(d.Message, "has no effect")) {
			said++
		}
	}
	if said != 6 { // twice that it has no effect
		t.Errorf("said of satisfy %d times, want 6: %v", said, e.result.Diagnostics)
	}
}
