package pem_test

import (
	"crypto/x509"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/snapshots/bind/pem"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem/pemtest"
)

// WithoutRoot finds certificates without their issuers up to a self-signed one, in whatever order they are.
func TestWithoutRoot(t *testing.T) {
	t.Parallel()
	root := pemtest.NewAuthority(t)
	sign := func(by pemtest.Authority, name string) pemtest.Authority {
		return by.Authority(t, name)
	}
	upper := sign(root, "upper")
	lower := sign(upper, "lower")
	for name, c := range map[string]struct {
		pems []string
		want string
	}{
		"a root":                    {[]string{root.PEM}, ""},
		"an intermediate":           {[]string{upper.PEM}, "CN=upper"},
		"with its root":             {[]string{upper.PEM, root.PEM}, ""},
		"two, with the root":        {[]string{lower.PEM, upper.PEM, root.PEM}, ""},
		"the middle is missing":     {[]string{lower.PEM, root.PEM}, "CN=lower"},
		"the root is missing":       {[]string{upper.PEM, lower.PEM}, "CN=lower CN=upper"},
		"nothing":                   {nil, ""},
		"text that is none, and so": {[]string{"x\n", upper.PEM}, "CN=upper"},
	} {
		got := strings.Join(slices.Sorted(maps.Values(pem.WithoutRoot([]byte(strings.Join(c.pems, ""))))), " ")
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	if _, has := pem.WithoutRoot([]byte(upper.PEM))[upper.PEM]; !has {
		t.Error("the certificate is not named by its text")
	}
	if !upper.Certificate.IsCA || upper.Certificate.KeyUsage&x509.KeyUsageCertSign == 0 {
		t.Error("what was tested is no authority")
	}
}
