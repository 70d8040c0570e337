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

// users is a Secret with lines of htpasswd.
func users(name string, lines ...string) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: Secret\nmetadata: {namespace: shop, name: %s}\ndata:\n  auth: %s\n",
		name, base64.StdEncoding.EncodeToString([]byte(strings.Join(lines, "\n")+"\n")))
}

// as is the header of a user with a password.
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

// Browsers send preflight requests without a password. What only looks like one
// is asked for it.
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

// A Secret without users, or with none that HAProxy can check, lets nobody in,
// and harms nobody else.
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
