package leak

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/hapsnap/hapsnap/snapshots"
)

// Public says which values of Secrets are not secret.
type Public struct {
	// Secrets are those whose values the administrator declared public.
	Secrets []snapshots.SecretName
	// Knows returns what is known of a value. It is called only for values that were found; nil knows
	// nothing.
	Knows func(value []byte) Knowledge
}

// Knowledge is what is known of a value without the Secret that holds it.
type Knowledge int

// What is known of a value.
const (
	// Unknown values are secret.
	Unknown Knowledge = iota
	// Written values stand in the templates or the configuration of an administrator. Storing the same
	// value in a Secret must not block the administrator's text.
	Written
	// Harmless values are public knowledge, and give no findings.
	Harmless
)

// Index knows what is secret of Secrets.
//
// What looks random counts anywhere: at least 8 bytes without blanks, within whose
// words the kind of character (small letter, capital letter, digit, sign) changes
// three times or more. So do the words of a longer value that look random and have
// at least 12 bytes, such as the hash in a password list. Any other value of one
// line counts from 12 bytes on, of which six must be different and one a letter; but
// only as a whole word and where something of the same namespace is written, since
// others may use the same words. Shorter values, addresses, certificates, what is
// below the keys tls.crt and ca.crt, and what is public do not count.
//
// An Index is not for several goroutines.
type Index struct {
	index  index
	public Public
	known  map[*needle]Knowledge // of what was found
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
// It is not for several goroutines.
type Memo struct {
	secrets []*corev1.Secret
	needles map[*corev1.Secret][]needle
	index   index
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
		m.secrets, m.needles, m.index = slices.Clone(secrets), known, newIndex(all)
	}
	return &Index{index: m.index, public: p, known: map[*needle]Knowledge{}}
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
