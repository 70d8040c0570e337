package leak

import (
	"bytes"
	"encoding/pem"
	"maps"
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
	// plain says that it may be words, and so counts only among what belongs to the
	// namespace of the Secret.
	plain bool
}

// isPublicKey reports whether nothing below a key of a Secret is secret.
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

// needlesOf returns what is to be looked for of a Secret, sorted by key: whole
// values, and the lines and words of a value that look random. What is public of a
// value, such as a chain of certificates, is left out.
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

// parts returns what is to be looked for of a value.
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

// withoutPublic returns what is left of a value without its blocks of PEM that hold
// nothing private.
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
		// Decode passes over a block that is broken.
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
