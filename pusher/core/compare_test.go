package core

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// comparedConfig is a haproxy.cfg of two tenants.
const comparedConfig = `
global
    maxconn 100

resolvers cluster
    hold valid 10s

userlist shop_users
    user ann password x

fcgi-app shop_php
    docroot /srv

defaults main
    mode http
    timeout server 30s
    default-server inter 2s

frontend http from main
    bind :80
    http-request set-header x-a b
    http-request set-var(txn.b) req.hdr(host),lower,map(maps/host.map)
    http-request return status 200 content-type text/plain lf-file general/robots.txt if { path /robots.txt }
    use_backend blog_web if { hdr(host) blog.example }
    use_backend %[var(txn.b)]

frontend internal from main
    bind :81
    default_backend blog_web

backend shop_web from main
    http-request auth unless { http_auth(shop_users) }
    use-fcgi-app shop_php
    http-request set-header x-c %[path,map(maps/weights.map)]
    #hapsnap servers shop/web:http check inter 5s fall 2

backend blog_web from main
    errorfile 503 general/blog.http
    balance leastconn
    #hapsnap servers blog/web:http check
`

var comparedFiles = map[string]string{
	"maps/host.map": "shop.example shop_web\nblog.example blog_web\n", "maps/weights.map": "/a 1\n/b 2\n",
	"general/blog.http": "HTTP/1.0 503\n", "general/robots.txt": "no\n", "crtlists/https.crtlist": "a.pem\n",
}

// The comparison finds what a snapshot changes about the backends that ran before it.
func TestCompareBackends(t *testing.T) {
	t.Parallel()
	const all = "blog_web reached, shop_web reached"
	config := func(old, text string) func(map[string]string) {
		return func(files map[string]string) {
			if !strings.Contains(files[snapshots.ConfigFile], old) {
				t.Errorf("%q is not in the configuration", old)
			}
			files[snapshots.ConfigFile] = strings.Replace(files[snapshots.ConfigFile], old, text, 1)
		}
	}
	file := func(name, content string) func(map[string]string) {
		return func(files map[string]string) { files[name] = content }
	}
	memo := &outlineMemo{}
	for name, test := range map[string]struct {
		edit func(map[string]string)
		want string
	}{
		"nothing":                               {func(map[string]string) {}, ""},
		"indentation, comments and empty lines": {config("    balance leastconn\n", "\n  # a comment\n\tbalance  leastconn\n"), ""},
		"quotes and comments after code":        {config("    balance leastconn\n", "balance leastconn # fair\n"), ""},
		"a section's head is indented":          {config("\nbackend blog_web from main", "\n  \"backend\" 'blog_web' from main # the blog"), ""},
		"a word of a comment":                   {config("    balance leastconn\n", "    balance leastconn # shop_users\n"), ""},
		"quotes that join words":                {config("x-a b", "x-a \"b c\""), all},
		"sections in another order":             {config("\nresolvers cluster\n    hold valid 10s\n\nuserlist shop_users\n    user ann password x\n", "\nuserlist shop_users\n    user ann password x\n\nresolvers cluster\n    hold valid 10s\n"), ""},
		"a line of a backend":                   {config("leastconn", "roundrobin"), "blog_web changed"},
		"the directive of a backend":            {config("inter 5s", "inter 6s"), "shop_web changed"},
		"a backend is gone":                     {config("\nbackend blog_web", "\nbackend blog_api"), "blog_web changed"},
		"a backend is new":                      {config("\nbackend blog_web", "\nbackend blog_api from main\n    #hapsnap servers blog/api:http\n\nbackend blog_web"), ""},
		"a backend takes other defaults":        {config("\nbackend blog_web from main", "\ndefaults other from main\n    retries 1\n\nbackend blog_web from other"), "blog_web changed"},
		"the defaults":                          {config("server 30s", "server 1s"), "blog_web changed reached, shop_web changed reached"},
		"global":                                {config("maxconn 100", "maxconn 10"), "blog_web changed, shop_web changed"},
		"resolvers":                             {config("valid 10s", "valid 1s"), "blog_web changed, shop_web changed"},
		"a list of users":                       {config("user ann", "user bob"), "shop_web changed"},
		"an application":                        {config("docroot /srv", "docroot /elsewhere"), "shop_web changed"},
		"an application is gone":                {config("fcgi-app shop_php\n    docroot /srv\n", ""), "shop_web changed"},
		"a section that nothing names":          {config("\nfrontend http", "\ncache small\n    total-max-size 4\n\nfrontend http"), ""},
		"a cache of the frontend":               {config("\nfrontend http from main\n", "\ncache small\n    total-max-size 4\n\nfrontend http from main\n    http-request cache-use small\n"), all},
		"a line of a frontend that names none":  {config("x-a b", "x-a c"), all},
		"the address of a frontend":             {config("bind :81", "bind :82"), all},
		"a rule for one backend":                {config("blog.example }", "blog.example www.blog.example }"), "blog_web reached"},
		"another default":                       {config("default_backend blog_web", "default_backend shop_web"), "blog_web reached, shop_web reached"},
		"a rule for a new backend":              {config("    use_backend %[", "    use_backend blog_api if { path /api }\n    use_backend %["), all},
		"a new backend and its rule": {func(f map[string]string) {
			config("    use_backend %[", "    use_backend blog_api if { path /api }\n    use_backend %[")(f)
			f[snapshots.ConfigFile] += "backend blog_api from main\n"
		}, ""},
		"a route":                                 {file("maps/host.map", "shop.example shop_web\nblog.example blog_web\nwww.example shop_web\n"), "shop_web reached"},
		"a route goes to another":                 {file("maps/host.map", "shop.example blog_web\nblog.example blog_web\n"), "blog_web reached, shop_web reached"},
		"routes in another order":                 {file("maps/host.map", "blog.example blog_web\nshop.example shop_web\n"), ""},
		"routes without a last line break":        {file("maps/host.map", "shop.example shop_web\nblog.example blog_web"), ""},
		"a map that names no backends":            {file("maps/rewrite.map", "/a /b\n"), all},
		"a map of a backend":                      {file("maps/weights.map", "/a 1\n"), "shop_web changed"},
		"a map of a backend and a frontend":       {func(f map[string]string) { config("x-a b", "x-a %[path,map(maps/weights.map)]")(f) }, all},
		"a file of a backend":                     {file("general/blog.http", "HTTP/1.0 503 sorry\n"), "blog_web changed"},
		"a file of a frontend":                    {file("general/robots.txt", "yes\n"), all},
		"a file that nothing names":               {file("general/other.txt", "x\n"), all},
		"certificates of listeners":               {file("crtlists/https.crtlist", "b.pem\n"), all},
		"a file of a backend is gone":             {func(f map[string]string) { delete(f, "general/blog.http") }, "blog_web changed"},
		"the manifest, and endpoints of the time": {func(f map[string]string) { f[snapshots.ManifestFile], f[snapshots.EndpointsFile] = "a", "b" }, ""},
	} {
		good, target := maps.Clone(comparedFiles), maps.Clone(comparedFiles)
		good[snapshots.ConfigFile], target[snapshots.ConfigFile] = comparedConfig, comparedConfig
		test.edit(target)
		if got := inWords(new(outlineMemo).compareBackends(snapshotOf(good), snapshotOf(target))); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
		if got := inWords(memo.compareBackends(snapshotOf(good), snapshotOf(target))); got != test.want {
			t.Errorf("%s, after others: %q, want %q", name, got, test.want)
		}
	}
}

// A file that both a backend and a frontend name also changes the requests of the backend.
func TestCompareBackendsOfASharedFile(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"maps/weights.map":  "blog_web reached, shop_web changed reached", // the entries name no backend
		"general/blog.http": "blog_web changed reached, shop_web reached",
	} {
		good := maps.Clone(comparedFiles)
		good[snapshots.ConfigFile] = strings.Replace(comparedConfig, "x-a b", "x-a "+path, 1)
		target := maps.Clone(good)
		target[path] = "other 1\n"
		if got := inWords(new(outlineMemo).compareBackends(snapshotOf(good), snapshotOf(target))); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

// The time for which a dead server counts as up follows from the checks in its section.
func TestCheckTimes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"":                         9 * time.Second,
		"#hapsnap servers a/b":     9 * time.Second,
		"server s 10.0.0.1 check":  9 * time.Second,
		"server s 10.0.0.1 inter":  9 * time.Second,
		"server s 10.0.0.1 fall x": 9 * time.Second,
		"#hapsnap servers a/b check inter 5s fall 2":                           16 * time.Second,
		"default-server inter 500 fall 1":                                      2 * time.Second,
		"default-server inter 1m\n    server s 10.0.0.1 check inter 1s fall 4": 5*time.Minute + time.Second, // the longest time of each
		"http-request set-header inter 9m":                                     9 * time.Second,
	} {
		o := readOutline([]byte("defaults\n    mode http\nbackend b\n    " + text + "\n"))
		if got := o.backends["b"].checkTime(); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func snapshotOf(files map[string]string) (s snapshots.Snapshot) {
	for _, path := range slices.Sorted(maps.Keys(files)) {
		s.Files = append(s.Files, snapshots.File{Path: path, Content: []byte(files[path])})
	}
	return s
}

// inWords lists what is changed.
func inWords(backends map[string]rollout.Backend) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(backends)) {
		text := ""
		if backends[name].Changed {
			text += " changed"
		}
		if backends[name].Reached {
			text += " reached"
		}
		if text != "" {
			out = append(out, fmt.Sprint(name, text))
		}
	}
	return strings.Join(out, ", ")
}

// There is one change for each snapshot: that of the first instance. A later rollout of the snapshot has
// another. The number of changes is limited.
func TestWithChange(t *testing.T) {
	t.Parallel()
	change := func(to snapshots.ID, text string) report.Change {
		return report.Change{Snapshot: to, From: snapshots.ID{Revision: 9, Short: "9999999999"}, Class: bind.Reload, File: snapshots.ConfigFile, Line: 1, Text: text}
	}
	at := func(id snapshots.ID, began time.Time) *rollout.Rollout {
		return &rollout.Rollout{Target: id, Started: began}
	}
	list := report.WithChange(nil, change(r1, "first"), at(r1, noon))
	list = report.WithChange(list, change(r1, "second"), at(r1, noon))
	list = report.WithChange(list, change(r2, "of another rollout"), at(r1, noon))
	list = report.WithChange(list, change(r2, "of none"), nil)
	list = report.WithChange(list, report.Change{Snapshot: r1, From: r1}, at(r1, noon.Add(time.Hour))) // it ran already
	list = report.WithChange(list, change(r2, "third"), at(r2, noon))
	before := fmt.Sprint(list)
	again := report.WithChange(list, change(r1, "fourth"), at(r1, noon.Add(time.Hour)))
	if got := fmt.Sprint(list); got != before {
		t.Errorf("the list that was given is another one: %s", got)
	}
	var got []string
	for _, c := range again {
		got = append(got, c.Snapshot.String()+" "+c.Text)
	}
	if diff := cmp.Diff([]string{r2.String() + " third", r1.String() + " fourth"}, got); diff != "" {
		t.Errorf("remembered otherwise (-want +got):\n%s", diff)
	}
	for n := range uint64(2 * report.KeptChanges) {
		id := snapshots.ID{Revision: n + 10, Short: "cccccccccc"}
		again = report.WithChange(again, change(id, ""), at(id, noon))
	}
	if len(again) != report.KeptChanges || again[report.KeptChanges-1].Snapshot.Revision != 2*report.KeptChanges+9 {
		t.Errorf("%d are kept, the last is %s", len(again), again[len(again)-1].Snapshot)
	}
}

// The words of a line that is plain are the line itself.
func TestPlainLinesAreTheirWords(t *testing.T) {
	t.Parallel()
	plain := 0
	for _, text := range []string{
		"server a 10.0.0.1:80 check", "http-request deny if { path /a,b }", "log-format %[src]", "a", "é ü", "a  b", "a\tb", "a\\ b", `a "b c"`, "a 'b'",
		"a # b", "#hapsnap servers x", "# x", "[scope]", "a [b]", "a $B", `"$B"`, "a\rb", "a\vb", "a\u00a0", "",
	} {
		for _, around := range [][2]string{{"", ""}, {"    ", "\n"}, {"\t", " \n"}, {"", "\r\n"}} {
			line := haproxycfg.Line{Text: []byte(around[0] + text + around[1])}
			var words []string
			for _, w := range line.Words() {
				words = append(words, string(line.Text[w.Start:w.End]))
			}
			if trimmed := bytes.Trim(line.Text, " \t\n"); len(trimmed) > 0 && isPlain(trimmed) {
				plain++
			}
			want := strings.Join(words, " ")
			if text == "#hapsnap servers x" {
				want = text
			}
			if got := writtenWords(line); got != want {
				t.Errorf("%q is %q, want %q", line.Text, got, want)
			}
		}
	}
	if plain < 20 {
		t.Errorf("only %d lines are plain", plain)
	}
}

// A directive is compared with whatever blanks the binding takes, and other comments are not.
func TestDirectivesAreCompared(t *testing.T) {
	t.Parallel()
	for char := rune(1); char < 256; char++ {
		line := string(char) + "#hapsnap" + string(char) + "servers shop/web"
		_, want := bind.DirectiveText([]byte(line))
		if got := writtenWords(haproxycfg.Line{Text: []byte(line)}) == "#hapsnap servers shop/web"; got != want {
			t.Errorf("%q is compared as a directive: %t, want %t", line, got, want)
		}
	}
}
