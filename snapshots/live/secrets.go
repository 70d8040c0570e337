package live

import (
	"bytes"
	"cmp"
	"crypto/x509"
	stdpem "encoding/pem"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/bind/htpasswd"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem"
)

// Secrets are the live data of Secrets apart from certificates, with its problems. Only a snapshot says what a
// Secret is used for: the key auth may hold anything.
type Secrets struct {
	Authorities map[snapshots.SecretName][]byte
	Users       map[snapshots.SecretName][]htpasswd.User
	Values      map[bind.SecretKey]string
	// UserCosts say how long HAProxy takes to load the hashes of Users.
	UserCosts map[snapshots.SecretName]time.Duration
	// Problems say why authorities and users cannot be used, or how costly they are. They hold nothing of the
	// Secrets except names of users.
	Problems map[bind.Need][]error
}

// GatherSecrets returns the certificate authorities under ca.crt, the users under
// auth and the values under all keys.
func GatherSecrets(secrets []corev1.Secret) Secrets {
	out := Secrets{
		Authorities: map[snapshots.SecretName][]byte{}, Users: map[snapshots.SecretName][]htpasswd.User{},
		Values: map[bind.SecretKey]string{}, Problems: map[bind.Need][]error{}, UserCosts: map[snapshots.SecretName]time.Duration{},
	}
	for _, secret := range secrets {
		name := snapshots.SecretName{Namespace: secret.Namespace, Name: secret.Name}
		out.addAuthorities(name, secret)
		data, ok := value(secret, bind.UsersKey)
		if ok {
			users, problems := htpasswd.Parse(data)
			for _, p := range problems {
				need := bind.Need{Use: snapshots.UseUsers, Secret: name}
				out.Problems[need] = append(out.Problems[need], p)
			}
			if len(users) > 0 {
				out.Users[name], out.UserCosts[name] = users, htpasswd.Cost(users)
			}
		}
		for key := range keys(secret) {
			out.addValue(bind.SecretKey{Secret: name, Key: key}, secret)
		}
	}
	out.BoundUsers()
	return out
}

// The longest times that HAProxy may take to load the hashes of a namespace, and of all namespaces. A reload that takes
// longer than the pusher waits for it has failed, for everybody, whatever it should have brought.
const (
	maxHashesOfNamespace = 5 * time.Second
	maxHashesOfAll       = 20 * time.Second
)

// ErrHashes is why the users of a Secret are left out that [TooCostly] returns.
var ErrHashes = fmt.Errorf("the hashes of this namespace are too costly to load with those of its other Secrets: those of a namespace may take %s, "+
	"and if those of all namespaces take more than %s, less", maxHashesOfNamespace, maxHashesOfAll)

// TooCostly returns the Secrets whose users are left out, since HAProxy would take too long to load their hashes: the
// last by name of a namespace with too many. If all namespaces together have too many, the namespace with most loses its
// last, and so on until the rest is within the bound: no more lose theirs than have to.
func TooCostly(costs map[snapshots.SecretName]time.Duration) (out []snapshots.SecretName) {
	kept := map[string][]snapshots.SecretName{}
	used := map[string]time.Duration{}
	all := time.Duration(0)
	for _, name := range slices.SortedFunc(maps.Keys(costs), snapshots.SecretName.Compare) {
		switch cost := costs[name]; {
		case used[name.Namespace]+cost > maxHashesOfNamespace:
			out = append(out, name)
		case cost > 0:
			kept[name.Namespace] = append(kept[name.Namespace], name)
			used[name.Namespace] += cost
			all += cost
		}
	}
	for all > maxHashesOfAll {
		most := slices.MaxFunc(slices.Collect(maps.Keys(used)), func(a, b string) int {
			return cmp.Or(cmp.Compare(used[a], used[b]), cmp.Compare(a, b))
		})
		last := len(kept[most]) - 1
		name := kept[most][last]
		kept[most] = kept[most][:last]
		used[most] -= costs[name]
		all -= costs[name]
		out = append(out, name)
	}
	slices.SortFunc(out, snapshots.SecretName.Compare)
	return out
}

// BoundUsers takes away the users that are too costly together, as the problem [ErrHashes].
func (s *Secrets) BoundUsers() {
	for _, name := range TooCostly(s.UserCosts) {
		delete(s.Users, name)
		need := bind.Need{Use: snapshots.UseUsers, Secret: name}
		s.Problems[need] = append([]error{ErrHashes}, s.Problems[need]...)
	}
}

func (s *Secrets) addAuthorities(name snapshots.SecretName, secret corev1.Secret) {
	data, ok := value(secret, bind.AuthoritiesKey)
	if !ok {
		return
	}
	authorities, err := pem.ParseAuthorities(data)
	if err != nil {
		s.Problems[bind.Need{Use: snapshots.UseCA, Secret: name}] = []error{err}
		return
	}
	s.Authorities[name] = authorities
}

// addValue adds a value that haproxy.cfg can hold. It skips everything else, such as certificates, without a
// report.
func (s *Secrets) addValue(key bind.SecretKey, secret corev1.Secret) {
	data, _ := value(secret, key.Key)
	if text, err := bind.SecretValue(data); err == nil {
		s.Values[key] = text
	}
}

// Authorities returns the certificate authorities of one Secret.
func Authorities(secret corev1.Secret) ([]byte, error) {
	data, _ := value(secret, bind.AuthoritiesKey)
	return pem.ParseAuthorities(data)
}

// Users returns the users of one Secret, and the problems with the others. ok is false if the Secret has no key
// for users.
func Users(secret corev1.Secret) (users []htpasswd.User, problems []htpasswd.Problem, ok bool) {
	data, ok := value(secret, bind.UsersKey)
	users, problems = htpasswd.Parse(data)
	return users, problems, ok
}

// keys returns the keys of a Secret.
func keys(secret corev1.Secret) map[string]bool {
	out := map[string]bool{}
	for key := range maps.Keys(secret.Data) {
		out[key] = true
	}
	for key := range maps.Keys(secret.StringData) {
		out[key] = true
	}
	return out
}

// value returns what a Secret has under a key. Manifests may give it as stringData, which the API server would
// write over data.
func value(secret corev1.Secret, key string) ([]byte, bool) {
	if text, ok := secret.StringData[key]; ok {
		return []byte(text), true
	}
	data, ok := secret.Data[key]
	return data, ok
}

// Problem is a Secret whose certificate cannot be served. Err wraps one of the causes in package snapshots,
// such as [pem.ErrKeyMismatch], and never holds any part of the Secret's data.
//
//nolint:errname // It is found beside certificates, not returned as an error.
type Problem struct {
	Secret snapshots.SecretName
	Err    error
}

// Error returns "Secret namespace/name: what is wrong".
func (p Problem) Error() string { return fmt.Sprintf("Secret %s: %v", p.Secret, p.Err) }

// Unwrap returns the cause.
func (p Problem) Unwrap() error { return p.Err }

// Certificates returns the certificates among the Secrets as HAProxy reads them, the chain and then the
// private key in one PEM, and the Secrets whose certificate cannot be served, sorted. A Secret has a
// certificate if it is of type kubernetes.io/tls or has the keys tls.crt and tls.key. Certificates does
// not check whether a certificate is valid now.
func Certificates(secrets []corev1.Secret) (certificates map[snapshots.SecretName][]byte, problems []Problem) {
	certificates = map[snapshots.SecretName][]byte{}
	for _, secret := range secrets {
		if !holdsCertificate(secret) {
			continue
		}
		name := snapshots.SecretName{Namespace: secret.Namespace, Name: secret.Name}
		pem, err := Certificate(secret)
		if err != nil {
			problems = append(problems, Problem{name, err})
			continue
		}
		certificates[name] = pem
	}
	slices.SortFunc(problems, func(a, b Problem) int { return a.Secret.Compare(b.Secret) })
	return certificates, problems
}

func holdsCertificate(secret corev1.Secret) bool {
	_, certificate := value(secret, corev1.TLSCertKey)
	_, key := value(secret, corev1.TLSPrivateKeyKey)
	return secret.Type == corev1.SecretTypeTLS || (certificate && key)
}

// Certificate returns the certificate of one Secret as HAProxy reads it.
func Certificate(secret corev1.Secret) ([]byte, error) {
	certificate, ok := value(secret, corev1.TLSCertKey)
	if !ok {
		return nil, fmt.Errorf("%s: %w", corev1.TLSCertKey, pem.ErrNoCertificate)
	}
	key, ok := value(secret, corev1.TLSPrivateKeyKey)
	if !ok {
		return nil, fmt.Errorf("%s: %w", corev1.TLSPrivateKeyKey, pem.ErrNoKey)
	}
	return pem.JoinKeyPair(certificate, key)
}

// ExpiryAndIssuer returns when the first certificate of PEM data expires, and the name of its issuer. They are
// zero if that is not known.
func ExpiryAndIssuer(data []byte) (until time.Time, issuer string) {
	leaf := firstCertificate(data)
	switch {
	case leaf == nil:
		return time.Time{}, ""
	case bytes.Equal(leaf.RawIssuer, leaf.RawSubject):
		return leaf.NotAfter, "itself"
	}
	return leaf.NotAfter, cmp.Or(leaf.Issuer.CommonName, strings.Join(leaf.Issuer.Organization, ", "), leaf.Issuer.String())
}

// ValidBetween returns the times between which the first certificate of PEM data is valid. They are zero if
// that is not known.
func ValidBetween(data []byte) (from, until time.Time) {
	if leaf := firstCertificate(data); leaf != nil {
		return leaf.NotBefore, leaf.NotAfter
	}
	return time.Time{}, time.Time{}
}

// firstCertificate returns the first certificate of PEM data, or nil if it is not valid.
func firstCertificate(data []byte) *x509.Certificate {
	block, _ := stdpem.Decode(data)
	if block == nil {
		return nil
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil
	}
	return leaf
}
