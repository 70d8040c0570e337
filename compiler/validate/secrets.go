package validate

import (
	"bytes"
	"encoding/base64"
	"regexp"
	"slices"

	"github.com/hapsnap/hapsnap/compiler/render"
)

var (
	keyForm = regexp.MustCompile(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----`)
	// encodedForm matches base64 of "-----BEGIN", at any of the three places
	// in a group that it can begin.
	encodedForm = regexp.MustCompile(`(?:LS0tLS1CRUdJTi|0tLS0tQkVHSU4|tLS0tLUJFR0lO)[A-Za-z0-9+/=]*`)
	// keyTraces are what one of these forms needs.
	keyTraces = [][]byte{[]byte("PRIVATE KEY-----"), []byte("LS0tLS1CRUdJTi"), []byte("0tLS0tQkVHSU4"), []byte("tLS0tLUJFR0lO")}
)

// checkKeys refuses every file that holds a private key, in the clear or in
// base64. The fault does not quote it.
func checkKeys(a render.Artifact) []render.Fault {
	var out []render.Fault
	for _, f := range a.Files {
		at := findKey(f.Content)
		if at < 0 {
			continue
		}
		line := 1 + bytes.Count(f.Content[:at], []byte("\n"))
		out = append(out, render.Fault{
			Message: f.Path + " would hold a private key, and snapshots are kept where many can read them",
			Hint:    "refer to a Secret of type kubernetes.io/tls instead",
			Origin:  a.Origin(f.Path, line),
		})
	}
	return out
}

// findKey returns where a private key begins, or -1.
func findKey(content []byte) int {
	if !slices.ContainsFunc(keyTraces, func(trace []byte) bool { return bytes.Contains(content, trace) }) {
		return -1 // as nearly always, and much sooner
	}
	if loc := keyForm.FindIndex(content); loc != nil {
		return loc[0]
	}
	for _, loc := range encodedForm.FindAllIndex(content, -1) {
		run := bytes.TrimRight(content[loc[0]:loc[1]], "=")
		for skip := range 4 {
			part := run[skip:]
			decoded, _ := base64.RawStdEncoding.DecodeString(string(part[:len(part)/4*4]))
			if bytes.Contains(decoded, []byte("PRIVATE KEY-----")) {
				return loc[0]
			}
		}
	}
	return -1
}
