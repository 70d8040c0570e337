package validate_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/snapshots"
)

// mapped is a haproxy.cfg that reads maps with several converters, in a frontend and in backends. Two backends have the same text,
// and one has a map of its own.
const mapped = `global
defaults main
    mode http
    timeout connect 1s
    timeout client 1s
    timeout server 1s
frontend f from main
    bind unix@f.sock
    acl inside src -f maps/networks.map
    http-request set-var(txn.b) req.hdr(host),map_str(maps/hosts.map)
    http-request set-var(txn.n) req.hdr(host),map_str_int(maps/numbers.map)
    use_backend %[path,map_reg(maps/expressions.map)] if inside
backend a from main
    http-request set-header X %[src,map_ip(maps/addresses.map)]
    #hapsnap servers shop/a:http --
backend b from main
    http-request set-header X %[src,map_ip(maps/addresses.map)]
    #hapsnap servers shop/b:http --
backend own from main
    http-request set-header X %[path,map_reg(maps/own.map)]
    #hapsnap servers shop/own:http --
`

// entries are sound entries of each map, and at the end one that HAProxy refuses, if there is any.
var entries = map[string][]string{
	"networks":    {"192.0.2.0/24", "2001:db8::/32", "192.0.2.0/240"},
	"hosts":       {"a.example a", "b.example b"},
	"numbers":     {"a.example 1", "b.example 2", "c.example many"},
	"expressions": {"^/a a", "^/b/[0-9]+ b", "( own"},
	"addresses":   {"192.0.2.1 one", "192.0.2.0/28 two", "192.0.2.300 three"},
	"own":         {"^/a a", "^/own own", "[ b"},
}

// withMaps is an artifact with some of the entries, or with all of one map.
func withMaps(random *rand.Rand, config, all string) validate.Input {
	files := []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte(config)}}
	for _, name := range []string{"addresses", "expressions", "hosts", "networks", "numbers", "own"} {
		lines := entries[name]
		if name != all && name != "hosts" {
			lines = lines[:len(lines)-1]
		}
		text := ""
		for _, i := range random.Perm(len(lines)) {
			if i == len(lines)-1 || random.IntN(2) == 0 {
				text += lines[i] + "\n"
			}
		}
		files = append(files, snapshots.File{Path: "maps/" + name + ".map", Content: []byte(text)})
	}
	return validate.Input{Artifact: render.Artifact{Files: files}}
}

func said(t *testing.T, c *validate.Checker, in validate.Input) string {
	t.Helper()
	v, err := c.Check(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	out := ""
	for _, f := range append(v.Faults, v.Warnings...) {
		out += fmt.Sprintf("%s:%d: %s: %s\n", f.File, f.Line, f.Text, f.Message)
	}
	return out
}

// Of a configuration whose maps change, the verdict is that of a checker that has seen nothing before.
func TestVerdictsOfOtherMaps(t *testing.T) {
	t.Parallel()
	keeping := find(t)
	random := rand.New(rand.NewPCG(3, 4))
	if text := said(t, keeping, withMaps(random, mapped, "")); text != "" {
		t.Fatal(text)
	}
	for name := range entries {
		for _, all := range []string{"", name, name, ""} {
			in := withMaps(random, mapped, all)
			want := said(t, find(t), in)
			if got := said(t, keeping, in); got != want {
				t.Errorf("all of %q: it says\n%s\nand not\n%s", all, got, want)
			}
			if (want != "") != (all != "" && all != "hosts") {
				t.Errorf("all of %q: HAProxy says %q", all, want)
			}
		}
	}
}

// HAProxy is asked about few backends if only maps differ from what it accepted last, and about all of them otherwise.
func TestOnlyOtherMapsAreCheckedInShort(t *testing.T) {
	t.Parallel()
	check, asked := overheard(t, "haproxy.cfg")
	random := rand.New(rand.NewPCG(5, 6))
	other := strings.Replace(mapped, "timeout server 1s", "timeout server 2s", 1)
	warned := strings.Replace(mapped, "    timeout client 1s\n", "", 1)
	file := func(content string) func(*validate.Input) {
		return func(in *validate.Input) {
			in.Artifact.Files = append(in.Artifact.Files, snapshots.File{Path: "files/503.http", Content: []byte("HTTP/1.0 503 " + content + "\r\n\r\n")})
		}
	}
	for _, step := range []struct {
		what    string
		config  string
		all     string
		change  func(*validate.Input)
		short   bool
		replace bool // the executable
	}{
		{what: "nothing is known", config: mapped},
		{what: "other maps", config: mapped, short: true},
		{what: "other maps again", config: mapped, short: true},
		{what: "another haproxy.cfg", config: other},
		{what: "the one before", config: mapped, short: true},
		{what: "a bad map", config: mapped, all: "own"},
		{what: "sound maps", config: mapped, short: true},
		{what: "another file", config: mapped, change: file("a")},
		{what: "the same file", config: mapped, change: file("a"), short: true},
		{what: "that file with other content", config: mapped, change: file("b")},
		{what: "another HAProxy", config: mapped, change: file("b"), replace: true},
		{what: "that HAProxy", config: mapped, change: file("b"), short: true},
		{what: "a warning", config: warned},
		{what: "the same warning", config: warned},
	} {
		in := withMaps(random, step.config, step.all)
		if step.change != nil {
			step.change(&in)
		}
		if step.replace {
			if err := os.Chtimes(check.Path, time.Now(), time.Now().Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
		text := said(t, check, in)
		if (text != "") != (step.all != "" || step.config == warned) {
			t.Errorf("%s: it says %q", step.what, text)
		}
		if n := strings.Count(asked(), "\nbackend "); step.short != (n == 2) || n < 2 {
			t.Errorf("%s: HAProxy was asked about %d backends", step.what, n)
		}
	}
}

// A line of defaults that HAProxy reads again for each server may name a map, and a backend may get its defaults by where it
// stands. So two backends with the same lines do not stand for each other if other defaults are between them.
func TestMapsOfDefaults(t *testing.T) {
	t.Parallel()
	const times = "    mode http\n    timeout connect 1s\n    timeout client 1s\n    timeout server 1s\n"
	const config = "global\ndefaults a\n" + times + "frontend f\n    bind unix@f.sock\n    default_backend one\n" +
		"backend one\n    server s 127.0.0.1:1\n" +
		"defaults b\n" + times + "    default-server sni req.hdr(host),map_reg(maps/x.map) ssl verify none\n" +
		"backend two\n    server s 127.0.0.1:1\n"
	check := find(t)
	for _, entry := range []string{"^a a", "^b b", "( own"} {
		text := said(t, check, validate.Input{Artifact: render.Artifact{Files: []snapshots.File{
			{Path: snapshots.ConfigFile, Content: []byte(config)}, {Path: "maps/x.map", Content: []byte(entry + "\n")},
		}}})
		if (text != "") != (entry == "( own") {
			t.Errorf("of %q it says %q", entry, text)
		}
	}
}

// What the Dataplane API would lose is a fault however often it is checked, with whatever maps, although HAProxy takes it.
func TestLostLinesStayFaults(t *testing.T) {
	t.Parallel()
	check := find(t)
	random := rand.New(rand.NewPCG(7, 8))
	twice := strings.Replace(mapped, "backend own from main\n", "backend own from main\n    balance roundrobin\n    balance roundrobin\n", 1)
	conditional := strings.Replace(mapped, "backend own from main\n", "backend own from main\n.if 1\n    balance roundrobin\n.endif\n", 1)
	for n := range 3 {
		for _, lost := range []string{twice, conditional} {
			if text := said(t, check, withMaps(random, lost, "")); !strings.Contains(text, "the Dataplane API") {
				t.Errorf("check %d says %q of\n%s", n, text, lost)
			}
		}
		if text := said(t, check, withMaps(random, mapped, "")); text != "" {
			t.Errorf("check %d says %q of a sound one", n, text)
		}
	}
}

// As long as only maps change, nothing is bound again. Whatever else changes is.
func TestOtherMapsAreNotBound(t *testing.T) {
	t.Parallel()
	check, asked := overheard(t, "haproxy.cfg")
	random := rand.New(rand.NewPCG(7, 8))
	other := strings.Replace(mapped, "timeout server 1s", "timeout server 2s", 1)
	for i, step := range []struct {
		config, all string
		bound       int
	}{
		{mapped, "", 0}, {mapped, "", 1}, {mapped, "", 1}, {mapped, "", 1}, {other, "", 1}, {other, "", 2}, {other, "", 2},
		{other, "own", 2}, // HAProxy refuses it, and is asked about the whole
		{other, "", 2}, {mapped, "", 3}, {mapped, "", 3},
	} {
		in := withMaps(random, step.config, step.all)
		if text := said(t, check, in); (text != "") != (step.all != "") {
			t.Errorf("%d: it says %q", i, text)
		}
		if bound := validate.Shortened(check); bound != step.bound {
			t.Errorf("%d: bound %d times, want %d", i, bound, step.bound)
		}
		if text := asked(); !strings.Contains(text, "timeout server 1s") == strings.Contains(step.config, "timeout server 1s") {
			t.Errorf("%d: HAProxy was asked about another configuration: %s", i, text)
		}
	}
}

// A configuration that tells HAProxy to be quiet is judged like any other: what HAProxy refuses is a fault with its line, and
// not a HAProxy that does not say what it refuses.
func TestQuietConfiguration(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(9, 10))
	for _, all := range []string{"", "own"} {
		for _, config := range []string{mapped, strings.Replace(mapped, "    timeout client 1s\n", "", 1)} {
			in := withMaps(random, config, all)
			want := said(t, find(t), in)
			quiet := withMaps(random, "", "")
			quiet.Artifact.Files = append([]snapshots.File{{Path: snapshots.ConfigFile, Content: []byte(strings.Replace(config, "global\n", "global\n    quiet\n", 1))}}, in.Artifact.Files[1:]...)
			if got := said(t, find(t), quiet); strings.ReplaceAll(got, "haproxy.cfg:8:", "haproxy.cfg:7:") != want {
				t.Errorf("it says\n%s\nand not\n%s", got, want)
			}
		}
	}
}
