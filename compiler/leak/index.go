package leak

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// index finds needles in a text. It looks up the first eight bytes of each place,
// first in a filter that is small enough for a processor's cache.
type index struct {
	needles []needle
	first   map[uint64]int32 // by the first eight bytes
	next    []int32          // needle with the same ones, or -1
	filter  []uint64
	shift   int
}

// newIndex returns an index of needles, none of which is shorter than
// [leastRandom].
func newIndex(needles []needle) index {
	size := max(16, bits.Len(uint(len(needles)*16)))
	x := index{
		needles: needles, first: make(map[uint64]int32, len(needles)), next: make([]int32, len(needles)),
		filter: make([]uint64, 1<<size/64), shift: 64 - size,
	}
	for i, n := range needles {
		h := head(n.value)
		x.next[i] = -1
		if first, ok := x.first[h]; ok {
			x.next[i] = first
		}
		x.first[h] = int32(i)
		place := spread(h) >> x.shift
		x.filter[place/64] |= 1 << (place % 64)
	}
	return x
}

func head(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

// spread is Fibonacci hashing: the upper bits of the product depend on all others.
func spread(h uint64) uint64 { return h * 0x9e3779b97f4a7c15 }

// each calls yield with the needles in a text.
func (x index) each(text []byte, yield func(at int, n *needle)) {
	if len(x.needles) == 0 {
		return
	}
	for i := 0; i+leastRandom <= len(text); i++ {
		h := head(text[i:])
		place := spread(h) >> x.shift
		if x.filter[place/64]&(1<<(place%64)) == 0 {
			continue
		}
		k, ok := x.first[h]
		for ; ok && k >= 0; k = x.next[k] {
			n := &x.needles[k]
			if bytes.HasPrefix(text[i:], n.value) && (!n.plain || isWhole(text, i, len(n.value))) {
				yield(i, n)
			}
		}
	}
}

// isWhole reports whether a part of a text is no part of a longer word.
func isWhole(text []byte, at, length int) bool {
	end := at + length
	return (at == 0 || !inWord(text[at-1])) && (end == len(text) || !inWord(text[end]))
}

func inWord(c byte) bool {
	return c == '_' || c == '-' || c == '.' || c >= 0x80 || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
}
