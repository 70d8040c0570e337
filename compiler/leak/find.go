// Package leak finds private material in what is about to be published: private keys, of any origin,
// and values of Secrets that the compiler read. Its findings name the place, and never quote the
// material.
//
// It searches a text as it is, and as readers would decode it: without backslashes and percent signs,
// out of base64 (also in several lines), hexadecimal and gzip, and each of these inside the others,
// three deep.
//
// Not everything in a Secret is secret, and not every word in a Secret can be searched for everywhere:
// somebody could put the words of others into a Secret, and so keep these from being published. See
// [Index] for what counts. Callers decide what a finding leads to.
package leak

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math/bits"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// depth is how often decoded text is decoded again.
const depth = 3

// Finding is private material at a place.
type Finding struct {
	At int // the place in the text; for a decoded value, where the encoded text begins
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

// FindInFile is Find for a file of an artifact, which must not change any more. A file with the same content as in this
// compile or the last one, in which no value of these Secrets was, is not searched again.
func (x *Index) FindInFile(path string, text []byte) []Finding {
	if x == nil {
		return x.Find(text)
	}
	for _, clean := range []map[string][]byte{x.clean, x.before} {
		if known, ok := clean[path]; ok && bytes.Equal(known, text) {
			x.clean[path] = text
			return nil
		}
	}
	x.met, x.searched = false, x.searched+1
	found := x.Find(text)
	if len(found) == 0 && !x.met {
		x.clean[path] = text
	}
	return found
}

// values returns the values of Secrets in a view.
func (x *Index) values(v view) []Finding {
	if x == nil {
		return nil
	}
	var out []Finding
	x.index.each(v.text, func(at int, n *needle) {
		x.met = true
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

// Public says which values of Secrets are not secret.
type Public struct {
	// Secrets are those whose values the administrator declared public.
	Secrets []snapshots.SecretName
	// Knows returns what is known about a value. It is called only for values that were found; nil knows nothing.
	Knows func(value []byte) Knowledge
}

// Knowledge is what is known about a value without the Secret that holds it.
type Knowledge int

// What may be known about a value.
const (
	// Unknown values are secret.
	Unknown Knowledge = iota
	// Written values stand in the templates or the configuration of an administrator. Storing the same
	// value in a Secret must not block the administrator's text.
	Written
	// Harmless values are public knowledge, and give no findings.
	Harmless
)

// Index knows which values of Secrets are secret.
//
//   - A value that looks random counts anywhere: it has at least 8 bytes without blanks, and the kind of character (small
//     letter, capital letter, digit, sign) changes at least three times within its words.
//   - The words of a longer value count anywhere if they look random and have at least 12 bytes, such as the hash in a
//     password list.
//   - Any other value of one line counts if it has at least 12 bytes, six of them different and one a letter. It counts
//     only as a whole word, and only in text of the same namespace, since others may use the same words.
//   - Shorter values, addresses, certificates, values of the keys tls.crt and ca.crt, and public values do not count.
//
// An Index is not for concurrent use.
type Index struct {
	index  index
	public Public
	known  map[*needle]Knowledge // of what was found

	// clean and before are the files, by path, in which no needle is, of this compile and of the last one. What is known of a
	// needle depends on more than its Secret, so that a file with a harmless one is not among them.
	clean, before map[string][]byte
	met           bool // a needle, in the text that is searched
	searched      int  // how many files were searched
}

func (x *Index) knows(n *needle) Knowledge {
	if k, ok := x.known[n]; ok {
		return k
	}
	k := Unknown
	switch {
	case slices.Contains(x.public.Secrets, n.key.Secret):
		k = Harmless
	case x.public.Knows != nil:
		k = x.public.Knows(n.value)
	}
	x.known[n] = k
	return k
}

// Memo makes Indexes, and remembers what it read of Secrets. Nil remembers nothing.
// It is not for concurrent use.
type Memo struct {
	secrets []*corev1.Secret
	needles map[*corev1.Secret][]needle
	index   index
	clean   map[string][]byte // of the last Index
}

// Index returns an Index of Secrets, sorted by namespace and name. A Secret must not
// change once it was given.
func (m *Memo) Index(secrets []*corev1.Secret, p Public) *Index {
	if m == nil {
		m = &Memo{}
	}
	if m.needles == nil || !slices.Equal(m.secrets, secrets) {
		known := make(map[*corev1.Secret][]needle, len(secrets))
		var all []needle
		for _, s := range secrets {
			needles, ok := m.needles[s]
			if !ok {
				needles = needlesOf(s)
			}
			known[s] = needles
			all = append(all, needles...)
		}
		m.secrets, m.needles, m.index, m.clean = slices.Clone(secrets), known, newIndex(all), nil
	}
	x := &Index{index: m.index, public: p, known: map[*needle]Knowledge{}, clean: map[string][]byte{}, before: m.clean}
	m.clean = x.clean
	return x
}

// The least that a value needs to be looked for.
const (
	// leastRandom is for what looks random, and is also what the search begins with.
	leastRandom = 8
	// leastPart is for a part of a value that looks random.
	leastPart = 12
	// leastPlain is for what could be words, leastLetters how many different
	// characters of it there must be.
	leastPlain, leastLetters = 12, 6
	// leastChanges is how often the kind of characters changes within the words of
	// what looks random.
	leastChanges = 3
)

// kind is the kind of a character.
type kind byte

const (
	apart kind = iota // it is between words
	lower
	upper
	digit
	sign
)

// kinds are those of all characters. Letters of other scripts have no case here.
var kinds = func() (out [256]kind) {
	for c := range out {
		switch {
		case c >= 'a' && c <= 'z', c >= 0x80:
			out[c] = lower
		case c >= 'A' && c <= 'Z':
			out[c] = upper
		case c >= '0' && c <= '9':
			out[c] = digit
		case strings.IndexByte("!@#$^*~`", byte(c)) >= 0:
			out[c] = sign
		}
	}
	return out
}()

func kindOf(c byte) kind { return kinds[c] }

// isRandom reports whether a value looks random, so that nobody writes the same by
// chance: the kind of characters changes often within its words. Names, paths and
// sentences have few changes: shop-v2 has one. A capital letter at the beginning of
// a word is none.
func isRandom(value []byte) bool {
	if len(value) < leastRandom {
		return false
	}
	changes := 0
	before, beforeThat := apart, apart
	for _, c := range value {
		k := kindOf(c)
		title := before == upper && beforeThat == apart && k == lower
		if k != before && k != apart && before != apart && !title {
			if changes++; changes == leastChanges {
				return !isAddress(value)
			}
		}
		before, beforeThat = k, before
	}
	return false
}

// isPlain reports whether a value may be a secret though it looks like words.
func isPlain(value []byte) bool {
	if len(value) < leastPlain || isAddress(value) {
		return false
	}
	var seen [256]bool
	distinct, letters := 0, false
	for _, c := range value {
		if !seen[c] {
			seen[c] = true
			distinct++
		}
		k := kindOf(c)
		letters = letters || k == lower || k == upper
	}
	return distinct >= leastLetters && letters
}

// isAddress reports whether a value is an IP address or a network.
func isAddress(value []byte) bool {
	if len(value) > len("ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255/128") {
		return false
	}
	_, notAddress := netip.ParseAddr(string(value))
	_, notNetwork := netip.ParsePrefix(string(value))
	return notAddress == nil || notNetwork == nil
}
