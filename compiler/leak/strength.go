package leak

import (
	"net/netip"
	"strings"
)

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
