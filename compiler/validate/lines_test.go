package validate

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/internal/haproxycfg"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// All invalid directives are found at once, and nothing is changed.
func TestDirectiveFaults(t *testing.T) {
	t.Parallel()
	const text = "backend a\n    #hapsnap servers shop\n    #hapsnap servers shop/a\n    #hapsnap servers shop/a\nbackend b\n    #hapsnap serves shop/b"
	a := render.Artifact{Files: []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte(text)}}}
	var got []string
	for _, f := range directiveFaults(a) {
		got = append(got, fmt.Sprintf("%d: %s: %s", f.Line, f.Text, f.Message))
	}
	want := []string{
		`2: #hapsnap servers shop: #hapsnap: "shop" is not NAMESPACE/SERVICE[:PORT]`,
		"4: #hapsnap servers shop/a: #hapsnap: backend a has the servers of shop/a already",
		`6: #hapsnap serves shop/b: #hapsnap: unknown directive "serves shop/b"`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if string(a.Files[0].Content) != text {
		t.Error("the artifact was changed")
	}
}

// Backends that differ in the Service of a directive alone have the same text, with whatever blanks the binding takes.
func TestTextOfDirectives(t *testing.T) {
	t.Parallel()
	text := func(line string) string {
		return textOf(haproxycfg.Section{Lines: []haproxycfg.Line{{Text: []byte(line)}}}, "")
	}
	for char := rune(1); char < 256; char++ {
		before, between := string(char)+"#hapsnap"+string(char)+"servers", " slots=3 -- check  inter 2s"
		if _, ok := bind.DirectiveText([]byte(before)); ok && text(before+string(char)+"shop/servers"+between) != text(before+" shop/b"+between) {
			t.Errorf("with %q, the Service makes a difference", char)
		}
	}
	for _, other := range []string{"#hapsnap servers shop/a -- check inter 2s", "#hapsnap users shop/b -- check  inter 2s", "#hapsnap servers"} {
		if text("#hapsnap servers shop/a -- check  inter 2s") == text(other) {
			t.Errorf("%q makes no difference", other)
		}
	}
}
