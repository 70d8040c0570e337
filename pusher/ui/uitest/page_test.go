package uitest

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/internal/testing/browsertest"
	"github.com/hapsnap/hapsnap/internal/testing/loopback"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// TestPage runs its parts in one browser, as a browser takes longer to start than each part.
func TestPage(t *testing.T) {
	t.Parallel()
	b := browsertest.Start(t)
	for name, test := range map[string]func(*testing.T, *browsertest.Browser){
		"light, dark, on a telephone": looks, "without script": withoutScript, "lost and healed": healed, "hostile names": hostile, "1,000 instances": thousand, "followed": followed, "a form": typed,
	} {
		t.Run(name, func(t *testing.T) { //nolint:paralleltest // background windows are drawn late
			test(t, b)
		})
	}
}

// looks opens all pages in light, in dark and on a telephone. None may report an error or be inaccessible.
func looks(t *testing.T, b *browsertest.Browser) {
	t.Helper()
	w := usual(t)
	p := b.Page(t, browsertest.Options{})
	p.Expect("404 (Not Found)") // the page that does not exist
	p.Open(w.server.URL)
	p.WaitText("#head", "edge")
	all := paths(p)
	if len(all) < 8 {
		t.Fatalf("few pages: %v", all)
	}
	for _, path := range all {
		p.Look(browsertest.Options{})
		p.Open(w.server.URL + path)
		if strings.Contains(p.Text("main"), "cannot be shown") || p.Text("main") == "" {
			t.Errorf("%s: %s", path, p.Text("main"))
		}
		backgrounds := map[string]bool{}
		for _, o := range []browsertest.Options{{}, {Dark: true}, {Width: 390, Height: 800}} {
			p.Look(o)
			var wide, view int
			var background string
			p.Eval("document.documentElement.scrollWidth", &wide)
			p.Eval("document.documentElement.clientWidth", &view)
			if wide > view {
				t.Errorf("%s is %d pixels wide, of which %d are in view", path, wide, view)
			}
			p.Eval("getComputedStyle(document.body).backgroundColor", &background)
			backgrounds[background] = true
			p.Accessible()
		}
		if len(backgrounds) != 2 {
			t.Errorf("%s has the backgrounds %v", path, backgrounds)
		}
	}
}

// withoutScript opens the pages without JavaScript. Everything must be shown, and forms and links must work.
func withoutScript(t *testing.T, b *browsertest.Browser) {
	t.Helper()
	w := usual(t)
	p := b.Page(t, browsertest.Options{WithoutScript: true})
	for path, want := range map[string]string{
		"/": "edge-12", "/history": "+1 frontend (CompilerConfig)", "/routes": "team2.example.net", "/left-out": "shop-old/legacy", "/certificates": "certs/wildcard", "/instances/edge-8": "edge-8", "/instances/edge-11": "somebody else wants", "/diff?a=r12&b=r13": "this line takes the reload",
	} {
		p.Open(w.server.URL + path)
		if got := p.Text("main"); !strings.Contains(got, want) {
			t.Errorf("%s: no %q in\n%s", path, want, got)
		}
	}
	p.Open(w.server.URL + "/routes")
	p.Type("#ask-host", "shop.example.com\r")
	p.WaitText("#routes-ask", "backend shop_web_http, Service shop/web:http")
	p.Click("a[href='/certificates']")
	p.WaitText("main", "certs/wildcard")
}

// typed fills in forms, and no page may lose what was typed.
func typed(t *testing.T, b *browsertest.Browser) {
	t.Helper()
	w := usual(t)
	p := b.Page(t, browsertest.Options{})
	p.Open(w.server.URL + "/routes")
	p.Type("#ask-host", "https://shop.example.com/cart/items?id=7\r")
	p.WaitText("#routes-ask", "backend shop_cart_80, Service shop/cart:80")
	for _, want := range []string{"r12, which the fleet runs", "10.244.2.9:8080", "maps/prefix.map:3", "shop/web-tls", "Ingress shop-old/legacy", "hapsnap explain request GET 'https://shop.example.com/cart/items?id=7'"} {
		p.WaitText("#routes-ask", want)
	}
	p.Type("#list-q", "team2\r")
	p.Wait("document.querySelectorAll('#routes-list tbody tr').length === 1")
	p.Wait("document.activeElement !== null && location.search.includes('q=team2')")
}

// healed stops the server of a page. The page must recover when the server is back with changes.
func healed(t *testing.T, b *browsertest.Browser) {
	t.Helper()
	w := usual(t)
	address := loopback.Address()
	front := listen(t, address, w.server.Config.Handler)
	p := b.Page(t, browsertest.Options{})
	p.Expect("ERR_")
	p.Open("http://" + address + "/")
	p.Wait("!document.body.classList.contains('lost') && (document.querySelector('#now')?.textContent ?? '') !== ''")
	p.Eval("window.sameWindow = true", nil)
	front.CloseClientConnections()
	front.Close()
	p.Wait("document.body.classList.contains('lost')")
	f := w.latest.Fleet()
	f.Status.Leader = "pusher-after"
	w.latest.Set(f)
	listen(t, address, w.server.Config.Handler)
	p.WaitText("#head", "pusher-after")
	p.Wait("!document.body.classList.contains('lost')")
	if !p.Is("window.sameWindow === true") {
		t.Error("the page was loaded again")
	}
}

// listen serves at an address until the test ends.
func listen(t *testing.T, address string, handler http.Handler) *httptest.Server {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: handler}} //nolint:gosec // for a browser of the test
	s.Start()
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s
}

// evil are names that would change the page if they were not escaped.
var evil = []string{
	`<script>window.pwned=1</script>`, `"><img/src=x/onerror=window.pwned=1>`, `'onmouseover='window.pwned=1`, `javascript:window.pwned=1`, `{{.}}`, `</title></style></textarea><svg/onload=window.pwned=1>`,
	"\u202e\u0000\u001b[31m", "&lt;b&gt;", strings.Repeat("W", 2_000),
}

// hostile is a world in which every name is evil.
func hostile(t *testing.T, b *browsertest.Browser) {
	t.Helper()
	host, prefix, config := "", "", configuration
	var quarantined []snapshots.Quarantined
	for i, name := range evil {
		plain := strings.NewReplacer(" ", "_", "\u0000", "", "\u001b", "").Replace(name)
		config += fmt.Sprintf("\nbackend b%d from main\n    # %s\n    errorfile 503 '%s'\n    #hapsnap servers shop/web%d:http\n", i, plain, strings.ReplaceAll(plain, "'", ""), i)
		host += plain + " " + plain + "\n"
		prefix += fmt.Sprintf("%s|/%s/ b%d\n", plain, plain, i)
		quarantined = append(quarantined, snapshots.Quarantined{Kind: name, Namespace: name, Name: name, Reason: name})
	}
	all := []snapshots.Snapshot{snapshot(1, snapshots.ID{}, evil[0], "", quarantined...), snapshot(2, snapshots.ID{}, evil[1], "", quarantined...)}
	for i := range all {
		d := snapshots.Draft{Subject: evil[i], Quarantined: quarantined, Provenance: all[i].Manifest.Provenance, Files: all[i].Files, Certificates: all[i].Manifest.Spec.Certificates}
		d.Files[1].Content, d.Files[3].Content, d.Files[4].Content = []byte(config), []byte(host), []byte(prefix)
		d.Provenance.Author, d.Provenance.CompilerVersion = evil[2], evil[3]
		if i == 1 {
			d.Files[1].Content = append(d.Files[1].Content, "# another "+evil[0]+"\n"...)
		}
		all[i] = d.Number(uint64(i+1), snapshots.ID{})
	}
	w := newWorld(t, all...)
	var found []map[string]any
	for _, name := range evil {
		found = append(found, map[string]any{"kind": name, "namespace": name, "name": name, "file": name, "line": 1, "field": name, "reason": name, "hint": name})
		w.journal = append(w.journal, channel.Entry{At: noon, Verb: channel.VerbPin, Snapshot: all[0].ID(), By: name, Author: name, Reason: name, From: name, Text: name},
			channel.Entry{At: noon, Turn: true, Fleet: name, Verb: channel.TurnUndone, Snapshot: all[0].ID(), Reason: name, Text: name})
	}
	text, err := json.Marshal(map[string]any{"found": found})
	if err != nil {
		t.Fatal(err)
	}
	w.said = string(text)
	f := rolling(all[0].ID(), all[1].ID(), len(evil), 1, 1)
	f.Trouble, f.Status.Leader, f.Status.Channel.Message, f.Status.Rollout.Reason, f.Status.Rollout.Change.Text = evil[0], evil[1], evil[2], evil[0], evil[1]
	for i, name := range evil {
		one := &f.Status.Instances[i]
		one.Name, one.Zone, one.Error, one.Doing, one.Pending, one.Foreign, one.LedBy, one.Node = name, name, name, name, name, name, name, name
		f.Status.Troubles = append(f.Status.Troubles, report.Trouble{About: name, Error: name, Since: noon})
	}
	w.latest.Set(f)
	p := b.Page(t, browsertest.Options{})
	p.Expect("404 (Not Found)")
	p.Expect("414 (Request URI Too Long)") // of the longest name
	p.Open(w.server.URL)
	var links []string
	p.Eval("[...document.querySelectorAll('main a[href^=\"/\"]')].map((a) => a.getAttribute('href'))", &links)
	if len(links) == 0 {
		t.Error("the fleet links to nothing")
	}
	links = append(append(paths(p), links[:min(len(links), 12)]...), "/routes?host=%3Cimg%20src%3Dx%3E&headers=%3Cb%3E&q=%3Cscript%3E&snapshot=%22%3E%3Cimg%20src%3Dx%3E")
	for _, path := range links {
		p.Open(w.server.URL + path)
		p.Wait("document.readyState === 'complete'")
		if !p.Is("window.pwned === undefined && !document.querySelector('img, svg, main script, [onmouseover], [onerror], a[href^=\"javascript\"]')") {
			t.Errorf("%s: a name is a part of the page", path)
		}
		if strings.Contains(p.Text("main"), "cannot be shown") {
			t.Errorf("%s: %s", path, p.Text("main"))
		}
		if !p.Is(`!/[\u0001-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2066-\u2069]/.test(document.documentElement.innerHTML)`) {
			t.Errorf("%s: a name turns the text around", path)
		}
		if !p.Is("document.documentElement.scrollWidth <= document.documentElement.clientWidth") {
			var wide []string
			p.Eval("[...document.querySelectorAll('body *')].filter((e) => e.getBoundingClientRect().right > innerWidth && !e.closest('.scroll')).map((e) => e.tagName + '.' + e.className + '#' + e.id).slice(0, 9)", &wide)
			t.Errorf("%s: a name makes the page wide: %v", path, wide)
		}
	}
}

// thousand is a large fleet.
func thousand(t *testing.T, b *browsertest.Browser) {
	t.Helper()
	w := usual(t)
	from, to := w.all[2].ID(), w.all[3].ID()
	w.latest.Set(rolling(from, to, 1000, 2, 250))
	p := b.Page(t, browsertest.Options{})
	p.Open(w.server.URL)
	p.WaitText("main", "edge-8")
	w.latest.Set(rolling(from, to, 1000, 3, 251))
	p.WaitText("#head", "251 of 1000")
	p.Open(w.server.URL + "/instances/edge-1000")
	p.WaitText("main", "edge-1000")
}

// followed watches a rollout wave by wave, without loading the page again.
func followed(t *testing.T, b *browsertest.Browser) {
	t.Helper()
	w := usual(t)
	from, to := w.all[2].ID(), w.all[3].ID()
	p := b.Page(t, browsertest.Options{})
	p.Open(w.server.URL)
	p.Eval("window.sameWindow = true", nil)
	p.WaitText("#fleet-trouble", "1 host answers 503") // hosts, not backends
	p.WaitText("#fleet-trouble a", "team2.example.net/")
	for done := range 4 {
		w.latest.Set(rolling(from, to, 12, 1+done/2, done*4))
		p.WaitText("#head", fmt.Sprintf("%d of 12", done*4))
	}
	// A pod is replaced.
	f := rolling(from, to, 12, 3, 12)
	f.Status.Instances[2].Name, f.Status.Instances[2].Pending = "edge-13", "the first snapshot of a new instance"
	w.latest.Set(f)
	p.Wait("document.querySelector('#fleet-cells').textContent.includes('edge-13') && !document.querySelector('a[href=\"/instances/edge-3\"]')")
	// The rollout fails, and is undone.
	f = rolling(from, to, 12, 3, 8)
	f.Status.Rollout.Phase, f.Status.Rollout.Reason = rollout.Undoing, "edge-4: 5xx 7.1 %"
	w.latest.Set(f)
	p.WaitText("body", "edge-4: 5xx 7.1 %")
	f = rolling(from, to, 12, 3, 0)
	f.Status.Rollout, f.Status.Waits, f.Status.Rejected = nil, nil, []rollout.Failure{{Snapshot: to, Reason: "edge-4: 5xx 7.1 %", At: f.At, Good: from, Recorded: true}}
	f.Status.Channel = report.Channel{Wanted: from, Because: channel.BecauseNewest, Newest: to, Behind: 1, Message: short(to) + " was rejected"}
	w.latest.Set(f)
	p.Wait("!document.querySelector('#head').textContent.includes('soaking')")
	// Somebody pins.
	f.Status.Channel.Because, f.Status.Channel.Message = channel.BecausePin, "pinned by bob: incident 42"
	w.latest.Set(f)
	p.WaitText("#head", "pinned yes")
	if !p.Is("window.sameWindow === true") {
		t.Error("the page was loaded again")
	}
}
