package leak

import (
	"bytes"
	"encoding/pem"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// needle is something that is looked for.
type needle struct {
	key   *bind.SecretKey
	value []byte
	// plain says that the value may be ordinary words, and so counts only in text of the namespace of
	// the Secret.
	plain bool
}

// isPublicKey reports whether nothing below this key of a Secret is secret.
func isPublicKey(t corev1.SecretType, key string) bool {
	switch key {
	case corev1.TLSCertKey, corev1.ServiceAccountRootCAKey:
		return true
	case corev1.BasicAuthUsernameKey:
		return t == corev1.SecretTypeBasicAuth
	case corev1.ServiceAccountNamespaceKey:
		return t == corev1.SecretTypeServiceAccountToken
	}
	return false
}

// needlesOf returns the needles of a Secret, sorted by key: whole values, and the lines and words of a
// value that look random. The public parts of a value, such as a chain of certificates, are left out.
func needlesOf(s *corev1.Secret) []needle {
	var out []needle
	for _, key := range slices.Sorted(maps.Keys(s.Data)) {
		if isPublicKey(s.Type, key) {
			continue
		}
		name := &bind.SecretKey{Secret: snapshots.SecretName{Namespace: s.Namespace, Name: s.Name}, Key: key}
		for _, text := range withoutPublic(s.Data[key]) {
			for _, n := range parts(text) {
				n.key = name
				out = append(out, n)
			}
		}
	}
	return out
}

// Between the words of a value: those of most texts, those of JSON, YAML, password
// lists and files of variables, and those of URLs.
const (
	lineBreaks    = "\r\n"
	betweenWords  = lineBreaks + " \t"
	betweenFields = betweenWords + "\"'`{}[]()<>,;=:|&"
	betweenParts  = betweenFields + "@/?"
)

// parts returns the needles of a value.
func parts(value []byte) []needle {
	value = bytes.TrimSpace(value)
	var out []needle
	if !bytes.ContainsAny(value, lineBreaks) {
		random := isRandom(value) && !bytes.ContainsAny(value, betweenWords)
		if random || isPlain(value) {
			out = append(out, needle{value: value, plain: !random})
		}
	}
	words := func(text []byte, between string) {
		for word := range bytes.FieldsFuncSeq(text, func(r rune) bool { return strings.ContainsRune(between, r) }) {
			if len(word) >= leastPart && len(word) < len(text) && isRandom(word) {
				out = append(out, needle{value: word})
			}
		}
	}
	for line := range bytes.Lines(value) {
		line = bytes.TrimSpace(line)
		if len(line) < len(value) && len(line) >= leastPart && isRandom(line) && !bytes.ContainsAny(line, betweenWords) {
			out = append(out, needle{value: line})
		}
		if bytes.ContainsAny(line, betweenFields) {
			words(line, betweenWords)
			words(line, betweenFields)
		}
		if bytes.Contains(line, []byte("://")) {
			words(line, betweenParts)
		}
	}
	return out
}

// withoutPublic returns a value without its blocks of PEM that hold nothing private.
func withoutPublic(value []byte) [][]byte {
	const begin = "-----BEGIN "
	var out [][]byte
	from, at := 0, 0
	for {
		next := bytes.Index(value[at:], []byte(begin))
		if next < 0 {
			return append(out, value[from:])
		}
		at += next
		// Decode skips a block that is broken.
		block, rest := pem.Decode(value[at:])
		if block == nil || isPrivate(block.Type) || bytes.Count(value[at:len(value)-len(rest)], []byte(begin)) > 1 {
			at += len(begin)
			continue
		}
		out = append(out, value[from:at])
		at = len(value) - len(rest)
		from = at
	}
}

func isPrivate(blockType string) bool {
	return strings.Contains(blockType, "PRIVATE") || !slices.ContainsFunc(
		[]string{"CERTIFICATE", "PUBLIC KEY", "CRL", "PARAMETERS"},
		func(public string) bool { return strings.Contains(blockType, public) },
	)
}

// keyForm is a form of private keys in a text. All matches of a form begin with, or hold, its trace,
// which is faster to find.
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

// What follows the length of the outer SEQUENCE in the DER of private keys.
var derForms = []struct {
	prefix []byte
	what   string
}{
	{[]byte("\x02\x01\x00\x30"), "a private key (PKCS #8)"},
	{[]byte("\x02\x01\x01\x30"), "a private key (PKCS #8)"},
	{[]byte("\x02\x01\x00\x02\x81"), "a private key (PKCS #1 or DSA)"},
	{[]byte("\x02\x01\x00\x02\x82"), "a private key (PKCS #1 or DSA)"},
	{[]byte("\x02\x01\x01\x04"), "a private key (SEC 1)"},
	{[]byte("\x02\x01\x03\x30"), "a store of keys (PKCS #12)"},
}

// Object identifiers at the head of an encrypted PKCS #8 key: PKCS #5 and #12.
var encryptedForms = [][]byte{
	[]byte("\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x05"),
	[]byte("\x06\x0a\x2a\x86\x48\x86\xf7\x0d\x01\x0c\x01"),
}

// binaryKey returns the kind of binary private key that a text begins with: DER, or a key store of
// Java. It returns "" for anything else. A key may be cut short.
func binaryKey(b []byte) string {
	if bytes.HasPrefix(b, []byte("\xfe\xed\xfe\xed\x00\x00\x00")) {
		return "a store of keys (JKS)"
	}
	body, ok := sequence(b)
	if !ok {
		return ""
	}
	for _, f := range derForms {
		if bytes.HasPrefix(body, f.prefix) {
			return f.what
		}
	}
	if inner, ok := sequence(body); ok {
		for _, f := range encryptedForms {
			if bytes.HasPrefix(inner, f) {
				return "an encrypted private key (PKCS #8)"
			}
		}
	}
	return ""
}

// sequence returns what follows the head of a DER SEQUENCE.
func sequence(b []byte) (body []byte, ok bool) {
	switch {
	case len(b) < 4 || b[0] != 0x30:
		return nil, false
	case b[1] >= 0x10 && b[1] < 0x80:
		return b[2:], true
	case b[1] == 0x81 && b[2] >= 0x80:
		return b[3:], true
	case b[1] == 0x82 && b[2] > 0:
		return b[4:], true
	}
	return nil, false
}
