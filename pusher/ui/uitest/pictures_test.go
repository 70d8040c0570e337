package uitest

import (
	"bytes"
	"cmp"
	"flag"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hapsnap/hapsnap/internal/testing/browsertest"
)

var update = flag.Bool("update", false, "draw the pictures of the documentation")

// pictures are the pictures of the documentation, by the names of their files.
var pictures = []struct{ name, path string }{
	{"left-out", "/left-out"}, {"certificates", "/certificates"}, {"fleet", "/"}, {"history", "/history"}, {"instance", "/instances/edge-11"}, {"diff", "/diff?a=r12&b=r13"}, {"routes", "/routes?scheme=https&host=shop.example.com&path=/cart/items"},
}

const folder = "../../../docs/how-to/pictures"

// TestPictures checks that each tab has a picture in light and in dark. On demand it draws them.
func TestPictures(t *testing.T) {
	t.Parallel()
	if *update {
		draw(t)
	}
	for _, picture := range pictures {
		for _, scheme := range []string{"light", "dark"} {
			file := filepath.Join(folder, "page-"+picture.name+"-"+scheme+".png")
			data, err := os.ReadFile(file)
			if err != nil {
				t.Errorf("%v\n\thint: make pictures", err)
				continue
			}
			if c, err := png.DecodeConfig(bytes.NewReader(data)); err != nil || c.Width < 1000 || len(data) > 250_000 {
				t.Errorf("%s: %v, %d wide, %d bytes", file, err, c.Width, len(data))
			}
		}
	}
}

func draw(t *testing.T) {
	t.Helper()
	b := browsertest.Start(t)
	w := usual(t)
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // it is documentation
		t.Fatal(err)
	}
	for _, dark := range []bool{false, true} {
		p := b.Page(t, browsertest.Options{Dark: dark, Width: 1280, Height: 480})
		for _, picture := range pictures {
			p.Open(w.server.URL + picture.path)
			p.Wait("(document.querySelector('#now')?.textContent ?? '') !== ''")
			file := filepath.Join(folder, "page-"+picture.name+map[bool]string{true: "-dark.png", false: "-light.png"}[dark])
			p.Picture(file)
			shrink(t, file)
		}
	}
}

// shrink reduces the colours of a picture to a palette. Colours that look alike become one.
func shrink(t *testing.T, file string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	in, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	// The count of each colour, grouped by similarity: most colours are shades at the edges of letters.
	alike := map[color.RGBA]map[color.RGBA]int{}
	size := in.Bounds()
	at := func(x, y int) (exact, rough color.RGBA) {
		exact = color.RGBAModel.Convert(in.At(x, y)).(color.RGBA) //nolint:forcetypeassert // of the model
		return exact, color.RGBA{exact.R >> 3, exact.G >> 3, exact.B >> 3, 255}
	}
	for y := range size.Dy() {
		for x := range size.Dx() {
			exact, rough := at(x, y)
			if alike[rough] == nil {
				alike[rough] = map[color.RGBA]int{}
			}
			alike[rough][exact]++
		}
	}
	most := map[color.RGBA]color.RGBA{} // the most frequent colour of each group
	count := map[color.RGBA]int{}
	for rough, exact := range alike {
		for c, n := range exact {
			if n > exact[most[rough]] {
				most[rough] = c
			}
			count[rough] += n
		}
	}
	roughs := slices.SortedFunc(maps.Keys(count), func(a, b color.RGBA) int { return cmp.Compare(count[b], count[a]) })
	var palette color.Palette
	for _, rough := range roughs[:min(len(roughs), 256)] {
		palette = append(palette, most[rough])
	}
	out := image.NewPaletted(size, palette)
	index := map[color.RGBA]uint8{}
	for y := range size.Dy() {
		for x := range size.Dx() {
			_, rough := at(x, y)
			i, known := index[rough]
			if !known {
				i = uint8(palette.Index(most[rough]))
				index[rough] = i
			}
			out.SetColorIndex(x, y, i)
		}
	}
	var small bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, out); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, small.Bytes(), 0o644); err != nil { //nolint:gosec // it is documentation
		t.Fatal(err)
	}
}
