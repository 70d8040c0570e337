package routetable

import (
	"cmp"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/snapshots"
)

const configuration = `defaults main
    mode http

frontend http from main
    bind *:80
    bind *:8000 name shop/gw:8000
    http-request set-var(txn.m) req.fhdr(x-a),url_enc,concat(|header:x-a|,txn.b),map_str_int(maps/conditions.map,0),or(txn.m) if { var(txn.m) -m found }
    http-request set-var(txn.m) str(|pattern:5f|),concat(,txn.b),map_str_int(maps/conditions.map,0),or(txn.m) if { var(txn.m) -m found } { str(|pattern:5f|),concat(,txn.b),map_str_int(maps/conditions.map,0) gt 0 } { var(txn.p),bytes(0,1024) -m reg -- '^(?=[\s\S]{0,1023}\z)(?:/v[0-9]+/x)\z' }
    http-request set-var(txn.m) str(|pattern:6a|),concat(,txn.b),map_str_int(maps/conditions.map,0),or(txn.m) if { var(txn.m) -m found } { str(|pattern:6a|),concat(,txn.b),map_str_int(maps/conditions.map,0) gt 0 } { req.fhdr(x-b),bytes(0,1024) -m reg -- '^(?=[\s\S]{0,1023}\z)(?:v[12])\z' }
    use_backend %[var(txn.b)] if { var(txn.b) -m found }
    default_backend shop_web

frontend https from main
    bind *:443 ssl crt-list files/https.crtlist alpn h2,http/1.1
    bind quic4@:443 ssl crt-list files/https.crtlist
    use_backend %[var(txn.b)] if { var(txn.b) -m found }
    default_backend shop_web

frontend mail from main
    mode tcp
    bind *:25
    default_backend shop_mail

frontend tls from main
    mode tcp
    bind *:8443

backend shop_web from main
    timeout server 45s
    #hapsnap servers shop/web:http weight=90
    #hapsnap servers shop/canary:http weight=10

backend shop_cart from main
    #hapsnap servers shop/cart:http

backend shop_mail from main
    mode tcp
    #hapsnap servers shop/mail:smtp

backend fixed from main
    server a 192.0.2.1:80

frontend status from main
    bind *:8404
`

func shop() snapshots.Snapshot {
	texts := map[string]string{
		"files/https.crtlist":   "certs/fallback.pem !*\ncerts/web.pem shop.example.com\ncerts/wild.pem [verify none] *.wild.example.com !not.wild.example.com\n",
		"files/expressions.lst": `(?i)^re\.example\.com\|(?:-|ab)\|(?:/item/[0-9]+) 1f|shop_cart` + "\n",
		"haproxy.cfg":           configuration,
		"maps/choices.map":      "# comment\nc?1:1 +%5f\nc?1:2 shop_web\nc?2:1 shop_web\nc?2:2 %5f\n%5f:1 shop_cart\n%5f:2 shop_web\nshop/gw:8000|a.gw.example.com shop/gw:8000|.gw.example.com\nhttp:shop/gw:8000| 8000\n",
		"maps/conditions.map":   "a%20b|header:x-a|c?1 1\n|pattern:6a|c?1 2\n|pattern:5f|c?2 1\nc?1:1 3\nc?1:2 0\nc?2:1 1\nc?2:2 0\n%5f 4\n%5f:1 1\n%5f:2 4\n",
		"maps/exact.map":        "shop.example.com|/cart/x shop_cart\nshop/gw:8000|a.gw.example.com|/bar fixed@/b\n",
		"maps/host.map":         "shop.example.com shop.example.com\n",
		"maps/prefix.map": "|/ shop_web\n.wild.example.com|/ shop_web\nshop.example.com|/ c?1\nshop.example.com|/cart/ shop_cart\n" +
			"shop/gw:8000|a.gw.example.com|/ c?2\nshop/gw:8000|a.gw.example.com|/foo/ c?2\nshop/gw:8000||/lost/ c?9\nbroken\n",
		"maps/sni_tls.map": "*  shop_web\n.db.example.com shop_cart\nends.example.com hapsnap_terminate-8443\n",
	}
	s := snapshots.Snapshot{}
	for _, path := range []string{"files/expressions.lst", "files/https.crtlist", "haproxy.cfg", "maps/choices.map", "maps/conditions.map", "maps/exact.map", "maps/host.map", "maps/prefix.map", "maps/sni_tls.map"} {
		s.Files = append(s.Files, snapshots.File{Path: path, Content: []byte(texts[path])})
	}
	s.Manifest.Spec.Certificates = []snapshots.CertificateRef{
		{File: "certs/fallback.pem"},
		{File: "certs/web.pem", Secret: snapshots.SecretName{Namespace: "shop", Name: "web"}, Observed: &snapshots.ObservedCertificate{NotAfter: time.Unix(1e9, 0).UTC()}},
		{File: "certs/wild.pem", Secret: snapshots.SecretName{Namespace: "shop", Name: "wild"}},
	}
	return s
}

// inWords writes a route as a line.
func inWords(r *Route) string {
	var to []string
	for _, s := range r.Shares {
		to = append(to, fmt.Sprintf("%s*%d", s.Backend.Name, s.Weight))
	}
	certificate := "none"
	if c := r.Certificate; c != nil {
		certificate = c.File
	}
	return fmt.Sprintf("%s %s%s %s [%s] -> %s, %s, %s:%d", strings.Join(r.Listener.Ports, "+"), cmp.Or(r.Host, "any"), r.Path, r.Kind,
		strings.Join(r.When, "; "), strings.Join(to, " "), certificate, r.File, r.Line)
}

func TestOf(t *testing.T) {
	t.Parallel()
	table, err := Of(shop())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range table.Routes {
		got = append(got, inWords(&table.Routes[i]))
	}
	want := []string{
		"tcp :25 any connection [] -> shop_mail*1, none, haproxy.cfg:22",
		"tcp :8443 any connection [] -> shop_web*1, none, maps/sni_tls.map:1",
		"http :80+https :443 any/ default [] -> shop_web*1, certs/fallback.pem, haproxy.cfg:11",
		"http :80+https :443 any/ prefix [] -> shop_web*1, certs/fallback.pem, maps/prefix.map:1",
		"http :8000 any/lost prefix [] -> , none, maps/prefix.map:7",
		"tcp :8443 *.db.example.com connection [] -> shop_cart*1, none, maps/sni_tls.map:2",
		"http :80+https :443 *.wild.example.com/ prefix [] -> shop_web*1, certs/wild.pem, maps/prefix.map:2",
		"http :8000 a.gw.example.com/ prefix [] -> shop_cart*1 shop_web*3, none, maps/prefix.map:5",
		"http :8000 a.gw.example.com/bar exact [] -> fixed*1, none, maps/exact.map:2",
		"http :8000 a.gw.example.com/foo prefix [] -> shop_cart*1 shop_web*3, none, maps/prefix.map:6",
		"http :8000 a.gw.example.com/v[0-9]+/x regex [] -> shop_web*1, none, maps/prefix.map:5",
		"http :80+https :443 re.example.com/item/[0-9]+ regex [] -> shop_cart*1, certs/fallback.pem, files/expressions.lst:1",
		"http :80+https :443 shop.example.com/ prefix [header x-a is a b; header x-b matches v[12]; while it has a server] -> shop_cart*1 shop_web*3, certs/web.pem, maps/prefix.map:3",
		"http :80+https :443 shop.example.com/ prefix [] -> shop_web*1, certs/web.pem, maps/prefix.map:3",
		"http :80+https :443 shop.example.com/cart prefix [] -> shop_cart*1, certs/web.pem, maps/prefix.map:4",
		"http :80+https :443 shop.example.com/cart/x exact [] -> shop_cart*1, certs/web.pem, maps/exact.map:1",
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("routes (-want +got):\n%s", diff)
	}
	if table.Hosts != 6 || table.Unread != 1 {
		t.Errorf("%d hosts, %d lines not read", table.Hosts, table.Unread)
	}
	web := table.Backends["shop_web"]
	if len(web.Services) != 2 || web.Services[1].String() != "shop/canary:http" || web.Services[1].Weight != 10 || len(web.Options) != 1 || table.Backends["fixed"].Fixed != 1 {
		t.Errorf("got %+v", web)
	}
	if c := table.Routes[len(table.Routes)-1].Certificate; c.Secret.Name != "web" || c.NotAfter.Unix() != 1e9 || c.Default {
		t.Errorf("got %+v", c)
	}
}

func TestSelect(t *testing.T) {
	t.Parallel()
	table, err := Of(shop())
	if err != nil {
		t.Fatal(err)
	}
	all := len(table.Routes)
	for name, c := range map[string]struct {
		query       Query
		found, here int
		page, pages int
		first       string
	}{
		"all":                           {query: Query{Size: 100}, found: all, here: all, page: 1, pages: 1, first: ""},
		"a page":                        {query: Query{Size: 5, Page: 2}, found: all, here: 5, page: 2, pages: 4, first: "*.db.example.com"},
		"beyond the last":               {query: Query{Size: 5, Page: 99}, found: all, here: 1, page: 4, pages: 4, first: "shop.example.com"},
		"no page at all":                {query: Query{Page: -1}, found: all, here: 1, page: 1, pages: all},
		"a host, whatever its case":     {query: Query{Text: "SHOP.example.com", Size: 9}, found: 4, here: 4, page: 1, pages: 1, first: "shop.example.com"},
		"a path and a Service":          {query: Query{Text: "/cart/x shop/cart", Size: 9}, found: 1, here: 1, page: 1, pages: 1, first: "shop.example.com"},
		"an option":                     {query: Query{Text: "timeout 45s wild", Size: 9}, found: 1, here: 1, page: 1, pages: 1, first: "*.wild.example.com"},
		"a condition":                   {query: Query{Text: "x-b", Size: 9}, found: 1, here: 1, page: 1, pages: 1, first: "shop.example.com"},
		"a Secret":                      {query: Query{Text: "shop/wild", Size: 9}, found: 1, here: 1, page: 1, pages: 1, first: "*.wild.example.com"},
		"a port of a Gateway":           {query: Query{Text: "shop/gw", Size: 9}, found: 5, here: 5, page: 1, pages: 1},
		"nothing":                       {query: Query{Text: "nothing-like-that", Size: 9}, page: 1, pages: 1},
		"what the caller keeps, sorted": {query: Query{Size: 9, Keep: func(r *Route) bool { return r.Kind == Exact }, Less: func(a, b *Route) int { return cmp.Compare(b.Host, a.Host) }}, found: 2, here: 2, page: 1, pages: 1, first: "shop.example.com"},
	} {
		p := table.Select(c.query)
		if p.Found != c.found || len(p.Routes) != c.here || p.Page != c.page || p.Pages != c.pages {
			t.Errorf("%s: found %d, %d here, page %d of %d", name, p.Found, len(p.Routes), p.Page, p.Pages)
		}
		if c.first != "" && p.Routes[0].Host != c.first {
			t.Errorf("%s: the first is of %q", name, p.Routes[0].Host)
		}
	}
}

// A directive that cannot be followed is an error: otherwise its backend would seem to have no Service.
func TestOfADamagedSnapshot(t *testing.T) {
	t.Parallel()
	s := snapshots.Snapshot{Files: []snapshots.File{{Path: "haproxy.cfg", Content: []byte("backend a\n    #hapsnap severs shop/web\n")}}}
	if table, err := Of(s); err == nil {
		t.Errorf("got %+v", table)
	}
	table, err := Of(snapshots.Snapshot{})
	if err != nil || len(table.Routes) != 0 || table.Select(Query{Size: 1}).Pages != 1 {
		t.Errorf("of nothing: %+v, %v", table, err)
	}
}

func FuzzOf(f *testing.F) {
	f.Add("|/ a", "c?1:1 +%5f\n%5f:1 a", "x|header:x|c?1 1", "(?i)^a\\|(?:-)\\|(?:/b) 1|a", "a.pem [x] b !c")
	f.Add("a||||/ %", ":1 x\n?:99999999999999999999 y\n%:-1", "| ?\n 18446744073709551616\n%x 18446744073709551615", " ", "!\n[\n]")
	f.Fuzz(func(t *testing.T, prefix, choices, conditions, expressions, list string) {
		s := shop()
		for i, file := range s.Files {
			if text, ok := map[string]string{
				"maps/prefix.map": prefix, "maps/choices.map": choices, "maps/conditions.map": conditions, "files/expressions.lst": expressions, "files/https.crtlist": list,
			}[file.Path]; ok {
				s.Files[i].Content = []byte(text)
			}
		}
		table, err := Of(s)
		if err != nil {
			t.Fatal(err)
		}
		table.Select(Query{Text: prefix, Size: 10})
	})
}

// large is a snapshot of n routes, ten for each host.
func large(n int) snapshots.Snapshot {
	var config, prefix strings.Builder
	config.WriteString("frontend http\n    mode http\n    bind *:80\nfrontend https\n    mode http\n    bind *:443 ssl crt-list files/https.crtlist\n")
	for i := range n {
		fmt.Fprintf(&config, "backend team%d_web%d_http\n    timeout server 45s\n    #hapsnap servers team%d/web%d:http\n", i%100, i, i%100, i)
		fmt.Fprintf(&prefix, "host%d.team%d.example.com|/path/of/%d/ team%d_web%d_http\n", i/10, i%100/10, i%10, i%100, i)
	}
	return snapshots.Snapshot{Files: []snapshots.File{
		{Path: "files/https.crtlist", Content: []byte("certs/fallback.pem !*\n")},
		{Path: "haproxy.cfg", Content: []byte(config.String())}, {Path: "maps/prefix.map", Content: []byte(prefix.String())},
	}}
}

func BenchmarkOf100000(b *testing.B) {
	s := large(100_000)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	table, err := Of(s)
	if err != nil || len(table.Routes) != 100_000 {
		b.Fatal(err)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	for b.Loop() {
		if _, err := Of(s); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/1e6, "MB-kept")
	runtime.KeepAlive(table)
}

func BenchmarkSelect100000(b *testing.B) {
	table, err := Of(large(100_000))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if p := table.Select(Query{Text: "team7 /path/of/3 web", Page: 2, Size: 100}); p.Found == 0 {
			b.Fatal("nothing found")
		}
	}
}

func BenchmarkSorted100000(b *testing.B) {
	table, err := Of(large(100_000))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		table.Select(Query{Size: 100, Less: func(a, b *Route) int { return cmp.Compare(b.Path, a.Path) }})
	}
}
