package controller

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/internal/haproxycfg"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

func TestSizeOf(t *testing.T) {
	t.Parallel()
	files := []snapshots.File{
		{Path: "haproxy.cfg", Content: []byte(`defaults main
    option httplog

frontend http from main
    use_backend %[var(txn.b)]

backend two from main
    #hapsnap servers shop/blue:http weight=1
    #hapsnap servers shop/green:http weight=9

# backend commented from main
backend missing from main

backend named from main
    server s1 example.com:80 resolvers dns

backend hapsnap_ready from main
    server instance 192.0.2.1:1 no-check
`)},
		{Path: "maps/host.map", Content: []byte("# host\nshop.example shop.example\nwww.shop.example shop.example\n")},
		{Path: "maps/prefix.map", Content: []byte("shop.example|/ two\n")},
		{Path: "maps/sni_https.map", Content: []byte("tls.example named\n")},
	}
	if got, want := sizeOf(files), (size{backends: 2, hosts: 3}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// Templates need no indentation, as HAProxy needs none.
func TestSizeOfLinesWithoutIndentation(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for i := range 11 {
		fmt.Fprintf(&text, "backend b%d\nserver s1 192.0.2.1:80\n", i)
	}
	before := []snapshots.File{{Path: "haproxy.cfg", Content: []byte(text.String())}}
	after := []snapshots.File{{Path: "haproxy.cfg", Content: []byte("  backend b0\n    server s1 192.0.2.1:80\n")}}
	if got := shrinkage(sizeOf(before), sizeOf(after), config.Default().ShrinkGuard); got != "10 of 11 backends gone" {
		t.Errorf("got %q", got)
	}
}

func TestLosses(t *testing.T) {
	t.Parallel()
	standard := config.Default().ShrinkGuard
	for name, c := range map[string]struct {
		before, after size
		guard         config.ShrinkGuard
		want          string
	}{
		"an empty store":           {size{}, size{1000, 1000}, standard, ""},
		"nothing gone":             {size{1000, 1000}, size{1000, 1000}, standard, ""},
		"more than before":         {size{10, 10}, size{1000, 1000}, standard, ""},
		"less than half":           {size{1000, 1000}, size{501, 501}, standard, ""},
		"half":                     {size{1000, 1000}, size{500, 501}, standard, "500 of 1000 backends gone"},
		"all":                      {size{1000, 900}, size{}, standard, "1000 of 1000 backends gone, 900 of 900 hosts gone"},
		"Services alone":           {size{1000, 1000}, size{0, 1000}, standard, "1000 of 1000 backends gone"},
		"hosts that share backend": {size{1, 1000}, size{1, 400}, standard, "600 of 1000 hosts gone"},
		"one of two":               {size{2, 2}, size{1, 1}, standard, ""},
		"the only one":             {size{1, 1}, size{}, standard, ""},
		"four of four":             {size{4, 4}, size{}, standard, ""},
		"five of ten":              {size{10, 10}, size{5, 6}, standard, "5 of 10 backends gone"},
		"a smaller share":          {size{1000, 1000}, size{900, 901}, config.ShrinkGuard{LostPercent: 10, MinLost: 5}, "100 of 1000 backends gone"},
		"a greater number":         {size{1000, 0}, size{500, 0}, config.ShrinkGuard{LostPercent: 50, MinLost: 501}, ""},
		"no guard":                 {size{1000, 1000}, size{}, config.ShrinkGuard{MinLost: 1}, ""},
		"a third, exactly":         {size{300, 0}, size{200, 0}, config.ShrinkGuard{LostPercent: 34, MinLost: 1}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := shrinkage(c.before, c.after, c.guard); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// An approval is for one content, and for later ones of the same compiler that have lost no more. Otherwise nobody could approve
// anything in a cluster in which something changes each second.
func TestGuardApproval(t *testing.T) {
	t.Parallel()
	head := backends(20).Number(7, snapshots.ID{})
	small, smaller, more := backends(3), backends(2), backends(4)
	c := config.Default().ShrinkGuard
	check := func(g *shrinkGuard, d snapshots.Draft) error { return g.check(head, &compiler.Result{Draft: d}, c) }
	var running shrinkGuard
	shrunk, ok := errors.AsType[*ShrinkError](check(&running, small))
	if !ok || shrunk.Head != head.ID() || shrunk.Lost != "17 of 20 backends gone" {
		t.Fatalf("got %+v, want that the draft is held", shrunk)
	}
	if !strings.HasSuffix(shrunk.Approval(), " to "+small.Digest().Short()) {
		t.Errorf("how to approve: %s", shrunk.Approval())
	}
	if err := check(&running, more); err == nil {
		t.Error("another draft is not held")
	}
	c.Approve = shrunk.Digest.Short()
	for what, test := range map[string]struct {
		guard *shrinkGuard
		draft snapshots.Draft
		held  bool
	}{
		"the draft":                          {&running, small, false},
		"one that lost more":                 {&running, smaller, true},
		"one that lost less":                 {&running, more, false},
		"the draft, after a restart":         {&shrinkGuard{}, small, false},
		"one that lost less after a restart": {&shrinkGuard{}, more, true},
	} {
		if err := check(test.guard, test.draft); (err != nil) != test.held {
			t.Errorf("%s: %v", what, err)
		}
	}
	head = backends(21).Number(8, head.ID())
	if err := check(&running, more); err == nil {
		t.Error("what was approved after another snapshot is approved")
	}
	head = snapshots.Snapshot{}
	if err := check(&shrinkGuard{}, small); err != nil {
		t.Errorf("first snapshot of a store: %v", err)
	}
}

// ConfigMaps that a snapshot was made of, and that may not be read now, are no lists of networks that somebody deleted. Those
// of one namespace, whose role may be its own, hold nobody back.
func TestGuardOfWhatMayNotBeRead(t *testing.T) {
	t.Parallel()
	named := func(kind string, names ...string) (out []diag.Object) {
		for _, name := range names {
			namespace, name, _ := strings.Cut(name, "/")
			out = append(out, diag.Object{Kind: kind, Namespace: namespace, Name: name})
		}
		return out
	}
	all := []string{"a/1", "a/2", "a/3", "b/1", "b/2", "c/1", "c/2", "c/3", "c/4", "c/5"}
	for name, test := range map[string]struct {
		of     []string // that the head was made of
		unread []diag.Object
		shared string
		want   string
	}{
		"all":                       {all, named("ConfigMap", all...), "", "10 of 10 ConfigMaps may not be read any more"},
		"half":                      {all, named("ConfigMap", all[:5]...), "", "5 of 10 ConfigMaps may not be read any more"},
		"fewer":                     {all, named("ConfigMap", all[:4]...), "", ""},
		"of one namespace":          {all, named("ConfigMap", all[5:]...), "", ""},
		"few, and all of them":      {all[2:4], named("ConfigMap", all...), "", "2 of 2 ConfigMaps may not be read any more"},
		"few":                       {all[1:4], named("ConfigMap", all[2:4]...), "", ""},
		"that nothing was made of":  {nil, named("ConfigMap", all...), "", ""},
		"of another name":           {all[:2], named("ConfigMap", all[2:]...), "", ""},
		"Secrets":                   {all, named("Secret", all...), "", ""},
		"one that all may name":     {all, named("ConfigMap", all[:1]...), "a/1", "1 of 10 ConfigMaps may not be read any more"},
		"the only one, for all":     {all[:1], named("ConfigMap", all[:1]...), "a/1", "1 of 1 ConfigMaps may not be read any more"},
		"another than one for all":  {all, named("ConfigMap", all[1:2]...), "a/1", ""},
		"one for all, new and lost": {all[1:], named("ConfigMap", all[:1]...), "a/1", ""},
	} {
		d := backends(20)
		for _, o := range named("ConfigMap", test.of...) {
			d.Provenance.Inputs = append(d.Provenance.Inputs, snapshots.Input{APIVersion: "v1", Kind: o.Kind, Namespace: o.Namespace, Name: o.Name})
		}
		head, r := d.Number(7, snapshots.ID{}), &compiler.Result{Draft: backends(21), Unread: test.unread}
		if namespace, name, ok := strings.Cut(test.shared, "/"); ok {
			r.Shared = []types.NamespacedName{{Namespace: namespace, Name: name}}
		}
		c, g, got := config.Default().ShrinkGuard, &shrinkGuard{}, ""
		shrunk, held := errors.AsType[*ShrinkError](g.check(head, r, c))
		if held {
			got = shrunk.Lost
			c.Approve = shrunk.Digest.Short()
			if err := g.check(head, r, c); err != nil {
				t.Errorf("%s: approved, and held: %v", name, err)
			}
		}
		if got != test.want {
			t.Errorf("%s: held is %q, want %q", name, got, test.want)
		}
		r.Unread = nil
		if err := g.check(head, r, config.Default().ShrinkGuard); err != nil {
			t.Errorf("%s: held, although all may be read: %v", name, err)
		}
	}
	// Both kinds of losses are named.
	d := backends(20)
	d.Provenance.Inputs = []snapshots.Input{{APIVersion: "v1", Kind: "ConfigMap", Namespace: "a", Name: "1"}, {APIVersion: "v1", Kind: "ConfigMap", Namespace: "b", Name: "1"}}
	err := (&shrinkGuard{}).check(d.Number(7, snapshots.ID{}), &compiler.Result{Draft: backends(3), Unread: named("ConfigMap", "a/1", "b/1")}, config.Default().ShrinkGuard)
	if shrunk, ok := errors.AsType[*ShrinkError](err); !ok || shrunk.Lost != "17 of 20 backends gone, 2 of 2 ConfigMaps may not be read any more" {
		t.Errorf("both: %v", err)
	}
}

// What a namespace lost is let pass where it was deleted, and not where a new configuration or other templates may have dropped it.
func TestGuardOfOneNamespace(t *testing.T) {
	t.Parallel()
	head := backends(30).Number(7, snapshots.ID{})
	for name, test := range map[string]struct {
		change func(*shrinkGuard, *compiler.Result)
		held   bool
	}{
		"deleted":       {func(*shrinkGuard, *compiler.Result) {}, false},
		"reconfigured":  {func(g *shrinkGuard, _ *compiler.Result) { g.reconfigured() }, true},
		"templates":     {func(_ *shrinkGuard, r *compiler.Result) { r.Draft.Provenance.TemplatesDigest = "sha256:two" }, true},
		"somebody else": {func(g *shrinkGuard, _ *compiler.Result) { g.newest.Revision = 6 }, true},
	} {
		g := shrinkGuard{newest: head.ID(), size: sizeOf(head.Files), templates: "sha256:one", owned: map[string]size{"shop": {backends: 20}, "quiet": {backends: 10}}}
		r := compiler.Result{Draft: backends(10)}
		r.Draft.Provenance.TemplatesDigest = "sha256:one"
		test.change(&g, &r)
		if err := g.check(head, &r, config.Default().ShrinkGuard); (err != nil) != test.held || slices.Equal(g.let, []string{"shop"}) == test.held {
			t.Errorf("%s: %v, of %q", name, err, g.let)
		}
	}
}

// A loss of many namespaces is not that of the one without which the share is just below the bound. The others have no owner here.
func TestGuardOfManyNamespaces(t *testing.T) {
	t.Parallel()
	head := backends(100).Number(7, snapshots.ID{})
	g := shrinkGuard{newest: head.ID(), size: sizeOf(head.Files), owned: map[string]size{"gone": {backends: 10}}}
	if err := g.check(head, &compiler.Result{Draft: backends(48)}, config.Default().ShrinkGuard); err == nil {
		t.Errorf("52 of 100 are gone, 42 of them of others, and let is %q", g.let)
	}
}

// Drafts that wait are not remembered without end.
func TestGuardRemembersSome(t *testing.T) {
	t.Parallel()
	head := backends(20).Number(7, snapshots.ID{})
	var g shrinkGuard
	for n := range mostHeld + 10 {
		d := backends(3)
		d.Files = append(d.Files, snapshots.File{Path: "maps/other.map", Content: fmt.Appendf(nil, "a %d\n", n)})
		if err := g.check(head, &compiler.Result{Draft: d}, config.Default().ShrinkGuard); err == nil {
			t.Fatal("a draft is not held")
		}
	}
	if len(g.held) != mostHeld {
		t.Errorf("%d are remembered", len(g.held))
	}
}

// backends returns a draft with n backends.
func backends(n int) snapshots.Draft {
	var cfg strings.Builder
	for i := range n {
		fmt.Fprintf(&cfg, "backend b%d\n    server s1 192.0.2.1:80\n", i)
	}
	return snapshots.Draft{Files: []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte(cfg.String())}}}
}

// A directive counts with whatever blanks the binding takes, and with no others.
func TestServersOfDirectives(t *testing.T) {
	t.Parallel()
	for char := rune(1); char < 256; char++ {
		line := string(char) + "#hapsnap" + string(char) + "servers shop/web"
		_, want := bind.DirectiveText([]byte(line))
		if got := isServers(haproxycfg.Line{Text: []byte(line)}); got != want {
			t.Errorf("%q gives servers: %t, want %t", line, got, want)
		}
	}
}
