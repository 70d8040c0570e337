// Package urlpath knows the form in which two paths of URLs are compared. The compiler brings the paths of
// routes into it, and HAProxy those of requests. Code that explains what HAProxy does uses it too.
package urlpath

import (
	"fmt"
	"strings"
)

// Normal returns a path, of a route or of a request, in the form in which two paths are compared. It decodes,
// once, characters that may stand in a path, and encodes all others with capital digits (RFC 3986, section
// 6.2.2). It joins slashes and removes dot segments. A "%" that encodes nothing stands for itself. "/" and ";"
// have a meaning if they are not encoded, so they stay encoded.
//
// HAProxy does the same to requests: templates/partials/path.cfg finds paths that are not in this form already,
// and templates/files/hapsnap.lua converts them. A change of one of the three must change all.
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

// normalSegment decodes the characters that may stand in a segment, and encodes the rest.
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

// MayStand reports whether a byte may stand unencoded in a segment, in whichever form it came (RFC 3986,
// section 3.3, without ";").
func MayStand(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= lower(c) && lower(c) <= 'z' || strings.IndexByte("-._~!$&'()*+,=:@", c) >= 0
}
