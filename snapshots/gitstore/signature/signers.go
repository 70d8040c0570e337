package signature

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// allowedSigner is a line of a list of allowed signers.
type allowedSigner struct {
	line       int
	principals string // a list of patterns
	authority  bool   // the key signs certificates, and no commits
	namespaces string // a list of patterns; "" is all
	from, to   time.Time
	key        ssh.PublicKey
}

type allowedSigners []allowedSigner

// parseSigners reads a list of allowed signers. Everything that it does not understand is an error: it may be a
// restriction.
func parseSigners(file, text string) (allowedSigners, error) {
	var all allowedSigners
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		signer, err := parseSigner(line)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, number, err)
		}
		signer.line = number
		all = append(all, signer)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: it allows nobody", file)
	}
	return all, nil
}

// parseSigner reads a line: principals, options, key. The rest is as in a file of
// authorized keys.
func parseSigner(line string) (allowedSigner, error) {
	principals, rest, err := principals(line)
	if err != nil {
		return allowedSigner{}, err
	}
	key, _, options, more, err := ssh.ParseAuthorizedKey([]byte(rest))
	if err != nil || len(more) > 0 {
		return allowedSigner{}, errors.New("it has no key that can be read")
	}
	s := allowedSigner{principals: principals, key: key}
	seen := map[string]bool{}
	for _, option := range options {
		name, value, _ := strings.Cut(option, "=")
		name = strings.ToLower(name)
		if seen[name] {
			return allowedSigner{}, fmt.Errorf("option %s is there twice", name)
		}
		seen[name] = true
		if err := s.set(name, value); err != nil {
			return allowedSigner{}, err
		}
	}
	return s, s.check()
}

// principals cuts the first word off a line, which may be in quotes.
func principals(line string) (first, rest string, err error) {
	if quoted, ok := strings.CutPrefix(line, `"`); ok {
		first, rest, ok = strings.Cut(quoted, `"`)
		if !ok || first == "" || (rest != "" && !strings.ContainsAny(rest[:1], " \t")) {
			return "", "", errors.New("its principals have no closing quote")
		}
		return first, rest, nil
	}
	end := strings.IndexAny(line, " \t")
	if end < 0 {
		return "", "", errors.New("it has no key")
	}
	return line[:end], line[end:], nil
}

// set takes an option.
func (s *allowedSigner) set(name, value string) (err error) {
	quoted := len(value) > 1 && value[0] == '"' && value[len(value)-1] == '"'
	if quoted {
		value = value[1 : len(value)-1]
	}
	switch name {
	case "cert-authority":
		s.authority = true
	case "namespaces":
		s.namespaces = value
	case "valid-after":
		s.from, err = parseTime(value)
	case "valid-before":
		s.to, err = parseTime(value)
	default:
		return fmt.Errorf("option %s is not known", name)
	}
	if needs := name != "cert-authority"; err == nil && needs != (quoted && value != "") {
		err = fmt.Errorf("option %s: write it as in ssh-keygen(1), ALLOWED SIGNERS", name)
	}
	return err
}

func (s *allowedSigner) check() error {
	if !s.from.IsZero() && !s.to.IsZero() && !s.from.Before(s.to) {
		return errors.New("valid-before is not after valid-after")
	}
	if _, ok := s.key.(*ssh.Certificate); ok {
		return errors.New("it has a certificate, and a key is wanted")
	}
	return nil
}

// parseTime reads YYYYMMDD and YYYYMMDDHHMM[SS], which are in local time unless Z
// follows.
func parseTime(text string) (time.Time, error) {
	digits, utc := strings.CutSuffix(text, "Z")
	where := time.Local
	if utc {
		where = time.UTC
	}
	layout, ok := map[int]string{8: "20060102", 12: "200601021504", 14: "20060102150405"}[len(digits)]
	if !ok {
		return time.Time{}, fmt.Errorf("%q is no time such as 20260301Z or 202603011200Z", text)
	}
	t, err := time.ParseInLocation(layout, digits, where)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is no time such as 20260301Z or 202603011200Z", text)
	}
	return t, nil
}

// find returns as whom a key may sign at a time, or why it may not.
func (l allowedSigners) find(key ssh.PublicKey, at time.Time, what purpose) (string, error) {
	var reasons []string
	for _, s := range l {
		name, related, err := s.accepts(key, at, what)
		if related && err == nil {
			return name, nil
		}
		if related {
			reasons = append(reasons, fmt.Sprintf("line %d of the allowed signers: %s", s.line, err))
		}
	}
	if len(reasons) > 0 {
		return "", errors.New(strings.Join(reasons, "; "))
	}
	return "", fmt.Errorf("the SSH key %s is not among the allowed signers", fingerprint(key))
}

// accepts returns whether the line is about a key, and whether it accepts the key.
func (s allowedSigner) accepts(key ssh.PublicKey, at time.Time, what purpose) (name string, related bool, err error) {
	certificate, certified := key.(*ssh.Certificate)
	wanted := key
	if certified {
		wanted = certificate.SignatureKey
	}
	if certified != s.authority || !bytes.Equal(wanted.Marshal(), s.key.Marshal()) {
		return "", false, nil
	}
	switch {
	case s.namespaces != "" && !matchList(s.namespaces, what.namespace):
		err = fmt.Errorf("%s may sign in the namespaces %s", s.principals, s.namespaces)
	case !s.from.IsZero() && at.Before(s.from):
		err = fmt.Errorf("the key of %s is valid from %s, and the %s is of %s", s.principals, stamp(s.from), what.signed, stamp(at))
	case !s.to.IsZero() && at.After(s.to):
		err = fmt.Errorf("the key of %s is valid until %s, and the %s is of %s", s.principals, stamp(s.to), what.signed, stamp(at))
	case certified:
		name, err = s.certified(certificate, at)
		return name, true, err
	}
	return s.principals, true, err
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// certified returns which of its principals a certificate is good for. A certificate that
// names none would be good for all, and is refused, as by ssh-keygen.
func (s allowedSigner) certified(c *ssh.Certificate, at time.Time) (string, error) {
	if c.CertType != ssh.UserCert {
		return "", errors.New("the certificate is one of a host")
	}
	checker := ssh.CertChecker{Clock: func() time.Time { return at }}
	for _, principal := range c.ValidPrincipals {
		if matchList(s.principals, principal) {
			return principal, checker.CheckCert(principal, c)
		}
	}
	return "", fmt.Errorf("the certificate is for %q, and not for any of %s", c.ValidPrincipals, s.principals)
}

// matchList reports whether a word matches a list of patterns with commas, as in
// ssh_config(5), PATTERNS: one of them, and none that begins with an exclamation
// mark.
func matchList(list, word string) bool {
	matched := false
	for pattern := range strings.SplitSeq(list, ",") {
		not, negated := strings.CutPrefix(pattern, "!")
		switch {
		case negated && match(not, word):
			return false
		case !negated && match(pattern, word):
			matched = true
		}
	}
	return matched
}

// match reports whether a word matches a pattern, in which * stands for any text
// and ? for a character.
func match(pattern, word string) bool {
	star, back := -1, 0
	p, w := 0, 0
	for w < len(word) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, back = p, w
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == word[w]):
			p++
			w++
		case star >= 0:
			back++
			p, w = star+1, back
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}
