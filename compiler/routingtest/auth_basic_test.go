package routingtest

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/diag"
)

// horse is a hash of "correct horse".
const horse = "$2y$05$abcdefghijklmnopqrstuuHNbAKRhpaujgo33bRWs.NLUTJO3lOy2"

// users returns a Secret with lines in the format of htpasswd.
func users(name string, lines ...string) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: Secret\nmetadata: {namespace: shop, name: %s}\ndata:\n  auth: %s\n",
		name, base64.StdEncoding.EncodeToString([]byte(strings.Join(lines, "\n")+"\n")))
}

// as returns the Authorization header of a user with a password.
func as(user, password string) string {
	return "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

func TestBasicAuth(t *testing.T) {
	t.Parallel()
	yaml := serviceYAML("shop", "a", mirror(t, "a", nil)) + serviceYAML("shop", "s", mirror(t, "s", nil)) +
		users("staff", "alice:"+horse, "bob:abhfCpXqd4GrI") + users("staff.2", "carol:"+horse)
	yaml = strings.Replace(yaml, "name: s}\nspec", "name: s, annotations: {hapsnap.dev/auth-basic: staff.2}}\nspec", 1)
	e := start(t, yaml+all([]ingress{
		optioned("staff", "auth-basic", "staff"),
		optioned("realm", "auth-basic", "staff", "auth-basic-realm", `It's 100% %[src] $HOME #1`),
		optioned("other", "auth-basic", "staff.2"),
		{name: "service", rules: []string{"service.example P / s"}},
		optioned("tls", "auth-basic", "staff", "ssl-redirect", "true"),
		optioned("cors", "auth-basic", "staff", "cors-allow-origin", "https://a.example"),
		optioned("both", "auth-basic", "staff", "allow-list", "10.0.0.0/8"),
		{name: "open", rules: []string{"open.example P / a"}},
	}))
	clean(t, e)
	for _, c := range []struct {
		host, user, password string
		want                 int
	}{
		{"staff", "alice", "correct horse", 200}, {"staff", "bob", "correct horse", 200}, {"staff", "alice", "wrong", 401},
		{"staff", "carol", "correct horse", 401}, {"staff", "alice", horse, 401}, {"staff", "", "", 401},
		{"other", "carol", "correct horse", 200}, {"other", "alice", "correct horse", 401},
		{"service", "carol", "correct horse", 200}, {"service", "alice", "correct horse", 401},
		{"tls", "alice", "correct horse", 308}, {"both", "alice", "correct horse", 403}, {"open", "alice", "wrong", 200},
	} {
		if got := e.get(t, c.host+".example", "/", as(c.user, c.password)); got.StatusCode != c.want {
			t.Errorf("%s of %s: %d, want %d", c.user, c.host, got.StatusCode, c.want)
		}
	}
	for host, want := range map[string]string{"staff": `Basic realm="Restricted"`, "realm": `Basic realm="It's 100% %[src] $HOME #1"`, "tls": ""} {
		if got := e.get(t, host+".example", "/"); got.Header.Get("Www-Authenticate") != want || got.seen.Name != "" {
			t.Errorf("%s: %d, %q, want %q", host, got.StatusCode, got.Header.Get("Www-Authenticate"), want)
		}
	}
	if got := e.getTLS(t, "tls.example", "/"); got.StatusCode != 401 {
		t.Errorf("over TLS: %d", got.StatusCode)
	}
	if got := e.get(t, "staff.example", "/", as("alice", "correct horse")); got.seen.Header.Get("Authorization") == "" {
		t.Error("the endpoint does not get the Authorization header")
	}
	if strings.Contains(fmt.Sprintf("%s", e.result.Draft.Files), "abcdefgh") {
		t.Error("a hash is in the snapshot")
	}
}

// Browsers send preflight requests without a password. Requests that only resemble preflights need one.
func TestBasicAuthOfPreflightRequests(t *testing.T) {
	t.Parallel()
	e := start(t, serviceYAML("shop", "a", mirror(t, "a", nil))+users("staff", "alice:"+horse)+
		optioned("cors", "auth-basic", "staff", "cors-allow-origin", "https://a.example").yaml()+optioned("plain", "auth-basic", "staff").yaml())
	clean(t, e)
	const preflight = "\nOrigin: https://a.example\nAccess-Control-Request-Method: PUT"
	for request, want := range map[string]int{
		"OPTIONS / HTTP/1.1\nHost: cors.example" + preflight:                                                            204,
		"OPTIONS / HTTP/1.1\nHost: cors.example\nOrigin: https://b.example\nAccess-Control-Request-Method: PUT":         401,
		"OPTIONS / HTTP/1.1\nHost: cors.example\nOrigin: https://a.example":                                             401,
		"GET / HTTP/1.1\nHost: cors.example" + preflight:                                                                401,
		"OPTIONS / HTTP/1.1\nHost: plain.example" + preflight:                                                           401,
		"GET / HTTP/1.1\nHost: cors.example\nOrigin: https://a.example\n" + as("alice", "correct horse"):                200,
		"OPTIONS / HTTP/1.1\nHost: cors.example\nOrigin: https://a.example\n" + as("alice", "correct horse") + "\nX: y": 200,
	} {
		if got := e.send(t, false, request); got.StatusCode != want {
			t.Errorf("%q: %d, want %d", request, got.StatusCode, want)
		}
	}
	refused := e.get(t, "cors.example", "/", "Origin: https://a.example")
	if refused.StatusCode != 401 || refused.Header.Get("Access-Control-Allow-Origin") != "https://a.example" {
		t.Errorf("a page may not read that it is refused: %d, %v", refused.StatusCode, refused.Header)
	}
}

// A Secret without users, or without a hash that HAProxy can check, lets nobody in, and affects no other route.
func TestBasicAuthWithoutUsers(t *testing.T) {
	t.Parallel()
	e := start(t, serviceYAML("shop", "a", mirror(t, "a", nil))+users("some", "alice:"+horse, "bob:{SHA}0DPiKuNIrrVmD8IUCuw1hQxNqZc=", "nonsense")+
		"---\napiVersion: v1\nkind: Secret\nmetadata: {namespace: shop, name: keyless}\ndata: {}\n"+all([]ingress{
		optioned("some", "auth-basic", "some"), optioned("keyless", "auth-basic", "keyless"), optioned("gone", "auth-basic", "gone"),
		optioned("wrong", "auth-basic", "Not_A_Name"), optioned("realm", "auth-basic", "some", "auth-basic-realm", `a"b`),
		{name: "open", rules: []string{"open.example P / a"}},
	}))
	said := map[string]string{}
	for _, d := range e.result.Diagnostics {
		said[d.Object.Kind+" "+d.Object.Name] += fmt.Sprint(d.Severity == diag.Error) + " " + d.Message + "\n"
	}
	for object, want := range map[string]string{
		"Secret some":    "true key auth, line 2: user bob has a hash of the {SHA} kind, which HAProxy cannot check\ntrue key auth, line 3 is not NAME:HASH\n",
		"Secret keyless": "true has no key auth with users\n", "Ingress gone": "false annotation hapsnap.dev/auth-basic: Secret shop/gone does not exist here\n",
		"Ingress wrong": "true annotation hapsnap.dev/auth-basic: \"Not_A_Name\" is not the name of a Secret; the routes that it protects answer 503\n", "Ingress open": "",
	} {
		if said[object] != want {
			t.Errorf("%s: %q, want %q", object, said[object], want)
		}
	}
	for host, want := range map[string]int{"some": 200, "keyless": 401, "gone": 401, "wrong": 503, "realm": 503, "open": 200} {
		if got := e.get(t, host+".example", "/", as("alice", "correct horse")); got.StatusCode != want {
			t.Errorf("%s: %d, want %d", host, got.StatusCode, want)
		}
	}
}

// With satisfy, a client that meets any one of the conditions is let in, and a client that meets none is
// refused. All other protection applies to every client.
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
		// No client gets in by sending the names of HAProxy's variables, or tells the endpoint a user of its
		// own.
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

// If one of the conditions is missing or lets nobody in, the others stay as they are, and nothing opens. An
// Ingress does not weaken the protection of a Service.
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
