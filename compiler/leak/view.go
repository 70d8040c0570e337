package leak

import (
	"bytes"
	"sort"
)

// view is a text as it is, or what parts of one are when they are decoded.
type view struct {
	text []byte
	// pieces are the decoded parts; none is the text as it is.
	pieces []piece
}

// piece is a decoded part of a text.
type piece struct {
	start  int // in the view
	origin int // of the part, in the text
}

// betweenPieces keeps what is no neighbour in the text from being one in a view.
const betweenPieces = "\n\x00\n"

// put adds a part that was decoded.
func (v *view) put(origin int, decoded []byte) {
	v.begin(origin)
	v.text = append(v.text, decoded...)
}

// begin begins a part, which the caller appends to the text of the view.
func (v *view) begin(origin int) {
	v.text = append(v.text, betweenPieces...)
	v.pieces = append(v.pieces, piece{start: len(v.text), origin: origin})
}

// drop forgets the part that was begun last.
func (v *view) drop() {
	last := len(v.pieces) - 1
	v.text, v.pieces = v.text[:v.pieces[last].start-len(betweenPieces)], v.pieces[:last]
}

// origin returns the place in the text that a place of the view comes from.
func (v view) origin(at int) int {
	if v.pieces == nil {
		return at
	}
	i := sort.Search(len(v.pieces), func(i int) bool { return v.pieces[i].start > at })
	return v.pieces[max(0, i-1)].origin
}

// starts returns where what is no text may begin.
func (v view) starts() []int {
	if v.pieces == nil {
		return []int{0}
	}
	out := make([]int, len(v.pieces))
	for i, p := range v.pieces {
		out[i] = p.start
	}
	return out
}

// within returns the view of a view with the places of the text below it.
func (v view) within(outer view) view {
	for i, p := range v.pieces {
		v.pieces[i].origin = outer.origin(p.origin)
	}
	return v
}

// decoded returns what the parts of a text are when they are decoded.
func decoded(text []byte) view {
	var v view
	inflate(&v, text)
	at := 0
	for line := range bytes.Lines(text) {
		if bytes.IndexByte(line, '\\') >= 0 && isText(line) {
			v.put(at, unescaped(line))
		}
		if bytes.Contains(line, []byte("%%")) && isText(line) { // as in formats of HAProxy
			v.put(at, bytes.ReplaceAll(line, []byte("%%"), []byte("%")))
		}
		if bytes.IndexByte(line, '%') >= 0 && isText(line) {
			v.put(at, unquoted(line))
			if bytes.IndexByte(line, '+') >= 0 { // as in forms
				v.put(at, unquoted(bytes.ReplaceAll(line, []byte("+"), []byte(" "))))
			}
		}
		at += len(line)
	}
	eachRun(text, &base64Alphabet, leastBase64, func(at int, run []byte) { putBase64(&v, at, run) })
	eachRun(text, &hexAlphabet, leastHex, func(at int, run []byte) { putHex(&v, at, run) })
	joinLines(text, func(at int, joined []byte) { putBase64(&v, at, joined) })
	return v
}

// isText reports whether a line has no control characters.
func isText(line []byte) bool {
	return bytes.IndexFunc(line, func(r rune) bool { return r < ' ' && r != '\t' && r != '\r' && r != '\n' }) < 0
}

// eachRun calls yield with the runs of characters of an alphabet.
func eachRun(text []byte, alphabet *[256]byte, least int, yield func(at int, run []byte)) {
	for i := 0; i < len(text); {
		if alphabet[text[i]] == none {
			i++
			continue
		}
		start := i
		for i < len(text) && alphabet[text[i]] != none {
			i++
		}
		if i-start >= least {
			yield(start, text[start:i])
		}
	}
}
