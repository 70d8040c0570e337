package dataplane

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"slices"
	"sync"
	"weak"
)

// Text is a haproxy.cfg that was read. Its bytes must not be changed: the same text of another instance may have the
// same memory, see [Texts].
type Text struct {
	// Head holds the comments at the beginning, which are the lines that begin with #. The API and the pusher write
	// there what differs between instances that have the same otherwise.
	Head []byte
	// Body is everything else.
	Body []byte

	of *body // keeps the memory for texts that are read later
}

// Split returns a text of its own.
func Split(config []byte) Text {
	at, _ := headEnd(config, 0, 0)
	if at < len(config) && config[at] == '#' { // a comment without a newline
		at = len(config)
	}
	return Text{Head: config[:at:at], Body: config[at:len(config):len(config)]}
}

// Len returns how many bytes the text has.
func (t Text) Len() int { return len(t.Head) + len(t.Body) }

// Bytes returns the whole text, as a copy.
func (t Text) Bytes() []byte { return slices.Concat(t.Head, t.Body) }

// String returns the whole text, as a copy.
func (t Text) String() string { return string(t.Bytes()) }

// Checksum is [Checksum] of the text.
func (t Text) Checksum() string {
	head, body := t.Head, t.Body
	if len(head) > 0 {
		_, head, _ = bytes.Cut(head, []byte("\n"))
	} else {
		_, body, _ = bytes.Cut(body, []byte("\n"))
	}
	sum := md5.New()
	sum.Write(head)
	sum.Write(body)
	return hex.EncodeToString(sum.Sum(nil))
}

// Texts has instances share the memory of equal texts. Many instances of a fleet have the same haproxy.cfg of some
// megabytes, except for its head, and often all of them send it at the same time. Each byte that comes is compared with
// the texts that came before, so no instance is believed to have what another one has. The memory of a text is free
// again when nobody uses the text.
type Texts struct {
	mu   sync.Mutex
	list []weak.Pointer[body] // the newest first
}

// mostTexts is how many texts are compared with one that is being read. A fleet has a few: one for each layout, before
// and after a change.
const mostTexts = 16

// body is a text without its head. It grows while instances send it: whoever is ahead of the others adds to it. Bytes
// that were added stay.
type body struct{ data []byte }

// live returns the texts that somebody uses.
func (t *Texts) live() []*body {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []*body
	t.list = slices.DeleteFunc(t.list, func(p weak.Pointer[body]) bool {
		b := p.Value()
		if b != nil {
			out = append(out, b)
		}
		return b == nil
	})
	return out
}

// follow takes the next bytes of a text. Those before, of which there are as many as at says, equal the beginning of
// each text of like. It returns the texts that equal these bytes too, which is at least one. If there was none, that is
// a new text, for which there is room for as many bytes as expected.
func (t *Texts) follow(like []*body, at int, chunk []byte, expected int) []*body {
	t.mu.Lock()
	defer t.mu.Unlock()
	var whole, shorter []*body
	for _, b := range like {
		has := min(len(b.data)-at, len(chunk))
		switch {
		case !bytes.Equal(b.data[at:at+has], chunk[:has]):
		case has == len(chunk):
			whole = append(whole, b)
		default:
			shorter = append(shorter, b)
		}
	}
	if len(whole) > 0 {
		return whole
	}
	if len(shorter) > 0 { // this instance is ahead
		b := slices.MaxFunc(shorter, func(a, b *body) int { return len(a.data) - len(b.data) })
		b.data = append(b.data, chunk[len(b.data)-at:]...)
		return []*body{b}
	}
	b := &body{data: make([]byte, 0, max(expected, at+len(chunk)))}
	if at > 0 {
		b.data = append(b.data, like[0].data[:at]...)
	}
	b.data = append(b.data, chunk...)
	t.list = slices.Insert(t.list, 0, weak.Make(b))
	t.list = t.list[:min(len(t.list), mostTexts)]
	return []*body{b}
}

// textReader takes a text as it comes.
type textReader struct {
	texts    *Texts
	expected int // about how many bytes will come, 0 if that is not known

	head   []byte // as far as it came
	line   int    // where the last line of head begins
	inBody bool
	length int     // of the body, as far as it came
	like   []*body // those that equal it so far
}

// Write implements [io.Writer].
func (r *textReader) Write(chunk []byte) (int, error) {
	rest := chunk
	if !r.inBody {
		seen := len(r.head)
		r.head = append(r.head, chunk...)
		if r.line, r.inBody = headEnd(r.head, r.line, seen); !r.inBody {
			return len(chunk), nil
		}
		rest = r.head[r.line:]
		r.head, r.like = bytes.Clone(r.head[:r.line]), r.texts.live()
	}
	r.like = r.texts.follow(r.like, r.length, rest, r.expected)
	r.length += len(rest)
	return len(chunk), nil
}

// text returns what came.
func (r *textReader) text() Text {
	if !r.inBody {
		return Text{Head: r.head}
	}
	r.texts.mu.Lock()
	defer r.texts.mu.Unlock()
	b := r.like[0]
	return Text{Head: r.head, Body: b.data[:r.length:r.length], of: b}
}

// headEnd looks for the first line that does not begin with #, beginning at a line that does not end before seen. It
// returns where the last line begins that it saw, and whether that is the one.
func headEnd(data []byte, line, seen int) (at int, ended bool) {
	for line < len(data) && data[line] == '#' {
		seen = max(line, seen)
		n := bytes.IndexByte(data[seen:], '\n')
		if n < 0 {
			return line, false
		}
		line = seen + n + 1
	}
	return line, line < len(data)
}
