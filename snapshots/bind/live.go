package bind

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind/htpasswd"
)

// Live is the live data that a snapshot is bound to: what is true now, however old the snapshot is. Endpoints
// are sorted by address and port, without duplicates. Content of Secrets must not be shown to anybody.
type Live struct {
	Endpoints map[snapshots.ServicePort][]snapshots.Endpoint
	// Certificates hold PEM: the chain, then the private key.
	Certificates map[snapshots.SecretName][]byte
	// Expired are the certificates that must not be served any more.
	Expired map[snapshots.SecretName]bool
	// Versions are the certificates, as PEM, for references to versions, by version. Versions that are not
	// known are left out.
	Versions map[string][]byte
	// ExpiredVersions are the versions that must not be served any more.
	ExpiredVersions map[string]bool
	// Authorities are what [pem.ParseAuthorities] returned.
	Authorities map[snapshots.SecretName][]byte
	// Users are what [htpasswd.Parse] returned.
	Users map[snapshots.SecretName][]htpasswd.User
	// Values are what [SecretValue] returned, for the words of haproxy.cfg that refer to
	// them, see [SecretWord].
	Values map[SecretKey]string
	// Fallback is the PEM of the certificate that is served if no other certificate fits. It belongs to the
	// pusher, and is in no Secret.
	Fallback []byte
	// Unread are the Secrets that the pusher may not read, so that it does not know their content. An instance
	// keeps a certificate that it has from one of them.
	Unread map[snapshots.SecretName]bool
}

// The keys of Secrets for each use.
const (
	AuthoritiesKey = "ca.crt"
	UsersKey       = "auth"
)

// SecretKey names one value of a Secret.
type SecretKey struct {
	Secret snapshots.SecretName
	Key    string
}

// String returns "namespace/name/key".
func (k SecretKey) String() string { return k.Secret.String() + "/" + k.Key }

// Compare orders keys by their Secret, then by name.
func (k SecretKey) Compare(o SecretKey) int {
	return cmp.Or(k.Secret.Compare(o.Secret), cmp.Compare(k.Key, o.Key))
}

// Need is something that a snapshot takes from a Secret when it is bound. Key is
// set for [snapshots.UseValue] only.
type Need struct {
	Use    snapshots.Use
	Secret snapshots.SecretName
	Key    string
}

// String returns what is needed, such as "users of Secret shop/auth".
func (n Need) String() string {
	switch n.Use {
	case snapshots.UseCertificate:
		return fmt.Sprintf("certificate of Secret %s", n.Secret)
	case snapshots.UseCA:
		return fmt.Sprintf("certificate authorities of Secret %s", n.Secret)
	case snapshots.UseValue:
		return fmt.Sprintf("value of key %s of Secret %s", n.Key, n.Secret)
	}
	return fmt.Sprintf("%s of Secret %s", n.Use, n.Secret)
}

// SecretKeys returns the keys of the Secret that the need reads, none for a certificate.
func (n Need) SecretKeys() []SecretKey {
	switch n.Use {
	case snapshots.UseCA:
		return []SecretKey{{n.Secret, AuthoritiesKey}}
	case snapshots.UseUsers:
		return []SecretKey{{n.Secret, UsersKey}}
	case snapshots.UseValue:
		return []SecretKey{{n.Secret, n.Key}}
	}
	return nil
}

// Compare orders needs by use, Secret and key.
func (n Need) Compare(o Need) int {
	return cmp.Or(cmp.Compare(n.Use, o.Use), n.Secret.Compare(o.Secret), cmp.Compare(n.Key, o.Key))
}

// Needs returns what a haproxy.cfg with these certificate references takes from Secrets,
// sorted and without duplicates. The error names a line that cannot be followed.
func Needs(config []byte, certificates []snapshots.CertificateRef) ([]Need, error) {
	return new(Binder).Needs(config, certificates)
}

// Needs is the function [Needs]. If the Binder then binds the same haproxy.cfg, it does not read the directives
// again.
func (b *Binder) Needs(config []byte, certificates []snapshots.CertificateRef) ([]Need, error) {
	found, err := b.directives.of(config)
	if err != nil {
		return nil, err
	}
	keys, err := secretKeys(config)
	if err != nil {
		return nil, err
	}
	var out []Need
	for _, ref := range certificates {
		if ref.Secret != (snapshots.SecretName{}) {
			out = append(out, Need{Use: ref.Use, Secret: ref.Secret})
		}
	}
	for _, d := range found.users {
		out = append(out, Need{Use: snapshots.UseUsers, Secret: d.Secret})
	}
	for _, key := range keys {
		out = append(out, Need{Use: snapshots.UseValue, Secret: key.Secret, Key: key.Key})
	}
	slices.SortFunc(out, Need.Compare)
	return slices.Compact(out), nil
}

// SecretMark begins a word of haproxy.cfg that refers to a value of a Secret:
//
//	dynamic-cookie-key hapsnap:secret/NAMESPACE/NAME/KEY
const SecretMark = "hapsnap:secret/"

// The reasons why the value of a Secret cannot be a word of haproxy.cfg.
var (
	ErrNoValue  = errors.New("there is no value")
	ErrBadValue = errors.New("the value cannot be one word of haproxy.cfg")
)

// SecretWord returns the word of haproxy.cfg that refers to a value of a Secret. Bind
// replaces it with the value. It has to be a word of its own, without quotes.
func SecretWord(key SecretKey) (string, error) {
	for _, part := range []string{key.Secret.Namespace, key.Secret.Name, key.Key} {
		if part == "" || !isName(part, "") {
			return "", fmt.Errorf("%q is not a namespace, a Secret and a key", key)
		}
	}
	return SecretMark + key.String(), nil
}

// secretWordIn returns the value that a word refers to, and whether it refers to one.
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

// secretKeys returns the values of Secrets that words of haproxy.cfg, and of the options in
// its directives, refer to.
func secretKeys(config []byte) ([]SecretKey, error) {
	var out []SecretKey
	if !bytes.Contains(config, []byte(SecretMark)) {
		return nil, nil
	}
	for l := range haproxycfg.Lines(config) {
		line := l.Text
		if text, ok := DirectiveText(line); ok {
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
