package uitest

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/browsertest"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/pusher/ui"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/request"
)

// noon is the time at which the world begins.
var noon = time.Now().UTC().Add(-135 * time.Minute).Truncate(time.Minute)

// world is a fleet with its store, as a page shows them.
type world struct {
	latest *ui.Latest
	server *httptest.Server

	mu      sync.Mutex
	all     []snapshots.Snapshot
	journal []channel.Entry
	said    string // answer of the compiler
}

// newWorld serves the page of a fleet.
func newWorld(t *testing.T, all ...snapshots.Snapshot) *world {
	t.Helper()
	w := &world{latest: ui.NewLatest(), all: all, said: `{"found":[]}`}
	page := ui.New(t.Context(), ui.Options{Log: slog.New(slog.DiscardHandler), Source: ui.Source{
		Channel: "edge", Fleet: w.fleet, Follow: w.latest.Follow, Store: w, Repository: "https://git.example.com/edge",
		Origins: func(context.Context, ui.Question) ([]ui.Wrote, error) {
			web := ui.Origin{Kind: "Ingress", Namespace: "shop", Name: "web", Field: "spec.rules[0].http.paths[1]", File: "manifests/web.yaml", LineNumber: 15}
			rate, timeout := web, ui.Origin{Kind: "Service", Namespace: "shop", Name: "cart", Field: "metadata.annotations[hapsnap.dev/timeout-server]", File: "manifests/cart.yaml", LineNumber: 6}
			rate.Field, rate.LineNumber = "metadata.annotations[hapsnap.dev/rate-limit]", 7
			return []ui.Wrote{
				{Line: request.Line{File: "maps/prefix.map", Text: "shop.example.com|/cart/ shop_cart_80"}, Origins: []ui.Origin{web}},
				{Line: request.Line{File: "haproxy.cfg", Text: "timeout server 45s"}, Origins: []ui.Origin{timeout}},
				{Line: request.Line{File: "haproxy.cfg", Text: "http-request deny deny_status 429 if { sc2_http_req_rate gt 50 }"}, Origins: []ui.Origin{rate}},
			}, nil
		},
		Lines: w.wrote,
		Servers: func(_ context.Context, backend string) []ui.ServerState {
			if backend != "shop_cart_80" {
				return nil
			}
			return []ui.ServerState{
				{Instance: "edge-1", Address: "10.244.1.5", Port: 8080, Up: true}, {Instance: "edge-2", Address: "10.244.1.5", Port: 8080, Up: true}, {Instance: "edge-1", Address: "10.244.2.9", Port: 8080, Up: true},
				{Instance: "edge-2", Address: "10.244.2.9", Port: 8080}, {Instance: "edge-1", Address: "10.244.3.4", Port: 8080, Up: true}, {Instance: "edge-2", Address: "10.244.3.4", Port: 8080, Up: true},
			}
		},
		Compiled: func(context.Context) (json.RawMessage, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return json.RawMessage(w.said), nil
		},
	}})
	w.server = httptest.NewServer(page.Handler())
	t.Cleanup(w.server.CloseClientConnections)
	return w
}

// fleet is the state of the fleet with the present time. A page with an old state has no clock, and a browser on a
// busy machine may be slow.
func (w *world) fleet() ui.Fleet {
	f := w.latest.Fleet()
	f.At = time.Now()
	f.Status.Updated = f.At.UTC()
	return f
}

// wrote answers that Ingresses wrote the lines of maps. Each Ingress is named as its host begins.
func (w *world) wrote(_ context.Context, places []string) (out []ui.Wrote, _ error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range places {
		file, number, _ := strings.Cut(p, ":")
		line, _ := strconv.Atoi(number)
		one := ui.Wrote{Line: request.Line{File: file, Line: line}, Origins: []ui.Origin{}}
		for _, f := range w.all[len(w.all)-1].Files {
			if lines := strings.Split(string(f.Content), "\n"); f.Path == file && line <= len(lines) {
				one.Text = lines[line-1]
			}
		}
		if name, _, ok := strings.Cut(one.Text, "."); ok && strings.HasPrefix(file, "maps/") {
			one.Origins = []ui.Origin{{Kind: "Ingress", Namespace: strings.Replace(name, "blog", "shop", 1), Name: strings.Replace(name, "shop", "web", 1), File: "manifests/" + name + ".yaml", LineNumber: 8 + 6*line}}
		}
		out = append(out, one)
	}
	return out, nil
}

func (w *world) View(context.Context) (channel.View, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var v channel.View
	for _, s := range w.all {
		v.IDs = append(v.IDs, s.ID())
	}
	return v, nil
}

func (w *world) Get(_ context.Context, id snapshots.ID) (snapshots.Snapshot, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.all {
		if s.ID() == id {
			return s, nil
		}
	}
	return snapshots.Snapshot{}, snapshots.ErrNotFound
}

func (w *world) Manifest(ctx context.Context, id snapshots.ID) (snapshots.Manifest, error) {
	s, err := w.Get(ctx, id)
	return s.Manifest, err
}

func (*world) Commit(_ context.Context, id snapshots.ID) (string, error) {
	return strings.Repeat(id.Short, 4), nil
}

func (w *world) Journal(context.Context) ([]channel.Entry, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.journal, nil
}

// configuration is that of a shop, as the shipped templates write it, without the parts that no test needs.
const configuration = `defaults main
    mode http
    timeout server 50s

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
    bind *:443 ssl crt-list files/https.crtlist alpn h2,http/1.1
    http-request set-var(txn.host) req.fhdr(host),field(1,:),lower,rtrim(.)
    http-request set-var(txn.h) var(txn.host),map_str(maps/host.map)
    http-request set-var(txn.p) path
    http-request set-var(txn.b) var(txn.h),concat(|,txn.p),map_str(maps/exact.map)
    http-request set-var(txn.b) var(txn.h),concat(|,txn.p,/),map_beg(maps/prefix.map) if !{ var(txn.b) -m found }
    http-request return status 404 if !{ var(txn.b) -m found }
    use_backend %[var(txn.b)] if { var(txn.b) -m found }
`

// backends are Services of the shop, in the order of the configuration.
var backends = []struct{ name, service, lines string }{
	{"shop_blog_http", "shop/blog:http", ""},
	{"shop_cart_80", "shop/cart:80", "    timeout server 45s\n    http-request deny deny_status 429 if { sc2_http_req_rate gt 50 }\n    dynamic-cookie-key shop\n"},
	{"shop_checkout_http", "shop/checkout:http", ""},
	{"shop_web_http", "shop/web:http", "    option httpchk GET /healthz\n"},
	{"team2_api_http", "team2/api:http", ""},
}

// snapshot is a snapshot of the shop. Tail is appended to the configuration, so that snapshots differ.
func snapshot(revision uint64, parent snapshots.ID, subject, tail string, quarantined ...snapshots.Quarantined) snapshots.Snapshot {
	var config strings.Builder
	config.WriteString(configuration)
	for _, b := range backends {
		fmt.Fprintf(&config, "\nbackend %s from main\n%s    #hapsnap servers %s\n", b.name, b.lines, b.service)
	}
	config.WriteString(tail)
	published := noon.Add(time.Duration(revision) * 10 * time.Minute)
	day := func(n int) time.Time {
		return time.Now().UTC().AddDate(0, 0, n).Truncate(24 * time.Hour).Add(time.Hour)
	}
	certificate := func(file, namespace, name string, days int, names ...string) snapshots.CertificateRef {
		return snapshots.CertificateRef{
			File: file, Secret: snapshots.SecretName{Namespace: namespace, Name: name},
			Observed: &snapshots.ObservedCertificate{Fingerprint: strings.Repeat("5e", 32), Names: names, NotAfter: day(days)},
		}
	}
	return snapshots.Draft{
		Subject: subject, Time: published, Quarantined: quarantined,
		Provenance: snapshots.Provenance{Time: published, CompilerVersion: "v0.9.0", HAProxyVersion: "3.0.11", Author: "Ann Lee", Inputs: []snapshots.Input{
			{APIVersion: snapshots.APIVersion, Kind: "CompilerConfig", Name: "edge", UID: "c", ResourceVersion: fmt.Sprint(len(tail) / 20)}, {APIVersion: "networking.k8s.io/v1", Kind: "Ingress", Namespace: "shop", Name: "web", UID: "i", ResourceVersion: "7"},
		}},
		Files: []snapshots.File{
			{Path: "files/https.crtlist", Content: []byte("certs/fallback.pem !*\ncerts/web.pem shop.example.com\ncerts/wild.pem *.example.com\n")},
			{Path: "haproxy.cfg", Content: []byte(config.String())},
			{Path: "maps/exact.map", Content: []byte("shop.example.com|/cart/checkout shop_checkout_http\n")},
			{Path: "maps/host.map", Content: []byte("blog.example.com blog.example.com\nshop.example.com shop.example.com\nteam2.example.net team2.example.net\n")},
			{Path: "maps/prefix.map", Content: []byte("blog.example.com|/ shop_blog_http\nshop.example.com|/ shop_web_http\nshop.example.com|/cart/ shop_cart_80\nteam2.example.net|/ team2_api_http\n")},
		},
		Certificates: []snapshots.CertificateRef{
			{File: "certs/fallback.pem"}, certificate("certs/web.pem", "shop", "web-tls", 53, "shop.example.com", "www.shop.example.com"), certificate("certs/wild.pem", "certs", "wildcard", 9, "*.example.com"),
		},
	}.Number(revision, parent)
}

const frontend = "\nfrontend partner from main\n    bind *:18404\n    default_backend shop_web_http\n"

// left is an object that is left out.
var left = snapshots.Quarantined{
	Kind: "Ingress", Namespace: "shop-old", Name: "legacy", Reason: `path "/cart" (Prefix) of host shop.example.com is not used: it was taken by Ingress shop/web, which is older`,
}

// usual is a fleet of twelve in the middle of a rollout, with some problems.
func usual(t *testing.T) *world {
	t.Helper()
	bad := snapshots.Quarantined{Kind: "Ingress", Namespace: "team2", Name: "api-v2", Reason: "Service team2/api-v2 does not exist"}
	all := []snapshots.Snapshot{snapshot(10, snapshots.ID{}, "+1 backend, +1 route (Ingress shop/checkout)", "")}
	all = append(all, snapshot(11, all[0].ID(), "~1 backend (Service shop/web)", "# 11\n", left))
	all = append(all, snapshot(12, all[1].ID(), "~1 backend (Service shop/cart)", "# 12\n", left))
	all = append(all, snapshot(13, all[2].ID(), "+1 frontend (CompilerConfig)", "# 12\n"+frontend, left, bad))
	w := newWorld(t, all...)
	w.said = `{"head":{"snapshot":"` + all[3].ID().String() + `"},"found":[
		{"kind":"Ingress","namespace":"shop-old","name":"legacy","file":"manifests/legacy.yaml","line":15,"field":"spec.rules[0].http.paths[1]","reason":"path \"/cart\" (Prefix) of host shop.example.com is not used: it was taken by Ingress shop/web, which is older","hint":"remove one of the two; the other is at manifests/web.yaml:15","since":"` + noon.Add(110*time.Minute).Format(time.RFC3339) + `"},
		{"kind":"Ingress","namespace":"team2","name":"api-v2","file":"manifests/team2.yaml","line":9,"field":"spec.rules[0].http.paths[0].backend.service.name","reason":"Service team2/api-v2 does not exist","hint":"create it, or name another one","since":"` + noon.Add(130*time.Minute).Format(time.RFC3339) + `"}]}`
	ids := make([]snapshots.ID, 0, len(all))
	for _, s := range all {
		ids = append(ids, s.ID())
	}
	at := func(minutes int) time.Time { return noon.Add(time.Duration(minutes) * time.Minute) }
	w.journal = []channel.Entry{
		{At: at(101), Verb: channel.VerbPin, Snapshot: ids[0], By: "bob", Reason: "incident 42: checkout answers 500", Text: "pin r000010"},
		{At: at(111), Turn: true, Fleet: "edge", Verb: channel.TurnFailed, Snapshot: ids[1], Text: "edge-1: 5xx 7.1 % (before 0.3 %, others 0.2 %)"},
		{At: at(119), Verb: channel.VerbUnpin, By: "carol", Reason: "incident 42 is over", Text: "unpin"},
		{At: at(121), Turn: true, Fleet: "edge", Verb: channel.TurnBegan, Snapshot: ids[2]},
		{At: at(125), Turn: true, Fleet: "edge", Verb: channel.TurnDone, Snapshot: ids[2]},
		{At: at(131), Turn: true, Fleet: "edge", Verb: channel.TurnBegan, Snapshot: ids[3]},
	}
	w.latest.Set(rolling(ids[2], ids[3], 12, 2, 5))
	return w
}

// rolling is a fleet of n instances on its way from one snapshot to the next. It has come to a wave, and done
// instances have the new snapshot.
func rolling(from, to snapshots.ID, n, wave, done int) ui.Fleet {
	recent := time.Now().UTC().Add(-12 * time.Second).Truncate(time.Second)
	s := report.Status{
		Updated: time.Now().UTC(), Leader: "pusher-7d9", Fleet: "edge", Good: from,
		Channel: report.Channel{Wanted: to, Because: channel.BecauseNewest, Newest: to, Message: short(to) + " is the newest"},
		Rollout: &report.Rollout{Target: to, Phase: rollout.Soaking, Wave: wave, Since: recent, Members: []string{"edge-4", "edge-5"},
			Change: &report.Change{Snapshot: to, From: from, Class: bind.Reload, File: "haproxy.cfg", Line: 64, Text: "frontend partner from main", Began: recent}},
		Waits:    []rollout.Wait{{For: "the soak time of wave 2", Until: recent.Add(30 * time.Second)}},
		Backends: &report.Backends{All: 5, Empty: 1, List: []report.EmptyBackend{{Backend: "team2_api_http", Since: recent}}},
		Troubles: []report.Trouble{{About: "endpoints", Error: "the pusher may not list EndpointSlices in namespace team2", Since: recent}},
		Rejected: []rollout.Failure{{Snapshot: from, Reason: "edge-1: 5xx 7.1 %", At: noon.Add(111 * time.Minute)}},
	}
	for i := range n {
		one := report.Instance{Name: fmt.Sprintf("edge-%d", i+1), Zone: string(rune('a' + i%3)), Reachable: true, Since: recent, Running: from, Node: from.String(), PID: 4711 + i}
		switch {
		case i < done:
			one.Running, one.Node, one.InSync = to, to.String(), true
		case i == done:
			one.Doing = "push"
		case i == 7:
			one.Reachable, one.Error, one.Running = false, "connect: connection refused", snapshots.ID{}
		}
		if i == 10 {
			one.Conflict = &report.Conflict{Since: recent, Faults: []push.Fault{{What: "server SRV_2 of backend shop_cart_80", Want: "ready at 10.244.2.9:8080", Found: "maint"}}}
		}
		s.Instances = append(s.Instances, one)
	}
	endpoint := func(addresses ...string) []snapshots.Endpoint {
		var out []snapshots.Endpoint
		for _, a := range addresses {
			out = append(out, snapshots.Endpoint{Address: a, Port: 8080})
		}
		return out
	}
	live := &ui.Live{
		Soak: 30 * time.Second, Waves: []rollout.WaveSize{{Size: "1", Instances: 1}, {Size: "50%", Instances: n / 2}, {Size: "100%", Instances: n}},
		Gate: &rollout.Figures{Target: rollout.Counters{Requests: 36_120, Errors: 72}, Before: rollout.Counters{Requests: 35_800, Errors: 107}, Others: rollout.Counters{Requests: 84_400, Errors: 168}, Needed: 100, Connected: 1204, Expected: 1240, OthersConnected: 2400, OthersExpected: 2410, DownBefore: 1, Down: 1},
		Endpoints: map[snapshots.ServicePort][]snapshots.Endpoint{
			{Namespace: "shop", Service: "blog", Port: "http"}: endpoint("10.244.1.7", "10.244.2.7"), {Namespace: "shop", Service: "cart", Port: "80"}: endpoint("10.244.1.5", "10.244.2.9", "10.244.3.4"),
			{Namespace: "shop", Service: "checkout", Port: "http"}: endpoint("10.244.3.8"), {Namespace: "shop", Service: "web", Port: "http"}: endpoint("10.244.1.2", "10.244.2.2", "10.244.3.2"),
		},
		Traffic: map[string]observe.Traffic{
			"shop_blog_http": {Rate: 12.4}, "shop_cart_80": {Rate: 38, ErrorRate: 0.04, Errors: 12}, "shop_checkout_http": {Rate: 2.1}, "shop_web_http": {Rate: 1204.1, Errors: 3},
			"team2_api_http": {Rate: 0.3, ErrorRate: 0.3, Errors: 4711},
		},
		Up: []rollout.ServersUp{
			{Backends: []string{"shop_blog_http", "shop_cart_80", "shop_checkout_http", "shop_web_http", "team2_api_http"}, Counts: []uint16{2, 3, 1, 3, 0}},
			{Backends: []string{"shop_blog_http", "shop_cart_80", "shop_checkout_http", "shop_web_http", "team2_api_http"}, Counts: []uint16{2, 2, 1, 3, 0}},
		},
		Issuers: map[snapshots.SecretName]string{{Namespace: "shop", Name: "web-tls"}: "R11", {Namespace: "certs", Name: "wildcard"}: "Example Corp CA"},
	}
	left := 2
	live.Budget = rollout.Left{Limited: true, Fleet: 4}
	live.Instances = map[string]ui.LiveInstance{"edge-11": {
		HAProxy: "3.0.11", Started: recent.Add(-26 * time.Hour), ReloadsLeft: &left, Repairs: []time.Time{recent.Add(-time.Minute), recent},
		Pushes: []ui.Push{
			{At: recent.Add(-16 * time.Minute), Snapshot: from, Why: "rollout", Outcome: rollout.Applied, Class: "runtime", Because: "maps/prefix.map:3: shop.example.com|/cart/ shop_cart_80", Took: 0.4},
			{At: recent.Add(-26 * time.Hour), Snapshot: from, Why: "rollout", Outcome: rollout.Refused, Class: "reload", Because: "haproxy.cfg:64: frontend partner from main", Took: 2.1, Error: "haproxy refuses the configuration: [ALERT] port 18404 is in use"},
		},
	}}
	return ui.Fleet{Status: s, At: s.Updated, Live: live}
}

func short(id snapshots.ID) string { return fmt.Sprintf("r%d", id.Revision) }

// paths are the pages of all tabs, as the navigation links them, and some more.
func paths(p *browsertest.Page) []string {
	var out, more []string
	p.Eval("[...document.querySelectorAll('#nav a')].map((a) => new URL(a.href).pathname)", &out)
	p.Eval("[...document.querySelectorAll('main a[href^=\"/diff\"], main a[href^=\"/snapshots\"]')].map((a) => a.getAttribute('href')).slice(0, 4)", &more)
	return append(append(out, more...), "/instances/edge-8", "/instances/edge-11", "/routes?host=shop.example.com&path=/cart/items", "/routes?host=-&path=%20", "/nothing")
}
