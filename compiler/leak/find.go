package leak

import (
	"cmp"
	"slices"

	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// depth is how often what was decoded is decoded once more.
const depth = 3

// Finding is private material at a place.
type Finding struct {
	At int // of the text; where its decoding begins, for what is found decoded
	// What says what it is: "a private key", or "the value of Secret shop/db (key
	// password)".
	What string
	// Secret names the value, and is zero for a key.
	Secret bind.SecretKey
	// Plain says that the value may be words. It counts only where something of the
	// namespace of the Secret is written.
	Plain bool
	// Written says that the templates or the configuration have the value, too.
	Written bool
	// Length is that of the value in the text, or 0 if it is not there as it is.
	Length int
}

// Find returns the private material in a text, in the order of its places: the first
// private key, and the first place on each line of each value. A nil Index knows of
// no Secrets.
func (x *Index) Find(text []byte) []Finding {
	var out []Finding
	forms := keyForms()
	v, haveKey := view{text: text}, false
	for range 1 + depth {
		if at, what := findKey(v, forms); at >= 0 && !haveKey {
			out, haveKey = append(out, Finding{At: v.origin(at), What: what}), true
		}
		out = append(out, x.values(v)...)
		if v = decoded(v.text).within(v); len(v.text) == 0 {
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
