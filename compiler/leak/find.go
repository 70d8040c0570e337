package leak

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// depth is how often decoded text is decoded again.
const depth = 3

// Finding is private material at a place.
type Finding struct {
	At int // of the text; where its decoding begins, for what is found decoded
	// What says what it is: "a private key", or "the value of Secret shop/db (key
	// password)".
	What string
	// Secret names the value, and is zero for a key.
	Secret bind.SecretKey
	// Plain says that the value may be ordinary words. It counts only where something of the namespace
	// of the Secret is written.
	Plain bool
	// Written says that the templates or the configuration hold the value, too.
	Written bool
	// Length is the length of the value in the text, or 0 if the text holds it only encoded.
	Length int
}

// Find returns the private material in a text, in the order of its places: the first
// private key, and the first place on each line of each value. A nil Index knows of
// no Secrets.
func (x *Index) Find(text []byte) []Finding {
	var out []Finding
	forms := keyForms()
	v, haveKey := view{text: text}, false
	var d decoder
	for i := range 1 + depth {
		if at, what := findKey(v, forms); at >= 0 && !haveKey {
			out, haveKey = append(out, Finding{At: v.origin(at), What: what}), true
		}
		out = append(out, x.values(v)...)
		if i == depth {
			break
		}
		next, tooMuch := d.decoded(v.text)
		if tooMuch >= 0 {
			out = append(out, Finding{At: v.origin(tooMuch), What: tooPacked})
		}
		if v = next.within(v); len(v.text) == 0 {
			break
		}
	}
	return x.once(text, out)
}

// values returns the values of Secrets in a view.
func (x *Index) values(v view) []Finding {
	if x == nil {
		return nil
	}
	var out []Finding
	x.index.each(v.text, func(at int, n *needle) {
		known := x.knows(n)
		if known == Harmless {
			return
		}
		f := Finding{
			At: v.origin(at), Secret: *n.key, Plain: n.plain, Written: known == Written,
			What: "the value of Secret " + n.key.Secret.String() + " (key " + n.key.Key + ")",
		}
		if v.pieces == nil {
			f.Length = len(n.value)
		}
		out = append(out, f)
	})
	return out
}

// once sorts findings and keeps one of each value for a line.
func (x *Index) once(text []byte, found []Finding) []Finding {
	slices.SortStableFunc(found, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(b.Length, a.Length), cmp.Compare(a.What, b.What))
	})
	type place struct {
		line int
		what string
	}
	seen := map[place]bool{}
	number, counted := 1, 0
	var out []Finding
	for _, f := range found {
		for ; counted < f.At; counted++ {
			if text[counted] == '\n' {
				number++
			}
		}
		if p := (place{number, f.What}); !seen[p] {
			seen[p] = true
			out = append(out, f)
		}
	}
	return out
}

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

// isWhole reports whether a part of a text is a whole word.
func isWhole(text []byte, at, length int) bool {
	end := at + length
	return (at == 0 || !inWord(text[at-1])) && (end == len(text) || !inWord(text[end]))
}

func inWord(c byte) bool {
	return c == '_' || c == '-' || c == '.' || c >= 0x80 || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
}

// hidden replaces private material.
const hidden = "(hidden)"

// Redact returns a message without private material. Values that may be ordinary words are removed only
// from messages about objects of the namespace of their Secret. A message that holds private material
// in another form is hidden as a whole.
func (x *Index) Redact(message, namespace string) string {
	counts := func(f Finding) bool { return !f.Plain || f.Secret.Secret.Namespace == namespace }
	clean := message
	for _, f := range x.values(view{text: []byte(message)}) {
		if counts(f) {
			clean = strings.ReplaceAll(clean, message[f.At:f.At+f.Length], hidden)
		}
	}
	for _, f := range x.Find([]byte(clean)) {
		if counts(f) {
			return hidden + ": it holds " + f.What
		}
	}
	return clean
}
