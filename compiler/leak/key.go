package leak

import (
	"bytes"
	"regexp"
)

// keyForm is what a private key looks like in a text. All matches of a form begin
// with, or hold, its trace, which is sooner looked for.
type keyForm struct {
	trace []byte
	form  *regexp.Regexp
	what  string
}

// keyForms are those of whole words. Blanks may have become plus signs on their way
// through a form of the web.
func keyForms() []keyForm {
	return []keyForm{
		// PKCS #1, PKCS #8, SEC 1, DSA, OpenSSH, PGP; RFC 4716 for that of ssh.com.
		{[]byte("PRIVATE"), regexp.MustCompile(`-{4,5} ?BEGIN[ +][A-Z0-9 +]*PRIVATE[ +]KEY(?:[ +]BLOCK)? ?-{4,5}`), "a private key"},
		{[]byte("AGE-"), regexp.MustCompile(`AGE-(?:SECRET-KEY|PLUGIN)-[A-Z0-9+-]*1[AC-HJ-NP-Z02-9]{20,}`), "a private key of age"},
		{[]byte("PuTTY-User-Key-File-"), regexp.MustCompile(`PuTTY-User-Key-File-[0-9]+:`), "a private key of PuTTY"},
		{[]byte("openssh-key-v1\x00"), regexp.MustCompile(`openssh-key-v1\x00`), "a private key of OpenSSH"},
		{[]byte(`"kty"`), regexp.MustCompile(`\{[^{}]*"kty"[^{}]*\}`), "a private JSON Web Key"},
	}
}

// privateJWK matches the members of a JSON Web Key that are private: RFC 7518,
// sections 6.2.2, 6.3.2 and 6.4.
var privateJWK = regexp.MustCompile(`"(?:d|p|q|k)"\s*:\s*"[A-Za-z0-9_+/=-]{16,}"`)

// findKey returns where the first private key of a view begins, or -1, and what kind
// of key that is.
func findKey(v view, forms []keyForm) (at int, what string) {
	at = -1
	for _, f := range forms {
		if !bytes.Contains(v.text, f.trace) {
			continue // as nearly always
		}
		for _, loc := range f.form.FindAllIndex(v.text, -1) {
			if string(f.trace) == `"kty"` && !privateJWK.Match(v.text[loc[0]:loc[1]]) {
				continue
			}
			if at < 0 || loc[0] < at {
				at, what = loc[0], f.what
			}
			break
		}
	}
	for _, start := range v.starts() {
		if at >= 0 && start >= at {
			break
		}
		if kind := binaryKey(v.text[start:]); kind != "" {
			return start, kind
		}
	}
	return at, what
}
