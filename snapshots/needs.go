package snapshots

import (
	"cmp"
	"fmt"
	"slices"
)

// The keys of Secrets that uses have.
const (
	AuthoritiesKey = "ca.crt"
	UsersKey       = "auth"
)

// SecretKey names one value of a Secret.
type SecretKey struct {
	Secret SecretName
	Key    string
}

// String returns "namespace/name/key".
func (k SecretKey) String() string { return k.Secret.String() + "/" + k.Key }

// Need is something that a snapshot takes from a Secret when it is bound. Key is
// set for [UseValue] only.
type Need struct {
	Use    Use
	Secret SecretName
	Key    string
}

// String returns what is needed, such as "users of Secret shop/auth".
func (n Need) String() string {
	switch n.Use {
	case UseCertificate:
		return fmt.Sprintf("certificate of Secret %s", n.Secret)
	case UseCA:
		return fmt.Sprintf("certificate authorities of Secret %s", n.Secret)
	case UseValue:
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
func Needs(config []byte, certificates []CertificateRef) ([]Need, error) {
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
		if ref.Secret != (SecretName{}) {
			out = append(out, Need{Use: ref.Use, Secret: ref.Secret})
		}
	}
	for _, d := range found.users {
		out = append(out, Need{Use: UseUsers, Secret: d.Secret})
	}
	for _, key := range keys {
		out = append(out, Need{Use: UseValue, Secret: key.Secret, Key: key.Key})
	}
	slices.SortFunc(out, Need.Compare)
	return slices.Compact(out), nil
}
