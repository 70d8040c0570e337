package leak

import (
	"bytes"
	"compress/gzip"
	"io"
	"sort"
	"strconv"
	"unicode/utf8"
)

const (
	// leastBase64 and leastHex are the lengths of the shortest value in these forms.
	leastBase64 = (leastRandom*8 + 5) / 6
	leastHex    = 2 * leastRandom
	// leastWrapped is the least length of a line of base64 that goes on in the next line.
	leastWrapped = 16
	// mostInflated bounds how much of a text is unpacked from gzip, at all depths together, and mostPacked in how
	// many places: a short text may unpack to as much as one likes. A private key is some kilobytes.
	mostInflated = 1 << 20
	mostPacked   = 1000
)

// tooPacked is the finding on a text that unpacks to more.
const tooPacked = "compressed data of over 1 MiB, in which anything could be"

// none marks what is not in an alphabet.
const none = 0xff

// The values of characters in base64, of either alphabet (RFC 4648, sections 4 and
// 5), and in hexadecimal.
var (
	base64Alphabet = alphabetOf("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", "-_", 62)
	hexAlphabet    = alphabetOf("0123456789abcdef", "ABCDEF", 10)
)

// alphabetOf returns the values of characters. Further characters may stand for the first values.
func alphabetOf(characters, more string, from byte) [256]byte {
	var out [256]byte
	for i := range out {
		out[i] = none
	}
	for i := range len(characters) {
		out[characters[i]] = byte(i)
	}
	for i := range len(more) {
		out[more[i]] = from + byte(i)
	}
	return out
}

// putBase64 decodes a run. A run may begin with other text, so that it is decoded from each of the four
// places in a group. Most runs are words; decodings in which nothing could be found are dropped.
func putBase64(v *view, at int, run []byte) {
	mixed := isMixed(run)
	for skip := range min(4, len(run)) {
		v.begin(at)
		longest, length := 0, 0
		bits, n := uint32(0), 0
		for _, c := range run[skip:] {
			bits, n = bits<<6|uint32(base64Alphabet[c]), n+6
			if n < 8 {
				continue
			}
			n -= 8
			b := byte(bits >> n)
			v.text = append(v.text, b)
			if b >= ' ' && b < 0x7f {
				length++
				longest = max(longest, length)
			} else {
				length = 0
			}
		}
		if !mixed && longest < leastRandom {
			v.drop()
		}
	}
}

// isMixed reports whether a run has small and capital letters and digits, as base64 of other data than
// ASCII has if it is not very short.
func isMixed(run []byte) bool {
	var seen [sign + 1]bool
	for _, c := range run {
		seen[kindOf(c)] = true
	}
	return seen[lower] && seen[upper] && seen[digit]
}

// joinLines calls yield with base64 that goes over several lines: the last words of
// lines that follow one another.
func joinLines(text []byte, yield func(at int, joined []byte)) {
	var joined []byte
	lines, start, at := 0, 0, 0
	flush := func() {
		if lines > 1 {
			yield(start, joined)
		}
		joined, lines = joined[:0], 0
	}
	for line := range bytes.Lines(text) {
		word := wrapped(line)
		if word != nil && lines == 0 {
			start = at
		}
		at += len(line)
		if word == nil {
			flush()
			continue
		}
		joined, lines = append(joined, word...), lines+1
	}
	flush()
}

// wrapped returns the last word of a line if it can be a line of base64.
func wrapped(line []byte) []byte {
	line = bytes.TrimRight(line, " \t\r\n\\\"',=")
	i := len(line)
	for i > 0 && base64Alphabet[line[i-1]] != none {
		i--
	}
	if len(line)-i < leastWrapped && (len(line)-i < 2 || len(bytes.TrimSpace(line[:i])) > 0) { // the last one may be short
		return nil
	}
	return line[i:]
}

// decoder decodes a text, and what came of that again. It bounds what becomes of the whole.
type decoder struct {
	inflated, packed int
	reader           gzip.Reader
	content          bytes.Buffer
}

// inflate unpacks gzip (RFC 1952) wherever it begins in a text. It returns the place where it gave up, or -1.
func (d *decoder) inflate(v *view, text []byte) int {
	magic := []byte("\x1f\x8b\x08")
	for from := 0; ; from++ {
		at := bytes.Index(text[from:], magic)
		if at < 0 {
			return -1
		}
		from += at
		if d.packed++; d.packed > mostPacked {
			return from
		}
		if d.reader.Reset(bytes.NewReader(text[from:])) != nil {
			continue
		}
		d.content.Reset()
		_, _ = io.CopyN(&d.content, &d.reader, int64(mostInflated-d.inflated)+1) // what can be read is read
		if d.inflated += d.content.Len(); d.inflated > mostInflated {
			return from
		}
		v.put(from, d.content.Bytes())
	}
}

// unescaped takes the backslashes out of a line, as JSON, YAML, Lua and HAProxy do.
func unescaped(line []byte) []byte {
	out := make([]byte, 0, len(line))
	for i := 0; i < len(line); i++ {
		if line[i] != '\\' || i+1 == len(line) {
			out = append(out, line[i])
			continue
		}
		i++
		switch c := line[i]; c {
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'x', 'u':
			digits := map[byte]int{'x': 2, 'u': 4}[c]
			code, ok := hexNumber(line[i+1:], digits)
			switch {
			case !ok:
				out = append(out, c)
			case c == 'x':
				out, i = append(out, byte(code)), i+digits
			default:
				out, i = utf8.AppendRune(out, rune(code)), i+digits
			}
		default:
			out = append(out, c)
		}
	}
	return out
}

// unquoted takes the percent signs out of a line, as of a URL (RFC 3986, section
// 2.1).
func unquoted(line []byte) []byte {
	out := make([]byte, 0, len(line))
	for i := 0; i < len(line); i++ {
		if line[i] == '%' {
			if code, ok := hexNumber(line[i+1:], 2); ok {
				out, i = append(out, byte(code)), i+2
				continue
			}
		}
		out = append(out, line[i])
	}
	return out
}

func hexNumber(text []byte, digits int) (int, bool) {
	if len(text) < digits {
		return 0, false
	}
	n, err := strconv.ParseUint(string(text[:digits]), 16, 32)
	return int(n), err == nil
}

// view is a text as it is, or the decoded parts of a text.
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

// betweenPieces separates parts in a view that are not neighbours in the text.
const betweenPieces = "\n\x00\n"

// put adds a part that was decoded.
func (v *view) put(origin int, decoded []byte) {
	v.begin(origin)
	v.text = append(v.text, decoded...)
}

// begin begins a part. The caller appends it to the text of the view.
func (v *view) begin(origin int) {
	v.text = append(v.text, betweenPieces...)
	v.pieces = append(v.pieces, piece{start: len(v.text), origin: origin})
}

// drop removes the part that was begun last.
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

// starts returns the places where binary data may begin.
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

// within returns the view of a view, with places of the text below it.
func (v view) within(outer view) view {
	for i, p := range v.pieces {
		v.pieces[i].origin = outer.origin(p.origin)
	}
	return v
}

// decoded returns the decoded parts of a text, and the place of what unpacks to too much, or -1.
func (d *decoder) decoded(text []byte) (v view, tooMuch int) {
	tooMuch = d.inflate(&v, text)
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
	eachRun(text, &hexAlphabet, leastHex, func(at int, run []byte) {
		for skip := range 2 {
			v.begin(at)
			for i := skip; i+1 < len(run); i += 2 {
				v.text = append(v.text, hexAlphabet[run[i]]<<4|hexAlphabet[run[i+1]])
			}
		}
	})
	joinLines(text, func(at int, joined []byte) { putBase64(&v, at, joined) })
	return v, tooMuch
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
