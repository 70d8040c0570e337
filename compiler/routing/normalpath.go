package routing

import (
	"fmt"
	"regexp/syntax"
	"strings"
	"unicode/utf8"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/internal/urlpath"
)

// MaxPath is the longest path in bytes. A map's line, which also holds the host
// and the backend, and a request's first line have to fit HAProxy's buffer of
// 16 KiB.
const MaxPath = 8192

// charNames are the characters that no path may hold, as messages call them.
// Some of them end a key or a line of a map or start a comment there; none of
// them is sent in a path by a client that keeps to RFC 3986, section 3.3.
var charNames = map[rune]string{
	' ': "a space", '\t': "a tab", '\n': "a newline", '\r': "a carriage return", 0: "a NUL",
	'#': "a '#'", '?': "a '?'", '"': "a double quote", '\\': "a backslash",
}

// CheckUsable says why a path that the API takes cannot be matched with requests.
func CheckUsable(path string) (message, hint string) {
	if n := max(len(path), len(urlpath.Normal(path, false))); n > MaxPath {
		return fmt.Sprintf("has %d bytes", n), fmt.Sprintf("a path may have %d bytes, as requests carry it", MaxPath)
	}
	if !utf8.ValidString(path) {
		return "is not valid UTF-8", "percent-encode the bytes that are meant"
	}
	for _, r := range path {
		switch name := charNames[r]; {
		case r == '?':
			return "holds " + name, "the query is not part of the path"
		case name != "":
			return "holds " + name, encodedHint(r)
		case r < ' ' || r == 0x7f:
			return fmt.Sprintf("holds the control character U+%04X", r), encodedHint(r)
		}
	}
	return "", ""
}

// AsRequested returns a path as requests carry it (RFC 3986, section 2.1): what they cannot
// carry as it is stands percent-encoded.
func AsRequested(path string) string {
	var b strings.Builder
	for _, c := range []byte(path) {
		if c <= ' ' || c >= 0x7f || charNames[rune(c)] != "" {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// encodedHint says how a character stands in a path.
func encodedHint(r rune) string {
	var b strings.Builder
	for _, c := range []byte(string(r)) {
		fmt.Fprintf(&b, "%%%02X", c)
	}
	return "if requests have it percent-encoded, write " + b.String()
}

// PathForm is the form in which the paths of a host's requests are compared with those of
// its routes. What is passed on to servers is the path as it came.
type PathForm string

// The forms.
const (
	// NormalForm is that of [urlpath.Normal].
	NormalForm PathForm = "normal"
	// WithoutParameters is the normal form without what follows a ";" in a segment, as
	// servers of Java have it.
	WithoutParameters PathForm = "ignore"
	// AsSent compares byte for byte.
	AsSent PathForm = "as-sent"
)

// Of returns a path in the form.
func (f PathForm) Of(path string) string {
	if f == AsSent {
		return AsRequested(path)
	}
	return urlpath.Normal(path, f == WithoutParameters)
}

// Unmatchable returns what an expression contains that no path in the normal form does, or "". A part with it matches no
// request, so that its protection would not apply.
func Unmatchable(path string) string {
	tree, err := syntax.Parse(path, syntax.Perl)
	if err != nil {
		return "" // which is said elsewhere
	}
	return unmatchableIn(tree)
}

func unmatchableIn(e *syntax.Regexp) string {
	switch e.Op {
	case syntax.OpLiteral:
		return unmatchableText(string(e.Rune))
	case syntax.OpCharClass:
		for i := 0; i < len(e.Rune); i += 2 {
			for r := e.Rune[i]; r <= min(e.Rune[i+1], 0x7f); r++ {
				if inNormalPath(r) {
					return ""
				}
			}
		}
		return fmt.Sprintf("%q", e)
	case syntax.OpConcat:
		text := ""
		for _, sub := range e.Sub {
			if sub.Op == syntax.OpLiteral {
				text += string(sub.Rune) // one without regard to case is one of its own
				continue
			}
			if found := unmatchableText(text); found != "" {
				return found
			}
			text = ""
			if found := unmatchableIn(sub); found != "" {
				return found
			}
		}
		return unmatchableText(text)
	}
	for _, sub := range e.Sub {
		if found := unmatchableIn(sub); found != "" {
			return found
		}
	}
	return ""
}

// unmatchableText returns the part of a text that stands in no path of the normal form.
func unmatchableText(text string) string {
	for _, r := range text {
		if !inNormalPath(r) {
			return fmt.Sprintf("%q", r)
		}
	}
	for i := range len(text) {
		if c, encoded := urlpath.EncodedAt(text, i); encoded && urlpath.MayStand(c) {
			return fmt.Sprintf("%q", text[i:i+3])
		}
	}
	for _, sequence := range []string{"//", "/./", "/../"} {
		if strings.Contains(text, sequence) {
			return fmt.Sprintf("%q", sequence)
		}
	}
	return ""
}

// inNormalPath reports whether a character stands in paths of the normal form.
func inNormalPath(r rune) bool {
	return r < 0x80 && (urlpath.MayStand(byte(r)) || strings.ContainsRune("/;%", r))
}

// FormOf returns the form that the configuration has paths compared in.
func FormOf(p config.Paths) PathForm {
	switch {
	case !p.Normalize:
		return AsSent
	case p.Parameters == config.IgnoreParameters:
		return WithoutParameters
	}
	return NormalForm
}

// IsPlainPath reports whether a path has as many bytes in the normal form, or fewer.
func IsPlainPath(path string) bool {
	for i := range len(path) {
		if c := path[i]; c != '/' && c != ';' && !urlpath.MayStand(c) {
			return false
		}
	}
	return true
}
