package configmapstore

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/storetest"
)

// text returns so many lines, none like another.
func text(lines int) string {
	var b strings.Builder
	for n := range lines {
		fmt.Fprintf(&b, "app-%06d.example  team-%d_app-%06d_http\n", n, n/100, n*7919%100_000)
	}
	return b.String()
}

// What was compressed is what comes out, whatever the blocks, and nothing but the data decides how it is compressed.
func TestCompressed(t *testing.T) {
	t.Parallel()
	for name, data := range map[string]string{
		"nothing": "", "a letter": "x", "many lines": text(40_000), "equal lines": strings.Repeat("    mode http\n", 100_000),
		"no line": strings.Repeat("x", 3*mostBlock+1), "a line that is long": text(3000) + strings.Repeat("y", mostBlock) + "\n" + text(3000),
	} {
		var c compressor
		packed, err := c.compress([]byte(data))
		if err != nil {
			t.Fatal(err)
		}
		z, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got, err := io.ReadAll(z); err != nil || string(got) != data {
			t.Errorf("%s: %d bytes came out of %d (%v)", name, len(got), len(data), err)
		}
		c.forget()
		if again, err := c.compress([]byte(data)); err != nil || !bytes.Equal(again, packed) {
			t.Errorf("%s is compressed otherwise once it is known (%v)", name, err)
		}
		if fresh, err := new(compressor).compress([]byte(data)); err != nil || !bytes.Equal(fresh, packed) {
			t.Errorf("%s is compressed otherwise by another compressor (%v)", name, err)
		}
	}
}

// Of a snapshot in which lines were inserted, only the blocks around them are compressed. What an earlier one had alone is
// forgotten.
func TestBlocksAreCompressedOnce(t *testing.T) {
	t.Parallel()
	lines := strings.SplitAfter(text(40_000), "\n")
	of := func(revision uint64, insert ...int) snapshots.Snapshot {
		all := append([]string{}, lines...)
		for _, at := range insert {
			all[at] += fmt.Sprintf("new-%d.example  team-1_new_http\n", at)
		}
		return storetest.Draft("web", "maps/host.map", strings.Join(all, ""), "maps/other.map", text(20_000)).Number(revision, snapshots.ID{})
	}
	var c compressor
	for revision, insert := range [][]int{nil, {20_000}, {20_000, 100, 39_000}, {5000}} {
		before := c.known
		if _, err := c.pack(of(uint64(revision+1), insert...)); err != nil {
			t.Fatal(err)
		}
		fresh := 0
		for digest, member := range c.known {
			if old, known := before[digest]; !known || &old[0] != &member[0] {
				fresh++
			}
		}
		if most := 2 * (len(insert) + 2); revision > 0 && fresh > most { // what changes, what was taken back, and the headers of tar
			t.Errorf("revision %d: %d blocks were compressed, want %d at most", revision+1, fresh, most)
		}
		if len(c.known) < 20 || len(c.known) > 60 {
			t.Errorf("revision %d: %d blocks are known", revision+1, len(c.known))
		}
	}
}

// Blocks take more than the whole. What fits into ConfigMaps only as a whole is packed nevertheless.
func TestWhatFitsAsAWhole(t *testing.T) {
	t.Parallel()
	random := rand.NewChaCha8([32]byte{})
	part := make([]byte, 30<<10)
	d := storetest.Draft("web")
	d.Files = nil
	for n := range 2 {
		var content []byte
		for range 450 { // each part is there twice, and nothing else is alike
			_, _ = random.Read(part)
			content = append(append(content, part...), part...)
		}
		d.Files = append(d.Files, snapshots.File{Path: fmt.Sprintf("files/%d.bin", n), Content: content})
	}
	var c compressor
	blocks := 0
	for _, f := range d.Files {
		packed, err := c.compress(f.Content)
		if err != nil {
			t.Fatal(err)
		}
		blocks += len(packed)
	}
	if blocks <= maxPieces*maxPiece {
		t.Fatalf("the blocks take %d bytes, which is not too large", blocks)
	}
	s := d.Number(1, snapshots.ID{})
	p, err := c.pack(s)
	if err != nil {
		t.Fatal(err)
	}
	files, err := unpackFiles(s.Manifest, p.pieces)
	if err != nil || !reflect.DeepEqual(files, s.Files) {
		t.Errorf("what comes out differs: %v", err)
	}
}

// An endless line is not read to its end for each block.
func TestEndlessLine(t *testing.T) {
	t.Parallel()
	began := time.Now()
	blocks := blocksOf(make([]byte, snapshots.MaxSnapshot))
	if took := time.Since(began); len(blocks) != snapshots.MaxSnapshot/mostBlock || took > 2*time.Second {
		t.Errorf("%d blocks take %s", len(blocks), took)
	}
}
