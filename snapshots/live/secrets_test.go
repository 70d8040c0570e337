package live

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/bind/htpasswd"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem"
)

const someHash = "abhfCpXqd4GrI"

func TestGatherSecrets(t *testing.T) {
	t.Parallel()
	crt, key := keyPair(t, newECKey(t))
	opaque := func(name string, data map[string]string, text map[string]string) corev1.Secret {
		s := corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Data: map[string][]byte{}, StringData: text}
		for k, v := range data {
			s.Data[k] = []byte(v)
		}
		return s
	}
	got := GatherSecrets([]corev1.Secret{
		opaque("ca", map[string]string{"ca.crt": "text\n" + string(crt) + string(key)}, nil),
		opaque("no-ca", map[string]string{"ca.crt": string(key)}, nil),
		opaque("auth", map[string]string{"auth": "alice:" + someHash + "\nbob:secret\n"}, nil),
		opaque("no-auth", map[string]string{"auth": "bob:secret\n"}, nil),
		opaque("keys", map[string]string{"a": "old", "b": "two\nlines"}, map[string]string{"a": "new\n"}),
	})
	name := func(n string) snapshots.SecretName { return snapshots.SecretName{Namespace: "shop", Name: n} }
	if diff := cmp.Diff(map[snapshots.SecretName][]byte{name("ca"): crt}, got.Authorities); diff != "" {
		t.Errorf("authorities (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[snapshots.SecretName][]htpasswd.User{name("auth"): {{Name: "alice", Hash: someHash}}}, got.Users); diff != "" {
		t.Errorf("users (-want +got):\n%s", diff)
	}
	wantValues := map[bind.SecretKey]string{
		{Secret: name("keys"), Key: "a"}: "new", {Secret: name("no-auth"), Key: "auth"}: "bob:secret",
	}
	if diff := cmp.Diff(wantValues, got.Values); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
	checkFaults(t, got.Problems, map[bind.Need]string{
		{Use: snapshots.UseCA, Secret: name("no-ca")}:      "there is no certificate",
		{Use: snapshots.UseUsers, Secret: name("auth")}:    "line 2: user bob has no hash that HAProxy can check",
		{Use: snapshots.UseUsers, Secret: name("no-auth")}: "line 1: user bob has no hash that HAProxy can check",
	})
}

func checkFaults(t *testing.T, got map[bind.Need][]error, want map[bind.Need]string) {
	t.Helper()
	texts := map[bind.Need]string{}
	for need, errs := range got {
		texts[need] = errors.Join(errs...).Error()
		if strings.Contains(texts[need], "secret") || strings.Contains(texts[need], someHash) {
			t.Errorf("%s: %q tells a secret", need, texts[need])
		}
	}
	if diff := cmp.Diff(want, texts); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

func TestOneSecret(t *testing.T) {
	t.Parallel()
	crt, _ := keyPair(t, newECKey(t))
	s := corev1.Secret{StringData: map[string]string{"ca.crt": string(crt), "auth": "alice:" + someHash}}
	if got, err := Authorities(s); err != nil || string(got) != string(crt) {
		t.Errorf("authorities %s, %v", got, err)
	}
	if users, problems, ok := Users(s); !ok || len(problems) > 0 || len(users) != 1 || users[0].String() != "alice" {
		t.Errorf("users %v, %v, %v", users, problems, ok)
	}
	if _, err := Authorities(corev1.Secret{}); !errors.Is(err, pem.ErrNoCertificate) {
		t.Errorf("authorities of nothing: %v", err)
	}
	if _, _, ok := Users(corev1.Secret{}); ok {
		t.Error("users of nothing")
	}
}
