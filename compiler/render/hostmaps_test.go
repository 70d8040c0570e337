package render_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/templates"
)

var mapsOfHosts = []string{"maps/exact.map", "maps/host.map", "maps/prefix.map", "maps/rewrite.map"}

// executed are the shipped templates. The templates of the host maps have a different text with the same
// meaning, so that they are executed.
func executed(t *testing.T) *render.Set {
	t.Helper()
	shipped, err := render.Shipped(templates.FS)
	if err != nil {
		t.Fatal(err)
	}
	changed := 0
	for i := range shipped {
		if slices.Contains(mapsOfHosts, shipped[i].Name) {
			shipped[i].Text += "{{/* executed */}}"
			changed++
		}
	}
	if changed != len(mapsOfHosts) {
		t.Fatalf("%d templates", changed)
	}
	set, ds := render.Parse(shipped)
	if len(ds) > 0 {
		t.Fatal(ds)
	}
	return set
}

// someHosts are hosts with routes of all kinds. Few of them are refused.
func someHosts(r *rand.Rand, refused bool) (hosts []routing.Host, held []routing.Held) {
	origins := func() routing.Origin {
		if r.IntN(8) == 0 {
			return routing.Origin{}
		}
		return origin(fmt.Sprint("web", r.IntN(9)), 1+r.IntN(3))
	}
	path := func() string {
		paths := []string{"", "/a", "/a/b", "/ä", "/a%20b", "/~x", "/a'b", "/it:s", "/a|b"}
		if refused {
			paths = append(paths, "/a b", "/#", "/a\"", `/\`, "/\x01", "/hapsnap:secret/a", "/\xff")
		}
		return paths[r.IntN(len(paths))]
	}
	for i := range r.IntN(12) {
		h := routing.Host{Name: fmt.Sprintf("h%d.example", i), Closed: r.IntN(3) == 0, Origin: origins()}
		switch r.IntN(5) {
		case 0:
			h.Bind = "shop/web:8080"
		case 1:
			h.Name = "." + h.Name
		case 2:
			h.Name = ""
		}
		for range r.IntN(5) {
			match := routing.Match{PathMatch: routing.PathMatch{Type: []routing.PathType{routing.Prefix, routing.Exact, routing.Expression}[r.IntN(3)], Path: path()}}
			for range 1 + r.IntN(2)*r.IntN(10) {
				route := routing.Route{Match: match, Backend: fmt.Sprint("shop_web_", r.IntN(4)), Yields: r.IntN(5) == 0, Origin: origins()}
				if r.IntN(4) == 0 {
					route.Filters = []policy.Filter{policy.RewritePath{}}
				}
				h.Routes = append(h.Routes, route)
			}
		}
		hosts = append(hosts, h)
	}
	for i := range r.IntN(4) {
		held = append(held, routing.Held{Name: fmt.Sprintf("held%d.example", i), Closed: r.IntN(2) == 0, Origin: origins()})
	}
	return hosts, held
}

// The host maps equal what their templates write: every byte, the origin of every line, and every refusal.
func TestMapsOfHostsAreThoseOfTheirTemplates(t *testing.T) {
	t.Parallel()
	written, executed := set(t, nil), executed(t)
	lines, refusals := 0, 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		in := render.Input{Config: config.Default()}
		in.Model.Hosts, in.Model.Held = someHosts(r, seed%5 == 0)
		want, wanted := executed.Render(in)
		got, faults := written.Render(in)
		if !reflect.DeepEqual(len(faults), len(wanted)) || len(faults) > 0 && faults[0].Message != wanted[0].Message {
			t.Fatalf("seed %d: %v, not %v", seed, faults, wanted)
		}
		if len(faults) > 0 {
			refusals++
		}
		for _, f := range want.Files {
			if !slices.Contains(mapsOfHosts, f.Path) {
				continue
			}
			i := slices.IndexFunc(got.Files, func(g snapshots.File) bool { return g.Path == f.Path })
			if i < 0 || string(got.Files[i].Content) != string(f.Content) {
				t.Fatalf("seed %d: %s (-executed +written):\n%s", seed, f.Path, gocmp.Diff(string(f.Content), string(got.Files[i].Content)))
			}
			if !reflect.DeepEqual(got.Origins[f.Path], want.Origins[f.Path]) {
				t.Fatalf("seed %d: origins of %s:\n%s\n(-executed +written):\n%s", seed, f.Path, f.Content, gocmp.Diff(want.Origins[f.Path], got.Origins[f.Path]))
			}
			lines += strings.Count(string(f.Content), "\n")
		}
	}
	if lines < 5000 || refusals < 10 {
		t.Errorf("%d lines, %d refusals: the test tests little", lines, refusals)
	}
}
