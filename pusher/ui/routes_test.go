package ui

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

const shopConfiguration = `defaults main
    mode http

frontend http from main
    bind *:80
    http-request set-var(txn.host) req.fhdr(host),field(1,:),lower,rtrim(.)
    http-request set-var(txn.h) var(txn.host),map_str(maps/host.map)
    http-request set-var(txn.p) path
    http-request set-var(txn.b) var(txn.h),concat(|,txn.p),map_str(maps/exact.map)
    http-request set-var(txn.b) var(txn.h),concat(|,txn.p,/),map_beg(maps/prefix.map) if !{ var(txn.b) -m found }
    http-request return status 404 if !{ var(txn.b) -m found }
    use_backend %[var(txn.b)] if { var(txn.b) -m found }

frontend https from main
    bind *:443 ssl crt-list files/https.crtlist
    http-request set-var(txn.b) req.fhdr(host),concat(|/),map_beg(maps/prefix.map)
    use_backend %[var(txn.b)] if { var(txn.b) -m found }

backend shop_web from main
    timeout server 45s
    #hapsnap servers shop/web:http

backend shop_cart from main
    #hapsnap servers shop/cart:http
`

// shop is a snapshot with some routes, one of them by a malicious tenant.
func shop(revision uint64, more ...snapshots.Quarantined) snapshots.Snapshot {
	files := []snapshots.File{
		{Path: "files/https.crtlist", Content: []byte("certs/fallback.pem !*\ncerts/web.pem shop.example.com\n")},
		{Path: "haproxy.cfg", Content: []byte(shopConfiguration)},
		{Path: "maps/exact.map", Content: []byte("shop.example.com|/cart/x shop_cart\n")},
		{Path: "maps/host.map", Content: []byte("javascript:alert(1) javascript:alert(1)\nshop.example.com shop.example.com\n")},
		{Path: "maps/prefix.map", Content: []byte("<img/src=x>|/<b>/ shop_cart\njavascript:alert(1)|/ shop_cart\nshop.example.com|/ shop_web\nshop.example.com|/cart/ shop_cart\n")},
	}
	d := snapshots.Draft{
		Files: files, Time: noon.Add(time.Duration(revision) * time.Hour), Quarantined: more, Subject: fmt.Sprintf("number %d", revision),
		Provenance: snapshots.Provenance{Time: noon.Add(time.Duration(revision) * time.Hour)},
		Certificates: []snapshots.CertificateRef{
			{File: "certs/fallback.pem"},
			{File: "certs/web.pem", Secret: snapshots.SecretName{Namespace: "shop", Name: "web-tls"}, Observed: &snapshots.ObservedCertificate{Fingerprint: "ab", Names: []string{"shop.example.com"}, NotAfter: noon.Add(300 * time.Hour)}},
			{File: "users", Secret: snapshots.SecretName{Namespace: "shop", Name: "passwords"}, Use: snapshots.UseUsers},
		},
	}
	d.Files[1].Content = fmt.Appendf(nil, "%s# %d\n", shopConfiguration, revision)
	return d.Number(revision, snapshots.ID{})
}

// storeOf returns a store with these snapshots, the newest last.
func storeOf(all ...snapshots.Snapshot) *fakeStore {
	f := &fakeStore{stored: map[snapshots.ID]snapshots.Snapshot{}}
	for _, s := range all {
		f.ids = append(f.ids, s.ID())
		f.stored[s.ID()] = s
	}
	return f
}

// shopFleet is a fleet that runs a snapshot. The Service shop/cart has no endpoint.
func shopFleet(runs snapshots.ID) func() Fleet {
	s := oneInstance()
	s.Good, s.Fleet = runs, "edge"
	s.Backends = &report.Backends{All: 2, Empty: 1, List: []report.EmptyBackend{{Backend: "shop_cart", Since: noon}}}
	live := &Live{
		Endpoints:       map[snapshots.ServicePort][]snapshots.Endpoint{{Namespace: "shop", Service: "web", Port: "http"}: {{Address: "10.0.0.1", Port: 8080}, {Address: "10.0.0.2", Port: 8080, Draining: true}}},
		CertificateEnds: map[snapshots.SecretName]time.Time{{Namespace: "shop", Name: "web-tls"}: time.Date(2199, 1, 2, 0, 0, 0, 0, time.UTC)},
		Issuers:         map[snapshots.SecretName]string{{Namespace: "shop", Name: "web-tls"}: "Example <b>CA</b>"},
		Traffic:         map[string]observe.Traffic{"shop_cart": {Rate: 1250, ErrorRate: 25, Errors: 1007}},
	}
	return func() Fleet { return Fleet{Status: s, At: noon, Live: live} }
}

// plainText returns a page without its tags.
func plainText(page string) string {
	var out strings.Builder
	inTag := false
	for _, c := range page {
		switch {
		case c == '<':
			inTag = true
			out.WriteByte(' ')
		case c == '>':
			inTag = false
		case !inTag:
			out.WriteRune(c)
		}
	}
	return strings.Join(strings.Fields(html.UnescapeString(out.String())), " ")
}

// getWith requests a page until it has a text. On a busy machine, the data of a page may come only after the page
// has stopped waiting for it.
func getWith(t *testing.T, h http.Handler, target, want string) string {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; <-time.After(20 * time.Millisecond) {
		_, body := get(t, h, target)
		if strings.Contains(plainText(body), want) {
			return body
		}
		if time.Now().After(end) {
			t.Fatalf("%s: no %q in\n%s", target, want, plainText(body))
		}
	}
}

func shopPage(t *testing.T, more ...snapshots.Quarantined) http.Handler {
	t.Helper()
	first, second := shop(1), shop(2, more...)
	store := storeOf(first, second)
	return server(t, Source{Channel: "edge", Fleet: shopFleet(second.ID()), Store: store}).Handler()
}

func TestWhoAnswers(t *testing.T) {
	t.Parallel()
	h := shopPage(t)
	for name, test := range map[string]struct {
		query string
		want  []string
		not   []string
	}{
		"a path": {"scheme=http&host=shop.example.com&path=/x", []string{
			"backend shop_web, Service shop/web:http in r2 , which the fleet runs", "listener :80 haproxy.cfg:5 bind *:80", "maps/prefix.map:3 shop.example.com|/ shop_web",
			"2 endpoints 10.0.0.1:8080 10.0.0.2:8080 (draining) now", "timeout server 45s", "hapsnap explain request GET 'http://shop.example.com/x'",
		}, nil},
		"without a server":                 {"scheme=http&host=shop.example.com&path=/cart", []string{"HAProxy itself: 503, for backend shop_cart has no server", "▲ no endpoint", "lost to it maps/prefix.map:3"}, nil},
		"over TLS":                         {"host=shop.example.com", []string{"listener :443", "certificate shop/web-tls , until 2026-08-12"}, nil},
		"no route":                         {"scheme=http&host=other.example.com", []string{"HAProxy itself: 404"}, nil},
		"a name in upper case, with a dot": {"scheme=http&host=SHOP.example.com.&path=/x", []string{"backend shop_web"}, nil},
		"a URL that was pasted":            {"host=http://shop.example.com:80/cart/x?a=b", []string{"maps/exact.map:1", "'http://shop.example.com:80/cart/x?a=b'"}, nil},
		"an address of IPv6":               {"scheme=http&host=2001:db8::1", []string{"HAProxy itself: 404", "http://[2001:db8::1]/"}, nil},
		"an old snapshot":                  {"scheme=http&host=shop.example.com&snapshot=r1", []string{"in r1 , as you asked", "servers are not known here"}, []string{"10.0.0.1"}},
		"headers and a client":             {"scheme=http&host=shop.example.com&headers=X-A:+b%0D%0AX-B=it's&client=203.0.113.9", []string{`--header 'X-A=b' --header 'X-B=it'\''s' --client 203.0.113.9`}, nil},
		"no port":                          {"host=shop.example.com:99", []string{"Nothing listens on port 99."}, []string{"backend shop_web,"}},
		"no host":                          {"host=%00", []string{"▲"}, []string{"listener :"}},
		"a path with a blank":              {"host=a&path=/a+b", []string{"holds a character that no request has", "encode it: a blank is %20"}, nil},
		"control characters":               {"host=a%0d%0ab&path=%07", []string{"▲"}, nil},
		"a host with a path in it":         {"host=a/b", []string{"The host is not a name or an address."}, nil},
		"a method that is none":            {"host=a&method=<b>", []string{`"<B>" is no method`}, nil},
		"a header that is none":            {"host=a&headers=x", []string{`"x" is no header`}, nil},
		"a client that is none":            {"host=a&client=me", []string{`"me" is no IP address`}, nil},
		"another scheme":                   {"host=a&scheme=ftp", []string{"is no URL of http or https"}, nil},
		"a snapshot that is not there":     {"host=a&snapshot=r9", []string{"The store has no snapshot r9. It has those from r1 to r2."}, nil},
		"a time that is none":              {"host=a&snapshot=<script>", []string{`"<script>" is neither a snapshot nor a time`}, nil},
	} {
		code, body := get(t, h, "/routes?"+test.query)
		text := plainText(body)
		if code != http.StatusOK {
			t.Errorf("%s: %d: %s", name, code, text)
		}
		for _, want := range test.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q in\n%s", name, want, text)
			}
		}
		for _, not := range test.not {
			if strings.Contains(text, not) {
				t.Errorf("%s: %q in\n%s", name, not, text)
			}
		}
		if strings.Contains(body, "<script>") || strings.Contains(body, "<b>") && strings.Contains(test.query, "<b>") && !strings.Contains(body, "&lt;B&gt;") {
			t.Errorf("%s: what was typed is part of the page:\n%s", name, body)
		}
	}
}

func TestWhoAnsweredThen(t *testing.T) {
	t.Parallel()
	first, second := shop(1), shop(2)
	store := storeOf(first, second)
	ended := time.Now().Add(-2 * time.Hour)
	store.journal = []channel.Entry{
		{At: ended, Turn: true, Verb: channel.TurnDone, Snapshot: first.ID(), Fleet: "edge"},
		{At: time.Now().Add(-30 * time.Minute), Turn: true, Verb: channel.TurnBegan, Snapshot: second.ID(), Fleet: "edge"},
	}
	h := server(t, Source{Channel: "edge", Fleet: shopFleet(second.ID()), Store: store}).Handler()
	for at, want := range map[string]string{
		"1h ago":     "in r1 , which the fleet ran at",
		"10m ago":    "a rollout of r2 was under way, so some instances ran that",
		"2000-01-01": "The store holds no snapshot from before 2000-01-01",
		"newest":     "in r2 , the newest",
	} {
		if _, body := get(t, h, "/routes?host=shop.example.com&snapshot="+url.QueryEscape(at)); !strings.Contains(plainText(body), want) {
			t.Errorf("%s: no %q in\n%s", at, want, plainText(body))
		}
	}
	quiet := server(t, Source{Channel: "edge", Fleet: shopFleet(second.ID()), Store: storeOf(first, second)}).Handler()
	at := noon.Add(90 * time.Minute)
	if time.Now().Before(at) {
		t.Fatal("the clock of this machine is behind the test")
	}
	if _, body := get(t, quiet, "/routes?snapshot="+url.QueryEscape(at.Format(time.RFC3339))); !strings.Contains(plainText(body), "in r1, the newest that was published by 2026-07-30T13:30:00Z; the journal does not say what ran") {
		t.Errorf("without a journal:\n%s", plainText(body))
	}
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	h := shopPage(t)
	_, body := get(t, h, "/routes")
	text := plainText(body)
	for _, want := range []string{
		"Hosts and paths · 3 hosts, 5 paths", "shop.example.com / shop/web:http 1 shop/web-tls", "/cart/x exact shop/cart:http ▲ no server", "1,250.0 2.0 % 1,007 maps/exact.map:1", "5 found, page 1 of 1",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if n := strings.Count(body, `href="https://shop.example.com/"`); n != 1 {
		t.Errorf("%d links to the host:\n%s", n, body)
	}
	if strings.Contains(body, `href="javascript`) || strings.Contains(body, "<img") {
		t.Errorf("a tenant writes the page:\n%s", body)
	}
	for query, want := range map[string]string{
		"q=CART": "found, page 1 of 1", "only=empty": "4 found", "only=errors": "4 found", "q=nobody": "No route has all of that", "q=shop/web+45s": "1 found",
		"snapshot=r1": "in r1, as you asked", "page=99": "page 1 of 1", "page=x&sort=-path&only=all": "↓",
	} {
		if _, body := get(t, h, "/routes?"+query); !strings.Contains(plainText(body), want) {
			t.Errorf("%s: no %q in\n%s", query, want, plainText(body))
		}
	}
	for _, by := range []string{"host", "path", "service", "errors", "rate", "expiry", "-expiry", "nothing"} {
		if code, body := get(t, h, "/routes?sort="+by); code != http.StatusOK || strings.Count(body, "<tr>") != 6 {
			t.Errorf("sorted by %s: %d, %d rows", by, code, strings.Count(body, "<tr>"))
		}
	}
}

func TestRoutesAsJSON(t *testing.T) {
	t.Parallel()
	h := shopPage(t)
	var list routeList
	if _, body := get(t, h, "/api/v1/routes?q=shop.example.com&sort=-path"); json.Unmarshal([]byte(body), &list) != nil || list.Found != 3 || list.Routes[0].Path != "/cart/x" || list.Routes[0].To[0].Servers != 0 || list.Routes[0].Traffic.Errors != 1007 {
		t.Errorf("got %s", body)
	}
	var a answered
	if _, body := get(t, h, "/api/v1/answer?scheme=http&host=shop.example.com&path=/a"); json.Unmarshal([]byte(body), &a) != nil || a.Backend != "shop_web" || len(a.Services[0].Endpoints) != 2 || !a.Now {
		t.Errorf("got %s", body)
	}
	for query, want := range map[string]int{"answer?host=": 400, "answer?host=a&snapshot=r7": 404, "routes?snapshot=bad": 400, "certificates?snapshot=r7": 404, "left-out?snapshot=0": 404} {
		if code, body := get(t, h, "/api/v1/"+query); code != want {
			t.Errorf("%s: %d: %s", query, code, body)
		}
	}
}

// A snapshot that cannot be read does not affect the form and the other tabs.
func TestRoutesOfADamagedSnapshot(t *testing.T) {
	t.Parallel()
	good, bad := shop(1), shop(2)
	gone := shop(3)
	store := storeOf(good, bad, gone)
	delete(store.stored, gone.ID())
	broken := store.stored[bad.ID()]
	broken.Files[1].Content = append(broken.Files[1].Content, "backend x\n    #hapsnap severs of/tomorrow\n"...)
	store.stored[bad.ID()] = broken
	h := server(t, Source{Channel: "edge", Fleet: shopFleet(good.ID()), Store: store}).Handler()
	for query, want := range map[string]string{"snapshot=r2": "Snapshot r2 cannot be read by this version", "snapshot=r3&host=shop.example.com": "snapshot not found"} {
		code, body := get(t, h, "/routes?"+query)
		if code != http.StatusOK || !strings.Contains(plainText(body), want) || !strings.Contains(body, `id="ask-host"`) {
			t.Errorf("%s: %d\n%s", query, code, plainText(body))
		}
	}
	if _, body := get(t, h, "/routes"); !strings.Contains(body, "https://shop.example.com/") {
		t.Errorf("the snapshot that runs is not shown:\n%s", plainText(body))
	}
}

// The list says how many servers of a route are up, as the workers said last: on the instance with the fewest, and
// on the one with the most. Endpoints that are gone or draining do not count.
func TestServersThatAreUp(t *testing.T) {
	t.Parallel()
	s := shop(1)
	fleet := shopFleet(s.ID())()
	web := snapshots.ServicePort{Namespace: "shop", Service: "web", Port: "http"}
	endpoints := func(n int) []snapshots.Endpoint {
		out := []snapshots.Endpoint{{Address: "10.0.1.1", Port: 8080, Draining: true}}
		for i := range n {
			out = append(out, snapshots.Endpoint{Address: fmt.Sprintf("10.0.0.%d", i+1), Port: 8080})
		}
		return out
	}
	on := func(n uint16) rollout.ServersUp {
		return rollout.ServersUp{Backends: []string{"other", "shop_web"}, Counts: []uint16{9, n}}
	}
	without := rollout.ServersUp{Backends: []string{"other"}, Counts: []uint16{9}}
	for _, c := range []struct {
		endpoints   int
		up          []rollout.ServersUp
		want, class string
	}{
		{2, nil, "2", ""},
		{2, []rollout.ServersUp{without}, "2", ""},
		{2, []rollout.ServersUp{on(2), without, on(2)}, "2 / 2 up", "up"},
		{3, []rollout.ServersUp{on(3), on(2)}, "2–3 / 3 up", ""},
		{3, []rollout.ServersUp{on(2)}, "2 / 3 up", ""},
		{2, []rollout.ServersUp{on(7)}, "2 / 2 up", "up"},
		{0, []rollout.ServersUp{on(1)}, "▲ no server", "down"},
	} {
		fleet.Status.Backends = nil
		fleet.Live.Endpoints = map[snapshots.ServicePort][]snapshots.Endpoint{web: endpoints(c.endpoints)}
		fleet.Live.Up = c.up
		h := server(t, Source{Channel: "edge", Fleet: func() Fleet { return fleet }, Store: storeOf(s)}).Handler()
		_, body := get(t, h, "/routes?q=shop/web")
		want := "<div>" + c.want + "</div>"
		if c.class != "" {
			want = `<div class="` + c.class + `">` + c.want + "</div>"
		}
		if !strings.Contains(body, want) {
			t.Errorf("%d endpoints, %v: no %q in\n%s", c.endpoints, c.up, want, plainText(body))
		}
	}
}

func TestHostsThatAreLinks(t *testing.T) {
	t.Parallel()
	for host, link := range map[string]bool{
		"shop.example.com": true, "a": true, "": false, "*.example.com": false, "javascript:alert(1)": false, "a/b": false, "a@b": false, "[::1]": false,
		"-a.example": false, "a..b": false, "a.": false, "a b": false, "Ä.example": false, strings.Repeat("a.", 130) + "b": false,
	} {
		s := shop(1)
		s.Files[2].Content, s.Files[4].Content = nil, []byte(host+"|/ shop_web\n")
		h := server(t, Source{Channel: "edge", Fleet: shopFleet(s.ID()), Store: storeOf(s)}).Handler()
		if _, body := get(t, h, "/routes"); strings.Contains(body, `rel="noreferrer"`) != link {
			t.Errorf("%q: a link: %v", host, !link)
		}
	}
}

func TestLeftOut(t *testing.T) {
	t.Parallel()
	bad := snapshots.Quarantined{Kind: "Ingress", Namespace: "shop", Name: "old", Reason: `path "/" (Prefix) of host shop.example.com is not used: it was taken by Ingress shop/web, which is older`}
	evil := snapshots.Quarantined{Kind: "<script>", Namespace: `"onload=`, Name: "<img>", Reason: "<i>no</i>"}
	first, second, third := shop(1), shop(2, bad), shop(3, bad, evil)
	said := make(chan json.RawMessage, 1)
	source := Source{
		Channel: "edge", Fleet: shopFleet(third.ID()), Store: storeOf(first, second, third),
		Compiled: func(context.Context) (json.RawMessage, error) {
			select {
			case text := <-said:
				return text, nil
			default:
				return nil, fmt.Errorf("connection refused")
			}
		},
	}
	h := server(t, source).Handler()
	body := getWith(t, h, "/left-out", "The compiler cannot be asked")
	text := plainText(body)
	for _, want := range []string{"Left out · 2 findings", "Ingress shop/old 2026-07-30 14:00:00 r2", "requests go to Ingress shop/web", "The compiler cannot be asked for fields and hints: connection refused", "<i>no</i>"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(body, "<i>no") || strings.Contains(body, "<img") {
		t.Errorf("an object writes the page:\n%s", body)
	}
	if _, body := get(t, h, "/routes?scheme=http&host=shop.example.com"); !strings.Contains(plainText(body), "lost to it Ingress shop/old") {
		t.Errorf("the loser is not named:\n%s", plainText(body))
	}
	getWith(t, h, "/", "Left out 2")
	if _, body := get(t, h, "/left-out?snapshot=r1"); !strings.Contains(plainText(body), "Nothing is left out") {
		t.Errorf("of a snapshot without any:\n%s", plainText(body))
	}
	said <- json.RawMessage(`{"found":[{"kind":"Ingress","namespace":"shop","name":"old","file":"a.yaml","line":7,"field":"spec.rules[0]","reason":"because","hint":"do that"}]}`)
	h = server(t, source).Handler()
	body = getWith(t, h, "/left-out", "hint: do that")
	if text := plainText(body); !strings.Contains(text, "spec.rules[0] a.yaml:7") || !strings.Contains(text, "hint: do that") || strings.Contains(text, "requests go to Ingress shop/web") {
		t.Errorf("what the compiler says is not shown:\n%s", text)
	}
}

// A compiler on another host reports only numbers. Then the page shows what the manifest says.
func TestFindingsThatAreWithheld(t *testing.T) {
	t.Parallel()
	s := shop(1, snapshots.Quarantined{Kind: "Ingress", Namespace: "shop", Name: "old", Reason: "no"})
	h := server(t, Source{Channel: "edge", Fleet: shopFleet(s.ID()), Store: storeOf(s), Compiled: func(context.Context) (json.RawMessage, error) {
		return json.RawMessage(`{"found":[],"withheld":3}`), nil
	}}).Handler()
	if body := getWith(t, h, "/left-out", "The compiler tells 3 findings to clients on its own host, and in the Secret"); !strings.Contains(plainText(body), "Ingress shop/old") {
		t.Errorf("got %s", plainText(body))
	}
}

func TestCertificates(t *testing.T) {
	t.Parallel()
	s := shop(1)
	s.Manifest.Spec.Certificates = append(s.Manifest.Spec.Certificates, snapshots.CertificateRef{
		File: "certs/old.pem", Secret: snapshots.SecretName{Namespace: "shop", Name: "old"}, Observed: &snapshots.ObservedCertificate{NotAfter: time.Unix(1, 0), Names: []string{"<img>"}},
	})
	h := server(t, Source{Channel: "edge", Fleet: shopFleet(s.ID()), Store: storeOf(s)}).Handler()
	_, body := get(t, h, "/certificates")
	text := plainText(body)
	last := 0
	for _, want := range []string{"shop/old none <img> – ▲ expired 1970-01-01 shown to clients", "shop/web-tls shop.example.com shop.example.com Example <b>CA</b> ", "2199-01-02", "made by the pusher none not known – not known – shown where there is no other", "Clients of 2 hosts see the default"} {
		at := strings.Index(text, want)
		if at < last {
			t.Errorf("%q is at %d, after %d in\n%s", want, at, last, text)
		}
		last = at
	}
	if strings.Contains(text, "passwords") || strings.Contains(body, "<img") {
		t.Errorf("got %s", body)
	}
}

// A snapshot is read once for all questions. With 100,000 routes, reading takes half a second.
func TestSnapshotsAreReadOnce(t *testing.T) {
	t.Parallel()
	s := shop(1)
	page := server(t, Source{Channel: "edge", Fleet: shopFleet(s.ID()), Store: storeOf(s)})
	h := page.Handler()
	get(t, h, "/routes")
	first, err := page.archive.routes(t.Context(), s.ID())
	if err != nil {
		t.Fatal(err)
	}
	get(t, h, "/routes?host=shop.example.com")
	get(t, h, "/certificates")
	if again, err := page.archive.routes(t.Context(), s.ID()); err != nil || again.table != first.table || again.requests != first.requests {
		t.Errorf("it was read again: %v", err)
	}
}

// Recorded endpoints are the servers of their snapshot, also if it does not run.
func TestRecordedEndpoints(t *testing.T) {
	t.Parallel()
	s := shop(1)
	recorded, err := snapshots.MarshalEndpoints(map[snapshots.ServicePort][]snapshots.Endpoint{{Namespace: "shop", Service: "web", Port: "http"}: {{Address: "192.0.2.7", Port: 81}}})
	if err != nil {
		t.Fatal(err)
	}
	s.Files = append([]snapshots.File{{Path: snapshots.EndpointsFile, Content: recorded}}, s.Files...)
	later := shop(2)
	h := server(t, Source{Channel: "edge", Fleet: shopFleet(later.ID()), Store: storeOf(s, later)}).Handler()
	if _, body := get(t, h, "/routes?scheme=http&host=shop.example.com&snapshot=r1"); !strings.Contains(plainText(body), "1 endpoint 192.0.2.7:81 as the snapshot has them") {
		t.Errorf("got %s", plainText(body))
	}
}
