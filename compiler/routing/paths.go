package routing

import (
	"fmt"
	"strings"
	"unicode/utf8"

	networkingv1 "k8s.io/api/networking/v1"
)

// maxPath is the longest path in bytes. A map's line, which also holds the host
// and the backend, and a request's first line have to fit HAProxy's buffer of
// 16 KiB.
const maxPath = 8192

// charNames are the characters that no path may hold, as messages call them.
// Some of them end a key or a line of a map or start a comment there; none of
// them is sent in a path by a client that keeps to RFC 3986, section 3.3.
var charNames = map[rune]string{
	' ': "a space", '\t': "a tab", '\n': "a newline", '\r': "a carriage return", 0: "a NUL",
	'#': "a '#'", '?': "a '?'", '"': "a double quote", '\\': "a backslash",
}

// checkPath says which rule of the API a path breaks.
func checkPath(path string, pathType networkingv1.PathType) (message, hint string) {
	specific := pathType == networkingv1.PathTypeImplementationSpecific
	switch {
	case path == "" && specific:
		return "", ""
	case !strings.HasPrefix(path, "/"):
		return "does not start with a slash", "write it as /path"
	case specific:
		return "", ""
	}
	return checkSequences(path)
}

// checkUsable says why a path that the API takes cannot be matched with requests.
func checkUsable(path string) (message, hint string) {
	if n := max(len(path), len(NormalPath(path, false))); n > maxPath {
		return fmt.Sprintf("has %d bytes", n), fmt.Sprintf("a path may have %d bytes, as requests carry it", maxPath)
	}
	return checkChars(path)
}

// asRequested returns a path as requests carry it (RFC 3986, section 2.1): what they cannot
// carry as it is stands percent-encoded.
func asRequested(path string) string {
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

// checkChars says which character of a path is refused.
func checkChars(path string) (message, hint string) {
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

// encodedHint says how a character stands in a path.
func encodedHint(r rune) string {
	var b strings.Builder
	for _, c := range []byte(string(r)) {
		fmt.Fprintf(&b, "%%%02X", c)
	}
	return "if requests have it percent-encoded, write " + b.String()
}

// checkSequences holds to what the API allows in Exact and Prefix paths, which
// proxies and applications understand differently.
func checkSequences(path string) (message, hint string) {
	const why = "use pathType ImplementationSpecific if it is meant"
	for _, s := range []string{"//", "/./", "/../", "%2f", "%2F"} {
		if strings.Contains(path, s) {
			return "holds " + s, why
		}
	}
	for _, s := range []string{"/..", "/."} {
		if strings.HasSuffix(path, s) {
			return "ends with " + s, why
		}
	}
	return "", ""
}
