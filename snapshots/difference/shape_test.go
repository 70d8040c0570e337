package difference

import (
	"testing"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// bindSide binds a side as the pusher does, without endpoints.
func bindSide(t *testing.T, s Side) bind.Bound {
	t.Helper()
	numbered := snapshots.Draft{Files: s.Files, Certificates: s.Certificates}.Number(1, snapshots.ID{})
	slots, err := bind.Placeholder(numbered)
	if err != nil {
		t.Fatal(err)
	}
	bound, err := bind.Bind(numbered, bind.Inputs{Slots: slots, Layout: bind.Layout{Maps: "/m", Certificates: "/c", General: "/g"}})
	if err != nil {
		t.Fatal(err)
	}
	return bound
}

// The verdict agrees with the pusher, which reloads for another shape.
func TestVerdictsAreThoseOfBind(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]Side{
		"the same":                 sideOf(config),
		"a weight":                 sideOf(edited("weight=90", "weight=80")),
		"both weights":             sideOf(edited("90\n    #hapsnap servers shop/next:http weight=10", "0\n    #hapsnap servers shop/next:http weight=1")),
		"an option of servers":     sideOf(edited("weight=90", "weight=90 -- check")),
		"more slots":               sideOf(edited("weight=90", "weight=90 slots=9")),
		"a directive less":         sideOf(edited("    #hapsnap servers shop/next:http weight=10\n", "")),
		"a line":                   sideOf(edited("roundrobin", "leastconn")),
		"a comment":                sideOf(edited("    mode http\n", "    mode http\n    # a comment\n")),
		"directives change places": sideOf(edited("web:http weight=90", "web:http weight=10")),
		"a map that nobody reads":  sideOf(config, "maps/a.map", "x 1\n"),
		"another algorithm":        sideOf(edited("roundrobin", "source")),
	} {
		a := sideOf(config)
		d, err := Compare(a, b)
		if err != nil {
			t.Fatal(err)
		}
		x, y := bindSide(t, a), bindSide(t, b)
		if c := bind.Classify(x, y); (c.Verdict == Reload) != (d.Verdict == Reload) || (d.Verdict == Reload) != (x.Shape != y.Shape) {
			t.Errorf("%s: %s by %+v, and bound it takes %+v", name, d.Verdict, d.Decides, c)
		}
	}
}
