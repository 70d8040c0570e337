package routingtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// session is a cookie as a client sends it, and its server.
type session struct{ cookie, server string }

// enter begins a new session.
func enter(t *testing.T, e edge, host string) session {
	t.Helper()
	got := e.get(t, host, "/")
	cookies := got.Cookies()
	if got.StatusCode != http.StatusOK || len(cookies) != 1 {
		t.Fatalf("a new session: status %d, cookies %v", got.StatusCode, cookies)
	}
	return session{cookies[0].Name + "=" + cookies[0].Value, got.seen.Name}
}

// enterAll begins a session with each of n servers.
func enterAll(t *testing.T, e edge, host string, n int) []session {
	t.Helper()
	var out []session
	for range 20 * n {
		s := enter(t, e, host)
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
		if len(out) == n {
			return out
		}
	}
	t.Fatalf("sessions: %v, want one with each of %d servers", out, n)
	return nil
}

// stays fails unless the requests of the session go to its server, and none sets another cookie. HAProxy renews
// a cookie with dates every few seconds, with the same server and beginning.
func (s session) stays(t *testing.T, e edge, host string) {
	t.Helper()
	for range 5 {
		got := e.get(t, host, "/", "Cookie: other=1; "+s.cookie)
		again := slices.ContainsFunc(got.Cookies(), func(c *http.Cookie) bool {
			return began(s.cookie) == "" || undated(c.Name+"="+c.Value) != undated(s.cookie) || began(c.Value) != began(s.cookie)
		})
		if got.seen.Name != s.server || again {
			t.Errorf("session with %s: answered by %q (%d), cookies %v", s.server, got.seen.Name, got.StatusCode, got.Cookies())
		}
		if c := got.seen.Header.Get("Cookie"); c != "other=1" {
			t.Errorf("server got the cookies %q", c)
		}
	}
}

// undated returns a cookie without the dates that HAProxy adds: VALUE|LAST|FIRST.
func undated(cookie string) string {
	value, _, _ := strings.Cut(cookie, "|")
	return value
}

// began returns the date at which a session began according to its cookie, or "".
func began(cookie string) string {
	_, dates, _ := strings.Cut(cookie, "|")
	_, first, _ := strings.Cut(dates, "|")
	return first
}

// moves fails unless the session goes to another server, and stays there.
func (s session) moves(t *testing.T, e edge, host string) {
	t.Helper()
	got := e.get(t, host, "/", "Cookie: "+s.cookie)
	if got.seen.Name == s.server || got.StatusCode != http.StatusOK || len(got.Cookies()) != 1 {
		t.Fatalf("session with %s, which is gone: answered by %q (%d), cookies %v", s.server, got.seen.Name, got.StatusCode, got.Cookies())
	}
	session{got.Cookies()[0].Name + "=" + got.Cookies()[0].Value, got.seen.Name}.stays(t, e, host)
}

func asTheyAre(group []bind.Slot) []bind.Slot { return group }

func reversed(group []bind.Slot) []bind.Slot {
	group = slices.Clone(group)
	slices.Reverse(group)
	return group
}

func TestSessionsOnEveryInstance(t *testing.T) {
	t.Parallel()
	ports := []int{mirror(t, "one", nil), mirror(t, "two", nil), mirror(t, "three", nil)}
	yaml := served(t, "web", ports, "affinity", "cookie")
	a, b := startArranged(t, yaml, asTheyAre), startArranged(t, yaml, reversed)
	clean(t, a.edge)
	for _, s := range enterAll(t, a.edge, "web.example", 3) {
		s.stays(t, a.edge, "web.example")
		s.stays(t, b.edge, "web.example")
	}
	strange := session{"hapsnap-00000000=0123456789abcdef", ""}
	if got := a.get(t, "web.example", "/", "Cookie: "+strange.cookie); got.StatusCode != 200 || len(got.Cookies()) != 1 {
		t.Errorf("a cookie of nobody: %d, %v", got.StatusCode, got.Cookies())
	}
}

// An endpoint that is added at run time has the same cookie as if it had been there from the start. Sessions of
// other endpoints stay when endpoints come and go.
func TestSessionsOutliveEndpoints(t *testing.T) {
	t.Parallel()
	one, two, late := mirror(t, "one", nil), mirror(t, "two", nil), mirror(t, "late", nil)
	options := []string{"affinity", "cookie", "affinity-cookie-name", "session"}
	a := startArranged(t, served(t, "web", []int{one, two}, options...), asTheyAre)
	b := startArranged(t, served(t, "web", []int{one, two, late}, options...), reversed)
	before := enterAll(t, a.edge, "web.example", 2)

	spare := a.server(t, bind.SparePort)
	a.runtime(t, fmt.Sprintf("set server %s addr 127.0.0.1 port %d", spare, late))
	a.runtime(t, fmt.Sprintf("set server %s state ready", spare))
	for _, s := range enterAll(t, a.edge, "web.example", 3) {
		s.stays(t, a.edge, "web.example")
		s.stays(t, b.edge, "web.example")
	}
	gone := a.server(t, one)
	a.runtime(t, fmt.Sprintf("set server %s state drain", gone))
	for _, s := range before {
		s.stays(t, a.edge, "web.example")
	}
	a.runtime(t, fmt.Sprintf("set server %s state maint", gone))
	a.runtime(t, fmt.Sprintf("set server %s addr %s port %d", gone, bind.SpareAddress, bind.SparePort))
	for _, s := range before {
		if s.server == "one" {
			s.moves(t, a.edge, "web.example")
		} else {
			s.stays(t, a.edge, "web.example")
		}
	}
}

// A terminating endpoint gets only the requests of its sessions. One that is neither ready nor serving gets
// none.
func TestRow41SessionsFinish(t *testing.T) {
	t.Parallel()
	const (
		ready    = " {addresses: [127.0.0.1], conditions: {ready: true, serving: true, terminating: false}}"
		unready  = " {addresses: [127.0.0.1], conditions: {ready: false, serving: false, terminating: false}}"
		draining = " {addresses: [127.0.0.1], conditions: {ready: false, serving: true, terminating: true}}"
	)
	one, two, three := fmt.Sprint(mirror(t, "one", nil)), fmt.Sprint(mirror(t, "two", nil)), fmt.Sprint(mirror(t, "three", nil))
	yaml := func(second, third string) string {
		return strings.Replace(sliced("web", "IPv4", one+ready, two+second, three+third),
			"{namespace: shop, name: web}", "{namespace: shop, name: web, annotations: {hapsnap.dev/affinity: cookie}}", 1)
	}
	before, after := startArranged(t, yaml(ready, ready), asTheyAre), startArranged(t, yaml(draining, unready), asTheyAre)
	clean(t, after.edge)
	for _, s := range enterAll(t, before.edge, "web.example", 3) {
		if s.server == "three" {
			s.moves(t, after.edge, "web.example")
		} else {
			s.stays(t, after.edge, "web.example")
		}
	}
	for range 10 {
		if s := enter(t, after.edge, "web.example"); s.server != "one" {
			t.Fatalf("a new session with %s", s.server)
		}
	}
}

// A session whose endpoint no longer answers goes to another one.
func TestSessionsLeaveTheDead(t *testing.T) {
	t.Parallel()
	dying := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := json.NewEncoder(w).Encode(seen{Name: "dying"}); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(dying.Close)
	e := start(t, served(t, "web", []int{portOf(dying), mirror(t, "other", nil)}, "affinity", "cookie", "timeout-connect", "1s"))
	sessions := enterAll(t, e, "web.example", 2)
	dying.Close()
	awaitRefusal(t, dying.Listener.Addr().String())
	for _, s := range sessions {
		if s.server == "dying" {
			s.moves(t, e, "web.example")
		} else {
			s.stays(t, e, "web.example")
		}
	}
}

// awaitRefusal waits until nobody accepts connections at an address. A program that another test starts has the
// closed listener for a moment, between its fork and its exec.
func awaitRefusal(t *testing.T, address string) {
	t.Helper()
	await(t, func() error {
		c, err := net.Dial("tcp", address)
		if errors.Is(err, syscall.ECONNREFUSED) {
			return nil
		}
		if err == nil {
			c.Close()
		}
		return fmt.Errorf("%s does not refuse connections: %v", address, err)
	})
}

func TestSessionCookie(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		options []string
		want    http.Cookie
	}{
		{"bare", nil, http.Cookie{HttpOnly: true, Path: "/"}},
		{"lax", []string{"affinity-cookie-name", "s-1", "affinity-cookie-same-site", "Lax", "affinity-cookie-domain", "lax.example"},
			http.Cookie{Name: "s-1", HttpOnly: true, Path: "/", SameSite: http.SameSiteLaxMode, Domain: "lax.example"}},
		{"strict", []string{"affinity-cookie-same-site", "Strict"}, http.Cookie{HttpOnly: true, Path: "/", SameSite: http.SameSiteStrictMode}},
		{"none", []string{"affinity-cookie-same-site", "None"}, http.Cookie{HttpOnly: true, Path: "/", SameSite: http.SameSiteNoneMode, Secure: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := start(t, served(t, c.name, []int{mirror(t, "one", nil)}, append(c.options, "affinity", "cookie")...))
			clean(t, e)
			cookies := e.get(t, c.name+".example", "/").Cookies()
			if len(cookies) != 1 {
				t.Fatalf("cookies: %v", cookies)
			}
			got := *cookies[0]
			if c.want.Name == "" && strings.HasPrefix(got.Name, "hapsnap-") {
				c.want.Name = got.Name
			}
			if len(got.Value) != 16 {
				t.Errorf("value %q", got.Value)
			}
			got.Value, got.Raw = "", ""
			if got.String() != c.want.String() {
				t.Errorf("got %s, want %s", got.String(), c.want.String())
			}
		})
	}
}

// With affinity-cookie-preserve, a server can set the cookie itself.
func TestSessionPreserve(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "s", Value: "", MaxAge: -1})
	}))
	t.Cleanup(s.Close)
	e := start(t, served(t, "kept", []int{portOf(s)}, "affinity", "cookie", "affinity-cookie-name", "s", "affinity-cookie-preserve", "true")+
		served(t, "replaced", []int{portOf(s)}, "affinity", "cookie", "affinity-cookie-name", "s"))
	clean(t, e)
	for name, kept := range map[string]bool{"kept": true, "replaced": false} {
		cookies := e.get(t, name+".example", "/").Cookies()
		if len(cookies) != 1 || (cookies[0].Value == "") != kept {
			t.Errorf("%s: %v", name, cookies)
		}
	}
}

// The Services of a host have separate sessions.
func TestSessionsOfTwoServices(t *testing.T) {
	t.Parallel()
	yaml := served(t, "web", []int{mirror(t, "w1", nil), mirror(t, "w2", nil)}, "affinity", "cookie") +
		served(t, "api", []int{mirror(t, "a1", nil), mirror(t, "a2", nil)}, "affinity", "cookie")
	e := start(t, yaml)
	web, api := enter(t, e, "web.example"), enter(t, e, "api.example")
	for range 5 {
		both := "Cookie: " + web.cookie + "; " + api.cookie
		if got := e.get(t, "web.example", "/", both); got.seen.Name != web.server || len(got.Cookies()) > 0 {
			t.Errorf("web: %s, want %s", got.seen.Name, web.server)
		}
		if got := e.get(t, "api.example", "/", both); got.seen.Name != api.server || len(got.Cookies()) > 0 {
			t.Errorf("api: %s, want %s", got.seen.Name, api.server)
		}
	}
}

// The key of the cookies is added when a snapshot is bound, and no snapshot contains it. Another key gives
// other cookies. Without its Secret, sessions work too.
func TestSessionKey(t *testing.T) {
	t.Parallel()
	yaml := served(t, "web", []int{mirror(t, "one", nil)}, "affinity", "cookie")
	keyed := func(cfg *config.Config) {
		cfg.Affinity = config.Affinity{KeySecret: "edge/affinity", Key: "cookie-key"}
	}
	secret := func(key string) string {
		return fmt.Sprintf("---\napiVersion: v1\nkind: Secret\nmetadata: {namespace: edge, name: affinity}\nstringData: {cookie-key: %q}\n", key)
	}
	of := func(a arranged) session {
		s := enter(t, a.edge, "web.example")
		s.stays(t, a.edge, "web.example")
		return s
	}
	const key = `it's a "key" # of $HOME \ its own`
	one, same := of(startArranged(t, yaml+secret(key), asTheyAre, keyed)), of(startArranged(t, yaml+secret(key), reversed, keyed))
	if one != same {
		t.Errorf("one key, two cookies: %v, %v", one, same)
	}
	seen := map[session]string{one: "the key"}
	for name, a := range map[string]arranged{
		"another key": startArranged(t, yaml+secret("another"), asTheyAre, keyed),
		"no Secret":   startArranged(t, yaml, asTheyAre, keyed),
		"no key":      startArranged(t, yaml, asTheyAre),
	} {
		s := of(a)
		if other, there := seen[s]; there {
			t.Errorf("%s and %s give the same cookie", name, other)
		}
		seen[s] = name
		for _, f := range a.result.Draft.Files {
			if strings.Contains(string(f.Content), "another") {
				t.Errorf("%s holds the key", f.Path)
			}
		}
	}
}
