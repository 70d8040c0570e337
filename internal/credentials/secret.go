package credentials

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// Annotation of a Secret says which data of it a [Maker] wrote.
	Annotation = "hapsnap.dev/made"
	// RenewAnnotation asks a Maker to renew what it wrote, whatever its value. The Maker
	// removes it when it has.
	RenewAnnotation = "hapsnap.dev/renew"
)

// Password is a user name and a password, under these keys. With [Next] before them are
// those that come next, and that servers take too.
type Password struct{ UsernameKey, PasswordKey string }

// Next begins the keys of a user name and a password that come next.
const Next = "next-"

// sinceKey is since when there are those that come next.
const sinceKey = Next + "since"

// random returns bytes that nobody can guess, in hexadecimal digits.
func random(bytes int) []byte {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // it returns no error
	return []byte(hex.EncodeToString(b))
}

// put puts a new user into the data of a Secret, under the keys with a prefix.
func (p Password) put(data map[string][]byte, prefix string) map[string][]byte {
	data[prefix+p.UsernameKey], data[prefix+p.PasswordKey] = append([]byte("hapsnap-"), random(4)...), random(32)
	return data
}

// renew returns the data that a Secret of ours is to have, nil for what it has, and why. With
// asked, people want another password.
func (p Password) renew(data map[string][]byte, now time.Time, asked bool) (next map[string][]byte, why string) {
	if p.usable(data) != nil {
		return p.put(map[string][]byte{}, ""), "there was no password"
	}
	since, err := time.Parse(time.RFC3339, string(data[sinceKey]))
	begun := err == nil && !since.After(now.Add(backdated)) // the clock may have been wrong
	switch {
	case !begun && (asked || len(data[sinceKey]) > 0):
		next = p.put(maps.Clone(data), Next)
		next[sinceKey] = []byte(now.UTC().Format(time.RFC3339))
		return next, "another password was asked for: it is taken from now on"
	case begun && !now.Before(since.Add(propagation)):
		return map[string][]byte{p.UsernameKey: data[Next+p.UsernameKey], p.PasswordKey: data[Next+p.PasswordKey]}, "the next password is used from now on"
	}
	return nil, ""
}

// usable returns what is missing.
func (p Password) usable(data map[string][]byte) error {
	for _, key := range []string{p.UsernameKey, p.PasswordKey} {
		if len(data[key]) == 0 {
			return fmt.Errorf("it has no %s", key)
		}
	}
	return nil
}

// Wanted is what a Secret is to hold: a password or a certificate.
type Wanted struct {
	Secret      string // its name
	Password    *Password
	Certificate *Certificate
}

// A decision is what becomes of a Secret.
type decision struct {
	data    map[string][]byte // nil: what it has
	why     string
	over    bool  // what people asked for is done
	problem error // what keeps people from using what it has, or will
}

var errNotOurs = errors.New("somebody has edited it, and it is left alone; remove its data to have it made anew")

// decide returns what becomes of a Secret.
func (w Wanted) decide(s *corev1.Secret, now time.Time, trusted bool) (d decision, err error) {
	if !isOurs(s) {
		if w.Password != nil {
			d.problem = w.Password.usable(s.Data)
		} else {
			d.problem = w.Certificate.foreign(s.Data, now)
		}
		if d.problem != nil {
			d.problem = fmt.Errorf("%w: %w", d.problem, errNotOurs)
		}
		return d, nil
	}
	_, asked := s.Annotations[RenewAnnotation]
	if w.Certificate != nil {
		d.data, d.why, err = w.Certificate.renew(s.Data, now, asked, trusted)
		d.over = len(d.data[nextCertKey]) == 0
	} else {
		d.data, d.why = w.Password.renew(s.Data, now, asked)
		d.over = len(d.data[sinceKey]) == 0
	}
	return d, err
}

// isOurs reports whether nobody but a Maker wrote the data of a Secret, if it has any.
func isOurs(s *corev1.Secret) bool {
	return len(s.Data) == 0 || s.Annotations[Annotation] == digest(s.Data)
}

// filled returns the Secret with what was decided.
func filled(s *corev1.Secret, d decision) *corev1.Secret {
	out := s.DeepCopy()
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	out.Data, out.Annotations[Annotation] = d.data, digest(d.data)
	if d.over {
		delete(out.Annotations, RenewAnnotation)
	}
	return out
}

// digest identifies the data of a Secret. A password of ours cannot be guessed from it.
func digest(data map[string][]byte) string {
	h := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(data)) {
		for _, part := range []string{key, string(data[key])} {
			fmt.Fprintf(h, "%d:", len(part))
			_, _ = io.WriteString(h, part) // a hash takes everything
		}
	}
	return "sha256-" + hex.EncodeToString(h.Sum(nil))
}

// expiry is when the certificate of a Secret expires; zero for none.
func expiry(s *corev1.Secret) time.Time {
	if all := parseAll(s.Data[corev1.TLSCertKey]); len(all) > 0 {
		return all[0].NotAfter
	}
	return time.Time{}
}
