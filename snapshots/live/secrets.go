package live

import (
	"maps"

	corev1 "k8s.io/api/core/v1"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/bind/htpasswd"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem"
)

// Secrets are the live data that Secrets hold besides certificates, and what is
// wrong with it. Whether somebody means it to be used so only snapshots know: the
// key auth may hold anything.
type Secrets struct {
	Authorities map[snapshots.SecretName][]byte
	Users       map[snapshots.SecretName][]htpasswd.User
	Values      map[bind.SecretKey]string
	// Problems say why authorities and users cannot be used, or are used at a cost.
	// They hold nothing of what a Secret holds but names of users.
	Problems map[bind.Need][]error
}

// GatherSecrets returns the certificate authorities under ca.crt, the users under
// auth and the values under all keys.
func GatherSecrets(secrets []corev1.Secret) Secrets {
	out := Secrets{
		Authorities: map[snapshots.SecretName][]byte{}, Users: map[snapshots.SecretName][]htpasswd.User{},
		Values: map[bind.SecretKey]string{}, Problems: map[bind.Need][]error{},
	}
	for _, secret := range secrets {
		name := snapshots.SecretName{Namespace: secret.Namespace, Name: secret.Name}
		out.addAuthorities(name, secret)
		out.addUsers(name, secret)
		for key := range keys(secret) {
			out.addValue(bind.SecretKey{Secret: name, Key: key}, secret)
		}
	}
	return out
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

func (s *Secrets) addUsers(name snapshots.SecretName, secret corev1.Secret) {
	data, ok := value(secret, bind.UsersKey)
	if !ok {
		return
	}
	users, problems := htpasswd.Parse(data)
	for _, p := range problems {
		need := bind.Need{Use: snapshots.UseUsers, Secret: name}
		s.Problems[need] = append(s.Problems[need], p)
	}
	if len(users) > 0 {
		s.Users[name] = users
	}
}

// addValue adds what can be a value of haproxy.cfg. It does not report what cannot,
// such as all certificates.
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

// Users returns the users of one Secret, and what is wrong with the others; ok is
// false if the Secret has no key for them.
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

// value returns what a Secret has under a key. Manifests may give it as
// stringData, which the API server would turn into data, over what is there.
func value(secret corev1.Secret, key string) ([]byte, bool) {
	if text, ok := secret.StringData[key]; ok {
		return []byte(text), true
	}
	data, ok := secret.Data[key]
	return data, ok
}
