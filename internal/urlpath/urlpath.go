// Package urlpath knows the form in which two paths of URLs are compared. The compiler brings the paths
// of routes into it, HAProxy those of requests, and who explains what HAProxy does follows it there.
package urlpath

import (
	"fmt"
	"strings"
)

// Normal returns a path, of a route or of a request, in the form in which two paths are
// compared: characters that may stand in a path are decoded, once, all others are encoded
// with capital digits (RFC 3986, section 6.2.2), several slashes are one, and dot segments
// are removed. A "%" that encodes nothing is one of itself. Two characters have a meaning
// where they stand by themselves, so that they stay encoded: "/" and ";".
//
// HAProxy does the same to requests, by templates/files/hapsnap.lua, where the path is not in
// this form already by templates/partials/path.cfg: who changes one of them changes all.
func Normal(path string, ignoreParameters bool) string {
	segments, rest, more := []string{}, path, true
	for more {
		var s string
		s, rest, more = strings.Cut(rest, "/")
		if ignoreParameters {
			s, _, _ = strings.Cut(s, ";")
		}
		switch s = normalSegment(s); {
		case s == "..":
			segments = segments[:max(len(segments)-1, 0)]
		case s != "" && s != ".":
			segments = append(segments, s)
			if !more {
				return "/" + strings.Join(segments, "/")
			}
		}
	}
	if len(segments) == 0 {
		return "/"
	}
	return "/" + strings.Join(segments, "/") + "/"
}

// normalSegment returns a segment with what may stand in it decoded, and the rest encoded.
func normalSegment(s string) string {
	if inNormalForm(s) {
		return s // as most
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c, encoded := EncodedAt(s, i); {
		case encoded:
			b.WriteString(normalByte(c))
			i += 2
		case s[i] == ';':
			b.WriteByte(';')
		default:
			b.WriteString(normalByte(s[i]))
		}
	}
	return b.String()
}

func inNormalForm(s string) bool {
	for i := range len(s) {
		if !MayStand(s[i]) {
			return false
		}
	}
	return true
}

// EncodedAt returns the byte that is encoded at a place, if one is.
func EncodedAt(s string, i int) (c byte, encoded bool) {
	if s[i] != '%' || len(s) < i+3 {
		return 0, false
	}
	high, low := strings.IndexByte(hexDigits, lower(s[i+1])), strings.IndexByte(hexDigits, lower(s[i+2]))
	return byte(max(high, 0)<<4 | max(low, 0)), high >= 0 && low >= 0
}

const hexDigits = "0123456789abcdef"

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

// normalByte returns a byte as it stands in the normal form.
func normalByte(c byte) string {
	if MayStand(c) {
		return string(rune(c))
	}
	return fmt.Sprintf("%%%02X", c)
}

// MayStand reports whether a byte is one that stands in a segment by itself, whichever way
// it came (RFC 3986, section 3.3, without ";").
func MayStand(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= lower(c) && lower(c) <= 'z' || strings.IndexByte("-._~!$&'()*+,=:@", c) >= 0
}
