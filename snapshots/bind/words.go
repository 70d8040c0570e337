package bind

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
	"github.com/hapsnap/hapsnap/snapshots"
)

// SecretMark begins the word that stands for a value of a Secret in haproxy.cfg:
//
//	dynamic-cookie-key hapsnap:secret/NAMESPACE/NAME/KEY
const SecretMark = "hapsnap:secret/"

// The reasons why the value of a Secret cannot be a word of haproxy.cfg.
var (
	ErrNoValue  = errors.New("there is no value")
	ErrBadValue = errors.New("the value cannot be one word of haproxy.cfg")
)

// SecretWord returns the word that stands for a value of a Secret in haproxy.cfg.
// Bind puts the value in its place. It has to be a word of its own, without
// quotes.
func SecretWord(key SecretKey) (string, error) {
	for _, part := range []string{key.Secret.Namespace, key.Secret.Name, key.Key} {
		if part == "" || !isName(part, "") {
			return "", fmt.Errorf("%q is not a namespace, a Secret and a key", key)
		}
	}
	return SecretMark + key.String(), nil
}

// secretWordIn reads the value that a word stands for, if it stands for one.
func secretWordIn(word []byte) (key SecretKey, ok bool, err error) {
	if !bytes.Contains(word, []byte(SecretMark)) {
		return SecretKey{}, false, nil
	}
	if parts := strings.Split(strings.TrimPrefix(string(word), SecretMark), "/"); len(parts) == 3 {
		key := SecretKey{snapshots.SecretName{Namespace: parts[0], Name: parts[1]}, parts[2]}
		if want, err := SecretWord(key); err == nil && want == string(word) {
			return key, true, nil
		}
	}
	return SecretKey{}, false, fmt.Errorf("%s must be followed by NAMESPACE/NAME/KEY, in a word of its own without quotes", SecretMark)
}

// SecretValue checks a value as [Bind] does: it must be printable UTF-8 of at most
// 4096 bytes, hold a letter or a digit, not begin with '-', which HAProxy may
// take for an option, and hold no '%', which HAProxy expands in some places. One
// line break at its end is left out. The error wraps [ErrNoValue] or
// [ErrBadValue], and holds nothing of the value.
func SecretValue(data []byte) (string, error) {
	const most = 4096
	value := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	switch {
	case value == "":
		return "", ErrNoValue
	case len(value) > most:
		return "", fmt.Errorf("%w: it is longer than %d bytes", ErrBadValue, most)
	case !utf8.ValidString(value) || strings.ContainsFunc(value, func(r rune) bool { return !unicode.IsPrint(r) }):
		return "", fmt.Errorf("%w: it holds what is not printable", ErrBadValue)
	case value[0] == '-' || strings.Contains(value, "%"):
		return "", fmt.Errorf("%w: it begins with '-' or holds '%%'", ErrBadValue)
	case !strings.ContainsFunc(value, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }):
		return "", fmt.Errorf("%w: it holds no letter or digit", ErrBadValue)
	}
	return value, nil
}

// quoteWord writes a value as one word, in strong quotes if it needs them.
func quoteWord(value string) string {
	if isName(value, "+/=@:,~") {
		return value
	}
	return "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
}

// secretKeys returns the values of Secrets that words of haproxy.cfg, and of the
// options in its directives, stand for.
func secretKeys(config []byte) ([]SecretKey, error) {
	var out []SecretKey
	if !bytes.Contains(config, []byte(SecretMark)) {
		return nil, nil
	}
	for l := range haproxycfg.Lines(config) {
		line := l.Text
		if text, ok := directiveText(line); ok {
			_, options := cutOptions(text)
			line = []byte(options)
		}
		for _, w := range (haproxycfg.Line{Text: line}).Words() {
			key, ok, err := secretWordIn(line[w.Start:w.End])
			if err != nil {
				return nil, fmt.Errorf("%s:%d: %w", snapshots.ConfigFile, l.Number, err)
			}
			if ok {
				out = append(out, key)
			}
		}
	}
	return out, nil
}

// isName reports whether s holds nothing but letters, digits, '.', '_', '-'
// and the bytes of extra.
func isName(s, extra string) bool {
	for i := range len(s) {
		if !isTokenByte[s[i]] && !strings.Contains(extra, s[i:i+1]) || s[i] == '/' {
			return false
		}
	}
	return true
}
