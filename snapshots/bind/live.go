package bind

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind/htpasswd"
)

// Live is the live data that a snapshot is bound to: what is true now,
// whatever the age of the snapshot. Endpoints are sorted by address and port,
// without duplicates. Whatever comes from Secrets must not be shown to anybody.
type Live struct {
	Endpoints map[snapshots.ServicePort][]snapshots.Endpoint
	// Certificates hold PEM: the chain, then the private key.
	Certificates map[snapshots.SecretName][]byte
	// Expired are those of the certificates that are not to be served any more.
	Expired map[snapshots.SecretName]bool
	// Versions are the certificates, as PEM, that references to versions are to, by
	// version; those that are at hand.
	Versions map[string][]byte
	// ExpiredVersions are those of them that are not to be served any more.
	ExpiredVersions map[string]bool
	// Authorities are what [pem.ParseAuthorities] returned.
	Authorities map[snapshots.SecretName][]byte
	// Users are what [htpasswd.Parse] returned.
	Users map[snapshots.SecretName][]htpasswd.User
	// Values are what [SecretValue] returned, for words of haproxy.cfg to stand for,
	// see [SecretWord].
	Values map[SecretKey]string
	// Fallback is the PEM of the certificate that is served where no other
	// fits. It belongs to the pusher, not to any Secret.
	Fallback []byte
}

// The keys of Secrets that uses have.
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

// Compare orders needs by use, Secret and key.
func (n Need) Compare(o Need) int {
	return cmp.Or(cmp.Compare(n.Use, o.Use), n.Secret.Compare(o.Secret), cmp.Compare(n.Key, o.Key))
}

// Needs returns what a haproxy.cfg with these certificate references takes from
// Secrets, sorted, each once. The error says which line cannot be followed.
func Needs(config []byte, certificates []snapshots.CertificateRef) ([]Need, error) {
	found, err := parseDirectives(config)
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
