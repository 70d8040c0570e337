package bind

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/snapshots"
)

func TestParseMap(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                  "",
		"# nothing\n\n":                     "",
		"a.example shop\nb.example|/x/ b\n": "a.example=shop b.example|/x/=b",
		"b 1\na shop":                       "b=1 odd", // HAProxy accepts it; we never write such a file
		"a\n":                               "odd",
		"a  shop\n":                         "odd",
		" a shop\n":                         "odd",
		"a shop floor\nb 1\n":               "b=1 odd",
		"a shop \n":                         "odd",
		"a\tshop\n":                         "odd",
		"a shop\r\n":                        "odd",
		"a 1\nb 2\na 1\n":                   "b=2 odd odd",
		"a 1\nb 2\na 1 2\n":                 "b=2 odd odd",
		"a 1 2\na 1\na 3\n":                 "odd odd odd",
		"a\u00a01 2\na 1\nb 1\n":            "b=1 odd odd", // the API reports the key a for the first line
		"a;b 1\n":                           "odd",
		"a'b 1\nb 2\n":                      "b=2 odd",
		"a\\b 1\n":                          "odd",
		"@1 1\n":                            "odd",
		"a #1\n":                            "odd",
		"<< 1\n":                            "odd",
		"ä 1\n":                             "odd",
		"/ 1\n/x 1\n//\n":                   "/x=1 odd odd",
		". 1\n.. 1\n... 1\n":                "...=1 odd odd",
		strings.Repeat("k", 8188) + " 12\n": strings.Repeat("k", 8188) + "=12",
		strings.Repeat("k", 8189) + " 12\n": "odd",
	} {
		entries, odd := ParseMap([]byte(text))
		var got []string
		for _, e := range entries {
			got = append(got, e.Key+"="+e.Value)
		}
		for range odd {
			got = append(got, "odd")
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	keys := Map{Odd: []string{"a;b 1\n", " b\t2\n", "c\u00a0d 3\r\n", "\r\n"}}.OddKeys()
	if got, want := slices.Sorted(maps.Keys(keys)), []string{"a;b", "b", "c", "c\u00a0d"}; !slices.Equal(got, want) {
		t.Errorf("the odd keys are %q, want %q", got, want)
	}
}

// An entry that cannot be changed at run time costs a reload when it changes itself, and no other entry does.
func TestOddEntries(t *testing.T) {
	t.Parallel()
	config := snapshots.File{Path: snapshots.ConfigFile, Content: []byte("listen l\n    use_backend %[path,map_beg(maps/a.map)]\n")}
	bind := func(entries string) Bound {
		s := snapshots.Draft{Files: []snapshots.File{config, {Path: "maps/a.map", Content: []byte(entries)}}}.Number(1, snapshots.ID{})
		return must(Bind(s, Inputs{Layout: testLayout}))(t)
	}
	long := strings.Repeat("k", 8181) + " long_service\n"
	for _, odd := range []string{"evil;x 1\n", "evil'x 1\n", long, "/ 1\n", ".. 1\n", "evil 1\nevil 1\n", "evil 1 2\n"} {
		before := "a 1\n" + odd
		for after, want := range map[string]Classified{
			before + "b 1\n":            {Verdict: Runtime, File: "maps/a.map", Text: "b 1"},
			"a 2\n" + odd:               {Verdict: Runtime, File: "maps/a.map", Text: "a 2"},
			"# b\n" + odd + "a 1\n":     {Verdict: Runtime, File: "maps/a.map", Text: "# b"},
			"a 1\n":                     {Verdict: Reload, Old: true, File: "maps/a.map", Text: odd[:strings.Index(odd, "\n")]},
			"a 1\nb 1\n" + odd + "x;\n": {Verdict: Reload, File: "maps/a.map", Text: "x;"},
		} {
			from, to := bind(before), bind(after)
			got := Classify(from, to)
			got.Line = 0
			if got != want || (from.Shape == to.Shape) != (want.Verdict == Runtime) || len(from.Maps) != 1 {
				t.Errorf("%.20q to %.20q: %+v, want %+v", before, after, got, want)
			}
			sides := [2][2][]byte{{config.Content, []byte(before)}, {config.Content, []byte(after)}}
			if changeable := ChangeableMap("maps/a.map", sides[0], sides[1]); changeable != (want.Verdict == Runtime) {
				t.Errorf("%.20q to %.20q: changeable %v", before, after, changeable)
			}
		}
	}
	for _, unreadable := range []string{strings.Repeat("k", 16384) + " 1\n", "a\x00b 1\n"} {
		if got := bind(unreadable).Maps; len(got) > 0 {
			t.Errorf("%.20q: %d maps", unreadable, len(got))
		}
	}
}

func TestMapsWhoseEntriesCanBeChanged(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]bool{
		"http-request set-var(txn.h) req.hdr(host),map(maps/a.map)":                                 true,
		"http-request set-var(txn.h) req.hdr(host),lower,map_str(maps/a.map,none),upper":            true,
		"use_backend %[path,map_beg(maps/a.map)] if { path,map_str_int(maps/a.map,1) -m int 1 }":    true,
		"use_backend %[path,map_beg(maps/a.map)] if { path,map_reg(maps/a.map) -m found }":          false,
		"use_backend %[path,map_dir(maps/a.map)]":                                                   false,
		"use_backend %[path,map_end(maps/a.map)]":                                                   false,
		"use_backend %[path,map_int(maps/a.map)]":                                                   false,
		"use_backend %[src,map_ip(maps/a.map)]":                                                     false,
		"http-request set-map(maps/a.map) %[src] x":                                                 false,
		"acl known path -M -f maps/a.map":                                                           false,
		"http-request set-var(txn.h) path,my_map(maps/a.map)":                                       false,
		"#hapsnap servers shop/web -- ssl sni req.hdr(host),map(maps/a.map)":                        false,
		"# maps/a.map is for somebody else":                                                         false,
		"# see maps/a.map\n    http-request set-var(txn.h) path,map_str(maps/a.map)":                true,
		"http-request set-var(txn.h) path,map_str(maps/b.map)":                                      false,
		"http-request set-var(txn.h) path,map_str(maps/b.map),map_str(maps/a.map) # a.map, b's map": true,
	} {
		files := []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte("listen l\n    " + line + "\n")}, {Path: "maps/a.map", Content: []byte("a 1\n")}, {Path: "maps/b.map", Content: []byte("a 1\na 2\n")}}
		bind := func(entry string) Bound {
			files[1].Content = []byte(entry)
			s := snapshots.Draft{Files: slices.Clone(files)}.Number(1, snapshots.ID{})
			slots := must(Placeholder(s))(t)
			return must(Bind(s, Inputs{Slots: slots, Layout: testLayout}))(t)
		}
		a, b := bind("a 1\n"), bind("a 1\nb 2\n")
		got := slices.ContainsFunc(a.Maps, func(m Map) bool { return m.Source == "maps/a.map" })
		if got != want || (a.Shape == b.Shape) != want || a.Node == b.Node {
			t.Errorf("%s: %v, the shapes are the same: %v", line, a.Maps, a.Shape == b.Shape)
		}
		c := Classify(a, b)
		if want && c != (Classified{Verdict: Runtime, File: "maps/a.map", Line: 2, Text: "b 2"}) || !want && c.Verdict != Reload {
			t.Errorf("%s: an entry more needs %+v", line, c)
		}
		if (a.Entries == b.Entries) == got {
			t.Errorf("%s: the entries have the digests %q and %q", line, a.Entries, b.Entries)
		}
	}
}

// Only what HAProxy reads as a file gets the path on the instance, and only that can forbid changes at run time.
func TestTextThatNamesAMap(t *testing.T) {
	t.Parallel()
	const file = "/etc/haproxy/maps/a-"
	for line, want := range map[string]struct{ rewritten, changeable bool }{
		"http-request set-header X-A 'maps/a.map'":                                              {false, true},
		"http-request set-header X-A maps/a.map if TRUE":                                        {false, true},
		`http-request set-header X-A "see map_dir(maps/a.map)"`:                                 {false, true},
		"http-request set-header X-A 'if' if { path maps/a.map }":                               {false, false},
		"http-request set-header X-A '%%[path,map_dir(maps/a.map)]'":                            {false, true},
		"http-response add-header X-A '%%%[path,map_dir(maps/a.map)]'":                          {true, false},
		"http-request set-header X-A %[path,map_str(maps/a.map)]":                               {true, true},
		`http-request set-header X-A "x %[path,map_str(maps/a.map,-)]"`:                         {true, true},
		"http-request redirect location 'https://x/?maps/a.map'%[pathq] code 302":               {false, false},
		"redirect prefix '/map_end(maps/a.map)'":                                                {false, true},
		"http-request replace-path '^/%[path,map_dir(maps/a.map)]' '/x'":                        {false, true},
		"http-request del-header 'lua.x(maps/a.map)' -m reg":                                    {false, true},
		"http-request auth realm 'map_dir(maps/a.map)' unless { http_auth(u) }":                 {false, true},
		"http-request set-var-fmt(txn.x) 'maps/a.map'":                                          {false, true},
		"http-request return status 200 content-type text/plain string 'map_ip(maps/a.map)'":    {false, true},
		"http-request return status 200 content-type text/plain lf-file 'maps/a.map'":           {true, false},
		"http-check send meth GET uri '/map_dir(maps/a.map)'":                                   {false, true},
		"http-request deny if { path -m reg '^/map_dir(maps/a.map)$' }":                         {false, true},
		"http-request deny if { path -m str -- -f maps/a.map }":                                 {false, true},
		"http-request deny if { path -m str -i -f maps/a.map } !{ src 10.0.0.1 }":               {true, false},
		"http-request deny if !{ path,map_reg(maps/a.map) -m found }":                           {true, false},
		"acl x path -m reg '^/map_dir(maps/a.map)$'":                                            {false, true},
		"acl x path -M -f maps/a.map":                                                           {true, false},
		"acl x path -f 'maps/a.map'":                                                            {true, false},
		"acl x path,map_end(maps/a.map) -m found":                                               {true, false},
		"http-request set-map(maps/a.map) %[src] x":                                             {true, false},
		`http-request set-""map(maps/a.map) %[src] x`:                                           {true, false},
		`http-request "set-"'map(maps/a.map)' %[src] x`:                                         {true, false},
		`http-request set-"${NOTHING}"map(maps/a.map) %[src] x`:                                 {true, false},
		`http-request set-var(txn.x) path,lua."map(maps/a.map)"`:                                {true, false},
		`http-request set-var(txn.x) path,map_str(maps/a.map) if { path -m reg -- "^/\d'"'x' }`: {true, true},
		"http-request set-var(txn.x) path,lua.map(maps/a.map)":                                  {true, false},
		`http-request deny "if" "{" src -f maps/a.map }`:                                        {false, false},
		"http-request set-var(txn.x) 'path,map_dir(\"maps/a.map\")'":                            {true, false},
		"http-request set-var(txn.x) path,lua.find(maps/a.map)":                                 {true, false},
		"http-request set-var(txn.x) str(maps/a.map)":                                           {true, true},
		"http-request lua.auth 'x' '/?map_dir(maps/a.map)'":                                     {false, true},
		"http-request lua.auth maps/a.map":                                                      {true, true},
		"a-keyword-to-come 'maps/a.map'":                                                        {true, true},
		"log-format 'maps/a.map %ci'":                                                           {false, true},
		"# maps/a.map":                                                                          {false, true},
	} {
		config := "listen l\n    use_backend %[path,map(maps/a.map)]\n    " + line + "\n"
		files := []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte(config)}, {Path: "maps/a.map", Content: []byte("a 1\n")}}
		b := must(Bind(snapshots.Draft{Files: files}.Number(1, snapshots.ID{}), Inputs{Layout: testLayout}))(t)
		if rewritten, changeable := bytes.Count(b.Config, []byte(file)) == 2, len(b.Maps) == 1; rewritten != want.rewritten || changeable != want.changeable {
			t.Errorf("%s: rewritten %v, changeable %v", line, rewritten, changeable)
		}
	}
}

// otherUses are lines that use a map in another way than by looking up whole keys or the longest prefix.
var otherUses = []string{
	"http-request set-header X %[path,map_reg(maps/a.map)]",
	"http-request set-header X %[path,map_end(maps/a.map,x)] if { path -m beg /x }",
	"http-request set-var(txn.x) path,map_dom(maps/a.map)",
	"http-request deny if { path,map_sub(maps/a.map) -m found }",
	"http-request set-map(maps/a.map) %[src] x",
	"http-request del-map(maps/a.map) %[src]",
	"http-request add-acl(maps/a.map) %[src]",
	"http-request del-acl(maps/a.map) %[src]",
	"acl y path,map_dir(maps/a.map) -m found",
	"http-request return status 200 content-type text/plain file maps/a.map",
}

// respelled returns a line with quotes and escapes at random places, which HAProxy reads as the same words.
func respelled(random *rand.Rand, line string) string {
	words := strings.Split(line, " ")
	for range 1 + random.IntN(3) {
		i := random.IntN(len(words))
		w := words[i]
		if strings.ContainsAny(w, `"'\\`) || strings.HasPrefix(w, "maps/") {
			continue
		}
		from := random.IntN(len(w))
		to := from + random.IntN(len(w)-from+1)
		if at := strings.Index(w, "maps/"); at >= 0 { // a path in which something is respelled is not found on an instance
			from = random.IntN(max(1, at-1))
			to = from + random.IntN(at-from+1)
		}
		switch quote := []string{`"`, "'"}[random.IntN(2)]; random.IntN(3) {
		case 0:
			w = w[:from] + quote + w[from:to] + quote + w[to:]
		case 1:
			w = fmt.Sprintf(`%s\x%02x%s`, w[:from], w[from], w[from+1:])
		case 2:
			w = w[:from] + `"${HAPSNAP_NOTHING}"` + w[from:]
		}
		words[i] = w
	}
	return strings.Join(words, " ")
}

// However a line is written, a map that it uses in another way is not changed at run time. HAProxy takes all of these lines.
func TestOtherUsesHoweverTheyAreWritten(t *testing.T) {
	t.Parallel()
	haproxy, err := exec.LookPath(cmp.Or(os.Getenv("HAPROXY"), "haproxy"))
	if err != nil {
		haproxy = "/usr/sbin/haproxy"
	}
	const head = "defaults\n    mode http\n    timeout connect 1s\n    timeout client 1s\n    timeout server 1s\nlisten l\n    bind 127.0.0.1:1\n" +
		"    http-request set-header Y %[path,map(maps/a.map)]\n"
	random := rand.New(rand.NewPCG(7, 8))
	all := head
	for range 300 {
		line := "    " + respelled(random, otherUses[random.IntN(len(otherUses))]) + "\n"
		all += line
		if slices.Contains(lookedUp([]byte(head+line)), "maps/a.map") {
			t.Errorf("with this line the map counts as changeable: %s", line)
		}
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"maps/a.map": "10.0.0.1 x\n", "haproxy.cfg": all} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	check := exec.CommandContext(t.Context(), haproxy, "-c", "-f", "haproxy.cfg")
	check.Dir, check.Env = dir, append(os.Environ(), "HAPSNAP_NOTHING=")
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("HAProxy does not take these lines: %v\n%s", err, out)
	}
}

func TestLogicalMap(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"host.map", "a-b.map", "a-12345678.map"} {
		if got := LogicalMap(hashedName(name, []byte("x"))); got != name {
			t.Errorf("%s of %s", got, hashedName(name, []byte("x")))
		}
	}
}
